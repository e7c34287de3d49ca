"""Frames 5 to 9 of figure 7: how far a stack of masks hears, by differentiation, and what its scores cost, by counting.

The stacks are built for this: stage 9 at nano width with `DEPTH` layers and a window of `NARROW` tokens, untrained, in
fp64, so that a gradient without a path is exactly zero and the weakest path is not. Facts:

* `reach-*`: `kinds` (of the layers, "local" or "global", the first layer first), `window`, `limits` (powers of
  ten where the colours end, the same in all four frames), `opens` (after how many layers every token is heard, or
  None), `gain` (how many times more than by hops the farthest token within their reach arrives);
* `work`: `window`, `per_pair` (FLOPs of one query and one key in all heads).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil, floor
from typing import Any

import numpy as np

import morph
from morph.config import MLP, AllLocal, Attention, Interleaved, Layout, SlidingWindow
from morph.measure.reach import reach
from morph.measure.scores import blocked_flops, dense_flops
from morph.steps import stage
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.measured import by_seed, run, trained
from morph.story.subject import Subject, subject

LAB_WINDOW = 8
"""Of the lab's models that frame 5 names."""
DEPTH, NARROW, TEXT = 12, 5, 64
"""Layers (a multiple of every ratio's period), window and tokens of the stacks."""
SIZES = (32, 64, 128, 256, 512, 1024)
"""Tokens at which the work is counted."""
RATIOS = (1, 3, 5)
WHO = {1: "Gemma 2 and gpt-oss", 3: "Olmo 3 and Trinity Large", 5: "Gemma 3"}
"""Who shipped a ratio of local layers to one global layer."""
SOURCE = (
    "Gradient of the last token's stream after each layer with respect to every embedding; "
    f"{DEPTH} untrained layers, nano, fp64."
)


# ---- frames 5 to 8: cones ----


@lru_cache(maxsize=4)
def reach_frames(seed: int) -> tuple[Frame, ...]:
    """The cones of all local layers and of 1, 3 and 5 local layers to a global one, from the same initial weights."""
    window = SlidingWindow(window=NARROW)
    layouts: list[Layout] = [AllLocal(local=window), *(Interleaved(n_local=n, local=window) for n in RATIOS)]
    sizes = []
    for layout in layouts:
        made = subject(replace(stage(9, "nano"), n_layers=DEPTH, layout=layout), seed=seed)
        sizes.append(reach(made.model.double(), made.ids(TEXT)).numpy())
    heard = np.concatenate([size[size > 0] for size in sizes])
    limits = [floor(np.log10(heard.min())), ceil(np.log10(heard.max()))]
    return (_all_local(sizes[0], limits), *(_mixed(n, size, sizes[0], limits) for n, size in zip(RATIOS, sizes[1:])))


def _arrays(size: np.ndarray) -> dict[str, Array]:
    source = "norm of d stream[last] / d embedding[s] after each number of layers"
    axes = ("layers", "token")
    powers = np.log10(size, where=size > 0, out=np.zeros_like(size))
    return {
        "heard": Array(values=(size != 0).astype(int), axes=axes, source=f"{source}: where it is not zero"),
        "power": Array(values=powers.round(2), axes=axes, source=f"{source}: its power of ten, 0 where it is zero"),
    }


def _facts(kinds: list[str], size: np.ndarray, limits: list[int]) -> dict[str, Any]:
    whole = np.flatnonzero((size != 0).all(axis=1))
    return {
        "aside": f"{DEPTH} layers, window {NARROW}, untrained",
        "kinds": kinds,
        "window": NARROW,
        "limits": limits,
        "opens": int(whole[0]) if whole.size else None,
    }


def _hops(layers: int, tokens: int = TEXT) -> np.ndarray:
    """(layers + 1, token): what windows alone reach, L(w - 1) + 1 tokens, the last token's own included."""
    farthest = tokens - 1 - np.arange(layers + 1) * (NARROW - 1)
    return np.asarray(np.arange(tokens)[None] >= farthest[:, None])


