"""What every figure has around its picture: title, a word on the model at the right, and the caption band.

Two facts of a frame are drawn here. At the top right: `aside`, or where and when the idea came from. Under the
caption: the `pressure` behind a step, or else the frame's source.
"""

from __future__ import annotations

from morph.errors import MorphError
from morph.story import Frame
from scenes.board import Board
from scenes.parts import panel
from scenes.shape import Box
from scenes.theme import FRAME_HEIGHT, FRAME_WIDTH, Theme
from scenes.type import label

LEFT, RIGHT = -FRAME_WIDTH / 2 + 0.4, FRAME_WIDTH / 2 - 0.4
TITLE_Y = 3.48
BAND_TOP = -2.82
CAPTION_WIDTH = 12.0
STAGE: Box = (-FRAME_WIDTH / 2, BAND_TOP, FRAME_WIDTH / 2, 3.22)
"""Where the picture may be."""


def is_chrome(key: str) -> bool:
    """Whether a part is one of those that `chrome` puts on a board."""
    return key in ("title", "aside") or key.startswith("caption:")


def words_around(frame: Frame) -> tuple[str, str, str]:
    """The aside of a frame, and the note under its caption: the name of the force ("" for none) and the sentence."""
    facts = frame.facts
    aside = facts.get("aside") or (f"{facts['origin']}, {facts['year']}" if "origin" in facts else "")
    force, colon, rest = facts.get("pressure", "").partition(": ")
    return aside, force if colon else "", rest or force or frame.source


def chrome(board: Board, frame: Frame, theme: Theme, counter: str) -> None:
    """Put title, aside and caption band on a board; the picture goes on the `STAGE`.

    Raises:
        MorphError: when caption and note together take more than three lines, or title and aside more than one.
    """
    ink, muted = theme.colour("ink"), theme.colour("muted")
    beside, force, under = words_around(frame)
    title = label(frame.title, "title", ink, "bold").at(LEFT, TITLE_Y)
    board.put("title", title)
    if beside:
        aside = label(beside, "label", muted).at(RIGHT, TITLE_Y, "right")
        if title.width + aside.width > RIGHT - LEFT - 0.4:
            raise MorphError(f"frame {frame.key!r}: no room for its aside ({beside!r}) beside its title; shorten it")
        board.put("aside", aside)

    floor = -FRAME_HEIGHT / 2
    board.put("caption:band", panel(theme, (-FRAME_WIDTH / 2, floor, FRAME_WIDTH / 2, BAND_TOP), radius=0.01))
    caption = label(frame.caption, "body", ink, width=CAPTION_WIDTH)
    head = label(force, "floor", ink, "bold") if force else None
    indent = head.width + 0.16 if head else 0.0
    note = label(under, "floor", muted, width=RIGHT - LEFT - indent) if under else None

    lines = caption.lines, (note.lines if note else 0)
    if sum(lines) > 3:
        raise MorphError(
            f"frame {frame.key!r}: caption and source take {lines[0]} and {lines[1]} lines and three fit; "
            f"shorten {'its source' if lines[1] > 1 else 'its caption'} ({len(under)} characters)"
        )
    top = BAND_TOP - (0.42 if sum(lines) < 3 else 0.27)
    board.put("caption:text", caption.at(LEFT, top))
    board.put("caption:count", label(counter, "label", muted).at(RIGHT, top, "right"))
    y = top - (0.66 if lines[0] == 2 else 0.42 if lines[1] < 2 else 0.38)
    if head:
        board.put("caption:force", head.at(LEFT, y))
    if note:
        board.put("caption:note", note.at(LEFT + indent, y))
