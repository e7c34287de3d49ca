"""Cohere's Command R7B and Command A (Cohere, 2024 and 2025): parallel blocks; only windowed layers rotate."""

from __future__ import annotations

from typing import Any

from morph.config import (
    AllGlobal,
    AllLocal,
    Attention,
    GatedMLP,
    LayerNormNoBias,
    LogitScale,
    ModelConfig,
    NoPosition,
    PerLayer,
)
from morph.hf.families.family import Family
from morph.hf.families.parts import (
    decoder_rules,
    every,
    organ,
    read_heads,
    read_windows,
    windows_differ,
    write_common,
    write_windows,
)
from morph.hf.families.rotation import read_rotation, write_rotation
from morph.hf.settings import Settings


def read(s: Settings) -> ModelConfig:
    s.only("attention_bias", False)
    for name, meant in (  # said in released folders, and so for every model of the class
        ("position_embedding_type", "rope_gptj"), ("order_of_interleaved_layers", "local_attn_first"),
        ("use_gated_activation", True), ("use_parallel_block", True), ("use_parallel_embedding", False),
        ("use_qk_norm", False), ("rotary_pct", 1.0), ("rope_style", "interleave"), ("norm_type", "layer_norm"),
        ("transformer_block_type", "parallel"),
    ):  # fmt: skip
        s.only(name, meant)
    s.ignore("use_embedding_sharing", "layer_switch", "_sliding_window_pattern")  # other names of keys read below
    context, layers = s.whole("max_position_embeddings", 8192), s.whole("num_hidden_layers")
    pattern = s.whole("sliding_window_pattern", 4, least=1)
    layout = read_windows(s, layers, every(pattern, layers), 4096)
    rotation = read_rotation(s, 10_000.0, context, "interleaved")
    return ModelConfig(
        vocab_size=s.whole("vocab_size"),
        d_model=s.whole("hidden_size"),
        n_layers=layers,
        context_length=context,
        placement="parallel",
        norm=LayerNormNoBias(eps=s.number("layer_norm_eps", 1e-5)),
        bias=False,
        position=windows_differ(layout, rotation, NoPosition()),
        attention=Attention(**read_heads(s)),
        layout=layout,
        feed_forward=GatedMLP(width=s.whole("intermediate_size"), activation=s.activation("hidden_act", "silu")),
        tied=s.flag("tie_word_embeddings", True),
        embedding_scale=1.0,
        logits=LogitScale(scale=s.number("logit_scale", 0.0625)),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    common = write_common(config)
    common["layer_norm_eps"] = common.pop("rms_norm_eps")
    if isinstance(config.layout, AllGlobal | AllLocal):
        rotation = config.position
    else:
        rotation = organ(config.position, PerLayer, "position").local
    turned = {} if isinstance(rotation, NoPosition) else {"rope_parameters": write_rotation(rotation)}
    scale = 1.0 if config.logits is None else organ(config.logits, LogitScale, "logits").scale
    return common | write_windows(config) | {"logit_scale": scale} | turned


COHERE2 = Family("cohere2", "Cohere2ForCausalLM", read, write, decoder_rules)
