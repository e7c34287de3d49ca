"""Frames 9 to 13 of figure 2: one config with its norms in five places, as initialized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps

import numpy as np
import torch

import morph
from morph.config import Placement
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.measured import by_seed, run, trained
from morph.story.residual_kit import FEATURES, Material, make, near, numbers
from morph.story.stream import Stream, divisions, gradients, louder, passed_on, rebuilt
from morph.story.subject import Subject, siblings
from morph.story.written import small, times

PLACEMENTS: tuple[Placement, ...] = ("post", "pre", "sandwich", "post-branch", "depth-scaled-sandwich")
NAMES: dict[str, str] = {
    "post": "post-norm",
    "pre": "pre-norm",
    "sandwich": "sandwich",
    "post-branch": "post-branch",
    "depth-scaled-sandwich": "sandwich, gain 1/√L",
}
"""A placement in words."""
LAB = "stream-growth"
"""The experiment of the lab that trained these placements, at 24 layers."""
MOST_BUILT = 50_000_000
"""Parameters of a model that these frames build five times over."""
FACTORS = (1.0, 2.0, 4.0, 8.0)
"""How much larger the last matrix of every branch is made."""


def placed(source: Subject) -> list[Subject]:
    """The subject's config with its norms in each place, untrained; none where five of them would be too much."""
    if morph.count(source.config).total > MOST_BUILT:
        return []
    bare = replace(source.config, residual=None, mtp=None)
    return siblings(source, [replace(bare, placement=placement) for placement in PLACEMENTS])


def small_enough(key: str, title: str) -> Callable[[Callable[[Material], Frame]], Callable[[Material], Frame]]:
    """Let a frame say that the model is too large, where none was built beside it."""

    def wrap(draw: Callable[[Material], Frame]) -> Callable[[Material], Frame]:
        @wraps(draw)
        def frame(m: Material) -> Frame:
            if m.placed:
                return draw(m)
            size = morph.count(m.it.subject.config).total
            return absent(
                key, title,
                f"This frame builds the model five times over, untrained, its norms in five places. With {size:,} "
                f"parameters it is above the {MOST_BUILT:,} that are built for a picture.",
            )  # fmt: skip

        return frame

    return wrap


@small_enough("post-norm", "Post-norm rescales at every write")
def post_norm(m: Material) -> Frame:
    """The stream of the 2017 placement: rescaled at every write."""
    stream = m.placed["post"]
    arrays, left = _carried(stream)
    writes = len(stream.deltas)
    return make(
        m,
        "placed",
        key="post-norm",
        title="Post-norm rescales at every write",
        caption=f"Every norm divides the whole stream, old and new alike. Its RMS stays at {stream.sizes[-1]:.1f}; "
        f"after {writes} of them, x₀ is left with a factor of {small(left) if left < 0.01 else f'{left:.2g}'}.",
        alt=f"The stream through {m.it.subject.config.n_layers} layers, equally strong everywhere; below, on a "
        f"logarithmic axis, its RMS is flat at 1 while the factor on x₀ falls to {left:.0e}.",
        claim=Claim(
            text="The RMS stays at 1, x₀'s factor falls at every write and ends under 1/(1 + L); the weighted parts "
            "add up to the last state.",
            holds=lambda f: (
                float(np.abs(f.values("rms")[1:] - 1).max()) < 0.01
                and bool((np.diff(f.values("left")) < 0).all())
                and float(f.values("left")[-1]) < 1 / (1 + f.facts["layers"])
                and float(f.values("error")) < 1e-4
            ),
        ),
        plain=Claim(
            text="The RMS stays at 1, and the weighted parts add up to the last state.",
            holds=lambda f: float(np.abs(f.values("rms")[1:] - 1).max()) < 0.01 and float(f.values("error")) < 1e-4,
        ),
        arrays=arrays,
        facts={"placement": "post"},
    )