def _all_local(size: np.ndarray, limits: list[int]) -> Frame:
    reached = int((size[-1] != 0).sum())
    fields, reaches = (
        by_seed("windows", ("all local",), measure, {"window": LAB_WINDOW})
        for measure in ("effective field", "theoretical reach")
    )
    field, reach_there = fields.values.mean(), int(reaches.values[0, 0])
    layers = run("windows").declared["config"]["n_layers"]
    return Frame(
        key="reach-all-local",
        title="All local: reach by hops",
        caption=f"Each window counts its own token, so {DEPTH} layers of window {NARROW} hear L(w − 1) + 1 = {reached} "
        f"tokens, not L×w\u00a0=\u00a0{DEPTH * NARROW}. What is far is faint.",
        alt=f"Rows for 0 to {DEPTH} layers, columns for {TEXT} tokens. Every row reaches {NARROW - 1} tokens further "
        f"back than the one before: a staircase from 1 to {reached} tokens, fading by "
        f"{limits[1] - limits[0]} powers of ten towards its far edge. The first {TEXT - reached} tokens are never "
        f"heard. In trained models of the lab {field:.1f} of {reach_there} tokens within reach hold 90 % of the "
        "squared gradient.",
        claim=Claim(
            text="After l layers the gradient is non-zero at the last l(w − 1) + 1 tokens and nowhere else; in the "
            "lab's trained models nine tenths of its square lie in less than a tenth of those within reach.",
            holds=lambda f: (
                np.array_equal(f.values("heard"), _hops(DEPTH))
                and bool((f.values("lab_field") < f.values("lab_reach") / 10).all())
            ),
        ),
        arrays={**_arrays(size), "lab_field": fields, "lab_reach": reaches},
        facts=_facts(["local"] * DEPTH, size, limits)
        | {
            "lab": [
                f"Lab: {layers} layers of window {LAB_WINDOW}, {trained('windows')}",
                f"90 % of the squared gradient comes from {field:.1f}",
                f"of the {reach_there} tokens within reach",
            ]
        },
        source=SOURCE,
    )


def _mixed(n: int, size: np.ndarray, by_hops: np.ndarray, limits: list[int]) -> Frame:
    kinds = ["global" if (layer + 1) % (n + 1) == 0 else "local" for layer in range(DEPTH)]
    edge = TEXT - 1 - DEPTH * (NARROW - 1)
    facts = _facts(kinds, size, limits)
    gain = float(size[-1, edge] / by_hops[-1, edge])
    facts["gain"] = gain
    words = {1: "one hop", 2: "two", 3: "three hops", 4: "four", 5: "five hops", 6: "six"}
    captions = {
        1: f"Every second layer sees all: after {facts['opens']} layers each token is heard. The one "
        f"{TEXT - 1 - edge} back arrives {_times(gain)} times as strong as by hops.",
        3: f"Three hops, then a layer that sees all: after {facts['opens']} layers each token is heard. "
        f"{WHO[3]} mix windows and global layers like this.",
        5: f"Five hops, then all, as in {WHO[5]}. With two global layers of {DEPTH}, the token {TEXT - 1 - edge} back "
        f"still arrives {_times(gain)} times as strong as by hops.",
    }
    return Frame(
        key=f"reach-{n}-1",
        title=f"{n}:1 opens after {words[n + 1]} layers",
        caption=captions[n],
        alt=f"The same rows with {n} local layers to one global. {words[n].capitalize()} widen the staircase by "
        f"{NARROW - 1} tokens each; the row of layer {n + 1} and all above it are full.",
        claim=Claim(
            text=f"Up to layer {n} hops alone reach as far; from layer {n + 1} on no token has a zero gradient.",
            holds=lambda f: bool(
                np.array_equal(f.values("heard")[: n + 1], _hops(n))
                and f.values("heard")[n + 1 :].all()
                and f.values("power")[-1, edge] > np.log10(by_hops[-1, edge]) + 1
            ),
        ),
        arrays=_arrays(size),
        facts=facts,
        source=SOURCE,
    )


