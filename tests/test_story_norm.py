"""Figure 4 as data: claims on live models of two seeds, wrong data refused, and models that lack a part."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from morph.lab.result import recorded
from morph.story import Figure, Frame, figure
from morph.story.norm_heads import EARLY, FACTORS
from morph.story.norm_places import PLACES, WHO
from morph.story.released import RELEASED
from morph.story.stream import gradients, read
from morph.story.subject import subject
from tests.stories import with_array

KEYS = (
    "layer-norm", "rms-norm", "post", "pre", "sandwich", "post-branch", "gradients", "growth", "warm-up", "logits",
    "entropy",
)  # fmt: skip


@cache
def made(seed: int = 0) -> Figure:
    return figure("norm", seed=seed)


@cache
def of(name: str, size: str = "nano") -> Figure:
    return figure("norm", model=subject(name, size=size).config)


def at(key: str, seed: int = 0) -> Frame:
    return made(seed).frames[KEYS.index(key)]


@pytest.mark.parametrize("seed", [0, 1])
def test_eleven_frames_whose_claims_hold(seed: int) -> None:
    assert tuple(frame.key for frame in made(seed).frames) == KEYS
    assert made(seed).number == 4
    assert [frame.key for frame in made(seed).frames if not frame.check() or frame.absent] == []


def turned(values: np.ndarray) -> np.ndarray:
    return values[::-1]


WRONG: list[tuple[str, str, Callable[[np.ndarray], Any]]] = [
    ("layer-norm", "normed", lambda v: v + 0.1),
    ("layer-norm", "normed", lambda v: 1.1 * v),
    ("layer-norm", "x", turned),
    ("rms-norm", "normed", lambda v: v - v.mean()),
    ("rms-norm", "cosine", lambda v: v - 0.01),
    ("rms-norm", "lab", lambda v: v + np.array([[0.1], [0.0]])),
    ("post", "states", lambda v: 1.1 * v),
    ("post", "left", np.ones_like),
    ("pre", "left", lambda v: 0.9 * v),
    ("pre", "states", turned),
    ("sandwich", "writes", lambda v: 1.1 * v),
    ("post-branch", "writes", lambda v: 0.9 * v),
    ("post-branch", "left", lambda v: 0.9 * v),
    ("gradients", "post", np.ones_like),
    ("gradients", "sandwich", lambda v: 1000 * v),
    ("growth", "post", lambda v: v * np.linspace(1, 2, len(v))),
    ("growth", "pre", turned),
    ("warm-up", "bits", turned),
    ("logits", "without", lambda v: v[:1] + 0 * v),
    ("logits", "with", lambda v: v * np.array(FACTORS)),
    ("entropy", "without", turned),
    ("entropy", "without", lambda v: v[0] - 0.01 * np.arange(len(v))),
    ("entropy", "with", lambda v: v / np.array(FACTORS)),
]


@pytest.mark.parametrize(("key", "name", "change"), WRONG, ids=[f"{k}-{n}-{i}" for i, (k, n, _) in enumerate(WRONG)])
def test_every_claim_can_fail(key: str, name: str, change: Callable[[np.ndarray], Any]) -> None:
    assert {k for k, _, _ in WRONG} == set(KEYS)
    assert not with_array(at(key), name, change).check()


def test_both_norms_are_torchs_own() -> None:
    source = subject("deep")
    states = read(source).states
    x = states[source.config.n_layers, -1].double()  # half way: two states a layer
    width = x.shape
    eps = source.config.norm.eps
    np.testing.assert_allclose(at("layer-norm").values("x"), x, rtol=1e-5)
    np.testing.assert_allclose(at("layer-norm").values("normed"), F.layer_norm(x, width, eps=eps), atol=1e-4)
    np.testing.assert_allclose(at("rms-norm").values("normed"), F.rms_norm(x, width, eps=eps), atol=1e-4)
    cosine = F.cosine_similarity(F.layer_norm(x, width), F.rms_norm(x, width), dim=0)
    assert float(at("rms-norm").values("cosine")) == pytest.approx(float(cosine), abs=1e-4)


def test_captions_carry_their_numbers() -> None:
    x = at("layer-norm").values("x")
    assert f"{x.std():.2f}" in at("layer-norm").caption and f"{abs(x.mean()):.2f}" in at("layer-norm").caption
    assert f"cosine {float(at('rms-norm').values('cosine')):.4f}" in at("rms-norm").caption
    assert (
        f"grows {at('logits').values('without')[-1] / at('logits').values('without')[0]:.0f}-fold"
        in at("logits").caption
    )
    spread = 2 ** at("entropy").values("without")[0]
    assert f"as over {spread:.0f} tokens" in at("entropy").caption


def test_sizes_beside_the_diagram_are_the_streams() -> None:
    post = at("post").facts["sizes"]
    assert post["before"] == post["copy"] and post["after"] == pytest.approx(1, abs=0.01)
    pre = at("pre").facts["sizes"]
    assert pre["copy"] == pytest.approx(1, abs=0.01) and pre["before"] > 2
    assert at("post-branch").facts["sizes"]["copy"] == at("post-branch").facts["sizes"]["before"]


def test_gradients_are_those_of_the_same_models() -> None:
    config = subject("deep").config
    from dataclasses import replace

    one = subject(replace(config, placement="post"))
    lengths = gradients(one)
    np.testing.assert_allclose(at("gradients").values("post"), lengths / lengths[-1], rtol=1e-4)
    assert set(at("growth").arrays) == {"depth", *PLACES}


def test_the_lab_is_read_at_each_arms_best_rate() -> None:
    result, frame = recorded("warm-up"), at("warm-up")
    for arm, row in zip(frame.facts["arms"], frame.values("bits")):
        assert row.tolist() == result.numbers(arm, {}, "bits per byte")
    assert len(frame.facts["arms"]) == 7


def test_without_the_norm_scores_are_products_of_raw_queries_and_keys() -> None:
    source = subject("deep")
    layer = source.config.n_layers // 2
    attention = source.model.blocks[layer].attention
    seen = read(source).seen
    q, k = seen[f"blocks.{layer}.attention.q_norm.input"][0], seen[f"blocks.{layer}.attention.k_norm.input"][0]
    assert at("logits").facts["layer"] == layer
    angle = attention.rope
    assert angle is not None
    # a rotation keeps lengths, so no score is above the product of the longest two
    longest = float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) * q.shape[-1] ** -0.5
    assert 0 < at("logits").values("without")[0] <= longest * (1 + 1e-6)
    own = seen[f"blocks.{layer}.attention.scores"][0]
    own = own[own.isfinite()]
    assert at("logits").values("with")[0] == pytest.approx(float(own.abs().max()), rel=1e-4)


def test_entropy_is_that_of_the_models_weights() -> None:
    source = subject("deep")
    layer = at("entropy").facts["layer"]
    weights = read(source).seen[f"blocks.{layer}.attention.weights"][0, :, EARLY:].double()
    bits = torch.special.entr(weights).sum(-1).mean() / np.log(2)
    assert at("entropy").values("with")[0] == pytest.approx(float(bits), rel=1e-4)


@pytest.mark.parametrize("name", ["2017", "gated-ffn", "hybrid", "sandwich-norm", "parallel-block", "alibi"])
def test_other_models_say_what_is_true_of_them(name: str) -> None:
    assert [frame.key for frame in of(name).frames if frame.absent or not frame.check()] == []


@pytest.mark.parametrize("name", ["mla", "logit-softcap"])
def test_heads_that_cannot_be_normed_alone_are_absent(name: str) -> None:
    assert [frame.key for frame in of(name).frames if frame.absent] == ["logits", "entropy"]


def test_a_model_without_qk_norm_gets_one_for_the_comparison() -> None:
    frame = of("gated-ffn").frames[KEYS.index("logits")]
    assert frame.facts["made"] and "put in" in frame.source
    assert not at("logits").facts["made"] and "taken out" in at("logits").source


def test_released_models_stand_where_their_configs_put_their_norms() -> None:
    """Each name of a frame is the beginning of released models' names, and all of those have that placement."""
    names = {"GPT-2": "GPT-2", "Llama": "Llama", "Qwen3": "Qwen3", "DeepSeek-V3": "DeepSeek-V3", "Gemma 2": "Gemma 2",
             "3": "Gemma 3", "Trinity Large": "Trinity Large", "Olmo 3": "Olmo 3"}  # fmt: skip
    for placement, told in WHO.items():
        for word in re.split(r", | and ", told):
            if word in ("the Transformer of 2017", "OLMo 2"):  # not in the list of released models
                continue
            found = [model.config.placement for name, model in RELEASED.items() if name.startswith(names[word])]
            assert found and set(found) == {placement}, word
