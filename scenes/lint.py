"""What a careful eye would mark on a still, found on the board without drawing it.

Off the frame or the stage, text too near its edge or too small, too little contrast with what lies under it, two texts
on one spot, text across the edge of a shape, a line through text, two shapes that half cover each other, colours that
mean numbers without a scale, something across the cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scenes.board import Board, overlap
from scenes.chrome import STAGE, is_chrome
from scenes.shape import Box, Shape, outlines
from scenes.theme import FRAME_HEIGHT, FRAME_WIDTH, MARGIN, SIZES, Theme, contrast, mix
from scenes.type import Label

SLACK = 0.02
"""Units by which things may touch."""
READABLE, LARGE_READABLE, LARGE = 4.5, 3.0, 24
"""Contrast that text needs, and that text of `LARGE` points needs (WCAG 2.2, 1.4.3)."""
SAMPLE = 0.06
"""Units between the points at which the ground of a text is looked at."""
FRAME: Box = (-FRAME_WIDTH / 2, -FRAME_HEIGHT / 2, FRAME_WIDTH / 2, FRAME_HEIGHT / 2)
SAFE: Box = (FRAME[0] + MARGIN, FRAME[1] + 0.6 * MARGIN, FRAME[2] - MARGIN, FRAME[3] - 0.6 * MARGIN)


@dataclass(frozen=True)
class Fault:
    """One finding: `rule` is one of the names in `lint`, `keys` the parts it is about."""

    rule: str
    keys: tuple[str, ...]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {' × '.join(self.keys)} {self.detail}".rstrip()


class Seen:
    """A part as the lint looks at it; what is dear to compute is computed when asked for, once."""

    def __init__(self, key: str, shape: Shape, order: int) -> None:
        self.key, self.shape, self.order = key, shape, order
        self.thing = key.split(":")[0]
        self.box = shape.extent or shape.box
        self.is_text = isinstance(shape, Label)
        self.is_filled = shape.fill_opacity > 0

    @cached_property
    def pieces(self) -> np.ndarray:
        """Bounding boxes (n, 4) of the separate outlines, empty ones left out."""
        if self.shape.extent:
            return np.array([self.shape.extent])
        return self._boxes[self._real]

    @cached_property
    def cells(self) -> np.ndarray:
        """Bounding boxes of the outlines, even where an extent stands for them."""
        return self._boxes[self._real]

    @cached_property
    def edges(self) -> np.ndarray:
        """The outlines as segments (n, 2, 2): each curve by its start, middle and end."""
        if self.shape.extent:
            left, bottom, right, top = self.shape.extent
            corners = np.array([[left, bottom], [right, bottom], [right, top], [left, top], [left, bottom]])
            return np.stack([corners[:-1], corners[1:]], axis=1)
        curves = self.shape.points.reshape(-1, 4, 3)[:, :, :2]
        if self.is_filled:
            counts = np.diff([*outlines(self.shape.points), len(curves)])
            curves = curves[np.repeat(self._real, counts)]
        middle = (curves[:, 0] + 3 * curves[:, 1] + 3 * curves[:, 2] + curves[:, 3]) / 8
        return np.concatenate([np.stack([curves[:, 0], middle], 1), np.stack([middle, curves[:, 3]], 1)])

    @cached_property
    def _boxes(self) -> np.ndarray:
        curves, starts = self.shape.points.reshape(-1, 4, 3)[:, :, :2], outlines(self.shape.points)
        if not len(starts):
            return np.zeros((0, 4))
        low, high = np.minimum.reduceat(curves.min(axis=1), starts), np.maximum.reduceat(curves.max(axis=1), starts)
        return np.concatenate([low, high], axis=1)

    @cached_property
    def _real(self) -> np.ndarray:
        boxes = self._boxes
        return np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) > 1e-6

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Which of the points (n, 2) lie inside the outlines."""
        if self.shape.levels:
            x, y = points[:, :1], points[:, 1:]
            left, bottom, right, top = self.cells.T
            return ((left <= x) & (x <= right) & (bottom <= y) & (y <= top)).any(axis=1)
        (ax, ay), (bx, by) = self.edges[:, 0].T, self.edges[:, 1].T
        x, y = points[:, :1], points[:, 1:]
        spans = (ay <= y) != (by <= y)
        rise = np.where(by == ay, 1.0, by - ay)
        is_right = x < ax + (y - ay) / rise * (bx - ax)
        return (np.where(spans & is_right, np.sign(by - ay), 0).sum(axis=1) != 0).astype(bool)

    @cached_property
    def samples(self) -> np.ndarray:
        """Points (n, 2) spread over a text, a little inside of its box."""
        left, bottom, right, top = self.box
        x = np.linspace(left + SLACK, right - SLACK, max(2, int((right - left) / SAMPLE) + 1))
        y = np.linspace(bottom + SLACK, top - SLACK, max(2, int((top - bottom) / SAMPLE) + 1))
        return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def lint(board: Board, theme: Theme) -> list[Fault]:
    """All faults of a still, in the order of its keys."""
    seen = [Seen(key, shape, i) for i, (key, shape) in enumerate(board.items()) if len(shape.points)]
    texts = [s for s in seen if s.is_text]
    shapes = [s for s in seen if not s.is_text]
    return [
        *_places(seen, board.cut),
        *(fault for text in texts for fault in _letters(text, shapes, theme)),
        *_two_texts(texts),
        *(fault for text in texts for fault in _around(text, shapes)),
        *_two_shapes([s for s in shapes if s.is_filled]),
        *_scales(shapes),
    ]


