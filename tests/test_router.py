"""Variants of the router, a gated shared expert, a dense first layer: what each changes and what it refuses."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.config import (
    AuxiliaryLoss,
    DenseFirst,
    GatedMLP,
    GroupLimitedRouter,
    ModelConfig,
    MoE,
    SelectionBias,
    SharedGate,
    SigmoidRouter,
    SoftmaxRouter,
    SwitchRouter,
)
from morph.errors import MorphError
from morph.nn.context import Context
from morph.nn.router import Router, build_router
from morph.train import Recipe, Run, load_model, train
from morph.train.data import load_corpus
from tests.models import random_ids, relative_error, stage_model
from tests.test_train_data import folder
from tests.test_train_runs import assert_same_weights

KINDS = [SoftmaxRouter(), SwitchRouter(), SigmoidRouter(), GroupLimitedRouter(n_groups=4, n_kept=2)]


def spec_of(**fields: Any) -> MoE:
    made: dict[str, Any] = {"expert": GatedMLP(width=16, activation="silu"), "n_experts": 8, "top_k": 3}
    return MoE(**made | {"routed_scale": 3.0, "balance": AuxiliaryLoss()} | fields)


def routed(scores: Tensor, bias: Tensor | None = None, **fields: Any) -> tuple[Tensor, Tensor, Router, Context]:
    """Weights and choices of tokens whose logits are `scores`: the map is the identity."""
    fields = {"balance": SelectionBias()} | fields if bias is not None else fields
    router = build_router(spec_of(n_experts=scores.shape[1], **fields), scores.shape[1])
    with torch.no_grad():
        router.logits.weight.copy_(torch.eye(scores.shape[1]))
        for name, buffer in router.named_buffers():
            buffer.copy_(bias if name == "selection_bias" and bias is not None else torch.zeros_like(buffer))
    context = Context(0, len(scores), None, scores.device, torch.float32)
    weights, chosen = router.train()(scores, context)
    return weights, chosen, router, context


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_ties_go_to_the_lower_index(kind: Any) -> None:
    _, chosen, _, _ = routed(torch.zeros(5, 8), router=kind)
    assert chosen.unique(dim=0).tolist() == [[0, 1, 2]]
    _, chosen, _, _ = routed(torch.tensor([[0.0, 1, 0, 1, 1, 0, 1, 1]]), router=kind)
    # of groups of two, the pair {6, 7} is best; of the two with one good expert each that come next, the first
    assert chosen.tolist() == ([[1, 6, 7]] if kind.kind == "group-limited-router" else [[1, 3, 4]])


def test_a_sigmoid_scores_each_expert_by_itself() -> None:
    logits = torch.randn(20, 8)
    weights, chosen, _, _ = routed(logits, router=SigmoidRouter())
    expected, best = logits.sigmoid().topk(3)
    assert torch.equal(chosen, best)
    assert torch.allclose(weights, 3 * expected / expected.sum(-1, keepdim=True))
    raised = logits.clone()
    raised[:, 7] -= 20  # another expert's fall leaves the scores of the rest, which a softmax would raise
    again, others, _, _ = routed(raised, router=SigmoidRouter())
    same = (chosen != 7).all(-1)
    assert same.any() and torch.equal(again[same], weights[same]) and torch.equal(others[same], chosen[same])
    assert routed(torch.full((1, 8), -200.0), router=SigmoidRouter())[0].isfinite().all(), "even where all vanish"


def test_the_switch_weight_is_the_probability_and_teaches_the_router() -> None:
    logits = torch.randn(20, 8, requires_grad=True)
    weights, chosen, _, _ = routed(logits, router=SwitchRouter(), top_k=1, routed_scale=1.0)
    assert torch.allclose(weights, logits.softmax(-1).gather(-1, chosen))
    assert float(torch.autograd.grad(weights.sum(), logits)[0].abs().min(-1).values.max()) > 0
    weights, _, _, _ = routed(logits, top_k=1, routed_scale=1.0)
    assert torch.equal(weights, torch.ones_like(weights)), "a softmax router's single weight is 1 and says nothing"


def test_groups_shut_out_a_better_expert() -> None:
    logits = torch.tensor([[9.0, -9, 1, 1, 2, 2, -9, -9]])  # expert 0 is best, its group of two is third
    weights, chosen, _, _ = routed(logits, top_k=2, router=GroupLimitedRouter(n_groups=4, n_kept=2))
    assert chosen.tolist() == [[4, 5]]
    assert routed(logits, top_k=2, router=SigmoidRouter())[1].tolist() == [[0, 4]]
    assert torch.allclose(weights, torch.tensor([[1.5, 1.5]]))


def test_a_group_out_of_play_stays_out_where_all_choices_are_negative() -> None:
    """DeepSeek's code once wrote 0 there, which is more than a negative choice."""
    bias = torch.full((8,), -5.0)
    logits = torch.tensor([[3.0, 3, 2, 2, -2, -2, -3, -3]])
    weights, chosen, _, _ = routed(logits, bias, router=GroupLimitedRouter(n_groups=4, n_kept=2), top_k=3)
    assert chosen.tolist() == [[0, 1, 2]]
    unbiased = logits.sigmoid()[:, :3]
    assert torch.allclose(weights, 3 * unbiased / unbiased.sum()), "the bias is for the choice alone"


