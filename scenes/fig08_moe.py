"""Figure 8, mixture of experts: the experts are a row of tiles at the foot of the stage and stay where they are.

What stands above a tile is about that expert: a line from the router, a probability, the tokens it got, its load over
the steps of a training run. The shared expert has its place at the right of the row. Chosen experts are filled, others
quiet. Frames 1 to 5 and 8 are in `fig08_layer`, 6 and 7 in `fig08_counts`, 9 to 12 in `fig08_balance`.
"""

from __future__ import annotations

from collections.abc import Callable

from morph.story import Figure
from scenes import fig08_balance as balance
from scenes import fig08_counts as counts
from scenes import fig08_layer as layer
from scenes.board import Board
from scenes.fig08_stage import Stage
from scenes.pen import still
from scenes.theme import Theme

DRAW: dict[str, Callable[[Stage], None]] = {
    "dense": layer.dense,
    "experts": layer.experts,
    "router": layer.router,
    "dispatch": layer.dispatch,
    "combination": layer.combination,
    "active": counts.active,
    "combinations": counts.combinations,
    "shared": layer.shared,
    "collapse": balance.load,
    "auxiliary-loss": balance.load,
    "selection-bias": balance.load,
    "parallel": balance.parallel,
}
"""Frame key -> what draws it."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 12)."""
    return still(figure, index, theme, DRAW, Stage)
