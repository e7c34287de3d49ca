"""Mixtral (Jiang et al., 2024): attention as in Llama, and experts that a softmax chooses."""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import AllGlobal, Attention, ModelConfig, RMSNorm, SlidingWindow
from morph.hf.families.experts import (
    MIXTRAL_NAMES,
    experts_in,
    moe_rules,
    read_softmax_experts,
    write_softmax_experts,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import either, read_frame, write_frame
from morph.hf.families.parts import decoder_rules, layout_of, read_heads, write_heads, write_windows
from morph.hf.families.rotation import read_rotation, write_position
from morph.hf.settings import Settings

COUNTS = ("num_local_experts", "num_experts")


def read(s: Settings) -> ModelConfig:
    frame = read_frame(s, 131_072)
    window = s.whole_or_none("sliding_window", None)
    return ModelConfig(
        **frame,
        placement="pre",
        norm=RMSNorm(eps=s.number("rms_norm_eps", 1e-5)),
        position=read_rotation(s, 1e6, frame["context_length"]),
        attention=Attention(**read_heads(s, 8)),
        layout=layout_of([], frame["n_layers"], SlidingWindow(window=window)) if window else AllGlobal(),
        feed_forward=read_softmax_experts(
            s, s.whole("intermediate_size", 14_336), either(s, COUNTS, 8), s.whole("num_experts_per_tok", 2), True
        ),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    experts = experts_in(config)
    return {
        **write_frame(config),
        **write_heads(config),
        **write_position(config.position),
        **write_softmax_experts(experts, "num_local_experts"),
        "intermediate_size": experts.expert.width,
        "sliding_window": write_windows(config)["sliding_window"],
    }


_mixture = partial(moe_rules, router="block_sparse_moe.gate", experts="block_sparse_moe.experts", names=MIXTRAL_NAMES)

MIXTRAL = Family("mixtral", "MixtralForCausalLM", read, write, partial(decoder_rules, feed_forward=_mixture))
