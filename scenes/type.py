"""Text as outlines, set by Typst: shaped and kerned, and the same on every machine.

A `Label` is one `Shape`: all of its glyphs in one path (a tree of glyphs, as Manim sets text, is copied at every
animation), with the baseline at y = 0. System fonts are never used: Inter comes with `fontpkg-inter`, and Typst carries
DejaVu Sans Mono and New Computer Modern Math.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import fontpkg_inter
import numpy as np
import typst

from scenes.shape import Shape, straight
from scenes.theme import SIZES, UNITS_PER_POINT

SET_AT = 10
"""Points at which Typst sets text; outlines are scaled from there."""
SANS, MONO = "Inter", "DejaVu Sans Mono"
CAP_HEIGHT = 0.727
"""Height of a capital of Inter, in em."""
LEADING = 0.62
"""Space between two lines, from a baseline to the capitals under it, in em."""
WEIGHTS = {"regular": 400, "medium": 500, "bold": 600}
PREAMBLE = """\
#set page(width: auto, height: auto, margin: 0pt, fill: none)
#set text(font: "{font}", weight: {weight}, size: {size}pt)
#set par(leading: {leading}em)
#show math.equation: set text(font: "New Computer Modern Math", size: 1.12em)
"""


class Label(Shape):
    """A text in one colour.

    Attributes:
        text: as written.
        size: in points.
        weight: a name in `WEIGHTS`.
        mono: set in fixed width.
        plain: whether `text` is what is read: no markup.
        origin: where its baseline begins, in units.
        angle: the direction of its baseline, in radians.
        advance: from `origin` to the end of the (longest) line, in units.
    """

    def __init__(
        self, outline: np.ndarray, text: str, size: float, colour: str, weight: str, mono: bool, plain: bool
    ) -> None:
        super().__init__(outline, fill=colour, fill_opacity=1.0, stroke=colour)
        self.text, self.size, self.weight, self.mono, self.plain = text, size, weight, mono, plain
        self.origin, self.angle, self.advance = np.zeros(2), 0.0, self.box[2]

    @property
    def lines(self) -> int:
        """How many lines the text takes."""
        pitch = (CAP_HEIGHT + LEADING) * self.size * UNITS_PER_POINT
        height = self.width if self.angle % np.pi else self.height
        return round(height / pitch - CAP_HEIGHT / (CAP_HEIGHT + LEADING)) + 1

    def at(self, x: float, y: float, anchor: str = "left") -> Label:
        """Move the label: `x` is its left edge, centre or right edge, `y` the middle of its first line's capitals.

        Placing capitals, not the bounding box, keeps a row of labels on one line whether or not they have descenders.
        """
        low, _, high, _ = self.box
        edge = {"left": low, "centre": (low + high) / 2, "right": high}[anchor]
        cap = CAP_HEIGHT * self.size * UNITS_PER_POINT
        return self.shift(x - edge, y - cap / 2)

    def shift(self, dx: float, dy: float) -> Label:
        self.origin = self.origin + np.array([dx, dy])
        return super().shift(dx, dy)

    def rotate(self, angle: float) -> Label:
        about = np.array(self.centre)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        self.origin = turn @ (self.origin - about) + about
        self.angle += angle
        return super().rotate(angle)


def label(
    text: str,
    size: str = "label",
    colour: str = "#000000",
    weight: str = "regular",
    *,
    width: float | None = None,
    mono: bool = False,
    markup: bool = False,
) -> Label:
    """Set `text` with its baseline at y = 0 and its left edge near x = 0.

    Args:
        text: plain text; with `markup` it is Typst source instead (`$q_i$` for mathematics).
        size: a name in `theme.SIZES`.
        colour: `#RRGGBB`.
        weight: a name in `WEIGHTS`.
        width: break lines at this many units; `None` keeps one line.
        mono: fixed-width, for code.
    """
    points = SIZES[size]
    source = text if markup else literal(text)
    if width is not None:
        source = f"#block(width: {width / (points * UNITS_PER_POINT) * SET_AT:.2f}pt)[{source}]"
    drawn = outline(source, WEIGHTS[weight], MONO if mono else SANS) * (points / SET_AT)
    return Label(drawn, text, points, colour, weight, mono, not markup)


def fitted(text: str, room: float, size: str = "label", colour: str = "#000000", weight: str = "regular") -> Label:
    """A plain label on one line, its end left out where it would be wider than `room` units."""
    made, kept = label(text, size, colour, weight), len(text)
    while made.width > room and kept > 1:
        kept = min(kept - 1, max(1, int(kept * room / made.width)))
        made = label(text[:kept].rstrip() + "…", size, colour, weight)
    return made


def literal(text: str) -> str:
    """`text` as a Typst string literal: no character of it is read as markup."""
    return '#"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@cache
def fonts() -> typst.Fonts:
    """Inter and what Typst embeds; nothing of the system's."""
    folder = Path(fontpkg_inter.__file__).parent / "files"
    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=True, font_paths=[str(folder)])