@small_enough("pre-norm", "Pre-norm keeps x₀ and grows")
def pre_norm(m: Material) -> Frame:
    """The stream of pre-norm: nothing divides it, and it grows."""
    stream = m.placed["pre"]
    arrays, left = _carried(stream)
    low, high = float(stream.sizes[0]), float(stream.sizes[-1])
    return make(
        m,
        "placed",
        key="pre-norm",
        title="Pre-norm keeps x₀ and grows",
        caption=f"With norms on the branches nothing divides the stream: x₀ keeps its factor of {left:g}, and the RMS "
        f"grows {high / low:.1f}-fold, from {low:.1f} to {high:.1f}.",
        alt=f"The stream through {m.it.subject.config.n_layers} layers, its values growing; below, the factor on x₀ is "
        f"flat at 1 while the RMS rises from {low:.1f} to {high:.1f}.",
        claim=Claim(
            text="The factor on x₀ is 1 throughout, the parts add up to the last state, and the RMS more than doubles.",
            holds=lambda f: (
                bool((f.values("left") == 1).all())
                and float(f.values("error")) < 1e-4
                and float(f.values("rms")[-1]) > 2 * float(f.values("rms")[0])
            ),
        ),
        plain=Claim(
            text="The factor on x₀ is 1 throughout, and the parts add up to the last state.",
            holds=lambda f: bool((f.values("left") == 1).all()) and float(f.values("error")) < 1e-4,
        ),
        arrays=arrays,
        facts={"placement": "pre"},
    )


def _carried(stream: Stream) -> tuple[dict[str, Array], float]:
    """The states, their sizes, and the factor that x_0 still has at each of them; and that factor at the end."""
    left = torch.cat([torch.zeros(1), divisions(stream).log().cumsum(0).mean(1)]).exp()
    arrays = {
        "depth": numbers(stream.depth, ("state",), "layers before the state"),
        "states": numbers(
            stream.states[::2, -1, :FEATURES].T, ("feature", "layers passed"), "stream, blocks.*.stream", 4
        ),
        "rms": numbers(stream.sizes, ("state",), "RMS over tokens and features of every state"),
        "left": numbers(left, ("state",), "product of 1/RMS over the norms on the stream, geometric mean over tokens"),
        "error": numbers(
            float((rebuilt(stream, passed_on(stream)) - stream.states[-1]).abs().max()),
            (),
            "largest |Σ factor × part - last state|, fp32",
        ),
    }
    return arrays, float(left[-1])


@small_enough("bounded", "A norm that bounds each delta")
def bounded(m: Material) -> Frame:
    """Deltas when branches get louder, with and without a norm behind the branch."""
    names = ("pre", "sandwich", "post-branch")
    sizes = {n: torch.stack([louder(m.placed[n].subject, f).square().mean().sqrt() for f in FACTORS]) for n in names}
    growth = float(sizes["pre"][-1] / sizes["pre"][0])
    return make(
        m,
        "placed",
        key="bounded",
        title="A norm that bounds each delta",
        caption=f"Make each branch’s last matrix {FACTORS[-1]:.0f} times larger: pre-norm’s deltas grow "
        f"{growth:.1f}-fold. A norm behind the branch, alone or in a sandwich, keeps them at "
        f"{sizes['sandwich'][-1]:.2f}.",
        alt="RMS of the deltas against the factor on the last matrix of every branch, both logarithmic: pre-norm "
        f"rises {growth:.1f}-fold, sandwich and post-branch stay at {sizes['sandwich'][-1]:.2f}.",
        claim=Claim(
            text="Louder branches write louder deltas in pre-norm, and the same ones where a norm follows the branch.",
            holds=lambda f: (
                float(f.values("pre")[-1] / f.values("pre")[0]) > 0.5 * FACTORS[-1]
                and near(f.values("sandwich"), f.values("sandwich")[:1], 0.01)
                and near(f.values("post-branch"), f.values("post-branch")[:1], 0.01)
            ),
        ),
        arrays={
            "factor": numbers(np.array(FACTORS), ("factor",), "multiplies the output of every branch's last matrix"),
            **{n: numbers(v, ("factor",), "RMS of all blocks.*.*_delta") for n, v in sizes.items()},
        },
    )


def descents(m: Material, names: Sequence[str]) -> dict[str, Array]:
    """The gradient's length at the stream after each layer, over that at the top, for each placement."""
    source = "‖∂ loss / ∂ stream‖ after each layer, over that at the top"
    found = {name: gradients(m.placed[name].subject) for name in names}
    return {name: numbers(g / g[-1], ("layers passed",), source) for name, g in found.items()}


