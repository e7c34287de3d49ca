"""Routing, experts and balance."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import morph
from morph.config import AuxiliaryLoss, GatedMLP, ModelConfig, MoE, SelectionBias
from morph.model import Decoder
from morph.nn.context import Context
from morph.nn.moe import Experts
from morph.nn.router import Router
from morph.steps import stage
from tests.models import random_ids, relative_error, stage_model
from tests.tools import need


def moe(**kw: object) -> MoE:
    fields: dict[str, object] = {"expert": GatedMLP(width=16, activation="silu"), "n_experts": 8, "top_k": 3}
    fields |= {"routed_scale": 3.0, "balance": AuxiliaryLoss()}
    return MoE(**(fields | kw))  # type: ignore[arg-type]


def context() -> Context:
    return Context(0, 1, None, torch.device("cpu"), torch.float32)


def drawn(organ: Router | Experts) -> Router | Experts:
    with torch.no_grad():
        for module in organ.modules():
            module.init_weights(torch.Generator().manual_seed(1))  # type: ignore[operator]
    return organ


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=["fp32", "bf16"])
@pytest.mark.parametrize("tokens", [1, 5, 200])
def test_grouped_products_equal_the_loop_and_its_gradients(tokens: int, dtype: torch.dtype, bound: float) -> None:
    experts = drawn(Experts(moe(), 48)).to(dtype)
    assert isinstance(experts, Experts)
    x = torch.randn(tokens, 48, dtype=dtype, requires_grad=True)
    chosen = torch.stack([torch.randperm(5)[:3] for _ in range(tokens)])  # experts 5 to 7 get nobody
    weights = torch.rand(tokens, 3, dtype=dtype, requires_grad=True)
    target = torch.randn(tokens, 48, dtype=dtype)
    results = []
    for form in (experts.plain, experts.grouped):
        out = form(x, weights, chosen)
        grads = torch.autograd.grad((out * target).sum(), (x, weights, *experts.parameters()))
        results.append((out, *grads))
    assert experts.can_group(x)
    for plain, grouped in zip(*results, strict=True):
        assert relative_error(grouped.float(), plain.float()) < bound
    assert float(results[1][3][5:].abs().max()) == 0


def test_widths_that_grouped_products_refuse_take_the_loop() -> None:
    experts = drawn(Experts(moe(expert=GatedMLP(width=15, activation="silu")), 48))
    assert isinstance(experts, Experts)
    x = torch.randn(9, 48)
    assert not experts.can_group(x)
    assert experts(x, torch.ones(9, 1), torch.zeros(9, 1, dtype=torch.long)).shape == (9, 48)


def test_router_weights_are_renormalized_and_scaled_and_ties_go_low() -> None:
    router = drawn(Router(moe(), 48)).eval()
    x = torch.randn(20, 48)
    weights, chosen = router(x, context())
    probabilities = (x @ router.logits.weight.T).softmax(-1)
    expected, indices = probabilities.topk(3)
    assert torch.equal(chosen, indices)
    assert torch.allclose(weights, 3 * expected / expected.sum(-1, keepdim=True))
    router.logits.weight.data[:] = router.logits.weight.data[:1]
    assert router(x, context())[1].unique(dim=0).tolist() == [[0, 1, 2]]


def test_the_auxiliary_loss_is_hugging_faces_and_is_added_once() -> None:
    need("transformers")
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    router = drawn(Router(moe(balance=AuxiliaryLoss(coefficient=0.5)), 48)).train()
    x, shared = torch.randn(40, 48), context()
    router(x, shared)
    (penalty,) = shared.penalties
    theirs = load_balancing_loss_func((x @ router.logits.weight.T,), num_experts=8, top_k=3)
    # theirs sums the shares of all k ranks, which add to k; ours is a share of all choices
    assert penalty.item() == pytest.approx(0.5 * theirs.item() / 3, rel=1e-5)


def test_the_balance_loss_is_the_mean_over_layers_and_vanishes_outside_training() -> None:
    model = stage_model(11).train()
    ids = random_ids(model, 2, 40)
    loss = model.loss(ids, ids)
    assert 0.01 <= loss.balance.item() < 0.05
    assert loss.total.item() == pytest.approx((loss.cross_entropy + loss.balance).item(), rel=1e-6)
    assert model.eval().loss(ids, ids).balance.item() == 0
    assert stage_model(13).train().loss(ids, ids).balance.item() == 0


def test_the_bias_moves_by_the_load_of_the_whole_step() -> None:
    """Two micro-batches and one update equal one batch and one update; the last micro-batch alone would differ."""
    config = stage("loss-free-balance", "nano")
    ids = random_ids(morph.build(config), 4, 40)
    models: list[Decoder] = []
    for parts in ((ids,), (ids[:2], ids[2:])):
        model = morph.build(config).train()
        for part in parts:
            model.loss(part, part).total.backward()
        load = model.end_step()
        assert load is not None and load.shape == (4, 32)
        assert load.sum(-1).tolist() == [4 * 40 * 7] * 4
        models.append(model)
    whole, halves = ([b.feed_forward.router.selection_bias for b in m.blocks] for m in models)  # type: ignore[union-attr]
    alone = morph.build(config).train()
    alone.loss(ids[2:], ids[2:])
    alone.end_step()
    for a, b, c in zip(whole, halves, alone.blocks, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c.feed_forward.router.selection_bias)  # type: ignore[union-attr]
        assert set(a.unique().tolist()) <= set(torch.tensor([-0.001, 0.0, 0.001]).tolist())
    router = models[0].blocks[0].feed_forward.router  # type: ignore[union-attr]
    assert not router.selection_bias.requires_grad
    assert float(router.load.sum()) == 0, "the count starts anew"
    assert "blocks.0.feed_forward.router.selection_bias" in models[0].state_dict()
    assert "blocks.0.feed_forward.router.load" not in models[0].state_dict()


def test_the_bias_moves_against_the_load_and_touches_the_choice_only() -> None:
    router = drawn(Router(moe(balance=SelectionBias(rate=0.1)), 48)).train()
    x = torch.randn(30, 48)
    before_weights, before = router.eval()(x, context())
    router.train()(x, context())
    load = router.end_step()
    assert torch.equal(router.selection_bias, 0.1 * torch.sign(load.float().mean() - load))
    router.eval()
    router.selection_bias.zero_()
    router.selection_bias[4] = 2.0  # everyone now chooses expert 4 …
    weights, chosen = router(x, context())
    assert (chosen[:, 0] == 4).all()
    probabilities = (x @ router.logits.weight.T).softmax(-1).gather(-1, chosen)
    assert torch.allclose(weights, 3 * probabilities / probabilities.sum(-1, keepdim=True))  # … with its own weight
    assert not torch.equal(before, chosen) and before_weights.shape == weights.shape


def test_evaluation_counts_no_load() -> None:
    model = stage_model(13).eval()
    model(random_ids(model, 2, 20))
    loads = model.end_step()
    assert loads is not None and float(loads.sum()) == 0
    assert stage_model(9).end_step() is None


def test_experts_and_router_get_gradients_even_with_top_1() -> None:
    base = stage("moe", "nano")
    one = replace(base.feed_forward, top_k=1, routed_scale=1.0)
    config: ModelConfig = replace(base, feed_forward=one)
    model = morph.build(config).train()
    ids = random_ids(model, 4, 60)
    model.loss(ids, ids).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # with one expert the renormalized weight is 1, so its router learns from the balance loss alone
        assert float(parameter.grad.abs().max()) > 0, name


def test_without_balancing_nothing_but_the_objective_moves_the_router() -> None:
    model = morph.build(morph.fork("unbalanced", "nano")).train()
    ids = random_ids(model, 2, 40)
    loss = model.loss(ids, ids)
    assert loss.balance.item() == 0 and loss.total.item() == loss.cross_entropy.item()
    loads = model.end_step()
    assert loads is not None and loads.sum(-1).tolist() == [2 * 40 * 7] * 4
    assert not [name for name in model.state_dict() if "selection_bias" in name]
    changes = morph.diff(stage("shared-expert", "nano"), model.config)
    assert [str(c) for c in changes] == ["feed_forward.balance: AuxiliaryLoss(coefficient=0.01) → NoBalance()"]
