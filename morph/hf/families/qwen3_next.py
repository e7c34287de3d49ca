"""Qwen3-Next (Qwen team, 2025) and Qwen3.5 (2026): Gated DeltaNet and gated attention, 3 : 1, zero-centred norms.

The two keep the same maps in other orders: Qwen3-Next has q, k, v and z of one key head after another, Qwen3.5 all of
q, then all of k, then all of v. Both have each head's query and gate side by side. Qwen3.5 is released with a tower for
images, which give a token three positions; for text they are one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import (
    Attention,
    GatedDeltaNet,
    GatedMLP,
    ModelConfig,
    OutputGate,
    ZeroCentredRMSNorm,
    as_kind,
)
from morph.hf.families.experts import (
    dense_first,
    experts_in,
    moe_rules,
    read_gated_shared,
    read_softmax_experts,
    write_softmax_experts,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import either, read_frame, write_frame
from morph.hf.families.linear import conv_rule, full_every, read_layers, write_layers
from morph.hf.families.parts import decoder_rules, mlp_rules, read_heads, softmax_attention, write_heads
from morph.hf.families.qwen3_moe import count_dense, write_places
from morph.hf.families.rotation import read_rotation, write_rotation
from morph.hf.families.tower import with_tower
from morph.hf.settings import Settings, activation_there
from morph.hf.weights import Rule, copied, fused, grouped

KEYS = {
    "n_key_heads": "linear_num_key_heads",
    "n_value_heads": "linear_num_value_heads",
    "key_head_dim": "linear_key_head_dim",
    "value_head_dim": "linear_value_head_dim",
    "conv_size": "linear_conv_kernel_dim",
}
"""Our fields of a delta layer and their keys."""
IMAGES = ("mrope_section", "mrope_interleaved")
"""Which pairs turn by which of an image's three positions."""
DEFAULTS = {"n_key_heads": 16, "n_value_heads": 32, "key_head_dim": 128, "value_head_dim": 128, "conv_size": 4}


