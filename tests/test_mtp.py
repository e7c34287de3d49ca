"""Multi-token prediction: the heads by their formula and against Hugging Face, their loss, what they cost, training."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import morph
from morph.config import MTP, AuxiliaryLoss, LogitCap, ModelConfig, Placement
from morph.errors import MorphError
from morph.forks import config_of
from morph.model import Decoder
from morph.nn import loss as loss_module
from morph.train.checkpoint import load_model
from morph.train.data import Corpus, load_corpus
from morph.train.loop import StepReport, evaluate, train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.models import random_ids, relative_error, stage_model
from tests.test_references import hugging_face_config, hugging_face_weights
from tests.test_train_data import folder
from tests.test_train_runs import assert_same_weights
from tests.tools import need

BASES = ("2017", "rope", "sliding-window", "hybrid", "learned-position", "alibi", "all-local", "post-branch-norm")


def with_heads(word: str, depth: int = 2, **kw: Any) -> ModelConfig:
    return replace(config_of(word, "nano"), mtp=MTP(depth=depth), **kw)


def states(model: Decoder, ids: Tensor) -> list[Tensor]:
    """h^0, h^1, ... of all columns that have them, a fresh pass of each head."""
    found = [model.read(ids)]
    for k, head in enumerate(model.mtp, start=1):
        length = ids.shape[1] - k
        context = model.context(0, length)
        found.append(head(found[-1][:, :length], model.embed(ids[:, k:]), context))
    return found


# ---- what a head computes ----


@pytest.mark.parametrize("word", BASES)
@torch.no_grad()
def test_a_head_joins_the_next_token_to_the_stream_and_asks_its_block(word: str) -> None:
    """Two norms, the map W with the token first, the block's own stream, a norm of its own, the trunk's head."""
    model = stage_model(with_heads(word, depth=3), dtype=torch.float64)
    ids = random_ids(model, 2, 40)
    with morph.trace(model) as seen:
        model.loss(ids[:, :-1], ids[:, 1:])
    trunk = model.norm(seen["blocks.3.stream"])
    h, D = trunk, 48
    for k, head in enumerate(model.mtp):
        length = 39 - (k + 1)
        e = model.embedding.weight[ids[:, k + 1 : 39]] * D**0.5
        assert relative_error(seen[f"mtp.{k}.token_norm.input"], e) < 1e-13
        assert relative_error(seen[f"mtp.{k}.stream_norm.input"], h[:, :length]) < 1e-13
        joined = (
            head.token_norm(e) @ head.join.weight[:, :D].T + head.stream_norm(h[:, :length]) @ head.join.weight[:, D:].T
        )
        assert relative_error(seen[f"mtp.{k}.stream"], joined) < 1e-12
        out = seen[f"mtp.{k}.block.stream"]
        assert relative_error(head.block(joined, model.context(0, length)), out) < 1e-12
        h = head.norm(out)
        assert (model.config.placement == "post") is isinstance(head.norm, torch.nn.Identity)
    assert len({id(p) for p in model.parameters()}) == len(list(model.parameters()))
    names = {name.split(".", 2)[2] for name, _ in model.named_parameters() if name.startswith("mtp.1")}
    assert not [name for name in names if "embedding" in name or "head" in name], "both are the trunk's"


@pytest.mark.parametrize("word", BASES)
def test_the_loss_is_the_weighted_mean_of_the_heads_cross_entropies(word: str) -> None:
    """Written out with whole softmaxes; some targets are not counted."""
    model = stage_model(with_heads(word, depth=3, logits=LogitCap(cap=4.0)), dtype=torch.float64)
    text = random_ids(model, 2, 41)
    ids, targets = text[:, :-1], text[:, 1:].clone()
    targets[0, 5:9] = -100
    entropies = []
    for k, h in enumerate(states(model, ids)):
        logits = 4 * torch.tanh(h @ model.embedding.weight.T / 4)
        entropies.append(F.cross_entropy(logits.flatten(0, 1), targets[:, k:].flatten()))
        assert h.shape[1] == 40 - k
    loss = model.loss(ids, targets)
    assert loss.cross_entropy.item() == pytest.approx(entropies[0].item(), rel=1e-12)
    assert loss.mtp.item() == pytest.approx(0.3 * torch.stack(entropies[1:]).mean().item(), rel=1e-12)
    assert loss.total.item() == pytest.approx((loss.cross_entropy + loss.balance + loss.mtp).item(), rel=1e-14)


@pytest.mark.parametrize("word", BASES)
@torch.no_grad()
def test_a_head_sees_the_tokens_it_was_given_and_none_beyond(word: str) -> None:
    """h_i^k changes with token i + k and does not with token i + k + 1."""
    model = stage_model(with_heads(word), dtype=torch.float64)
    ids = random_ids(model, 1, 40)
    changed = ids.clone()
    changed[0, 29] = (changed[0, 29] + 7) % 256
    for k, (before, after) in enumerate(zip(states(model, ids), states(model, changed), strict=True)):
        assert relative_error(after[:, : 29 - k], before[:, : 29 - k]) < 1e-13
        assert relative_error(after[:, 29 - k], before[:, 29 - k]) > 1e-3


@torch.no_grad()
def test_a_loss_in_slices_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stage_model("mtp", dtype=torch.float64)
    ids = random_ids(model, 2, 41)
    whole = model.loss(ids[:, :-1], ids[:, 1:])
    monkeypatch.setattr(loss_module, "FEW", 256 * 7)
    sliced = model.loss(ids[:, :-1], ids[:, 1:])
    assert sliced.mtp.item() == pytest.approx(whole.mtp.item(), rel=1e-13) and whole.mtp > 0.3


def test_a_text_too_short_for_a_head_leaves_it_out() -> None:
    model = stage_model(with_heads("rope", depth=3), dtype=torch.float64)
    ids = random_ids(model, 1, 5)
    two = model.loss(ids[:, :3], ids[:, 1:4])  # heads 1 and 2 have a column each or two, head 3 none
    entropies = [
        F.cross_entropy((h @ model.embedding.weight.T).flatten(0, 1), ids[0, k + 1 : 4])
        for k, h in enumerate(states(stage_with(model, 2), ids[:, :3]))
    ]
    assert two.mtp.item() == pytest.approx(0.3 * torch.stack(entropies[1:]).mean().item(), rel=1e-12)
    none = model.loss(ids[:, :1], ids[:, 1:2])
    assert none.mtp.item() == 0 and none.total.item() == none.cross_entropy.item()


def stage_with(model: Decoder, depth: int) -> Decoder:
    """The same weights with fewer heads."""
    fewer = morph.build(replace(model.config, mtp=MTP(depth=depth))).to(model.embedding.weight.dtype).eval()
    fewer.load_state_dict({n: p for n, p in model.state_dict().items() if n in fewer.state_dict()})
    return fewer


# ---- the relation to the base ----


@torch.no_grad()
def test_the_trunk_is_the_base() -> None:
    model, base = stage_model("mtp", dtype=torch.float64), stage_model("hybrid", dtype=torch.float64)
    own = model.state_dict()
    assert {name for name in own if not name.startswith("mtp.")} == set(base.state_dict())
    base.load_state_dict({name: value for name, value in own.items() if not name.startswith("mtp.")})
    ids = random_ids(base, 2, 40)
    assert torch.equal(model(ids), base(ids))
    assert torch.equal(morph.generate(model, ids, 9, temperature=0), morph.generate(base, ids, 9, temperature=0))
    ours, theirs = model.loss(ids, ids), base.loss(ids, ids)
    assert torch.equal(ours.cross_entropy, theirs.cross_entropy) and theirs.mtp == 0
    light = morph.build(replace(model.config, mtp=MTP(weight=1e-12))).double().eval()
    light.load_state_dict(own)
    assert light.loss(ids, ids).total.item() == pytest.approx(theirs.total.item(), rel=1e-10)


def test_the_trunk_learns_from_the_heads() -> None:
    """The gradient of the heads' part alone reaches every layer, the embedding and the final norm."""
    model = stage_model("mtp").train()
    ids = random_ids(model, 4, 64)
    model.loss(ids[:, :-1], ids[:, 1:]).mtp.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and float(parameter.grad.abs().max()) > 1e-7, name


