"""OLMo 2 (OLMo team, 2024) and Olmo 3 (2025): norms behind the branches, and one over all heads of queries and keys.

Olmo 3 adds windows, with YaRN on the full layers alone.
"""

from __future__ import annotations

from typing import Any

from morph.config import (
    AllGlobal,
    Attention,
    FullWidthRMSNorm,
    GatedMLP,
    Layout,
    ModelConfig,
    Position,
    RMSNorm,
)
from morph.hf.families.family import Family
from morph.hf.families.parts import (
    FULL,
    SLIDING,
    decoder_rules,
    every,
    read_heads,
    read_windows,
    windows_differ,
    write_both,
    write_common,
    write_windows,
)
from morph.hf.families.rotation import read_rotation, read_table, write_position
from morph.hf.settings import Settings

BASE = 500_000.0


def _read(s: Settings, context: int, layout: Layout, position: Position) -> ModelConfig:
    s.only("attention_bias", False)
    eps = s.number("rms_norm_eps", 1e-5)
    return ModelConfig(
        vocab_size=s.whole("vocab_size"),
        d_model=s.whole("hidden_size"),
        n_layers=s.whole("num_hidden_layers"),
        context_length=context,
        placement="post-branch",
        norm=RMSNorm(eps=eps),
        bias=False,
        position=position,
        attention=Attention(**read_heads(s), qk_norm=FullWidthRMSNorm(eps=eps)),
        layout=layout,
        feed_forward=GatedMLP(width=s.whole("intermediate_size"), activation=s.activation("hidden_act", "silu")),
        tied=s.flag("tie_word_embeddings", False),
        embedding_scale=1.0,
    )


def read_olmo2(s: Settings) -> ModelConfig:
    context = s.whole("max_position_embeddings", 2048)
    return _read(s, context, AllGlobal(), read_rotation(s, 10_000.0, context))


def read_olmo3(s: Settings) -> ModelConfig:
    context, layers = s.whole("max_position_embeddings", 2048), s.whole("num_hidden_layers")
    layout = read_windows(s, layers, every(4, layers), 4096)
    base = s.number("rope_theta", BASE)
    both, scaling = s.table("rope_parameters"), s.table("rope_scaling")
    local = both.table(SLIDING) if both else None
    if base != BASE and not (local and "rope_theta" in local):
        s.refuse("rope_theta", "transformers turns windowed layers by 500000; give rope_parameters for both kinds")
    global_ = (both.table(FULL) if both else None) or scaling
    empty = Settings({}, s.source)
    rotations = [read_table(table or empty, base, context, "half-split") for table in (local, global_)]
    return _read(s, context, layout, windows_differ(layout, *rotations))


def write_olmo2(config: ModelConfig) -> dict[str, Any]:
    return write_common(config) | write_position(config.position)


def write_olmo3(config: ModelConfig) -> dict[str, Any]:
    return write_common(config) | write_windows(config) | write_both(config.position)


OLMO2 = Family("olmo2", "Olmo2ForCausalLM", read_olmo2, write_olmo2, decoder_rules)
OLMO3 = Family("olmo3", "Olmo3ForCausalLM", read_olmo3, write_olmo3, decoder_rules)
