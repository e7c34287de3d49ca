"""The loss curves of a training, as a frame: what a notebook's monitor shows while models learn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np

from morph.forks import CHANGES
from morph.steps import SLUGS
from morph.story.frame import Array, Claim, Frame
from morph.train.background import Curve

POINTS = 30
"""Of a curve at most: a point is the mean of the batches of a few steps."""
DASHES = 4
"""Patterns of a line, for curves of one colour."""


def training(curves: Iterable[Curve], seed: int) -> Frame:
    """The curves as they stand.

    Arrays: `points` (model, point), the last step of each point, and `bits`, the mean bits per byte of its batches;
    `measured` (model, point) and `held_out`, where the held-out text was read. What is not there yet is NaN. Facts:
    `models`, for each its `name`, `mark` (a stage's number, else a letter), `role` and `dash`; `steps` of each; `taken`
    so far.
    """
    shown = list(curves)
    steps = shown[0].steps
    batches, measured = [_points(curve) for curve in shown], [curve.held_out for curve in shown]
    bits = [[y for _, y in points] for points in batches]
    several = f"{len(shown)} models" if len(shown) > 1 else "One model"
    done = sum(curve.is_done for curve in shown)
    return Frame(
        key="training",
        title="Loss while training",
        caption=f"{several}, {steps} steps each, from seed {seed}; {done} done. Lines: their batches. "
        f"Numbers: held-out text.",
        alt=f"Bits per byte against training steps, a line a model, marked at its end with a stage's number or a "
        f"letter. {several}, {steps} steps each.",
        claim=Claim(
            text="Points come in the order of the steps, none beyond the last; losses are positive.", holds=_holds
        ),
        arrays={
            "points": _padded([[x for x, _ in points] for points in batches], "metrics: step"),
            "bits": _padded(bits, "metrics: bits_per_byte"),
            "measured": _padded([list(found) for found in measured], "metrics: step"),
            "held_out": _padded([list(found.values()) for found in measured], "metrics: validation_bits_per_byte"),
        },
        facts={
            "models": _marked([curve.name for curve in shown]), "steps": steps,
            "taken": [len(curve.reports) for curve in shown],
        },
        source="Each trained by the same recipe on the same text; one seed shows no spread",
    )  # fmt: skip


def _points(curve: Curve) -> list[tuple[int, float]]:
    """Steps in groups of equal size: the last step of each, and the mean of their losses."""
    bits, size = curve.bits_per_byte, -(-curve.steps // POINTS)
    groups = (bits[at : at + size] for at in range(0, len(bits), size))
    ends: list[tuple[int, float]] = []
    for group in groups:
        ends.append((len(group) + (ends[-1][0] if ends else 0), float(np.mean(group))))
    return ends


def _padded(rows: Sequence[Sequence[float]], source: str) -> Array:
    grid = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, values in zip(grid, rows):
        row[: len(values)] = values
    return Array(values=grid, axes=("model", "point"), source=source)


def _marked(names: Sequence[str]) -> list[dict[str, str | int]]:
    """Each model's mark, colour and dash: a stage has the colour of its step, as in the figures."""
    letters, used = (chr(97 + i % 26) for i in count()), dict[str, int]()
    models: list[dict[str, str | int]] = []
    for name in names:
        mark = str(SLUGS.index(name)) if name in SLUGS else next(letters)
        role = CHANGES[name].role if name in CHANGES else "ink"
        models.append({"name": name, "mark": mark, "role": role, "dash": used.get(role, 0) % DASHES})
        used[role] = used.get(role, 0) + 1
    return models


def _holds(frame: Frame) -> bool:
    for steps, losses in (("points", "bits"), ("measured", "held_out")):
        x, y = frame.values(steps), frame.values(losses)
        there = ~np.isnan(x)
        in_order = bool((np.diff(x, axis=1)[there[:, 1:]] > 0).all()) and bool((x[there] <= frame.facts["steps"]).all())
        if not (in_order and bool((there == ~np.isnan(y)).all()) and bool((y[there] > 0).all())):
            return False
    return True