@small_enough("gradient", "The gradient that reaches layer 1")
def backward(m: Material) -> Frame:
    """The gradient on its way down, by placement."""
    lengths = descents(m, PLACEMENTS)
    down = {name: float(array.values[1]) for name, array in lengths.items()}
    direction = "grows" if min(down.values()) > 1 else "changes"
    post, pre, scaled = (times(down[name]) for name in ("post", "pre", "depth-scaled-sandwich"))
    return make(
        m,
        "placed",
        key="gradient",
        title="The gradient that reaches layer 1",
        caption=f"The gradient {direction} on its way down. At layer 1 it is {post} times the top’s under post-norm, "
        f"{pre} times under pre-norm, {scaled} with gains of 1/√L.",
        alt="Length of the loss's gradient at the stream after each layer, relative to the top, on a logarithmic axis. "
        "At layer 1: " + ", ".join(f"{NAMES[name]} {times(value)}" for name, value in down.items()) + ".",
        claim=Claim(
            text="Relative to the top, the gradient at layer 1 is largest under post-norm, over 5 times pre-norm's, "
            "and smallest with gains of 1/√L.",
            holds=lambda f: (
                float(f.values("post")[1]) > 5 * float(f.values("pre")[1])
                and float(f.values("depth-scaled-sandwich")[1])
                < 0.5 * min(float(f.values(n)[1]) for n in PLACEMENTS[:4])
                and all(float(f.values(n)[-1]) == 1 for n in PLACEMENTS)
            ),
        ),
        plain=Claim(
            text="The gradient at the top is the measure, 1 under every placement.",
            holds=lambda f: all(float(f.values(n)[-1]) == 1 for n in PLACEMENTS),
        ),
        arrays=lengths,
        facts={"names": NAMES},
    )


@small_enough("depth-scaled", "A gain of 1/√L")
def depth_scaled(m: Material) -> Frame:
    """Second norms that start with a gain of 1/√L."""
    plain, scaled = m.placed["sandwich"], m.placed["depth-scaled-sandwich"]
    layers = m.it.subject.config.n_layers
    first, depth = plain.sizes[0].square(), plain.depth.double()
    walks = {"sandwich": (first + 2 * depth).sqrt(), "depth-scaled-sandwich": (first + 2 * depth / layers).sqrt()}
    write = float(scaled.writes.square().mean().sqrt())
    ends = {name: float(m.placed[name].sizes[-1]) for name in walks}
    lab = by_seed(LAB, ("sandwich", "depth-scaled sandwich"), "trained last size")
    one, small_one = lab.values.mean(axis=1).tolist()
    return make(
        m,
        "placed",
        key="depth-scaled",
        title="A gain of 1/√L",
        caption=f"Gains of 1/√{layers} make every write {write:.2f}: {2 * layers} of them add up to "
        f"{ends['depth-scaled-sandwich']:.2f}, writes of 1 to {ends['sandwich']:.1f}. "
        f"After {run(LAB).declared['recipe']['steps']} steps in the lab: {small_one:.1f} against {one:.0f}.",
        alt=f"RMS of the stream by depth for two sandwiches: gains of 1 reach {ends['sandwich']:.1f}, gains of 1/√L "
        f"reach {ends['depth-scaled-sandwich']:.2f}. Dashed: independent writes of that size. At the right the last "
        f"RMS in trained models of the lab, a dot a seed: {one:.1f} and {small_one:.1f} on average.",
        claim=Claim(
            text="Both end within 15 % of what independent writes of RMS 1 and 1/√L add up to; in the lab the one with "
            "small gains stays below half of the other, with every seed.",
            holds=lambda f: (
                all(abs(float(f.values(name)[-1] / f.values(f"{name} walk")[-1]) - 1) < 0.15 for name in walks)
                and bool((f.values("lab")[1] < f.values("lab")[0] / 2).all())
            ),
        ),
        arrays={
            "depth": numbers(depth, ("state",), "layers before the state"),
            **{n: numbers(m.placed[n].sizes, ("state",), "RMS over tokens and features of every state") for n in walks},
            **{f"{n} walk": numbers(w, ("state",), "√(r₀² + 2ℓ gain²)") for n, w in walks.items()},
            "lab": lab,
        },
        facts={
            "names": NAMES,
            "write": round(write, 4),
            "lab": trained(LAB),
            "lab_layers": run(LAB).declared["config"]["n_layers"],
        },
    )
