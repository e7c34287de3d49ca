"""Frames 1 and 2 of figure 6: one step of decoding with a live cache, and what one token leaves in it. Facts:

* `step`: `rows` (of `layer`, `keeps`: in words, `is_state`), `past` (tokens before the step),
  `tokens`, `next` (what the model finds most likely to follow), `drawn` (how many layers are drawn, the first ones);
* `formula`: `parts` (of `name`, `heads`, `width`), `factors` (of `symbol`, `name`, `value`), `layers` (with a cache),
  `stride` (how many numbers a drawn cell stands for) and `rows` (which layers are drawn), `limit` (where colours end),
  `points` (of `tokens`, `texts`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from morph.config import Attention, State
from morph.measure.count import STATE_BYTES
from morph.measure.mixers import mixer_cost
from morph.nn.cache import SightCache
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.subject import Subject
from morph.story.written import in_bytes, small

PAST = 40
"""Tokens read before the step."""
MOST_ROWS, MOST_CELLS = 24, 96
HELD_TOKENS = 32
NO_KEYS = "No layer of this model caches keys and values: all of them keep a state of fixed size."


def value_bytes(own: Subject) -> int:
    """Bytes of one number of the model's cache."""
    return own.model.embedding.weight.element_size()


# ---- frame 1 ----


