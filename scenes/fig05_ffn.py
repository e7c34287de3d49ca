"""Figure 5, the gated feed-forward network.

Whatever belongs to the network has its colour from the block diagram of figure 1; values that flow are cells. Frames 1
and 4 are in `fig05_matrices`, the others in `fig05_plots`.
"""

from __future__ import annotations

from collections.abc import Callable

from morph.story import Figure
from scenes import fig05_matrices as matrices
from scenes import fig05_plots as plots
from scenes.board import Board
from scenes.pen import Pen, still
from scenes.theme import Theme

DRAW: dict[str, Callable[[Pen], None]] = {
    "two-matrices": matrices.two,
    "curves": plots.curves,
    "below-zero": plots.below_zero,
    "three-matrices": matrices.three,
    "channels": plots.channels,
    "together": plots.together,
    "equal": plots.equal,
    "ratios": plots.ratios,
    "swapped": plots.swapped,
}
"""Frame key -> what draws it."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 9)."""
    return still(figure, index, theme, DRAW)
