"""What every figure has around its picture: title, where the idea comes from, and the caption band with its counter."""

from __future__ import annotations

from morph.story import Frame
from scenes.board import Board
from scenes.parts import panel
from scenes.theme import FRAME_HEIGHT, FRAME_WIDTH, Theme
from scenes.type import label

LEFT, RIGHT = -FRAME_WIDTH / 2 + 0.4, FRAME_WIDTH / 2 - 0.4
TITLE_Y = 3.48
BAND_TOP = -2.82
CAPTION_WIDTH = 12.0


def chrome(board: Board, frame: Frame, theme: Theme, counter: str) -> None:
    """Put title, origin and caption band on a board; the picture goes between y = `BAND_TOP` and 3.2."""
    facts, ink, muted = frame.facts, theme.colour("ink"), theme.colour("muted")
    board.put("title", label(frame.title, "title", ink, "bold").at(LEFT, TITLE_Y))
    origin = f"{facts['origin']}, {facts['year']}"
    board.put("origin", label(origin, "label", muted).at(RIGHT, TITLE_Y, "right"))

    floor = -FRAME_HEIGHT / 2
    board.put("caption:band", panel(theme, (-FRAME_WIDTH / 2, floor, FRAME_WIDTH / 2, BAND_TOP), radius=0.01))
    caption = label(frame.caption, "body", ink, width=CAPTION_WIDTH)
    lines = 2 if caption.height > 0.4 else 1
    top = BAND_TOP - (0.27 if lines == 2 else 0.42)
    board.put("caption:text", caption.at(LEFT, top))
    y = top - (0.66 if lines == 2 else 0.42)
    force, colon, rest = facts["pressure"].partition(": ")
    x = LEFT
    if colon:
        head = label(force, "floor", ink, "bold").at(x, y)
        board.put("caption:force", head)
        x += head.width + 0.16
    board.put("caption:pressure", label(rest or force, "floor", muted).at(x, y))
    board.put("caption:count", label(counter, "label", muted).at(RIGHT, top, "right"))
