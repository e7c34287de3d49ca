"""gpt-oss (OpenAI, 2025): sinks, biases on every map, clamped experts packed in pairs of columns, windows 1 : 1."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from morph.config import Attention, ClampedGatedMLP, ExpertBiases, ModelConfig, MoE, NoBalance, RMSNorm, Sink, as_kind
from morph.hf.families.experts import experts_in
from morph.hf.families.family import Family
from morph.hf.families.frame import either, read_frame, write_frame
from morph.hf.families.parts import (
    attention_rules,
    decoder_rules,
    every,
    read_heads,
    read_windows,
    write_heads,
    write_windows,
)
from morph.hf.families.rotation import read_rotation, write_position
from morph.hf.settings import Settings
from morph.hf.weights import Rule, Tensors, copied, linear, transposed


def read(s: Settings) -> ModelConfig:
    frame = read_frame(s, 131_072)
    s.only("attention_bias", True)
    s.only("hidden_act", "silu")  # the name of the gate, whatever its sigmoid is multiplied by
    s.ignore("router_aux_loss_coef")
    s.ignore("experts_per_token", "initial_context_length")  # the release says these twice
    experts = MoE(
        expert=ClampedGatedMLP(
            width=s.whole("intermediate_size", 2880),
            limit=s.number("swiglu_limit", 7.0),
            alpha=s.number("swiglu_alpha", 1.702),
        ),
        n_experts=either(s, ("num_local_experts", "num_experts"), 128),
        top_k=s.whole("num_experts_per_tok", 4),
        routed_scale=1.0,
        balance=NoBalance(),
        biases=ExpertBiases(),
    )
    return ModelConfig(
        **{**frame, "bias": True},
        placement="pre",
        norm=RMSNorm(eps=s.number("rms_norm_eps", 1e-5)),
        position=read_rotation(s, 150_000.0, frame["context_length"]),
        attention=Attention(**read_heads(s, 8, 64), sink=Sink()),
        layout=read_windows(s, frame["n_layers"], every(2, frame["n_layers"]), 128),
        feed_forward=experts,
    )


def write(config: ModelConfig) -> dict[str, Any]:
    experts = experts_in(config)
    expert = as_kind(experts.expert, ClampedGatedMLP, "feed_forward.expert")
    return {
        **write_frame(config),
        **write_heads(config),
        **write_windows(config),
        **write_position(config.position),
        "attention_bias": config.bias,
        "hidden_act": "silu",
        "intermediate_size": expert.width,
        "swiglu_limit": expert.limit,
        "swiglu_alpha": expert.alpha,
        "num_local_experts": experts.n_experts,
        "num_experts_per_tok": experts.top_k,
    }


def _attention(config: ModelConfig, layer: int) -> list[Rule]:
    sink = copied(f"blocks.{layer}.attention.sink.logits", f"model.layers.{layer}.self_attn.sinks")
    return [*attention_rules(config, layer), sink]


def _unzip(tensors: Tensors) -> Tensors:
    """Gates in even columns and values in odd ones, apart."""
    return tensors[0][..., ::2], tensors[0][..., 1::2]


def _zip(tensors: Tensors) -> Tensors:
    return (torch.stack(tensors, dim=-1).flatten(-2),)


def _experts(config: ModelConfig, layer: int) -> list[Rule]:
    ours, theirs = f"blocks.{layer}.feed_forward", f"model.layers.{layer}.mlp"
    inner = f"{ours}.experts"

    def turn(tensors: Tensors) -> Tensors:
        return tuple(tensor.transpose(-1, -2) for tensor in tensors)

    return [
        *linear(f"{ours}.router.logits", f"{theirs}.router", bias=True),
        Rule(
            (f"{inner}.gate", f"{inner}.up"),
            (f"{theirs}.experts.gate_up_proj",),
            lambda tensors: turn(_unzip(tensors)),
            lambda tensors: _zip(turn(tensors)),
        ),
        Rule((f"{inner}.gate_bias", f"{inner}.up_bias"), (f"{theirs}.experts.gate_up_proj_bias",), _unzip, _zip),
        transposed(f"{inner}.down", f"{theirs}.experts.down_proj"),
        copied(f"{inner}.down_bias", f"{theirs}.experts.down_proj_bias"),
    ]


GPT_OSS = Family(
    "gpt_oss",
    "GptOssForCausalLM",
    read,
    write,
    partial(decoder_rules, mixer=_attention, feed_forward=_experts),
)