def test_all_groups_kept_limit_nothing() -> None:
    logits, bias = torch.randn(50, 8), 0.2 * torch.randn(8)
    free = routed(logits, bias, router=SigmoidRouter())
    kept = routed(logits, bias, router=GroupLimitedRouter(n_groups=4, n_kept=4))
    assert torch.equal(free[0], kept[0]) and torch.equal(free[1], kept[1])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_the_auxiliary_loss_weighs_shares_by_mean_probability(kind: Any) -> None:
    logits = torch.randn(40, 8)
    _, chosen, router, context = routed(logits, router=kind, balance=AuxiliaryLoss(coefficient=0.5))
    scores = logits.softmax(-1)
    if kind.kind in ("sigmoid-router", "group-limited-router"):
        scores = logits.sigmoid() / logits.sigmoid().sum(-1, keepdim=True)
    share = torch.bincount(chosen.flatten(), minlength=8) / chosen.numel()
    assert context.penalties[0].item() == pytest.approx(0.5 * 8 * (share * scores.mean(0)).sum().item(), rel=1e-5)
    assert torch.equal(router.end_step(), torch.bincount(chosen.flatten(), minlength=8))


@torch.no_grad()
def test_a_shared_expert_behind_a_gate() -> None:
    """A gate at 0 halves the shared answer; any other weighs it by its sigmoid, token by token."""
    gated, base = stage_model("shared-expert-gate", dtype=torch.float64), stage_model(12, dtype=torch.float64)
    weights = {name: tensor for name, tensor in gated.state_dict().items() if "shared_gate" not in name}
    base.load_state_dict(weights)
    ids = random_ids(base, 2, 30)
    with morph.trace(gated) as seen:
        gated(ids)
    for i, block in enumerate(gated.blocks):
        place = f"blocks.{i}.feed_forward"
        normed = block.feed_forward_norm(seen[f"blocks.{i}.feed_forward_norm.input"])  # type: ignore[operator]
        gate = torch.sigmoid(normed @ block.feed_forward.shared_gate.weight.T)  # type: ignore[union-attr]
        assert relative_error(seen[f"{place}.shared_gate"], gate[..., 0]) < 1e-12 and gate.std() > 0.05
        whole = seen[f"{place}.routed"] + gate * seen[f"{place}.shared.0.output"]
        assert relative_error(seen[f"{place}_delta"], whole) < 1e-12
    for block in gated.blocks:
        block.feed_forward.shared_gate.weight.zero_()  # type: ignore[union-attr]
    for block in base.blocks:
        block.feed_forward.shared[0].down.weight.mul_(0.5)  # type: ignore[index, union-attr]
    assert relative_error(gated(ids), base(ids)) < 1e-12
    with morph.trace(gated) as seen:
        gated(ids)
    assert seen["blocks.1.feed_forward.shared_gate"].unique().tolist() == [0.5]


