"""The exact relation of every step to the stage before it, as `Step.relation` states it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import morph
from morph.config import MoE, NoPosition
from morph.model import Decoder
from morph.nn import context as context_module
from morph.nn.attention import SoftmaxAttention
from morph.nn.context import Context
from morph.nn.delta import chunked_rule, recurrent_rule, unit
from morph.nn.feedforward import GatedMLP
from morph.nn.norm import LayerNorm, RMSNorm
from morph.steps import stage
from tests.models import random_ids, relative_error, stage_model

EXACT = 1e-12


def pair(step: int, seed: int = 0) -> tuple[Decoder, Decoder]:
    """Stages step-1 and step in fp64, the later with every weight of the earlier that fits."""
    before = stage_model(step - 1, seed, dtype=torch.float64)
    after = stage_model(step, seed, dtype=torch.float64)
    own = after.state_dict()
    fitting = {k: v for k, v in before.state_dict().items() if k in own and own[k].shape == v.shape}
    after.load_state_dict(fitting, strict=False)
    return before, after


def logits(model: Decoder, length: int = 40) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(random_ids(model, 2, length))
    return out


def test_1_pre_norm_without_its_norms_is_post_norm_without_them() -> None:
    before, after = pair(1)
    assert relative_error(logits(after), logits(before)) > 0.1
    for model in (before, after):
        for block in model.blocks:
            block.attention_norm, block.feed_forward_norm = nn.Identity(), nn.Identity()  # type: ignore[assignment]
        model.norm = nn.Identity()
    assert relative_error(logits(after), logits(before)) < EXACT


def test_1_one_sublayer_on_standardized_input_agrees_up_to_epsilon() -> None:
    """On a standardized stream, a branch that reads it normed writes what one that reads it raw does."""
    before, after = pair(1)
    shared = Context(past=0, length=7, pads=None, device=torch.device("cpu"), dtype=torch.float64)
    x = torch.randn(3, 7, 48, dtype=torch.float64)
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)
    post, pre = before.blocks[0], after.blocks[0]
    for norm in (pre.attention_norm, pre.feed_forward_norm):
        nn.init.ones_(norm.weight)  # type: ignore[arg-type]
        nn.init.zeros_(norm.bias)  # type: ignore[arg-type]
    for half in ("attention", "feed_forward"):
        raw = getattr(post, half)(x, shared)
        normed = getattr(pre, half)(getattr(pre, f"{half}_norm")(x), shared)
        assert 0 < relative_error(normed, raw) < 2e-5


def test_2_rms_norm_of_centred_input_is_layer_norm_without_shift() -> None:
    layer, rms = LayerNorm(48, eps=1e-5).double(), RMSNorm(48, eps=1e-5).double()
    gain = torch.randn(48, dtype=torch.float64)
    for norm in (layer, rms):
        norm.weight.data = gain.clone()
    layer.bias.data.zero_()
    x = 3 * torch.randn(5, 48, dtype=torch.float64) + 2
    assert relative_error(rms(x - x.mean(-1, keepdim=True)), layer(x)) < EXACT
    assert relative_error(rms(x), layer(x)) > 0.05


def test_3_zero_biases_are_no_biases() -> None:
    before, after = pair(3)
    assert relative_error(logits(after), logits(before)) > 1e-3
    for name, parameter in before.named_parameters():
        if name.endswith(".bias"):
            parameter.data.zero_()
    assert relative_error(logits(after), logits(before)) < EXACT


def test_4_no_sinusoid_is_no_rotation_is_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = pair(4)
    bare = morph.build(replace(after.config, position=NoPosition())).double()
    bare.load_state_dict(after.state_dict())
    assert relative_error(logits(after), logits(before)) > 0.05
    monkeypatch.setattr(context_module, "sinusoid_table", lambda length, width, base: torch.zeros(length, width))
    monkeypatch.setattr(
        context_module,
        "rotation_table",
        lambda length, spec, width: torch.stack((torch.ones(length, width // 2), torch.zeros(length, width // 2))),
    )  # the angles of position 0
    assert relative_error(logits(before), logits(bare)) < EXACT
    assert relative_error(logits(after), logits(bare)) < EXACT


@pytest.mark.parametrize("beta", [10.0, 1000.0])
def test_5_a_steep_silu_approaches_relu(beta: float) -> None:
    """SiLU(βz)/β differs from ReLU(z) by at most 0.2785/β, so weights that scale by β reach stage 4."""
    z = torch.linspace(-20, 20, 40_001, dtype=torch.float64)
    gap = (torch.nn.functional.silu(beta * z) / beta - z.relu()).abs().max().item()
    assert 0.2784 / beta < gap <= 0.2785 / beta or (beta > 100 and gap <= 0.2785 / beta)
    before, after = pair(5)
    errors = []
    for scale in (1.0, beta):
        for old, new in zip(before.blocks, after.blocks, strict=True):
            new.feed_forward.up.weight.data = scale * old.feed_forward.up.weight.data  # type: ignore[union-attr]
            new.feed_forward.down.weight.data = old.feed_forward.down.weight.data / scale  # type: ignore[union-attr]
        errors.append(relative_error(logits(after), logits(before)))
    assert errors[1] < errors[0] * 3 / beta


def test_6_with_its_value_at_one_the_gate_is_the_ungated_network() -> None:
    _, after = pair(6)
    gated = after.blocks[0].feed_forward
    assert isinstance(gated, GatedMLP)
    gated.up.forward = lambda x: torch.ones(*x.shape[:-1], gated.gate.out_features, dtype=x.dtype)  # type: ignore[method-assign]
    x = torch.randn(2, 5, 48, dtype=torch.float64)
    expected = torch.nn.functional.silu(x @ gated.gate.weight.T) @ gated.down.weight.T
    assert relative_error(gated(x, None), expected) < EXACT


def test_7_grouped_heads_are_full_heads_whose_keys_and_values_are_copies() -> None:
    before, after = pair(7)
    for old, new in zip(before.blocks, after.blocks, strict=True):
        assert isinstance(old.attention, SoftmaxAttention) and isinstance(new.attention, SoftmaxAttention)
        for name in ("k_proj", "v_proj"):
            few = getattr(new.attention, name).weight.data.unflatten(0, (2, 12))
            getattr(old.attention, name).weight.data = few.repeat_interleave(2, dim=0).flatten(0, 1)
    assert relative_error(logits(after), logits(before)) < EXACT


def test_8_queries_and_keys_of_unit_rms_pass_unchanged() -> None:
    before, after = pair(8)
    norms = [getattr(block.attention, name) for block in after.blocks for name in ("q_norm", "k_norm")]
    for norm in norms:
        norm.weight.data.fill_(1.0)
    unit_rms = torch.randn(2, 4, 9, 12, dtype=torch.float64)
    unit_rms = unit_rms / unit_rms.square().mean(-1, keepdim=True).sqrt()
    assert relative_error(norms[0](unit_rms), unit_rms) < 1e-5
    # and with a stage 7 that brings its q and k to unit RMS by itself, the two stages agree to ε
    for block in before.blocks:
        attention = block.attention
        for name in ("q_proj", "k_proj"):
            weight = getattr(attention, name).weight
            getattr(attention, name).forward = _unit_rms_heads(weight)
    assert relative_error(logits(after), logits(before)) < 1e-4


def _unit_rms_heads(weight: Tensor) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        heads = (x @ weight.T).unflatten(-1, (-1, 12))
        return (heads / heads.square().mean(-1, keepdim=True).sqrt()).flatten(-2)

    return forward


def test_9_a_window_as_long_as_the_text_is_no_window() -> None:
    before, after = pair(9)
    assert relative_error(logits(after, 16), logits(before, 16)) < EXACT
    assert relative_error(logits(after, 17), logits(before, 17)) > 1e-4, "one token more, and the window shows"


def test_10_paired_experts_that_are_halves_of_the_dense_network_rebuild_it() -> None:
    before, after = pair(10)
    for old, new in zip(before.blocks, after.blocks, strict=True):
        dense, moe = old.feed_forward, new.feed_forward
        rows = moe.router.logits.weight.data  # type: ignore[union-attr]
        rows[1::2] = rows[::2]
        for half in range(2):
            part = slice(64 * half, 64 * half + 64)
            for name in ("gate", "up"):
                getattr(moe.experts, name).data[half::2] = getattr(dense, name).weight.data[part]  # type: ignore[union-attr]
            moe.experts.down.data[half::2] = dense.down.weight.data[:, part]  # type: ignore[union-attr]
    assert relative_error(logits(after), logits(before)) < EXACT


def test_11_experts_cut_in_four_with_router_rows_repeated_rebuild_the_coarse_ones() -> None:
    before, after = pair(11)
    for old, new in zip(before.blocks, after.blocks, strict=True):
        coarse, fine = old.feed_forward, new.feed_forward
        rows = coarse.router.logits.weight.data  # type: ignore[union-attr]
        fine.router.logits.weight.data = rows.repeat_interleave(4, dim=0)  # type: ignore[union-attr]
        for name in ("gate", "up"):
            getattr(fine.experts, name).data = getattr(coarse.experts, name).data.reshape(32, 16, 48)  # type: ignore[union-attr]
        down = coarse.experts.down.data.unflatten(2, (4, 16)).transpose(1, 2)  # type: ignore[union-attr]
        fine.experts.down.data = down.reshape(32, 48, 16)  # type: ignore[union-attr]
    assert relative_error(logits(after), logits(before)) < EXACT


def test_12_a_silenced_shared_expert_leaves_stage_11_with_top_7() -> None:
    before, after = pair(12)
    moe = before.config.feed_forward
    assert isinstance(moe, MoE)
    seven = morph.build(replace(before.config, feed_forward=replace(moe, top_k=7, routed_scale=7.0))).double()
    seven.load_state_dict(before.state_dict())
    assert relative_error(logits(after), logits(seven)) > 1e-2
    for block in after.blocks:
        block.feed_forward.shared[0].down.weight.data.zero_()  # type: ignore[union-attr]
    assert relative_error(logits(after), logits(seven)) < EXACT


def test_13_biases_at_zero_choose_as_before() -> None:
    before, after = pair(13)
    assert relative_error(logits(after), logits(before)) > 1e-3
    for block in after.blocks:
        block.feed_forward.router.selection_bias.zero_()  # type: ignore[union-attr]
    assert relative_error(logits(after), logits(before)) < EXACT


def test_14_chunked_equals_recurrent_in_the_model() -> None:
    """Token by token the model runs the recurrent rule, at once the chunked one."""
    model = stage_model(14, dtype=torch.float64)
    ids, cache = random_ids(model, 2, 70), model.new_cache(2)
    with torch.no_grad():
        steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(70)], dim=1)
        assert relative_error(steps, model(ids)) < EXACT


@pytest.mark.parametrize("rule", [recurrent_rule, chunked_rule])
def test_14_without_decay_and_with_full_writes_orthonormal_keys_recall_exactly(rule: Callable) -> None:  # type: ignore[type-arg]
    keys = torch.linalg.qr(torch.randn(2, 3, 16, 16, dtype=torch.float64)).Q
    first, second = torch.randn(2, 2, 3, 16, 5, dtype=torch.float64)
    k, v = torch.cat((keys, keys), dim=2), torch.cat((first, second), dim=2)
    still, full = torch.zeros(2, 3, 32, dtype=torch.float64), torch.ones(2, 3, 32, dtype=torch.float64)
    _, state = rule(k, k, v, still, full, torch.zeros(2, 3, 16, 5, dtype=torch.float64))
    assert relative_error(keys @ state, second) < EXACT, "each key's newer value replaced the older"


def test_14_the_decay_fades_the_erased_part_too() -> None:
    """S ← α(I - βkkᵀ)S + βkvᵀ. With α → 0 the old state is forgotten; the other reading would keep -βkkᵀS."""
    k, v = unit(torch.randn(1, 1, 1, 8, dtype=torch.float64)), torch.randn(1, 1, 1, 4, dtype=torch.float64)
    state = torch.randn(1, 1, 8, 4, dtype=torch.float64)
    log_decay = torch.tensor([[[-0.7]]], dtype=torch.float64)
    beta = torch.tensor([[[0.6]]], dtype=torch.float64)
    kk = k.transpose(-1, -2) @ k
    alpha = log_decay.exp()[..., None]
    paper = alpha * (state - 0.6 * kk @ state) + 0.6 * k.transpose(-1, -2) @ v
    other = alpha * state - 0.6 * kk @ state + 0.6 * k.transpose(-1, -2) @ v
    for rule in (recurrent_rule, chunked_rule):
        _, after = rule(k, k, v, log_decay, beta, state)
        assert relative_error(after, paper) < 1e-6  # `unit` has an ε
        assert relative_error(after, other) > 0.05


def test_every_stage_differs_from_the_one_before() -> None:
    for step in range(1, 15):
        before, after = pair(step)
        assert relative_error(logits(after), logits(before)) > 1e-4, stage(step)
