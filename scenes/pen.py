"""What draws a frame on a board: words and numbers, without naming board, theme and frame each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from morph.story import Figure, Frame
from scenes.board import Board
from scenes.chrome import chrome
from scenes.shape import Point
from scenes.theme import Theme
from scenes.type import fitted


class Pen:
    """A board with its theme and the frame it shows. `colour` is what words are written in where nothing is said."""

    colour: ClassVar[str] = "ink"

    def __init__(self, board: Board, theme: Theme, frame: Frame) -> None:
        self.board, self.theme, self.frame, self.facts = board, theme, frame, frame.facts

    def at(self, name: str) -> np.ndarray:
        """The values of an array of the frame."""
        return self.frame.values(name)

    def text(
        self, key: str, words: str, at: Point, anchor: str = "left", colour: str = "", weight: str = "regular",
        size: str = "floor", room: float = np.inf,
    ) -> None:  # fmt: skip
        """Put a label; one wider than `room` units is cut."""
        ink = self.theme.colour(colour or self.colour)
        self.board.put(key, fitted(words, room, size, ink, weight).at(*at, anchor))


def still(
    figure: Figure, index: int, theme: Theme, draw: Mapping[str, Callable[[Any], None]], pen: type[Pen] = Pen
) -> Board:
    """The still of frame `index` (from 1): what stands around a picture, and what `draw` has for the frame's key."""
    frame, made = figure.frames[index - 1], Board()
    chrome(made, frame, theme, f"{index:02d} / {len(figure):02d}")
    draw[frame.key](pen(made, theme, frame))
    return made
