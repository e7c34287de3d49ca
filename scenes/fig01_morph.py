"""Figure 1, the morph: the decoder block at the left, the ledger that is carried from step to step at the right.

Keys of the diagram are `ORGAN:part`, so that what a transition changes can be held against what its step may touch.
Everything drawn is read from a frame of `morph.story.morph`; positions are the only numbers here.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from morph.story import Figure, Frame
from scenes.board import Board
from scenes.chrome import RIGHT, chrome
from scenes.parts import chip, gone, name, organ, panel, plus, polygons, rectangles, tip, wire
from scenes.pen import Pen
from scenes.shape import Box, Point
from scenes.theme import Theme
from scenes.type import label

STREAM = -6.05
BLOCK: Box = (-6.95, -2.2, 1.9, 2.4)
NORM_SIZE: Point = (1.4, 0.4)
NORM_X = -4.75
BOX_LEFT, BOX_RIGHT = -3.8, 1.7
INNER_LEFT, INNER_RIGHT = BOX_LEFT + 0.2, BOX_RIGHT - 0.15


CUT = 2.12
"""Between the block and the ledger."""


class Sublayer:
    """Heights of one sublayer: it reads the stream low and writes to it high."""

    def __init__(self, key: str, role: str, bottom: float, top: float) -> None:
        self.key, self.role, self.bottom, self.top = key, role, bottom, top
        self.reads, self.writes = bottom + 0.42, top - 0.6
        self.header, self.footer = top - 0.28, bottom + 0.24
        self.after = self.writes + 0.48
        self.middle = (self.header + self.footer) / 2


ATTENTION = Sublayer("attention", "attention", -2.02, -0.06)
FEED_FORWARD = Sublayer("feed_forward", "ffn", 0.26, 2.22)

CARD: Box = (2.35, 1.72, RIGHT + 0.1, 2.98)
LEDGER_LEFT, LEDGER_TOP, ROW = 2.5, 1.36, 0.735
CHART: tuple[float, float, float] = (5.35, RIGHT, 0.46)
"""Left, right and height of a ledger's history."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 14), or of the opening (0)."""
    frame = figure.frames[index - 1] if index else figure.opening
    assert frame is not None, "figure 1 has an opening"
    made = Board()
    chrome(made, frame, theme, f"{index:02d} / {len(figure):02d}" if index else f"{frame.facts['year']}")
    made.cut = CUT
    draw = Diagram(made, theme, frame, _before(figure, index))
    draw.stream()
    draw.attention()
    draw.feed_forward()
    _card(made, theme, frame)
    _ledger(made, theme, frame, figure.frames[-1])
    return made


def _before(figure: Figure, index: int) -> Frame | None:
    return None if index == 0 else figure.frames[index - 2] if index > 1 else figure.opening


