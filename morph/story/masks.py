"""Figure 7, masks: what each layer may see, what that does to cache and work, and how far a stack hears all the same.

Frames 1 to 4 and 9 look at the subject's own layers, 5 to 8 at small stacks built beside it (`masks_depth`), frame 10
counts a released model, 11 and 12 set the subject beside two forks and a recorded model (`masks_field`). Layers are
numbered from 0, as in a trace. Facts, besides `aside`:

* `causal`, `window`: `layer`, `head`, `tokens`, `cell` (tokens that a drawn cell stands for), `limit` (where the
  colours of the weights end), `sink` (whether the softmax has one), `query`, `strongest` (rows of `key`, `back`,
  `weight` for the last query);
* `cache`: `local` and `far` (layers), `window`; `stack`: `limit`, `rows` (of `layer`, `window`, `pairs`, `held`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morph.config import MLA, ModelConfig
from morph.measure.mixers import mixer_cost
from morph.measure.trace import Trace, trace
from morph.model import Decoder
from morph.story.frame import Array, Claim, Figure, Frame, absent
from morph.story.masks_depth import reach_frames, work_frame
from morph.story.masks_field import heads_of, olmo_frame, sink_frame, tables_frame
from morph.story.subject import Subject, subject
from morph.story.threads import one_thread
from morph.story.written import in_bytes

NAME, NUMBER, TITLE = "masks", 7, "Holes in the mask"
CELLS, SMALL = 64, 32
"""Rows of a large map and of a small one; a longer text is drawn in cells of several tokens."""
MOST_MAPS = 6
LONGEST, HELD = 1024, 2**27
"""Tokens of a pass at most, and how many scores of all layers and heads are held at most: a gigabyte with weights."""
NO_WINDOW = "No layer of this model has a window."
CHOSEN = "An indexer chooses the tokens that each query of this model sees, so no layer has one mask for every text."


@one_thread()
def figure(*, model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 7 for a model (None: the recorded one of stage 9). Raises `MorphError` when `model` names none."""
    look = Look(subject("windows" if model is None else model, seed=seed))
    own = look.subject
    frames = (
        _causal(look), _window(look), _cache(look), _stack(Look(own, spans=4)), *reach_frames(own.seed),
        work_frame(own), olmo_frame(), tables_frame(own, look.local, look.far), sink_frame(own),
    )  # fmt: skip
    return Figure(name=NAME, number=NUMBER, title=TITLE, frames=frames, provenance=own.provenance)


