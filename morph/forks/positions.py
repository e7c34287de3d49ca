"""Forks: how a token knows its place, and how far beyond the trained length that holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from morph.config import (
    Alibi,
    LearnedPosition,
    LinearRope,
    Llama3Rope,
    ModelConfig,
    NoPosition,
    NtkRope,
    PartialRope,
    PerLayer,
    Rope,
    YarnRope,
    as_kind,
)
from morph.forks.entry import Fork
from morph.steps import Size

STRETCH = 4.0
"""How many times the trained length the scaled rotations aim for; what they start from is the stage's own length."""


def _rope(config: ModelConfig) -> Rope:
    return as_kind(config.position, Rope, "position")


def _turning(config: ModelConfig) -> dict[str, Any]:
    """What every rotation has, as the config's rope has it."""
    rope = _rope(config)
    return {"base": rope.base, "pairing": rope.pairing}


def _learned(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=LearnedPosition(length=config.context_length))


def _alibi(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=Alibi())


def _nope(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=NoPosition())


def _partial(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=PartialRope(**_turning(config), fraction=0.5))


def _linear(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=LinearRope(**_turning(config), factor=STRETCH))


def _ntk(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=NtkRope(**_turning(config), factor=STRETCH))


def _yarn(config: ModelConfig, size: Size) -> ModelConfig:
    yarn = YarnRope(**_turning(config), factor=STRETCH, original_length=config.context_length)
    return replace(config, position=yarn)


def _llama3(config: ModelConfig, size: Size) -> ModelConfig:
    llama3 = Llama3Rope(**_turning(config), factor=STRETCH, original_length=config.context_length)
    return replace(config, position=llama3)


def _nope_global(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=PerLayer(local=_rope(config), global_=NoPosition()))


def _dual_base(config: ModelConfig, size: Size) -> ModelConfig:
    rope = _rope(config)
    far = replace(rope, base=100 * rope.base)  # 10^4 and 10^6, as in Gemma 3
    return replace(config, position=PerLayer(local=rope, global_=far))


