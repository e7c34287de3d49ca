"""Frames 3 to 9 of figure 4: one config with its norms in four places, as initialized, and trainings at depth.

Frames 3 to 6 follow attention in the middle layer. Facts: `placement`, `sizes` (RMS of the stream before, of what
attention reads, of what it writes, of the stream after), `left` (the factor that x_0 keeps in the last state), `last`
(RMS of the last state), `who` (systems that were released so).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from morph.lab.needs import BYTE_FREQUENCIES
from morph.story.frame import Claim, Frame
from morph.story.measured import by_seed, run
from morph.story.residual_kit import Material, make, near, numbers
from morph.story.residual_norms import NAMES, descents, small_enough
from morph.story.stream import passed_on, rms
from morph.story.written import small, times

PLACES = ("post", "pre", "sandwich", "post-branch")
"""The four places; a fifth, with small gains in a sandwich, is in figure 2."""
WHO = {
    "post": "the Transformer of 2017",
    "pre": "GPT-2, Llama, Qwen3, DeepSeek-V3",
    "sandwich": "Gemma 2 and 3, Trinity Large",
    "post-branch": "OLMo 2, Olmo 3",
}
"""Released systems, from their configs."""
LAB = "warm-up"
DEPTHS = (12, 24)


def _half(m: Material, placement: str) -> dict[str, Any]:
    """What attention of the middle layer reads and writes."""
    stream = m.placed[placement]
    layer = stream.subject.config.n_layers // 2
    before, after = stream.states[2 * layer], stream.states[2 * layer + 1]
    with torch.no_grad():  # the norm on the branch, where there is one before attention
        own: Any = stream.subject.model.blocks[layer].attention_norm
        copy = own(before) if placement in ("pre", "sandwich") else before
    sizes = {
        name: round(float(rms(x[None])[0]), 4)
        for name, x in (("before", before), ("copy", copy), ("delta", stream.deltas[2 * layer]), ("after", after))
    }
    return {
        "placement": placement, "sizes": sizes, "layer": layer, "who": WHO[placement],
        "left": float(passed_on(stream)[0].mean()), "last": float(stream.sizes[-1]),
    }  # fmt: skip


def _place(
    m: Material, placement: str, *, title: str, caption: str, alt: str, claim: Claim, plain: Claim | None = None
) -> Frame:
    stream, facts = m.placed[placement], _half(m, placement)
    return make(
        m,
        "placed",
        key=placement,
        title=title,
        caption=caption,
        alt=alt,
        claim=claim,
        plain=plain,
        arrays={
            "states": numbers(stream.sizes, ("state",), "RMS over tokens and features of every state"),
            "writes": numbers(stream.writes, ("write",), "RMS of every delta"),
            "left": numbers(facts["left"], (), "product of what all norms multiply x₀ by, mean over tokens"),
        },
        facts=facts,
    )


@small_enough("post", "2017: on the stream")
def post(m: Material) -> Frame:
    """The norm stands on the identity path."""
    facts = _half(m, "post")
    return _place(
        m,
        "post",
        title="2017: on the stream",
        caption=(
            f"The norm takes stream and delta together, and rescales both. After {2 * m.it.subject.config.n_layers} "
            f"of them x₀ keeps a factor of {small(facts['left'])}; nothing passes unchanged."
        ),
        alt="A stream with a branch: attention reads the stream itself, its delta is added, and a norm stands on the "
        "stream behind the addition.",
        claim=Claim(
            text="Every state behind a norm has a root mean square of 1; each leaves x₀ less than 85 %, on average.",
            holds=lambda f: (
                near(f.values("states")[1:], np.ones_like(f.values("states")[1:]), 0.02)
                and float(f.values("left")) < 0.85 ** (len(f.values("states")) - 1)
            ),
        ),
        plain=Claim(
            text="Every state behind a norm has a root mean square of 1.",
            holds=lambda f: near(f.values("states")[1:], np.ones_like(f.values("states")[1:]), 0.02),
        ),
    )


@small_enough("pre", "2019: on the branch")
def pre(m: Material) -> Frame:
    """The branch reads a normed copy."""
    facts = _half(m, "pre")
    return _place(
        m,
        "pre",
        title="2019: on the branch",
        caption=(
            "Attention reads a normed copy; the stream runs through untouched, and x₀ keeps its factor of 1. "
            f"The price: it grows, here to {facts['last']:.1f}, and needs a final norm."
        ),
        alt="The norm has moved onto the branch, before attention. On the stream nothing stands but the addition.",
        claim=Claim(
            text="x₀ keeps a factor of 1, and the stream ends larger than it began.",
            holds=lambda f: float(f.values("left")) == 1 and f.values("states")[-1] > f.values("states")[0],
        ),
    )


@small_enough("sandwich", "At both ends")
def sandwich(m: Material) -> Frame:
    """A second norm bounds what the branch writes."""
    facts = _half(m, "sandwich")
    return _place(
        m,
        "sandwich",
        title="At both ends",
        caption=(
            f"A second norm, behind attention: whatever the branch computes, it writes a delta of "
            f"{facts['sizes']['delta']:.2f}, its gain. Twice as many norms stand in a block."
        ),
        alt="The norm before attention stays; a second stands behind attention, before the addition.",
        claim=Claim(
            text="Every delta has a root mean square of 1, the gain of the second norm.",
            holds=lambda f: near(f.values("writes"), np.ones_like(f.values("writes")), 0.02),
        ),
    )


@small_enough("post-branch", "Behind the branch alone")
def post_branch(m: Material) -> Frame:
    """Only the second norm stays."""
    facts = _half(m, "post-branch")
    return _place(
        m,
        "post-branch",
        title="Behind the branch alone",
        caption=(
            f"The first norm goes: attention reads the raw stream, {facts['sizes']['copy']:.1f} in size at this layer, "
            f"and writes a bounded delta of {facts['sizes']['delta']:.2f}. x₀ still keeps its factor of 1."
        ),
        alt="The place of the norm before attention is empty, drawn dashed; the one behind attention stays.",
        claim=Claim(
            text="Every delta has a root mean square of 1, and x₀ keeps a factor of 1.",
            holds=lambda f: (
                near(f.values("writes"), np.ones_like(f.values("writes")), 0.02) and float(f.values("left")) == 1
            ),
        ),
    )


@small_enough("gradients", "The gradient on its way down")
def gradient(m: Material) -> Frame:
    """The loss's gradient at every layer, by place."""
    lengths = descents(m, PLACES)
    down = {name: float(array.values[1]) for name, array in lengths.items()}
    told = ", ".join(f"{NAMES[name]} {times(down[name])}" for name in PLACES[1:])
    return make(
        m,
        "placed",
        key="gradients",
        title="The gradient on its way down",
        caption=f"Under post-norm the stream behind layer 1 gets {times(down['post'])} times the gradient of the top; "
        f"elsewhere less: {told}.",
        alt="Length of the loss's gradient at the stream after each layer, relative to the top, on a logarithmic axis, "
        "for four places of the norm. At layer 1: "
        + ", ".join(f"{NAMES[name]} {times(value)}" for name, value in down.items())
        + ".",
        claim=Claim(
            text="Relative to the top, layer 1 gets the largest gradient under post-norm, over 5 times pre-norm's.",
            holds=lambda f: (
                float(f.values("post")[1]) > 5 * float(f.values("pre")[1])
                and all(float(f.values("post")[1]) > float(f.values(name)[1]) for name in PLACES[1:])
            ),
        ),
        plain=Claim(
            text="The gradient at the top is the measure, 1 in every place.",
            holds=lambda f: all(float(f.values(name)[-1]) == 1 for name in PLACES),
        ),
        arrays=lengths,
        facts={"names": {name: NAMES[name] for name in PLACES}},
    )


