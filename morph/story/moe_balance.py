"""Frames 9 to 11 of figure 8: how full the experts were over a training run, left alone, with a loss, with a bias.

Arrays of a frame: `load` (stretch, expert), each expert's share of the choices between two validations over an even
share; `steps` (stretch,); `fullest` (stretch, layer), the fullest expert's load in every routed layer; `bias` (stretch,
expert) in frame 11; `fullest_before`, the last number of the frame before, where runs are compared. Facts: `layer`,
`top_k`, `possible` (E / k, the load of an expert that every token chooses), `starved` (under a quarter), `bits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from morph.config import AuxiliaryLoss, MoE, SelectionBias
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.measured import by_seed, run
from morph.story.moe_layer import middle_layer, named, routed_layers
from morph.story.subject import Subject

STARVED = 0.25
"""An expert with less than this share of its even load is called starved."""
KINDS = ("none", "loss", "bias")
RECORDINGS = {"none": "experts-unbalanced", "loss": "experts-auxiliary", "bias": "experts"}
KEYS = {"none": "collapse", "loss": "auxiliary-loss", "bias": "selection-bias"}
TITLES = {
    "none": "Left alone, routing grows uneven",
    "loss": "A loss against uneven use",
    "bias": "A bias on the choice",
}
LAB = "router-collapse"
LAB_ARMS = {"loss": "auxiliary loss", "bias": "bias, step 0.003"}
"""What the lab's experiment calls its arms."""
WORDS = {"none": "nothing", "loss": "an auxiliary loss", "bias": "a selection bias"}


@dataclass(frozen=True)
class Loads:
    """How the experts of one layer were used over a training run: S stretches between validations.

    Attributes:
        layer: its number among all layers.
        steps: (S,), the step at which each stretch ends.
        load: (S, E), each expert's share of the choices over an even share; 1 is even.
        bias: (S, E), selection biases at those steps, or None.
        fullest: (S, layers), the fullest expert's load in every routed layer.
        bits: bits per byte on held-out text at the end.
    """

    layer: int
    steps: np.ndarray
    load: np.ndarray
    bias: np.ndarray | None
    fullest: np.ndarray
    bits: float

    @property
    def peak(self) -> float:
        """The fullest expert's load in the last stretch."""
        return float(self.load[-1].max())

    @property
    def starved(self) -> int:
        """Experts with less than `STARVED` of an even share in the last stretch."""
        return int((self.load[-1] < STARVED).sum())


def loads(subject: Subject) -> Loads | None:
    """The recorded loads of the middle routed layer; None when no training of it was recorded."""
    records = [record for record in subject.metrics if record.get("expert_load")]
    layers = routed_layers(subject)
    if not records or not layers:
        return None
    shares = np.array([record["expert_load"] for record in records])  # (S, layers, E)
    relative = shares / shares.mean(axis=-1, keepdims=True)
    at = layers.index(middle_layer(subject))
    biases = [record.get("selection_bias") for record in records]
    return Loads(
        layer=middle_layer(subject),
        steps=np.array([record["step"] for record in records]),
        load=relative[:, at],
        bias=np.array(biases)[:, at] if all(biases) else None,
        fullest=relative.max(axis=-1),
        bits=float(records[-1]["validation_bits_per_byte"]),
    )


def kind_of(moe: MoE) -> str:
    """How a model's load is balanced: "none", "loss" or "bias"."""
    if isinstance(moe.balance, SelectionBias):
        return "bias"
    return "loss" if isinstance(moe.balance, AuxiliaryLoss) else "none"


def balance_frames(subjects: Mapping[str, Subject]) -> tuple[Frame, ...]:
    """The three frames. `subjects` maps kinds to trained models; a reader's own model is alone under its kind."""
    before: Loads | None = None
    frames = []
    for kind in KINDS:
        found = loads(subjects[kind]) if kind in subjects else None
        if found is None:
            frames.append(absent(KEYS[kind], TITLES[kind], _why(kind, subjects)))
        else:
            frames.append(_frame(kind, subjects[kind], found, before, compared=len(subjects) > 1))
        before = found
    return tuple(frames)


def _why(kind: str, subjects: Mapping[str, Subject]) -> str:
    if not subjects:
        return "How this model was trained is not known here, nor how full its experts were: give a run."
    if kind in subjects:
        return "No training of this model was recorded, so how full its experts were is not known: give a run."
    return f"This model's load was balanced by {WORDS[next(iter(subjects))]}, not by {WORDS[kind]}."


def _frame(kind: str, subject: Subject, found: Loads, before: Loads | None, compared: bool) -> Frame:
    moe = subject.config.moe
    assert moe is not None
    of = "metrics of the run: expert_load"
    arrays = {
        "steps": Array(values=found.steps, axes=("stretch",), source="metrics of the run: step"),
        "load": Array(values=found.load.round(4), axes=("stretch", "expert"), source=f"{of}, layer {found.layer}"),
        "fullest": Array(values=found.fullest.round(4), axes=("stretch", "layer"), source=of),
    }
    if found.bias is not None:
        source = f"metrics of the run: selection_bias, layer {found.layer}"
        arrays["bias"] = Array(values=found.bias.round(6), axes=("stretch", "expert"), source=source)
    if before is not None:
        arrays["fullest_before"] = Array(values=np.array(before.peak), axes=(), source="the run of the frame before")
    if compared:
        arrays["lab"] = lab(kind)
    facts: dict[str, Any] = {
        "aside": f"layer {found.layer}, {found.steps[-1]:,} steps",
        "layer": found.layer, "n_experts": moe.n_experts, "top_k": moe.top_k, "n_shared": moe.n_shared,
        "possible": moe.n_experts / moe.top_k, "starved": found.starved, "bits": found.bits, "kind": kind,
    }  # fmt: skip
    return Frame(
        key=KEYS[kind],
        title=TITLES[kind],
        caption=_caption(kind, moe, found, before, arrays.get("lab")),
        alt=_alt(moe, found),
        claim=_claim(kind if compared else ""),
        arrays=arrays,
        facts=facts,
        source=f"{named(subject)}: {found.bits:.3f} bits per byte on held-out text. Loads from its metrics.",
    )


