"""A picture in a notebook: drawn once with matplotlib, readable on a light page and on a dark one.

It is SVG within the page, so letters and axes take the colour that the page gives its text, the ground shows through,
and text stays text. The colours of lines hold 3:1 on white and on near black.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from morph.errors import MorphError
from morph.lab.plot import SHADES
from morph.train.plot import ACCENT, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAT = "morph-heat"
"""The colours of `axes.imshow` inside: from nothing, where the page is seen, to `ACCENT`."""
LINES = [shade for shade in SHADES if shade != INK]


@dataclass(frozen=True)
class Picture:
    """What `show_picture` gives: a notebook shows the drawing, everything else the words."""

    svg: str
    alt: str

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return self.alt


def show_picture(draw: Callable[[Figure], object], alt: str, *, size: tuple[float, float] = (8.0, 3.0)) -> Picture:
    """Let `draw` fill a matplotlib figure, and show it.

    Args:
        draw: given an empty figure, as `figure.subplots()` fills it. What it draws in `morph.train.plot.INK` (text
            and axes are) becomes the colour of the page's text.
        alt: what is to be seen, in words, for those who do not see it.
        size: width and height in inches; a narrower page shrinks it.

    Raises:
        MorphError: without matplotlib, and for a picture without words.
    """
    if not alt.strip():
        raise MorphError("a picture without words says nothing to who cannot see it: give alt")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MorphError("matplotlib is missing: pictures need the extra 'train' (pip install -e '.[train]')") from None
    svg = io.StringIO()
    with matplotlib.rc_context(_style(alt)):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Picture(_within_a_page(svg.getvalue(), alt), alt)


def _style(alt: str) -> Any:
    """What matplotlib draws by inside."""
    from cycler import cycler
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    if HEAT not in colormaps:
        ends = [(*to_rgb(ACCENT), alpha) for alpha in (0.0, 1.0)]
        colormaps.register(LinearSegmentedColormap.from_list(HEAT, ends))
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(inked, INK), "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left",
        "axes.spines.top": False, "axes.spines.right": False, "axes.prop_cycle": cycler(color=LINES),
        "legend.frameon": False, "lines.solid_joinstyle": "round", "image.cmap": HEAT, "image.interpolation": "nearest",
        "svg.fonttype": "none",  # letters stay letters
        "svg.hashsalt": hashlib.sha256(alt.encode()).hexdigest(),  # two pictures of a page share no ids
    }  # fmt: skip


def _within_a_page(svg: str, alt: str) -> str:
    """The `<svg>` alone, with its words, in the colour of the text around it; no styles, which a page shares, and of
    the ids, which must differ on a page, those that something refers to: they are salted."""
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    used = set(re.findall(r"""(?:url\(|href=")#([^")]+)""", svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(re.escape(INK), "currentColor", svg, flags=re.IGNORECASE)
    words = f'role="img" aria-label="{html.escape(alt)}"'
    return svg.replace("<svg", f'<svg {words} style="max-width: 100%; height: auto"', 1)
