"""Figure 2, frames 1 to 3: a token enters the stream, and the halves of layer 1 read it and write to it."""

from __future__ import annotations

import numpy as np

from morph.story import Figure, Frame
from scenes.board import Board
from scenes.charts import Axes, arrow, axes, bars, heat, scale, token_row
from scenes.fig02_parts import HALF, STREAM, WIDE, column, greatest, stream, text
from scenes.parts import chip, organ, plus, polylines, wire
from scenes.theme import Theme
from scenes.type import label

TOKENS = (-6.45, -1.97)
"""Left and right end of the row of tokens."""
ENTRY = -0.9
"""Where the token's own column stands."""
BRANCH = -1.3
"""Height of a branch."""
BEFORE, TAKEN, COPY, DELTA, AFTER = -6.2, -5.5, -3.0, 1.0, 3.3
"""Where the columns stand, and where the branch leaves the stream."""
BACK = 2.35
"""Where the branch comes back to the stream."""
BOX = (-2.2, BRANCH - 0.5, 0.35, BRANCH + 0.5)


def _limit(figure: Figure) -> float:
    """One scale for all columns of the three frames."""
    names = ("stream", "before", "copy", "delta", "after")
    return greatest(*(f.values(n) for f in figure.frames[:3] for n in names if n in f.arrays))


