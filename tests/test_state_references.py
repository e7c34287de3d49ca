"""Layers that keep a state against Hugging Face's, weights carried over: output, state, and decoding with a cache.

Odd sizes, key and value widths that differ where they may, one padded row, texts longer than two chunks.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from morph.config import GatedDeltaNet, KimiDelta, Lightning, ModelConfig, State
from morph.nn.block import build_mixer
from morph.nn.context import Context
from morph.nn.organ import Organ
from morph.steps import stage
from tests.models import relative_error
from tests.tools import need

BOUND, CACHED = 1e-5, 5e-5
LENGTH = 150  # four chunks of 32 and a part, two of 64 and a part
PADS = torch.tensor([0, 9])
CUTS = (0, 101, 102, 103, LENGTH)  # a prefill, two tokens one by one, and a long rest


def make_layer(local: State, seed: int, layer: int = 0, n_layers: int = 4) -> Any:
    """The mixer of one layer, its norm moved off 1."""
    base = stage("hybrid", "nano")
    config: ModelConfig = replace(base, n_layers=n_layers, layout=replace(base.layout, local=local))
    made = build_mixer(config, layer)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, Organ):
                module.init_weights(generator)
        made.out_norm.weight.add_(0.2 * torch.randn(made.out_norm.weight.shape, generator=generator))  # type: ignore[union-attr, operator]
    return made


def inputs(seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(2, LENGTH, 48, generator=torch.Generator().manual_seed(seed + 100))
    return x, torch.arange(LENGTH)[None] >= PADS[:, None]


def at(first: int, last: int) -> Context:
    return Context(first, last - first, PADS, torch.device("cpu"), torch.float32)


def in_chunks(layer: Any, x: Tensor) -> tuple[Tensor, Any]:
    cache = layer.new_cache()
    return torch.cat([layer(x[:, a:b], at(a, b), cache) for a, b in pairwise(CUTS)], dim=1), cache


def assert_same(ours: Tensor, theirs: Tensor, real: Tensor, bound: float) -> None:
    for row in range(2):
        assert relative_error(ours[row, real[row]], theirs[row, real[row]]) < bound


def carry(theirs: nn.Module, weights: dict[str, Tensor]) -> None:
    """Every parameter of theirs, none left over."""
    own = dict(theirs.named_parameters())
    assert own.keys() == weights.keys()
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value.view(own[name].shape))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("heads", "width", "taps"), [(4, 12, 4), (3, 10, 3)])
@torch.no_grad()
def test_kda_against_kimi_linear(heads: int, width: int, taps: int, seed: int) -> None:
    need("transformers")
    from transformers import DynamicCache, KimiLinearConfig
    from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention

    ours = make_layer(KimiDelta(n_heads=heads, head_dim=width, conv_size=taps), seed)
    config = KimiLinearConfig(
        hidden_size=48,
        num_hidden_layers=4,
        linear_num_heads=heads,
        linear_head_dim=width,
        linear_conv_kernel_dim=taps,
        rms_norm_eps=1e-5,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
    )
    theirs = KimiLinearDeltaAttention(config, layer_idx=0).eval()
    carry(
        theirs,
        {
            "q_proj.weight": ours.q_proj.weight,
            "k_proj.weight": ours.k_proj.weight,
            "v_proj.weight": ours.v_proj.weight,
            "conv1d.weight": ours.conv.weight,
            "forget_gate.f_a_proj.weight": ours.decay_down.weight,
            "forget_gate.f_b_proj.weight": ours.decay_up.weight,
            "forget_gate.dt_bias": ours.dt_bias,
            "forget_gate.A_log": ours.log_A,
            "b_proj.weight": ours.beta_proj.weight,
            "g_a_proj.weight": ours.gate_down.weight,
            "g_b_proj.weight": ours.gate_up.weight,
            "o_norm.weight": ours.out_norm.weight,
            "o_proj.weight": ours.o_proj.weight,
        },
    )
    x, real = inputs(seed)
    held = DynamicCache(config=config)
    expected = theirs(x, attention_mask=real.long())
    assert_same(ours(x, at(0, LENGTH)), expected, real, BOUND)
    decoded, cache = in_chunks(ours, x)
    assert_same(decoded, expected, real, CACHED)
    theirs(x, cache=held, attention_mask=real.long())
    state = held.get_recurrent_state(0)
    assert state.shape == cache.state.shape == (2, heads, width, width)
    assert relative_error(cache.state, state) < CACHED
    step = torch.randn(2, 1, 48)
    after = theirs(step, cache=held)
    assert relative_error(ours(step, at(LENGTH, LENGTH + 1), cache), after) < CACHED
    assert relative_error(cache.state, held.get_recurrent_state(0)) < CACHED


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("heads", "width", "layer", "n_layers", "block"), [(4, 12, 0, 4, 256), (3, 10, 4, 6, 24)])
@torch.no_grad()
def test_lightning_against_minimax(heads: int, width: int, layer: int, n_layers: int, block: int, seed: int) -> None:
    """Their map holds for each head the rows of its query, key and value; their norm has an ε of its own."""
    need("transformers")
    from transformers import MiniMaxConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxCache, MiniMaxLightningAttention

    ours = make_layer(Lightning(n_heads=heads, head_dim=width, eps=1e-6), seed, layer, n_layers)
    config = MiniMaxConfig(
        hidden_size=48,
        num_hidden_layers=n_layers,
        num_attention_heads=heads,
        head_dim=width,
        block_size=block,
        layer_types=["linear_attention"] * n_layers,
    )
    theirs = MiniMaxLightningAttention(config, layer_idx=layer).eval()
    parts = [proj.weight.view(heads, width, 48) for proj in (ours.q_proj, ours.k_proj, ours.v_proj)]
    carry(
        theirs,
        {
            "qkv_proj.weight": torch.cat(parts, dim=1),
            "output_gate.weight": ours.gate_proj.weight,
            "norm.weight": ours.out_norm.weight,
            "out_proj.weight": ours.o_proj.weight,
        },
    )
    x, real = inputs(seed)
    expected, state = theirs(x, None, real)
    assert_same(ours(x, at(0, LENGTH)), expected, real, BOUND)
    decoded, cache = in_chunks(ours, x)
    assert_same(decoded, expected, real, CACHED)
    assert relative_error(cache.state, state) < CACHED
    held = MiniMaxCache()
    theirs(x[:, :101], None, real[:, :101], held)
    rest, state = theirs(x[:, 101:], None, None, held)
    assert relative_error(decoded[:, 101:], rest) < CACHED
    assert relative_error(cache.state, state) < CACHED


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("heads", [(4, 4, 12, 24), (3, 3, 8, 5)])
@torch.no_grad()
def test_strengths_above_1_against_olmo_hybrid(heads: tuple[int, int, int, int], seed: int) -> None:
    need("transformers")
    from transformers import DynamicCache, OlmoHybridConfig
    from transformers.models.olmo_hybrid.modeling_olmo_hybrid import OlmoHybridGatedDeltaNet

    n_key, n_value, key_dim, value_dim = heads
    spec = GatedDeltaNet(n_key_heads=n_key, n_value_heads=n_value, key_head_dim=key_dim, value_head_dim=value_dim)
    ours = make_layer(replace(spec, beta_max=2.0, eps=1e-5), seed)
    config = OlmoHybridConfig(
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        linear_num_key_heads=n_key,
        linear_num_value_heads=n_value,
        linear_key_head_dim=key_dim,
        linear_value_head_dim=value_dim,
        linear_allow_neg_eigval=True,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
    )
    theirs = OlmoHybridGatedDeltaNet(config, layer_idx=0).eval()
    named = {"a_proj": "decay_proj", "b_proj": "beta_proj", "g_proj": "z_proj", "conv1d": "conv", "o_norm": "out_norm"}
    weights = {f"{name}.weight": getattr(ours, named.get(name, name)).weight for name, _ in theirs.named_children()}
    carry(theirs, weights | {"A_log": ours.log_A, "dt_bias": ours.dt_bias})
    x, real = inputs(seed)
    held = DynamicCache(config=config)
    expected = theirs(x, attention_mask=real.long(), cache=held)
    assert_same(ours(x, at(0, LENGTH)), expected, real, BOUND)
    decoded, cache = in_chunks(ours, x)
    assert_same(decoded, expected, real, CACHED)
    assert relative_error(cache.state, held.get_recurrent_state(0)) < CACHED
