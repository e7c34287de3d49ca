"""Figure 8, mixture of experts: the experts are a row of tiles at the foot of the stage and stay where they are.

What stands above a tile is about that expert: a line from the router, a probability, the tokens it got, its load over
the steps of a training run. The shared expert has its place at the right of the row. Chosen experts are full, others
quiet. Everything drawn is read from a frame of `morph.story.moe`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import numpy as np

from morph.story import Figure, Frame
from scenes.board import Board, Box
from scenes.charts import Axes, arrow, bars, heat, line, scale, token_row
from scenes.chrome import chrome
from scenes.parts import Point, chip, plus, polylines, rectangles, wire
from scenes.theme import Theme
from scenes.type import label

LEFT, RIGHT = -5.6, 4.48
SHARED: Box = (4.78, -1.98, 5.06, -1.62)
TILES: Box = (LEFT, -1.98, RIGHT, -1.62)
NUMBERS_Y = -2.2
GRID: Box = (LEFT, -1.45, RIGHT, 2.71)
HEADER_Y = 2.98
"""The words over a grid."""
EDGE = LEFT - 0.14
"""Right edge of what stands at the left of the row."""
SIDE = 5.0
"""Left edge of what stands at the right of it where there is no shared expert."""
QUIET = 0.3
"""Share of the role's colour in an expert that rests."""
MOST_TERMS = 9


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 12)."""
    frame = figure.frames[index - 1]
    made = Board()
    chrome(made, frame, theme, f"{index:02d} / {len(figure):02d}")
    DRAW[frame.key](Stage(made, theme, frame))
    return made


class Stage:
    """A board with what every frame draws on it."""

    def __init__(self, board: Board, theme: Theme, frame: Frame) -> None:
        self.board, self.theme, self.facts = board, theme, frame.facts
        self.arrays = {name: array.values for name, array in frame.arrays.items()}
        self.n: int = frame.facts.get("n_experts", 0)

    def text(
        self, key: str, words: str, at: Point, anchor: str = "left", *, colour: str = "muted", size: str = "floor",
        weight: str = "regular",
    ) -> None:  # fmt: skip
        self.board.put(key, label(words, size, self.theme.colour(colour), weight).at(*at, anchor))

    def fill(self, lit: bool) -> str:
        """The colour of an expert that works or rests."""
        return self.theme.colour("ffn") if lit else self.theme.tint("ffn", QUIET)

    def x(self, expert: int) -> float:
        """The middle of an expert's tile."""
        return LEFT + (expert + 0.5) * (RIGHT - LEFT) / self.n

    def row(self, key: str, n: int, bottom: float, top: float, lit: Collection[int]) -> None:
        """A row of n tiles over the whole width; those not lit have no height in `chosen`, so that they can grow."""
        tiles = [cell(i, n, bottom, top) for i in range(n)]
        full = [t if i in lit else (t[0], t[1], t[2], t[1]) for i, t in enumerate(tiles)]
        self.board.put(f"{key}:tiles", rectangles(self.fill(False), tiles))
        self.board.put(f"{key}:chosen", rectangles(self.fill(True), full))

    def experts(self, lit: Collection[int] = (), *, shared: bool = False, numbers: bool = True) -> None:
        """The row of experts, with their numbers below; the shared expert is full wherever it is drawn."""
        self.row("experts", self.n, TILES[1], TILES[3], lit)
        if numbers:
            self.text("experts:name", "expert", (EDGE, NUMBERS_Y), "right")
            for i in range(0, self.n, max(1, self.n // 8)):
                self.text(f"experts:{i}", str(i), (self.x(i), NUMBERS_Y), "centre")
        if shared:
            self.board.put("shared:tile", rectangles(self.fill(True), [SHARED]))
            self.text("shared:name", "shared", ((SHARED[0] + SHARED[2]) / 2, NUMBERS_Y), "centre")

    def tokens(self, at: Box, lit: Collection[int] = ()) -> None:
        """The passage's tokens as names of a grid's rows."""
        tall = (at[3] - at[1]) / len(self.facts["tokens"])
        for i, word in enumerate(self.facts["tokens"]):
            ink = i in lit
            self.text(
                f"token{i}:name", word, (EDGE, at[3] - (i + 0.5) * tall), "right", colour="ink" if ink else "muted",
                weight="bold" if ink else "regular",
            )  # fmt: skip

    def grid(self, table: np.ndarray) -> None:
        """Who goes where: a full cell for each choice."""
        pitch = (GRID[3] - GRID[1]) / len(table)
        cells = {
            (t, e): cell(e, self.n, GRID[3] - (t + 1) * pitch + 0.03, GRID[3] - t * pitch)
            for t, e in np.ndindex(table.shape)
        }
        rest, full = ([box for at, box in cells.items() if bool(table[at]) == lit] for lit in (False, True))
        if rest:
            self.board.put("grid:rest", rectangles(self.theme.colour("panel"), rest))
        self.board.put("grid:chosen", rectangles(self.theme.colour("ffn"), full))


def cell(expert: int, n: int, bottom: float, top: float) -> Box:
    """A box over one expert's tile, as wide as the tile."""
    pitch = (RIGHT - LEFT) / n
    return (LEFT + expert * pitch, bottom, LEFT + (expert + 1) * pitch - min(0.04, 0.15 * pitch), top)


# ---- frames 1 to 5 ----


def _dense(s: Stage) -> None:
    """A token's row is full in every slice; at the right the network's matrices, drawn to scale."""
    rows, count = s.arrays["sizes"].shape
    right = LEFT + count * (RIGHT - LEFT) / s.n
    s.grid(s.arrays["sizes"] > 0)
    s.tokens(GRID)
    s.text("grid:header", "full: works for the token", (LEFT, HEADER_Y))
    cuts = np.linspace(LEFT, right - 0.04, s.n + 1)  # as many pieces as there will be experts: it comes apart into them
    pieces = [(float(a), TILES[1], float(b), TILES[3]) for a, b in pairwise(cuts)]
    s.board.put("experts:tiles", rectangles(s.fill(True), pieces))
    s.text("dense:name", "one network", ((LEFT + right) / 2, NUMBERS_Y), "centre")
    matrices: dict[str, list[int]] = s.facts["matrices"]
    left, pitch = -0.9, (GRID[3] - GRID[1] + 0.25) / len(matrices)
    sides = [(max(shape), min(shape)) for shape in matrices.values()]
    unit = min(3.6 / max(a for a, _ in sides), (pitch - 0.25) / max(b for _, b in sides))
    for i, ((name, (high, wide)), (a, b)) in enumerate(zip(matrices.items(), sides)):
        top = GRID[3] - i * pitch
        s.board.put(f"matrix.{name}:box", rectangles(s.fill(True), [(left, top - b * unit, left + a * unit, top)]))
        x, y = left + a * unit + 0.3, top - b * unit / 2
        s.text(f"matrix.{name}:name", name, (x, y + 0.17), colour="ink", size="label", weight="medium")
        s.text(f"matrix.{name}:size", f"{high} × {wide} weights", (x, y - 0.17))
    s.text("dense:sum", f"{int(s.arrays['weights']):,} weights", (left, TILES[1] + 0.18), colour="ink", size="body",
           weight="bold")  # fmt: skip
    s.text("dense:use", f"all of them work for each of {rows} tokens", (left, NUMBERS_Y - 0.06))
    s.board.cut = left - 0.3


def _experts(s: Stage) -> None:
    """A token, the router, a line to every expert; the shared one's line goes past the router."""
    middle, chosen = (LEFT + RIGHT) / 2, [int(e) for e in s.arrays["chosen"]]
    token_y, router_y, foot, top = HEADER_Y - 0.12, 1.85, 1.58, TILES[3] + 0.1
    rest = [[(middle, foot), (s.x(e), top)] for e in range(s.n) if e not in chosen]
    s.board.put("router:lines", polylines(s.theme, rest, "ghost", 1.2))
    s.board.put("router:chosen", polylines(s.theme, [[(middle, foot), (s.x(e), top)] for e in chosen], "ffn", 3.5))
    always = s.facts["n_shared"]
    words = s.facts["tokens"][s.facts["token"]]
    s.text("token:name", f"token {words}", (middle, token_y), "centre", colour="ink", size="label", weight="medium")
    arrow(s.board, "token.in", s.theme, (middle, token_y - 0.22), (middle, router_y + 0.3))
    chip(s.board, "router", s.theme, "ffn", "router", (middle, router_y), (1.9, 0.54))
    s.text("router:size", f"{int(s.arrays['router']):,} weights", (middle - 1.15, router_y), "right")
    s.text("router:does", f"scores {s.n}, takes {s.facts['top_k']}", (middle + 1.15, router_y))
    if always:
        x = (SHARED[0] + SHARED[2]) / 2
        s.board.put("shared:line", wire(s.theme, [(middle + 0.75, token_y), (x, token_y), (x, top)], "ffn", 3.5))
        s.text("shared:always", "always", (x + 0.2, 0.6), colour="ink")
    s.experts(chosen, shared=bool(always))
    s.text(
        "experts:size", f"{s.n} experts of {int(s.arrays['expert']):,} weights", ((LEFT + RIGHT) / 2, -2.5), "centre"
    )


def _router(s: Stage) -> None:
    """A bar over each expert's tile, as high as its probability."""
    p, chosen = s.arrays["probabilities"], [int(e) for e in s.arrays["chosen"]]
    high = float(p.max()) * 1.02
    area = Axes((LEFT, TILES[3] + 0.12, RIGHT, 1.75), (-0.5, s.n - 0.5), (0, high))
    bars(s.board, "probability", s.theme, area, p, "ffn", lit=chosen, gap=0.14)
    even = area.point(0, 1 / s.n)[1]
    line(s.board, "even", s.theme, area, [-0.5, s.n - 0.5], [1 / s.n, 1 / s.n], "ink", width=2, dash=True)
    s.text("even:name", f"1/{s.n}, even", (RIGHT + 0.14, even))
    for e in chosen:
        x, y = area.point(e, float(p[e]))
        s.text(f"probability:{e}", f"{100 * p[e]:.0f}", (x, y + 0.17), "centre", colour="ink")
    what = "probability" if s.facts["adds_to_one"] else "score"
    s.text("probability:unit", f"{what} of each expert for the last token, in per cent", (LEFT, 2.28))
    _passage(s)
    s.experts(chosen)


def _passage(s: Stage) -> None:
    """The tokens read so far in a row, the one that is followed in bold."""
    words: list[str] = s.facts["tokens"]
    start = LEFT + 1.3
    s.text("passage:name", "reading", (LEFT, HEADER_Y - 0.1))
    token_row(s.board, "passage", s.theme, words, [start + 0.26 * i for i in range(len(words))], HEADER_Y - 0.1,
              lit=[s.facts["token"]], size="label")  # fmt: skip


def _dispatch(s: Stage) -> None:
    """The grid of tokens and experts, and under it how many tokens each expert got."""
    s.grid(s.arrays["table"])
    s.tokens(GRID, [s.facts["token"]])
    s.text("grid:header", f"full: the {s.facts['top_k']} experts that a token chose", (LEFT, HEADER_Y))
    s.experts(numbers=False)
    s.text("load:name", "tokens", (EDGE, NUMBERS_Y), "right")
    for e, load in enumerate(s.arrays["load"]):
        if s.n <= 40:
            s.text(f"load:{e}", str(load), (s.x(e), NUMBERS_Y), "centre", colour="ink")


def _combination(s: Stage) -> None:
    """Lines from the chosen experts through their weights to the sum, and the sum above the layer's own output."""
    chosen, weights = [int(e) for e in s.arrays["chosen"]], s.arrays["weights"]
    keep = sorted(np.argsort(-weights)[:MOST_TERMS].tolist())
    always = bool(s.facts["n_shared"])
    ends = [s.x(chosen[i]) for i in keep]
    places = np.linspace(LEFT + 0.5, RIGHT - 0.5, len(keep)) if len(keep) > 1 else np.array(ends)
    top, weight_y, sum_y = TILES[3] + 0.08, -0.15, 1.0
    middle = (LEFT + RIGHT) / 2
    low = [[(x, top), (float(p), weight_y - 0.2)] for x, p in zip(ends, places)]
    high = [[(float(p), weight_y + 0.2), (middle, sum_y)] for p in places]
    if always:
        x = (SHARED[0] + SHARED[2]) / 2
        s.board.put("shared:line", wire(s.theme, [(x, top), (x, sum_y), (middle, sum_y)], "ffn", 3))
        s.text("shared:factor", "as it is", (x + 0.2, weight_y), colour="ink")
    s.board.put("sum:lines", polylines(s.theme, low + high, "ffn", 3))
    for i, place in zip(keep, places):
        centre = (float(place), weight_y)
        chip(s.board, f"weight{i}", s.theme, "ffn", f"× {weights[i]:.2f}", centre, (1.0, 0.4))
    s.text("weight:name", "weight", (EDGE, weight_y), "right")
    disc, cross = plus(s.theme, (middle, sum_y), 0.2)
    s.board.put("sum:disc", disc)
    s.board.put("sum:cross", cross)
    total, output = s.arrays["sum"], s.arrays["output"]
    limit = float(np.abs(output).max())
    arrow(s.board, "sum.out", s.theme, (middle, sum_y + 0.2), (middle, 1.66))
    for key, name, values, y in (("sum.map", "sum", total, 1.72), ("output.map", "layer", output, 2.2)):
        heat(
            s.board,
            key,
            s.theme,
            values[None],
            (LEFT, y, RIGHT, y + 0.38),
            role="ffn",
            limits=(-limit, limit),
            signed=True,
        )
        s.text(f"{key}.name:name", name, (EDGE, y + 0.19), "right")
    scale(
        s.board, "map.scale", s.theme, (SIDE, 1.72, SIDE + 0.2, 2.58), role="ffn", limits=(-limit, limit), signed=True
    )
    error = f"{len(total)} channels; the largest difference is {s.facts['error']}"
    if len(keep) < len(chosen):
        error += f"; the {len(keep)} largest of {len(chosen)} weights are drawn"
    s.text("error:name", error, (LEFT, HEADER_Y - 0.1), colour="ink")
    s.experts(chosen, shared=always)


# ---- frames 6 and 7: counts ----


def _active(s: Stage) -> None:
    """Bars of total parameters with the active ones full: ours at the left, released models at the right."""
    ours = (s.facts["names"], s.arrays["total"], s.arrays["active"])
    theirs = (s.facts["released"], s.arrays["released_total"], s.arrays["released_active"])
    s.board.cut = 0.0
    for key, title, left, (names, total, active) in (
        ("ours", "stages at nano size" if len(ours[0]) > 2 else "this model", -6.5, ours),
        ("released", "released models", 0.35, theirs),
    ):
        s.text(f"{key}:title", title, (left, HEADER_Y - 0.1), colour="ink", size="label", weight="medium")
        pitch = min(1.5, 4.9 / len(names))
        longest = 4.4 / float(total.max())
        lit, rest = [], []
        for i, (name, t, a) in enumerate(zip(names, total.tolist(), active.tolist())):
            y = HEADER_Y - 0.62 - pitch * i
            low, high = y - 0.52, y - 0.2
            lit.append((left, low, left + a * longest, high))
            rest.append((left + a * longest, low, left + t * longest, high))
            s.text(f"{key}{i}:name", name, (left, y), colour="ink")
            x = left + t * longest + 0.14
            s.text(f"{key}{i}:total", f"{_short(t)} total", (x, y - 0.36), colour="ink", weight="medium")
            s.text(f"{key}{i}:active", f"{_short(a)} active, {100 * a / t:.0f} %", (left + 6.1, y), "right")
        s.board.put(f"{key}:rest", rectangles(s.theme.tint("ffn", QUIET), rest))
        s.board.put(f"{key}:active", rectangles(s.theme.colour("ffn"), lit))


def _short(n: float) -> str:
    """A count of parameters: `114,192`, `12.9 M`, `46.7 B`."""
    for size, unit in ((1e9, "B"), (1e6, "M")):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n:,.0f}"


def _combinations(s: Stage) -> None:
    """Three strips of the same stored weights, cut finer from top to bottom; the full parts are the weights used."""
    used, stored = s.arrays["used"], s.arrays["stored"]
    notes = ("step 10", "step 11, as many FLOPs", f"{used[0] / used[2]:.0f} times fewer FLOPs")
    for i, (n, k) in enumerate(zip(s.arrays["experts"].tolist(), s.arrays["chosen"].tolist())):
        y = 2.0 - 1.7 * i
        picks = np.flatnonzero(s.arrays["picks"][i, :n] > 0).tolist()
        s.row("experts" if n == 32 else f"strip{n}", n, y - 0.45, y, picks)
        s.text(f"ways{i}:name", f"{n} choose {k}", (LEFT, y + 0.3), colour="ink", size="label", weight="medium")
        s.text(f"ways{i}:count", s.facts["ways"][i], (LEFT + 2.2, y + 0.3), colour="ink", size="body", weight="bold")
        s.text(f"ways{i}:note", notes[i], (RIGHT, y + 0.3), "right")
        s.text(f"ways{i}:used", f"uses {used[i]:,}", (RIGHT + 0.2, y - 0.1), colour="ink")
        s.text(f"ways{i}:stored", f"of {stored[i]:,} weights", (RIGHT + 0.2, y - 0.37))


# ---- frames 8 to 12 ----


def _shared(s: Stage) -> None:
    """The grid of frame 4, the shared expert's full column, and what it adds to each token."""
    table, ratio = s.arrays["table"], s.arrays["ratio"]
    s.grid(table)
    s.tokens(GRID, [s.facts["token"]])
    s.text("grid:header", f"full: the {s.facts['top_k']} experts that a token chose", (LEFT, HEADER_Y))
    pitch = (GRID[3] - GRID[1]) / len(table)
    rows = [(GRID[3] - (t + 1) * pitch + 0.03, GRID[3] - t * pitch) for t in range(len(table))]
    s.board.put("shared:column", rectangles(s.fill(True), [(SHARED[0], a, SHARED[2], b) for a, b in rows]))
    left, wide = 5.3, 1.2 / float(ratio.max())
    s.board.put("ratio:bars", rectangles(s.theme.tint("ffn", 0.62), [
        (left, a + 0.03, left + wide * float(r), b - 0.03) for (a, b), r in zip(rows, ratio)
    ]))  # fmt: skip
    one = left + wide
    s.board.put("ratio:one", polylines(s.theme, [[(one, GRID[1]), (one, GRID[3])]], "ink", 2))
    s.text("ratio:1", "1", (one, NUMBERS_Y + 0.5), "centre")
    s.text("ratio:header", "adds; a chosen one: 1", (6.7, HEADER_Y), "right")
    s.experts(shared=True)


UPPER: Box = (LEFT, 0.62, RIGHT, 2.62)
LOWER: Box = (LEFT, TILES[3] + 0.12, RIGHT, 0.12)


def _load(s: Stage) -> None:
    """Loads over the steps of a run above, the last of them as bars (or the biases over the steps) below."""
    load, possible = s.arrays["load"], float(s.facts["possible"])
    heat(s.board, "load", s.theme, load, UPPER, role="ffn", limits=(0.0, possible))
    _steps(s, "load", UPPER)
    s.text("load:header", "load over training, 1 is an even share", (LEFT, HEADER_Y - 0.08))
    scale(s.board, "load.scale", s.theme, (SIDE, UPPER[1], SIDE + 0.2, UPPER[3]), role="ffn", limits=(0.0, possible))
    if "bias" in s.arrays:
        bias = s.arrays["bias"]
        limit = float(np.abs(bias).max())
        at = (LEFT, LOWER[1], RIGHT, LOWER[1] + 1.4)
        heat(s.board, "bias", s.theme, bias, at, role="ffn", limits=(-limit, limit), signed=True)
        _steps(s, "bias", at)
        s.text("bias:header", "bias on the choice", (LEFT, at[3] + 0.2))
        scale(
            s.board,
            "bias.scale",
            s.theme,
            (SIDE, at[1], SIDE + 0.2, at[3]),
            role="ffn",
            limits=(-limit, limit),
            signed=True,
        )
    else:
        area = Axes(LOWER, (-0.5, s.n - 0.5), (0, possible))
        bars(s.board, "last", s.theme, area, load[-1], "ffn", gap=0.14)
        line(s.board, "even", s.theme, area, [-0.5, s.n - 0.5], [1, 1], "ink", width=2, dash=True)
        s.text("even:name", "1, even share", (RIGHT + 0.14, area.point(0, 1)[1]))
        fullest = int(load[-1].argmax())
        x, y = area.point(fullest, float(load[-1].max()))
        s.text("last:fullest", f"{load[-1].max():.1f}", (x, y + 0.16), "centre", colour="ink")
        s.text("last:header", "load at the end", (LEFT, LOWER[3] + 0.2))
    s.experts()


def _steps(s: Stage, key: str, at: Box) -> None:
    """The first and last step at the left of a map whose rows are stretches of training."""
    steps = s.arrays["steps"]
    tall = (at[3] - at[1]) / len(steps)
    s.text(f"{key}:first", f"{steps[0]:,}", (EDGE, at[3] - max(tall / 2, 0.1)), "right")
    s.text(f"{key}:step", "step", (EDGE, (at[1] + at[3]) / 2), "right")
    s.text(f"{key}:last", f"{steps[-1]:,}", (EDGE, at[1] + max(tall / 2, 0.1)), "right")


def _parallel(s: Stage) -> None:
    """A row for the tokens' device, a column for the experts': how many pairs go from one to the other."""
    counts = s.arrays["counts"]
    n = len(counts)
    bottom, top = GRID[1], 2.35
    tall = (top - bottom) / n
    wide = (RIGHT - LEFT) / n
    unit = (wide - 1.0) / float(counts.max())
    length = s.facts["length"] // n
    rows = [(top - (i + 1) * tall, top - i * tall - 0.08) for i in range(n)]
    cells = [(LEFT + j * wide, low, LEFT + (j + 1) * wide - 0.08, high) for low, high in rows for j in range(n)]
    s.board.put("matrix:ground", rectangles(s.theme.colour("panel"), cells))
    stay, cross = [], []
    for (left, low, _, high), (i, j) in zip(cells, np.ndindex(n, n)):
        start, y = left + 0.75, (low + high) / 2
        (stay if i == j else cross).append((start, y - 0.16, start + unit * counts[i, j], y + 0.16))
        s.text(f"pair{i}{j}:count", str(counts[i, j]), (left + 0.62, y), "right", colour="ink", size="label")
    s.board.put("matrix:stay", rectangles(s.theme.tint("ffn", 0.42), stay))
    s.board.put("matrix:cross", rectangles(s.theme.colour("ffn"), cross))
    for i, (low, high) in enumerate(rows):
        words = f"{length * i}–{length * (i + 1) - 1}"
        s.text(f"from{i}:name", words, (EDGE, (low + high) / 2), "right", colour="ink")
    for j in range(n):
        first, last = -(-j * s.n // n), -(-(j + 1) * s.n // n) - 1
        s.text(
            f"to{j}:name",
            f"device {j}: experts {first}–{last}",
            (LEFT + (j + 0.5) * wide, top + 0.24),
            "centre",
            colour="ink",
        )
    s.text("from:name", "tokens", (EDGE, top + 0.24), "right")
    total = int(counts.sum())
    s.text(
        "share:value",
        f"{100 * float(s.arrays['crossing']):.0f} %",
        (SIDE - 0.2, 1.9),
        colour="ink",
        size="title",
        weight="bold",
    )
    s.text("share:name", f"of {total:,} pairs", (SIDE - 0.2, 1.5))
    s.text("share:what", "cross: full bars", (SIDE - 0.2, 1.23))
    s.experts()


DRAW: dict[str, Any] = {
    "dense": _dense, "experts": _experts, "router": _router, "dispatch": _dispatch, "combination": _combination,
    "active": _active, "combinations": _combinations, "shared": _shared, "collapse": _load, "auxiliary-loss": _load,
    "selection-bias": _load, "parallel": _parallel,
}  # fmt: skip
"""Frame key -> what draws it."""
