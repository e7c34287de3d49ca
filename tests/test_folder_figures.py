"""Figures and explorers of released checkpoints: their tokenizer's words, their own tensors, or a reason why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import morph
from morph import config as c
from morph.config import ModelConfig
from morph.rendering.command import explained
from morph.story import Figure, Frame, figure, names, store
from morph.story.rope_layer import dot, layers
from morph.story.rope_pairs import Live
from morph.story.subject import subject
from morph.widgets import AttentionExplorer, RouterView, Stepper, TokenTrace
from tests.checkpoints import byte_level, sentence_pieces, write_checkpoint

MODELS = ("residual", "rope", "norm", "ffn", "kv-cache", "masks", "moe", "beyond-softmax")
TEXT = "for key in keys:\n    total += counts[key]"


def nano(stage: str, **changes: Any) -> ModelConfig:
    """A stage in the form in which transformers' classes hold it."""
    return replace(morph.stage(stage, "nano"), vocab_size=512, embedding_scale=1.0, tied=False, **changes)


def experts() -> ModelConfig:
    """Mixtral with a window in every layer."""
    moe = c.MoE(
        expert=c.GatedMLP(width=32, activation="silu"), n_experts=16, top_k=4, routed_scale=1.0, balance=c.NoBalance()
    )
    return nano("gqa", feed_forward=moe, layout=c.AllLocal(local=c.SlidingWindow(window=16)))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints: with words of two kinds, with experts, and without a tokenizer."""
    home = tmp_path_factory.mktemp("released")
    return {
        "llama": write_checkpoint(home / "llama", nano("gqa"), "llama", byte_level()),
        "pieces": write_checkpoint(home / "pieces", nano("gqa"), "llama", sentence_pieces()),
        "mixtral": write_checkpoint(home / "mixtral", experts(), "mixtral", byte_level()),
        "bare": write_checkpoint(home / "bare", nano("gqa"), "llama"),
    }


@pytest.fixture(scope="module")
def figures(places: dict[str, Path]) -> dict[tuple[str, str], Figure]:
    wanted = [("llama", name) for name in MODELS] + [("mixtral", "masks"), ("mixtral", "moe"), ("bare", "residual")]
    return {(model, name): figure(name, model=places[model]) for model, name in wanted}


def test_every_frame_holds_or_says_why_not(figures: dict[tuple[str, str], Figure]) -> None:
    for (model, name), made in figures.items():
        for frame in made.frames:
            assert frame.check(), (model, name, frame.key, frame.claim.text)
        assert made.provenance["model"] == f"checkpoint {model}: {'mixtral' if model == 'mixtral' else 'llama'}"
    gone = {name: [f.key for f in figures["llama", name].frames if f.absent] for name in MODELS}
    assert gone["residual"] == gone["rope"] == gone["norm"] == gone["ffn"] == []
    assert gone["beyond-softmax"] == ["held", "state", "interference", "erase", "decay", "work", "stack"]
    assert gone["masks"] == ["window", "cache", "stack", "work"]
    assert len(gone["moe"]) == 9
    assert [f.key for f in figures["mixtral", "moe"].frames if f.absent] == [
        "dense", "shared", "collapse", "auxiliary-loss", "selection-bias",
    ]  # fmt: skip
    assert [f.key for f in figures["mixtral", "masks"].frames if f.absent] == ["causal"]


def frame_of(made: Figure, key: str) -> Frame:
    return next(frame for frame in made.frames if frame.key == key)


def test_frames_show_the_tokenizers_words(places: dict[str, Path], figures: dict[tuple[str, str], Figure]) -> None:
    shown = subject(places["llama"])
    ids = shown.ids(16)[0].tolist()
    words = [shown.vocabulary.shown(token) for token in ids]
    assert words[0] == "<|begin|>" and max(map(len, words[1:])) > 1
    assert frame_of(figures["mixtral", "moe"], "dispatch").facts["tokens"] == words
    bus = frame_of(figures["llama", "residual"], "bus")
    last = [shown.shown(token) for token in shown.ids(64)[0, -8:].tolist()]
    assert bus.facts["words"] == last and bus.caption.startswith(f"Token “{last[-1]}” becomes 48 numbers")
    weights = load_file(places["llama"] / "model.safetensors")["model.embed_tokens.weight"]
    row = weights[int(shown.ids(64)[0, -1])].numpy()
    np.testing.assert_allclose(bus.values("stream")[:, -1], row[:48], rtol=1e-5)  # its rows enter without a scale


def test_nothing_is_said_of_a_beginning_or_a_training(figures: dict[tuple[str, str], Figure]) -> None:
    residual = figures["llama", "residual"]
    assert not any(name.startswith("first_") for f in residual.frames[:8] for name in f.arrays)
    asides = {frame.facts["aside"] for frame in residual.frames}
    assert asides == {"4 layers, as released", "4 layers, as initialized"}
    told = frame_of(figures["llama", "rope"], "wavelengths")
    assert told.facts["texts"] == "texts of up to" and "has only seen" not in told.caption
    assert "at 4 times the length its config allows" in frame_of(figures["llama", "rope"], "longer").caption.lower()
    for key in ("collapse", "auxiliary-loss", "selection-bias"):
        assert "How this model was trained is not known" in frame_of(figures["mixtral", "moe"], key).absent


def test_without_a_tokenizer_random_ids_are_read_and_said(
    places: dict[str, Path], figures: dict[tuple[str, str], Figure]
) -> None:
    bare = subject(places["bare"])
    ids = bare.ids(200)
    assert bare.name == "checkpoint bare (llama), random ids" and bare.reads == "ids drawn at random"
    assert torch.equal(ids, subject(places["bare"]).ids(200)) and len(ids.unique()) > 100
    assert not torch.equal(ids, subject(places["bare"], seed=1).ids(200))
    made = figures["bare", "residual"]
    assert all("random ids" in frame.source for frame in made.frames[:8])
    assert made.frames[0].facts["words"][-1] == f"#{int(bare.ids(64)[0, -1])}"
    with pytest.raises(morph.MorphError, match=r"has no tokenizer\.json"):
        AttentionExplorer(places["bare"], TEXT)


def test_a_large_model_is_not_built_five_times_over(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morph.story.residual_norms.MOST_BUILT", 1000)
    made = figure("residual", model=places["llama"])
    assert [bool(frame.absent) for frame in made.frames] == [False] * 8 + [True] * 5
    size = f"{morph.count(nano('gqa')).total:,}"
    assert all(size in frame.absent and "1,000" in frame.absent for frame in made.frames[8:])


def test_explain_names_the_tensors(places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.PLACE, str(tmp_path / "kept"))
    text = explained("moe", {"model": str(places["mixtral"])})
    assert "does not hold" not in text and "blocks.2.feed_forward.router.chosen" in text
    assert "This model has no shared expert" in text and "checkpoint mixtral (mixtral)" in text.lower()
    assert list((tmp_path / "kept").glob("moe-*.json"))


def test_a_kept_figure_is_that_of_these_weights(places: dict[str, Path], tmp_path: Path) -> None:
    place = tmp_path / "copy"
    place.mkdir()
    for file in places["llama"].iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    before = store.digest("rope", {"model": str(place)})
    assert store.digest("rope", {"model": str(place)}) == before
    (place / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True}))
    changed = store.digest("rope", {"model": str(place)})
    save_file(load_file(place / "model.safetensors"), place / "model.safetensors")
    assert len({before, changed, store.digest("rope", {"model": str(place)})}) == 3


# ---- explorers ----


@pytest.mark.parametrize("model", ["llama", "pieces"])
def test_explorers_read_with_the_tokenizer(places: dict[str, Path], model: str) -> None:
    shown, ids = subject(places[model]), None
    attention, trace = AttentionExplorer(places[model], TEXT), TokenTrace(places[model], TEXT)
    ids = [*shown.vocabulary.start, *shown.vocabulary.read(TEXT)]
    words = [shown.shown(token) for token in ids]
    assert attention.frame.facts["tokens"] == trace.frame.facts["tokens"] == words and len(words) < len(TEXT)
    with torch.no_grad(), morph.trace(shown.model) as seen:
        logits = shown.model(torch.tensor([ids]))
    expected = torch.stack([seen[f"blocks.{layer}.attention.weights"][0] for layer in range(4)])
    np.testing.assert_array_equal(attention.frame.values("weights"), expected.numpy())
    chances = logits[0].softmax(-1).topk(3)
    np.testing.assert_allclose(trace.frame.values("probability")[-1], chances.values.numpy(), rtol=1e-5)
    assert trace.frame.facts["likely"][-1][0] == [shown.shown(int(i)) for i in chances.indices[0]]
    assert trace.data["letters"] > 96 and attention.problem == ""
    attention.text = "x" * 2000
    assert "tokens and 96 can be shown; cut it" in attention.problem


def test_the_router_and_the_stepper_take_a_folder(places: dict[str, Path], tmp_path: Path) -> None:
    router = RouterView(places["mixtral"], TEXT)
    assert router.frame.check() and router.frame.values("chosen").shape[-1] == 4
    assert "checkpoint mixtral (mixtral)" in router.heading
    stepper = Stepper(figure("masks", model=places["mixtral"]))
    assert "checkpoint mixtral" in stepper.to_html()


def test_layers_may_differ_in_heads() -> None:
    """Step 3.5 has more query heads where it has windows: maps that a layer has not are NaN and are not told of."""
    base = morph.stage("sliding-window", "nano")
    local = c.SlidingWindow(window=16, n_heads=8)
    model = morph.build(replace(base, layout=c.Interleaved(n_local=1, local=local), n_layers=4))
    explorer = AttentionExplorer(model, "for key in keys")
    weights = explorer.frame.values("weights")
    assert explorer.frame.facts["heads"] == [8, 4, 8, 4] and weights.shape[:2] == (4, 8)
    assert np.isnan(weights[1, 4:]).all() and not np.isnan(weights[1, :4]).any() and explorer.frame.check()
    assert len(explorer.transcript()) == 8 + 4 + 8 + 4
    sink = frame_of(figure("masks", model=model), "sink")
    assert sink.check() and np.isnan(sink.values("first")[1, 4:]).all()


def test_a_stack_may_begin_with_the_layer_that_sees_all() -> None:
    """Step 3.5 and others: global, then windows; the layers up to the next global one are drawn."""
    base = replace(morph.stage("sliding-window", "nano"), n_layers=7)
    local = c.SlidingWindow(window=8)
    made = figure("masks", model=replace(base, layout=c.Listed(local=local, global_layers=(0, 4))))
    stack = frame_of(made, "stack")
    assert stack.title == "A 3:1 stack of masks" and stack.check()
    assert [row["layer"] for row in stack.facts["rows"]] == [0, 1, 2, 3]
    assert [row["window"] for row in stack.facts["rows"]] == [None, 8, 8, 8]


# ---- what figure 3 says of other layers ----

TURNS: dict[str, Callable[[], ModelConfig]] = {
    "half-split": lambda: nano("qk-norm"),
    "interleaved": lambda: nano("qk-norm", position=c.Rope(pairing="interleaved")),
    "part, interleaved": lambda: nano("qk-norm", position=c.PartialRope(fraction=0.5, pairing="interleaved")),
    "yarn": lambda: nano("gqa", position=c.YarnRope(factor=8.0, original_length=16, attention_scale=1.3)),
    "latents": lambda: morph.fork("mla", "nano"),
    "latents, interleaved": lambda: replace(
        morph.fork("mla", "nano"), position=c.YarnRope(factor=4.0, original_length=32, pairing="interleaved")
    ),
    "scale": lambda: nano("gqa", attention=c.Attention(n_heads=4, n_kv_heads=2, head_dim=12, scale=0.5)),
    "cap": lambda: nano("gqa", attention=c.Attention(n_heads=4, n_kv_heads=2, head_dim=12, softcap=c.Softcap(cap=2.0))),
}  # fmt: skip


@pytest.mark.parametrize("kind", TURNS)
def test_the_pairs_of_figure_3_score_as_the_layer_does(kind: str) -> None:
    """Two tokens set at two places, and all pairs turned by hand: the layer's own score of its own pass."""
    shown = subject(TURNS[kind]())
    layer = layers(shown, 40)[-1]
    assert layer.rope is not None
    live = Live.of(shown, layer, layer.rope)
    (a, b), m, n = live.tokens, 23, 9
    x = layer.x.clone()
    x[m], x[n] = layer.x[a], layer.x[b]
    expected = layer.attend(x, layer.rope)["scores"][:, m, n]
    turned = dot(live.queries[:, a] * np.exp(1j * m * live.speeds), live.keys[:, b] * np.exp(1j * n * live.speeds))
    mine = layer.capped((turned.sum(-1) + live.rest[:, a, b]) * layer.scale)
    np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-12)
    assert np.abs(expected).max() > 1e-3 and 0 < len(live.speeds) <= layer.width // 2


@pytest.mark.parametrize("kind", ["interleaved", "latents, interleaved", "cap"])
def test_figures_hold_for_such_layers(kind: str) -> None:
    config = TURNS[kind]()
    for name in ("rope", "masks"):
        made = figure(name, model=config)
        assert all(frame.check() for frame in made.frames), [f.key for f in made.frames if not f.check()]
    assert not any(frame.absent for frame in figure("rope", model=config).frames)


def test_all_figures_are_covered() -> None:
    assert set(names()) == {"morph", *MODELS}  # a new figure of models needs a look here