def test_balance_is_the_mean_over_all_layers_with_experts() -> None:
    config = config_of("shared-expert", "nano")
    model = stage_model(replace(config, mtp=MTP(depth=2))).train()
    ids = random_ids(model, 2, 40)
    routers = [*(b.feed_forward.router for b in model.blocks), *(h.block.feed_forward.router for h in model.mtp)]
    seen: list[tuple[Tensor, Tensor]] = []
    for router in routers:
        router.register_forward_hook(
            lambda r, inputs, out: seen.append((out[1], r.score(r.logits(inputs[0].float())).detach()))
        )
    loss = model.loss(ids[:, :-1], ids[:, 1:])
    assert [len(chosen) for chosen, _ in seen] == [78] * 4 + [76, 74]
    parts = [
        32 * (torch.bincount(chosen.flatten(), minlength=32) / chosen.numel() * scores.mean(0)).sum()
        for chosen, scores in seen
    ]
    assert isinstance(config.moe.balance, AuxiliaryLoss)  # type: ignore[union-attr]
    assert loss.balance.item() == pytest.approx(0.01 * torch.stack(parts).mean().item(), rel=1e-5)
    load = model.end_step()
    assert load is not None and load.shape == (6, 32)
    assert load.sum(1).tolist() == [78 * 7] * 4 + [76 * 7, 74 * 7]


