"""Frames 1, 2, 7 and 8 of figure 9: bytes weighed, products in two orders, work by position, and the stack.

Arrays: `tokens`, `cache`, `state` (1): bytes of two live layers; `left`, `right` and `error` (2); `tokens`, `softmax`,
`state` (7): FLOPs of one decode step; `bytes` (layer,) (8).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import AllGlobal
from morph.nn.organ import plain_forms
from morph.story.beyond_kit import NO_SOFTMAX, NO_STATE, Look
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.residual_kit import numbers
from morph.story.written import in_bytes, small, times

STEPS = 16
FAR = 131_072
"""Tokens of the text at which the stack is counted."""
LENGTHS = (16, 64, 256, 1024)
TITLES = {
    "held": "A cache grows, a state stays",
    "orders": "The same product, two orders",
    "work": "Work for the next token",
    "stack": "States beside a cache",
}


def _both(look: Look) -> str:
    """Why the two kinds of layers cannot be compared, "" where they can."""
    return NO_STATE if not look.states else NO_SOFTMAX if not look.caches else ""


def held(look: Look) -> Frame:
    """Bytes of a cache and of a state while a text is read."""
    if why := _both(look):
        return absent("held", TITLES["held"], why)
    state, cache_layer = look.states[0], look.caches[-1]
    length = look.ids.shape[1]
    step = max(1, length // STEPS)
    cache, weighed = look.subject.model.new_cache(1), []
    with torch.no_grad():
        for piece in look.ids[:, : step * (length // step)].split(step, dim=1):
            look.subject.model(piece, cache=cache)
            weighed.append([cache.layers[layer].nbytes for layer in (cache_layer, state)])
    sizes, tokens = np.array(weighed), step * np.arange(1, len(weighed) + 1)
    per_token = sizes[-1, 0] / tokens[-1]
    meet = sizes[-1, 1] / per_token
    return Frame(
        key="held",
        title=TITLES["held"],
        caption=(
            f"After {tokens[-1]} tokens layer {cache_layer} holds {in_bytes(int(sizes[-1, 0]))} of keys and values, "
            f"layer {state} {in_bytes(int(sizes[-1, 1]))} of state, as at the start. They were level at {meet:.0f} "
            f"tokens."
        ),
        alt=f"Bytes held against tokens read: a cache that climbs in a straight line to {in_bytes(int(sizes[-1, 0]))}, "
        f"and a state that lies flat at {in_bytes(int(sizes[-1, 1]))}.",
        claim=Claim(
            text="The cache grows by as much with every token; the state never changes its size.",
            holds=lambda f: bool(
                np.ptp(f.values("state")) == 0
                and np.ptp(np.diff(f.values("cache"))) == 0
                and np.diff(f.values("cache")).min() > 0
            ),
        ),
        arrays={
            "tokens": Array(values=tokens, axes=("step",), source="tokens read so far"),
            "cache": Array(values=sizes[:, 0], axes=("step",), source=f"nbytes of layer {cache_layer}'s live cache"),
            "state": Array(values=sizes[:, 1], axes=("step",), source=f"nbytes of layer {state}'s live state"),
        },
        facts={"aside": "two layers of one model, fp32", "layers": [cache_layer, state], "meet": round(float(meet), 2)},
        source=look.source,
    )  # fmt: skip


def orders(look: Look) -> Frame:
    """(Q Kᵀ) V and Q (Kᵀ V) on live queries, keys and values, without a softmax and without a mask."""
    layer = (look.states or look.caches)[0]
    names = ("unit_queries", "unit_keys", "new_values") if layer in look.deltas else None
    if names is None:
        names = ("state_queries", "state_keys", "new_values") if look.states else ("queries", "keys", "values")
    q, k, v = (look.of(layer, name) for name in names)
    k, v = (x.repeat_interleave(max(1, v.shape[0] // x.shape[0], q.shape[0] // x.shape[0]), dim=0) for x in (k, v))
    q = q.repeat_interleave(max(1, v.shape[0] // q.shape[0]), dim=0)
    flops: dict[str, int] = {}
    results: dict[str, torch.Tensor] = {}
    for name, product in (("left", lambda: (q @ k.mT) @ v), ("right", lambda: q @ (k.mT @ v))):
        with FlopCounterMode(display=False) as counter:
            results[name] = product()
        flops[name] = int(counter.get_total_flops())
    error = float((results["left"] - results["right"]).abs().max() / results["left"].abs().max())
    with FlopCounterMode(display=False) as counter:
        running = _running(q, k, v)
    causal = float((running - (q @ k.mT).tril() @ v).abs().max() / results["left"].abs().max())
    heads, length = q.shape[:2]
    return Frame(
        key="orders",
        title=TITLES["orders"],
        caption=(
            f"Without a softmax brackets may move: (QKᵀ)V makes {length}×{length} numbers a head, Q(KᵀV) "
            f"{k.shape[-1]}×{v.shape[-1]}. They differ by {small(error)}. A running sum is the causal form."
        ),
        alt=f"Two rows of matrices. Above, Q times K transposed makes a square of {length} by {length}, then times V. "
        f"Below, K transposed times V makes {k.shape[-1]} by {v.shape[-1]}, then Q times that. Both end in {length} by "
        f"{v.shape[-1]}.",
        claim=Claim(
            text="Both orders give the same, and a running sum the same as the lower triangle, to rounding in fp64.",
            holds=lambda f: float(f.values("error")) < 1e-12 and float(f.values("causal")) < 1e-12,
        ),
        arrays={
            "left": numbers(results["left"][0], ("token", "feature"), f"(QKᵀ)V, blocks.{layer}.attention, head 0"),
            "right": numbers(results["right"][0], ("token", "feature"), "Q(KᵀV) of the same"),
            "error": numbers(error, (), "largest difference over the largest number, fp64"),
            "causal": numbers(causal, (), "the same of a running sum and of tril(QKᵀ)V"),
            "flops": Array(values=np.array([flops["left"], flops["right"]]), axes=("order",), source="torch’s counter"),
        },
        facts={
            "aside": f"layer {layer}, {length} tokens", "length": length, "key_dim": k.shape[-1],
            "value_dim": v.shape[-1], "heads": heads,
        },
        source=f"{look.source[:-1]}; no softmax, decay 1. With softmax no such order exists.",
    )  # fmt: skip


def _running(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The causal form token by token: S += k vᵀ, o = Sᵀ q."""
    state, outs = torch.zeros(q.shape[0], k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for t in range(q.shape[1]):
        state = state + k[:, t, :, None] * v[:, t, None, :]
        outs.append((q[:, t, None] @ state)[:, 0])
    return torch.stack(outs, dim=1)


def per_token(look: Look) -> Frame:
    """FLOPs of one decode step in a softmax layer and in a state layer, by what was read before."""
    if why := _both(look):
        return absent("work", TITLES["work"], why)
    softmax, state = look.caches[-1], look.states[0]
    config = replace(look.subject.config, context_length=max(LENGTHS) + 1, mtp=None)
    if config.position_limit is not None and config.position_limit <= max(LENGTHS):
        return absent("work", TITLES["work"], f"This model’s positions end at {config.position_limit:,}.")
    model = morph.build(config, seed=look.subject.seed).eval()
    flops: dict[str, list[int]] = {"softmax": [], "state": []}
    for length in LENGTHS:
        ids = look.subject.ids(length + 1)
        cache = model.new_cache(1)
        with torch.no_grad():
            model(ids[:, :length], cache=cache)
            start = cache.snapshot()
            for name, layer, form in (("softmax", softmax, plain_forms()), ("state", state, nullcontext())):
                with FlopCounterMode(display=False) as counter, form:  # a state's plain form pads one token to a chunk
                    model(ids[:, length:], cache=cache)
                cache.restore(start)
                found = counter.get_flop_counts().get(f"{type(model).__name__}.blocks.{layer}.attention", {})
                flops[name].append(int(sum(found.values())))
    growth = flops["softmax"][-1] / flops["softmax"][0]
    return Frame(
        key="work",
        title=TITLES["work"],
        caption=(
            f"The next token after {LENGTHS[0]} takes a softmax layer {flops['softmax'][0]:,} operations; after "
            f"{LENGTHS[-1]:,}, {times(growth)} times as many. A state layer takes {flops['state'][0]:,} wherever it "
            f"stands."
        ),
        alt=f"Operations for the next token against tokens read before, both axes logarithmic: softmax attention rises "
        f"from {flops['softmax'][0]:,} to {flops['softmax'][-1]:,}, the state layer is level at {flops['state'][0]:,}.",
        claim=Claim(
            text="The state layer's work does not depend on what was read; the softmax layer's grows by as much "
            "a token.",
            holds=lambda f: bool(
                np.ptp(f.values("state")) == 0
                and np.allclose(np.diff(f.values("softmax")) / np.diff(f.values("tokens")), _slope(f), rtol=1e-6)
                and _slope(f) > 0
            ),
        ),
        arrays={
            "tokens": Array(values=np.array(LENGTHS), axes=("point",), source="tokens read before"),
            **{
                name: Array(values=np.array(values), axes=("point",), source="torch’s counter over one decode step")
                for name, values in flops.items()
            },
        },
        facts={"aside": "one layer of each", "layers": [softmax, state]},
        source="The same config, untrained: work depends on sizes alone. Maps in and out are included.",
    )  # fmt: skip


def _slope(frame: Frame) -> float:
    tokens, softmax = frame.values("tokens"), frame.values("softmax")
    return float((softmax[-1] - softmax[0]) / (tokens[-1] - tokens[0]))


def stack(look: Look) -> Frame:
    """What every layer keeps of a long text."""
    if why := _both(look):
        return absent("stack", TITLES["stack"], why)
    config = look.subject.config
    kinds = ["state" if layer in look.states else "cache" for layer in range(config.n_layers)]
    stacks = [replace(config, n_layers=n + 1) for n in range(config.n_layers)]
    kept = np.diff([0, *(morph.count(one).cache_bytes(FAR) for one in stacks)])
    full = morph.count(replace(config, layout=AllGlobal())).cache_bytes(FAR)
    share = float(kept.sum() / full)
    facts: dict[str, Any] = {
        "aside": f"at {FAR:,} tokens", "kinds": kinds, "context": FAR, "full": int(full), "kept": int(kept.sum()),
    }  # fmt: skip
    count = kinds.count("state")
    return Frame(
        key="stack",
        title=TITLES["stack"],
        caption=(
            f"{count} of {len(kinds)} layers keep a state, {len(kinds) - count} a cache that can look at any token. "
            f"At {FAR:,} tokens they hold {in_bytes(int(kept.sum()))}; caches in all layers, {in_bytes(int(full))}."
        ),
        alt="A row for each layer with a bar for the bytes it keeps: "
        + ", ".join(f"layer {n}, {kind}, {in_bytes(int(b))}" for n, (kind, b) in enumerate(zip(kinds, kept)))
        + ".",
        claim=Claim(
            text="States are a negligible part of what is kept; the whole is the share of layers that have a cache.",
            holds=lambda f: _share_holds(f),
        ),
        arrays={"bytes": Array(values=kept, axes=("layer",), source="morph.count(config).cache_bytes, layer by layer")},
        facts=facts | {"share": round(share, 4)},
        source=f"Counted, keys and values in bf16; the formula is held to live bytes by tests. {look.source}",
    )  # fmt: skip


def _share_holds(frame: Frame) -> bool:
    kept, kinds = frame.values("bytes"), np.array(frame.facts["kinds"])
    share = (kinds == "cache").mean()
    return bool(kept[kinds == "state"].sum() < 0.01 * kept.sum() and abs(frame.facts["share"] / share - 1) < 0.02)
