"""Gemma 2 (Gemma team, 2024) and the text models of Gemma 3 (2025): sandwich norms, windows, wide embeddings.

Norms store their gain's distance from 1, embeddings are multiplied by √d, scores by a width that need not be the
head's. Gemma 2 caps scores and logits; Gemma 3 norms queries and keys instead, and its windowed layers rotate at a base
of their own.
"""

from __future__ import annotations

from typing import Any

from morph.config import Attention, GatedMLP, LogitCap, ModelConfig, Softcap, ZeroCentredRMSNorm
from morph.errors import MorphError
from morph.hf.families.family import Family
from morph.hf.families.parts import (
    FULL,
    SLIDING,
    decoder_rules,
    every,
    read_heads,
    read_windows,
    require_even_heads,
    softmax_attention,
    windows_differ,
    write_both,
    write_common,
    write_windows,
)
from morph.hf.families.rotation import read_rotation, read_table, write_position
from morph.hf.families.tower import with_tower
from morph.hf.settings import Settings


def _shared(s: Settings, default_cap: float | None) -> dict[str, Any]:
    """What both read alike. Their classes know a size for everything, and folders leave out what equals it."""
    s.only("attention_bias", False)
    s.only("use_bidirectional_attention", False)
    s.ignore("hidden_act", "sliding_window_size")  # older names, not read by transformers either
    cap = s.number_or_none("final_logit_softcapping", default_cap)
    return {
        "d_model": s.whole("hidden_size", 2304),
        "n_layers": s.whole("num_hidden_layers", 26),
        "placement": "sandwich",
        "norm": ZeroCentredRMSNorm(eps=s.number("rms_norm_eps", 1e-6)),
        "bias": False,
        "feed_forward": GatedMLP(
            width=s.whole("intermediate_size", 9216), activation=s.activation("hidden_activation", "gelu_pytorch_tanh")
        ),
        "tied": s.flag("tie_word_embeddings", True),
        "logits": None if cap is None else LogitCap(cap=cap),
    }


def _heads(s: Settings) -> dict[str, Any]:
    """Sizes of heads, and the scale of the scores where it is not the usual one."""
    heads = read_heads(s, default_kv=4, default_width=256, default=8)
    scalar = s.positive("query_pre_attn_scalar", 256)
    return {**heads, "scale": None if scalar == heads["head_dim"] else scalar**-0.5}


def _write_shared(config: ModelConfig) -> dict[str, Any]:
    require_even_heads(config)
    attention = softmax_attention(config)
    common = write_common(config)
    common["hidden_activation"] = common.pop("hidden_act")
    scalar = attention.width if attention.scale is None else attention.scale**-2
    if abs(scalar - round(scalar)) > 1e-9 * scalar:
        raise MorphError(
            f"attention.scale = {attention.scale} is not 1/√n of a whole number n, which Gemma needs; choose another"
        )
    return {
        **common,
        "query_pre_attn_scalar": round(scalar),
        "final_logit_softcapping": config.logits.cap if isinstance(config.logits, LogitCap) else None,
        **write_windows(config),
    }


def read_gemma2(s: Settings) -> ModelConfig:
    context, shared = s.whole("max_position_embeddings", 8192), _shared(s, 30.0)
    cap = s.number_or_none("attn_logit_softcapping", 50.0)
    layers = shared["n_layers"]
    return ModelConfig(
        **shared,
        vocab_size=s.whole("vocab_size", 256_000),
        context_length=context,
        position=read_rotation(s, 10_000.0, context),
        attention=Attention(**_heads(s), softcap=None if cap is None else Softcap(cap=cap)),
        layout=read_windows(s, layers, every(2, layers), 4096),
    )


def write_gemma2(config: ModelConfig) -> dict[str, Any]:
    cap = softmax_attention(config).softcap
    return _write_shared(config) | {
        "attn_logit_softcapping": None if cap is None else cap.cap,
        **write_position(config.position),
    }


def read_gemma3(s: Settings) -> ModelConfig:
    s.only("attn_logit_softcapping", None)  # transformers keeps the key and does not use it
    s.ignore("_sliding_window_pattern")
    context, shared = s.whole("max_position_embeddings", 131_072), _shared(s, None)
    layers, pattern = shared["n_layers"], s.whole("sliding_window_pattern", 6, least=1)
    layout = read_windows(s, layers, every(pattern, layers), 4096)
    base, local_base = s.number("rope_theta", 1e6), s.number("rope_local_base_freq", 1e4)
    both, scaling = s.table("rope_parameters"), s.table("rope_scaling")
    local = both.table(SLIDING) if both else None
    global_ = (both.table(FULL) if both else None) or scaling
    empty = Settings({}, s.source)
    return ModelConfig(
        **shared,
        vocab_size=s.whole("vocab_size", 262_208),
        context_length=context,
        position=windows_differ(
            layout,
            read_table(local or empty, local_base, context, "half-split"),
            read_table(global_ or empty, base, context, "half-split"),
        ),
        attention=Attention(**_heads(s), qk_norm=ZeroCentredRMSNorm(eps=shared["norm"].eps)),
        layout=layout,
    )


def write_gemma3(config: ModelConfig) -> dict[str, Any]:
    return _write_shared(config) | write_both(config.position)


GEMMA2 = Family("gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2, decoder_rules)
GEMMA3 = Family("gemma3_text", "Gemma3ForCausalLM", read_gemma3, write_gemma3, decoder_rules)
GEMMA3_IMAGES = with_tower(GEMMA3, "gemma3", "Gemma3ForConditionalGeneration", "mm_tokens_per_image")
