"""MiniMax-Text-01 (MiniMax, 2025): lightning and softmax attention, experts, weighted branches on a normed stream."""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import Attention, Lightning, ModelConfig, ResidualWeights, RMSNorm
from morph.hf.families.experts import (
    MIXTRAL_NAMES,
    experts_in,
    moe_rules,
    read_softmax_experts,
    write_softmax_experts,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import either, read_frame, write_frame
from morph.hf.families.linear import LINEAR, read_layers, write_layers
from morph.hf.families.mixtral import COUNTS
from morph.hf.families.parts import FULL, attention_rules, decoder_rules, read_heads, softmax_attention, write_heads
from morph.hf.families.rotation import read_rotation, write_position
from morph.hf.settings import Settings
from morph.hf.weights import Rule, copied, grouped

OUTPUT_EPS = 1e-6
"""Of the norm on a lightning layer's output, whatever `rms_norm_eps` is."""
WEIGHTS = {
    "attention_stream": "full_attn_alpha_factor",
    "attention_branch": "full_attn_beta_factor",
    "local_stream": "linear_attn_alpha_factor",
    "local_branch": "linear_attn_beta_factor",
    "feed_forward_stream": "mlp_alpha_factor",
    "feed_forward_branch": "mlp_beta_factor",
}


def read(s: Settings) -> ModelConfig:
    frame, heads = read_frame(s, 131_072), read_heads(s, 8)
    s.ignore("block_size")  # how many tokens are computed together
    s.ignore("sliding_window")  # transformers has the key, and no windows in this family
    layers = frame["n_layers"]
    width = heads["head_dim"] or frame["d_model"] // heads["n_heads"]
    weights = ResidualWeights(**{field: s.number(key, 1.0) for field, key in WEIGHTS.items()})
    experts = read_softmax_experts(
        s, s.whole("intermediate_size", 14_336), either(s, COUNTS, 8), s.whole("num_experts_per_tok", 2), True
    )
    lightning = Lightning(n_heads=heads["n_heads"], head_dim=width, eps=OUTPUT_EPS)
    return ModelConfig(
        **frame,
        placement="on-normed-stream",
        norm=RMSNorm(eps=s.number("rms_norm_eps", 1e-5)),
        position=read_rotation(s, 1e6, frame["context_length"]),
        attention=Attention(**heads),
        layout=read_layers(s, layers, lightning, [LINEAR if layer % 2 else FULL for layer in range(layers)]),
        feed_forward=experts,
        residual=None if weights == ResidualWeights() else weights,
    )


def write(config: ModelConfig) -> dict[str, Any]:
    experts, weights = experts_in(config), config.residual or ResidualWeights()
    types, _ = write_layers(config, Lightning)
    return {
        **write_frame(config),
        **write_heads(config),
        **write_position(config.position),
        **write_softmax_experts(experts, "num_local_experts"),
        **{key: getattr(weights, field) for field, key in WEIGHTS.items()},
        "layer_types": types,
        "intermediate_size": experts.expert.width,
    }


def _mixer(config: ModelConfig, layer: int) -> list[Rule]:
    if config.mixer(layer) is config.attention:
        return attention_rules(config, layer)
    ours, theirs = f"blocks.{layer}.attention", f"model.layers.{layer}.self_attn"
    spec = softmax_attention(config)
    maps = [f"{ours}.{part}_proj.weight" for part in "qkv"]
    return [
        grouped(maps, f"{theirs}.qkv_proj.weight", [spec.width] * 3, spec.n_heads),
        copied(f"{ours}.gate_proj.weight", f"{theirs}.output_gate.weight"),
        copied(f"{ours}.out_norm.weight", f"{theirs}.norm.weight"),
        copied(f"{ours}.o_proj.weight", f"{theirs}.out_proj.weight"),
    ]


def tables(config: ModelConfig) -> tuple[str, ...]:
    """Decays, which follow from the sizes, within a block of tokens."""
    return tuple(f"*.self_attn.{name}" for name in ("slope_rate", "query_decay", "key_decay", "diagonal_decay"))


_mixture = partial(moe_rules, router="block_sparse_moe.gate", experts="block_sparse_moe.experts", names=MIXTRAL_NAMES)

MINIMAX = Family(
    "minimax",
    "MiniMaxForCausalLM",
    read,
    write,
    partial(decoder_rules, mixer=_mixer, feed_forward=_mixture),
    ignored=tables,
)