@small_enough("growth", "The stream on its way up")
def growth(m: Material) -> Frame:
    """The stream's size at every layer, by place."""
    ends = {name: float(m.placed[name].sizes[-1]) for name in PLACES}
    return make(
        m,
        "placed",
        key="growth",
        title="The stream on its way up",
        caption=(
            f"Post-norm holds the stream at {ends['post']:.1f}. Where nothing stands on it, it grows with every write: "
            f"to {ends['pre']:.1f}, {ends['sandwich']:.1f} and {ends['post-branch']:.1f}."
        ),
        alt="RMS of the stream after each layer for four places of the norm. At the end: "
        + ", ".join(f"{NAMES[name]} {value:.2f}" for name, value in ends.items())
        + ".",
        claim=Claim(
            text="Under post-norm the stream ends as large as behind the first norm; everywhere else it grows.",
            holds=lambda f: (
                abs(float(f.values("post")[-1] / f.values("post")[1]) - 1) < 0.02
                and all(float(f.values(name)[-1]) > float(f.values(name)[0]) for name in PLACES[1:])
            ),
        ),
        arrays={
            "depth": numbers(m.placed["pre"].depth, ("state",), "layers before the state"),
            **{
                name: numbers(m.placed[name].sizes, ("state",), "RMS over tokens and features of every state")
                for name in PLACES
            },
        },
        facts={"names": {name: NAMES[name] for name in PLACES}},
    )


