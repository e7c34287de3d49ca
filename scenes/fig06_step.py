"""Figure 6, frames 1 and 2: the cache that a step reads, cell by cell, and the numbers that one token leaves in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from morph.story.written import in_bytes
from scenes.charts import arrow, heat, scale, token_row
from scenes.parts import polylines, rectangles
from scenes.pen import Pen
from scenes.shape import Box
from scenes.type import label

LEFT, RIGHT = -5.3, 4.5
"""The tokens of frame 1."""
TOP = 2.25
QUIET = 0.42
MAP: Box = (-5.3, -1.25, 3.1, 1.2)
SHEETS, SHIFT = 5, 0.09


def step(pen: Pen) -> None:
    """A row a layer, a cell a token: full what the step adds, quiet what it reads again."""
    facts, theme, board = pen.facts, pen.theme, pen.board
    held, read, written = (pen.at(name) for name in ("held", "read", "written"))
    drawn, tokens = facts["drawn"], held.shape[1]
    wide, tall = (RIGHT - LEFT) / tokens, min(0.9, 3.6 / drawn)
    gap, every = min(0.12, 0.18 * tall), max(1, int(np.ceil(0.24 / tall)))
    quiet, lit, states = [], [], []
    for row in range(drawn):
        y = TOP - row * tall
        if facts["rows"][row]["is_state"]:
            states.append((LEFT, y - tall + gap, RIGHT, y))
        for token in np.flatnonzero(held[row]):
            box = (LEFT + token * wide, y - tall + gap, LEFT + (token + 1) * wide - 0.03, y)
            (lit if token == tokens - 1 else quiet).append(box)
        if row % every == 0:
            middle = y - (tall - gap) / 2
            words = f"layer {row}" if row == 0 or every == 1 else str(row)
            pen.text(f"row{row}:name", words, (LEFT - 0.16, middle), "right", "muted")
            pen.text(f"row{row}:read", in_bytes(int(read[row])), (RIGHT + 0.2, middle))
            if facts["rows"][row]["keeps"] != "all":
                pen.text(f"row{row}:keeps", facts["rows"][row]["keeps"], (6.8, middle), "right", "muted")
    board.put("cache:read", rectangles(theme.tint("cache", QUIET), [*quiet, *states]))
    if lit:
        board.put("cache:new", rectangles(theme.colour("cache"), lit))
    pen.text("read:head", "read again", (RIGHT + 0.2, 2.98), colour="muted")
    _tokens(pen, wide)
    foot = TOP - drawn * tall - 0.35
    pen.text("read:sum", f"{in_bytes(int(read.sum()))} read again", (LEFT, foot), weight="bold", size="body")
    pen.text("new:sum", f"{in_bytes(int(written.sum()))} new", (RIGHT, foot), "right", weight="bold", size="body")
    pen.text("read:what", _what(facts, held), (LEFT, foot - 0.42), colour="muted")
    pen.text("next:name", f"most likely next: “{facts['next']}”", (RIGHT, foot - 0.42), "right", "muted")


def _tokens(pen: Pen, wide: float) -> None:
    """The text above its columns where tokens are short; the new one with an arrow."""
    words = pen.facts["tokens"]
    x = RIGHT - wide / 2
    if max(map(len, words)) <= 2:
        centres = [LEFT + (i + 0.5) * wide for i in range(len(words))]
        token_row(pen.board, "text", pen.theme, words, centres, 2.98, lit=[len(words) - 1])
    else:
        pen.text("text:first", "token 0", (LEFT, 2.98), "left", "muted")
        pen.text("text:new", f"the new one, “{words[-1]}”", (RIGHT, 2.98), "right", weight="bold", room=4.0)
    arrow(pen.board, "new", pen.theme, (x, 2.8), (x, TOP + 0.05), role="cache")


def _what(facts: Mapping[str, Any], held: np.ndarray) -> str:
    hidden = facts["drawn"] < len(held)
    cells = "a cell: what a layer keeps of a token"
    states = "; a whole row: a state, read and written again" if any(row["is_state"] for row in facts["rows"]) else ""
    return cells + states + (f"; {facts['drawn']} of {len(held)} layers drawn" if hidden else "")


def formula(pen: Pen) -> None:
    """The last token's numbers as a map of layers by features, sheets of other tokens behind it, and the weights."""
    facts, theme, board = pen.facts, pen.theme, pen.board
    numbers, limit = pen.at("numbers"), facts["limit"]
    rows, cells = numbers.shape
    left, _, right, top = MAP
    tall = min(0.62, 2.45 / rows)
    at = (left, top - rows * tall, right, top)
    for i in range(SHEETS, 0, -1):
        dx = i * SHIFT
        corners = [(at[0] + dx, at[3] + dx - SHIFT + 0.02), (at[0] + dx, at[3] + dx), (at[2] + dx, at[3] + dx),
                   (at[2] + dx, at[1] + dx), (at[2] + dx - SHIFT + 0.02, at[1] + dx)]  # fmt: skip
        board.put(f"sheet{i}:edge", polylines(theme, [corners], "cache", 1.5))
    heat(board, "numbers", theme, numbers, at, role="cache", limits=(-limit, limit), signed=True)
    wide = (right - left) / cells
    _parts(pen, at, wide)
    names = ["layer " + str(n) if i == 0 else str(n) for i, n in enumerate(facts["rows"])]
    every = max(1, int(np.ceil(0.24 / tall)))
    for i in range(0, rows, every):
        pen.text(f"row{i}:name", names[i], (left - 0.14, at[3] - (i + 0.5) * tall), "right", "muted")
    x = right + SHEETS * SHIFT + 0.3
    pen.text("sheets:name", "× tokens × texts", (x, at[3] + SHEETS * SHIFT - 0.1), colour="muted")
    for i, (point, weight) in enumerate(zip(facts["points"], pen.at("weighed").tolist())):
        y = at[3] - 0.35 - 0.72 * i
        texts = "" if point["texts"] == 1 else f", {point['texts']} texts"
        plural = "" if point["tokens"] == 1 else "s"
        pen.text(f"point{i}:weight", in_bytes(int(weight)), (x, y), weight="bold", size="body")
        pen.text(f"point{i}:name", f"{point['tokens']} token{plural}{texts}", (x, y - 0.3), colour="muted")
    _product(pen)
    scale(board, "limit", theme, (left, -2.3, left + 2.6, -2.17), role="cache", limits=(-limit, limit), signed=True)
    pen.text("limit:name", "value of a cached number", (left + 2.85, -2.24), colour="muted")
    if facts["stride"] > 1:
        pen.text("limit:stride", f"every {facts['stride']}th is drawn", (right, -2.24), "right", "muted")