@dataclass(frozen=True)
class Look:
    """The subject and one pass of it over a text of so many windows."""

    subject: Subject
    spans: int = 2

    @cached_property
    def windows(self) -> list[int | None]:
        """Each layer's window; None where a layer sees all, 0 where it has no softmax."""
        softmax = self.subject.softmax
        return [softmax[i].window if i in softmax else 0 for i in range(self.subject.config.n_layers)]

    @property
    def local(self) -> int | None:
        """The first layer with a window."""
        return next((layer for layer, window in enumerate(self.windows) if window), None)

    @property
    def far(self) -> int | None:
        """The first layer that sees the whole past."""
        return next((layer for layer, window in enumerate(self.windows) if window is None), None)

    @property
    def period(self) -> tuple[list[int], int]:
        """Softmax layers that repeat, as far as they can be drawn, and how many of all of them have a window.

        They end with the first layer that sees the whole past or, where that is layer 0, with the last before the next.
        """
        last = self.far
        if last is None:
            last = min(4, len(self.windows)) - 1
        elif last == 0:
            last = next((i for i, w in enumerate(self.windows) if i and w is None), len(self.windows)) - 1
        layers = [layer for layer in range(last + 1) if self.windows[layer] != 0]
        drawn = layers[:MOST_MAPS] if self.far == 0 else layers[-MOST_MAPS:]
        return drawn, sum(bool(self.windows[layer]) for layer in layers)

    @property
    def window(self) -> int:
        """The local layer's; 0 without one."""
        return 0 if self.local is None else self.windows[self.local] or 0

    @property
    def most(self) -> int:
        """How many tokens the model can place."""
        return self.subject.config.position_limit or 10**9

    @cached_property
    def longest(self) -> int:
        """Tokens of a pass whose scores can be held."""
        return int(min(LONGEST, (HELD / heads_of(self.subject)) ** 0.5))

    @cached_property
    def length(self) -> int:
        """Tokens of the pass: `spans` windows, without one a map's worth."""
        return min(self.spans * self.window or CELLS, self.most, self.longest)

    @property
    def chosen(self) -> str:
        """Why no layer has a mask of its own, as a sentence; "" where they have."""
        attention = self.subject.config.attention
        return CHOSEN if isinstance(attention, MLA) and attention.indexer is not None else ""

    @property
    def unseen(self) -> str:
        """Why no window can be shown, as a sentence; "" where one can."""
        if self.window >= self.longest:
            return f"This model's windows of {self.window:,} tokens are no shorter than the {self.longest:,} read here."
        return "" if self.window else NO_WINDOW

    @cached_property
    def seen(self) -> Trace:
        """The trace of the pass."""
        with trace(self.subject.model) as seen, torch.no_grad():
            self.subject.model(self.subject.ids(self.length))
        return seen

    def mask(self, layer: int) -> np.ndarray:
        """(query, key): 1 where the layer's scores are finite."""
        return np.asarray(self.seen[f"blocks.{layer}.attention.scores"][0, 0].isfinite().int())

    def weights(self, layer: int) -> np.ndarray:
        """(head, query, key)."""
        return np.asarray(self.seen[f"blocks.{layer}.attention.weights"][0].double())

    @cached_property
    def beyond(self) -> np.ndarray:
        """(head,): share of its weight that the far layer puts a window or more back, over queries that far in."""
        assert self.far is not None
        hidden = np.tril(self.weights(self.far), -self.window)[:, self.window :]
        return np.asarray(hidden.sum(axis=-1).mean(axis=-1))

    @property
    def head(self) -> int:
        """The head shown: the one of the far layer that looks furthest back, or the first."""
        return int(np.argmax(self.beyond)) if self.far is not None and 0 < self.window < self.length else 0

    @cached_property
    def limit(self) -> float:
        """Where the colours of weights end, in all layers."""
        layers = [layer for layer, window in enumerate(self.windows) if window != 0]
        return limit(np.concatenate([self.weights(layer)[:, self.mask(layer) == 1].ravel() for layer in layers]))


def limit(visible: np.ndarray) -> float:
    """Where colours end: what 1 weight in 50 exceeds, up to the next twentieth."""
    return float(min(1.0, np.ceil(np.quantile(visible, 0.98) * 20) / 20))


