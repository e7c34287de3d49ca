"""Figure 4, frames 3 to 6: the stream, attention on its branch, and where the norm stands."""

from __future__ import annotations

from morph.story.written import small
from scenes.charts import arrow
from scenes.parts import chip, gone, organ, plus, tip, wire
from scenes.pen import Pen
from scenes.shape import Box

STREAM, BRANCH = 1.75, -0.15
"""Heights of the stream and the branch."""
LEFT, RIGHT = -6.5, 6.6
TAKEN, BACK = -4.9, 2.35
"""Where the branch leaves the stream, and where it comes back."""
FIRST, SECOND, ON = (-3.7, BRANCH), (1.1, BRANCH), (3.6, STREAM)
"""Places of a norm: before attention, behind it, on the stream."""
CHIP = (1.0, 0.5)
BOX: Box = (-2.5, BRANCH - 0.5, -0.1, BRANCH + 0.5)
THICK = 7
STANDS = {"post": ("on",), "pre": ("first",), "sandwich": ("first", "second"), "post-branch": ("second",)}
NEW = {"post": "on", "pre": "first", "sandwich": "second"}
"""The norm that was not there in the frame before, and so is lit."""


def place(pen: Pen) -> None:
    """The diagram above, four sizes beside their places, and below what holds of the whole stack."""
    board, theme, facts = pen.board, pen.theme, pen.facts
    placement, sizes = facts["placement"], facts["sizes"]
    stands = STANDS[placement]
    board.put("stream", wire(theme, [(LEFT, STREAM), (RIGHT - 0.2, STREAM)], "ink", THICK))
    board.put("stream:tip", tip(theme, (RIGHT, STREAM), (1, 0), "ink", 0.3))
    board.put("branch:in", wire(theme, [(TAKEN, STREAM), (TAKEN, BRANCH), (FIRST[0] - CHIP[0] / 2, BRANCH)]))
    if "first" not in stands and placement != "post-branch":
        board.put("branch:through", wire(theme, [(FIRST[0] - CHIP[0] / 2, BRANCH), (FIRST[0] + CHIP[0] / 2, BRANCH)]))
    arrow(board, "branch.read", theme, (FIRST[0] + CHIP[0] / 2, BRANCH), (BOX[0] - 0.04, BRANCH))
    board.put("attention:box", organ(theme, "attention", BOX))
    middle = ((BOX[0] + BOX[2]) / 2, BRANCH)
    pen.text("attention:label", "attention", middle, "centre", weight="medium", size="label")
    end = SECOND[0] - CHIP[0] / 2 if "second" in stands else BACK
    board.put("branch:out", wire(theme, [(BOX[2], BRANCH), (end, BRANCH)]))
    start = SECOND[0] + CHIP[0] / 2 if "second" in stands else BACK - 0.2
    board.put("branch:back", wire(theme, [(start, BRANCH), (BACK, BRANCH), (BACK, STREAM)]))
    disc, cross = plus(theme, (BACK, STREAM), 0.2)
    board.put("add", disc)
    board.put("add:cross", cross)
    for name, at in (("first", FIRST), ("second", SECOND), ("on", ON)):
        if name in stands:
            chip(board, f"norm.{name}", theme, "norm", "norm", at, CHIP, lit=NEW.get(placement) == name)
        elif name == "first" and placement == "post-branch":
            gone(board, f"norm.{name}", theme, "norm", at, CHIP)
    for name, words, (x, y) in (
        ("before", "stream", (LEFT, STREAM + 0.42)),
        ("copy", "read", (FIRST[0] + 0.62, BRANCH + 0.72)),
        ("delta", "written", (BACK + 0.2, (STREAM + BRANCH) / 2)),
        ("after", "stream", (4.6, STREAM + 0.42)),
    ):
        pen.text(f"size.{name}", f"{words}: RMS {sizes[name]:.2f}", (x, y), colour="muted")
    rows = (
        ("factor of x₀ in the last state", _factor(facts["left"])),
        ("RMS of the last state", f"{facts['last']:.2f}"),
        ("released so", facts["who"]),
    )
    for i, (words, told) in enumerate(rows):
        y = -1.35 - 0.42 * i
        pen.text(f"row{i}:name", words, (LEFT, y), colour="muted", size="label")
        pen.text(f"row{i}:told", told, (-1.9, y), size="label", weight="medium")


def _factor(value: float) -> str:
    return f"{value:g}" if value > 0.01 else small(value)
