"""Figure 3, frames 1 to 4: shuffled tokens, added waves, a learned table, and what is wanted instead."""

from __future__ import annotations

import numpy as np

from morph.story import Frame
from scenes.board import Board
from scenes.charts import Axes, axes, bars, heat, line, scale, token_row
from scenes.parts import dashes, polylines
from scenes.shape import Box
from scenes.theme import Theme
from scenes.type import label

HALF = 7.1
"""From the left half of frame 1 to its right half, in units."""
PITCH = 0.6


def shuffle(board: Board, frame: Frame, theme: Theme) -> None:
    """Two columns, without and with the mask: weights, tokens, where each token goes, weights, change."""
    board.cut = 0.0
    limits = (0.0, max(float(frame.values(f"{mask}_{when}").max()) for mask in MASKS for when in WHEN))
    top = float(frame.values("causal_change").max())
    for i, mask in enumerate(MASKS):
        _shuffled(board, frame, theme, mask, -4.72 + HALF * i, limits, top)
    scale(board, "strip.scale", theme, (-6.65, 1.16, -5.45, 1.3), limits=limits, text="{:.2f}")
    board.put("strip.scale:name", label("weight", "floor", theme.colour("muted")).at(-6.65, 1.5))


MASKS = {"open": "No mask", "causal": "Causal mask"}
WHEN = ("before", "after")


def _shuffled(
    board: Board, frame: Frame, theme: Theme, mask: str, left: float, limits: tuple[float, float], top: float
) -> None:
    order = frame.values("order").tolist()
    words, token = frame.facts["words"], frame.facts["token"]
    xs = [left + PITCH * i for i in range(len(words))]
    here = {"before": token, "after": order.index(token)}
    heights = {"before": (2.02, 2.47), "after": (0.42, -0.03)}
    ink, muted = theme.colour("ink"), theme.colour("muted")
    board.put(f"{mask}:name", label(MASKS[mask], "label", ink, "medium").at(left - 0.25, 2.95))
    joins = [[(xs[place], 0.64), (xs[old], 1.8)] for place, old in enumerate(order) if old != token]
    board.put(f"{mask}:joins", polylines(theme, joins, "ghost", 1.5))
    board.put(f"{mask}:join", polylines(theme, [[(xs[here["after"]], 0.64), (xs[token], 1.8)]], "ink", 3.5))
    for when, (row, strip) in heights.items():
        shown = words if when == "before" else [words[i] for i in order]
        token_row(board, f"{mask}.{when}", theme, shown, xs, row, lit={here[when]}, size="label")
        values = frame.values(f"{mask}_{when}").copy()
        if mask == "causal":
            values[here[when] + 1 :] = np.nan  # behind the mask there is no weight, not a small one
        half = 0.17
        at = (xs[0] - PITCH / 2, strip - half, xs[-1] + PITCH / 2, strip + half)
        heat(board, f"{mask}.{when}.weights", theme, values[None], at, limits=limits, gap=0.08)
        if left < 0:
            board.put(f"{when}:name", label(when, "floor", muted).at(-6.65, row))
            board.put(f"{when}.weights:name", label(f"“{words[token]}” looks at", "floor", muted).at(-6.65, strip))
    area = Axes((xs[0] - PITCH / 2, -2.55, xs[-1] + PITCH / 2, -1.1), (-0.5, len(words) - 0.5), (0, 1.15 * top))
    axes(board, f"{mask}.change", theme, area, y_ticks=[0, (top, f"{top:.2g}")])
    change = frame.values(f"{mask}_change")
    bars(board, f"{mask}.change", theme, area, change, "attention", lit={here["after"]})
    told = label("change of each output, relative to its length", "floor", muted)
    board.put(f"{mask}.change:name", told.at(left - 0.25, -0.78))
    if mask == "open":
        none = label(f"unchanged, to {frame.facts['least']}", "label", ink, "medium")
        board.put("open.change:none", none.at((area.at[0] + area.at[2]) / 2, -2.2, "centre"))


