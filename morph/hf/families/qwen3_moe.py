"""Qwen3-MoE (Qwen team, 2025): QK-norm for each head, and many small experts without a shared one."""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import AllGlobal, Attention, ModelConfig, RMSNorm, SwitchRouter
from morph.hf.families.experts import (
    dense_first,
    experts_in,
    moe_rules,
    read_softmax_experts,
    write_dense,
    write_softmax_experts,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import either, read_frame, write_frame
from morph.hf.families.parts import decoder_rules, read_heads, write_heads
from morph.hf.families.rotation import read_rotation, write_position
from morph.hf.settings import Settings


def count_dense(s: Settings) -> int:
    """How many first layers have no experts; other places for dense layers are refused."""
    s.only("decoder_sparse_step", 1)
    dense = s.wholes("mlp_only_layers", [])
    if dense != list(range(len(dense))):
        s.refuse("mlp_only_layers", "Morph has dense layers before those with experts, such as [] or [0, 1]")
    return len(dense)


def write_places(config: ModelConfig) -> dict[str, Any]:
    """Which layers are dense, and whether chosen probabilities are divided by their sum."""
    n_dense, width = write_dense(config)
    return {
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(range(n_dense)),
        "intermediate_size": width,
        "norm_topk_prob": not isinstance(experts_in(config).router, SwitchRouter),
    }


def read(s: Settings) -> ModelConfig:
    frame, eps = read_frame(s, 32_768), s.number("rms_norm_eps", 1e-6)
    s.only("attention_bias", False)
    s.only("use_sliding_window", False)
    s.ignore("sliding_window", "max_window_layers")  # they say something only when windows are used
    experts = read_softmax_experts(
        s,
        s.whole("moe_intermediate_size", 768),
        either(s, ("num_local_experts", "num_experts"), 128),
        s.whole("num_experts_per_tok", 8),
        s.flag("norm_topk_prob", False),
    )
    return ModelConfig(
        **frame,
        placement="pre",
        norm=RMSNorm(eps=eps),
        position=read_rotation(s, 10_000.0, frame["context_length"]),
        attention=Attention(**read_heads(s, 4), qk_norm=RMSNorm(eps=eps)),
        layout=AllGlobal(),
        feed_forward=dense_first(count_dense(s), s.whole("intermediate_size", 6144), experts),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    experts = experts_in(config)
    return {
        **write_frame(config),
        **write_heads(config),
        **write_position(config.position),
        **write_softmax_experts(experts, "num_experts"),
        **write_places(config),
        "moe_intermediate_size": experts.expert.width,
    }


QWEN3_MOE = Family(
    "qwen3_moe",
    "Qwen3MoeForCausalLM",
    read,
    write,
    partial(decoder_rules, feed_forward=moe_rules),
    other_rules=(partial(decoder_rules, feed_forward=partial(moe_rules, is_packed=True)),),
)
