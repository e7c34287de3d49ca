"""Any figure's stills, by the figure's name. What draws is imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from morph.story import Figure, Frame
from scenes.theme import Theme

if TYPE_CHECKING:
    from scenes.board import Board

BOARDS = {"morph": "scenes.fig01_morph"}
"""Figure name -> the module whose `board(figure, index, theme)` draws its frames."""
ABSENT = "scenes.absent"
"""Draws the frames, of any figure, that have nothing to show for the model."""


def frame_of(figure: Figure, index: int) -> Frame:
    """Frame `index` (from 1), or the opening (0)."""
    frame = figure.frames[index - 1] if index else figure.opening
    assert frame is not None, f"figure {figure.name!r} has no opening"
    return frame


def indices(figure: Figure) -> range:
    """The numbers of a figure's stills: from 0 where it has an opening."""
    return range(0 if figure.opening else 1, len(figure) + 1)


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (from 1; 0 is the opening). A frame with nothing to show says so."""
    module = ABSENT if frame_of(figure, index).absent else BOARDS[figure.name]
    made: Board = import_module(module).board(figure, index, theme)
    return made
