"""A board as SVG: one file in one theme, or fragments for a page, where one drawing serves both themes.

Lengths are thousandths of a unit, y points down, so coordinates are whole numbers. A line of plain text stays text: it
can be searched, and it takes the measured width in whatever font the reader has. All else is paths.
"""

from __future__ import annotations

import math
import re
from html import escape

import numpy as np
import typst

from morph.story import Frame
from scenes.board import Board
from scenes.shape import Box, Shape, are_straight, outlines
from scenes.theme import FRAME_HEIGHT, FRAME_WIDTH, UNITS_PER_POINT, Theme
from scenes.type import WEIGHTS, Label, fonts

SCALE = 1000
SANS = "Inter, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', Arial, sans-serif"
"""What was measured, then what is about as wide: text is stretched to the measured width."""
MONO = "'DejaVu Sans Mono', ui-monospace, monospace"
COLLAPSED = re.compile(r"^[ \n\t]|[ \n\t]$|[\n\t]|  ")
"""Spaces that SVG would not show as they are; those that do not break it does."""
FULL: Box = (-FRAME_WIDTH / 2, -FRAME_HEIGHT / 2, FRAME_WIDTH / 2, FRAME_HEIGHT / 2)


def to_svg(board: Board, theme: Theme, frame: Frame) -> str:
    """A still as a file of its own, with the frame's title and alternative text for those who cannot see it."""
    left, top, width, height = view_box(FULL)
    parts = (element(shape, shape.fill, shape.stroke) for shape in board.values())
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left} {top} {width} {height}" role="img" '
        f'aria-labelledby="t d" font-family="{SANS}" stroke-linejoin="round">',
        f'<title id="t">{escape(frame.title)}</title>',
        f'<desc id="d">{escape(frame.alt)}</desc>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="{theme.colour("background")}"/>',
        *filter(None, parts),
        "</svg>\n",
    ])  # fmt: skip


def to_png(board: Board, theme: Theme, frame: Frame, width: int = 1280) -> bytes:
    """A still as a picture, `width` pixels wide, drawn by Typst: no Manim, no Cairo."""
    points = 720
    page = f'#set page(width: {points}pt, height: {points * 9 / 16}pt, margin: 0pt)\n#image("board.svg", width: 100%)'
    sources = {"main": page.encode(), "board.svg": to_svg(board, theme, frame).encode()}
    made: bytes = typst.compile(sources, format="png", ppi=72 * width / points, font_paths=fonts())
    return made


class Atlas:
    """The fragments and the colours of many boards, each stored once, in the order of their first use."""

    def __init__(self) -> None:
        self._palette: dict[tuple[str, str], int] = {}
        self._fragments: dict[str, int] = {}

    @property
    def palette(self) -> list[tuple[str, str]]:
        """What `var(--c0)`, `var(--c1)`, ... stand for: a colour in the dark theme and one in the light."""
        return list(self._palette)

    @property
    def fragments(self) -> list[str]:
        """SVG elements."""
        return list(self._fragments)

    def parts(self, dark: Board, light: Board) -> list[tuple[str, int]]:
        """Key and fragment of each part of a still, first drawn first.

        Raises:
            ValueError: when its two themes differ in more than colours.
        """
        if list(dark) != list(light):
            raise ValueError(f"a board has other keys in another theme: {sorted(dark.keys() ^ light.keys())}")
        found = []
        for key, shape in dark.items():
            other = light[key]
            if shape.points.shape != other.points.shape or not np.allclose(shape.points, other.points, atol=1e-6):
                raise ValueError(f"part {key!r} has another outline in another theme")
            drawn = element(shape, self._colour(shape.fill, other.fill), self._colour(shape.stroke, other.stroke))
            if drawn:
                found.append((key, self._fragments.setdefault(drawn, len(self._fragments))))
        return found

    def _colour(self, dark: str, light: str) -> str:
        return f"var(--c{self._palette.setdefault((dark, light), len(self._palette))})"


