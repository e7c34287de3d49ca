"""Figure 9, frames 3 to 6, 9 and 10: a state, what it confuses, erases and forgets; recall; chosen tokens."""

from __future__ import annotations

import numpy as np

from scenes.charts import Axes, axes, bars, dots, heat, line, number, scale
from scenes.fig02_parts import PLOT, greatest, named
from scenes.parts import polylines, rectangles
from scenes.pen import Pen
from scenes.shape import Box

MAPS: Box = (-6.5, -1.6, 5.6, 2.3)
DECAY: Box = (-5.2, -1.7, 3.6, 2.5)
LEFT_MAP: Box = (-6.3, -2.1, -1.9, 2.3)
RIGHT_MAP: Box = (-0.6, -2.1, 3.8, 2.3)


def grows(pen: Pen) -> None:
    """Maps of one state after some tokens, side by side, in one scale."""
    states, moments = pen.at("states"), pen.facts["moments"]
    limit = greatest(states)
    side = min(2.75, (12.4 - 0.5 * (len(states) - 1)) / len(states))
    for i, (values, moment) in enumerate(zip(states, moments)):
        left = -6.4 + i * (side + 0.5)
        at = (left, -1.0, left + side, -1.0 + side)
        heat(pen.board, f"state{i}", pen.theme, values, at, limits=(-limit, limit), signed=True)
        words = f"after {moment} token{'' if moment == 1 else 's'}"
        pen.text(f"state{i}:name", words, (left, -1.0 + side + 0.25), weight="medium", size="label")
    pen.text("axes", "rows: features of the key; columns: of the value", (-6.4, -1.45), colour="muted")
    at = (3.2, -2.1, 5.9, -1.95)
    scale(pen.board, "state.scale", pen.theme, at, limits=(-limit, limit), signed=True, text="{:.1f}")
    pen.text("state.scale:name", "a number of the state", (3.0, -2.03), "right", colour="muted")


def interference(pen: Pen) -> None:
    """Error of recall by the number of stored pairs."""
    pairs, width = pen.at("pairs"), pen.facts["width"]
    series = {name: pen.at(name) for name in ("sum", "delta")}
    top = 1.08 * max(float(v.max()) for v in series.values())
    area = Axes(PLOT, (1, float(pairs[-1])), (-0.03 * top, top))
    axes(
        pen.board, "errors", pen.theme, area, x_label="pairs stored", y_label="error of what is recalled",
        x_ticks=[1.0, float(width), float(2 * width), float(3 * width)],
        y_ticks=[(v, f"{v:.0%}") for v in np.arange(0, top, 0.5)],
    )  # fmt: skip
    ends = [area.point(width, -0.03 * top), area.point(width, top)]
    pen.board.put("rows:line", polylines(pen.theme, [ends], "ghost", 1.5))
    line(pen.board, "sum", pen.theme, area, pairs, series["sum"], "cache", width=4, dash=True)
    line(pen.board, "delta", pen.theme, area, pairs, series["delta"], "position", width=4)
    dots(pen.board, "orthogonal", pen.theme, area, pairs[:width], pen.at("orthogonal"), "ink", size=0.06)
    named(pen.board, pen.theme, area, series, {"sum": "plain sum", "delta": "delta rule"})
    x, y = area.point(width, 0)
    pen.text("orthogonal:name", "orthogonal keys", (x + 0.2, y + 0.02))


def erase(pen: Pen) -> None:
    """Three rows of bars in one scale."""
    rows = (("answered", "held before", "ink"), ("value", "new value", "ffn"), ("after", "held after", "position"))
    top = greatest(*(pen.at(name) for name, _, _ in rows))
    for i, (name, words, role) in enumerate(rows):
        values, bottom = pen.at(name), 1.2 - 1.65 * i
        area = Axes((-4.0, bottom, 6.2, bottom + 1.2), (-0.5, len(values) - 0.5), (-top, top))
        last = name == "after"
        axes(
            pen.board, name, pen.theme, area, y_ticks=[(-top, number(-top)), 0.0, top],
            x_ticks=[(float(n), str(n)) for n in range(len(values))] if last and len(values) <= 24 else [],
            x_label="feature of the value" if last else "",
        )  # fmt: skip
        bars(pen.board, name, pen.theme, area, values, role)
        pen.text(f"{name}:name", words, (-6.6, bottom + 0.6), size="label", weight="medium")
    pen.text("weight", f"β = {float(pen.at('weight')):.2f}", (-6.6, -1.95), colour="muted")


