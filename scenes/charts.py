"""Plots, heat maps and token rows for any figure, put on a board part by part under `KEY:part`.

Numbers come in data units and are mapped by `Axes`; colours come by role; every text is in ink or muted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from scenes.board import Board
from scenes.parts import discs, polylines, rectangles, tip
from scenes.shape import Box, Point
from scenes.theme import Theme, lightness, mix
from scenes.type import fitted, label

LEVELS = 12
"""Colours of a sequential heat map; a signed one has one less, so that one of them means zero."""
PLAIN, QUIET = 0.62, 0.42
"""Share of the role's colour in bars where none is lit, and in those beside lit ones."""
BLEED = 0.01
"""Units by which a cell reaches under its neighbours, so that no background shines through the seams."""
DASH, PAUSE = 0.14, 0.09


@dataclass(frozen=True)
class Axes:
    """A plot area `at` (units) for data within `x` and `y`; `log_x` and `log_y` make an axis logarithmic."""

    at: Box
    x: tuple[float, float]
    y: tuple[float, float]
    log_x: bool = False
    log_y: bool = False

    def point(self, x: float, y: float) -> Point:
        """Where a datum stands, in units. Data beyond the limits land outside of `at`."""
        left, bottom, right, top = self.at
        return (
            left + (right - left) * _share(x, self.x, self.log_x),
            bottom + (top - bottom) * _share(y, self.y, self.log_y),
        )


def _share(value: float, limits: tuple[float, float], log: bool) -> float:
    low, high, value = (float(np.log(v)) if log else float(v) for v in (*limits, value))
    return (value - low) / (high - low)


Tick = float | tuple[float, str]
"""A number, or a number and what is written at it."""


def axes(
    board: Board,
    key: str,
    theme: Theme,
    area: Axes,
    *,
    x_label: str = "",
    y_label: str = "",
    x_ticks: Sequence[Tick] = (),
    y_ticks: Sequence[Tick] = (),
) -> None:
    """Lines at the left and the bottom, ticks with their numbers, the names of the axes.

    The y axis is named above its top, the x axis below its numbers at the right; both are read without turning the
    head. Room taken outside of `area.at`: 0.35 above (with `y_label`), 0.35 below (0.65 with `x_label`), the numbers
    at the left.

    Parts: `frame`, `ticks`, `x0`, `x1`, ..., `y0`, ..., `x.label`, `y.label`.
    """
    left, bottom, right, top = area.at
    muted = theme.colour("muted")
    board.put(f"{key}:frame", polylines(theme, [[(left, top), (left, bottom), (right, bottom)]], "wire", 2))
    marks = []
    for i, (value, text) in enumerate(map(_tick, x_ticks)):
        x = area.point(value, area.y[0])[0]
        marks.append([(x, bottom), (x, bottom - 0.07)])
        board.put(f"{key}:x{i}", label(text, "floor", muted).at(x, bottom - 0.22, "centre"))
    for i, (value, text) in enumerate(map(_tick, y_ticks)):
        y = area.point(area.x[0], value)[1]
        marks.append([(left, y), (left - 0.07, y)])
        board.put(f"{key}:y{i}", label(text, "floor", muted).at(left - 0.14, y, "right"))
    if marks:
        board.put(f"{key}:ticks", polylines(theme, marks, "wire", 2))
    if x_label:
        y = bottom - (0.5 if x_ticks else 0.22)
        board.put(f"{key}:x.label", label(x_label, "floor", muted).at(right, y, "right"))
    if y_label:
        board.put(f"{key}:y.label", label(y_label, "floor", muted).at(left, top + 0.22))


def _tick(tick: Tick) -> tuple[float, str]:
    if isinstance(tick, tuple):
        return tick
    return tick, number(tick)


def number(value: float) -> str:
    """A number as it is written on an axis: `12,000`, `0.25`, `−3`."""
    words = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
    return words.replace("-", "−")