def lab(kind: str) -> Array:
    """What the lab read with every seed: dead experts where nothing balances, else the fullest, with none in row 0."""
    if kind == "none":
        return by_seed(LAB, ("none",), "dead experts")
    return by_seed(LAB, ("none", LAB_ARMS[kind]), "fullest expert over even")


def _caption(kind: str, moe: MoE, found: Loads, before: Loads | None, lab: Array | None) -> str:
    peak, starved, n = found.peak, found.starved, moe.n_experts
    if kind == "none":
        most = moe.n_experts / moe.top_k
        dead = int((found.load[-1] == 0).sum())
        alive = "None is dead: a partial collapse." if starved else "No collapse."
        if lab is not None:
            return (
                f"The fullest expert ends at {peak:.1f} times an even share; {starved} of {n} get under a quarter. "
                f"In the lab ({lab.values.shape[1]} seeds) {lab.values.mean():.1f} of {_lab_experts()} get under a "
                "tenth."
            )
        end = f"{dead} {'gets' if dead == 1 else 'get'} nothing." if dead else alive
        return (
            f"The fullest expert ends at {peak:.1f} times an even share, of {most:.1f} possible; "
            f"{starved} of {n} get under a quarter. {end}"
        )
    if kind == "loss":
        assert isinstance(moe.balance, AuxiliaryLoss)
        if before is None or lab is None:
            return (
                f"A loss asks for even use. The fullest expert ends at {peak:.1f} times an even share; {starved} of "
                f"{n} get under a quarter."
            )
        return (
            f"{moe.balance.coefficient:g} times a loss on uneven use: the fullest expert ends at {peak:.1f}, not "
            f"{before.peak:.1f} times an even share. {_in_the_lab(lab)}, not {lab.values[0].mean():.1f}."
        )
    there = "" if lab is None else f" {_in_the_lab(lab)}."
    return (
        f"An overfull expert's bias falls, an underfull one's rises; only the choice sees it. "
        f"The fullest ends at {peak:.2f} times an even share.{there}"
    )


def _in_the_lab(lab: Array) -> str:
    return f"In the lab ({lab.values.shape[1]} seeds) {lab.values[1].mean():.1f}"


def _lab_experts() -> int:
    return int(run(LAB).declared["config"]["feed_forward"]["n_experts"])


def _alt(moe: MoE, found: Loads) -> str:
    first, last = found.load[0], found.load[-1]
    map_ = (
        f"A heat map, one column for each of {moe.n_experts} experts, one row for each of {len(found.steps)} stretches "
        f"of training up to step {found.steps[-1]:,}. The fullest expert's load goes from {first.max():.2f} to "
        f"{last.max():.2f} times an even share, the emptiest's from {first.min():.2f} to {last.min():.2f}."
    )
    if found.bias is None:
        return f"{map_} Under it a bar for each expert shows the last row."
    low, high = found.bias[-1].min(), found.bias[-1].max()
    return (
        f"{map_} Under it a map of the selection biases over the same steps, ending between {low:.3f} and {high:.3f}."
    )


# ---- claims ----


def _even_on_average(frame: Frame) -> bool:
    load = frame.values("load")
    return bool(np.allclose(load.mean(axis=1), 1, atol=1e-3) and load.min() >= 0)


def _falls(frame: Frame) -> bool:
    return bool(frame.values("load")[-1].max() < frame.values("fullest_before"))


def _falls_in_the_lab(frame: Frame) -> bool:
    without, balanced = frame.values("lab")
    return bool((balanced < without).all())


def _moves_against(frame: Frame) -> bool:
    """Experts that were fuller than others, summed over the run, ended with the lower bias."""
    load, bias = frame.values("load").sum(axis=0), frame.values("bias")[-1]
    return bool(np.corrcoef(load, bias)[0, 1] < -0.5)


def _claim(kind: str) -> Claim:
    """Of runs that are compared more is claimed than of a reader's own ("" for its kind), which may be short."""
    if kind == "none":
        return Claim(
            text="At the end the fullest expert has over twice an even share, and some have under a quarter; in the "
            "lab some are all but idle, with every seed.",
            holds=lambda f: (
                _even_on_average(f)
                and bool(f.values("load")[-1].max() > 2)
                and f.facts["starved"] == int((f.values("load")[-1] < STARVED).sum()) > 0
                and bool((f.values("lab") > 0).all())
            ),
        )
    if kind == "loss":
        return Claim(
            text="The loss makes the load more even than nothing does, in the lab too, and leaves it uneven.",
            holds=lambda f: (
                _even_on_average(f) and _falls(f) and _falls_in_the_lab(f) and bool(f.values("load")[-1].max() > 1.25)
            ),
        )
    if kind == "bias":
        return Claim(
            text="The bias makes the load more even than the loss does, moves against the load, and helps in the lab.",
            holds=lambda f: _even_on_average(f) and _falls(f) and _falls_in_the_lab(f) and _moves_against(f),
        )
    return Claim(text="Loads average to an even share in every stretch.", holds=_even_on_average)
