"""Recipes for what mixes tokens: heads, norms and gates of attention, windows, layers with a state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from morph.config import (
    AllGlobal,
    Attention,
    FullWidthRMSNorm,
    GatedDeltaNet,
    Interleaved,
    ModelConfig,
    SlidingWindow,
    ZeroCentredRMSNorm,
)
from morph.measure.size import rms
from morph.nn.attention import SoftmaxAttention
from morph.nn.delta import GatedDeltaNet as DeltaLayer
from morph.upcycling.move import Move, Told, fit

OPEN = 1.2785
"""SiLU of it is 1."""


def _attention(config: ModelConfig, **changes: Any) -> ModelConfig:
    return replace(config, attention=replace(config.attention, **changes))


def _both(config: ModelConfig, target: ModelConfig) -> tuple[Attention, Attention] | None:
    """Both attentions, where both are softmax attention of whole keys and values."""
    pair = config.attention, target.attention
    return pair if isinstance(pair[0], Attention) and isinstance(pair[1], Attention) else None  # type: ignore[return-value]


# ---- fewer key-value heads -------------------------------------------------------------------------------------------


def to_gqa(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Fewer key-value heads, of which each stands for a group of old ones."""
    both = _both(config, target)
    if both is None or both[0].n_kv_heads <= both[1].n_kv_heads or both[0].n_kv_heads % both[1].n_kv_heads:
        return None
    return _attention(config, n_kv_heads=both[1].n_kv_heads)


def gqa(move: Move) -> Told:
    """A head's key and value maps are the means over its group (Ainslie et al., GQA, 2023)."""
    for at, old, new in move.blocks():
        before, after = old.attention, new.attention
        if not isinstance(before, SoftmaxAttention) or not isinstance(after, SoftmaxAttention):
            continue
        for name in (f"{at}.attention.{which}.{part}" for which in ("k_proj", "v_proj") for part in ("weight", "bias")):
            if move.has(name):
                heads = move.was(name).unflatten(0, (after.n_kv_heads, -1, before.head_dim))
                move.put(name, heads.mean(1).flatten(0, 1))
        if move.has(f"{at}.attention.k_norm.weight") and not move.now(f"{at}.attention.k_norm.weight").equal(
            move.was(f"{at}.attention.k_norm.weight")
        ):  # one gain for each feature of all heads
            gains = move.was(f"{at}.attention.k_norm.weight").unflatten(0, (after.n_kv_heads, -1, before.head_dim))
            move.put(f"{at}.attention.k_norm.weight", gains.mean(1).flatten())
    return Told(
        "recipe", "key and value heads averaged within each group", ("how the heads of a group differed from another",)
    )


# ---- norms of queries and keys ---------------------------------------------------------------------------------------


