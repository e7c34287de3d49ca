"""The exact relation of every fork to its base, as `Fork.relation` states it.

A test names the forks it holds for with `@holds`; relations that other files assert are listed in `ELSEWHERE`. A fork
whose relation does not begin with "none" must be in one of the two.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import morph
from morph.config import (
    ClampedGatedMLP,
    GroupLimitedRouter,
    LogitScale,
    PerLayer,
    Rope,
    Rotary,
)
from morph.forks import FORKS, config_of
from morph.nn import context as context_module
from morph.nn.context import Context
from morph.nn.feedforward import ACTIVATIONS, meeting
from morph.nn.norm import build_norm
from morph.nn.position import rotation_table, sinusoid_table
from tests.models import random_ids, relative_error, stage_model
from tests.relations import EXACT, FELT, HELD, assert_same, each, holds, logits, pair, share, still

WINDOW = 16  # of size nano

ELSEWHERE = {
    "logit-cap": "test_stream.test_scale_and_cap_meet_their_base",
    "embedding-scale": "test_stream.test_rows_as_they_are_are_the_table_times_its_root_width",
    "mla": "test_latent.test_without_rotation_and_norms_it_is_its_base_at_low_rank",
    "hybrid-mla": "test_latent.test_without_rotation_and_norms_it_is_its_base_at_low_rank",
    "hybrid-gated": "test_states.test_gates_of_one_half_beside_states",
    "kda": "test_states.test_kda_with_one_decay_for_a_head_is_the_gated_delta_rule",
    "lightning": "test_states.test_on_keys_at_right_angles_lightning_is_the_gated_delta_rule",
    "sparse-attention": "test_sparse.test_where_it_chooses_all_it_is_its_base",
    "mtp": "test_mtp.test_the_trunk_is_the_base",
    "dropout": "test_stream.test_dropout_keeps_the_mean",
}
"""Fork -> the test, file and name, that asserts its relation."""


def test_every_relation_that_is_claimed_is_tested() -> None:
    claimed = {slug for slug, fork in FORKS.items() if not fork.relation.startswith("none")}
    missing = sorted(claimed - HELD.keys() - ELSEWHERE.keys())
    assert not missing, f"no test holds {missing} to their relations: mark one with @holds, or name it in ELSEWHERE"
    assert {*HELD, *ELSEWHERE} <= claimed and not HELD.keys() & ELSEWHERE.keys()
    for slug, place in ELSEWHERE.items():
        module, name = place.split(".")
        assert callable(getattr(importlib.import_module(f"tests.{module}"), name)), (slug, place)


# ---- positions ----


@holds("learned-position")
def test_learned_rows_that_are_the_sinusoids() -> None:
    base, fork = pair("learned-position")
    assert fork.positions is not None
    fork.positions.weight.data = sinusoid_table(64, 48, 10_000.0) / 48**0.5  # which multiplies them, as it does tokens
    assert_same(fork, base)


@holds("nope")
def test_without_rotation_every_token_stands_at_position_0(monkeypatch: pytest.MonkeyPatch) -> None:
    base, fork = pair("nope")
    monkeypatch.setattr(context_module, "rotation_table", still)
    assert_same(fork, base)


@holds("alibi")
def test_slopes_of_0_and_rotations_at_position_0(monkeypatch: pytest.MonkeyPatch) -> None:
    base, fork = pair("alibi")
    bias = Context._bias
    monkeypatch.setattr(Context, "_bias", lambda *args: bias(*args).masked_fill(bias(*args) > float("-inf"), 0.0))
    monkeypatch.setattr(context_module, "rotation_table", still)
    assert_same(fork, base)


@each("partial-rope", "linear-rope", "ntk", "yarn", "llama3-rope")
def test_what_stretches_nothing_is_rope(slug: str) -> None:
    position = morph.fork(slug, "nano").position
    changes: dict[str, Any] = {"fraction": 1.0} if slug == "partial-rope" else {"factor": 1.0}
    base, fork = pair(slug, position=replace(position, **changes))  # type: ignore[type-var]
    assert_same(fork, base)


def test_a_squeezed_position_is_an_earlier_one() -> None:
    """The second half of what `linear-rope` says."""
    squeezed, rope = morph.fork("linear-rope").position, morph.stage("rope").position
    assert isinstance(squeezed, Rotary) and isinstance(rope, Rotary)
    assert torch.equal(rotation_table(4 * 30, squeezed, 12)[:, ::4], rotation_table(30, rope, 12))


@holds("nope-global")
def test_global_layers_whose_tokens_stand_at_position_0(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fork = pair("nope-global")
    marked = Rope(base=7.0)
    config = replace(morph.stage("sliding-window", "nano"), position=PerLayer(local=Rope(), global_=marked))
    base = stage_model(config, dtype=torch.float64)
    share(base, fork)
    assert relative_error(logits(fork), logits(base)) > FELT
    tables = {marked: still, Rope(): rotation_table}
    monkeypatch.setattr(context_module, "rotation_table", lambda n, spec, width: tables[spec](n, spec, width))
    assert_same(fork, base)


@holds("dual-rope-base")
def test_two_bases_that_are_one() -> None:
    base, fork = pair("dual-rope-base", position=PerLayer(local=Rope(), global_=Rope()))
    assert_same(fork, base)


# ---- norms ----


@holds("sandwich-norm")
def test_a_sandwich_without_its_second_norms() -> None:
    base, fork = pair("sandwich-norm")
    for block in fork.blocks:
        block.attention_out_norm = block.feed_forward_out_norm = nn.Identity()  # type: ignore[assignment]
    assert_same(fork, base)


@holds("depth-scaled-gain")
def test_gains_that_only_start_elsewhere() -> None:
    base, fork = (stage_model(slug, dtype=torch.float64) for slug in ("sandwich-norm", "depth-scaled-gain"))
    assert relative_error(logits(fork), logits(base)) > FELT
    share(fork, base)
    assert_same(fork, base)
    sandwich, scaled = (morph.build(config_of(slug, "nano")) for slug in ("sandwich-norm", "depth-scaled-gain"))
    for name, weight in sandwich.state_dict().items():
        part = 4**-0.5 if name.endswith("out_norm.weight") else 1.0  # 1/√L
        assert torch.equal(scaled.state_dict()[name], weight * part), name


@holds("post-branch-norm")
def test_norms_that_let_all_pass_can_stand_anywhere() -> None:
    base, fork = pair("post-branch-norm")
    for model in (base, fork):
        for block in model.blocks:
            block.attention_norm = block.feed_forward_norm = nn.Identity()  # type: ignore[assignment]
    assert_same(fork, base)


@holds("parallel-block")
@pytest.mark.parametrize("silent", ["attention", "feed_forward"])
def test_with_a_silent_half_series_is_parallel(silent: str) -> None:
    base, fork = pair("parallel-block")
    for old, new in zip(base.blocks, fork.blocks, strict=True):
        for block in (old, new):
            half = getattr(block, silent)
            out = half.o_proj if silent == "attention" else half.down
            out.weight.data.zero_(), out.bias.data.zero_()
        for norm in (old.attention_norm, old.feed_forward_norm):
            norm.load_state_dict(new.norm.state_dict())  # type: ignore[union-attr]
    assert_same(fork, base)


@holds("layer-norm-no-bias")
def test_the_norm_without_shift_is_the_bases_norm_of_centred_input() -> None:
    fork, base = (build_norm(config_of(slug, "nano").norm, 48).double() for slug in ("layer-norm-no-bias", "rms-norm"))
    gain = torch.randn(48, dtype=torch.float64)
    fork.weight.data = base.weight.data = gain
    x = 3 * torch.randn(5, 48, dtype=torch.float64) + 2
    centred = x - x.mean(-1, keepdim=True)
    assert relative_error(fork(x), base(x)) > 0.05
    assert relative_error(fork(x), base(centred)) < EXACT
    assert relative_error(fork(centred), base(centred)) < EXACT


@holds("zero-centred-norm")
def test_zero_centred_gains_are_the_same_functions() -> None:
    base, fork = (stage_model(slug, dtype=torch.float64) for slug in ("qk-norm", "zero-centred-norm"))
    for name, weight in fork.state_dict().items():
        base.get_parameter(name).data.copy_(weight + 1 if "norm" in name else weight)
    assert_same(fork, base)
    fresh, old = morph.build(fork.config), morph.build(base.config)
    for name, weight in fresh.named_parameters():
        assert torch.equal(weight + 1 if "norm" in name else weight, old.get_parameter(name)), "the same start"


@holds("no-qk-norm")
def test_without_qk_norm_the_bases_step_is_undone() -> None:
    for size in morph.steps.SIZES:
        assert morph.fork("no-qk-norm", size) == morph.stage("gqa", size)


@holds("qk-norm-full-width")
def test_across_one_head_is_within_it() -> None:
    one = {"n_heads": 1, "n_kv_heads": 1, "head_dim": 12}
    configs = (config_of(slug, "nano") for slug in ("qk-norm", "qk-norm-full-width"))
    base, fork = (
        stage_model(replace(c, attention=replace(c.attention, **one)), dtype=torch.float64)  # type: ignore[type-var]
        for c in configs
    )
    for model in (base, fork):
        for block in model.blocks:
            for norm in (block.attention.q_norm, block.attention.k_norm):
                norm.weight.data.fill_(1.5)  # type: ignore[union-attr]
    share(fork, base)
    assert_same(fork, base)
    pair("qk-norm-full-width")  # with four heads it is another function


# ---- attention ----


@holds("attention-sink")
def test_a_sink_that_draws_nothing() -> None:
    base, fork = pair("attention-sink")
    for block in fork.blocks:
        block.attention.sink.logits.data.fill_(-1e4)
    assert_same(fork, base)


@each("gated-attention", "headwise-gate")
def test_gates_of_one_half(slug: str) -> None:
    base, fork = pair(slug)
    for old, new in zip(base.blocks, fork.blocks, strict=True):
        new.attention.gate_proj.weight.data.zero_()
        new.attention.o_proj.weight.data = 2 * old.attention.o_proj.weight.data
    assert_same(fork, base)


@holds("logit-softcap")
def test_a_wide_cap_bends_nothing() -> None:
    spec = morph.fork("logit-softcap", "nano").attention
    for cap in (2.0, 50.0, 1e4):
        base = stage_model("qk-norm", dtype=torch.float64)
        fork = stage_model(
            replace(base.config, attention=replace(spec, softcap=replace(spec.softcap, cap=cap))),  # type: ignore[type-var, union-attr]
            dtype=torch.float64,
        )
        share(fork, base)
        with morph.trace(fork) as bounded, morph.trace(base) as free:
            error = relative_error(logits(fork), logits(base))
        bent, raw = (seen["blocks.0.attention.scores"] for seen in (bounded, free))
        seen_keys = raw > float("-inf")
        gap, bound = (bent - raw)[seen_keys].abs(), raw[seen_keys].abs() ** 3 / (3 * cap**2)
        assert (gap <= bound + 1e-13).all()
        if cap == 2.0:
            assert float(gap.max()) > 0.3 and error > 0.01
    assert error < 1e-6, "and with the cap at 10,000 nothing is left"


@holds("qkv-bias")
def test_biases_of_0() -> None:
    base, fork = pair("qkv-bias")
    for name, parameter in fork.named_parameters():
        if name.endswith("_proj.bias"):
            parameter.data.zero_()
    assert_same(fork, base)


@holds("mqa")
def test_key_value_heads_that_are_copies_of_one() -> None:
    base, fork = pair("mqa")
    for old, new in zip(base.blocks, fork.blocks, strict=True):
        for name in ("k_proj", "v_proj"):
            getattr(old.attention, name).weight.data = getattr(new.attention, name).weight.data.repeat(2, 1)
    assert_same(fork, base)


@each("window-1-1", "window-5-1", "all-local")
def test_windows_as_long_as_the_text(slug: str) -> None:
    base, fork = pair(slug)
    assert_same(fork, base, WINDOW)
    assert relative_error(logits(fork, WINDOW + 8), logits(base, WINDOW + 8)) > FELT, "longer, and they show"


# ---- feed-forward ----


@each("gelu", "geglu")
def test_gelu_is_near_a_silu_on_another_scale(slug: str) -> None:
    activation = morph.fork(slug).feed_forward.activation  # type: ignore[union-attr]
    z = torch.linspace(-30, 30, 60_001, dtype=torch.float64)
    gap = (ACTIVATIONS[activation](z) - ACTIVATIONS["silu"](1.702 * z) / 1.702).abs().max().item()
    assert 0.02 < gap < 0.0204
    assert config_of(FORKS[slug].base).feed_forward.activation == "silu"  # type: ignore[union-attr]


@holds("clamped-swiglu")
def test_without_bounds_and_the_one_it_is_swiglu() -> None:
    spec, base = (config_of(slug, "nano").feed_forward for slug in ("clamped-swiglu", "gated-ffn"))
    assert isinstance(spec, ClampedGatedMLP)
    free = replace(spec, limit=1e6, alpha=1.0)
    gate, value = 3 * torch.randn(2, 500, dtype=torch.float64)
    assert relative_error(meeting(free)(gate, value - 1), meeting(base)(gate, value)) < EXACT  # type: ignore[arg-type]
    assert relative_error(meeting(spec)(gate, value), meeting(base)(gate, value)) > 0.1  # type: ignore[arg-type]


# ---- experts ----


@holds("unbalanced")
def test_without_balancing_only_the_loss_lacks_a_term() -> None:
    base, fork = (stage_model(slug, dtype=torch.float64).train() for slug in ("shared-expert", "unbalanced"))
    share(fork, base)
    ids = random_ids(base, 2, 40)
    assert torch.equal(fork(ids), base(ids))
    with_term, without = (model.loss(ids[:, :-1], ids[:, 1:]) for model in (base, fork))
    assert torch.equal(without.total, with_term.cross_entropy) and with_term.balance.item() > 0.005
    assert relative_error(without.total + with_term.balance, with_term.total) < EXACT


@holds("switch-top-1")
def test_one_expert_is_two_halves_times_its_probability() -> None:
    base, fork = (stage_model(slug, dtype=torch.float64).blocks[0].feed_forward for slug in ("moe", "switch-top-1"))
    rows, coarse, fine = fork.router.logits.weight.data, fork.experts, base.experts
    base.router.logits.weight.data = rows.repeat_interleave(2, dim=0)
    for name in ("gate", "up"):
        getattr(fine, name).data = getattr(coarse, name).data.unflatten(1, (2, -1)).flatten(0, 1)
    fine.down.data = coarse.down.data.unflatten(2, (2, -1)).transpose(1, 2).flatten(0, 1)
    x = torch.randn(2, 9, 48, dtype=torch.float64)
    context = Context(past=0, length=9, pads=None, device=torch.device("cpu"), dtype=torch.float64)
    probability = (x @ rows.T).softmax(-1).amax(-1, keepdim=True)
    assert 0.2 < float(probability.min()) < float(probability.max()) < 0.999
    assert relative_error(fork(x, context), base(x, context) * probability) < EXACT


@holds("shared-expert-gate")
def test_a_gate_of_one_half_on_the_shared_expert() -> None:
    base, fork = pair("shared-expert-gate")
    for old, new in zip(base.blocks, fork.blocks, strict=True):
        new.feed_forward.shared_gate.weight.data.zero_()
        new.feed_forward.shared[0].down.weight.data = 2 * old.feed_forward.shared[0].down.weight.data
    assert_same(fork, base)


@holds("sigmoid-router")
def test_sigmoids_of_low_logits_weigh_as_a_softmax_does() -> None:
    base, fork = (
        stage_model(slug, dtype=torch.float64).blocks[0].feed_forward.router
        for slug in ("loss-free-balance", "sigmoid-router")
    )
    z = torch.randn(200, 32, dtype=torch.float64)
    errors = {}
    for low in (0.0, 8.0, 16.0):
        soft, each_by_itself = base.score(z - low), fork.score(z - low)
        chosen = base.choose(soft)
        assert torch.equal(fork.choose(each_by_itself), chosen), "both order experts as their logits do"
        ours, theirs = fork.weigh(each_by_itself.gather(-1, chosen)), base.weigh(soft.gather(-1, chosen))
        errors[low] = relative_error(ours, theirs)
        assert errors[low] <= float((z.max() - low).exp()), "sigmoid(z) is exp z over 1 + exp z"
    assert errors[0.0] > 0.1 and errors[16.0] < 1e-5


@holds("group-limited-router")
def test_every_group_kept() -> None:
    config = morph.fork("group-limited-router", "nano").feed_forward
    router = GroupLimitedRouter(n_groups=8, n_kept=8)
    base, fork = pair("group-limited-router", feed_forward=replace(config, router=router))  # type: ignore[type-var]
    assert_same(fork, base)


@holds("dense-first")
def test_a_router_that_says_nothing_makes_one_dense_network() -> None:
    base, fork = (stage_model(slug, dtype=torch.float64) for slug in ("loss-free-balance", "dense-first"))
    share(fork, base)
    assert relative_error(logits(fork), logits(base)) > FELT
    moe, dense = base.blocks[0].feed_forward, fork.blocks[0].feed_forward
    moe.router.logits.weight.data.zero_(), moe.router.selection_bias.zero_()
    for name in ("gate", "up"):
        routed = getattr(moe.experts, name).data[:7].flatten(0, 1)  # ties go to the lower index
        getattr(dense, name).weight.data = torch.cat((routed, getattr(moe.shared[0], name).weight.data))
    routed = moe.experts.down.data[:7].transpose(0, 1).flatten(1)
    dense.down.weight.data = torch.cat((routed, moe.shared[0].down.weight.data), dim=1)
    assert_same(fork, base)


# ---- the two ends ----


@holds("untied")
def test_a_head_that_copies_the_embedding() -> None:
    base, fork = pair("untied")
    assert fork.head is not None
    fork.head.weight.data = base.embedding.weight.data.clone()
    assert_same(fork, base)


@holds("logit-scale")
def test_a_scale_of_1_or_a_gain_that_undoes_it() -> None:
    base, fork = pair("logit-scale", logits=LogitScale(scale=1.0))
    assert_same(fork, base)
    base, fork = pair("logit-scale")
    fork.norm.weight.data.mul_(16)
    assert_same(fork, base)


def test_a_token_at_position_0_is_what_the_helper_says() -> None:
    assert torch.equal(still(5, Rope(), 12), rotation_table(1, Rope(), 12).expand(2, 5, 6))
