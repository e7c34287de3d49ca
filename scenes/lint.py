"""What a careful eye would mark on a still, found on the board without drawing it.

Off the frame, text too near its edge or too small, too little contrast with what lies under it, two texts on one spot,
text across the edge of a shape, a line through text, two shapes that half cover each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from manim import VMobject

from scenes.board import Board, Box, box, overlap
from scenes.theme import FRAME_HEIGHT, FRAME_WIDTH, MARGIN, SIZES, Theme, contrast, mix
from scenes.type import Label

SLACK = 0.02
"""Units by which things may touch."""
READABLE, LARGE_READABLE, LARGE = 4.5, 3.0, 24
"""Contrast that text needs, and that text of `LARGE` points needs (WCAG 2.2, 1.4.3)."""


@dataclass(frozen=True)
class Fault:
    """One finding: `rule` is one of the names in `lint`, `keys` the parts it is about."""

    rule: str
    keys: tuple[str, ...]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {' × '.join(self.keys)} {self.detail}".rstrip()


def lint(board: Board, theme: Theme) -> list[Fault]:
    """All faults of a still, in the order of its keys."""
    return [*_places(board), *_letters(board, theme), *_collisions(board)]


def _places(board: Board) -> Iterator[Fault]:
    frame = (-FRAME_WIDTH / 2, -FRAME_HEIGHT / 2, FRAME_WIDTH / 2, FRAME_HEIGHT / 2)
    safe = (frame[0] + MARGIN, frame[1] + 0.6 * MARGIN, frame[2] - MARGIN, frame[3] - 0.6 * MARGIN)
    for key, mobject in board.items():
        here = box(mobject)
        if not _inside(here, frame):
            yield Fault("off the frame", (key,), _show(here))
        elif isinstance(mobject, Label) and not _inside(here, safe):
            yield Fault("in the margin", (key,), _show(here))


def _letters(board: Board, theme: Theme) -> Iterator[Fault]:
    for key, mobject in board.items():
        if not isinstance(mobject, Label):
            continue
        if mobject.size < SIZES["floor"]:
            yield Fault("under the floor", (key,), f"{mobject.size} < {SIZES['floor']} points")
        ground = _ground(board, key, theme)
        ratio = contrast(_hex(mobject), ground)
        if ratio < (LARGE_READABLE if mobject.size >= LARGE else READABLE):
            yield Fault("low contrast", (key,), f"{ratio:.1f} on {ground}")


def _collisions(board: Board) -> Iterator[Fault]:
    texts = {key: box(m) for key, m in board.items() if isinstance(m, Label)}
    for (a, box_a), (b, box_b) in combinations(texts.items(), 2):
        if overlap(box_a, box_b):
            yield Fault("texts overlap", (a, b))
    shapes = {key: m for key, m in board.items() if not isinstance(m, Label)}
    pieces = {key: _pieces(m) for key, m in shapes.items() if m.get_fill_opacity() > 0}
    order = {key: i for i, key in enumerate(board)}
    for text, here in texts.items():
        covers = [order[k] for k, p in pieces.items() if order[k] < order[text] and any(_inside(here, x) for x in p)]
        cover = max(covers, default=-1)
        for key, shape in shapes.items():
            if order[key] < cover:
                continue  # an opaque shape lies between
            if key in pieces:
                if any(overlap(here, part, SLACK) and not _inside(here, part) for part in pieces[key]):
                    yield Fault("text across an edge", (text, key))
            elif any(_hits(a, b, here) for a, b in _segments(shape)):
                yield Fault("line through text", (text, key))
    for (a, parts_a), (b, parts_b) in combinations(pieces.items(), 2):
        # parts of one thing may be built of pieces that overlap
        if a.split(":")[0] != b.split(":")[0] and any(_cross(p, q) for p in parts_a for q in parts_b):
            yield Fault("shapes overlap", (a, b))


# ---- geometry ----


def _pieces(shape: VMobject) -> list[Box]:
    """Bounding boxes of a shape's separate outlines, empty ones left out."""
    curves = shape.points.reshape(-1, 4, 3)
    starts = np.flatnonzero(np.abs(curves[1:, 0] - curves[:-1, 3]).max(axis=1) > 1e-6) + 1
    boxes = []
    for path in np.split(curves, starts):
        (left, bottom), (right, top) = path.min(axis=(0, 1))[:2], path.max(axis=(0, 1))[:2]
        if min(right - left, top - bottom) > 1e-6:
            boxes.append((float(left), float(bottom), float(right), float(top)))
    return boxes


def _cross(a: Box, b: Box) -> bool:
    return overlap(a, b, SLACK) and not _inside(a, b) and not _inside(b, a)


def _segments(line: VMobject) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for i in range(0, len(line.points) - 3, 4):
        yield line.points[i], line.points[i + 3]


def _hits(a: np.ndarray, b: np.ndarray, here: Box) -> bool:
    """Whether the segment from a to b enters a box (Liang & Barsky, 1984)."""
    enter, leave = 0.0, 1.0
    for axis in (0, 1):
        step, low, high = b[axis] - a[axis], here[axis] + SLACK, here[axis + 2] - SLACK
        if abs(step) < 1e-9:
            if not low < a[axis] < high:
                return False
            continue
        first, last = sorted(((low - a[axis]) / step, (high - a[axis]) / step))
        enter, leave = max(enter, first), min(leave, last)
    return enter <= leave


def _inside(a: Box, b: Box) -> bool:
    return a[0] >= b[0] - SLACK and a[1] >= b[1] - SLACK and a[2] <= b[2] + SLACK and a[3] <= b[3] + SLACK


def _ground(board: Board, key: str, theme: Theme) -> str:
    """The colour under a text: that of the last shape below it that holds all of it."""
    here, ground = box(board[key]), theme.colour("background")
    for other, mobject in board.items():
        if other == key:
            break
        if not isinstance(mobject, Label) and mobject.get_fill_opacity() > 0 and _covers_any(mobject, here):
            ground = mix(ground, _hex(mobject), float(mobject.get_fill_opacity()))
    return ground


def _covers_any(shape: VMobject, here: Box) -> bool:
    return any(_inside(here, part) for part in _pieces(shape))


def _hex(mobject: VMobject) -> str:
    return str(mobject.get_fill_color().to_hex()).upper()[:7]


def _show(here: Box) -> str:
    return "(" + ", ".join(f"{v:.2f}" for v in here) + ")"