def _places(seen: list[Seen], cut: float | None) -> Iterator[Fault]:
    for part in seen:
        if not _inside(part.box, FRAME):
            yield Fault("off the frame", (part.key,), _show(part.box))
        elif part.is_text and not _inside(part.box, SAFE):
            yield Fault("in the margin", (part.key,), _show(part.box))
        elif not is_chrome(part.key) and not _inside(part.box, STAGE):
            yield Fault("off the stage", (part.key,), _show(part.box))
        if cut is not None and not is_chrome(part.key):
            reach = part.shape.stroke_width / 200
            if part.box[0] - reach < cut - SLACK and part.box[2] + reach > cut + SLACK:
                yield Fault("across the cut", (part.key,), f"at x = {cut}")


def _letters(text: Seen, shapes: list[Seen], theme: Theme) -> Iterator[Fault]:
    size = text.shape.size
    if size < SIZES["floor"]:
        yield Fault("under the floor", (text.key,), f"{size} < {SIZES['floor']} points")
    elif not text.shape.plain and size < SIZES["label"]:  # indices are set smaller than their letters
        yield Fault("under the floor", (text.key,), f"a formula of {size} < {SIZES['label']} points")
    needed = LARGE_READABLE if size >= LARGE else READABLE
    ratio, ground = min((contrast(text.shape.fill, ground), ground) for ground in _grounds(text, shapes, theme))
    if ratio < needed:
        yield Fault("low contrast", (text.key,), f"{ratio:.1f} on {ground}")


def _grounds(text: Seen, shapes: list[Seen], theme: Theme) -> set[str]:
    """The colours that lie under a text, each of the shapes below it seen where it is not covered."""
    colours = [theme.colour("background")] * len(text.samples)
    for part in shapes:
        if part.order < text.order and part.is_filled and overlap(part.box, text.box):
            opacity = part.shape.fill_opacity
            for i in np.flatnonzero(part.holds(text.samples)):
                colours[i] = part.shape.fill if opacity >= 1 else mix(colours[i], part.shape.fill, opacity)
    return set(colours)


def _two_texts(texts: list[Seen]) -> Iterator[Fault]:
    if len(texts) < 2:
        return
    boxes = np.array([t.box for t in texts])
    for i, j in zip(*np.nonzero(np.triu(_overlaps(boxes, boxes, 0.0), 1))):
        yield Fault("texts overlap", (texts[i].key, texts[j].key))


def _around(text: Seen, shapes: list[Seen]) -> Iterator[Fault]:
    """Edges and lines that run through a text, but for those under an opaque shape that holds all of it."""
    near = [part for part in shapes if overlap(part.box, text.box)]
    covers = [p.order for p in near if p.is_filled and p.order < text.order and p.holds(text.samples).all()]
    cover = max(covers, default=-1)
    for part in near:
        if part.order < cover:
            continue
        if part.shape.levels and _inside(text.box, part.box):
            continue  # on a heat map the contrast decides
        if _hits(part.edges, text.box).any():
            yield Fault("text across an edge" if part.is_filled else "line through text", (text.key, part.key))


