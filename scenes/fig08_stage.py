"""What every frame of figure 8 draws on: the experts as a row of tiles at the foot of the stage, the grid over them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from morph.story import Frame
from scenes.board import Board, Box
from scenes.parts import rectangles
from scenes.pen import Pen
from scenes.theme import Theme

LEFT, RIGHT = -5.6, 4.48
SHARED: Box = (4.78, -1.98, 5.06, -1.62)
TILES: Box = (LEFT, -1.98, RIGHT, -1.62)
NUMBERS_Y = -2.2
GRID: Box = (LEFT, -1.45, RIGHT, 2.71)
HEADER_Y = 2.98
"""The words over a grid."""
EDGE = LEFT - 0.14
"""Right edge of what stands at the left of the row."""
WALL = -6.8
"""How far left words may begin."""
SIDE = 5.0
"""Left edge of what stands at the right of it where there is no shared expert."""
QUIET = 0.3
"""Share of the role's colour in an expert that rests."""


class Stage(Pen):
    """A board with what every frame draws on it."""

    colour = "muted"

    def __init__(self, board: Board, theme: Theme, frame: Frame) -> None:
        super().__init__(board, theme, frame)
        self.n: int = frame.facts.get("n_experts", 0)

    def fill(self, lit: bool) -> str:
        """The colour of an expert that works or rests."""
        return self.theme.colour("ffn") if lit else self.theme.tint("ffn", QUIET)

    def x(self, expert: int) -> float:
        """The middle of an expert's tile."""
        return LEFT + (expert + 0.5) * (RIGHT - LEFT) / self.n

    def row(self, key: str, n: int, bottom: float, top: float, lit: Collection[int]) -> None:
        """A row of n tiles over the whole width; those not lit have no height in `chosen`, so that they can grow."""
        tiles = [cell(i, n, bottom, top) for i in range(n)]
        full = [t if i in lit else (t[0], t[1], t[2], t[1]) for i, t in enumerate(tiles)]
        self.board.put(f"{key}:tiles", rectangles(self.fill(False), tiles))
        self.board.put(f"{key}:chosen", rectangles(self.fill(True), full))

    def experts(self, lit: Collection[int] = (), *, shared: bool = False, numbers: bool = True) -> None:
        """The row of experts, with their numbers below; the shared expert is filled wherever it is drawn."""
        self.row("experts", self.n, TILES[1], TILES[3], lit)
        if numbers:
            self.text("experts:name", "expert", (EDGE, NUMBERS_Y), "right")
            for i in range(0, self.n, max(1, self.n // 8)):
                self.text(f"experts:{i}", str(i), (self.x(i), NUMBERS_Y), "centre")
        if shared:
            self.board.put("shared:tile", rectangles(self.fill(True), [SHARED]))
            self.text("shared:name", "shared", ((SHARED[0] + SHARED[2]) / 2, NUMBERS_Y), "centre")

    def tokens(self, at: Box, lit: Collection[int] = ()) -> None:
        """The passage's tokens as names of a grid's rows."""
        tall = (at[3] - at[1]) / len(self.facts["tokens"])
        for i, word in enumerate(self.facts["tokens"]):
            ink = i in lit
            self.text(
                f"token{i}:name", word, (EDGE, at[3] - (i + 0.5) * tall), "right", colour="ink" if ink else "muted",
                weight="bold" if ink else "regular", room=EDGE - WALL,
            )  # fmt: skip

    def grid(self, table: np.ndarray) -> None:
        """Who goes where: a filled cell for each choice."""
        pitch = (GRID[3] - GRID[1]) / len(table)
        cells = {
            (t, e): cell(e, self.n, GRID[3] - (t + 1) * pitch + 0.03, GRID[3] - t * pitch)
            for t, e in np.ndindex(table.shape)
        }
        rest, full = ([box for at, box in cells.items() if bool(table[at]) == lit] for lit in (False, True))
        if rest:
            self.board.put("grid:rest", rectangles(self.theme.colour("panel"), rest))
        self.board.put("grid:chosen", rectangles(self.theme.colour("ffn"), full))


def cell(expert: int, n: int, bottom: float, top: float) -> Box:
    """A box over one expert's tile, as wide as the tile."""
    pitch = (RIGHT - LEFT) / n
    return (LEFT + expert * pitch, bottom, LEFT + (expert + 1) * pitch - min(0.04, 0.15 * pitch), top)