def view_box(at: Box) -> tuple[int, int, int, int]:
    """Left, top, width and height of a box as SVG counts them."""
    left, bottom, right, top = at
    return round(left * SCALE), round(-top * SCALE), round((right - left) * SCALE), round((top - bottom) * SCALE)


def element(shape: Shape, fill: str, stroke: str) -> str:
    """A shape as one SVG element in the colours given; "" for one that nothing is seen of."""
    if isinstance(shape, Label) and shape.plain and shape.lines == 1 and not COLLAPSED.search(shape.text):
        return _text(shape, fill)
    data = _path(shape)
    if not data:
        return ""
    look = f' fill="{fill}"' if shape.fill_opacity else ' fill="none"'
    if 0 < shape.fill_opacity < 1:
        look += f' fill-opacity="{shape.fill_opacity:g}"'
    if shape.stroke_width:
        look += f' stroke="{stroke}" stroke-width="{shape.stroke_width * SCALE / 100:g}"'
    return f'<path d="{data}"{look}/>'


SHORT = 3
"""Letters up to which a text keeps its own width, about its middle: a stretched digit looks wrong."""


def _text(words: Label, fill: str) -> str:
    along = np.array([math.cos(words.angle), math.sin(words.angle)]) * words.advance
    if len(words.text) <= SHORT:
        start, place = words.origin + along / 2, 'text-anchor="middle"'
    else:
        start, place = words.origin, f'textLength="{round(words.advance * SCALE)}" lengthAdjust="spacingAndGlyphs"'
    x, y = round(start[0] * SCALE), round(-start[1] * SCALE)
    look = f'font-size="{words.size * UNITS_PER_POINT * SCALE:g}" fill="{fill}"'
    if WEIGHTS[words.weight] != 400:
        look += f' font-weight="{WEIGHTS[words.weight]}"'
    if words.mono:
        look += f' font-family="{MONO}"'
    if words.angle:
        look += f' transform="rotate({-math.degrees(words.angle):g} {x} {y})"'
    return f'<text x="{x}" y="{y}" {look} {place}>{escape(words.text, quote=False)}</text>'


def _path(shape: Shape) -> str:
    """Path data, relative but for the first point of each outline. A curve that is straight is written as a line."""
    curves = shape.points.reshape(-1, 4, 3)[:, :, :2]
    if not len(curves):
        return ""
    is_straight = are_straight(shape.points)
    whole = np.rint(curves * [SCALE, -SCALE]).astype(int)
    starts = outlines(shape.points).tolist()
    parts = []
    for first, end in zip(starts, [*starts[1:], len(whole)]):
        span = np.ptp(whole[first:end].reshape(-1, 2), axis=0)
        if not (span.all() if shape.fill_opacity else span.any()):
            continue
        parts.append(_outline(whole[first:end].tolist(), is_straight[first:end].tolist()))
    return "".join(parts)


def _outline(curves: list[list[list[int]]], is_straight: list[bool]) -> str:
    (x, y), last = curves[0][0], curves[-1][3]
    is_closed = last == [x, y]
    steps: list[tuple[str, list[int]]] = [("M", [x, y])]
    if is_closed and is_straight[-1]:
        curves, is_straight = curves[:-1], is_straight[:-1]  # "z" draws the last line
    for (_, one, two, (end_x, end_y)), straight in zip(curves, is_straight):
        dx, dy = end_x - x, end_y - y
        if not straight:
            steps.append(("c", [one[0] - x, one[1] - y, two[0] - x, two[1] - y, dx, dy]))
        elif dy == 0:
            if dx:
                steps.append(("h", [dx]))
        elif dx == 0:
            steps.append(("v", [dy]))
        else:
            steps.append(("l", [dx, dy]))
        x, y = end_x, end_y
    text, before = "", ""
    for command, numbers in steps:
        words = "".join(str(n) if n < 0 else f" {n}" for n in numbers)
        text += words if command == before else command + words.lstrip()
        before = command
    return text + ("z" if is_closed else "")