def _times(factor: float) -> str:
    """A large factor to one digit, in words where it has many: `30 billion`."""
    digit = float(f"{factor:.0e}")
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if digit >= size:
            return f"{digit / size:,.0f} {name}"
    return f"{digit:,.0f}"


# ---- frame 9: work ----


def work_frame(own: Subject) -> Frame:
    """FLOPs of one layer's scores and sums against tokens: counted in plain form dense and in blocks, and formulas."""
    key, title, config = "work", "Quadratic work, linear with a window", own.config
    layer = next((i for i in range(config.n_layers) if isinstance(config.mixer(i), SlidingWindow)), None)
    if layer is None:
        return absent(key, title, "No layer of this model has a window, so all its softmax layers do the same work.")
    spec, attention = config.mixer(layer), config.attention
    assert isinstance(spec, SlidingWindow)
    if not isinstance(attention, Attention):
        return absent(key, title, "Its keys unfold from a latent, and this frame counts plain keys.")
    sizes = [s for s in SIZES if s <= (config.position_limit or s)]
    if spec.window >= SIZES[-1]:
        return absent(key, title, f"Windows of {spec.window:,} tokens hide nothing in {SIZES[-1]:,} tokens.")
    heads = spec.n_heads or attention.n_heads
    attention = replace(attention, n_heads=heads)
    one = replace(  # its attention alone matters
        config, n_layers=1, layout=AllLocal(local=replace(spec, n_heads=None)), attention=attention,
        position=config.position_in(layer), vocab_size=min(config.vocab_size, 256),
        feed_forward=MLP(width=1, activation="relu"), mtp=None,
    )  # fmt: skip
    single = subject(one, seed=own.seed)
    dense = np.array([dense_flops(single.model, single.ids(s))[0] for s in sizes])
    blocks = np.array([blocked_flops(attention, s, spec.window) for s in sizes])
    formula = [morph.count(one).flops(s) for s in sizes]
    per_pair = 4 * heads * attention.width
    ratio = dense[-1] / blocks[-1]
    return Frame(
        key=key,
        title=title,
        caption=f"Twice the text: dense scores cost four times as much, windowed ones twice. At {sizes[-1]:,} tokens "
        f"blocks of {spec.window} save a factor of {ratio:.0f}.",
        alt=f"FLOPs of one layer's attention against tokens, both logarithmic. The dense line rises with slope two "
        f"from {dense[0]:,} to {dense[-1]:,}; the one in blocks of a window with slope one to {blocks[-1]:,}; the "
        "pairs in sight lie just below it.",
        claim=Claim(text="Counted dense work is 4 H Dh s²; in blocks it doubles with the text.", holds=_work_holds),
        arrays={
            "tokens": Array(values=np.array(sizes), axes=("size",), source="tokens in the text"),
            "dense": Array(
                values=dense, axes=("size",), source="FlopCounterMode on the layer in plain form: its batched products",
            ),
            "blocked": Array(
                values=blocks, axes=("size",), source="FlopCounterMode on plain attention, a window's block at a time",
            ),
            "dense_formula": Array(
                values=np.array([f.scores_dense for f in formula]), axes=("size",),
                source="count().flops().scores_dense",
            ),
            "visible_formula": Array(
                values=np.array([f.scores for f in formula]), axes=("size",), source="count().flops().scores",
            ),
        },
        facts={"aside": f"one layer, window {spec.window}", "window": spec.window, "per_pair": per_pair},
        source="Discs: counted by torch on plain matrix products. Dashes: a formula that tests compare with the masks.",
    )  # fmt: skip


def _work_holds(frame: Frame) -> bool:
    at = {name: array.values for name, array in frame.arrays.items()}
    s, w, per_pair = at["tokens"], frame.facts["window"], frame.facts["per_pair"]
    square = np.array_equal(at["dense"], per_pair * s * s) and np.array_equal(at["dense"], at["dense_formula"])
    whole = s % w == 0
    blocks = np.maximum(s // w, 1)
    line = np.array_equal(at["blocked"][whole], (per_pair * w * w * (2 * blocks - 1))[whole])
    return bool(square and line and (at["visible_formula"] <= at["blocked"]).all())