def _parts(pen: Pen, at: Box, wide: float) -> None:
    """A line under each tensor's numbers, and marks between its heads."""
    x, marks, stride = at[0], [], pen.facts["stride"]
    for i, part in enumerate(pen.facts["parts"]):
        size = part["heads"] * part["width"] / stride * wide
        marks.append([(x + 0.03, at[1] - 0.14), (x + size - 0.03, at[1] - 0.14)])
        heads = f"{part['heads']} heads × " if part["heads"] > 1 else ""
        words = f"{part['name']}: {heads}{part['width']}"
        pen.text(f"part{i}:name", words, (x + size / 2, at[1] - 0.38), "centre", weight="medium")
        if part["heads"] <= 8:
            for head in range(1, part["heads"]):
                cut = x + size * head / part["heads"]
                marks.append([(cut, at[1] - 0.02), (cut, at[1] - 0.14)])
        x += size
    pen.board.put("parts:lines", polylines(pen.theme, marks, "wire", 2))


def _product(pen: Pen) -> None:
    """The factors in a row, each over its name."""
    x, factors = MAP[0], pen.facts["factors"]
    for i, factor in enumerate(factors):
        value = label(str(factor["value"]), "title", pen.theme.colour("ink"), "bold")
        name = f"{factor['symbol']}: {factor['name']}" if factor["symbol"] not in ("", "2") else factor["name"]
        words = label(name, "floor", pen.theme.colour("muted"))
        pen.board.put(f"factor{i}:value", value.at(x, 2.75))
        pen.board.put(f"factor{i}:name", words.at(x, 2.3))
        x += max(value.width, words.width) + 0.28
        if i < len(factors) - 1:
            times = label("×", "title", pen.theme.colour("muted"))
            pen.board.put(f"factor{i}:times", times.at(x, 2.75))
            x += times.width + 0.28
