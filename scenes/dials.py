"""Dials: a ring, hands that turn about its centre, and the arc that a hand has swept."""

from __future__ import annotations

import numpy as np

from scenes.parts import polylines, rounded
from scenes.shape import Point, Shape, straight
from scenes.theme import Theme

ARC = 24
"""Straight curves in a sector's rim; always as many, so that one sector turns into another."""


def ring(
    theme: Theme, centre: Point, radius: float, role: str = "wire", *, fill: str = "", width: float = 2.0
) -> Shape:
    """A circle in the colour of a role; `fill` is a role or colour, "" leaves it open."""
    x, y = centre
    points = rounded((x - radius, y - radius, x + radius, y + radius), radius)
    colour = theme.colour(role)
    filled = {"fill": theme.colour(fill), "fill_opacity": 1.0} if fill else {"fill": theme.colour("background")}
    return Shape(points, stroke=colour, stroke_width=width, **filled)  # type: ignore[arg-type]


def at(centre: Point, radius: float, angle: float) -> Point:
    """The point of a circle at an angle, counter-clockwise from the right."""
    return centre[0] + radius * float(np.cos(angle)), centre[1] + radius * float(np.sin(angle))


def hand(
    theme: Theme, centre: Point, length: float, angle: float, role: str, *, width: float = 0.05, head: float = 0.2
) -> Shape:
    """An arrow from the centre, one outline; between two boards it turns and does not shrink.

    `width` is that of its shaft, `head` the length of its tip, in units.
    """
    head = min(head, 0.6 * length)
    half, neck = width / 2, length - head
    flat = np.array([
        [0, half], [neck, half], [neck, half + 0.32 * head], [length, 0],
        [neck, -half - 0.32 * head], [neck, -half], [0, -half], [0, half],
    ])  # fmt: skip
    cos, sin = np.cos(angle), np.sin(angle)
    corners = np.zeros((len(flat), 3))
    corners[:, :2] = flat @ np.array([[cos, sin], [-sin, cos]]) + np.array(centre)
    made = Shape(straight(corners), fill=theme.colour(role), fill_opacity=1.0)
    made.heading = angle
    return made


def sector(theme: Theme, centre: Point, radius: float, start: float, sweep: float, colour: str) -> Shape:
    """The part of a disc swept from angle `start` by `sweep` radians; a full turn or more is the whole disc."""
    sweep = float(np.clip(sweep, -2 * np.pi, 2 * np.pi))
    rim = [at(centre, radius, start + sweep * i / ARC) for i in range(ARC + 1)]
    corners = np.zeros((ARC + 3, 3))
    corners[:, :2] = [centre, *rim, centre]
    return Shape(straight(corners), fill=theme.colour(colour), fill_opacity=1.0)


def arc(theme: Theme, centre: Point, radius: float, start: float, sweep: float, role: str, width: float = 3.0) -> Shape:
    """The rim alone, as a line."""
    rim = [at(centre, radius, start + sweep * i / (2 * ARC)) for i in range(2 * ARC + 1)]
    made = polylines(theme, [rim], role, width)
    made.heading = start
    return made