def decay(pen: Pen) -> None:
    """α as a map of heads by tokens, and each head's half-life."""
    alpha, life, names = pen.at("alpha"), pen.at("half_life"), pen.facts["names"]
    heat(pen.board, "alpha", pen.theme, alpha, DECAY, role="position", limits=(0.0, 1.0))
    left, bottom, right, top = DECAY
    pitch = (top - bottom) / len(names)
    step = -(-len(names) // 16)
    for i in range(0, len(names), step):
        layer, _, head = names[i].partition(".")
        y = top - (i + 0.5) * pitch
        pen.text(f"head{i}:name", f"layer {layer}, head {head}", (left - 0.12, y), "right", colour="muted")
        pen.text(f"head{i}:life", f"{life[i]:.1f}" if life[i] < 10 else f"{life[i]:.0f}", (right + 0.2, y))
    pen.text("life:head", "half-life, tokens", (right + 0.2, top + 0.27), colour="muted")
    pen.text("token:name", f"token 0 to {alpha.shape[1] - 1}", (left, bottom - 0.25), colour="muted")
    at = (right - 2.4, bottom - 0.32, right - 0.3, bottom - 0.18)
    scale(pen.board, "alpha.scale", pen.theme, at, role="position", limits=(0.0, 1.0), text="{:g}")
    pen.text("alpha.scale:name", "α", (right - 2.55, bottom - 0.25), "right")


def recall(pen: Pen) -> None:
    """A panel a number of pairs, a dot for each mixer at its accuracy, with the seeds' range."""
    accuracy, low, high, pairs = (pen.at(name) for name in ("accuracy", "low", "high", "pairs"))
    arms, learning = pen.facts["arms"], pen.at("learning").astype(bool)
    rows = np.arange(len(arms))
    for i, arm in enumerate(arms):
        y = 2.2 - 0.6 * i
        pen.text(f"arm{i}:name", arm.replace(" x ", " × "), (-4.2, y), "right")
    wide = 3.2
    for p, count in enumerate(pairs.tolist()):
        left = -3.9 + p * (wide + 0.5)
        area = Axes((left, 2.2 - 0.6 * (len(arms) - 0.5), left + wide, 2.5), (0, 1.02), (len(arms) - 0.5, -0.5))
        axes(pen.board, f"pairs{p}", pen.theme, area, x_ticks=[(0.0, "0"), (0.5, "50%"), (1.0, "100%")])
        pen.text(f"pairs{p}:name", f"{count} pairs", (left, 2.85), weight="medium", size="label")
        places = [area.point(0, i)[1] for i in rows]
        spans = [
            [(area.point(float(a), 0)[0], y), (area.point(float(b), 0)[0] + 0.001, y)]
            for a, b, y in zip(low[:, p], high[:, p], places)
        ]
        pen.board.put(f"pairs{p}:range", polylines(pen.theme, spans, "muted", 3))
        full, hollow = rows[~learning[:, p]], rows[learning[:, p]]
        if len(full):
            dots(pen.board, f"pairs{p}.full", pen.theme, area, accuracy[full, p], full, "position", size=0.1)
        if len(hollow):
            dots(pen.board, f"pairs{p}.rim", pen.theme, area, accuracy[hollow, p], hollow, "position", size=0.1)
            dots(pen.board, f"pairs{p}.rim.inner", pen.theme, area, accuracy[hollow, p], hollow, "background",
                 size=0.055)  # fmt: skip
    pen.text("range", "dot: mean of the seeds; line: their range", (-3.9, -2.45), colour="muted")
    if learning.any():
        pen.text("hollow", "hollow: still learning when the steps ran out", (6.6, -2.45), "right", colour="muted")


def sparse(pen: Pen) -> None:
    """The indexer's scores, and what is kept of them."""
    scores, table = pen.at("scores"), pen.at("chosen")
    n = len(scores)
    limit = greatest(scores)
    causal = np.tril(np.ones_like(scores, dtype=bool))
    heat(
        pen.board, "scores", pen.theme, np.where(causal, scores, np.nan), LEFT_MAP, limits=(-limit, limit), signed=True
    )
    pen.text("scores:name", "scores of the indexer", (LEFT_MAP[0], LEFT_MAP[3] + 0.3), weight="medium")
    left, _, right, top = RIGHT_MAP
    cell = (right - left) / n
    kept = [
        (left + k * cell, top - (q + 1) * cell, left + (k + 1) * cell, top - q * cell)
        for q, k in zip(*np.nonzero(table))
    ]
    shade = pen.theme.tint("attention", 0.16)
    pen.board.put(
        "seen",
        rectangles(shade, [(left, top - (q + 1) * cell, left + (q + 1) * cell, top - q * cell) for q in range(n)]),
    )
    pen.board.put("seen:kept", rectangles(pen.theme.colour("attention"), kept))
    pen.text("seen:name", f"kept: {pen.facts['top_k']} a query", (left, top + 0.3), weight="medium")
    for name, at in (("scores", LEFT_MAP), ("seen", RIGHT_MAP)):
        pen.text(f"{name}:keys", "keys, token 0 at the left", (at[0], at[1] - 0.25), colour="muted")
    scale(
        pen.board,
        "scores.scale",
        pen.theme,
        (-3.9, 1.9, -2.0, 2.05),
        limits=(-limit, limit),
        signed=True,
        text="{:.1f}",
    )
    rows = (
        ("of dense attention’s weight", f"{float(pen.at('held')):.0%}"),
        ("a random choice", f"{float(pen.at('even')):.0%}"),
    )
    for i, (words, told) in enumerate(rows):
        pen.text(f"row{i}:told", told, (4.2, 1.6 - 1.0 * i), size="title", weight="bold")
        pen.text(f"row{i}:name", words, (4.2, 1.2 - 1.0 * i), colour="muted")