def _two_shapes(shapes: list[Seen]) -> Iterator[Fault]:
    """Filled shapes of two things that half cover each other; parts of one thing may be built of overlapping pieces."""
    for i, a in enumerate(shapes):
        for b in shapes[i + 1 :]:
            if a.thing != b.thing and overlap(a.box, b.box, SLACK) and _cross(a, b):
                yield Fault("shapes overlap", (a.key, b.key))


def _cross(a: Seen, b: Seen) -> bool:
    """Whether an outline of one runs out of an outline of the other."""
    p, q = a.pieces, b.pieces
    pairs = _overlaps(p, q, SLACK) & ~_within(p, q) & ~_within(q, p).T
    if not pairs.any():
        return False
    inner = [_clip(part.edges, _hull(boxes[pairs.any(axis=axis)])) for part, boxes, axis in ((a, p, 1), (b, q, 0))]
    return _meet(inner[0], inner[1] + np.array([1e-3, 7e-4]))  # moved a little: edges on one line count as crossing


def _scales(shapes: list[Seen]) -> Iterator[Fault]:
    """Colours that mean numbers need a scale with the same meaning; a scale is what `charts.scale` makes."""
    shown = [s.shape.levels for s in shapes if s.shape.levels and s.shape.is_scale]
    told = set()
    for part in shapes:
        if part.shape.levels and not part.shape.is_scale and part.shape.levels not in shown and part.thing not in told:
            told.add(part.thing)
            levels = part.shape.levels
            yield Fault("heat map without scale", (part.key,), f"{levels.role} from {levels.low:g} to {levels.high:g}")


# ---- geometry ----


def _inside(a: Box, b: Box) -> bool:
    return a[0] >= b[0] - SLACK and a[1] >= b[1] - SLACK and a[2] <= b[2] + SLACK and a[3] <= b[3] + SLACK


def _overlaps(p: np.ndarray, q: np.ndarray, slack: float) -> np.ndarray:
    """(n, m): which boxes of p (n, 4) and q (m, 4) share more than `slack` in both directions."""
    low = np.maximum(p[:, None, :2], q[None, :, :2])
    high = np.minimum(p[:, None, 2:], q[None, :, 2:])
    return (high - low > slack).all(axis=2)


def _within(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """(n, m): which boxes of p lie in which of q."""
    low = (p[:, None, :2] >= q[None, :, :2] - SLACK).all(axis=2)
    return low & (p[:, None, 2:] <= q[None, :, 2:] + SLACK).all(axis=2)


def _hull(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])


def _clip(edges: np.ndarray, box: np.ndarray) -> np.ndarray:
    """The segments whose bounding boxes touch a box."""
    low, high = edges.min(axis=1), edges.max(axis=1)
    return edges[(low <= box[2:] + SLACK).all(axis=1) & (high >= box[:2] - SLACK).all(axis=1)]


def _meet(p: np.ndarray, q: np.ndarray) -> bool:
    """Whether any segment of p (n, 2, 2) crosses any of q (m, 2, 2)."""

    def side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        u, v = b - a, c - a
        return np.sign(u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0])

    a, b = p[:, None, 0], p[:, None, 1]
    c, d = q[None, :, 0], q[None, :, 1]
    return bool(((side(a, b, c) * side(a, b, d) < 0) & (side(c, d, a) * side(c, d, b) < 0)).any())


def _hits(edges: np.ndarray, here: Box) -> np.ndarray:
    """Which segments (n, 2, 2) enter a box (Liang & Barsky, 1984)."""
    enter, leave = np.zeros(len(edges)), np.ones(len(edges))
    out = np.zeros(len(edges), dtype=bool)
    for axis in (0, 1):
        start, step = edges[:, 0, axis], edges[:, 1, axis] - edges[:, 0, axis]
        low, high = here[axis] + SLACK, here[axis + 2] - SLACK
        flat = np.abs(step) < 1e-9
        out |= flat & ((start <= low) | (start >= high))
        safe = np.where(flat, 1.0, step)
        first, last = (low - start) / safe, (high - start) / safe
        enter = np.where(flat, enter, np.maximum(enter, np.minimum(first, last)))
        leave = np.where(flat, leave, np.minimum(leave, np.maximum(first, last)))
    return ~out & (enter <= leave)


def _show(here: Box) -> str:
    return "(" + ", ".join(f"{v:.2f}" for v in here) + ")"
