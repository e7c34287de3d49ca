"""Llama 2 and 3 (Touvron et al., 2023; Llama team, 2024), and Mistral 7B (Jiang et al., 2023), which adds windows."""

from __future__ import annotations

from typing import Any

from morph.config import AllGlobal, Attention, GatedMLP, Layout, ModelConfig, RMSNorm, SlidingWindow
from morph.hf.families.family import Family
from morph.hf.families.parts import (
    decoder_rules,
    layout_of,
    read_heads,
    require_even_heads,
    same_biases,
    write_common,
    write_windows,
)
from morph.hf.families.rotation import read_rotation, write_position
from morph.hf.settings import Settings


def _read(s: Settings, layout: Layout, bias: bool, default_kv: int | None, default_context: int) -> ModelConfig:
    context = s.whole("max_position_embeddings", default_context)
    return ModelConfig(
        vocab_size=s.whole("vocab_size"),
        d_model=s.whole("hidden_size"),
        n_layers=s.whole("num_hidden_layers"),
        context_length=context,
        placement="pre",
        norm=RMSNorm(eps=s.number("rms_norm_eps", 1e-6)),
        bias=bias,
        position=read_rotation(s, 10_000.0, context),
        attention=Attention(**read_heads(s, default_kv)),
        layout=layout,
        feed_forward=GatedMLP(width=s.whole("intermediate_size"), activation=s.activation("hidden_act", "silu")),
        tied=s.flag("tie_word_embeddings", False),
        embedding_scale=1.0,
    )


def read_llama(s: Settings) -> ModelConfig:
    return _read(s, AllGlobal(), same_biases(s), None, 2048)


def read_mistral(s: Settings) -> ModelConfig:
    window = s.whole_or_none("sliding_window", 4096)
    layers = s.whole("num_hidden_layers")
    layout = AllGlobal() if window is None else layout_of([], layers, SlidingWindow(window=window))
    return _read(s, layout, False, 8, 131_072)


def write_llama(config: ModelConfig) -> dict[str, Any]:
    require_even_heads(config)
    biases = {"attention_bias": config.bias, "mlp_bias": config.bias}
    return write_common(config) | biases | write_position(config.position)


def write_mistral(config: ModelConfig) -> dict[str, Any]:
    window = write_windows(config)["sliding_window"]
    return write_common(config) | {"sliding_window": window} | write_position(config.position)


def tables(config: ModelConfig) -> tuple[str, ...]:
    """Frequencies that older files hold."""
    return ("*.rotary_emb.inv_freq",)


LLAMA = Family("llama", "LlamaForCausalLM", read_llama, write_llama, decoder_rules, ignored=tables)
MISTRAL = Family("mistral", "MistralForCausalLM", read_mistral, write_mistral, decoder_rules, ignored=tables)
