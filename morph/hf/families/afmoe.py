"""Trinity (Arcee AI, 2025): a gate on attention, rotation in windows only, four norms, a scaled embedding, experts."""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import Attention, ModelConfig, NoPosition, OutputGate, PerLayer, RMSNorm, Rope, SigmoidRouter, as_kind
from morph.hf.families.experts import dense_first, experts_in, gated, moe_rules, sigmoid_experts, write_dense
from morph.hf.families.family import Family
from morph.hf.families.frame import read_frame, write_frame
from morph.hf.families.parts import (
    attention_rules,
    decoder_rules,
    every,
    read_heads,
    read_windows,
    windows_differ,
    write_heads,
    write_windows,
)
from morph.hf.families.rotation import read_rotation, write_rotation
from morph.hf.settings import Settings, activation_there
from morph.hf.weights import Rule, copied

NORMS = {
    "attention_norm": "input_layernorm",
    "attention_out_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_mlp_layernorm",
    "feed_forward_out_norm": "post_mlp_layernorm",
}


def read(s: Settings) -> ModelConfig:
    frame, eps = read_frame(s, 16_384), s.number("rms_norm_eps", 1e-5)
    s.only("attention_bias", False)
    # The release spells out what is fixed in the class.
    s.only("score_func", "sigmoid")
    s.only("route_norm", True)
    s.only("n_group", 1)
    s.only("topk_group", 1)
    s.only("num_expert_groups", 1)
    s.only("num_limited_groups", 1)
    s.ignore("load_balance_coeff", "use_grouped_mm")
    period, layers = s.whole("global_attn_every_n_layers", 4, least=1), frame["n_layers"]
    experts = sigmoid_experts(
        s,
        width=s.whole("moe_intermediate_size", 1408),
        n_experts=s.whole("num_experts", 64),
        n_shared=s.whole("num_shared_experts", 2),
        top_k=s.whole("num_experts_per_tok", 6),
        routed_scale=s.number("route_scale", 1.0),
        router=SigmoidRouter(),
    )
    layout = read_windows(s, layers, every(period, layers), 1024)
    rotation = read_rotation(s, 10_000.0, frame["context_length"])
    return ModelConfig(
        **{**frame, "embedding_scale": None if s.flag("mup_enabled", False) else 1.0},
        placement="sandwich",
        norm=RMSNorm(eps=eps),
        position=windows_differ(layout, rotation, NoPosition()),
        attention=Attention(**read_heads(s, None, 128), qk_norm=RMSNorm(eps=eps), gate=OutputGate()),
        layout=layout,
        feed_forward=dense_first(s.whole("num_dense_layers", 1), s.whole("intermediate_size", 6144), experts),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    experts = experts_in(config)
    as_kind(experts.router, SigmoidRouter, "feed_forward.router")
    local = config.position.local if isinstance(config.position, PerLayer) else config.position
    n_dense, width = write_dense(config)
    return {
        **write_frame(config),
        **write_heads(config),
        **write_windows(config),
        "rope_parameters": write_rotation(Rope() if isinstance(local, NoPosition) else local),
        "mup_enabled": config.embedding_scale is None,
        "hidden_act": activation_there(gated(experts).activation),
        "num_dense_layers": n_dense,
        "intermediate_size": width,
        "moe_intermediate_size": experts.expert.width,
        "num_experts": experts.n_experts,
        "num_shared_experts": experts.n_shared,
        "num_experts_per_tok": experts.top_k,
        "route_scale": experts.routed_scale,
    }


def _norms(config: ModelConfig, layer: int) -> list[Rule]:
    return [copied(f"blocks.{layer}.{a}.weight", f"model.layers.{layer}.{b}.weight") for a, b in NORMS.items()]


def _attention(config: ModelConfig, layer: int) -> list[Rule]:
    gate = copied(f"blocks.{layer}.attention.gate_proj.weight", f"model.layers.{layer}.self_attn.gate_proj.weight")
    return [*attention_rules(config, layer), gate]


_experts = partial(moe_rules, router="mlp.router.gate", bias="mlp.expert_bias")

AFMOE = Family(
    "afmoe",
    "AfmoeForCausalLM",
    read,
    write,
    partial(decoder_rules, norms=_norms, mixer=_attention, feed_forward=_experts),
)
