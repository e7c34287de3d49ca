"""Frames 10 to 12 of figure 7: what windows save a released model, positions by layer type, attention sinks. Facts:

* `olmo`: `context`, `full` and `mixed` (bytes), `kinds` (of the layers), `window`;
* `tables`: `rows` (of `name`, `whose`, and `local` and `far`: what turns queries in layers of that type, or "");
* `sink`: `layers` and `sink_layers` (which the rows of the maps are), `strongest` (`layer`, `head`, `mass`, and
  `times`: how many even shares that is), `has_sink` (whether it is `SINK` of them or more), `beside` (the model with
  a learned sink, in words).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

import morph
from morph.config import (
    MLA,
    AllGlobal,
    Interleaved,
    ModelConfig,
    Rotary,
    SlidingWindow,
)
from morph.measure.trace import Trace, trace
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.measured import by_seed, holds
from morph.story.released import RELEASED
from morph.story.rope_layer import pairs
from morph.story.subject import Subject, recorded, subject
from morph.story.written import in_bytes

OLMO_3_32B = RELEASED["Olmo 3 32B"].config
POSITIONS = 64
EARLY = 16
"""Queries with fewer keys in sight say little about a sink: any key gets a large share."""
BATCH, MOST, HELD = 8, 128, 2**27
"""Texts, their tokens, and how many weights of all layers and heads are held at most (of a large model fewer texts)."""
NAMES = (("one table", "this model"), ("two bases", "as in Gemma 3"), ("none in global layers", "as in Trinity Large"))
MADE = {
    "partial-rope": ", a part turns", "linear-rope": ", all slower", "ntk-rope": ", NTK", "yarn": ", YaRN",
    "llama3-rope": ", long waves longer",
}  # fmt: skip
"""Kind of a rotation that is not plain -> what is said of it."""
SINK = 3.0
"""Times its even share that a head must give token 0 to be called a sink."""


# ---- frame 10: a released model ----


def olmo_frame() -> Frame:
    """Bytes of cache in each layer of Olmo 3 32B at its full context, with its windows and without."""
    config, context = OLMO_3_32B, OLMO_3_32B.context_length
    layout = config.layout
    assert isinstance(layout, Interleaved) and isinstance(layout.local, SlidingWindow)
    mixed = _by_layer(config, context)
    full = _by_layer(replace(config, layout=AllGlobal()), context)
    kinds = ["global" if layout.is_global(layer) else "local" for layer in range(config.n_layers)]
    a, b = int(full.sum()), int(mixed.sum())
    return Frame(
        key="olmo",
        title=f"Olmo 3 32B at {context:,} tokens",
        caption=f"{kinds.count('local')} of {len(kinds)} layers keep only {layout.local.window:,} tokens: the cache of "
        f"one text shrinks {a / b:.1f}-fold, from {gibibytes(a)} to {gibibytes(b)} GiB.",
        alt=f"Two rows of {len(kinds)} bars, the bytes that each layer keeps. Above, were all layers global, bars of "
        f"{in_bytes(int(full[0]))}. Below, every fourth bar stays, and the three between shrink to "
        f"{in_bytes(int(mixed[0]))}.",
        claim=Claim(
            text="A global layer keeps context / window times a window's layer; the sums are 16 and 4.75 GiB.",
            holds=_olmo_holds,
        ),
        arrays={
            "full": Array(values=full, axes=("layer",), source="morph.count(...).cache_bytes, all layers global"),
            "mixed": Array(values=mixed, axes=("layer",), source="morph.count(OLMO_3_32B).cache_bytes, layer by layer"),
        },
        facts={
            "aside": "from its published sizes", "context": context, "full": a, "mixed": b, "kinds": kinds,
            "window": layout.local.window,
        },
        source=f"Counted, not measured: 8 KV heads of 128, bf16; {a / len(kinds) / 2**20:.0f} MiB a global layer.",
    )  # fmt: skip


def gibibytes(n: int) -> str:
    """`16`, `4.75`."""
    return f"{n / 2**30:.2f}".rstrip("0").rstrip(".")


def _by_layer(config: ModelConfig, context: int) -> np.ndarray:
    """Cache bytes that each layer adds to those below it."""
    stacks = [replace(config, n_layers=n + 1) for n in range(config.n_layers)]
    return np.diff([0, *(morph.count(stack).cache_bytes(context) for stack in stacks)])


def _olmo_holds(frame: Frame) -> bool:
    full, mixed, facts = frame.values("full"), frame.values("mixed"), frame.facts
    local = np.array(facts["kinds"]) == "local"
    apart = (mixed[local] * facts["context"] == full[local] * facts["window"]).all() and (mixed == full)[~local].all()
    return bool(apart and full.sum() == 16 * 2**30 and mixed.sum() == 4.75 * 2**30 and facts["mixed"] == mixed.sum())


# ---- frame 11: a table per layer type ----


def tables_frame(own: Subject, local: int | None, far: int | None) -> Frame:
    """How far each layer type turns its queries, taken from queries before and after, in the subject and two forks."""
    key, title = "tables", "A position table per layer type"
    if not any(isinstance(own.config.position_in(layer), Rotary) for layer in (local, far) if layer is not None):
        return absent(key, title, "No layer of this model rotates its queries, so there is no table to split.")
    subjects = [own, *(subject(slug, seed=own.seed) for slug in ("dual-rope-base", "nope-global"))]
    arrays, rows = {}, []
    for i, one in enumerate(subjects):
        layers = {"local": local, "far": far} if i == 0 else {"local": 0, "far": 3}
        row = {"name": NAMES[i][0], "whose": NAMES[i][1], "local": "", "far": ""}
        for name, layer in layers.items():
            if layer is not None:
                row[name] = _turner(one.config.position_in(layer))
                arrays[f"{i}.{name}"] = Array(
                    values=_turned(one, layer), axes=("pair", "position"),
                    source=f"blocks.{layer}.attention: cosine between queries before and after rotation, {one.name}",
                )  # fmt: skip
        rows.append(row)
    if len({rows[0][name] for name in ("local", "far")} - {""}) > 1:
        rows[0]["name"] = "a table a type"
    return Frame(
        key=key,
        title=title,
        caption="Windows meet only short distances, global layers all of them. Gemma 3 gives each type its own base; "
        "Trinity Large rotates nothing in its global layers.",
        alt="Three rows of maps, pairs of features by positions, coloured by the cosine of the angle turned. One table "
        "for both layer types; a second, slower one for global layers; and a global layer that turns nothing.",
        claim=Claim(
            text="In the first model both types turn alike; in the second global layers turn slower; in the third not.",
            holds=_tables_hold,
        ),
        arrays=arrays,
        facts={"aside": "pairs of features by positions", "rows": rows},
        source="Cosine of the angle between live queries before and after rotation; forks dual-rope-base, nope-global.",
    )


def _turner(position: Any) -> str:
    if not isinstance(position, Rotary):
        return "no rotation"
    return f"base {position.base:,.0f}{MADE.get(position.kind, '')}"


def _turned(one: Subject, layer: int) -> np.ndarray:
    """(pair, position): cosine of the angle by which a layer's queries turned, averaged over heads by length."""
    length = min(POSITIONS, one.config.position_limit or POSITIONS)
    attention, position = one.config.attention, one.config.position_in(layer)
    with trace(one.model) as seen, torch.no_grad():
        one.model(one.ids(length))
    both = (seen[f"blocks.{layer}.attention.{name}"][0].double() for name in ("unrotated_queries", "queries"))
    first, width = (attention.nope_dim, attention.rope_dim) if isinstance(attention, MLA) else (0, attention.width)
    last = first + (position.rotated(width) if isinstance(position, Rotary) else width)
    pairing = position.pairing if isinstance(position, Rotary) else "half-split"
    a, b = (pairs(x[..., first:last].numpy(), (last - first) // 2, pairing) for x in both)
    turn = (b * a.conj()).sum(axis=0)  # heads turn by one angle
    return np.asarray((turn.real / np.abs(turn)).T).round(3)


def _tables_hold(frame: Frame) -> bool:
    at = {name: array.values for name, array in frame.arrays.items()}
    one = "0.local" not in at or "0.far" not in at or frame.facts["rows"][0]["local"] != frame.facts["rows"][0]["far"]
    one = one or bool(np.allclose(at["0.local"], at["0.far"], atol=0.01))
    # a slower pair has turned less at position 1; the fastest pair has one speed for any base
    slower = (at["1.far"][1:, 1] >= at["1.local"][1:, 1] - 0.002).all() and at["1.far"].sum() > at["1.local"].sum()
    none = np.allclose(at["2.far"], 1, atol=0.002) and at["2.local"].min() < -0.9
    return bool(one and slower and none)


# ---- frame 12: the sink ----


def sink_frame(own: Subject) -> Frame:
    """Weight on token 0 in every head, and what a learned sink takes, in a model recorded with one."""
    if not own.softmax:
        return absent("sink", "Is token 0 a sink?", "No layer of this model has weights that add up to 1.")
    first, even = first_token(own)
    with_sink = own if own.has_sink else recorded("sink", own.seed if own.seed in (0, 1) else 0)
    seen, layers = _passes(with_sink)
    taken = np.array([1 - _weights(seen, layer).sum(axis=-1).mean(axis=(0, 2)) for layer in layers]).round(4)
    beside, _ = first_token(with_sink)
    times = first / even[:, None]
    windows = any(isinstance(with_sink.config.mixer(layer), SlidingWindow) for layer in layers)
    layer, head = (int(i) for i in np.unravel_index(int(np.nanargmax(times)), times.shape))
    strongest = {
        "layer": list(own.softmax)[layer], "head": head, "mass": float(first[layer, head]),
        "times": round(float(times[layer, head]), 1),
    }  # fmt: skip
    at_most = f"at most {strongest['mass']:.0%}, {strongest['times']:.1f} times an even share"
    if strongest["times"] >= SINK:
        found = f"Head {head} of layer {strongest['layer']} parks {strongest['mass']:.0%} on token 0, " + (
            f"{strongest['times']:.0f} times an even share."
        )
    else:
        found = f"{'No sink here' if own.is_released else 'No sink in so small a model'}: token 0 gets {at_most}."
    lab = by_seed("sinks", ("softmax", "learned sink"), "weight on the first token")
    there = f"The lab found {'one' if holds('sinks', 'Weight gathers on the first token') else 'none'}."
    return Frame(
        key="sink",
        title="Is token 0 a sink?",
        caption=f"{found} A trained sink takes {taken.mean():.0%}, at most {taken.max():.0%}. {there}",
        alt=f"Three maps of layers by heads with their numbers: weight on token 0 in {own.name}, where {at_most}; the "
        f"same in a model with a learned sink; and what its sinks take, {taken.min():.0%} to {taken.max():.0%}.",
        claim=Claim(
            text="The verdict is that of the numbers; a learned sink takes part of every head; in the lab token 0 gets "
            "less than a tenth.",
            holds=_sinks,
        ),
        arrays={
            "first": Array(
                values=first, axes=("layer", "head"),
                source=f"blocks.*.attention.weights[..., 0], queries from {EARLY} on that see it, {own.name}",
            ),
            "even": Array(values=even, axes=("layer",), source="the same queries, 1 / keys in sight"),
            "first_with_sink": Array(
                values=beside, axes=("layer", "head"), source=f"the same of {with_sink.name}",
            ),
            "taken": Array(
                values=taken, axes=("layer", "head"), source=f"1 - sum of blocks.*.attention.weights, {with_sink.name}",
            ),
            "lab": lab,
        },
        facts={
            "aside": own.name, "layers": list(own.softmax), "sink_layers": layers, "strongest": strongest,
            "has_sink": strongest["times"] >= SINK,
            "beside": "with a learned sink" + ("" if windows else ", no windows"),
        },
        source=f"{texts_of(own)} texts; queries {EARLY} and later that see token 0. With sink: {with_sink.name}.",
    )  # fmt: skip


def _passes(one: Subject) -> tuple[Trace, list[int]]:
    length = min(MOST, one.config.position_limit or MOST)
    with trace(one.model) as seen, torch.no_grad():
        one.model(one.ids(length, texts_of(one)))
    return seen, list(one.softmax)


def texts_of(one: Subject) -> int:
    """How many texts it reads."""
    return int(min(BATCH, max(1, HELD // (heads_of(one) * MOST**2))))


def heads_of(one: Subject) -> int:
    """Heads of all softmax layers together."""
    return sum(mixer.n_heads for mixer in one.softmax.values()) or 1


def _weights(seen: Trace, layer: int) -> np.ndarray:
    return np.asarray(seen[f"blocks.{layer}.attention.weights"].double())


def first_token(one: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Mean weight on token 0 (softmax layer, head), and an even share of it (softmax layer,), rounded."""
    seen, layers = _passes(one)
    mass, even = [], []
    for layer in layers:
        sight = seen[f"blocks.{layer}.attention.scores"][0, 0].isfinite().numpy()
        queries = np.flatnonzero(sight[:, 0])
        queries = queries[queries >= min(EARLY, len(queries) // 2)]
        mass.append(_weights(seen, layer)[:, :, queries, 0].mean(axis=(0, 2)))
        even.append((1 / sight[queries].sum(axis=1)).mean())
    most = max(map(len, mass))
    padded = [np.pad(row, (0, most - len(row)), constant_values=np.nan) for row in mass]  # layers may differ in heads
    return np.array(padded).round(4), np.array(even).round(4)


def _sinks(frame: Frame) -> bool:
    first, even, taken = (frame.values(name) for name in ("first", "even", "taken"))
    times = first / even[:, None]
    worst, facts = float(np.nanmax(times)), frame.facts
    verdict = facts["has_sink"] == (worst >= SINK) and abs(worst - facts["strongest"]["times"]) < 0.06
    shares = (
        (taken >= 0).all() and taken.max() > 0 and (taken < 1).all() and np.nanmin(first) >= 0 and np.nanmax(first) <= 1
    )
    return bool(verdict and shares and frame.values("lab").max() < 0.1)
