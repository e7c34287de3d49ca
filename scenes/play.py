"""The film: stills played one after another by Manim, what is alike standing still.

Shapes become Manim's objects here, and nowhere else but in the camera.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from manim import Animation, ReplacementTransform, Scene, VMobject, smooth, squish_rate_func

from scenes.board import Board, Difference, Still, covered, difference
from scenes.camera import QuickCamera, mobject
from scenes.shape import Shape
from scenes.theme import ENTER, LEAVE, MOVE, Theme

Cast = Callable[[Shape], VMobject]
"""Gives the one object that plays a shape."""


class Fade(Animation):
    """A part's opacity from `start` to `end` (0 none, 1 its own). Unlike Manim's fades it copies and moves nothing."""

    def __init__(self, mobject: VMobject, start: float, end: float, span: tuple[float, float]) -> None:
        super().__init__(mobject, rate_func=squish_rate_func(smooth, *span))
        self.start, self.end = start, end
        self.fill, self.stroke = mobject.fill_rgbas.copy(), mobject.stroke_rgbas.copy()

    def create_starting_mobject(self) -> VMobject:
        return self.mobject

    def interpolate_mobject(self, alpha: float) -> None:
        self._show(self.start + (self.end - self.start) * self.rate_func(alpha))

    def clean_up_from_scene(self, scene: Scene) -> None:
        self._show(1)  # a part that left keeps its colours: it may stand on a still of its own

    def _show(self, share: float) -> None:
        opacity = np.array([1, 1, 1, share])
        self.mobject.fill_rgbas, self.mobject.stroke_rgbas = self.fill * opacity, self.stroke * opacity


def animations(old: Board, new: Board, change: Difference, cast: Cast) -> list[Animation]:
    """What plays between two boards: old text is gone before new text comes, shapes turn into their successors."""
    return [
        *(Fade(cast(old[key]), 1, 0, LEAVE) for key in change.leave + change.swap),
        *(
            ReplacementTransform(cast(old[key]), cast(new[key]), path_arc=new[key].heading - old[key].heading)
            for key in change.move
        ),
        *(Fade(cast(new[key]), 0, 1, ENTER) for key in change.enter + change.swap),
    ]


class Film(Scene):
    """Plays a sequence of stills. After `render`, `starts` and `ends` hold each still's first and last second."""

    def __init__(self, stills: Sequence[Still], theme: Theme, on_still: Callable[[], object] | None = None) -> None:
        super().__init__(camera_class=QuickCamera)
        self.stills, self.theme, self.on_still = stills, theme, on_still
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.changes: list[Difference] = []
        self._cast: dict[Shape, VMobject] = {}

    def cast(self, shape: Shape) -> VMobject:
        """The object that plays a shape: the same one as long as the shape is the same."""
        if shape not in self._cast:
            self._cast[shape] = mobject(shape)
        return self._cast[shape]

    def setup(self) -> None:
        self.camera.background_color = self.theme.colour("background")

    def construct(self) -> None:
        frame = 1 / self.camera.frame_rate
        old = Board()
        for still in self.stills:
            new, start = still.board, self.renderer.time
            change = difference(old, new)
            if old:
                self._arrange(old, new, change)
                self.play(*animations(old, new, change, self.cast), run_time=MOVE)
            self.clear()
            self.add(*map(self.cast, new.values()))
            self.wait(frame)  # one picture at rest; the pause itself is a gap between time stamps (scenes/film.py)
            self.starts.append(start)
            self.ends.append(self.renderer.time)
            self.changes.append(change)
            if self.on_still:
                self.on_still()
            old = new

    def _arrange(self, old: Board, new: Board, change: Difference) -> None:
        """Order the scene: what stands still, then all that moves or lies over it, bottom to top.

        What leaves keeps its place above what it lay on, or a moving ground would hide it at once.
        """
        again = covered(old, new, change)
        still = [new[key] for key in change.keep if key not in again]
        keys, above = [key for key in new if key in again or key in change.changed], 0
        for key in old:
            if key in change.leave:
                keys.insert(above, key)
            if key in keys:
                above = keys.index(key) + 1
        rest = []
        for key in keys:
            rest += [old[key]] if key in change.move or key in change.swap or key in change.leave else []
            rest += [new[key]] if key not in change.move and key not in change.leave else []
        self.clear()
        self.add(*map(self.cast, [*still, *rest]))
