"""Figure 9, beyond softmax.

What keeps keys and values has the cache's colour. A state has the colour of positions, for it knows order by itself.
Frames 1, 2, 7 and 8 are in `fig09_work`, the others in `fig09_state`.
"""

from __future__ import annotations

from collections.abc import Callable

from morph.story import Figure
from scenes import fig09_state as state
from scenes import fig09_work as work
from scenes.board import Board
from scenes.pen import Pen, still
from scenes.theme import Theme

DRAW: dict[str, Callable[[Pen], None]] = {
    "held": work.held,
    "orders": work.orders,
    "state": state.grows,
    "interference": state.interference,
    "erase": state.erase,
    "decay": state.decay,
    "work": work.per_token,
    "stack": work.stack,
    "recall": state.recall,
    "sparse": state.sparse,
}
"""Frame key -> what draws it."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 10)."""
    return still(figure, index, theme, DRAW)
