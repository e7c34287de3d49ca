"""Qwen3, dense (Qwen team, 2025): Llama's block with a norm on each query and key head."""

from __future__ import annotations

from typing import Any

from morph.config import AllGlobal, Attention, GatedMLP, Layout, ModelConfig, RMSNorm, SlidingWindow
from morph.hf.families.family import Family
from morph.hf.families.parts import (
    FULL,
    SLIDING,
    decoder_rules,
    read_heads,
    read_windows,
    write_common,
    write_windows,
)
from morph.hf.families.rotation import read_rotation, write_position
from morph.hf.settings import Settings


def read(s: Settings) -> ModelConfig:
    s.only("attention_bias", False)
    context, layers = s.whole("max_position_embeddings", 32_768), s.whole("num_hidden_layers")
    norm = RMSNorm(eps=s.number("rms_norm_eps", 1e-6))
    return ModelConfig(
        vocab_size=s.whole("vocab_size"),
        d_model=s.whole("hidden_size"),
        n_layers=layers,
        context_length=context,
        placement="pre",
        norm=norm,
        bias=False,
        position=read_rotation(s, 10_000.0, context),
        attention=Attention(**read_heads(s, default_kv=32, default_width=128), qk_norm=norm),
        layout=read_qwen_windows(s, layers),
        feed_forward=GatedMLP(width=s.whole("intermediate_size"), activation=s.activation("hidden_act", "silu")),
        tied=s.flag("tie_word_embeddings", False),
        embedding_scale=1.0,
    )


def read_qwen_windows(s: Settings, layers: int) -> Layout:
    """Windows are off unless switched on, and then the first layers go without."""
    first = s.whole_or_none("max_window_layers", 28) or 0
    if not s.flag("use_sliding_window", False):
        s.ignore("sliding_window")
        if "layer_types" in s:
            s.words("layer_types", layers, (FULL,))
        return AllGlobal()
    return read_windows(s, layers, [FULL if layer < first else SLIDING for layer in range(layers)], 4096)


def write(config: ModelConfig) -> dict[str, Any]:
    has_windows = any(isinstance(config.mixer(layer), SlidingWindow) for layer in range(config.n_layers))
    switch = {"use_sliding_window": has_windows}
    return write_common(config) | write_windows(config) | switch | write_position(config.position)


QWEN3 = Family("qwen3", "Qwen3ForCausalLM", read, write, decoder_rules)