def line(
    board: Board,
    key: str,
    theme: Theme,
    area: Axes,
    xs: Sequence[float] | np.ndarray,
    ys: Sequence[float] | np.ndarray,
    role: str,
    *,
    width: float = 3.0,
    dash: bool = False,
    name: str = "",
    name_at: str | Point = "end",
) -> None:
    """A curve through the data; a NaN interrupts it.

    Its `name` stands beside its "end" or "start", "above" or "below" its end, or at a point (units, the left edge
    and the middle of the text).

    Parts: `line`, `name`.
    """
    runs: list[list[Point]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if np.isnan(y):
            runs.append([])
        else:
            runs[-1].append(area.point(float(x), float(y)))
    runs = [run for run in runs if len(run) > 1]
    strokes = [piece for run in runs for piece in _dashes(run)] if dash else runs
    if strokes:
        board.put(f"{key}:line", polylines(theme, strokes, role, width))
    if name and runs:
        (first_x, first_y), (last_x, last_y) = runs[0][0], runs[-1][-1]
        places = {
            "end": (last_x + 0.14, last_y, "left"),
            "start": (first_x - 0.14, first_y, "right"),
            "above": (last_x, last_y + 0.24, "right"),
            "below": (last_x, last_y - 0.24, "right"),
        }
        x, y, anchor = places[name_at] if isinstance(name_at, str) else (*name_at, "left")
        board.put(f"{key}:name", label(name, "floor", theme.colour("ink")).at(x, y, anchor))


def _dashes(run: Sequence[Point]) -> list[list[Point]]:
    """A polyline cut into dashes of equal length along it; they keep its corners."""
    points = np.array(run)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    count = max(1, round((along[-1] + PAUSE) / (DASH + PAUSE)))
    pitch = (along[-1] + PAUSE) / count
    pieces = []
    for i in range(count):
        start, end = i * pitch, (i + 1) * pitch - PAUSE
        inside = along[(along > start + 1e-9) & (along < end - 1e-9)]
        stops = np.array([start, *inside, end])
        pieces.append([
            (float(x), float(y))
            for x, y in zip(np.interp(stops, along, points[:, 0]), np.interp(stops, along, points[:, 1]))
        ])  # fmt: skip
    return pieces


def dots(
    board: Board,
    key: str,
    theme: Theme,
    area: Axes,
    xs: Sequence[float] | np.ndarray,
    ys: Sequence[float] | np.ndarray,
    role: str,
    *,
    size: float = 0.05,
) -> None:
    """A disc of radius `size` (units) for each datum, all of them one part: `dots`."""
    centres = [area.point(float(x), float(y)) for x, y in zip(xs, ys, strict=True) if not np.isnan(y)]
    if centres:
        board.put(f"{key}:dots", discs(theme.colour(role), centres, size))


def bars(
    board: Board,
    key: str,
    theme: Theme,
    area: Axes,
    values: Sequence[float] | np.ndarray,
    role: str,
    *,
    lit: Collection[int] = (),
    gap: float = 0.2,
    baseline: float = 0.0,
) -> None:
    """Bar i from `baseline` to `values[i]`, centred at x = i and 1 - `gap` wide (so `area.x` is (-0.5, n - 0.5)).

    With `lit` given, those bars are full and the others quiet.

    Parts: `bars` (the lit ones have no height there, so that they can grow back), `lit`.
    """
    boxes = []
    for i, value in enumerate(values):
        left, foot = area.point(i - (1 - gap) / 2, baseline)
        right, head = area.point(i + (1 - gap) / 2, baseline if np.isnan(value) else float(value))
        boxes.append((left, min(foot, head), right, max(foot, head)))
    rest = [(b[0], b[1], b[2], b[1]) if i in lit else b for i, b in enumerate(boxes)]
    board.put(f"{key}:bars", rectangles(theme.tint(role, QUIET if lit else PLAIN), rest))
    if lit:
        board.put(f"{key}:lit", rectangles(theme.colour(role), [boxes[i] for i in sorted(lit)]))


# ---- heat maps ----


@dataclass(frozen=True)
class Levels:
    """How a heat map turns numbers into a few colours; its scale must show the same."""

    role: str
    low: float
    high: float
    signed: bool

    def __len__(self) -> int:
        return LEVELS - 1 if self.signed else LEVELS

    def of(self, values: np.ndarray) -> np.ndarray:
        """The level of each value, 0 for the lowest, -1 for NaN; values beyond the limits get the outermost."""
        span = max(self.high - self.low, 1e-12)
        share = np.nan_to_num((values - self.low) / span)
        return np.where(np.isnan(values), -1, np.clip(np.floor(share * len(self)), 0, len(self) - 1)).astype(int)

    def colours(self, theme: Theme) -> list[str]:
        """Lowest first. Sequential: from the background through the role's colour towards ink, so that lightness
        only rises (or only falls); signed: the role's colour above zero, another's below, the panel's at zero."""
        if self.signed:
            side = (len(self) - 1) // 2
            steps = [(i + 1) / side for i in range(side)]
            below, above = ("attention" if self.role == "cache" else "cache"), self.role
            return [
                *_ramp(theme, "panel", below, reversed(steps)),
                theme.colour("panel"),
                *_ramp(theme, "panel", above, steps),
            ]
        return _ramp(theme, "background", self.role, [0.06 + 0.94 * i / (len(self) - 1) for i in range(len(self))])


def _ramp(theme: Theme, ground: str, role: str, steps: Iterable[float]) -> list[str]:
    """Colours from the ground (0) through the role's to half way from there to ink (1).

    The role's colour stands where its lightness belongs between the two ends.
    """
    start, middle = theme.colour(ground), theme.colour(role)
    end = mix(middle, theme.colour("ink"), 0.5)
    bend = (lightness(middle) - lightness(start)) / (lightness(end) - lightness(start))
    return [mix(start, middle, t / bend) if t <= bend else mix(middle, end, (t - bend) / (1 - bend)) for t in steps]


def levels(values: np.ndarray, role: str, limits: tuple[float, float] | None, signed: bool) -> Levels:
    """The levels of a map. Without `limits` they reach from the least number (0 if none is negative) to the greatest;
    a signed map's are symmetric. Raises ValueError for a signed map with others."""
    if limits is None:
        seen = values[~np.isnan(values)]
        low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
        limits = (-max(-low, high), max(-low, high)) if signed else (min(low, 0.0), high)
    if signed and not np.isclose(limits[0], -limits[1]):
        raise ValueError(f"a signed heat map has symmetric limits, not {limits}")
    return Levels(role, float(limits[0]), float(limits[1]), signed)


def heat(
    board: Board,
    key: str,
    theme: Theme,
    values: np.ndarray,
    at: Box,
    *,
    role: str = "attention",
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    gap: float = 0.0,
) -> None:
    """A matrix (rows, columns) as coloured cells, row 0 at the top; NaN is not drawn.

    `gap` is the share of a cell left free around it. A board with a heat map needs a `scale` of the same role and
    limits: the lint asks for it.

    Parts: `level0`, `level1`, ... of those levels that occur.
    """
    values = np.asarray(values, dtype=float)
    scheme = levels(values, role, limits, signed)
    index = scheme.of(values)
    left, bottom, right, top = at
    tall, wide = (top - bottom) / values.shape[0], (right - left) / values.shape[1]
    dx, dy = (-gap * wide / 2, -gap * tall / 2) if gap else (min(BLEED, 0.1 * wide), min(BLEED, 0.1 * tall))
    boxes: dict[int, list[Box]] = {}
    for row, cells in enumerate(index):
        edges = range(len(cells) + 1) if gap else [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
        for start, end in pairwise(edges):
            a, b = left + start * wide - dx, left + end * wide + dx
            c, d = top - (row + 1) * tall - dy, top - row * tall + dy
            cell = (max(a, left), max(c, bottom), min(b, right), min(d, top))
            boxes.setdefault(int(cells[start]), []).append(cell)
    boxes.pop(-1, None)
    colours = scheme.colours(theme)
    for i in sorted(boxes):
        part = rectangles(colours[i], boxes[i])
        part.extent, part.levels = at, scheme
        board.put(f"{key}:level{i}", part)


def scale(
    board: Board,
    key: str,
    theme: Theme,
    at: Box,
    *,
    role: str = "attention",
    limits: tuple[float, float],
    signed: bool = False,
    text: str | Callable[[float], str] = "{:.2g}",
) -> None:
    """The colours of a heat map as a bar in `at`, with its limits printed (and zero, when signed).

    A lying bar has its numbers below its ends, a standing one at the right of its ends.

    Parts: `level0`, ..., `low`, `high`, `zero`.
    """
    scheme = levels(np.zeros((0, 0)), role, limits, signed)
    left, bottom, right, top = at
    lying = right - left >= top - bottom
    n, colours = len(scheme), scheme.colours(theme)
    for i, colour in enumerate(colours):
        a, b = i / n, (i + 1) / n
        if lying:
            step = (left + (right - left) * a, bottom, left + (right - left) * b, top)
        else:
            step = (left, bottom + (top - bottom) * a, right, bottom + (top - bottom) * b)
        part = rectangles(colour, [step])
        part.extent, part.levels, part.is_scale = at, scheme, True
        board.put(f"{key}:level{i}", part)
    write = text if callable(text) else text.format
    marks = [("low", limits[0], 0.0), ("high", limits[1], 1.0)] + ([("zero", 0.0, 0.5)] if signed else [])
    for part_name, value, share in marks:
        words = label(write(value).replace("-", "−"), "floor", theme.colour("muted"))
        if lying:
            anchor = {"low": "left", "high": "right", "zero": "centre"}[part_name]
            words.at(left + (right - left) * share, bottom - 0.2, anchor)
        else:
            inset = {"low": 0.08, "high": -0.08, "zero": 0.0}[part_name]
            words.at(right + 0.12, bottom + (top - bottom) * share + inset)
        board.put(f"{key}:{part_name}", words)


# ---- words and arrows ----


def token_row(
    board: Board,
    key: str,
    theme: Theme,
    words: Sequence[str],
    centres: Sequence[float],
    y: float,
    *,
    lit: Collection[int] = (),
    size: str = "floor",
) -> None:
    """Tokens in a row, each centred at its x; the lit ones in bold ink, the others muted. Parts: `0`, `1`, ...

    A word longer than two signs is cut where it would reach its neighbour.
    """
    pitch = min((abs(b - a) for a, b in pairwise(centres)), default=np.inf)
    for i, (word, x) in enumerate(zip(words, centres, strict=True)):
        colour, weight = ("ink", "bold") if i in lit else ("muted", "regular")
        if word.strip():  # a blank has no outline to draw
            room = 0.92 * pitch if len(word) > 2 else np.inf
            board.put(f"{key}:{i}", fitted(word, room, size, theme.colour(colour), weight).at(x, y, "centre"))


def arrow(
    board: Board,
    key: str,
    theme: Theme,
    start: Point,
    end: Point,
    *,
    role: str = "wire",
    width: float = 2.5,
) -> None:
    """A straight arrow whose point is at `end`. Parts: `line`, `tip`."""
    size = 0.1 + 0.024 * width
    along = np.array(end) - np.array(start)
    length = float(np.hypot(*along))
    if length < 1e-6:
        return
    size = min(size, 0.6 * length)
    neck = np.array(end) - along / length * size * 0.8  # the line ends inside the head
    board.put(f"{key}:line", polylines(theme, [[start, (float(neck[0]), float(neck[1]))]], role, width))
    board.put(f"{key}:tip", tip(theme, end, (float(along[0]), float(along[1])), role, size))