def _read(s: Settings, kv_heads: int, feed_forward: Any) -> ModelConfig:
    frame = read_frame(s, 32_768)
    norm = ZeroCentredRMSNorm(eps=s.number("rms_norm_eps", 1e-6))
    s.only("attention_bias", False)
    s.only("attn_output_gate", True)
    s.ignore("mamba_ssm_dtype")  # states are in fp32 at least
    s.ignore("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
    layers = frame["n_layers"]
    delta = GatedDeltaNet(**{field: s.whole(key, DEFAULTS[field]) for field, key in KEYS.items()})
    return ModelConfig(
        **frame,
        placement="pre",
        norm=norm,
        position=read_rotation(s, 10_000.0, frame["context_length"], fraction=0.25, ignored=IMAGES),
        attention=Attention(**read_heads(s, kv_heads, 256), qk_norm=norm, gate=OutputGate()),
        layout=read_layers(s, layers, delta, full_every(s.whole("full_attention_interval", 4, least=1), layers)),
        feed_forward=feed_forward,
    )


def read_next(s: Settings) -> ModelConfig:
    width = s.whole("moe_intermediate_size", 512)
    experts = read_softmax_experts(
        s,
        width,
        either(s, ("num_experts", "num_local_experts"), 512),
        s.whole("num_experts_per_tok", 10),
        s.flag("norm_topk_prob", True),
        **read_gated_shared(s, width, 512),
    )
    return _read(s, 2, dense_first(count_dense(s), s.whole("intermediate_size", 5632), experts))


def read_dense(s: Settings) -> ModelConfig:
    width = s.whole("intermediate_size", 12_288)
    return _read(s, 4, GatedMLP(width=width, activation=s.activation("hidden_act", "silu")))


def read_moe(s: Settings) -> ModelConfig:
    width = s.whole("moe_intermediate_size", 512)
    count, top_k = either(s, ("num_experts", "num_local_experts"), 256), s.whole("num_experts_per_tok", 8)
    return _read(s, 2, read_softmax_experts(s, width, count, top_k, True, **read_gated_shared(s, width, 512)))


def _write(config: ModelConfig) -> dict[str, Any]:
    types, delta = write_layers(config, GatedDeltaNet)
    return {
        **write_frame(config),
        **write_heads(config),
        **{key: getattr(delta, field) for field, key in KEYS.items()},
        "layer_types": types,
        "rope_parameters": {"partial_rotary_factor": 1.0, **write_rotation(config.position)},
        "attention_bias": config.bias,
    }


def write_moe(config: ModelConfig) -> dict[str, Any]:
    experts = experts_in(config)
    return {
        **_write(config),
        **write_softmax_experts(experts, "num_experts"),
        "moe_intermediate_size": experts.expert.width,
    }


def write_next(config: ModelConfig) -> dict[str, Any]:
    return write_moe(config) | write_places(config)


def write_dense(config: ModelConfig) -> dict[str, Any]:
    mlp = as_kind(config.feed_forward, GatedMLP, "feed_forward")
    return _write(config) | {"intermediate_size": mlp.width, "hidden_act": activation_there(mlp.activation)}


# ---- weights -------------------------------------------------------------------------------------------------


def _gated_attention(config: ModelConfig, layer: int) -> list[Rule]:
    """Attention whose gate has its rows after each head's queries."""
    spec = softmax_attention(config)
    ours, theirs = f"blocks.{layer}.attention", f"model.layers.{layer}.self_attn"
    both = [f"{ours}.q_proj.weight", f"{ours}.gate_proj.weight"]
    rules = [grouped(both, f"{theirs}.q_proj.weight", [spec.width, spec.width], spec.n_heads)]
    for part in ("k_proj", "v_proj", "o_proj", "q_norm", "k_norm"):
        rules.append(copied(f"{ours}.{part}.weight", f"{theirs}.{part}.weight"))
    return rules


def _delta(config: ModelConfig, layer: int, is_grouped: bool) -> list[Rule]:
    spec = as_kind(config.mixer(layer), GatedDeltaNet, "layout.local")
    ours, theirs = f"blocks.{layer}.attention", f"model.layers.{layer}.linear_attn"
    maps = [f"{ours}.{part}_proj.weight" for part in ("q", "k", "v", "z", "beta", "decay")]
    groups, ratio = spec.n_key_heads, spec.n_value_heads // spec.n_key_heads
    keys, values = spec.key_head_dim, spec.value_head_dim * ratio
    rules = [
        conv_rule(f"{ours}.conv.weight", f"{theirs}.conv1d.weight"),
        copied(f"{ours}.log_A", f"{theirs}.A_log"),
        copied(f"{ours}.dt_bias", f"{theirs}.dt_bias"),
        copied(f"{ours}.out_norm.weight", f"{theirs}.norm.weight"),
        copied(f"{ours}.o_proj.weight", f"{theirs}.out_proj.weight"),
    ]
    if is_grouped:
        rules.append(grouped(maps[:4], f"{theirs}.in_proj_qkvz.weight", [keys, keys, values, values], groups))
        rules.append(grouped(maps[4:], f"{theirs}.in_proj_ba.weight", [ratio, ratio], groups))
        return rules
    sizes = (groups * keys, groups * keys, groups * values)
    rules.append(fused(maps[:3], f"{theirs}.in_proj_qkv.weight", sizes))
    rules += [copied(mine, f"{theirs}.in_proj_{part}.weight") for mine, part in zip(maps[3:], "zba", strict=True)]
    return rules


def _mixer(config: ModelConfig, layer: int, is_grouped: bool) -> list[Rule]:
    if config.mixer(layer) is config.attention:
        return _gated_attention(config, layer)
    return _delta(config, layer, is_grouped)


_experts = partial(moe_rules, shared="mlp.shared_expert")
_packed = partial(_experts, is_packed=True)
_next = partial(decoder_rules, mixer=partial(_mixer, is_grouped=True))
_later = partial(decoder_rules, mixer=partial(_mixer, is_grouped=False))

QWEN3_NEXT = Family(
    "qwen3_next",
    "Qwen3NextForCausalLM",
    read_next,
    write_next,
    partial(_next, feed_forward=_experts),
    other_rules=(partial(_next, feed_forward=_packed),),
)
QWEN3_5 = Family("qwen3_5_text", "Qwen3_5ForCausalLM", read_dense, write_dense, partial(_later, feed_forward=mlp_rules))
QWEN3_5_MOE = Family(
    "qwen3_5_moe_text",
    "Qwen3_5MoeForCausalLM",
    read_moe,
    write_moe,
    partial(_later, feed_forward=_experts),
    other_rules=(partial(_later, feed_forward=_packed),),
)
QWEN3_5_IMAGES = with_tower(QWEN3_5, "qwen3_5", "Qwen3_5ForConditionalGeneration")
QWEN3_5_MOE_IMAGES = with_tower(QWEN3_5_MOE, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration")