class Diagram(Pen):
    """The block at the left. `lit(key)` says whether the step changed an organ, `differs` which number of it."""

    def __init__(self, board: Board, theme: Theme, frame: Frame, before: Frame | None) -> None:
        super().__init__(board, theme, frame)
        self.organs = {o["key"]: o for o in frame.facts["organs"]}
        self.before = {o["key"]: o for o in before.facts["organs"]} if before else self.organs
        self.changed = set(frame.facts["changed"])

    def lit(self, key: str) -> bool:
        return key in self.changed

    def differs(self, key: str, field: str) -> bool:
        """Whether a number of the organ is another one than in the frame before."""
        old = self.before.get(key, {"data": {}})["data"]
        return bool(self.organs[key]["data"].get(field) != old.get(field))

    def chip(self, key: str, centre: Point, size: Point) -> None:
        """An optional organ: drawn when it is there, outlined in dashes in the one frame that took it away."""
        if key in self.organs:
            organ = self.organs[key]
            chip(self.board, key, self.theme, organ["role"], organ["label"], centre, size, self.lit(key))
        elif key in self.before:
            gone(self.board, f"gone:{key}", self.theme, self.before[key]["label"], centre, size)

    def fill(self, role: str, lit: bool) -> str:
        """A small shape without text: full when lit, duller when quiet."""
        return self.theme.colour(role) if lit else self.theme.tint(role, 0.62)

    # ---- the stream and its norms ----

    def stream(self) -> None:
        theme, put = self.theme, self.board.put
        put("block", panel(theme, BLOCK))
        put("stream", wire(theme, [(STREAM, -2.72), (STREAM, 3.05)], "ink", 5))
        put("stream:tip", tip(theme, (STREAM, 3.17), (0, 1), "ink", 0.26))
        name = label("residual stream", "floor", theme.colour("muted")).at(0, 0)
        put("stream:name", name.rotate(math.pi / 2).move_to([STREAM - 0.42, -1.1, 0]))
        layers = self.facts["config"]["n_layers"]
        self.text("block:name", f"one of {layers} layers", (STREAM + 0.3, -1.98), colour="muted")
        self.text("stream:start", "token embedding", (STREAM + 0.9, -2.48), colour="muted")
        self.text("stream:end", "to the output head", (STREAM + 0.9, 2.67), colour="muted")
        for sublayer in (ATTENTION, FEED_FORWARD):
            self.branch(sublayer)
        self.chip("final_norm", (STREAM, 2.67), NORM_SIZE)
        self.chip("position.added", (STREAM, -2.48), NORM_SIZE)

    def branch(self, sublayer: Sublayer) -> None:
        """The way from the stream into the box and back onto the stream, with the sublayer's norm."""
        theme, put, key = self.theme, self.board.put, sublayer.key
        put(f"{key}.in", wire(theme, [(STREAM, sublayer.reads), (BOX_LEFT - 0.1, sublayer.reads)]))
        put(f"{key}.in:tip", tip(theme, (BOX_LEFT - 0.02, sublayer.reads), (1, 0)))
        put(f"{key}.out", wire(theme, [(BOX_LEFT, sublayer.writes), (STREAM + 0.25, sublayer.writes)]))
        put(f"{key}.out:tip", tip(theme, (STREAM + 0.17, sublayer.writes), (-1, 0)))
        disc, cross = plus(theme, (STREAM, sublayer.writes))
        put(f"{key}.add", disc)
        put(f"{key}.add:cross", cross)
        on_branch = self.facts["placement"] == "pre"
        self.chip(f"{key}.norm", (NORM_X, sublayer.reads) if on_branch else (STREAM, sublayer.after), NORM_SIZE)

    def sublayer_box(self, sublayer: Sublayer) -> None:
        """The sublayer's box with its name, its bias and its detail."""
        at = (BOX_LEFT, sublayer.bottom, BOX_RIGHT, sublayer.top)
        self.board.put(f"{sublayer.key}:box", organ(self.theme, sublayer.role, at))
        words = self.organs[sublayer.key]["label"]
        title = label(words, "label", self.theme.colour("ink"), "medium").at(INNER_LEFT, sublayer.header)
        self.board.put(f"{sublayer.key}:label", title)
        self.chip(f"{sublayer.key}.bias", (INNER_RIGHT - 0.42, sublayer.header), (0.84, 0.36))

    # ---- attention ----

    def attention(self) -> None:
        at = ATTENTION
        self.sublayer_box(at)
        self.text("attention:detail", self.organs["attention"]["detail"], (INNER_LEFT, at.footer))
        self.text("attention.mask:detail", self.organs["attention.mask"]["detail"], (INNER_RIGHT, at.footer), "right")
        self.chip("attention.rope", (INNER_RIGHT - 1.66, at.header), (0.84, 0.36))
        self.chip("attention.qk_norm", (INNER_RIGHT - 0.55, at.header), (1.1, 0.36))
        self.heads(at.middle + 0.27, at.middle - 0.27)
        self.masks(at.middle)

    def heads(self, high: float, low: float) -> None:
        """Query heads above, the key-value heads that they share below, and who shares with whom between."""
        theme, put = self.theme, self.board.put
        data = self.organs["attention"]["data"]
        queries, pairs = data["query"], data["key_value"]
        pitch = min(0.42, 1.35 / max(queries - 1, 1))
        side = 0.68 * pitch
        xs = [INNER_LEFT + 0.75 + pitch * i for i in range(queries)]
        group = queries // pairs
        centres = [float(np.mean(xs[group * j : group * (j + 1)])) for j in range(pairs)]
        put(
            "attention:links",
            polygons(
                theme.colour("wire"),
                [_thin((x, high - side / 2), (centres[i // group], low + side / 2)) for i, x in enumerate(xs)],
            ),
        )
        put("attention:queries", rectangles(self.fill("attention", False), [_square(x, high, side) for x in xs]))
        shared = self.differs("attention", "key_value")
        put("attention:pairs", rectangles(self.fill("cache", shared), [_square(x, low, side) for x in centres]))
        self.text("attention:q", "q", (INNER_LEFT, high))
        self.text("attention:kv", "k, v", (INNER_LEFT, low))

    def masks(self, y: float) -> None:
        """What each layer of a period has in sight: row = the token that looks, column = the token looked at."""
        data = self.organs["attention.mask"]["data"]
        old = self.before["attention.mask"]["data"]["layers"]
        side, pitch = 0.6, 0.72
        left = INNER_RIGHT - side - pitch * (len(data["layers"]) - 1)
        grounds = [_square(left + i * pitch + side / 2, y, side) for i in range(len(data["layers"]))]
        self.board.put("attention.mask:ground", rectangles(self.theme.colour("background"), grounds))
        for i, (kind, at) in enumerate(zip(data["layers"], grounds)):
            lit = self.lit("attention.mask") and kind != old[i]
            role = "cache" if kind == "state" else "attention"
            rows = _rows(kind, at, data["seen"])
            self.board.put(f"attention.mask:layer{i + 1}", rectangles(self.fill(role, lit), rows))

    # ---- feed-forward ----

    def feed_forward(self) -> None:
        self.sublayer_box(FEED_FORWARD)
        data = self.organs["feed_forward"]["data"]
        if data["kind"] == "experts":
            self.experts(data)
        else:
            self.matrices(data)

    def matrices(self, data: dict[str, Any]) -> None:
        """Two or three matrices, their areas to scale, with the activation between."""
        at, unit = FEED_FORWARD, 0.46
        self.text("feed_forward:detail", self.organs["feed_forward"]["detail"], (INNER_LEFT, at.footer))
        wide = unit * data["width"] / data["d_model"]
        lit = self.differs("feed_forward", "width")
        gated = data["kind"] == "gated"
        upper = at.middle + (0.26 if gated else 0)
        lower = at.middle - 0.26
        first = INNER_LEFT + wide / 2
        curve = INNER_LEFT + wide + 0.52
        last = INNER_RIGHT - wide / 2
        join = curve + 0.62
        middle = at.middle if gated else upper
        paths = [[(INNER_LEFT + wide, upper), (curve - 0.25, upper)]]
        if gated:
            paths += [
                [(curve + 0.25, upper), (join, upper), (join, middle + 0.15)],
                [(INNER_LEFT + wide, lower), (join, lower), (join, middle - 0.15)],
                [(join + 0.15, middle), (last - wide / 2, middle)],
            ]
        else:
            paths += [[(curve + 0.25, upper), (last - wide / 2, upper)]]
        bars = [_thin(a, b, 0.026) for path in paths for a, b in pairwise(path)]
        self.board.put("feed_forward:flow", polygons(self.theme.colour("wire"), bars))
        self.matrix("first", "gate" if gated else "in", (first, upper), (wide, unit), lit)
        if gated:
            self.matrix("value", "value", (first, lower), (wide, unit), lit)
            self.times((join, middle))
        self.matrix("last", "out", (last, middle), (wide, unit), lit)
        self.curve(data["activation"], (curve, upper), self.differs("feed_forward", "activation"))

    def matrix(self, part: str, words: str, centre: Point, size: Point, lit: bool) -> None:
        (x, y), (w, h) = centre, size
        at = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        self.board.put(f"feed_forward:{part}", organ(self.theme, "ffn", at, lit, radius=0.02))
        self.board.put(f"feed_forward:{part}.name", name(self.theme, "ffn", words, centre, lit))

    def times(self, centre: Point) -> None:
        """The product of gate and value, channel by channel."""
        (x, y), r, arm = centre, 0.15, 0.075
        disc, _ = plus(self.theme, centre, r)
        self.board.put("feed_forward:times", disc)
        crossing = [
            _thin((x - arm, y - arm), (x + arm, y + arm), 0.036),
            _thin((x - arm, y + arm), (x + arm, y - arm), 0.036),
        ]
        self.board.put("feed_forward:times.cross", polygons(self.theme.colour("ink"), crossing))

    def curve(self, activation: str, centre: Point, lit: bool) -> None:
        """The activation itself, drawn for z from -4 to 4."""
        (x, y), side = centre, 0.5
        at = (x - side / 2, y - side / 2, x + side / 2, y + side / 2)
        self.board.put("feed_forward:activation", organ(self.theme, "ffn", at, lit, radius=0.06))
        z = np.linspace(-4, 4, 33)
        value = np.maximum(z, 0) if activation == "relu" else z / (1 + np.exp(-z))
        points = [(x + a * 0.048, y - 0.14 + b * 0.075) for a, b in zip(z, value)]
        ink = self.theme.text_on(self.theme.colour("ffn")) if lit else self.theme.colour("ink")
        self.board.put("feed_forward:activation.curve", wire(self.theme, points, ink, 3))

    def experts(self, data: dict[str, Any]) -> None:
        """Router, routed experts as bars as wide as they are, the chosen ones full, shared ones at the right."""
        at, theme, put = FEED_FORWARD, self.theme, self.board.put
        y, tall = at.middle, 0.62
        n, k = data["experts"], data["chosen"]
        left, right = INNER_LEFT + 1.55, INNER_RIGHT - 0.62
        pitch = (right - left) / n
        gap = min(0.05, 0.25 * pitch)
        bars = [(left + i * pitch, y - tall / 2, left + (i + 1) * pitch - gap, y + tall / 2) for i in range(n)]
        chosen = {i * n // k + n // k // 2 for i in range(k)}
        lit = self.lit("feed_forward")
        put("feed_forward:flow", wire(theme, [(INNER_LEFT + 1.0, y), (left - 0.16, y)]))
        put("feed_forward:flow.tip", tip(theme, (left - 0.08, y), (1, 0)))
        rest = [bar for i, bar in enumerate(bars) if i not in chosen]
        put("feed_forward:experts", rectangles(theme.tint("ffn", 0.3), rest))
        put("feed_forward:chosen", rectangles(self.fill("ffn", lit), [bars[i] for i in sorted(chosen)]))
        self.text("feed_forward:detail", self.organs["feed_forward"]["detail"], (left, at.footer))
        self.chip("feed_forward.router", (INNER_LEFT + 0.5, y), (1.0, 0.4))
        self.text("feed_forward.router:detail", self.organs["feed_forward.router"]["detail"], (INNER_LEFT, at.footer))
        self.chip("feed_forward.balance", (INNER_RIGHT - 0.8, at.header), (1.6, 0.36))
        if "feed_forward.shared" in self.organs:
            always = self.organs["feed_forward.shared"]
            bar = (INNER_RIGHT - pitch + gap, y - tall / 2, INNER_RIGHT, y + tall / 2)
            put("feed_forward.shared:expert", rectangles(self.fill("ffn", self.lit("feed_forward.shared")), [bar]))
            self.text("feed_forward.shared:label", always["label"], (INNER_RIGHT, at.footer), "right")


# ---- the right-hand column ----


def _card(board: Board, theme: Theme, frame: Frame) -> None:
    """The config lines that changed, with the colour of the organ they belong to at their edge."""
    left, bottom, _, top = CARD
    board.put("config:card", panel(theme, CARD))
    bar = (left, bottom + 0.1, left + 0.07, top - 0.1)
    board.put("config:role", rectangles(theme.colour(frame.facts["role"]), [bar]))
    lines = frame.facts["config_lines"]
    first = (top + bottom) / 2 + 0.13 * (len(lines) - 1)
    for i, line in enumerate(lines):
        indent = 0.113 * (len(line) - len(line.lstrip()))
        words = label(line.strip(), "floor", theme.colour("ink"), mono=True)
        board.put(f"config:line{i + 1}", words.at(left + 0.25 + indent, first - 0.26 * i))


HISTORY = {
    "parameters": "parameters_total",
    "kv": "kv_bytes_per_token",
    "cache": "cache_bytes",
    "flops": "flops_per_token",
    "bits": "bits_per_byte",
}
"""Ledger row -> the array whose history stands beside it."""


def _ledger(board: Board, theme: Theme, frame: Frame, last: Frame) -> None:
    """Five rows: name and note, the number, and how it came here. What the step changed is bold."""
    for i, row in enumerate(frame.facts["ledger"]):
        key, y, changed = f"ledger.{row['key']}", LEDGER_TOP - ROW * i, row["changed"]
        board.put(f"{key}:label", label(row["label"], "floor", theme.colour("muted")).at(LEDGER_LEFT, y))
        weight, colour = ("bold", "ink") if changed else ("regular", "muted")
        if row["note"]:
            note = label(row["note"], "floor", theme.colour(colour), "medium" if changed else "regular")
            board.put(f"{key}:note", note.at(CHART[0] - 0.15, y, "right"))
        board.put(f"{key}:value", label(row["value"], "body", theme.colour(colour), weight).at(LEDGER_LEFT, y - 0.32))
        role = "cache" if row["key"] in ("kv", "cache") else "ink"
        _history(board, theme, key, role, y - 0.38, frame, last, HISTORY[row["key"]])
    for i, sentence in enumerate(frame.source.rstrip(".").split(". ")):
        words = label(sentence, "floor", theme.colour("muted"))
        board.put(f"source:{i + 1}", words.at(LEDGER_LEFT, LEDGER_TOP - ROW * 5 + 0.06 - 0.27 * i))


def _history(
    board: Board, theme: Theme, key: str, role: str, floor: float, frame: Frame, last: Frame, array: str
) -> None:
    """A bar a stage up to this one, on the scale of all stages; stages to come are bars without height.

    Counts start at zero. Losses are drawn from the lowest seed to the highest, on the range of all runs.
    """
    left, right, tall = CHART
    everything, so_far = last.values(array), frame.values(array)
    pitch = (right - left) / len(everything)
    if everything.ndim == 1:
        scale = tall / max(float(everything.max()), 1)
        spans = [(0.0, float(v) * scale) for v in so_far]
    else:
        low, high = float(everything.min()), float(everything.max())
        heights = (so_far - low) / max(high - low, 1e-9) * (tall - 0.06)
        spans = [(float(row.min()), float(row.max()) + 0.06) for row in heights]
    spans += [(0.0, 0.0)] * (len(everything) - len(spans))
    bars = [(left + i * pitch, floor + a, left + (i + 0.72) * pitch, floor + b) for i, (a, b) in enumerate(spans)]
    now = len(so_far) - 1
    past = [bar if i != now else (bar[0], bar[1], bar[2], bar[1]) for i, bar in enumerate(bars)]
    board.put(f"{key}:past", rectangles(theme.tint(role, 0.42), past))
    board.put(f"{key}:now", rectangles(theme.colour(role), [bars[now]]))


# ---- geometry ----


def _square(x: float, y: float, side: float) -> Box:
    return (x - side / 2, y - side / 2, x + side / 2, y + side / 2)


def _thin(a: Point, b: Point, thick: float = 0.02) -> list[np.ndarray]:
    """A line as a thin filled quadrilateral, so that many lines are one mobject."""
    start, end = np.array([*a, 0.0]), np.array([*b, 0.0])
    along = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
    side = np.array([-along[1], along[0], 0.0]) * thick / 2
    return [start + side, end + side, end - side, start - side]


def _rows(kind: str, at: Box, seen: float, cells: int = 8) -> list[Box]:
    """A mask as one bar a row; a state, which has no rows to see, as a full square of its own size."""
    left, bottom, right, top = at
    cell = (right - left) / cells
    if kind == "state":
        inset = 2 * cell
        high = (top - bottom - 2 * inset) / cells
        return [
            (left + inset, top - inset - (i + 1) * high, right - inset, top - inset - i * high) for i in range(cells)
        ]
    window = cells if kind == "full" else max(1, round(seen * cells))
    return [
        (left + max(0, i + 1 - window) * cell, top - (i + 1) * cell, left + (i + 1) * cell, top - i * cell)
        for i in range(cells)
    ]
