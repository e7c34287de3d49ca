"""The shapes that figures are built of, each one `Shape`.

A shape of a role is quiet (a tint of its colour behind ink) or lit (its colour, full): lit means "this is what
changed", in every figure, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from scenes.board import Board
from scenes.shape import Box, Point, Shape, straight
from scenes.theme import Theme
from scenes.type import Label, label

QUIET = 0.14
"""Share of a role's colour in a quiet fill; more would cost dark text on the light theme its contrast."""


def panel(theme: Theme, at: Box, colour: str = "panel", radius: float = 0.12) -> Shape:
    """A filled, unstroked rounded rectangle."""
    return _outlined(rounded(at, radius), theme.colour(colour), None)


def organ(theme: Theme, role: str, at: Box, lit: bool = False, radius: float = 0.1) -> Shape:
    """An opaque box in the colour of a role."""
    colour = theme.colour(role)
    return _outlined(rounded(at, radius), colour if lit else theme.tint(role, QUIET), colour)


def chip(
    board: Board, key: str, theme: Theme, role: str, text: str, centre: Point, size: Point, lit: bool = False
) -> None:
    """Put a small organ with its name on it: parts `key:box` and `key:label`."""
    (x, y), (width, height) = centre, size
    at = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    board.put(f"{key}:box", organ(theme, role, at, lit))
    board.put(f"{key}:label", name(theme, role, text, centre, lit))


def gone(board: Board, key: str, theme: Theme, text: str, centre: Point, size: Point) -> None:
    """Put the place of an organ that was taken away: a dashed outline, its name behind a minus."""
    (x, y), (width, height) = centre, size
    at = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    board.put(f"{key}:box", panel(theme, at, "background", radius=0.1))
    board.put(f"{key}:outline", dashes(theme.colour("ink"), at))
    words = label("− " + text.removeprefix("+ "), "floor", theme.colour("ink"), "medium")
    board.put(f"{key}:label", words.at(*centre, "centre"))


def dashes(colour: str, at: Box, length: float = 0.09, gap: float = 0.07, thick: float = 0.028) -> Shape:
    """A dashed rectangle, its dashes spread evenly along each side."""
    left, bottom, right, top = at
    bars: list[Box] = []
    for start, end, vertical in ((left, right, False), (bottom, top, True)):
        count = max(1, round((end - start - gap) / (length + gap)))
        pitch = (end - start - gap) / count
        spans = [(start + gap + i * pitch, start + (i + 1) * pitch) for i in range(count)]
        for edge in (left, right) if vertical else (bottom, top):
            low, high = edge - thick / 2, edge + thick / 2
            bars += [(low, a, high, b) if vertical else (a, low, b, high) for a, b in spans]
    return rectangles(colour, bars)


def name(theme: Theme, role: str, text: str, centre: Point, lit: bool = False, size: str = "floor") -> Label:
    """The name on an organ: ink on a quiet one, whatever reads best on a lit one."""
    colour = theme.text_on(theme.colour(role)) if lit else theme.colour("ink")
    return label(text, size, colour, "medium").at(*centre, "centre")


def wire(theme: Theme, points: Sequence[Point], colour: str = "wire", width: float = 2.5) -> Shape:
    """A line through points, unfilled."""
    return polylines(theme, [points], colour, width)


def polylines(theme: Theme, lines: Iterable[Sequence[Point]], colour: str = "wire", width: float = 2.5) -> Shape:
    """Many lines through points as one shape, unfilled."""
    curves = [straight(_flat(points)) for points in lines]
    return Shape(np.concatenate(curves), stroke=theme.colour(colour), stroke_width=width)


def discs(colour: str, centres: Iterable[Point], radius: float) -> Shape:
    """Many discs of one radius as one shape."""
    at = rounded((-radius, -radius, radius, radius), radius)[[*range(4), *range(8, 12), *range(16, 20), *range(24, 28)]]
    return _outlined(np.concatenate([at + np.array([*centre, 0.0]) for centre in centres]), colour, None)