POSITIONS: tuple[Fork, ...] = (
    Fork(
        "learned-position", "2017", "A trained vector per place", 2017, "ConvS2S; GPT", "position", ("position",),
        "sines and cosines added to the embedding once", "a trained table, whose last row is the last place",
        "The 2017 paper found both about equal and took the sinusoid, which has no last row. GPT-2 and GPT-3 "
        "learned 1,024 and 2,048 rows and can read no further.",
        "the base, with the sinusoid over √D, which multiplies them, as its rows",
        ("GPT-2", "GPT-3", "BERT"),
        "Gehring et al., Convolutional Sequence to Sequence Learning, 2017; Radford et al., GPT-2, 2019",
        _learned,
    ),
    Fork(
        "alibi", "rope", "A slope on the scores", 2021, "ALiBi; BLOOM, MPT", "position", ("position",),
        "queries and keys rotated in every layer", "each score lowered by distance times its head's slope",
        "A recency bias lets a model read past its trained length without falling apart, but a head cannot look far "
        "away when it would pay. BLOOM and MPT chose it; newer models rotate.",
        "with its slopes at 0, and every rotation of the base at position 0, both compute the same",
        ("BLOOM", "MPT"),
        "Press et al., Train Short, Test Long, 2021",
        _alibi,
    ),
    Fork(
        "nope", "rope", "No position at all", 2019, "Irie et al.; Kazemnejad et al.", "position", ("position",),
        "queries and keys rotated in every layer", "nothing but the causal mask",
        "How many tokens a query can see differs from place to place, so a causal model can learn to count. Small "
        "studies find it generalizes to greater lengths; released models use it in some layers only (SmolLM3, "
        "Command A), or beside layers whose states know the order (Kimi Linear).",
        "the base with every rotation at position 0",
        ("Kimi Linear (in its softmax layers; the others keep states)",),
        "Irie et al., Language Modeling with Deep Transformers, 2019; Haviv et al., 2022; Kazemnejad et al., 2023",
        _nope,
    ),
    Fork(
        "partial-rope", "rope", "Half of each head rotates", 2021, "GPT-J; GLM-4.5, Qwen3-Next", "position",
        ("position",),
        "every pair of features rotates", "the first half of a head rotates, the rest matches content alone",
        "What never turns compares content alike at any distance. Qwen3-Next rotates a quarter, GLM-4.5 a half, Llama "
        "everything; no public comparison settles the share.",
        "the base, with the whole head as the part that rotates",
        ("GPT-J", "GPT-NeoX", "GLM-4.5", "Qwen3-Next", "Qwen3.5"),
        "Wang & Komatsuzaki, GPT-J-6B, 2021; Black et al., GPT-NeoX-20B, 2022",
        _partial,
    ),
    Fork(
        "linear-rope", "rope", "Positions squeezed", 2023, "Position Interpolation; Gemma 3", "position",
        ("position",),
        "position times frequency", "a quarter of it: four times the length in the angles known from training",
        "Squeezing is the plainest way to a longer text, but neighbours come to look alike, so it needs further "
        "training. Gemma 3 squeezes its global layers eightfold.",
        "the base, with factor 1; with any factor f, its position f · p is the base's position p",
        ("Gemma 3 (global layers, factor 8)",),
        "Chen et al., Extending Context Window via Positional Interpolation, 2023; kaiokendev, 2023",
        _linear,
    ),
    Fork(
        "ntk", "rope", "A larger base", 2023, "NTK-aware scaling; Code Llama", "position", ("position",),
        "the trained base", "a base so much larger that the slowest pair turns four times slower",
        "The fast pairs, which tell neighbours apart, keep their speed, and it works somewhat without training. Pairs "
        "in the middle leave their known angles all the same.",
        "the base, with factor 1",
        ("Code Llama",),
        "bloc97, NTK-Aware Scaled RoPE, 2023; Peng et al., YaRN, 2023, section 3.1",
        _ntk,
    ),
    Fork(
        "yarn", "rope", "YaRN", 2023, "YaRN; gpt-oss, DeepSeek-V3", "position", ("position",),
        "one rule for all pairs", "fast pairs kept, slow ones squeezed, a ramp between, scores enlarged",
        "A pair that has turned many times in training knows all its angles; one that has not must be squeezed. "
        "gpt-oss, DeepSeek and Olmo 3 scale so; Llama 3.1 draws its ramp over turns.",
        "the base, with factor 1",
        ("DeepSeek-V3", "Kimi K2.5", "gpt-oss", "Olmo 3 (global layers)"),
        "Peng et al., YaRN: Efficient Context Window Extension, 2023",
        _yarn,
    ),
    Fork(
        "llama3-rope", "rope", "Three bands of wavelengths", 2024, "Llama 3.1", "position", ("position",),
        "one rule for all pairs", "short waves kept, long ones four times longer, a blend between",
        "Much like YaRN, with the ramp drawn over turns instead of pairs and no change of the scores. Llama 3.1's code "
        "has it with factor 8 from 8,192 tokens, for texts of 131,072.",
        "the base, with factor 1",
        ("Llama 3.1",),
        "Meta, the code released with Llama 3.1, 2024",
        _llama3,
    ),
    Fork(
        "nope-global", "sliding-window", "No position in global layers", 2024, "Command R7B; Llama 4, Trinity",
        "position", ("position",),
        "rotation in every layer", "in windowed layers only; layers that see all match content alone",
        "A window never shows a distance that training did not, and a layer without rotation has no angle that could "
        "be new to it. Cohere's later models and Trinity do this; Gemma 3 and Olmo 3 rescale instead.",
        "the base with every rotation of its global layers at position 0",
        ("Command A", "Tiny Aya", "Trinity Large"),
        "Cohere, Command A, 2025; Singh et al., Arcee Trinity Large, 2026",
        _nope_global,
    ),
    Fork(
        "dual-rope-base", "sliding-window", "Two bases", 2025, "Gemma 3", "position", ("position",),
        "one base for all layers", "global layers turn with a hundred times the base",
        "Far distances want slow pairs, near ones do not. Gemma 3 uses 10^4 in windows and 10^6 beyond; most others "
        "have one base.",
        "the base, with the local layers' base in the global ones",
        ("Gemma 3",),
        "Gemma Team, Gemma 3, 2025",
        _dual_base,
    ),
)  # fmt: skip
