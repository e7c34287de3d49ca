"""Forks: what the layers with a state write into it, and what stands beside them."""

from __future__ import annotations

from dataclasses import replace

from morph.config import GatedDeltaNet, Interleaved, KimiDelta, Lightning, ModelConfig, OutputGate, as_kind
from morph.forks.entry import Fork
from morph.steps import Size, attention_of


def _hybrid_layout(config: ModelConfig) -> tuple[Interleaved, GatedDeltaNet]:
    """The layout, and its local layers, which keep a state by the gated delta rule."""
    layout = as_kind(config.layout, Interleaved, "layout")
    return layout, as_kind(layout.local, GatedDeltaNet, "layout.local")


def _lightning(config: ModelConfig, size: Size) -> ModelConfig:
    layout, delta = _hybrid_layout(config)
    local = Lightning(n_heads=delta.n_value_heads, head_dim=delta.value_head_dim)
    return replace(config, layout=replace(layout, local=local))


def _kda(config: ModelConfig, size: Size) -> ModelConfig:
    layout, delta = _hybrid_layout(config)
    local = KimiDelta(n_heads=delta.n_value_heads, head_dim=delta.value_head_dim)
    return replace(config, layout=replace(layout, local=local))


def _hybrid_gated(config: ModelConfig, size: Size) -> ModelConfig:
    _hybrid_layout(config)
    return replace(config, attention=replace(attention_of(config), gate=OutputGate()))


STATES: tuple[Fork, ...] = (
    Fork(
        "lightning", "hybrid", "A state that only adds", 2025, "MiniMax-01", "attention", ("layout.local",),
        "the gated delta rule corrects what the state holds, at a decay read from the token",
        "keys times values add up, at a fixed decay for each head and layer",
        "Must a token choose what is forgotten? MiniMax-01 fixed it, and its successor M2 went back to softmax "
        "everywhere; Qwen3-Next and Kimi Linear let the token choose, and erase before they write.",
        "on keys of unit length at right angles, with the same decay and β = 1, both rules keep the same state: there "
        "is nothing to correct. With no decay it is the running sum of linear attention",
        ("MiniMax-Text-01", "Ling 2.5 (no SiLU, normed and rotated q and k, one norm for a group of heads)"),
        "Qin et al., Lightning Attention-2, 2024; MiniMax, MiniMax-01, 2025",
        _lightning,
    ),
    Fork(
        "kda", "hybrid", "A decay for each key feature", 2025, "Kimi Linear", "attention", ("layout.local",),
        "one decay for a whole head, its output gated by SiLU",
        "one for each key feature; the gates pass through few features, the output's is a sigmoid",
        "How fine must forgetting be? One feature can now keep what another drops, at the price of products that no "
        "longer factor and must be split up in chunks. Kimi Linear and Ling 3.0 do; Qwen3-Next and OLMo Hybrid keep "
        "one decay for a head.",
        "the base's rule, where all features of a head decay alike",
        ("Kimi Linear", "Ling 3.0"),
        "Kimi Team, Kimi Linear: An Expressive, Efficient Attention Architecture, 2025",
        _kda,
    ),
    Fork(
        "hybrid-gated", "hybrid", "A gate beside the states", 2025, "Qwen3-Next", "attention", ("attention.gate",),
        "softmax layers write what they gathered", "times a sigmoid of the token that asked, feature by feature",
        "The layers with a state gate what they read; shall the one in four that attends do so as well? Qwen3-Next and "
        "Qwen3.5 gate both, Kimi Linear, MiniMax-01 and OLMo Hybrid the states alone.",
        "with its matrix at 0 every gate is 1/2: the base, once the output matrix is doubled",
        ("Qwen3-Next", "Qwen3.5"),
        "Qiu et al., Gated Attention for Large Language Models, 2025; Qwen Team, Qwen3-Next, 2025",
        _hybrid_gated,
    ),
)  # fmt: skip
