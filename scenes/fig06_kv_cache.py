"""Figure 6, the KV cache: what is kept is drawn in the cache's colour, a cell a number.

Frames 1 and 2 are in `fig06_step`, 5 to 9 in `fig06_heads`, 3, 4, 10 and 11 in `fig06_counts`.
"""

from __future__ import annotations

from collections.abc import Callable

from morph.story import Figure
from scenes import fig06_counts as counts
from scenes import fig06_heads as heads
from scenes import fig06_step as step
from scenes.board import Board
from scenes.pen import Pen, still
from scenes.theme import Theme

DRAW: dict[str, Callable[[Pen], None]] = {
    "step": step.step,
    "formula": step.formula,
    "llama": counts.llama,
    "intensity": counts.intensity,
    "mha": heads.heads,
    "mqa": heads.heads,
    "gqa": heads.heads,
    "mla": heads.heads,
    "absorption": heads.absorption,
    "released": counts.released,
    "weighed": counts.weighed,
}
"""Frame key -> what draws it."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 11)."""
    return still(figure, index, theme, DRAW)
