"""GLM-4.5 to 4.7 (Zhipu AI, 2025): half of each head rotates, biases on q, k and v, DeepSeek-V3's experts."""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import AllGlobal, Attention, ModelConfig, QKVBias, RMSNorm
from morph.hf.families.experts import (
    count_dense,
    dense_first,
    moe_rules,
    read_deepseek_experts,
    write_deepseek_experts,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import read_frame, write_frame
from morph.hf.families.parts import decoder_rules, read_heads, softmax_attention, write_heads
from morph.hf.families.rotation import read_rotation, write_rotation
from morph.hf.settings import Settings


def read(s: Settings) -> ModelConfig:
    frame, eps = read_frame(s, 131_072), s.number("rms_norm_eps", 1e-5)
    s.ignore("num_nextn_predict_layers")  # their weights, if the folder holds them, are told by name
    experts = read_deepseek_experts(s, width=1408, n_experts=128, scale=1.0, n_groups=1, n_kept=1)
    return ModelConfig(
        **frame,
        placement="pre",
        norm=RMSNorm(eps=eps),
        position=read_rotation(s, 10_000.0, frame["context_length"], fraction=0.5),
        attention=Attention(
            **read_heads(s, 8),
            qk_norm=RMSNorm(eps=eps) if s.flag("use_qk_norm", False) else None,
            qkv_bias=QKVBias() if s.flag("attention_bias", False) else None,
        ),
        layout=AllGlobal(),
        feed_forward=dense_first(count_dense(s, frame["n_layers"], 1), s.whole("intermediate_size", 10_944), experts),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    attention = softmax_attention(config)
    return {
        **write_frame(config),
        **write_heads(config),
        "rope_parameters": {"partial_rotary_factor": 1.0, **write_rotation(config.position)},
        **write_deepseek_experts(config),
        "use_qk_norm": attention.qk_norm is not None,
        "attention_bias": attention.qkv_bias is not None,
        "num_nextn_predict_layers": 0,
    }


_experts = partial(moe_rules, bias="mlp.gate.e_score_correction_bias")

GLM4_MOE = Family(
    "glm4_moe",
    "Glm4MoeForCausalLM",
    read,
    write,
    partial(decoder_rules, feed_forward=_experts),
    other_rules=(partial(decoder_rules, feed_forward=partial(_experts, is_packed=True)),),
)
