"""Figure 5, frames 1 and 4: a token's features as a column of cells, matrices as what lies between two columns."""

from __future__ import annotations

import numpy as np

from morph.story.written import percent
from scenes.charts import arrow, heat, scale
from scenes.fig02_parts import greatest
from scenes.parts import discs, polygons, polylines
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
LETTERS = 0.2
"""Half the height that a name needs on a matrix."""
COLUMN = 2.1
"""Where the words at the right begin."""


def two(pen: Pen) -> None:
    """x, a matrix, the hidden features behind ReLU, a matrix, what is written."""
    limit = greatest(*(pen.at(name) for name in ("x", "hidden", "out")))
    _column(pen, "x", X, MIDDLE, limit, "x")
    _column(pen, "hidden", HIDDEN, MIDDLE, limit, "bent")
    _column(pen, "out", OUT, MIDDLE, limit, "written")
    _matrix(pen, "up", (X, MIDDLE, "x"), (HIDDEN, MIDDLE, "hidden"), "W up")
    _matrix(pen, "down", (HIDDEN, MIDDLE, "hidden"), (OUT, MIDDLE, "out"), "W down")
    _table(pen, {"up": "W up", "down": "W down"}, limit)


def three(pen: Pen) -> None:
    """x into two matrices, their product, a third matrix, what is written."""
    limit = greatest(*(pen.at(name) for name in ("x", "gate", "value", "hidden", "out")))
    _column(pen, "x", X, MIDDLE, limit, "x")
    _column(pen, "gate", HALVES, MIDDLE + APART, limit, "gate")
    _column(pen, "value", HALVES, MIDDLE - APART, limit, "value")
    _column(pen, "hidden", HIDDEN, MIDDLE, limit, "product")
    _meet(pen)
    _column(pen, "out", OUT, MIDDLE, limit, "written")
    _matrix(pen, "gate", (X, MIDDLE, "x"), (HALVES, MIDDLE + APART, "gate"), "W gate", lit=True)
    _matrix(pen, "up", (X, MIDDLE, "x"), (HALVES, MIDDLE - APART, "value"), "W up")
    _matrix(pen, "down", (HIDDEN, MIDDLE, "hidden"), (OUT, MIDDLE, "out"), "W down")
    _table(pen, {"gate": "W gate", "up": "W up", "down": "W down"}, limit)


def _meet(pen: Pen) -> None:
    """Gate and value come together, feature by feature."""
    left, right = HALVES + WIDE / 2, HIDDEN - WIDE / 2
    middle, size = (left + right) / 2, 0.17
    lines = [
        [(left + 0.08, MIDDLE + APART), (middle, MIDDLE + APART), (middle, MIDDLE + size)],
        [(left + 0.08, MIDDLE - APART), (middle, MIDDLE - APART), (middle, MIDDLE - size)],
    ]
    pen.board.put("meet:lines", polylines(pen.theme, lines, "wire", 2.5))
    end = (right - 0.08, MIDDLE)
    arrow(pen.board, "meet.out", pen.theme, (middle + size, MIDDLE), end)
    pen.board.put("meet:disc", discs(pen.theme.tint("ffn", 0.3), [(middle, MIDDLE)], size))
    pen.text("meet:sign", "×", (middle, MIDDLE), "centre", size="label", weight="bold")


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
    middle, room = (y0 + y1) / 2, (h0 + h1) / 2 - abs(y1 - y0) * 0.1
    if room < LETTERS:  # too narrow for its name, which stands beside it
        ink, middle = "ink", middle + (-1 if y1 < y0 else 1) * (h0 + h1 + 0.2 + abs(y1 - y0) * 0.15)
    pen.text(f"matrix.{name}:name", words, ((left + right) / 2, middle), "centre", colour=ink, weight="medium")


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
    is_equal = pen.facts["parameters"] == pen.facts["equal"]
    pen.text("table:sum", f"{'8d²' if is_equal else 'in all'}, d = {d:,}", (COLUMN, y), size="label", colour="muted")
    pen.text("table:total", f"{pen.facts['parameters']:,}", (6.6, y), "right", size="body", weight="bold")
    told = f"{percent(pen.facts['share'])} of all in matrices of the block"
    pen.text("table:share", told, (6.6, y - 0.42), "right", colour="muted")
    at = (COLUMN, -2.15, COLUMN + 2.2, -2.0)
    scale(pen.board, "cells.scale", pen.theme, at, limits=(-limit, limit), signed=True, text="{:.1f}")
    pen.text("cells.scale:name", "value of a feature", (COLUMN + 2.5, -2.08), colour="muted")
