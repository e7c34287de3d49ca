"""What draws a frame on a board: words and numbers, without naming board, theme and frame each time."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from morph.story import Frame
from scenes.board import Board
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