@cache
def outline(source: str, weight: int, font: str) -> np.ndarray:
    """Cubic Bézier points (4n, 3) of `source` set at `SET_AT` points, in units; the first baseline is y = 0.

    About 2 ms a text, so there is no cache on disk to go stale.
    """
    document = PREAMBLE.format(font=font, weight=weight, size=SET_AT, leading=LEADING) + source
    root = ElementTree.fromstring(typst.compile(document.encode(), format="svg", font_paths=fonts()))
    symbols = {s.get("id", ""): _path(s[0].get("d", "")) for s in root.iter(f"{SVG}symbol") if len(s)}
    shapes = list(_placed(root, np.eye(3), symbols))
    # A text run hangs from its baseline, so where the first run hangs is the baseline of the first line.
    baseline = next((b for b, _ in shapes if b is not None), 0.0)
    flat = np.concatenate([p for _, p in shapes]) if shapes else np.zeros((0, 2))
    points = np.zeros((len(flat), 3))
    points[:, 0], points[:, 1] = flat[:, 0], baseline - flat[:, 1]  # SVG's y points down
    points *= UNITS_PER_POINT
    points.setflags(write=False)
    return points


# ---- reading Typst's SVG: nested groups, `use` of glyph symbols, and rules of formulas ----

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
_NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")
_COMMAND = re.compile(r"([MmLlHhVvQqCcZz])([^MmLlHhVvQqCcZz]*)")


def _placed(
    node: ElementTree.Element, frame: np.ndarray, symbols: dict[str, np.ndarray]
) -> Iterator[tuple[float | None, np.ndarray]]:
    """Yield (baseline or None, points) of each shape under `node`; `frame` (3, 3) maps it to the page."""
    for child in node:
        here = frame @ _transform(child.get("transform", ""))
        if child.tag == f"{SVG}g":
            yield from _placed(child, here, symbols)
        elif child.tag == f"{SVG}use":
            shift = np.array([float(child.get("x", 0)), float(child.get("y", 0))])
            glyph = symbols.get(child.get(f"{XLINK}href", "")[1:], np.zeros((0, 2)))  # a space has no outline
            yield float(here[1, 2]), (glyph + shift) @ here[:2, :2].T + here[:2, 2]
        elif child.tag == f"{SVG}path":
            points = _path(child.get("d", ""))
            if child.get("fill") == "none":  # a stroked rule becomes a filled bar
                points = _bar(points, float(child.get("stroke-width", 1)))
            yield None, points @ here[:2, :2].T + here[:2, 2]


def _transform(text: str) -> np.ndarray:
    matrix, numbers = np.eye(3), [float(n) for n in _NUMBER.findall(text)]
    if text.startswith("matrix"):
        matrix[:2] = np.array(numbers).reshape(3, 2).T
    elif text.startswith("translate"):
        matrix[:2, 2] = [*numbers, 0.0][:2]
    elif text.startswith("scale"):
        matrix[0, 0], matrix[1, 1] = numbers[0], numbers[-1]
    return matrix


def _bar(points: np.ndarray, thickness: float) -> np.ndarray:
    start, end = points[0], points[-1]
    along = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
    side = np.array([-along[1], along[0]]) * thickness / 2
    corners = [start + side, end + side, end - side, start - side, start + side]
    return straight(np.array(corners))


@cache
def _path(data: str) -> np.ndarray:
    """SVG path data as cubic Bézier points (4n, 2), every contour closed as SVG closes it; each glyph is read once."""
    curves: list[np.ndarray] = []
    pen, start = np.zeros(2), np.zeros(2)
    for command, tail in _COMMAND.findall(data):
        numbers, kind = [float(n) for n in _NUMBER.findall(tail)], command.lower()
        relative = command.islower()
        if kind == "z":
            if not np.allclose(pen, start):
                curves.append(straight(np.stack([pen, start])))
            pen = start
            continue
        if kind in "hv":
            axis, base = (0, pen[0]) if kind == "h" else (1, pen[1])
            end = pen.copy()
            end[axis] = numbers[0] + (base if relative else 0)
            curves.append(straight(np.stack([pen, end])))
            pen = end
            continue
        anchors = np.array(numbers).reshape(-1, 2) + (pen if relative else 0)
        if kind == "m":
            start = anchors[0]
        elif kind == "l":
            curves.append(straight(np.stack([pen, anchors[0]])))
        elif kind == "q":
            middle, end = anchors
            curves.append(np.stack([pen, pen + (middle - pen) * 2 / 3, end + (middle - end) * 2 / 3, end]))
        else:
            curves.append(np.stack([pen, *anchors]))
        pen = anchors[-1]
    return np.concatenate(curves) if curves else np.zeros((0, 2))
