"""Forks: what a token computes by itself, in a dense network."""

from __future__ import annotations

from dataclasses import replace

from morph.config import MLP, Activation, ClampedGatedMLP, GatedMLP, ModelConfig, as_kind
from morph.forks.entry import Fork
from morph.steps import Size


def _activated(config: ModelConfig, activation: Activation) -> ModelConfig:
    ffn = config.feed_forward
    dense = ffn if isinstance(ffn, MLP) else as_kind(ffn, GatedMLP, "feed_forward")
    return replace(config, feed_forward=replace(dense, activation=activation))


def _gelu(config: ModelConfig, size: Size) -> ModelConfig:
    return _activated(config, "gelu")


def _relu_squared(config: ModelConfig, size: Size) -> ModelConfig:
    return _activated(config, "relu-squared")


def _clamped_swiglu(config: ModelConfig, size: Size) -> ModelConfig:
    gated = as_kind(config.feed_forward, GatedMLP, "feed_forward")
    return replace(config, feed_forward=ClampedGatedMLP(width=gated.width))


FEED_FORWARD: tuple[Fork, ...] = (
    Fork(
        "gelu", "silu", "GELU", 2018, "GPT; BERT", "ffn", ("feed_forward.activation",),
        "SiLU, z · sigmoid(z)", "GELU, z times the normal distribution function of z",
        "Two smooth bends that differ by little. GPT, BERT and Gemma took GELU, Llama and Qwen SiLU; no measurement "
        "has settled it. (GPT-2 and Gemma compute a tanh approximation; this is the exact one.)",
        "SiLU on another scale, SiLU(1.702 z) / 1.702, is within 0.0204 of it everywhere",
        ("BERT", "GPT-2 (its tanh form)"),
        "Hendrycks & Gimpel, Gaussian Error Linear Units, 2016",
        _gelu,
    ),
    Fork(
        "relu-squared", "silu", "ReLU, squared", 2021, "Primer; Nemotron-4", "ffn", ("feed_forward.activation",),
        "SiLU, z · sigmoid(z)", "ReLU(z)²",
        "Found by a search over programs: as smooth as needed at zero, and exactly zero below it, so that work can be "
        "skipped. Nemotron-4 and modded-nanoGPT use it, ungated; most models gate instead.",
        "none: z · ReLU(z) in place of z · sigmoid(z), two functions of different growth",
        ("Nemotron-4", "Arcee AFM-4.5B"),
        "So et al., Primer, 2021",
        _relu_squared,
    ),
    Fork(
        "geglu", "gated-ffn", "GELU in the gate", 2020, "T5 1.1; Gemma", "ffn", ("feed_forward.activation",),
        "SiLU activates the gate", "GELU activates the gate",
        "Shazeer found the two about level. Gemma and T5 1.1 gate with GELU, Llama, Qwen and DeepSeek with SiLU.",
        "SiLU on another scale, SiLU(1.702 z) / 1.702, is within 0.0204 of its GELU everywhere",
        ("T5 1.1", "Gemma 2 (the tanh form)", "Gemma 3 (the tanh form)"),
        "Shazeer, GLU Variants Improve Transformer, 2020",
        _gelu,
    ),
    Fork(
        "clamped-swiglu", "gated-ffn", "SwiGLU within bounds", 2025, "gpt-oss", "ffn", ("feed_forward",),
        "SiLU(g) · u", "g · sigmoid(1.702 g) · (u + 1), with g at most 7 and u within ± 7",
        "A product of two halves can grow with the square of its input, beyond what low precision holds. gpt-oss "
        "clamps both, and adds 1 to the value, so that a gate passes something before the value has learned anything.",
        "with alpha 1, bounds out of reach and 1 taken off the value, the same function",
        ("gpt-oss (in its experts)",),
        "OpenAI, gpt-oss, 2025",
        _clamped_swiglu,
    ),
)  # fmt: skip