def bus(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """The columns of the last tokens at the left, that of the last one on the stream, its numbers below."""
    frame = figure.frames[index - 1]
    facts, states = frame.facts, frame.values("stream")
    limit, mine = _limit(figure), states[:, -1]
    if greatest(states) < limit / 8:  # next to what layer 1 writes it would look empty
        limit = greatest(states)
    left, right = TOKENS
    count = states.shape[1]
    pitch = (right - left) / count
    stream(board, theme, right)
    whole = (left, STREAM - HALF, right, STREAM + HALF)
    heat(board, "tokens", theme, states, whole, limits=(-limit, limit), signed=True)
    edge = (right - pitch, STREAM - HALF, right, STREAM + HALF)
    corners = [(edge[0], edge[1]), (edge[0], edge[3]), (edge[2], edge[3]), (edge[2], edge[1]), (edge[0], edge[1])]
    board.put("tokens:mine", polylines(theme, [corners], "ink", 3))
    centres = [left + pitch * (i + 0.5) for i in range(count)]
    token_row(board, "words", theme, facts["words"], centres, STREAM + HALF + 0.2, lit={count - 1})
    column(board, "state0", theme, mine, ENTRY, STREAM, limit)
    text(board, "state0:name", theme, "x₀", ENTRY, STREAM + HALF + 0.2, "centre", weight="medium")

    layers = facts["layers"]
    xs = np.linspace(0.3, 5.9, layers)
    marks = [[(float(x), STREAM - 0.16), (float(x), STREAM + 0.16)] for x in xs]
    board.put("layers", polylines(theme, marks, "muted", 3))
    text(board, "layers:first", theme, "layer 1", xs[0], STREAM - 0.36, "centre", ink=False)
    if layers > 1:
        text(board, "layers:last", theme, f"layer {layers}", xs[-1], STREAM - 0.36, "centre", ink=False)
    middle = (xs[0] + xs[-1]) / 2
    text(board, "layers:name", theme, "the residual stream", middle, STREAM + 0.42, "centre", size="label")

    some = "" if facts["shown"] == facts["width"] else f", {facts['shown']} of them drawn"
    rows = [
        ("B = 1", "text"),
        (f"S = {facts['tokens']}", f"tokens, the last {count} drawn"),
        (f"d = {facts['width']}", f"features a token{some}"),
    ]
    for i, (shape, words) in enumerate(rows):
        y = -0.5 - 0.42 * i
        text(board, f"shape:{i}", theme, shape, left, y, size="label", weight="medium")
        text(board, f"shape:{i}.name", theme, words, left + 1.05, y, size="label", ink=False)
    key = "tokens.scale"
    scale(board, key, theme, (left, -2.1, left + 2.2, -1.95), limits=(-limit, limit), signed=True, text="{:.1f}")
    text(board, f"{key}:name", theme, "value of a feature", left + 2.4, -2.03, ink=False)

    area = Axes((ENTRY - 0.15, -2.2, 6.4, -0.35), (-0.5, len(mine) - 0.5), (-greatest(mine), greatest(mine)))
    top = greatest(mine)
    last = len(mine) - 1
    axes(board, "numbers", theme, area, x_ticks=[0, last], y_ticks=[(-top, f"−{top:g}"), 0, top])
    text(board, "numbers:title", theme, "x₀, feature by feature", area.at[0] + 0.15, -0.1, ink=False)
    bars(board, "numbers", theme, area, mine, "ink")


def write(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """The stream above; below, what is read of it, what reads it, and what comes back."""
    frame = figure.frames[index - 1]
    facts, limit = frame.facts, _limit(figure)
    half, second = facts["half"], facts["half"] == "feed_forward"
    old, new = ("state1", "state2") if second else ("state0", "state1")
    role, words = ("ffn", "feed-forward") if second else ("attention", "attention")
    stream(board, theme)
    taken = [(TAKEN, STREAM), (TAKEN, BRANCH)]
    board.put("branch:in", wire(theme, [*taken, (-4.75 if facts["norm"] else BOX[0] - 0.1, BRANCH)]))
    column(board, old, theme, frame.values("before"), BEFORE, STREAM, limit)
    _size(board, old, theme, frame, "before", ("before", "after attention")[second], BEFORE, STREAM)
    if facts["norm"]:
        chip(board, "norm", theme, "norm", "norm", (-4.3, BRANCH), (0.9, 0.44))
        arrow(board, "branch.norm", theme, (-3.85, BRANCH), (COPY - 0.2, BRANCH))
        column(board, f"copy.{half}", theme, frame.values("copy"), COPY, BRANCH, limit)
        _size(board, "copy", theme, frame, "copy", "a copy", COPY, BRANCH)
        arrow(board, "branch.read", theme, (COPY + 0.15, BRANCH), (BOX[0] - 0.04, BRANCH))
    board.put(f"{role}:box", organ(theme, role, BOX, True))
    ink = theme.text_on(theme.colour(role))
    middle = (BOX[0] + BOX[2]) / 2
    board.put(f"{role}:label", label(words, "label", ink, "medium").at(middle, BRANCH, "centre"))
    arrow(board, "branch.out", theme, (BOX[2], BRANCH), (DELTA - 0.2, BRANCH))
    column(board, f"delta.{half}", theme, frame.values("delta"), DELTA, BRANCH, limit)
    _size(board, "delta", theme, frame, "delta", "delta", DELTA, BRANCH)
    board.put("branch:back", wire(theme, [(DELTA + 0.15, BRANCH), (BACK, BRANCH), (BACK, STREAM)]))
    disc, cross = plus(theme, (BACK, STREAM), 0.2)
    board.put("add", disc)
    board.put("add:cross", cross)
    column(board, new, theme, frame.values("after"), AFTER, STREAM, limit)
    _size(board, new, theme, frame, "after", ("after attention", "after layer 1")[second], AFTER, STREAM)
    _followed(board, frame, theme)
    scale(board, "columns.scale", theme, (3.0, -2.32, 5.2, -2.17), limits=(-limit, limit), signed=True, text="{:.1f}")


def _size(board: Board, key: str, theme: Theme, frame: Frame, name: str, words: str, x: float, y: float) -> None:
    """A column's name and size above it."""
    left = x - WIDE / 2
    text(board, f"{key}:name", theme, words, left, y + HALF + 0.18, weight="medium")
    told = f"RMS {frame.facts['rms'][name]:.2f}"
    text(board, f"{key}:rms", theme, told, left + board[f"{key}:name"].width + 0.14, y + HALF + 0.18, ink=False)


def _followed(board: Board, frame: Frame, theme: Theme) -> None:
    """One feature's row marked on every column, and its sum in numbers."""
    feature = frame.facts["feature"]
    rows = len(frame.values("before"))
    offset = HALF - 2 * HALF * (feature["index"] + 0.5) / rows
    places = [(BEFORE, STREAM), (DELTA, BRANCH), (AFTER, STREAM)]
    marks = [[(x - 0.4, y + offset), (x - 0.15, y + offset)] for x, y in places]
    board.put("feature:marks", polylines(theme, marks, "ink", 4))
    x, y = 3.0, -0.35
    text(board, "feature:name", theme, f"feature {feature['index']}, marked", x, y, size="label")
    for i, (words, key) in enumerate((("stream", "before"), ("delta", "delta"), ("sum", "after"))):
        row = y - 0.42 * (i + 1) - (0.08 if i == 2 else 0)
        text(board, f"feature:{key}", theme, words, x, row, size="label", ink=False)
        number = f"{feature[key]:.2f}".replace("-", "−")
        text(board, f"feature:{key}.value", theme, number, x + 2.2, row, "right", size="label", weight="medium")
    rule = y - 0.42 * 2.5 - 0.04
    board.put("feature:rule", polylines(theme, [[(x, rule), (x + 2.2, rule)]], "muted", 2))
