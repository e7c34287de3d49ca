"""Figure 4, normalization and its place.

A norm keeps its colour from the block diagram of figure 1. Frames 1 and 2 are in `fig04_vector`, 3 to 6 in
`fig04_places`, 7 to 11 in `fig04_curves`.
"""

from __future__ import annotations

from collections.abc import Callable

from morph.story import Figure
from scenes import fig04_curves as curves
from scenes import fig04_places as places
from scenes import fig04_vector as vector
from scenes.board import Board
from scenes.pen import Pen, still
from scenes.theme import Theme

DRAW: dict[str, Callable[[Pen], None]] = {
    "layer-norm": vector.normed,
    "rms-norm": vector.normed,
    "post": places.place,
    "pre": places.place,
    "sandwich": places.place,
    "post-branch": places.place,
    "gradients": curves.gradients,
    "growth": curves.growth,
    "warm-up": curves.warm_up,
    "logits": curves.logits,
    "entropy": curves.entropy,
}
"""Frame key -> what draws it."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 11)."""
    return still(figure, index, theme, DRAW)
