"""The frame of a figure for which a model has nothing to show: a sentence in the place of a picture."""

from __future__ import annotations

from morph.story import Figure
from scenes.board import Board
from scenes.chrome import chrome
from scenes.theme import Theme
from scenes.type import label

WIDTH = 8.0
MIDDLE = 0.2
"""Height of the middle of the stage."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of an absent frame."""
    frame = figure.frames[index - 1]
    made = Board()
    chrome(made, frame, theme, f"{index:02d} / {len(figure):02d}")
    sentence = label(frame.absent, "body", theme.colour("ink"), width=WIDTH)
    made.put("absent", sentence.at(-sentence.width / 2, MIDDLE + sentence.height / 2))
    return made