def warm_up(m: Material) -> Frame:
    """The lab's trainings of post-norm and pre-norm at two depths, each arm at its best learning rate."""
    arms = tuple(
        name
        for depth in DEPTHS
        for name in (f"post {depth}", f"post {depth}, warm-up", f"pre {depth}", f"pre {depth}, warm-up")
        if name in run(LAB).arms
    )
    bits = by_seed(LAB, arms, "bits per byte")
    mean = dict(zip(arms, bits.values.mean(axis=1).tolist()))
    steps = {d: {**run(LAB).declared["recipe"], **_recipe(f"post {d}")}["steps"] for d in DEPTHS}
    return Frame(
        key="warm-up",
        title="Does depth need a warm-up?",
        caption=(
            f"Twelve layers, best of three rates: post-norm ends at {mean['post 12']:.2f} bits, with warm-up "
            f"{mean['post 12, warm-up']:.2f}{_told()}; pre-norm at {mean['pre 12']:.2f} and "
            f"{mean['pre 12, warm-up']:.2f}. What counts is the place."
        ),
        alt="A row for each model, a dot for each seed, at the bits per byte it ended with. "
        + "; ".join(f"{name}: {value:.2f}" for name, value in mean.items())
        + f". A line marks {BYTE_FREQUENCIES:.2f}, what frequencies of bytes alone give.",
        claim=Claim(
            text="At both depths pre-norm without warm-up ends below post-norm with it, with every seed.",
            holds=_pre_is_ahead,
        ),
        arrays={"bits": bits, "frequencies": numbers(BYTE_FREQUENCIES, (), "entropy of single bytes of the corpus")},
        facts={
            "aside": f"lab, {len(run(LAB).declared['seeds'])} seeds", "arms": list(arms),
            "steps": {str(depth): n for depth, n in steps.items()},
        },
        source=f"Lab, {LAB}: stage 0 with its norms moved; {steps[12]} steps at 12 layers, {steps[24]} at 24.",
    )  # fmt: skip


def _told() -> str:
    """What the lab made of the difference that a warm-up makes to post-norm of 12 layers."""
    arms = ("post 12", "post 12, warm-up")  # each at its own best rate: another claim about them is of one rate
    at_best = [
        found for found in run(LAB).findings if (found.claim.of, found.claim.against) == arms and not found.point
    ]
    return ", within noise" if any(found.verdict.startswith("within noise") for found in at_best) else ""


def _recipe(arm: str) -> dict[str, Any]:
    return next(dict(a["recipe"]) for a in run(LAB).declared["arms"] if a["name"] == arm)


def _pre_is_ahead(frame: Frame) -> bool:
    bits = dict(zip(frame.facts["arms"], frame.values("bits")))
    return bool(all((bits[f"pre {d}"] < bits[f"post {d}, warm-up"]).all() for d in DEPTHS))
