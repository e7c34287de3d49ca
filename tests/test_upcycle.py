"""Upcycling: identities in fp64, the walk over stages and forks, and what reports say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.config import (
    FullWidthRMSNorm,
    GatedMLP,
    LayerNormNoBias,
    LearnedPosition,
    ModelConfig,
    NoPosition,
    RMSNorm,
    Softcap,
    ZeroCentredRMSNorm,
)
from morph.errors import MorphError
from morph.forks import config_of
from morph.model import Decoder
from morph.nn.router import best
from morph.steps import SIZES, Size, experts_of, stage
from morph.upcycling import plan
from morph.upcycling.move import fit
from tests.models import random_ids, relative_error, stage_model

EXACT = 1e-12
ODD = Size(vocab_size=61, d_model=72, n_layers=3, n_heads=6, n_kv_heads=2, context_length=21, window=5)


def logits(model: Decoder, ids: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(ids)
    return out


def carried(model: Decoder, config: ModelConfig, **options: Any) -> tuple[float, Any]:
    """The relative error of the carried model's logits against the first's, measured here, and the report."""
    ids = options.pop("ids", random_ids(model, 3, 21))
    new, report = morph.upcycle(model, config, ids=ids, **options)
    assert new.config == config
    return relative_error(logits(new, ids), logits(model, ids)), report


# ---- the walk --------------------------------------------------------------------------------------------------------


def test_the_walk_goes_through_the_stages() -> None:
    for first in (0, 5, 9):
        walk = plan(stage(first, "nano"), stage(14, "nano"))
        assert [config for _, config in walk] == [stage(k, "nano") for k in range(first + 1, 15)]
    assert plan(stage(3, "nano"), stage(3, "nano")) == []


def test_every_later_stage_is_reached_from_every_earlier_one() -> None:
    for first in range(15):
        for last in range(first, 15):
            walk = plan(stage(first, ODD), stage(last, ODD))
            assert len(walk) == last - first and (not walk or walk[-1][1] == stage(last, ODD))


def test_several_steps_at_once_are_one_after_another() -> None:
    model = stage_model(6, dtype=torch.float64)
    ids = random_ids(model, 2, 30)
    at_once, report = morph.upcycle(model, stage(11, "nano"), ids=ids)
    by_step = model
    for k in range(7, 12):
        by_step, single = morph.upcycle(by_step, stage(k, "nano"), ids=ids)
        assert single.moves[0].difference == report.moves[k - 7].difference
    assert torch.equal(logits(at_once, ids), logits(by_step, ids))


def test_a_report_accounts_for_every_tensor_and_tells_the_measured_difference() -> None:
    model = stage_model(0, dtype=torch.float64)
    ids = random_ids(model, 2, 30)
    new, report = morph.upcycle(model, stage(14, "nano"), ids=ids)
    assert [move.kind for move in report.moves] == ["recipe"] * 8 + ["function-preserving"] * 3 + [
        "recipe", "function-preserving", "fresh",
    ]  # fmt: skip
    assert report.difference == float((logits(new, ids) - logits(model, ids)).abs().max())
    assert report.largest == float(logits(model, ids).abs().max())
    last = report.moves[-1]
    assert sorted((*last.copied, *last.made, *last.fresh)) == sorted(new.state_dict())
    assert "blocks.0.attention.decay_proj.weight" in last.fresh and "blocks.3.attention.q_proj.weight" in last.copied
    fine = report.moves[10]
    assert "blocks.0.feed_forward.experts.gate" in fine.made and "embedding.weight" in fine.copied
    text = str(report)
    assert "fine-grained: function-preserving" in text and f"logit {report.difference:.2g}, of logits" in text
    assert str(morph.upcycle(model, model.config)[1]).startswith("nothing to carry")


def test_the_model_given_is_untouched_and_precision_and_mode_are_kept() -> None:
    model = stage_model(9).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    new, _ = morph.upcycle(model, stage(12, "nano"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert new.training and new.embedding.weight.dtype == torch.float32
    assert next(iter(model.parameters())).dtype == torch.float32


def test_modes_and_frozen_weights_are_kept_part_by_part() -> None:
    model = stage_model(9).eval()
    model.blocks[1].train()
    model.blocks[2].feed_forward.eval()
    model.embedding.requires_grad_(False)
    model.blocks[0].attention.q_proj.weight.requires_grad_(False)  # type: ignore[union-attr,operator]
    new, _ = morph.upcycle(model, stage(10, "nano"))
    modes = {name: module.training for name, module in new.named_modules()}
    assert [modes[f"blocks.{layer}.feed_forward.router"] for layer in range(3)] == [False, True, False]
    assert modes["blocks.1.attention"] and not modes["blocks.0.attention"] and not modes[""]
    frozen = [name for name, parameter in new.named_parameters() if not parameter.requires_grad]
    assert frozen == ["embedding.weight", "blocks.0.attention.q_proj.weight"]


def test_another_default_device_changes_nothing() -> None:
    model = stage_model(9)
    plain, report = morph.upcycle(model, stage(11, "nano"))
    with torch.device("meta"):
        other, again = morph.upcycle(model, stage(11, "nano"))
    assert str(again) == str(report)
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), other.state_dict().values(), strict=True))


def test_the_seed_decides_what_is_drawn() -> None:
    model = stage_model(9, dtype=torch.float64)

    def rows(seed: int) -> Tensor:
        new, _ = morph.upcycle(model, stage(10, "nano"), seed=seed)
        return new.blocks[0].feed_forward.router.logits.weight  # type: ignore[return-value,union-attr]

    assert torch.equal(rows(1), rows(1)) and not torch.equal(rows(1), rows(2))


def test_nothing_that_stands_around_the_call_is_touched_or_felt() -> None:
    """Gradients, random numbers and ids stay; autocast and inference mode reach neither the numbers nor the model."""
    model = stage_model(9).train()
    ids = random_ids(model, 2, 30)
    model.loss(ids[:, :-1], ids[:, 1:]).total.backward()
    grads = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}  # type: ignore[union-attr]
    given, state = ids.clone(), torch.get_rng_state()
    plain, report = morph.upcycle(model, stage(10, "nano"), ids=ids, noise=0.1)
    assert all(torch.equal(parameter.grad, grads[name]) for name, parameter in model.named_parameters())  # type: ignore[arg-type]
    assert torch.equal(ids, given) and torch.equal(torch.get_rng_state(), state)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert morph.upcycle(model, stage(10, "nano"), ids=ids, noise=0.1)[1] == report
    with torch.inference_mode():
        new, _ = morph.upcycle(model, stage(10, "nano"), ids=ids, noise=0.1)
    new.loss(ids[:, :-1], ids[:, 1:]).total.backward()
    assert all(parameter.grad is not None for parameter in new.parameters())
    assert all(torch.equal(tensor, plain.state_dict()[name]) for name, tensor in new.state_dict().items())


@pytest.mark.parametrize(
    ("before", "after"),
    [("0", "rope"), ("4", "hybrid"), ("hybrid", "mtp"), ("attention-sink", "attention-sink+qkv-bias")],
)
def test_a_carried_model_reads_with_a_cache_as_without(before: str, after: str) -> None:
    new, _ = morph.upcycle(stage_model(before, dtype=torch.float64), config_of(after, "nano"))
    ids = random_ids(new, 2, 24)
    cache = new.new_cache(2)
    with torch.no_grad():
        steps = [new(ids[:, a:b], cache=cache) for a, b in ((0, 7), (7, 8), (8, 20), (20, 24))]
    assert relative_error(torch.cat(steps, 1), logits(new, ids)) < EXACT


# ---- identities ------------------------------------------------------------------------------------------------------


def centred_case(**changes: Any) -> ModelConfig:
    """Stage 1 where nothing stands in the way: no sinusoid, a head of its own."""
    return replace(stage(1, ODD), position=NoPosition(), tied=False, **changes)


def test_layer_norm_becomes_rms_norm_exactly_where_nothing_is_lost() -> None:
    model = stage_model(centred_case(), dtype=torch.float64)
    model.norm.bias.data.zero_()  # type: ignore[union-attr]
    target = replace(model.config, norm=stage(2, ODD).norm)
    error, report = carried(model, target)
    assert error < EXACT and report.moves[0].kind == "function-preserving" and report.moves[0].told.lost == ()
    assert report.moves[0].difference < EXACT * report.largest


@pytest.mark.parametrize("eps", [1e-6, 1e-1])
def test_another_epsilon_is_another_function_and_told(eps: float) -> None:
    config = centred_case(bias=False)
    config = replace(config, norm=LayerNormNoBias(eps=1e-5))
    error, report = carried(stage_model(config, dtype=torch.float64), replace(config, norm=RMSNorm(eps=eps)))
    assert error > 1e-7 and report.moves[0].kind == "recipe"
    assert report.moves[0].told.lost == (f"the norms' ε, 1e-05, which is {eps:g} now",)
    config = stage(8, ODD)
    attention = replace(config.attention, qk_norm=ZeroCentredRMSNorm(eps=eps))  # type: ignore[type-var]
    model = stage_model(config, dtype=torch.float64)
    error, report = carried(model, replace(config, norm=ZeroCentredRMSNorm(), attention=attention))
    assert error > 1e-8 and report.moves[0].kind == "recipe" and "ε" in report.moves[0].told.lost[0]


@pytest.mark.parametrize("qk_norm", [None, FullWidthRMSNorm()])
def test_norms_of_queries_that_have_no_recipe_are_refused_beside_a_zero_centred_norm(qk_norm: Any) -> None:
    config = stage(8, ODD)
    attention = replace(config.attention, qk_norm=qk_norm)  # type: ignore[type-var]
    with pytest.raises(MorphError, match=r"no recipe carries attention\.qk_norm"):
        plan(config, replace(config, norm=ZeroCentredRMSNorm(), attention=attention))


def test_a_table_of_places_is_centred_too() -> None:
    config = replace(stage(1, ODD), position=LearnedPosition(length=21), tied=False)
    model = stage_model(config, dtype=torch.float64)
    model.norm.bias.data.zero_()  # type: ignore[union-attr]
    error, report = carried(model, replace(config, norm=stage(2, ODD).norm))
    assert error < EXACT and report.moves[0].kind == "function-preserving"


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, "final norm's shift"),
        ({"tied": True}, "the mean of an embedding"),
        ({"position": stage(0, ODD).position}, "sinusoid"),
        ({"bias": False}, "has no bias to take it"),
        ({"placement": "post"}, "the mean of every token"),
    ],
)
def test_what_rms_norm_loses_is_told(changes: dict[str, Any], lost: str) -> None:
    model = stage_model(replace(centred_case(), **changes), dtype=torch.float64)
    if changes:
        model.blocks[-1].feed_forward_norm.bias.data.zero_() if "placement" in changes else None
        if not isinstance(model.norm, torch.nn.Identity):
            model.norm.bias.data.zero_()  # type: ignore[union-attr]
    error, report = carried(model, replace(model.config, norm=stage(2, ODD).norm))
    assert error > 1e-6 and report.moves[0].kind == "recipe"
    assert any(lost in what for what in report.moves[0].told.lost)


def test_the_key_bias_alone_can_go_where_keys_are_not_turned() -> None:
    model = stage_model(stage(2, ODD), dtype=torch.float64)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias") and "k_proj" not in name:
            parameter.data.zero_()
    error, report = carried(model, stage(3, ODD))
    assert error < EXACT and report.moves[0].kind == "function-preserving"
    capped = replace(stage(3, ODD), attention=replace(stage(3, ODD).attention, softcap=Softcap(cap=2.0)))  # type: ignore[type-var]
    for config in (stage(4, ODD), capped):
        other = stage_model(replace(config, bias=True), dtype=torch.float64)
        for name, parameter in other.named_parameters():
            if name.endswith(".bias") and "k_proj" not in name:
                parameter.data.zero_()
        error, report = carried(other, config)
        assert error > 1e-6 and report.moves[0].told.lost == ("the biases",)


def test_a_sinusoid_can_be_written_down_as_rows() -> None:
    model = stage_model(stage(0, ODD), dtype=torch.float64)
    error, report = carried(model, replace(model.config, position=LearnedPosition(length=21)))
    assert error < 1e-6 and report.moves[0].kind == "function-preserving" and report.moves[0].told.holds_for == 21


@pytest.mark.parametrize(("old", "new", "gap"), [("relu", "silu", 0.2785), ("relu", "gelu", 0.17)])
def test_a_steep_activation_is_as_near_as_it_says(old: str, new: str, gap: float) -> None:
    config = replace(stage(4, ODD), n_layers=1)
    model = stage_model(config, dtype=torch.float64)
    target = replace(config, feed_forward=replace(config.feed_forward, activation=new))  # type: ignore[type-var]
    errors = {beta: carried(model, target, steepness=beta)[0] for beta in (1.0, 10.0, 1000.0)}
    assert errors[1000.0] < errors[10.0] / 50 < errors[1.0] / 50
    z = torch.linspace(-9, 9, 2001, dtype=torch.float64)
    activate = getattr(torch.nn.functional, new)
    assert (activate(4 * z) / 4 - z.relu()).abs().max() <= gap / 4


def test_silu_becomes_gelu_on_another_scale() -> None:
    model = stage_model("silu", dtype=torch.float64)
    near, _ = carried(model, morph.fork("gelu", "nano"))
    plain = stage_model("gelu", dtype=torch.float64)
    plain.load_state_dict(model.state_dict())
    ids = random_ids(model, 3, 21)
    assert near < relative_error(logits(plain, ids), logits(model, ids)) / 5


def test_with_biases_a_value_of_one_is_exact_and_only_units_are_lost() -> None:
    config = replace(stage(5, ODD), bias=True)
    model = stage_model(config, dtype=torch.float64)
    for block in model.blocks:
        block.feed_forward.down.weight.data[:, ::3] = 0  # type: ignore[union-attr]
    error, report = carried(model, replace(config, feed_forward=stage(6, ODD).feed_forward))
    assert error < 1e-9, "the silent third goes, the rest is the same function"
    assert "units kept as gates" in report.moves[0].told.how


def test_a_wider_gated_network_holds_all_units() -> None:
    config = replace(stage(5, ODD), bias=True)
    model = stage_model(config, dtype=torch.float64)
    error, report = carried(model, replace(config, feed_forward=GatedMLP(width=301, activation="silu")))
    assert error < 1e-9 and "the strongest 288 units" in report.moves[0].told.how


def test_the_fit_brings_outputs_nearer() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 7, dtype=torch.float64, generator=generator)
    truth = torch.randn(7, 3, dtype=torch.float64, generator=generator)
    assert relative_error(fit(x, x @ truth), truth) < 0.02
    assert fit(torch.zeros(5, 4, dtype=torch.float64), torch.ones(5, 1, dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("kv", [2, 1, 3])
def test_heads_that_are_copies_are_averaged_without_loss(kv: int) -> None:
    model = stage_model(stage(6, ODD), dtype=torch.float64)
    for block in model.blocks:
        for name in ("k_proj", "v_proj"):
            weight = getattr(block.attention, name).weight
            few = weight.data.unflatten(0, (6, 12))[:kv].clone()
            weight.data = few.repeat_interleave(6 // kv, dim=0).flatten(0, 1)
    attention = replace(model.config.attention, n_kv_heads=kv)  # type: ignore[type-var]
    error, report = carried(model, replace(model.config, attention=attention))
    assert error < EXACT and report.moves[0].kind == "recipe"


def test_qk_norm_keeps_the_size_of_queries_and_keys() -> None:
    model = stage_model(7, dtype=torch.float64)
    ids = random_ids(model, 3, 21)
    new, _ = morph.upcycle(model, stage(8, "nano"), ids=ids)
    with torch.no_grad(), morph.trace(model) as before, morph.trace(new) as after:
        model(ids)
        new(ids)
    for which in ("queries", "keys"):
        old = before[f"blocks.0.attention.unrotated_{which}"].square().mean(-1).sqrt()
        now = after[f"blocks.0.attention.unrotated_{which}"].square().mean(-1).sqrt()
        assert old.std() > 0.01 and now.std() < 1e-3 and now.mean().item() == pytest.approx(old.mean().item(), rel=1e-3)
    across, _ = morph.upcycle(model, config_of("gqa+qk-norm-full-width", "nano"), ids=ids)
    assert across.blocks[0].attention.k_norm.weight.shape == (24,)  # type: ignore[union-attr]


def test_a_window_changes_nothing_within_it() -> None:
    model = stage_model(stage(8, ODD), dtype=torch.float64)
    short, report = carried(model, stage(9, ODD), ids=random_ids(model, 2, 5))
    assert short < EXACT and report.moves[0].beyond is None
    long, report = carried(model, stage(9, ODD), ids=random_ids(model, 2, 21))
    move = report.moves[0]
    assert long > 1e-4 and move.told.holds_for == 5 and move.beyond is not None
    assert move.difference < EXACT * report.largest < move.beyond
    assert "texts of up to 5 tokens" in str(report)


@pytest.mark.parametrize("size", [SIZES["nano"], ODD])
@pytest.mark.parametrize("last", [10, 11, 12, 13])
def test_experts_made_of_a_dense_network_compute_what_it_did(size: Size, last: int) -> None:
    """The shared expert too, as long as the experts are still copies."""
    model = stage_model(stage(9, size), dtype=torch.float64)
    error, report = carried(model, stage(last, size))
    assert error < EXACT
    assert all(move.difference < EXACT * report.largest for move in report.moves)


def test_biases_that_experts_have_no_place_for_are_told() -> None:
    config = replace(stage(9, ODD), bias=True)
    model = stage_model(config, dtype=torch.float64)
    error, report = carried(model, replace(stage(10, ODD), bias=True))
    assert (
        error > 1e-3 and report.moves[0].kind == "recipe" and "the biases of the dense" in report.moves[0].told.lost[0]
    )
    for name, parameter in model.named_parameters():
        if "feed_forward" in name and name.endswith(("gate.bias", "up.bias", "down.bias")):
            parameter.data.zero_()
    error, report = carried(model, replace(stage(10, ODD), bias=True))
    assert error < EXACT and report.moves[0].kind == "function-preserving"


def test_finer_experts_compute_what_trained_ones_did() -> None:
    config = config_of("moe", ODD)
    for balance in (
        config,
        replace(config, feed_forward=replace(experts_of(config), balance=experts_of(stage(13)).balance)),
    ):
        model = stage_model(balance, dtype=torch.float64)
        finer = replace(
            experts_of(balance), expert=replace(experts_of(balance).expert, width=24), n_experts=32, top_k=8,
            routed_scale=8.0,
        )  # fmt: skip
        error, report = carried(model, replace(balance, feed_forward=finer))
        assert error < EXACT and report.moves[0].kind == "function-preserving"


def test_the_shared_expert_is_the_mean_of_those_that_fall_out() -> None:
    model = stage_model(11, dtype=torch.float64)
    ids = random_ids(model, 3, 21)
    new, report = morph.upcycle(model, stage(12, "nano"), ids=ids)
    assert report.moves[0].kind == "recipe" and report.moves[0].difference > 1e-4
    with torch.no_grad(), morph.trace(model) as seen:
        model(ids)
    last = best(seen["blocks.0.feed_forward.router.probabilities"], 8)[:, -1]
    mean = model.blocks[0].feed_forward.experts.up[last].mean(0)  # type: ignore[union-attr,index]
    assert relative_error(new.blocks[0].feed_forward.shared[0].up.weight, mean) < EXACT  # type: ignore[union-attr,index]


def test_noise_tells_copies_apart() -> None:
    model = stage_model(9, dtype=torch.float64)
    error, report = carried(model, stage(10, "nano"), noise=0.05)
    assert 1e-4 < error < 0.5 and report.moves[0].kind == "recipe"
    copies, _ = morph.upcycle(model, stage(10, "nano"))
    noisy, _ = morph.upcycle(model, stage(10, "nano"), noise=0.05)
    experts = [m.blocks[0].feed_forward.experts.up for m in (copies, noisy)]  # type: ignore[union-attr]
    assert torch.equal(experts[0][0], experts[0][2]) and not torch.equal(experts[1][0], experts[1][2])  # type: ignore[index]
    assert relative_error(experts[1], experts[0]) < 0.5  # type: ignore[arg-type]


def test_copies_part_when_they_are_trained() -> None:
    """Router rows are equal in pairs at first, and gradients are not."""
    new, _ = morph.upcycle(stage_model(9), stage(10, "nano"))
    ids = random_ids(new, 4, 30)
    new.train().loss(ids[:, :-1], ids[:, 1:]).total.backward()
    mixture = new.blocks[0].feed_forward
    rows, up = mixture.router.logits.weight, mixture.experts.up  # type: ignore[union-attr]
    assert torch.equal(rows[0], rows[1]) and not torch.allclose(rows.grad[0], rows.grad[1])  # type: ignore[union-attr,index]
    assert torch.equal(up[0], up[2]) and not torch.allclose(up.grad[0], up.grad[2])  # type: ignore[union-attr,index]


def test_biases_of_the_choice_begin_at_zero_and_are_told_when_left() -> None:
    model = stage_model(12, dtype=torch.float64)
    error, report = carried(model, stage(13, "nano"))
    assert error == 0 and len(report.moves[0].fresh) == 4
    back = stage_model(13, dtype=torch.float64)
    _, report = carried(back, stage(12, "nano"))
    assert report.moves[0].kind == "recipe" and report.moves[0].told.lost == ("the biases of the choice",)


def test_states_write_as_much_as_the_windows_they_replace() -> None:
    model = stage_model(13, dtype=torch.float64)
    ids = random_ids(model, 4, 64)
    new, report = morph.upcycle(model, stage(14, "nano"), ids=ids)
    assert report.moves[0].kind == "fresh"
    with torch.no_grad(), morph.trace(model) as before, morph.trace(new) as after:
        model(ids)
        new(ids)
    sizes = [float(seen["blocks.0.attention_delta"].square().mean().sqrt()) for seen in (before, after)]
    assert 0.5 < sizes[1] / sizes[0] < 2
    old, now = model.blocks[0].attention, new.blocks[0].attention
    assert torch.equal(now.k_proj.weight, old.k_proj.weight)  # type: ignore[union-attr]
    heads = now.v_proj.weight.unflatten(0, (4, 12))  # type: ignore[union-attr,operator]
    assert torch.equal(heads[0], heads[1]) and torch.equal(heads[2], old.v_proj.weight[12:])  # type: ignore[union-attr,index]


def test_pre_norm_comes_near_its_post_norm_model() -> None:
    """Nearer by far than the same weights under the same names, which is what a plain copy would be."""
    model = stage_model(stage(0, "nano"), dtype=torch.float64)
    ids = random_ids(model, 4, 40)
    near, _ = carried(model, stage(1, "nano"), ids=ids)
    plain = stage_model(1, dtype=torch.float64)
    plain.load_state_dict(model.state_dict(), strict=False)
    assert near < 0.75 * relative_error(logits(plain, ids), logits(model, ids))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rope", "untied"),
        ("rope", "logit-scale"),
        ("rope", "dropout"),
        ("qk-norm", "gated-attention"),
        ("qk-norm", "headwise-gate"),
        ("qk-norm", "qkv-bias"),
        ("qk-norm", "zero-centred-norm"),
        ("shared-expert", "unbalanced"),
        ("shared-expert", "shared-expert-gate"),
        ("sandwich-norm", "depth-scaled-gain"),
        ("hybrid", "hybrid-gated"),
        ("hybrid", "mtp"),
        ("qk-norm+zero-centred-norm", "qk-norm+zero-centred-norm+logit-scale"),
    ],
)
def test_forks_that_keep_the_function(before: str, after: str) -> None:
    model = stage_model(config_of(before, ODD), dtype=torch.float64)
    error, report = carried(model, config_of(after, ODD))
    assert error < EXACT and [move.kind for move in report.moves] == ["function-preserving"]


@pytest.mark.parametrize("after", ["alibi", "nope", "yarn", "mqa", "window-1-1", "all-local", "nope-global", "geglu"])
def test_other_forks_that_are_reached(after: str) -> None:
    model = stage_model(4, dtype=torch.float64)
    new, report = morph.upcycle(model, config_of(after, "nano"))
    assert new.config == config_of(after, "nano") and report.moves[-1].difference >= 0
