"""A still is a `Board`; a film is the keyed difference of one board and the next.

A board maps keys to shapes in drawing order, and is a pure function of a frame's data. Any still can be built alone.
What two boards share is carried over as the same object, which is why an unchanged part cannot twitch and need not be
drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scenes.shape import Box, Shape
from scenes.type import Label


class Board(dict[str, Shape]):
    """Key -> shape, first drawn first. `attention.norm:box` is the part `box` of the thing `attention.norm`.

    `cut` is the x at which the stage may be split into two columns, one above the other on a narrow screen; nothing
    crosses it. None keeps the stage whole.
    """

    cut: float | None = None

    def put(self, key: str, shape: Shape) -> None:
        """Add a part on top of those already there; a key is used once."""
        if key in self:
            raise KeyError(f"board already has {key!r}")
        self[key] = shape


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


def overlap(a: Box, b: Box, slack: float = 0.0) -> bool:
    """Whether two boxes share more than `slack` units in both directions."""
    return a[0] < b[2] - slack and b[0] < a[2] - slack and a[1] < b[3] - slack and b[1] < a[3] - slack


def same(a: Shape, b: Shape) -> bool:
    """Whether two shapes draw the same picture."""
    return (
        type(a) is type(b)
        and a.points.shape == b.points.shape
        and bool(np.allclose(a.points, b.points, atol=1e-4))
        and (a.fill, a.fill_opacity, a.stroke, a.stroke_width) == (b.fill, b.fill_opacity, b.stroke, b.stroke_width)
    )


def difference(old: Board, new: Board) -> Difference:
    """Sort the keys of two boards. Parts that are alike become the same object: `new[key] is old[key]`."""
    found = Difference(leave=[key for key in old if key not in new])
    for key, shape in new.items():
        if key not in old:
            found.enter.append(key)
        elif same(old[key], shape):
            new[key] = old[key]
            found.keep.append(key)
        elif _other(old[key], shape):
            found.swap.append(key)
        else:
            found.move.append(key)
    return found


def _other(old: Shape, new: Shape) -> bool:
    """Whether turning one into the other would be a mess: another text, or an outline of other pieces."""
    if isinstance(new, Label):
        return new.text != getattr(old, "text", None)
    return old.points.shape != new.points.shape


def covered(old: Board, new: Board, change: Difference) -> set[str]:
    """Kept keys that must be drawn again during the change, because something below them moves.

    Manim draws what stands still first. A label that stays while its box changes would vanish under the box.
    """
    moving = [old[key].box for key in change.leave]
    again: set[str] = set()
    for key, shape in new.items():
        here = shape.box
        if key in change.changed:
            moving += [here, *([old[key].box] if key in old else [])]
        elif any(overlap(here, other) for other in moving):
            again.add(key)
            moving.append(here)
    return again
