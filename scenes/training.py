"""A still of a training: its curves, each named at its end, for readers whose viewer runs no widget."""

from __future__ import annotations

import numpy as np

from morph.story import Frame
from scenes.board import Board
from scenes.charts import Axes, axes, line, polylines
from scenes.chrome import chrome
from scenes.fig02_parts import spread
from scenes.shape import Box
from scenes.theme import Theme
from scenes.type import label

PLOT: Box = (-6.1, -2.1, 3.2, 2.75)
NAMES_AT, BOTTOM, TOP = 3.75, -2.5, 3.0
PITCH = 0.31
"""Units between two names, one above the other."""
LETTERS = 25
"""Of a name and its number, at most."""
CEILING = 10.0
"""Bits per byte; a guess that knows nothing has 8. What lies above is drawn at the edge."""


def training(frame: Frame, theme: Theme) -> Board:
    """Lines of the batches; names, with the last reading of the held-out text, in the order of the lines' ends."""
    board = Board()
    chrome(board, frame, theme, "")
    points, bits = frame.values("points"), np.minimum(frame.values("bits"), CEILING)
    low, high = limits(bits)
    area = Axes(PLOT, (0, frame.facts["steps"]), (low, high))
    ticks = [low + i for i in range(int(high - low) + 1)]
    axes(
        board, "plot", theme, area, x_label="training steps", y_label="bits per byte",
        x_ticks=sorted({0, frame.facts["steps"] // 2, frame.facts["steps"]}), y_ticks=ticks,
    )  # fmt: skip
    ends = {}
    for i, model in enumerate(frame.facts["models"]):
        there = np.flatnonzero(~np.isnan(bits[i]))
        if not there.size:
            continue
        dash = bool(model["dash"] % 2)
        line(board, f"curve{i}", theme, area, points[i], bits[i], model["role"], width=2.5, dash=dash)
        ends[str(i)] = area.point(float(points[i, there[-1]]), float(bits[i, there[-1]]))
    for i, y in _heights({key: end[1] for key, end in ends.items()}).items():
        model, held_out = frame.facts["models"][int(i)], frame.values("held_out")[int(i)]
        known = held_out[~np.isnan(held_out)]
        way = [ends[i], (PLOT[2] + 0.1, ends[i][1]), (NAMES_AT - 0.08, y)]
        board.put(f"lead{i}", polylines(theme, [way], "ghost", 1))
        number = f"  {known[-1]:.2f}" if known.size else ""
        words = f"{model['mark']}  {_cut(model['name'], number)}{number}"
        board.put(f"curve{i}:name", label(words, "floor", theme.colour("ink")).at(NAMES_AT, y))
    return board


def _heights(ends: dict[str, float]) -> dict[str, float]:
    """Where the names stand: beside the ends of their lines, apart from each other, and all on the stage."""
    apart, last = spread(ends, PITCH), len(ends) - 1
    return {
        key: min(max(y, BOTTOM + i * PITCH), TOP - (last - i) * PITCH)  # these keep what is apart apart
        for i, (key, y) in enumerate(apart.items())
    }


def _cut(name: str, number: str) -> str:
    """A name with room for its number beside it."""
    most = LETTERS - len(number)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def limits(values: np.ndarray) -> tuple[float, float]:
    """Whole bits around what there is."""
    known = values[~np.isnan(values)]
    if not known.size:
        return 0.0, CEILING
    low = float(np.floor(known.min()))
    return low, max(float(np.ceil(known.max())), low + 1)