def to_qk_norm(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Norms on queries and keys where there were none."""
    both = _both(config, target)
    if both is None or both[0].qk_norm is not None or both[1].qk_norm is None:
        return None
    return _attention(config, qk_norm=both[1].qk_norm)


def qk_norm(move: Move) -> Told:
    """Gains are the mean measured RMS, so that scores keep their size on the whole."""
    attention = move.new.config.attention
    assert isinstance(attention, Attention)
    offset = 1.0 if isinstance(attention.qk_norm, ZeroCentredRMSNorm) else 0.0
    across = isinstance(attention.qk_norm, FullWidthRMSNorm)
    for at, _, new in move.blocks():
        if not isinstance(new.attention, SoftmaxAttention):
            continue
        for which, name in (("q", "projected_queries"), ("k", "projected_keys")):
            heads = move.seen[f"{at}.attention.{name}"].double()  # (B, heads, S, Dh)
            size = float(heads.square().mean((1, 3) if across else 3).sqrt().mean())
            gain = f"{at}.attention.{which}_norm.weight"
            move.put(gain, torch.full_like(move.now(gain), size - offset))
    return Told(
        "recipe",
        "gains set to the measured mean size of queries and keys",
        ("by how much one token's query or key was longer than another's",),
    )


# ---- gates and biases that begin as nothing --------------------------------------------------------------------------


def to_gated_attention(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """A gate on what heads gathered."""
    both = _both(config, target)
    if both is None or both[0].gate is not None or both[1].gate is None:
        return None
    return _attention(config, gate=both[1].gate)


def gated_attention(move: Move) -> Told:
    """Every gate stands at 1/2, its matrix at 0; the output matrix is doubled."""
    for at, _, new in move.blocks():
        if isinstance(new.attention, SoftmaxAttention):
            name = f"{at}.attention.gate_proj.weight"
            move.put(name, torch.zeros_like(move.now(name)))
            move.put(f"{at}.attention.o_proj.weight", 2 * move.was(f"{at}.attention.o_proj.weight"))
    return Told("function-preserving", "gates at 1/2 (their matrices 0), output matrices doubled")


def to_qkv_bias(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Biases on queries, keys and values."""
    both = _both(config, target)
    if both is None or both[0].qkv_bias is not None or both[1].qkv_bias is None:
        return None
    return _attention(config, qkv_bias=both[1].qkv_bias)


def qkv_bias(move: Move) -> Told:
    """They begin at 0, as fresh ones do."""
    return Told("function-preserving", "every weight copied, biases at 0")


# ---- layouts ---------------------------------------------------------------------------------------------------------


def usual_window(config: ModelConfig) -> int:
    """A quarter of the context, as in all sizes of the steps: stands where nothing says how long a window is."""
    return max(1, config.context_length // 4)


def to_window(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """Layers that see the last tokens only; on the way to layers with a state they come first.

    A layout of states does not say which window they replaced: the usual one.
    """
    layout, wanted = config.layout, target.layout
    if isinstance(wanted, Interleaved) and isinstance(wanted.local, GatedDeltaNet):
        if not isinstance(layout, AllGlobal):
            return None
        wanted = replace(wanted, local=SlidingWindow(window=usual_window(config)))
    for each in (layout, wanted):
        local = None if isinstance(each, AllGlobal) else each.local
        if local is not None and (not isinstance(local, SlidingWindow) or local.n_heads is not None):
            return None
    return replace(config, layout=wanted) if layout != wanted else None


def window(move: Move) -> Told:
    """A window has no weights: within it nothing changes."""
    seen = [
        layer.window
        for _, old, new in move.blocks()
        for layer in (old.attention, new.attention)
        if isinstance(layer, SoftmaxAttention) and layer.window is not None
    ]
    return Told("function-preserving", "every weight copied", holds_for=min(seen) if seen else None)


def to_hybrid(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """From windowed layers to layers that keep a state by the gated delta rule."""
    layout, wanted, attention = config.layout, target.layout, config.attention
    if not (isinstance(layout, Interleaved) and isinstance(wanted, Interleaved) and isinstance(attention, Attention)):
        return None
    state = wanted.local
    if not (isinstance(layout.local, SlidingWindow) and isinstance(state, GatedDeltaNet)):
        return None
    shapes = (state.n_key_heads, state.n_value_heads, state.key_head_dim, state.value_head_dim)
    if shapes != (attention.n_kv_heads, attention.n_heads, attention.width, attention.width):
        return None
    return replace(config, layout=replace(layout, local=state))


def hybrid(move: Move) -> Told:
    """q, k, v and o are carried over, convolutions pass the token itself, gates are held open; decay and write strength
    are fresh.

    Heads meet one to one: a state has a query for each key head and a value for each query head, so queries are
    averaged within a group and values repeated. A state's heads leave normed; the way out is scaled so that they write
    as much as attention's did.
    """
    for at, old, new in move.blocks():
        before, after = old.attention, new.attention
        if not isinstance(after, DeltaLayer) or not isinstance(before, SoftmaxAttention):
            continue
        groups, width = before.n_kv_heads, before.head_dim
        ratio = before.n_heads // groups
        own = f"{at}.attention"
        queries = move.was(f"{own}.q_proj.weight").unflatten(0, (groups, ratio, width))
        move.put(f"{own}.q_proj.weight", queries.mean(1).flatten(0, 1))
        values = move.was(f"{own}.v_proj.weight").unflatten(0, (groups, width)).repeat_interleave(ratio, dim=0)
        move.put(f"{own}.v_proj.weight", values.flatten(0, 1))
        taps = torch.zeros_like(move.now(f"{own}.conv.weight"))
        taps[:, -1] = 1
        move.put(f"{own}.conv.weight", taps)
        x = move.read_by(own)
        gate = OPEN * fit(x, torch.ones_like(x[:, :1])).T
        move.put(f"{own}.z_proj.weight", gate.expand_as(move.now(f"{own}.z_proj.weight")))
        size = rms(move.seen[f"{own}.heads"]) / (rms(torch.nn.functional.silu(x @ gate.T)) or 1.0)
        move.put(f"{own}.o_proj.weight", move.was(f"{own}.o_proj.weight") * size)
    return Told(
        "fresh",
        "k copied, q averaged within groups, v repeated, o scaled to write as much as before, convolutions begin as "
        "the identity, gates held near 1; decay and write strength fresh: a change of kind",
        ("the softmax of local layers, and the norms of their queries and keys",),
    )