@torch.no_grad()
def step_frame(own: Subject) -> Frame:
    """What one new token reads again in every layer's cache, and what it adds; and the same without a cache."""
    config, size = own.config, value_bytes(own)
    past = min(PAST, (config.position_limit or PAST + 1) - 1)
    ids, cache = own.ids(past + 1), own.model.new_cache()
    own.model(ids[:, :past], cache=cache)
    logits = own.model(ids[:, past:], cache=cache)[0, -1]
    again = own.model(ids)[0, -1]
    error = float((logits - again).abs().max() / again.abs().max())
    costs = [mixer_cost(config, layer, 1) for layer in range(config.n_layers)]
    held, written, rows = np.zeros((config.n_layers, past + 1), dtype=int), [], []
    for layer, (kept, cost) in enumerate(zip(cache.layers, costs)):
        if isinstance(kept, SightCache):
            assert kept.columns is not None
            held[layer, kept.columns.numpy()] = 1
            written.append(kept.nbytes // len(kept.columns))
            keeps = "all" if cost.window is None else f"window {cost.window:,}"
        else:
            written.append(kept.nbytes)
            keeps = "a state"
        rows.append({"layer": layer, "keeps": keeps, "is_state": isinstance(config.mixer(layer), State)})
    weighed = np.array([kept.nbytes for kept in cache.layers])
    is_state = np.array([row["is_state"] for row in rows])
    read = np.where(is_state, weighed, weighed - np.array(written))
    formula = [
        size * cost.per_token * (min(past + 1, cost.window or past + 1))
        + STATE_BYTES * cost.state + size * cost.tail
        for cost in costs
    ]  # fmt: skip
    total, added = int(read.sum()), int(np.array(written).sum())
    what = "rewrites or adds" if is_state.any() else "adds"
    return Frame(
        key="step",
        title="One step of decoding",
        caption=f"Token {past} reads {in_bytes(total)} of cache and {what} {in_bytes(added)}. Without a cache all "
        f"{past + 1} tokens are computed again, to the same logits within {small(error)}.",
        alt=f"A row for each layer, a cell for each of {past + 1} tokens. All cells before the last are read again, "
        f"{in_bytes(total)} together; the last column, {in_bytes(added)}, is new. "
        + "; ".join(f"layer {row['layer']} keeps {row['keeps']}" for row in rows[:MOST_ROWS]) + ".",
        claim=Claim(
            text="The live cache weighs what the formula says, all that it held is read, and logits are those of a "
            "full pass.",
            holds=_step_holds,
        ),
        arrays={
            "held": Array(values=held, axes=("layer", "token"), source="columns of each layer's live cache"),
            "read": Array(values=read, axes=("layer",), source="nbytes of each layer's cache, without the new token's"),
            "written": Array(values=np.array(written), axes=("layer",), source="nbytes that the new token takes"),
            "formula": Array(
                values=np.array(formula), axes=("layer",), source="numbers by morph.measure.mixers × bytes a number"
            ),
            "error": Array(
                values=np.array(error), axes=(), source="largest difference of logits with cache and without, relative"
            ),
        },
        facts={
            "aside": own.name, "rows": rows, "past": past, "drawn": min(MOST_ROWS, config.n_layers),
            "tokens": [own.shown(int(t)) for t in ids[0]], "next": own.shown(int(logits.argmax())),
        },
        source=f"A live cache of {own.material} in {_precision(size)}, weighed; {own.name}.",
    )  # fmt: skip


def _precision(size: int) -> str:
    return f"fp{8 * size}"


def _step_holds(frame: Frame) -> bool:
    at, rows = {name: array.values for name, array in frame.arrays.items()}, frame.facts["rows"]
    is_state = np.array([row["is_state"] for row in rows])
    weighed = at["read"] + np.where(is_state, 0, at["written"])
    tokens = at["held"][~is_state]
    whole = (tokens[:, -1] == 1).all() and (np.diff(tokens, axis=1) >= 0).all()
    each = (weighed == at["written"] * np.where(is_state, 1, at["held"].sum(axis=1))).all()
    return bool(np.array_equal(weighed, at["formula"]) and whole and each and at["error"] < 1e-3)


# ---- frame 2 ----


@torch.no_grad()
def formula_frame(own: Subject) -> Frame:
    """The numbers that one token leaves in every layer, and their bytes times tokens and texts."""
    key, title, softmax = "formula", "One token’s cache", list(own.softmax)
    if not softmax:
        return absent(key, title, NO_KEYS)
    size, limit = value_bytes(own), own.config.position_limit or HELD_TOKENS
    tokens = min(HELD_TOKENS, limit)
    points, weighed = [(1, 1), (tokens, 1), (tokens, 2)], []
    for length, texts in points:
        cache = own.model.new_cache(texts)
        own.model(own.ids(length, texts), cache=cache)
        weighed.append(sum(cache.layers[layer].nbytes for layer in softmax))
    numbers = np.stack([_last_token(cache.layers[layer]) for layer in softmax])
    kept, parts = cache.layers[softmax[0]], _parts(cache.layers[softmax[0]])
    windows = [mixer_cost(own.config, layer, 1).window for layer in softmax]
    per_token = numbers.shape[1]
    formula = [
        texts * size * per_token * sum(min(length, window or length) for window in windows) for length, texts in points
    ]
    stride = -(-per_token // MOST_CELLS)
    rows = softmax[:: -(-len(softmax) // MOST_ROWS)]
    drawn = numbers[:: -(-len(softmax) // MOST_ROWS), ::stride]
    factors = _factors(own, kept, len(softmax), size)
    product = "·".join(f"{factor['value']}" for factor in factors)
    whole = in_bytes(weighed[0])
    return Frame(
        key=key,
        title=title,
        caption=f"{product} = {whole}: {', '.join(factor['name'] for factor in factors)}. Tokens and texts "
        f"multiply it: two texts of {tokens} weigh {in_bytes(weighed[2])}.",
        alt=f"A map of the {len(softmax)} × {per_token} numbers that the last token left, a row for each layer with a "
        f"cache, in {', '.join(_named(part) for part in parts)}; beside it the product {product} and three weights: "
        + "; ".join(f"{s} tokens, {b} texts: {in_bytes(w)}" for (s, b), w in zip(points, weighed)) + ".",
        claim=Claim(text="The product is what a live cache weighs, at every length and batch.", holds=_formula_holds),
        arrays={
            "numbers": Array(
                values=drawn.round(3), axes=("layer", "number"),
                source=f"the last token in the caches of layers {', '.join(map(str, rows))}",
            ),
            "weighed": Array(values=np.array(weighed), axes=("point",), source="nbytes of live caches"),
            "formula": Array(values=np.array(formula), axes=("point",), source="the product × tokens kept × texts"),
        },
        facts={
            "aside": own.name, "parts": parts, "factors": factors, "layers": len(softmax), "stride": stride,
            "rows": rows, "limit": colour_limit(drawn), "points": [{"tokens": s, "texts": b} for s, b in points],
        },
        source=f"The last of {tokens} tokens of {own.material} in a live cache of {own.name}.",
    )  # fmt: skip


def _last_token(kept: Any) -> np.ndarray:
    """All numbers kept of the last token of the first text, in the order of `parts`."""
    return np.concatenate([t[0, ..., -1, :].reshape(-1).float().numpy() for t in kept.tensors().values()])


def _parts(kept: Any) -> list[dict[str, Any]]:
    """What the numbers of a token are: tensors, how many heads they have, how wide one is."""
    return [
        {"name": name.replace("_", " "), "heads": t.shape[1] if t.dim() == 4 else 1, "width": t.shape[-1]}
        for name, t in kept.tensors().items()
    ]


def _named(part: dict[str, Any]) -> str:
    heads = f"{part['heads']} heads of " if part["heads"] > 1 else ""
    return f"{part['name']} ({heads}{part['width']} numbers)"


def _factors(own: Subject, kept: Any, layers: int, size: int) -> list[dict[str, Any]]:
    """What multiplies to a token's bytes: the formula's sign, its name, its value."""
    spec = own.config.attention
    if isinstance(spec, Attention):
        heads = [("n_kv", "heads", spec.n_kv_heads), ("d_h", "features", spec.width)]
        of_token = [("2", "K and V", 2), ("L", "layers", layers), *heads]
    else:
        widths = [part["width"] for part in _parts(kept)]
        of_token = [
            ("L", "layers", layers),
            (" + ".join(map(str, widths)), "numbers of a latent and a key", sum(widths)),
        ]
    return [
        {"symbol": symbol, "name": name, "value": value} for symbol, name, value in (*of_token, ("", "bytes", size))
    ]


def colour_limit(numbers: np.ndarray) -> float:
    """Where colours of signed numbers end: what 1 in 50 exceeds, up to the next half."""
    return float(max(0.5, np.ceil(2 * np.quantile(np.abs(numbers), 0.98)) / 2))


def _formula_holds(frame: Frame) -> bool:
    product = int(np.prod([factor["value"] for factor in frame.facts["factors"]]))
    weighed = frame.values("weighed")
    return bool(product == weighed[0] and np.array_equal(weighed, frame.values("formula")))
