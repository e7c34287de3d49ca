"""Figure 5, frames 1 and 4: a token's features as a column of cells, matrices as what lies between two columns."""

from __future__ import annotations

import numpy as np

from scenes.charts import heat, scale
from scenes.fig02_parts import greatest
from scenes.parts import polygons
from scenes.pen import Pen

CELLS = 24
"""Cells of d features; wider columns have as many more."""
TALL = 0.84
"""Height of a column of d features."""
WIDE = 0.3
X, HALVES, HIDDEN, OUT = -6.3, -3.5, -1.9, 0.75
"""Where columns stand."""
MIDDLE, APART = 0.3, 1.42
"""Height of the middle of all, and of gate and value above and below it."""
COLUMN = 2.1
"""Where the words at the right begin."""


def two(pen: Pen) -> None:
    """x, a matrix, the hidden features behind ReLU, a matrix, what is written."""
    limit = greatest(*(pen.at(name) for name in ("x", "hidden", "out")))
    _column(pen, "x", X, MIDDLE, limit, "x")
    _column(pen, "hidden", HIDDEN, MIDDLE, limit, "ReLU(W x)")
    _column(pen, "out", OUT, MIDDLE, limit, "written")
    _matrix(pen, "up", (X, MIDDLE, "x"), (HIDDEN, MIDDLE, "hidden"), "W")
    _matrix(pen, "down", (HIDDEN, MIDDLE, "hidden"), (OUT, MIDDLE, "out"), "W")
    _table(pen, {"up": "W up", "down": "W down"}, limit)


def three(pen: Pen) -> None:
    """x into two matrices, their product, a third matrix, what is written."""
    limit = greatest(*(pen.at(name) for name in ("x", "gate", "value", "hidden", "out")))
    _column(pen, "x", X, MIDDLE, limit, "x")
    _column(pen, "gate", HALVES, MIDDLE + APART, limit, "gate")
    _column(pen, "value", HALVES, MIDDLE - APART, limit, "value")
    _column(pen, "hidden", HIDDEN, MIDDLE, limit, "gate × value")
    _column(pen, "out", OUT, MIDDLE, limit, "written")
    _matrix(pen, "gate", (X, MIDDLE, "x"), (HALVES, MIDDLE + APART, "gate"), "W gate", lit=True)
    _matrix(pen, "up", (X, MIDDLE, "x"), (HALVES, MIDDLE - APART, "value"), "W up")
    _matrix(pen, "down", (HIDDEN, MIDDLE, "hidden"), (OUT, MIDDLE, "out"), "W")
    _table(pen, {"gate": "W gate", "up": "W up", "down": "W down"}, limit)


def _height(pen: Pen, name: str) -> float:
    return TALL * len(pen.at(name)) / len(pen.at("x"))


def _column(pen: Pen, name: str, x: float, y: float, limit: float, words: str) -> None:
    """A vector as cells, every so many of its features drawn, its name above."""
    values = pen.at(name)
    count = min(len(values), round(CELLS * len(values) / len(pen.at("x"))))
    picked = values[np.linspace(0, len(values) - 1, count).round().astype(int)]
    tall = _height(pen, name)
    at = (x - WIDE / 2, y - tall / 2, x + WIDE / 2, y + tall / 2)
    heat(pen.board, f"cells.{name}", pen.theme, picked[:, None], at, limits=(-limit, limit), signed=True)
    pen.text(f"cells.{name}:name", words, (x, y + tall / 2 + 0.2), "centre", weight="medium")


def _matrix(
    pen: Pen, name: str, start: tuple[float, float, str], end: tuple[float, float, str], words: str, lit: bool = False
) -> None:
    """What lies between two columns: as tall at each side as the vector there."""
    (x0, y0, a), (x1, y1, b) = start, end
    h0, h1 = _height(pen, a) / 2, _height(pen, b) / 2
    if y0 != y1:  # two read x: each is drawn from its half of the column
        h0, y0 = h0 / 2 - 0.02, y0 + np.sign(y1 - y0) * (h0 / 2 + 0.02)
    left, right = x0 + WIDE / 2 + 0.12, x1 - WIDE / 2 - 0.12
    corners = [(left, y0 + h0), (right, y1 + h1), (right, y1 - h1), (left, y0 - h0)]
    colour = pen.theme.colour("ffn") if lit else pen.theme.tint("ffn", 0.3)
    pen.board.put(f"matrix.{name}:area", polygons(colour, [corners]))
    ink = pen.theme.text_on(colour)
    pen.text(f"matrix.{name}:name", words, ((left + right) / 2, (y0 + y1) / 2), "centre", colour=ink, weight="medium")


def _table(pen: Pen, names: dict[str, str], limit: float) -> None:
    """The matrices' shapes and parameters, and their sum."""
    d = pen.facts["width"]
    pen.text("table:head", "parameters", (6.6, 2.55), "right", colour="muted")
    for i, (key, words) in enumerate(names.items()):
        rows, columns = pen.facts["matrices"][key]
        y = 2.1 - 0.5 * i
        pen.text(f"table.{key}:name", words, (COLUMN, y), size="label", weight="medium")
        pen.text(f"table.{key}:shape", f"{columns:,} → {rows:,}", (COLUMN + 1.45, y), size="label", colour="muted")
        pen.text(f"table.{key}:count", f"{rows * columns:,}", (6.6, y), "right", size="label")
    y = 2.1 - 0.5 * 3 - 0.15
    pen.text("table:sum", f"8d², d = {d}", (COLUMN, y), size="label", colour="muted")
    pen.text("table:total", f"{pen.facts['parameters']:,}", (6.6, y), "right", size="body", weight="bold")
    at = (COLUMN, -2.15, COLUMN + 2.2, -2.0)
    scale(pen.board, "cells.scale", pen.theme, at, limits=(-limit, limit), signed=True, text="{:.1f}")
    pen.text("cells.scale:name", "value of a feature", (COLUMN + 2.5, -2.08), colour="muted")
