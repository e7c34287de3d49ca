"""What the frames of figure 2 share: the stream, vectors across it, words beside lines that end close together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scenes.board import Board
from scenes.charts import Axes, heat, line
from scenes.parts import tip, wire
from scenes.shape import Box
from scenes.theme import Theme
from scenes.type import label

STREAM = 1.5
"""Height of the stream."""
HALF = 1.32
"""Half the height of a column of features."""
WIDE = 0.3
"""Width of a column that stands alone."""
THICK = 7
"""The stream's width: no other line is as thick."""
LEFT, RIGHT = -6.7, 6.7
MAP: Box = (-5.2, STREAM - HALF, 3.72, STREAM + HALF)
"""Where a map of all states lies on the stream."""
PLOT: Box = (-5.9, -2.05, 3.65, 2.72)
"""Where a plot lies that has the stage for itself; at its right there is room for names."""
POINTS = 145
"""Points of a drawn curve: as many for all, so that one can turn into another. Corners of 24 or 48 steps stay."""
BELOW = 0.25
"""Least distance of two labels one above the other."""


def stream(board: Board, theme: Theme, start: float = LEFT, end: float = RIGHT) -> None:
    """The residual stream, from left to right."""
    board.put("stream", wire(theme, [(start, STREAM), (end - 0.2, STREAM)], "ink", THICK))
    board.put("stream:tip", tip(theme, (end, STREAM), (1, 0), "ink", 0.3))


def column(board: Board, key: str, theme: Theme, vector: np.ndarray, x: float, y: float, limit: float) -> None:
    """A vector as a column of cells centred at (x, y), feature 0 at the top."""
    at = (x - WIDE / 2, y - HALF, x + WIDE / 2, y + HALF)
    heat(board, key, theme, vector[:, None], at, limits=(-limit, limit), signed=True)


def greatest(*arrays: np.ndarray) -> float:
    """The largest magnitude among arrays: the limit of a signed map, to two digits and not below any value."""
    top = max(float(np.abs(a).max()) for a in arrays)
    unit = 10.0 ** (np.floor(np.log10(top)) - 1)
    return float(np.ceil(top / unit) * unit)


def text(
    board: Board, key: str, theme: Theme, words: str, x: float, y: float, anchor: str = "left", *,
    size: str = "floor", ink: bool = True, weight: str = "regular",
) -> None:  # fmt: skip
    """A label in ink, or in the muted colour."""
    board.put(key, label(words, size, theme.colour("ink" if ink else "muted"), weight).at(x, y, anchor))


def named(board: Board, theme: Theme, area: Axes, curves: Mapping[str, np.ndarray], words: Mapping[str, str]) -> None:
    """Write each curve's name at the right of the plot, at the height where it ends; colliding ones move apart."""
    heights = spread({key: area.point(area.x[1], float(ys[-1]))[1] for key, ys in curves.items()})
    for key, name in words.items():
        text(board, f"{key}:name", theme, name, area.at[2] + 0.16, heights[key])


def spread(heights: Mapping[str, float], below: float = BELOW) -> dict[str, float]:
    """Heights moved as little as needed for `below` between any two."""
    order = sorted(heights, key=lambda key: heights[key])
    placed = np.array([heights[key] for key in order])
    for _ in range(200):
        gaps = np.diff(placed)
        close = np.flatnonzero(gaps < below - 1e-6)
        if not len(close):
            break
        for i in close:
            push = max(0.0, below - placed[i + 1] + placed[i]) / 2
            placed[i], placed[i + 1] = placed[i] - push, placed[i + 1] + push
    return dict(zip(order, placed.tolist()))


def curve(
    board: Board, key: str, theme: Theme, area: Axes, ys: np.ndarray, role: str, *,
    xs: np.ndarray | None = None, width: float = 3.5, dash: bool = False,
) -> None:  # fmt: skip
    """A line over 0, 1, 2, ... (or `xs`)."""
    xs = np.arange(len(ys), dtype=float) if xs is None else xs
    if not dash and len(ys) > 1:
        across = np.log(xs) if area.log_x else xs
        fine = np.linspace(across[0], across[-1], POINTS)
        high = np.interp(fine, across, np.log(ys) if area.log_y else ys)
        xs, ys = (np.exp(fine) if area.log_x else fine), (np.exp(high) if area.log_y else high)
    line(board, key, theme, area, xs, ys, role, width=width, dash=dash)


def layer_ticks(layers: int) -> list[float]:
    """A few whole layers, the first and the last among them."""
    step = next(s for s in (1, 2, 3, 6, 12, 24, 48) if layers / s <= 4 or s == 48)
    return [float(v) for v in range(0, layers + 1, step)]