def sinusoid(board: Board, frame: Frame, theme: Theme) -> None:
    """The table at the left; at the right how its rows meet."""
    board.cut = 1.35
    table, meeting = frame.values("table"), frame.values("meeting")
    at: Box = (-6.0, -2.15, 0.9, 2.4)
    heat(board, "table", theme, table, at, role="position", limits=(-1, 1), signed=True)
    rows = len(table)
    muted, ink = theme.colour("muted"), theme.colour("ink")
    for m in (0, rows // 2, rows - 1):
        y = at[3] - (at[3] - at[1]) * (m + 0.5) / rows
        board.put(f"table:m{m}", label(str(m), "floor", muted).at(at[0] - 0.12, y, "right"))
    board.put("table:place", label("place m", "floor", muted).at(-6.65, 2.68))
    board.put("table:fast", label("fast waves", "floor", muted).at(at[0], at[1] - 0.25))
    board.put("table:slow", label("slow waves", "floor", muted).at(at[2], at[1] - 0.25, "right"))
    scale(board, "waves.scale", theme, (-3.6, 2.86, -1.5, 3.0), role="position", limits=(-1, 1), signed=True,
          text="{:g}")  # fmt: skip
    formula = label("$x_m arrow.l x_m + p_m$", "body", ink, markup=True)
    board.put("formula", formula.at(2.45, 2.78))
    told = label("p: rows of the table", "floor", muted)
    board.put("formula:told", told.at(4.75, 2.74))
    area = Axes((2.45, -1.75, 6.4, 1.6), (0, rows - 1), (0, 1))
    axes(
        board, "meeting", theme, area, x_label="distance m − n", y_label="row m · row n; 1 at m = n",
        x_ticks=[0, rows // 2, rows - 1], y_ticks=[0, 0.5, 1],
    )  # fmt: skip
    line(board, "meeting", theme, area, np.arange(rows), meeting[-1, ::-1], "position", width=4)


def learned(board: Board, frame: Frame, theme: Theme) -> None:
    """The last rows of the table, and the row that is asked for and is not there."""
    rows, places = frame.values("rows"), frame.values("places")
    ink, muted = theme.colour("ink"), theme.colour("muted")
    left, right, tall, top = -5.6, 6.4, 0.46, 2.3
    at: Box = (left, top - tall * len(rows), right, top)
    size = float(np.abs(rows).max())
    width = frame.facts["parameters"] // frame.facts["length"]
    told = f"{places[0]} rows above; {rows.shape[1]} of {width} features"
    board.put("above", label(told, "floor", muted).at(left, 2.66))
    heat(board, "table", theme, rows, at, role="position", limits=(-size, size), signed=True, gap=0.06)
    for i, place in enumerate(places):
        y = top - tall * (i + 0.5)
        board.put(f"row{place}", label(f"row {place}", "floor", muted).at(left - 0.15, y, "right"))
    floor = at[1]
    missing: Box = (left, floor - tall, right, floor - 0.06)
    board.put("missing:outline", dashes(ink, missing))
    y = (missing[1] + missing[3]) / 2
    length = frame.facts["length"]
    board.put("missing:row", label(f"row {length}", "floor", ink, "bold").at(left - 0.15, y, "right"))
    board.put("missing:words", label("never trained, not there", "floor", ink).at((left + right) / 2, y, "centre"))
    scale(
        board,
        "rows.scale",
        theme,
        (4.3, 2.63, 6.4, 2.77),
        role="position",
        limits=(-size, size),
        signed=True,
        text="{:.2f}",
    )
    board.put("answer:name", label(f"Given {length + 1} tokens, the model answers", "floor", muted).at(-6.4, -1.5))
    answer = label(frame.facts["refusal"], "floor", ink, mono=True, width=12.9)
    board.put("answer", answer.at(-6.4, -1.88))


def requirement(board: Board, frame: Frame, theme: Theme) -> None:
    """Two maps of the score over all pairs of places; equal colours along diagonals are what is wanted."""
    ink, muted = theme.colour("ink"), theme.colour("muted")
    wanted = label(
        "$chevron.l f(q, m), f(k, n) chevron.r = g(q, k, m - n)$", "body", ink, markup=True
    )  # fmt: skip
    board.put("formula", wanted.at(0, 2.8, "centre"))
    told = "f puts a query or a key at its place; g may know contents and offset only"
    board.put("formula:told", label(told, "floor", muted).at(0, 2.36, "centre"))
    limit = max(float(np.abs(frame.values(name)).max()) for name in ("added", "turned"))
    side = 3.85
    for name, words, left in (("added", "a wave added", -5.5), ("turned", "rotated", 1.35)):
        at: Box = (left, -2.3, left + side, -2.3 + side)
        values = frame.values(name)
        heat(board, name, theme, values, at, limits=(-limit, limit), signed=True)
        head = label(words, "label", ink, "medium").at(left, at[3] + 0.32)
        board.put(f"{name}:name", head)
        spread = frame.facts["spread"][name]
        told = f"varies by {spread:.2f}" if spread > 1e-3 else "one value a diagonal"
        board.put(f"{name}:told", label(told, "floor", muted).at(at[2], at[3] + 0.3, "right"))
        board.put(f"{name}:m", label("m = 0", "floor", muted).at(left - 0.15, at[3] - 0.12, "right"))
        board.put(f"{name}:m.last", label(str(len(values) - 1), "floor", muted).at(left - 0.15, at[1] + 0.12, "right"))
        board.put(f"{name}:n", label("n = 0", "floor", muted).at(left, at[1] - 0.24))
        board.put(f"{name}:n.last", label(str(len(values) - 1), "floor", muted).at(at[2], at[1] - 0.24, "right"))
    scale(
        board, "score.scale", theme, (-0.55, -1.5, -0.4, 0.9), limits=(-limit, limit), signed=True, text="{:.1f}"
    )  # fmt: skip
    board.put("score.scale:name", label("score", "floor", muted).at(-0.55, 1.2))