# ---- what it costs ----


@pytest.mark.parametrize("word", ["rope", "hybrid", "sliding-window"])
def test_heads_are_counted_apart(word: str) -> None:
    """In the total; not in what a token meets in a forward pass, nor in FLOPs, nor in the cache."""
    base, config = morph.count(config_of(word, "nano")), morph.count(with_heads(word))
    model = morph.build(config.config)
    heads = sum(p.numel() for p in model.mtp.parameters())
    assert config.mtp == heads == config.total - base.total and base.mtp == 0
    layer = sum(p.numel() for p in model.blocks[-1].parameters())
    assert heads == 2 * (layer + 2 * 48 * 48 + 3 * 48)
    assert config.active == base.active
    assert config.flops(45) == base.flops(45) and config.cache_bytes(45) == base.cache_bytes(45)


# ---- Hugging Face ----


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["qwen3", "qwen3-moe"])
@torch.no_grad()
def test_heads_against_hugging_face(name: str, seed: int) -> None:
    """Two chained heads round a small Qwen3, dense and with experts: states and logits, at once and token by token."""
    need("transformers")
    import transformers
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    word = {"qwen3": "qk-norm", "qwen3-moe": "moe"}[name]
    config = replace(config_of(word, "nano"), layout=config_of("qk-norm").layout, tied=False, embedding_scale=1.0)
    model = stage_model(replace(config, mtp=MTP(depth=2)), seed)
    more: dict[str, Any] = dict(num_mtp_layers=2, mtp_layer_types=["full_attention"] * 2)
    shared = hugging_face_config(config) | more
    if name == "qwen3":
        theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**shared, intermediate_size=128))
    else:
        fields = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
        theirs = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**shared, **fields))
    weights = hugging_face_weights(model)
    trunk = {n: v for n, v in weights.items() if not n.startswith("mtp.")}
    trunk |= {"model.embed_tokens.weight": model.embedding.weight, "lm_head.weight": model.head.weight}  # type: ignore[union-attr]
    trunk.pop("head.weight")
    theirs.load_state_dict(trunk, strict=True)
    heads = MtpModel(theirs.eval(), 2).eval()
    names = {"token_norm": "enorm", "stream_norm": "hnorm", "join": "eh_proj", "norm": "post_norm"}
    carried = {}
    for key, value in weights.items():
        if key.startswith("mtp."):
            _, k, part, rest = key.split(".", 3)
            carried[f"layers.{k}.{names.get(part, 'mtp_block')}.{rest}"] = value
    missing = heads.load_state_dict(carried, strict=False)
    assert not missing.unexpected_keys and not [n for n in missing.missing_keys if n.startswith("layers.")]

    ids = random_ids(model, 2, 45, seed)
    h = theirs(ids, output_hidden_states=True).hidden_states[-1]
    ours = states(model, ids)
    assert relative_error(ours[0], h) < 1e-5
    whole, stepped = MtpCache(config=theirs.config.get_mtp_config()), MtpCache(config=theirs.config.get_mtp_config())
    for k in (1, 2):
        length = 45 - k
        places = torch.arange(k, 45)[None]
        before, h = h, heads.forward_layer(k - 1, h[:, :length], places, whole, input_ids=ids[:, k:])
        assert relative_error(ours[k], h) < 1e-5
        logits = heads.shared_head(h)
        assert relative_error(model.logits(ours[k]), logits) < 1e-5
        cache, mine = model.mtp[k - 1].block.new_cache(), []
        for t in range(length):
            context = model.context(t, 1)
            mine.append(
                model.mtp[k - 1](ours[k - 1][:, t : t + 1], model.embed(ids[:, t + k : t + k + 1]), context, cache)
            )
            step = heads.forward_layer(
                k - 1, before[:, t : t + 1], places[:, t : t + 1], stepped, input_ids=ids[:, t + k : t + k + 1]
            )
            assert relative_error(mine[-1], step) < 5e-5
        assert relative_error(torch.cat(mine, dim=1), h) < 5e-5


