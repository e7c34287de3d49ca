"""The two ends of the stream: embedding, head, what becomes of the logits, and dropout on the way."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import morph
from morph.config import Dropout, LearnedPosition, LogitCap, LogitRule, LogitScale, ModelConfig, Placement, Sinusoid
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn import loss as loss_module
from morph.nn.loss import cross_entropy
from morph.train.data import Corpus, load_corpus, noise_seed
from morph.train.loop import train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.models import random_ids, relative_error, stage_model
from tests.test_train_data import folder
from tests.test_train_runs import assert_same_weights

RULES = (None, LogitScale(scale=0.0625), LogitCap(cap=1.5))


def pair(slug: str, base: str = "rope") -> tuple[Decoder, Decoder, Tensor]:
    """A fork and its base in fp64, the base's weights in both, and ids."""
    model, before = stage_model(slug, dtype=torch.float64), stage_model(base, dtype=torch.float64)
    model.load_state_dict(before.state_dict(), strict=False)
    return model, before, random_ids(model, 2, 40)


# ---- embedding and head ----


@torch.no_grad()
def test_a_head_of_its_own_is_the_tied_one_when_it_copies_the_table() -> None:
    model, base, ids = pair("untied")
    assert model.head is not None and model.head.weight is not model.embedding.weight
    assert morph.count(model.config).total - morph.count(base.config).total == 256 * 48
    assert morph.count(model.config).active.without_input_embedding == morph.count(base.config).active.all
    assert relative_error(model(ids), base(ids)) > 0.5
    model.head.weight.copy_(model.embedding.weight)
    assert torch.equal(model(ids), base(ids))


def test_a_tied_table_learns_from_both_ends_and_two_tables_from_one_each() -> None:
    """The gradient of a shared table is the sum of what the two uses of it get apart."""
    untied, tied, ids = pair("untied")
    assert untied.head is not None
    with torch.no_grad():
        untied.head.weight.copy_(untied.embedding.weight)
    for model in (untied, tied):
        model.loss(ids[:, :-1], ids[:, 1:]).total.backward()
    assert untied.embedding.weight.grad is not None and untied.head.weight.grad is not None
    both = untied.embedding.weight.grad + untied.head.weight.grad
    assert tied.embedding.weight.grad is not None and relative_error(both, tied.embedding.weight.grad) < 1e-12


@torch.no_grad()
def test_rows_as_they_are_are_the_table_times_its_root_width() -> None:
    model, base, ids = pair("embedding-scale")
    with morph.trace(model) as seen:
        logits = model(ids)
    assert torch.equal(seen["embedded"], model.embedding.weight[ids])
    assert relative_error(logits, base(ids)) > 0.05
    untied = morph.build(replace(model.config, tied=False)).double().eval()
    untied.load_state_dict({**base.state_dict(), "head.weight": base.embedding.weight.clone()})
    untied.embedding.weight.mul_(48**0.5)
    assert relative_error(untied(ids), base(ids)) < 1e-13


@pytest.mark.parametrize("position", [Sinusoid(), LearnedPosition(length=64)])
@torch.no_grad()
def test_a_table_of_places_is_scaled_alike_and_a_sinusoid_is_not(position: Sinusoid | LearnedPosition) -> None:
    config = replace(morph.stage(3, "nano"), position=position, embedding_scale=3.0)
    model = stage_model(config, dtype=torch.float64)
    ids = random_ids(model, 1, 9)
    with morph.trace(model) as seen:
        model(ids)
    added = seen["stream"] - 3 * model.embedding.weight[ids]
    if model.positions is not None:
        assert relative_error(added[0], 3 * model.positions.weight[:9]) < 1e-12
    else:
        assert float(added[0, 0, 1]) == pytest.approx(1, abs=1e-6), "cos(0), as in 2017"


# ---- logits ----