def test_a_dense_first_layer_is_as_wide_as_what_a_token_meets_above() -> None:
    config = morph.fork("dense-first", "nano")
    spec = config.feed_forward
    assert isinstance(spec, DenseFirst) and spec.experts == morph.stage(13, "nano").feed_forward == config.moe
    assert spec.dense.width == spec.experts.active_width == 8 * 48 // 3
    assert [type(config.feed_forward_in(layer)) for layer in range(4)] == [GatedMLP, MoE, MoE, MoE]
    assert morph.stage(9).moe is None
    dense, all_routed = morph.count(config), morph.count(morph.stage(13, "nano"))
    router = 48 * 32
    assert all_routed.active.all - dense.active.all == router
    assert all_routed.flops(10).linear - dense.flops(10).linear == 2 * 10 * router
    model = morph.build(config).train()
    ids = random_ids(model, 2, 20)
    model.loss(ids, ids)
    loads = model.end_step()
    assert loads is not None and loads.sum(-1).tolist() == [2 * 20 * 7] * 3


def test_a_dense_first_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Its loads have a row for each layer with experts, fewer than there are layers."""
    corpus = load_corpus(folder(tmp_path / "text"))
    recipe = Recipe(steps=4, batch_size=2, evaluate_every=4, evaluation_windows=4, checkpoint_every=3)
    whole, broken = (
        Run.create(tmp_path / n, morph.fork("dense-first", "nano"), recipe, corpus, "cpu") for n in ("whole", "broken")
    )
    train(whole, corpus=corpus)
    stop = threading.Event()
    train(broken, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 3 else None)
    assert load_model(broken).config.moe is not None
    train(Run.load(broken.path), corpus=corpus)
    assert_same_weights(broken, whole)
    assert broken.metrics()[-1]["expert_load"] == whole.metrics()[-1]["expert_load"]
    assert len(broken.metrics()[-1]["expert_load"]) == len(broken.metrics()[-1]["selection_bias"]) == 3


def test_files_from_before_the_routers_stay_as_they_were() -> None:
    """A softmax router is left out of a file: digests of older runs, which name their config, still hold."""
    config = morph.stage(13)
    assert "router" not in config.to_dict()["feed_forward"] and "router" not in config.to_toml()
    assert ModelConfig.from_dict(config.to_dict()) == config
    written = morph.fork("sigmoid-router").to_dict()["feed_forward"]
    assert written["router"] == {"kind": "sigmoid-router"} and "shared_gate" not in written


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(shared_gate=SharedGate()), r"shared_gate has no shared expert.*n_shared >= 1"),
        (dict(router=GroupLimitedRouter(n_groups=3, n_kept=1)), r"n_groups = 3 does not cut n_experts = 8"),
        (dict(router=GroupLimitedRouter(n_groups=8, n_kept=4)), r"equal groups of 2 or more; choose one of 1, 2, 4, 8"),
        (dict(router=GroupLimitedRouter(n_groups=4, n_kept=1)), r"n_kept = 1 of 4 groups of 2 cannot hold top_k = 3"),
        (dict(router=GroupLimitedRouter(n_groups=4, n_kept=5)), r"n_kept = 5 of 4 groups.*choose 2 to 4"),
        (dict(router=GroupLimitedRouter(n_groups=9, n_kept=5)), r"n_groups = 9 does not cut"),
        (
            dict(router="sigmoid"),
            r"moe.router = 'sigmoid' is not one of: softmax-router, switch-router, sigmoid-router",
        ),
    ],
)
def test_impossible_mixtures_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MorphError, match=message):
        spec_of(**fields)


def test_a_model_needs_a_layer_with_experts_to_call_others_first() -> None:
    config = morph.fork("dense-first", "nano")
    with pytest.raises(MorphError, match=r"n_dense = 4 leaves none of n_layers = 4 for experts"):
        replace(config, feed_forward=replace(config.feed_forward, n_dense=4))