def tip(theme: Theme, end: Point, towards: Point, colour: str = "wire", size: float = 0.16) -> Shape:
    """An arrow head whose point is at `end`, pointing along `towards`."""
    along = np.array([*towards, 0.0]) / np.hypot(*towards)
    side, point = np.array([-along[1], along[0], 0.0]), np.array([*end, 0.0])
    base = point - along * size
    return polygons(theme.colour(colour), [[point, base + side * size * 0.5, base - side * size * 0.5]])


def plus(theme: Theme, centre: Point, radius: float = 0.15) -> tuple[Shape, Shape]:
    """The addition on the stream: a disc and, on it, a cross."""
    x, y = centre
    ring = rounded((x - radius, y - radius, x + radius, y + radius), radius)
    disc = _outlined(ring, theme.colour("background"), theme.colour("ink"))
    arm, thick = radius * 0.55, 0.018
    cross = rectangles(
        theme.colour("ink"),
        [(x - arm, y - thick, x + arm, y + thick), (x - thick, y - arm, x + thick, y + arm)],
    )
    return disc, cross


def rectangles(colour: str, boxes: Iterable[Box], stroke: str | None = None, stroke_width: float = 2.0) -> Shape:
    """Many rectangles of one colour as one shape. Empty boxes are kept, so that they can grow."""
    left, bottom, right, top = np.array(list(boxes), dtype=float).reshape(-1, 4).T
    corners = np.zeros((len(left), 5, 3))
    corners[:, :, 0] = np.stack([left, right, right, left, left], axis=1)
    corners[:, :, 1] = np.stack([bottom, bottom, top, top, bottom], axis=1)
    return _filled(straight(corners), colour, stroke, stroke_width)


def polygons(
    colour: str,
    outlines: Iterable[Sequence[Sequence[float] | np.ndarray]],
    stroke: str | None = None,
    stroke_width: float = 2.0,
) -> Shape:
    """Many filled polygons of one colour as one shape."""
    curves = [straight(_flat([*corners, corners[0]])) for corners in outlines]
    return _filled(np.concatenate(curves) if curves else np.zeros((0, 3)), colour, stroke, stroke_width)


def rounded(at: Box, radius: float) -> np.ndarray:
    """Cubic Bézier points (32, 3) of a rectangle with round corners; a square of half its side in radius is a circle.

    A quarter of a circle is one curve, its handles at 0.5523 of the radius (error under 0.03 %).
    """
    left, bottom, right, top = at
    lower, upper = np.array([left + radius, bottom + radius]), np.array([right - radius, top - radius])
    centres = [(upper[0], lower[1]), (upper[0], upper[1]), (lower[0], upper[1]), (lower[0], lower[1])]
    arcs = []
    for quarter, centre in enumerate(centres):
        angle = (quarter - 1) * np.pi / 2
        out = np.array([np.cos(angle), np.sin(angle)])
        side = np.array([-out[1], out[0]])
        arc = [out, out + 0.5523 * side, side + 0.5523 * out, side]
        arcs.append(np.array(centre) + radius * np.array(arc))
    curves = []
    for arc, following in zip(arcs, [*arcs[1:], arcs[0]]):
        start, end = arc[3], following[0]
        curves += [arc, np.stack([start, start + (end - start) / 3, start + (end - start) * 2 / 3, end])]
    points = np.zeros((32, 3))
    points[:, :2] = np.concatenate(curves)
    return points


def _outlined(points: np.ndarray, fill: str, stroke: str | None) -> Shape:
    return _filled(points, fill, stroke, 2.5)


def _filled(points: np.ndarray, fill: str, stroke: str | None, stroke_width: float) -> Shape:
    return Shape(
        points, fill=fill, fill_opacity=1.0, stroke=stroke or fill, stroke_width=stroke_width if stroke else 0.0
    )


def _flat(points: Sequence[Sequence[float] | np.ndarray]) -> np.ndarray:
    """Points in the plane as rows of three coordinates."""
    rows = np.zeros((len(points), 3))
    rows[:, :2] = [(p[0], p[1]) for p in points]
    return rows
