"""A still is a `Board`; a film is the keyed difference of one board and the next.

A board maps keys to mobjects in drawing order, and is a pure function of a frame's data. Any still can be built alone.
What two boards share is carried over as the same object, which is why an unchanged part cannot twitch, and why Manim
need not draw it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from manim import Animation, ReplacementTransform, Scene, VMobject, smooth, squish_rate_func

from scenes.camera import QuickCamera
from scenes.theme import ENTER, LEAVE, MOVE, Theme
from scenes.type import Label

Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in units."""


class Board(dict[str, VMobject]):
    """Key -> mobject, first drawn first. `attention.norm:box` is the part `box` of the thing `attention.norm`.

    `cut` is the x at which the stage may be split into two columns, one above the other on a narrow screen; nothing
    crosses it. None keeps the stage whole.
    """

    cut: float | None = None

    def put(self, key: str, mobject: VMobject) -> None:
        """Add a part on top of those already there; a key is used once."""
        if key in self:
            raise KeyError(f"board already has {key!r}")
        self[key] = mobject


@dataclass(frozen=True)
class Still:
    """A board with its name and the seconds a viewer needs to take it in."""

    key: str
    board: Board
    hold: float
    subtitle: str


@dataclass
class Difference:
    """Keys by what happens to them between two boards: `swap` is one thing replaced by another on the same spot."""

    keep: list[str] = field(default_factory=list)
    move: list[str] = field(default_factory=list)
    swap: list[str] = field(default_factory=list)
    enter: list[str] = field(default_factory=list)
    leave: list[str] = field(default_factory=list)

    @property
    def changed(self) -> set[str]:
        """Every key that does not stay as it is."""
        return {*self.move, *self.swap, *self.enter, *self.leave}


def box(mobject: VMobject) -> Box:
    """The bounding box of a mobject's points (strokes not counted)."""
    low, high = mobject.points.min(axis=0), mobject.points.max(axis=0)
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def overlap(a: Box, b: Box, slack: float = 0.0) -> bool:
    """Whether two boxes share more than `slack` units in both directions."""
    return a[0] < b[2] - slack and b[0] < a[2] - slack and a[1] < b[3] - slack and b[1] < a[3] - slack


def same(a: VMobject, b: VMobject) -> bool:
    """Whether two mobjects draw the same picture."""
    return (
        type(a) is type(b)
        and a.points.shape == b.points.shape
        and bool(np.allclose(a.points, b.points, atol=1e-4))
        and np.array_equal(a.get_fill_rgbas(), b.get_fill_rgbas())
        and np.array_equal(a.get_stroke_rgbas(), b.get_stroke_rgbas())
        and a.stroke_width == b.stroke_width
    )


def difference(old: Board, new: Board) -> Difference:
    """Sort the keys of two boards. Parts that are alike become the same object: `new[key] is old[key]`."""
    found = Difference(leave=[key for key in old if key not in new])
    for key, mobject in new.items():
        if key not in old:
            found.enter.append(key)
        elif same(old[key], mobject):
            new[key] = old[key]
            found.keep.append(key)
        elif _other(old[key], mobject):
            found.swap.append(key)
        else:
            found.move.append(key)
    return found


def _other(old: VMobject, new: VMobject) -> bool:
    """Whether turning one into the other would be a mess: another text, or an outline of other pieces."""
    if isinstance(new, Label):
        return new.text != getattr(old, "text", None)
    return old.points.shape != new.points.shape


def covered(old: Board, new: Board, change: Difference) -> set[str]:
    """Kept keys that must be drawn again during the change, because something below them moves.

    Manim draws what stands still first. A label that stays while its box changes would vanish under the box.
    """
    moving = [box(old[key]) for key in change.leave]
    again: set[str] = set()
    for key, mobject in new.items():
        here = box(mobject)
        if key in change.changed:
            moving += [here, *([box(old[key])] if key in old else [])]
        elif any(overlap(here, other) for other in moving):
            again.add(key)
            moving.append(here)
    return again


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


def animations(old: Board, new: Board, change: Difference) -> list[Animation]:
    """What plays between two boards: old text is gone before new text comes, shapes turn into their successors."""
    return [
        *(Fade(old[key], 1, 0, LEAVE) for key in change.leave + change.swap),
        *(ReplacementTransform(old[key], new[key]) for key in change.move),
        *(Fade(new[key], 0, 1, ENTER) for key in change.enter + change.swap),
    ]


class Film(Scene):
    """Plays a sequence of stills. After `render`, `starts` and `ends` hold each still's first and last second."""

    def __init__(self, stills: Sequence[Still], theme: Theme, on_still: Callable[[], object] | None = None) -> None:
        super().__init__(camera_class=QuickCamera)
        self.stills, self.theme, self.on_still = stills, theme, on_still
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.changes: list[Difference] = []

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
                self.play(*animations(old, new, change), run_time=MOVE)
            self.clear()
            self.add(*new.values())
            self.wait(frame)  # one picture at rest; the pause itself is a gap between time stamps (scenes/film.py)
            self.starts.append(start)
            self.ends.append(self.renderer.time)
            self.changes.append(change)
            if self.on_still:
                self.on_still()
            old = new

    def _arrange(self, old: Board, new: Board, change: Difference) -> None:
        """Order the scene: what stands still, then what leaves, then what moves or lies over it, bottom to top."""
        again = covered(old, new, change)
        still = [new[key] for key in change.keep if key not in again]
        rest = [old[key] for key in change.leave]
        for key in new:
            if key in again or key in change.enter:
                rest.append(new[key])
            elif key in change.move:
                rest.append(old[key])
            elif key in change.swap:
                rest += [old[key], new[key]]
        self.clear()
        self.add(*still, *rest)
