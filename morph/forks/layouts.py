"""Forks: which layers see the whole past.

The number of layers is a matter of size, not of layout, so no fork changes it: where a period is longer than the model,
the model has no global layer.
"""

from __future__ import annotations

from dataclasses import replace

from morph.config import AllLocal, Interleaved, ModelConfig, SlidingWindow, as_kind
from morph.forks.entry import Fork
from morph.steps import Size


def _layout(config: ModelConfig) -> Interleaved:
    return as_kind(config.layout, Interleaved, "layout")


def _window_1_1(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, layout=replace(_layout(config), n_local=1))


def _window_5_1(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, layout=replace(_layout(config), n_local=5))


def _all_local(config: ModelConfig, size: Size) -> ModelConfig:
    local = as_kind(_layout(config).local, SlidingWindow, "layout.local")
    return replace(config, layout=AllLocal(local=local))


LAYOUTS: tuple[Fork, ...] = (
    Fork(
        "window-1-1", "sliding-window", "Windows, 1 : 1", 2024, "Gemma 2; gpt-oss", "attention", ("layout.n_local",),
        "three local layers, then a global one", "one local layer, then a global one",
        "How many layers must see everything? Gemma 2 and gpt-oss: every second. The longer the text, the closer its "
        "cache comes to twice that of 3 : 1.",
        "with windows at least as long as the text, both compute the same",
        ("Gemma 2", "gpt-oss"),
        "Gemma Team, Gemma 2, 2024; OpenAI, gpt-oss, 2025",
        _window_1_1,
    ),
    Fork(
        "window-5-1", "sliding-window", "Windows, 5 : 1", 2025, "Gemma 3", "attention", ("layout.n_local",),
        "three local layers, then a global one", "five local layers, then a global one",
        "How few will do? Gemma 3: every sixth. At size small, layers 5 and 11 (from 0) are global; nano and tiny have "
        "four layers, so none is, and they compute what all-local computes.",
        "with windows at least as long as the text, both compute the same",
        ("Gemma 3",),
        "Gemma Team, Gemma 3, 2025",
        _window_5_1,
    ),
    Fork(
        "all-local", "sliding-window", "Windows everywhere", 2023, "Mistral 7B", "attention", ("layout",),
        "three local layers, then a global one", "every layer local: L layers of w reach L (w - 1) + 1 tokens",
        "Mistral 7B had no global layer, and its successors dropped the window: what lies beyond the reach is lost "
        "for good, and what lies within passes through many hands.",
        "with windows at least as long as the text, both compute the same",
        ("Mistral 7B v0.1",),
        "Jiang et al., Mistral 7B, 2023",
        _all_local,
    ),
)  # fmt: skip
