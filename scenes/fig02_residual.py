"""Figure 2, the residual stream: one thick line in ink, and what is written on it.

Where the stream is drawn it runs at the height `STREAM`, and a vector stands across it as a column of coloured cells,
feature 0 at the top. Frames 1 to 3 are in `fig02_layer`, 4 to 8 in `fig02_depth`, 9 to 13 in `fig02_norms`.
"""

from __future__ import annotations

from collections.abc import Callable

from morph.story import Figure
from scenes import fig02_depth as depth
from scenes import fig02_layer as layer
from scenes import fig02_norms as norms
from scenes.board import Board
from scenes.chrome import chrome
from scenes.theme import Theme

Draw = Callable[[Board, Figure, int, Theme], None]
FRAMES: dict[str, Draw] = {
    "bus": layer.bus,
    "attention": layer.write,
    "feed-forward": layer.write,
    "sum": depth.total,
    "sizes": depth.sizes,
    "growth": depth.growth,
    "angles": depth.angles,
    "shares": depth.shares,
    "post-norm": norms.carried,
    "pre-norm": norms.carried,
    "bounded": norms.bounded,
    "gradient": norms.gradient,
    "depth-scaled": norms.depth_scaled,
}
"""A frame's key -> what draws it."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 13)."""
    frame = figure.frames[index - 1]
    made = Board()
    chrome(made, frame, theme, f"{index:02d} / {len(figure):02d}")
    FRAMES[frame.key](made, figure, index, theme)
    return made