# ---- training ----


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("text")
    folder(path)
    return load_corpus(path)


RECIPE = Recipe(steps=6, batch_size=2, accumulation=2, evaluate_every=3, evaluation_windows=2, checkpoint_every=2)


def test_training_records_the_heads_and_resumes_bit_for_bit(tmp_path: Path, corpus: Corpus) -> None:
    config = replace(morph.fork("mtp", "nano"), mtp=MTP(depth=2, weight=0.5))
    whole, broken = (Run.create(tmp_path / name, config, RECIPE, corpus, "cpu") for name in ("whole", "broken"))
    reports: list[StepReport] = []
    train(whole, corpus=corpus, on_step=reports.append)
    stop = threading.Event()
    train(broken, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 4 else None)
    train(Run.load(broken.path), corpus=corpus)
    assert_same_weights(broken, whole)
    kept = ("step", "loss", "mtp", "gradient_norm", "expert_load", "selection_bias", "validation_bits_per_byte")
    ours, theirs = ([{k: r.get(k) for k in kept} for r in run.metrics()] for run in (broken, whole))
    assert ours == theirs
    assert all(2 < r["mtp"] < 3.5 for r in whole.metrics()), "about half of ln 256 at first"
    assert [len(r["expert_load"]) for r in whole.metrics() if "expert_load" in r] == [6, 6], "four layers, two heads"
    model = load_model(whole)
    found = evaluate(model, corpus, RECIPE, config.context_length, torch.device("cpu"))
    assert found == whole.metrics()[-1]["validation_bits_per_byte"], "of the next token alone"
    plain = Run.create(tmp_path / "plain", morph.stage(8, "nano"), RECIPE, corpus, "cpu")
    train(plain, corpus=corpus)
    assert all("mtp" not in r for r in plain.metrics())


# ---- refusals ----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MTP(depth=0), r"mtp\.depth = 0 is below 1"),
        (lambda: MTP(weight=0.0), r"mtp\.weight = 0\.0 must be a finite number above 0"),
        (lambda: with_heads("rope", depth=64), r"mtp\.depth = 64 looks beyond context_length = 64; choose less"),
        (lambda: replace(config_of("rope"), mtp=2), r"model\.mtp = 2 is not one of: mtp"),
    ],
)
def test_impossible_heads_are_refused(make: Any, message: str) -> None:
    with pytest.raises(MorphError, match=message):
        make()


@pytest.mark.parametrize("placement", ["parallel", "sandwich", "depth-scaled-sandwich", "on-normed-stream", "by-mixer"])
@torch.no_grad()
def test_heads_stand_in_every_placement(placement: Placement) -> None:
    config = with_heads("hybrid", placement=placement)
    assert ModelConfig.from_toml(config.to_toml()) == config
    model = stage_model(config)
    assert type(model.mtp[0].block) is type(model.blocks[-1])
    assert model.loss(*(random_ids(model, 2, 20),) * 2).mtp.isfinite()
