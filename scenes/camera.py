"""Manim's Cairo camera, with a memory for outlines.

Manim hands Cairo a path curve by curve, from Python, each time that it draws. Most of a figure is text, which fades but
does not change its outline; handed over once and copied from then on, it is drawn about three times as fast. What does
change is handed over with less ado, lines as lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
from manim import Camera, VMobject

from scenes.shape import Shape, are_straight, outlines
from scenes.theme import rgb

KEPT = 2000
"""Outlines to remember; a figure has a few hundred, and a moving one leaves a new one with every picture."""


BLANK = VMobject(stroke_width=0)


def mobject(shape: Shape) -> VMobject:
    """A shape as Manim's object, with points of its own."""
    made = copy(BLANK)  # VMobject() works out colours and lists for 0.3 ms, and all that differs is set below
    made.submobjects, made.updaters = [], []
    made.points = shape.points.copy()
    made.fill_rgbas = np.array([[*rgb(shape.fill), shape.fill_opacity]])
    made.stroke_rgbas = np.array([[*rgb(shape.stroke), 1.0]])
    made.background_stroke_rgbas = np.zeros((1, 4))
    made.stroke_width = shape.stroke_width
    return made


class QuickCamera(Camera):
    """Draws what `Camera` draws, up to the rounding of edges."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paths: dict[bytes, Any] = {}

    def picture(self, shapes: Iterable[Shape]) -> np.ndarray:
        """Draw shapes on the empty background, first at the bottom. Returns RGBA bytes, (height, width, 4)."""
        self.reset()
        self.capture_mobjects([mobject(shape) for shape in shapes])
        return self.pixel_array.copy()

    def set_cairo_context_path(self, ctx: Any, vmobject: VMobject) -> QuickCamera:
        """Put a mobject's outline into the Cairo context."""
        # An animation from a shape to itself gives its points back but for the last bits of a double.
        key = vmobject.points.astype(np.float32).tobytes()
        ctx.new_path()
        if key in self._paths:
            ctx.append_path(self._paths[key])
            return self
        _trace(ctx, vmobject.points)
        if len(self._paths) >= KEPT:
            self._paths.clear()
        self._paths[key] = ctx.copy_path()
        return self


def _trace(ctx: Any, points: np.ndarray) -> None:
    """Hand curves (4n, 3) to Cairo; an outline that ends where it began is closed."""
    curves, starts = points.reshape(-1, 4, 3)[:, :, :2], outlines(points)
    ends = np.append(starts[1:], len(curves))
    is_closed = np.abs(curves[starts, 0] - curves[ends - 1, 3]).max(axis=1, initial=0.0) < 1e-6
    steps, lines = curves[:, 1:].reshape(-1, 6).tolist(), are_straight(points).tolist()
    for first, end, closed in zip(starts.tolist(), ends.tolist(), is_closed.tolist()):
        ctx.move_to(*curves[first, 0])
        for step, straight in zip(steps[first:end], lines[first:end]):
            if straight:
                ctx.line_to(step[4], step[5])
            else:
                ctx.curve_to(*step)
        if closed:
            ctx.close_path()