@pytest.mark.parametrize("rule", RULES)
@torch.no_grad()
def test_logits_follow_the_formula_everywhere(rule: LogitRule | None) -> None:
    """Forward pass, decoding and trace see one and the same; the base sees them plain."""
    config = replace(morph.stage("rope", "nano"), logits=rule)
    model, base = stage_model(config, dtype=torch.float64), stage_model("rope", dtype=torch.float64)
    ids = random_ids(model, 2, 30)
    plain = base(ids)
    expected = plain
    if isinstance(rule, LogitScale):
        expected = plain / 16
    if isinstance(rule, LogitCap):
        expected = 1.5 * torch.tanh(plain / 1.5)
        assert float(plain.abs().max()) > 2, "the cap bites"
    with morph.trace(model) as seen:
        assert relative_error(model(ids), expected) < 1e-14
    assert relative_error(seen["logits"], expected) < 1e-14
    cache = model.new_cache(2)
    assert relative_error(torch.cat([model(t, cache=cache) for t in ids.split(7, dim=1)], dim=1), expected) < 1e-12
    loss = model.loss(ids[:, :-1], ids[:, 1:])
    wanted = F.cross_entropy(expected[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert loss.cross_entropy.item() == pytest.approx(wanted.item(), rel=1e-13)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("few", [7 * 50, 7 * 50 * 3 + 1, 2**24])
def test_sliced_cross_entropy_and_its_gradients_are_exact(
    rule: LogitRule | None, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices of 7 rows, of 21, and one of all; some targets are not counted."""
    monkeypatch.setattr(loss_module, "FEW", few)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(45, 12, dtype=torch.float64, generator=generator).requires_grad_()
    weight = torch.randn(50, 12, dtype=torch.float64, generator=generator).requires_grad_()
    targets = torch.randint(50, (45,), generator=generator)
    targets[::4] = -100
    logits = x @ weight.T
    if isinstance(rule, LogitScale):
        logits = logits * 0.0625
    if isinstance(rule, LogitCap):
        logits = 1.5 * torch.tanh(logits / 1.5)
    expected = F.cross_entropy(logits, targets)
    found = cross_entropy(x, weight, targets, rule)
    assert found.item() == pytest.approx(expected.item(), rel=1e-14)
    for ours, theirs in zip(
        torch.autograd.grad(found, (x, weight)), torch.autograd.grad(expected, (x, weight)), strict=True
    ):
        assert relative_error(ours, theirs) < 1e-13


@pytest.mark.parametrize("rule", RULES)
def test_no_more_than_a_slice_of_logits_is_held(rule: LogitRule | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the graph keeps between forward and backward pass has no tensor with a row per token and V columns."""
    monkeypatch.setattr(loss_module, "FEW", 10 * 64)
    x, weight = torch.randn(100, 8).requires_grad_(), torch.randn(64, 8).requires_grad_()
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        cross_entropy(x, weight, torch.zeros(100, dtype=torch.long), rule).backward()
    assert 0 < max(kept) <= 10 * 64


@torch.no_grad()
def test_scale_and_cap_meet_their_base() -> None:
    model, base, ids = pair("logit-scale")
    expected = base(ids)
    assert relative_error(model(ids), expected / 16) == 0, "1/16 is exact"
    model.norm.weight.mul_(16)
    assert relative_error(model(ids), expected) < 1e-13
    one = stage_model(replace(model.config, logits=LogitScale(scale=1.0)), dtype=torch.float64)
    assert torch.equal(one(ids), expected)
    for cap in (30.0, 1e3, 1e6):
        capped = stage_model(replace(model.config, logits=LogitCap(cap=cap)), dtype=torch.float64)(ids)
        assert ((capped - expected).abs() <= expected.abs() ** 3 / (3 * cap**2) + 1e-14).all()
    assert relative_error(capped, expected) < 1e-11
    greedy, capped_greedy = (
        morph.generate(stage_model(slug, dtype=torch.float64), ids[:, :9], 12, temperature=0)
        for slug in ("rope", "logit-cap")
    )
    assert torch.equal(greedy, capped_greedy), "a cap keeps the order"


# ---- dropout ----


def dropping(placement: Placement, rate: float = 0.25) -> Decoder:
    config = replace(morph.stage("rope", "nano"), placement=placement, dropout=Dropout(rate=rate))
    return stage_model(config, dtype=torch.float64)


PLACEMENTS = pytest.mark.parametrize(
    "placement",
    ["post", "pre", "sandwich", "depth-scaled-sandwich", "post-branch", "parallel", "by-mixer", "on-normed-stream"],
)


@PLACEMENTS
@torch.no_grad()
def test_dropout_falls_on_the_embedding_and_on_every_branch_before_it_is_added(placement: Placement) -> None:
    model = dropping(placement)
    ids = random_ids(model, 4, 40)
    plain = stage_model(replace(model.config, dropout=None), dtype=torch.float64)
    assert torch.equal(model(ids), plain(ids)), "outside training it is not there"
    model.train()
    torch.manual_seed(5)
    with morph.trace(model) as seen:
        model(ids)
    embedded, stream = seen["embedded"], seen["stream"]
    stays = stream != 0
    assert torch.allclose(stream[stays], embedded[stays] / 0.75, rtol=1e-12)
    branches = [tensor for name, tensor in seen.items() if name.endswith("_delta")]
    assert len(branches) == 8
    for tensor in (stream, *branches):
        share = float((tensor == 0).double().mean())
        assert abs(share - 0.25) < 5 * (0.25 * 0.75 / tensor.numel()) ** 0.5
    for i in range(4):
        before = seen["stream"] if i == 0 else seen[f"blocks.{i - 1}.stream"]
        block = f"blocks.{i}"
        if placement in ("pre", "sandwich", "depth-scaled-sandwich", "post-branch", "by-mixer"):
            assert relative_error(before + seen[f"{block}.attention_delta"], seen[f"{block}.middle"]) < 1e-14
            whole = seen[f"{block}.middle"] + seen[f"{block}.feed_forward_delta"]
            assert relative_error(whole, seen[f"{block}.stream"]) < 1e-14
        if placement == "post":
            middle = model.blocks[i].attention_norm(before + seen[f"{block}.attention_delta"])
            assert relative_error(middle, seen[f"{block}.middle"]) < 1e-14


@torch.no_grad()
def test_dropout_keeps_the_mean() -> None:
    """Averaged over many rows the embedding is what it was; with the rate near 0 all else is too."""
    model = dropping("pre").train()
    ids = random_ids(model, 1, 4)
    torch.manual_seed(0)
    with morph.trace(model) as seen:
        model(ids.expand(2000, 4))
    mean, exact = seen["stream"].mean(0), seen["embedded"][0]
    bound = 5 * (0.25 / 0.75 / 2000) ** 0.5
    assert ((mean - exact).abs() <= bound * exact.abs()).all()
    rare = dropping("pre", rate=1e-9).train()
    assert relative_error(rare(ids), rare.eval()(ids)) < 1e-8


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, True])
def test_an_impossible_rate_is_refused(rate: float) -> None:
    with pytest.raises(MorphError, match=r"dropout\.rate"):
        Dropout(rate=rate)


@pytest.mark.parametrize("record", [lambda: LogitScale(scale=0.0), lambda: LogitCap(cap=-30.0)])
def test_an_impossible_rule_is_refused(record: object) -> None:
    with pytest.raises(MorphError, match=r"logit-(scale\.scale|cap\.cap) .* above 0"):
        record()  # type: ignore[operator]


def test_what_the_head_cannot_be_is_refused() -> None:
    config = morph.stage("rope", "nano")
    with pytest.raises(MorphError, match=r"model\.embedding_scale = 0 must be a finite number above 0"):
        replace(config, embedding_scale=0)
    with pytest.raises(MorphError, match=r"model\.logits = Dropout.* is not one of: logit-scale, logit-cap"):
        replace(config, logits=Dropout())
    with pytest.raises(MorphError, match=r"config\.logits\.kind = 'logit-cup' .* did you mean 'logit-cap'"):
        ModelConfig.from_dict({**config.to_dict(), "logits": {"kind": "logit-cup"}})


# ---- training with dropout ----


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("text")
    folder(path)
    return load_corpus(path)


RECIPE = Recipe(
    steps=6, batch_size=2, accumulation=2, evaluate_every=3, evaluation_windows=2, checkpoint_every=2, warmup=0.1
)


def run_of(path: Path, corpus: Corpus, seed: int = 3) -> Run:
    return Run.create(path, morph.fork("dropout", "nano"), RECIPE.with_(seed=seed), corpus, "cpu")


def test_a_resumed_run_drops_what_an_unbroken_one_drops(tmp_path: Path, corpus: Corpus) -> None:
    """Equal seeds, equal runs; stopped and resumed, bit for bit, whatever has drawn from torch's generator between."""
    whole, again, broken, other = (
        run_of(tmp_path / name, corpus, seed) for name, seed in (("a", 3), ("b", 3), ("c", 3), ("d", 4))
    )
    for run in (whole, again, other):
        torch.manual_seed(len(str(run.path)))
        train(run, corpus=corpus)
    assert_same_weights(again, whole)
    assert other.metrics()[0]["loss"] != whole.metrics()[0]["loss"]
    stop = threading.Event()
    train(broken, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 3 else None)
    torch.manual_seed(99)
    train(Run.load(broken.path), corpus=corpus, on_step=lambda report: torch.rand(report.step))  # type: ignore[arg-type]
    assert_same_weights(broken, whole)
    kept = ("step", "loss", "gradient_norm", "validation_bits_per_byte")
    assert [[r.get(k) for k in kept] for r in broken.metrics()] == [[r.get(k) for k in kept] for r in whole.metrics()]


def test_every_micro_batch_drops_otherwise() -> None:
    seeds = {noise_seed(seed, step, index) for seed in range(4) for step in range(5) for index in range(3)}
    assert len(seeds) == 60 and all(0 <= s < 2**64 for s in seeds)
    assert noise_seed(1, 2, 3) == noise_seed(1, 2, 3) == 3859358616364316162


def test_validation_is_measured_without_dropout(tmp_path: Path, corpus: Corpus) -> None:
    run = run_of(tmp_path / "run", corpus)
    train(run, corpus=corpus)
    from morph.train.checkpoint import load_model
    from morph.train.loop import evaluate

    model = load_model(run)
    measured = evaluate(model, corpus, run.recipe, run.config.context_length, torch.device("cpu"))
    assert measured == run.metrics()[-1]["validation_bits_per_byte"]
