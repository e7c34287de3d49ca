"""Colours, sizes and pace of every figure. Data and arithmetic only: nothing here imports Manim.

Colours come from `morph.story.palette`, by role. A figure says `theme.colour("norm")`, never a hex value, so both
themes follow from one board. Lengths are Manim units: the frame is 14.2 wide and 8 high, 60 px a unit at 480p.
"""

from __future__ import annotations

from dataclasses import dataclass

from morph.errors import MorphError, nearest
from morph.story.palette import THEMES

FRAME_WIDTH = 8 * 16 / 9
FRAME_HEIGHT = 8.0
MARGIN = 0.25
"""No text comes closer to the frame's edge than this."""

SIZES = {"display": 64, "title": 34, "body": 24, "label": 21, "floor": 18}
"""Type scale in points. A point is 1/96 unit, so `floor` is 11 px at 480p: nothing smaller is readable there."""
UNITS_PER_POINT = 1 / 96

MOVE = 1.2
"""Seconds a transition takes."""
LEAVE, ENTER = (0.0, 0.35), (0.6, 1.0)
"""Parts of a transition in which old text fades out and new text fades in; two texts never share a spot."""
WORDS_PER_SECOND = 3.5
MINIMUM_HOLD = 1.5


def hold(text: str) -> float:
    """Seconds a still stays, so that `text` can be read."""
    return max(MINIMUM_HOLD, len(text.split()) / WORDS_PER_SECOND)


@dataclass(frozen=True)
class Theme:
    """One palette: `colours` maps a role to `#RRGGBB`."""

    name: str
    colours: dict[str, str]

    def colour(self, role: str) -> str:
        """Hex colour of a role; a hex colour passes through."""
        return role if role.startswith("#") else self.colours[role]

    def tint(self, role: str, amount: float, on: str = "background") -> str:
        """An opaque mixture: `amount` of the role's colour in the background's. Lines behind it never show through."""
        return mix(self.colour(on), self.colour(role), amount)

    def text_on(self, fill: str) -> str:
        """The background's or the ink's colour, whichever reads better on `fill`."""
        return max((self.colour("ink"), self.colour("background")), key=lambda c: contrast(c, fill))


def theme(name: str) -> Theme:
    """The theme called `name`. Raises `MorphError` naming the nearest."""
    if name not in THEMES:
        raise MorphError(f"no theme is called {name!r}; there is {', '.join(THEMES)}{nearest(name, THEMES)}")
    return Theme(name, THEMES[name])


def rgb(colour: str) -> tuple[float, float, float]:
    """`#RRGGBB` as three numbers in 0..1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def mix(a: str, b: str, amount: float) -> str:
    """`#RRGGBB` at `amount` (0..1) of the way from `a` to `b`, in sRGB."""
    return "#" + "".join(f"{round(255 * (p + (q - p) * amount)):02X}" for p, q in zip(rgb(a), rgb(b)))


def luminance(colour: str) -> float:
    """Relative luminance of a colour, 0 to 1 (WCAG 2.2)."""
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb(colour))
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear))


def lightness(colour: str) -> float:
    """How light a colour looks, about 0 to 1: the cube root of its luminance."""
    return float(luminance(colour) ** (1 / 3))


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)
