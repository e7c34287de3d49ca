"""Any figure's stills, by the figure's name. What draws is imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from morph.story import Figure, Frame
from scenes.theme import Theme
from scenes.theme import theme as make_theme

if TYPE_CHECKING:
    from scenes.board import Board

BOARDS = {
    "morph": "scenes.fig01_morph",
    "residual": "scenes.fig02_residual",
    "rope": "scenes.fig03_rope",
    "norm": "scenes.fig04_norm",
    "ffn": "scenes.fig05_ffn",
    "kv-cache": "scenes.fig06_kv_cache",
    "masks": "scenes.fig07_masks",
    "moe": "scenes.fig08_moe",
    "beyond-softmax": "scenes.fig09_beyond",
}
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


def drawing(figure: Figure) -> dict[str, Any]:
    """All stills of a figure for a page (JSON values); title, aside and caption are left to the page itself.

    Returns:
        `view`: left, top, width and height of the stage. `palette`: a colour in the dark and one in the light theme
        for each of `var(--c0)`, `var(--c1)`, ... in `fragments`, which are SVG elements. `opening` and `frames`: for
        each still its `key`, its `cut` (an x on the view, or None), its `parts`, pairs of a part's key and the
        index of its fragment, in drawing order, and the numbers of those parts that lie right of the cut.
    """
    from scenes.board import Board
    from scenes.chrome import STAGE, is_chrome
    from scenes.svg import SCALE, Atlas, view_box

    atlas = Atlas()

    def still(index: int) -> dict[str, Any]:
        dark, light = (board(figure, index, make_theme(name)) for name in ("dark", "light"))
        picture = [Board({key: shape for key, shape in b.items() if not is_chrome(key)}) for b in (dark, light)]
        cut = None if dark.cut is None else round(dark.cut * SCALE)
        parts = atlas.parts(*picture)
        right = [i for i, (key, _) in enumerate(parts) if dark.cut is not None and dark[key].centre[0] > dark.cut]
        return {"key": frame_of(figure, index).key, "cut": cut, "right": right, "parts": parts}

    stills = {index: still(index) for index in indices(figure)}
    return {
        "view": view_box(STAGE),
        "opening": stills.get(0),
        "frames": [stills[index] for index in stills if index],
        "palette": atlas.palette,
        "fragments": atlas.fragments,
    }
