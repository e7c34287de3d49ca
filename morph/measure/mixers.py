"""What each kind of mixer costs in one layer: what it keeps of the past, and its FLOPs.

Formulas of the plain, matmul-only forms; the tests hold them against live caches and against torch's FLOP counter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from morph import config as c
from morph.nn import delta, kda, lightning


@dataclass(frozen=True)
class MixerCost:
    """One layer reading one sequence of S tokens.

    Attributes:
        per_token: numbers kept of each token that stays in sight.
        window: how many tokens that is at most; None for all.
        state: numbers of the recurrent state, kept in fp32.
        tail: numbers kept of the last tokens' convolution inputs.
        linear: FLOPs of the maps from and to the stream.
        scores, scores_dense: FLOPs of softmax scores and weighted sums, over visible keys and over all S x S.
        delta: FLOPs of a recurrent rule in chunks.
    """

    linear: int
    per_token: int = 0
    window: int | None = None
    state: int = 0
    tail: int = 0
    scores: int = 0
    scores_dense: int = 0
    delta: int = 0


def visible_pairs(S: int, window: int | None = None) -> int:
    """Pairs of a query and a key that it sees, among S tokens."""
    w = S if window is None else min(S, window)
    return w * (w + 1) // 2 + (S - w) * w


def softmax_cost(model: c.ModelConfig, spec: c.Attention, S: int, window: c.SlidingWindow | None = None) -> MixerCost:
    """Queries, keys, values, gate and the way out; scores and weighted sums."""
    heads = window.n_heads if window is not None and window.n_heads is not None else spec.n_heads
    gate = heads * (0 if spec.gate is None else spec.width if isinstance(spec.gate, c.OutputGate) else 1)
    maps = 2 * spec.width * (heads + spec.n_kv_heads) + gate
    seen = None if window is None else window.window
    pair = 4 * heads * spec.width
    return MixerCost(
        linear=2 * S * model.d_model * maps,
        per_token=2 * spec.n_kv_heads * spec.width,
        window=seen,
        scores=pair * visible_pairs(S, seen),
        scores_dense=pair * S * S,
    )


def latent_cost(model: c.ModelConfig, spec: c.MLA, S: int, window: c.SlidingWindow | None = None) -> MixerCost:
    """Latents down and up, and every head's own keys and values: the form that unfolds them."""
    D, H, seen = model.d_model, spec.n_heads, None if window is None else window.window
    asking = D * H * spec.width if spec.q_rank is None else spec.q_rank * (D + H * spec.width)
    unfolding = D * (spec.kv_rank + spec.rope_dim) + spec.kv_rank * H * (spec.nope_dim + spec.v_dim)
    pair, index, attended = 2 * H * (spec.width + spec.v_dim), MixerCost(linear=0), visible_pairs(S, seen)
    if spec.indexer is not None and spec.q_rank is not None:
        index = indexer_cost(spec.indexer, spec.q_rank, D, S, seen)
        attended = visible_pairs(S, min(spec.indexer.top_k, S if seen is None else seen))
    return MixerCost(
        linear=2 * S * (asking + unfolding + H * spec.v_dim * D) + index.linear,
        per_token=spec.kv_rank + spec.rope_dim + index.per_token,
        window=seen,
        scores=pair * attended + index.scores,
        scores_dense=pair * S * S + index.scores_dense,
    )


def indexer_cost(spec: c.Indexer, q_rank: int, d_model: int, S: int, window: int | None) -> MixerCost:
    """What choosing adds: the indexer's heads meet every token in sight, and attention only the chosen ones."""
    pair = 2 * spec.n_heads * spec.head_dim
    return MixerCost(
        linear=2 * S * (q_rank * spec.n_heads * spec.head_dim + d_model * (spec.head_dim + spec.n_heads)),
        per_token=spec.head_dim,
        scores=pair * visible_pairs(S, window),
        scores_dense=pair * S * S,
    )


def window_cost(model: c.ModelConfig, spec: c.SlidingWindow, S: int) -> MixerCost:
    """The model's attention within a window."""
    if isinstance(model.attention, c.MLA):
        return latent_cost(model, model.attention, S, spec)
    return softmax_cost(model, model.attention, S, spec)


def delta_cost(model: c.ModelConfig, spec: c.GatedDeltaNet, S: int) -> MixerCost:
    """The chunked rule: two C x C products over keys, one over values, one solve, three meetings with the state."""
    keys, values = spec.n_key_heads * spec.key_head_dim, spec.n_value_heads * spec.value_head_dim
    C, Dk, Dv = delta.CHUNK, spec.key_head_dim, spec.value_head_dim
    per_chunk = 4 * C * C * Dk + 2 * C * C * Dv + C * C * (Dk + Dv) + 6 * C * Dk * Dv
    return MixerCost(
        linear=2 * S * model.d_model * (2 * keys + 3 * values + 2 * spec.n_value_heads),
        state=spec.n_value_heads * Dk * Dv,
        tail=(spec.conv_size - 1) * (2 * keys + values),
        delta=spec.n_value_heads * -(-S // C) * per_chunk,
    )


def kda_cost(model: c.ModelConfig, spec: c.KimiDelta, S: int) -> MixerCost:
    """The same rule; its two products over keys meet each pair of different tokens once."""
    C, D, features, rank = kda.CHUNK, spec.head_dim, spec.n_heads * spec.head_dim, spec.gate_rank or spec.head_dim
    per_chunk = 2 * C * (C - 1) * D + 2 * C * C * D + 2 * C * C * D + 6 * C * D * D
    return MixerCost(
        linear=2 * S * (model.d_model * (4 * features + spec.n_heads + 2 * rank) + 2 * rank * features),
        state=features * D,
        tail=(spec.conv_size - 1) * 3 * features,
        delta=spec.n_heads * -(-S // C) * per_chunk,
    )


def lightning_cost(model: c.ModelConfig, spec: c.Lightning, S: int) -> MixerCost:
    """Queries, keys, values, gate and the way out; two C x C products and two meetings with the state a chunk."""
    C, D, features = lightning.CHUNK, spec.head_dim, spec.n_heads * spec.head_dim
    return MixerCost(
        linear=2 * S * model.d_model * 5 * features,
        state=features * D,
        delta=spec.n_heads * -(-S // C) * (4 * C * C * D + 4 * C * D * D),
    )


COSTS: dict[type[c.Spec], Callable[[c.ModelConfig, Any, int], MixerCost]] = {
    c.Attention: softmax_cost,
    c.MLA: latent_cost,
    c.SlidingWindow: window_cost,
    c.GatedDeltaNet: delta_cost,
    c.KimiDelta: kda_cost,
    c.Lightning: lightning_cost,
}


def mixer_cost(model: c.ModelConfig, layer: int, S: int) -> MixerCost:
    """What mixing costs in layer `layer` (from 0) for one sequence of S tokens."""
    spec = model.mixer(layer)
    return COSTS[type(spec)](model, spec, S)
