"""Manim's Cairo camera, with a memory for outlines.

Manim hands Cairo a path curve by curve, from Python, each time that it draws. Most of a figure is text, which fades but
does not change its outline; handed over once and copied from then on, it is drawn about three times as fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from manim import Camera, VMobject

from scenes.shape import Shape

KEPT = 2000
"""Outlines to remember; a figure has a few hundred, and a moving one leaves a new one with every picture."""


def mobject(shape: Shape) -> VMobject:
    """A shape as Manim's object, with points of its own."""
    made = VMobject(
        fill_color=shape.fill, fill_opacity=shape.fill_opacity, stroke_color=shape.stroke,
        stroke_width=shape.stroke_width,
    )  # fmt: skip
    made.points = shape.points.copy()
    return made


class QuickCamera(Camera):
    """Draws what `Camera` draws."""

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
        path = self._paths.get(key)
        if path is None:
            super().set_cairo_context_path(ctx, vmobject)
            if len(self._paths) >= KEPT:
                self._paths.clear()
            self._paths[key] = ctx.copy_path()
        else:
            ctx.new_path()
            ctx.append_path(path)
        return self
