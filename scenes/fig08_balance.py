"""Figure 8, frames 9 to 12: how full the experts are over a training run, and on which devices they lie."""

from __future__ import annotations

import numpy as np

from morph.story.written import percent
from scenes.board import Box
from scenes.charts import Axes, bars, heat, line, scale
from scenes.fig08_stage import EDGE, GRID, HEADER_Y, LEFT, RIGHT, SIDE, TILES, Stage
from scenes.parts import rectangles

UPPER: Box = (LEFT, 0.62, RIGHT, 2.62)
LOWER: Box = (LEFT, TILES[3] + 0.12, RIGHT, 0.12)


def load(s: Stage) -> None:
    """Loads over the steps of a run above, the last of them as bars (or the biases over the steps) below."""
    load, possible = s.at("load"), float(s.facts["possible"])
    heat(s.board, "load", s.theme, load, UPPER, role="ffn", limits=(0.0, possible))
    _steps(s, "load", UPPER)
    s.text("load:header", "load over training, 1 is an even share", (LEFT, HEADER_Y - 0.08))
    scale(s.board, "load.scale", s.theme, (SIDE, UPPER[1], SIDE + 0.2, UPPER[3]), role="ffn", limits=(0.0, possible))
    if "bias" in s.frame.arrays:
        bias = s.at("bias")
        limit = float(np.abs(bias).max())
        at = (LEFT, LOWER[1], RIGHT, LOWER[1] + 1.4)
        heat(s.board, "bias", s.theme, bias, at, role="ffn", limits=(-limit, limit), signed=True)
        _steps(s, "bias", at)
        s.text("bias:header", "bias on the choice", (LEFT, at[3] + 0.2))
        scale(s.board, "bias.scale", s.theme, (SIDE, at[1], SIDE + 0.2, at[3]), role="ffn", limits=(-limit, limit),
              signed=True)  # fmt: skip
    else:
        area = Axes(LOWER, (-0.5, s.n - 0.5), (0, possible))
        bars(s.board, "last", s.theme, area, load[-1], "ffn", gap=0.14)
        line(s.board, "even", s.theme, area, [-0.5, s.n - 0.5], [1, 1], "ink", width=2, dash=True)
        s.text("even:name", "1, even share", (RIGHT + 0.14, area.point(0, 1)[1]))
        fullest = int(load[-1].argmax())
        x, y = area.point(fullest, float(load[-1].max()))
        s.text("last:fullest", f"{load[-1].max():.1f}", (x, y + 0.16), "centre", colour="ink")
        s.text("last:header", "load at the end", (LEFT, LOWER[3] + 0.2))
    s.experts()


def _steps(s: Stage, key: str, at: Box) -> None:
    """The first and last step at the left of a map whose rows are stretches of training."""
    steps = s.at("steps")
    tall = (at[3] - at[1]) / len(steps)
    s.text(f"{key}:first", f"{steps[0]:,}", (EDGE, at[3] - max(tall / 2, 0.1)), "right")
    s.text(f"{key}:step", "step", (EDGE, (at[1] + at[3]) / 2), "right")
    s.text(f"{key}:last", f"{steps[-1]:,}", (EDGE, at[1] + max(tall / 2, 0.1)), "right")


def parallel(s: Stage) -> None:
    """A row for the tokens' device, a column for the experts': how many pairs go from one to the other."""
    counts = s.at("counts")
    n = len(counts)
    bottom, top = GRID[1], 2.35
    tall = (top - bottom) / n
    wide = (RIGHT - LEFT) / n
    unit = (wide - 1.0) / float(counts.max())
    length = s.facts["length"] // n
    rows = [(top - (i + 1) * tall, top - i * tall - 0.08) for i in range(n)]
    cells = [(LEFT + j * wide, low, LEFT + (j + 1) * wide - 0.08, high) for low, high in rows for j in range(n)]
    s.board.put("matrix:ground", rectangles(s.theme.colour("panel"), cells))
    stay, cross = [], []
    for (left, low, _, high), (i, j) in zip(cells, np.ndindex(n, n)):
        start, y = left + 0.75, (low + high) / 2
        (stay if i == j else cross).append((start, y - 0.16, start + unit * counts[i, j], y + 0.16))
        s.text(f"pair{i}{j}:count", str(counts[i, j]), (left + 0.62, y), "right", colour="ink", size="label")
        if i == j:
            s.text(f"pair{i}{j}:stay", "stay", (start, y - 0.3))
    s.board.put("matrix:stay", rectangles(s.theme.tint("ffn", 0.42), stay))
    s.board.put("matrix:cross", rectangles(s.theme.colour("ffn"), cross))
    for i, (low, high) in enumerate(rows):
        y = (low + high) / 2
        s.text(f"from{i}:name", f"device {i}", (EDGE, y + 0.15), "right", colour="ink")
        s.text(f"from{i}:tokens", f"{length * i}–{length * (i + 1) - 1}", (EDGE, y - 0.15), "right")
    for j in range(n):
        first, last = -(-j * s.n // n), -(-(j + 1) * s.n // n) - 1
        words = f"device {j}: experts {first}–{last}"
        s.text(f"to{j}:name", words, (LEFT + (j + 0.5) * wide, top + 0.24), "centre", colour="ink")
    s.text("from:name", "tokens", (EDGE, top + 0.24), "right")
    total = int(counts.sum())
    share = percent(float(s.at("crossing")))
    s.text("share:value", share, (SIDE - 0.2, 1.9), colour="ink", size="title", weight="bold")
    s.text("share:name", f"of {total:,} pairs", (SIDE - 0.2, 1.5))
    s.text("share:what", "change device", (SIDE - 0.2, 1.23))
    s.experts()