def cells(matrix: np.ndarray, most: int) -> np.ndarray:
    """A (query, key) matrix with at most `most` rows: weights of keys add up, those of queries are averaged."""
    size = -(-len(matrix) // most)
    n = -(-len(matrix) // size)
    padded = np.zeros((n * size, n * size))
    padded[: len(matrix), : len(matrix)] = matrix
    rows = padded.reshape(n, size, n * size).sum(axis=1) / np.minimum(size, len(matrix) - size * np.arange(n))[:, None]
    return np.asarray(rows.reshape(n, n, size).sum(axis=2))


# ---- frames 1 and 2: one layer's mask, and the weights under it ----


def _layer_arrays(look: Look, layer: int) -> dict[str, Array]:
    where, mask = f"blocks.{layer}.attention", look.mask(layer)
    return {
        "mask": Array(
            values=(cells(mask, CELLS) > 0).astype(int), axes=("query", "key"), source=f"{where}.scores, where finite",
        ),
        "weights": Array(
            values=cells(look.weights(layer)[look.head], CELLS).round(4), axes=("query", "key"),
            source=f"{where}.weights, head {look.head}",
        ),
        "in_sight": Array(values=mask.sum(axis=1), axes=("query",), source=f"{where}.scores, finite ones"),
    }  # fmt: skip


def _layer_facts(look: Look, layer: int) -> dict[str, Any]:
    last = look.weights(layer)[look.head, -1]
    ids = look.subject.ids(look.length)[0].tolist()
    best = np.argsort(-last, kind="stable")[:3]
    return {
        "aside": look.subject.name,
        "layer": layer,
        "head": look.head,
        "tokens": look.length,
        "cell": -(-look.length // CELLS),
        "limit": look.limit,
        "sink": look.subject.has_sink,
        "query": look.subject.shown(ids[-1]),
        "strongest": [
            {"key": look.subject.shown(ids[i]), "back": len(last) - 1 - int(i), "weight": round(float(last[i]), 3)}
            for i in best
        ],
    }


def _strongest(facts: dict[str, Any]) -> str:
    rows = (f"“{row['key']}” {row['back']} back, {row['weight']:.2f}" for row in facts["strongest"])
    return f"The last query, “{facts['query']}”, gives most weight to {'; '.join(rows)}."


def _masked_softmax(frame: Frame, in_sight: np.ndarray) -> bool:
    """As many keys in sight as there should be, no weight outside of the mask, and each row adds up to 1 (or less)."""
    mask, weights = frame.values("mask"), frame.values("weights")
    counted = np.array_equal(frame.values("in_sight"), in_sight)
    inside, sums = bool((weights[mask == 0] == 0).all()), weights.sum(axis=1)
    whole = (sums > 0) & (sums < 1.005) if frame.facts["sink"] else abs(sums - 1) < 0.005
    return counted and inside and bool(whole.all())


def _causal(look: Look) -> Frame:
    key, title, layer, n = "causal", "Causal: all that came before", look.far, look.length
    if layer is None or look.chosen:
        return absent(key, title, look.chosen or "No layer of this model sees the whole past.")
    facts = _layer_facts(look, layer)
    rest = "What its weights lack of 1, the sink takes." if facts["sink"] else "Its weights on them add up to 1."
    return Frame(
        key=key,
        title=title,
        caption=f"In layer {layer} a query sees its own key and all earlier ones: {_pairs(look, layer):,} of "
        f"{n * n:,} pairs. {rest}",
        alt=f"Two square maps of {n} queries by {n} keys. Left, the mask: a full lower triangle. Right, the weights "
        f"of head {look.head} in layer {layer}, nowhere above the diagonal. {_strongest(facts)}",
        claim=Claim(
            text="Query i sees i + 1 keys, and its weights on them add up to 1 (less with a sink).",
            holds=lambda f: _masked_softmax(f, np.arange(1, f.facts["tokens"] + 1)),
        ),
        arrays=_layer_arrays(look, layer),
        facts=facts,
        source=f"Trace of layer {layer}, head {look.head}, over {n} tokens of {look.subject.material}.",
    )


def _pairs(look: Look, layer: int) -> int:
    return int(look.mask(layer).sum())


def _window(look: Look) -> Frame:
    key, title, layer, w, n = "window", "A window hides the rest", look.local, look.window, look.length
    if layer is None or look.unseen or look.chosen:
        return absent(key, title, look.unseen or look.chosen)
    facts, arrays, far = _layer_facts(look, layer) | {"window": w}, _layer_arrays(look, layer), ""
    if look.far is not None and n > w:
        arrays["beyond"] = Array(
            values=look.beyond.round(4), axes=("head",),
            source=f"blocks.{look.far}.attention.weights: {w} tokens back and more, queries from {w} on",
        )  # fmt: skip
        far = f" Layer {look.far} spends {arrays['beyond'].values.mean():.0%} of its weight on what is hidden here."
    return Frame(
        key=key,
        title=title,
        caption=f"Layer {layer} sees the last {w} tokens, the query's own included: {_pairs(look, layer):,} of "
        f"{n * n:,} pairs.{far}",
        alt=f"The same maps for layer {layer}: the mask is a band {w} tokens wide below the diagonal, and all weights "
        f"lie inside it. {_strongest(facts)}",
        claim=Claim(
            text="Query i sees min(i + 1, w) keys, and its weights on them add up to 1 (less with a sink).",
            holds=lambda f: _masked_softmax(f, np.minimum(np.arange(1, f.facts["tokens"] + 1), f.facts["window"])),
        ),
        arrays=arrays,
        facts=facts,
        source=f"Trace of layer {layer}, head {look.head}, over the same {n} tokens.",
    )


# ---- frame 3: the cache on the scales ----


def _cache(look: Look) -> Frame:
    key, title = "cache", "The window caps the cache"
    local, far, w = look.local, look.far, look.window
    if local is None or look.unseen:
        return absent(key, title, look.unseen + " Every cache of keys and values goes on growing.")
    step = max(1, w // 8)
    steps = max(1, min(4 * w, look.most) // step)
    ids, cache, weighed = look.subject.ids(steps * step), look.subject.model.new_cache(1), []
    with torch.no_grad():
        for piece in ids.split(step, dim=1):
            look.subject.model(piece, cache=cache)
            weighed.append([layer.nbytes for layer in cache.layers])
    width = look.subject.model.embedding.weight.element_size()
    pair = mixer_cost(look.subject.config, local, 1).per_token
    held, tokens = np.array(weighed), step * np.arange(1, steps + 1)
    arrays = {
        "tokens": Array(values=tokens, axes=("step",), source="tokens read so far"),
        "local": Array(values=held[:, local], axes=("step",), source=f"nbytes of layer {local}'s live cache"),
        "formula": Array(
            values=pair * width * np.minimum(tokens, w), axes=("step",),
            source=f"{pair} numbers a token · {width} bytes · min(s, {w})",
        ),
    }  # fmt: skip
    whole = ""
    if far is not None:
        arrays["far"] = Array(values=held[:, far], axes=("step",), source=f"nbytes of layer {far}'s live cache")
        whole = f"layer {far}, which sees all, holds {in_bytes(int(held[-1, far]))}; "
    return Frame(
        key=key,
        title=title,
        caption=f"Weighed after {tokens[-1]} tokens: {whole}layer {local} stopped growing at {w} tokens, with "
        f"{in_bytes(int(held[-1, local]))}.",
        alt=f"Bytes held against tokens read. All layers climb alike up to {w} tokens. From there layer {local} stays "
        "flat, as min(s, w) says, while a layer that sees all goes on climbing.",
        claim=Claim(
            text="At every length the live bytes of the window's layer are those of min(s, w) tokens.",
            holds=lambda f: np.array_equal(f.values("local"), f.values("formula")),
        ),
        arrays=arrays,
        facts={"aside": look.subject.name, "local": local, "far": far, "window": w},
        source="Discs: bytes of the tensors of keys and values, weighed. Lines: bytes per token × tokens kept.",
    )


# ---- frame 4: one period of layers ----


def _stack(look: Look) -> Frame:
    key, title = "stack", "A stack of masks"
    if look.unseen or look.chosen:
        return absent(key, title, look.chosen or look.unseen + " All its masks are the same.")
    layers, local = look.period
    n, last_key = look.length, [look.mask(layer)[-1, 0] for layer in layers]
    weights = np.stack([cells(look.weights(layer).mean(axis=0), SMALL) for layer in layers])
    seen = np.stack([cells(look.mask(layer), SMALL) > 0 for layer in layers])
    rows = [
        {
            "layer": layer, "window": look.windows[layer], "pairs": _pairs(look, layer),
            "held": int(look.mask(layer)[-1].sum()),
        }
        for layer in layers
    ]  # fmt: skip
    pairs, most = sum(_pairs(look, layer) for layer in layers), len(layers) * n * (n + 1) // 2
    direct = f"Only layer {look.far} links the last token to the first in one step. " if look.far is not None else ""
    return Frame(
        key=key,
        title=f"A {local}:1 stack of masks" if look.far is not None else title,
        caption=f"{direct}Together the {len(layers)} layers compute {pairs / most:.0%} of the pairs that "
        f"{len(layers)} causal ones would, at {n} tokens.",
        alt=f"{len(layers)} maps of attention weights, averaged over heads, for layers {layers[0]} to {layers[-1]}. "
        f"Those with a window are bands along the diagonal; a layer that sees all fills its triangle.",
        claim=Claim(
            text="A window's layer has Σ min(i + 1, w) pairs and does not reach the first token; the other has all.",
            holds=_stack_holds,
        ),
        arrays={
            "weights": Array(
                values=weights.round(4), axes=("layer", "query", "key"),
                source="blocks.*.attention.weights, mean over heads",
            ),
            "mask": Array(
                values=seen.astype(int), axes=("layer", "query", "key"),
                source="blocks.*.attention.scores, where finite",
            ),
            "first_in_sight": Array(
                values=np.array(last_key), axes=("layer",), source="blocks.*.attention.scores, last query, key 0",
            ),
        },
        facts={"aside": look.subject.name, "tokens": n, "limit": limit(weights[seen]), "rows": rows},
        source=f"Trace of one pass over {n} tokens, drawn in cells of {-(-n // SMALL)}: weights of its keys add up.",
    )  # fmt: skip


def _stack_holds(frame: Frame) -> bool:
    n, good = frame.facts["tokens"], True
    for row, first in zip(frame.facts["rows"], frame.values("first_in_sight"), strict=True):
        w = row["window"] or n
        good &= row["pairs"] == sum(min(i + 1, w) for i in range(n)) and bool(first) == (w >= n)
    outside = frame.values("weights")[frame.values("mask") == 0]
    return bool(good and (outside == 0).all())
