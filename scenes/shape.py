"""What boards are made of: outlines in one colour, which a film turns into Manim's objects and a page into SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in units."""
Point = tuple[float, float]


class Shape:
    """Outlines with one fill and one stroke.

    Attributes:
        points: (4n, 3), n cubic Bézier curves of four points each; where a curve does not begin at the end of the one
            before, a new outline begins. The third coordinate is 0.
        fill, fill_opacity: `#RRGGBB` and 0 to 1; an opacity of 0 means a line.
        stroke, stroke_width: `#RRGGBB` and hundredths of a unit.
        extent: the box that stands for the shape where it has too many pieces to look at each (a heat map).
        levels: how colours mean numbers, where they do (`scenes.charts.Levels`).
        is_scale: whether it belongs to the scale that tells so.
        heading: the angle in radians at which a thing that turns stands; a film moves it along the arc between two.
    """

    def __init__(
        self,
        points: np.ndarray,
        *,
        fill: str = "#000000",
        fill_opacity: float = 0.0,
        stroke: str = "#000000",
        stroke_width: float = 0.0,
    ) -> None:
        self.points = np.asarray(points, dtype=float).reshape(-1, 3)
        self.fill, self.fill_opacity = fill, fill_opacity
        self.stroke, self.stroke_width = stroke, stroke_width
        self.extent: Box | None = None
        self.levels: Any = None
        self.is_scale = False
        self.heading = 0.0

    @property
    def box(self) -> Box:
        """The bounding box of the points (strokes not counted)."""
        if not len(self.points):
            return (0.0, 0.0, 0.0, 0.0)
        (left, bottom, _), (right, top, _) = self.points.min(axis=0), self.points.max(axis=0)
        return float(left), float(bottom), float(right), float(top)

    @property
    def width(self) -> float:
        left, _, right, _ = self.box
        return right - left

    @property
    def height(self) -> float:
        _, bottom, _, top = self.box
        return top - bottom

    @property
    def centre(self) -> Point:
        """The middle of the bounding box."""
        left, bottom, right, top = self.box
        return (left + right) / 2, (bottom + top) / 2

    def shift(self, dx: float, dy: float) -> Self:
        """Move by (dx, dy)."""
        self.points = self.points + np.array([dx, dy, 0.0])
        if self.extent:
            left, bottom, right, top = self.extent
            self.extent = (left + dx, bottom + dy, right + dx, top + dy)
        return self

    def move_to(self, point: Sequence[float]) -> Self:
        """Move the middle of the bounding box to (x, y)."""
        x, y = self.centre
        return self.shift(float(point[0]) - x, float(point[1]) - y)

    def rotate(self, angle: float) -> Self:
        """Turn about the middle of the bounding box, counter-clockwise, in radians."""
        x, y = self.centre
        self.points = (self.points - [x, y, 0]) @ _turn(angle).T + [x, y, 0]
        return self


def _turn(angle: float) -> np.ndarray:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


def straight(corners: np.ndarray) -> np.ndarray:
    """Curves (..., 4(k - 1), n) along the lines through corners (..., k, n)."""
    starts, ends = corners[..., :-1, None, :], corners[..., 1:, None, :]
    share = np.array([0.0, 1 / 3, 2 / 3, 1.0])[:, None]
    curves = starts + (ends - starts) * share
    return curves.reshape(*corners.shape[:-2], -1, corners.shape[-1])


def outlines(points: np.ndarray) -> np.ndarray:
    """Index of each outline's first curve, for curves (4n, 3)."""
    curves = points.reshape(-1, 4, 3)
    if not len(curves):
        return np.zeros(0, dtype=int)
    jumps = np.abs(curves[1:, 0] - curves[:-1, 3]).max(axis=1) > 1e-6
    return np.concatenate([[0], np.flatnonzero(jumps) + 1])


def are_straight(points: np.ndarray) -> np.ndarray:
    """(n,): which of n curves, points (4n, 3), are lines walked at an even pace."""
    curves = points.reshape(-1, 4, 3)[:, :, :2]
    lines = curves[:, :1] + (curves[:, 3:] - curves[:, :1]) * np.array([1 / 3, 2 / 3])[:, None]
    return np.abs(curves[:, 1:3] - lines).max(axis=(1, 2), initial=0.0) < 1e-4
