"""Figure 8, frames 1 to 5 and 8: one layer, dense and with experts, and what a token makes of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from scenes.charts import Axes, arrow, bars, heat, line, scale, token_row
from scenes.fig08_stage import EDGE, GRID, HEADER_Y, LEFT, NUMBERS_Y, RIGHT, SHARED, SIDE, TILES, Stage
from scenes.parts import chip, plus, polylines, rectangles, wire

MOST_TERMS = 9
"""Most weights that frame 5 draws."""


def dense(s: Stage) -> None:
    """A token's row is filled in every slice; at the right the network's matrices, drawn to scale."""
    rows, count = s.at("sizes").shape
    right = LEFT + count * (RIGHT - LEFT) / s.n
    s.grid(s.at("sizes") > 0)
    s.tokens(GRID)
    s.text("grid:header", "filled: works for the token", (LEFT, HEADER_Y))
    cuts = np.linspace(LEFT, right - 0.04, s.n + 1)  # as many pieces as there will be experts: it comes apart into them
    pieces = [(float(a), TILES[1], float(b), TILES[3]) for a, b in pairwise(cuts)]
    s.board.put("experts:tiles", rectangles(s.fill(True), pieces))
    s.text("dense:name", "one network", ((LEFT + right) / 2, NUMBERS_Y), "centre")
    matrices: dict[str, list[int]] = s.facts["matrices"]
    left, pitch = -0.6, (GRID[3] - GRID[1] + 0.25) / len(matrices)
    model, hidden = matrices["down"]  # hidden features lie along the drawn width, so that slices stand as in the grid
    unit = min(3.6 / hidden, (pitch - 0.25) / model)
    edges = left + unit * hidden * np.linspace(0, 1, count + 1)
    s.text("matrix:header", f"its matrices, cut into the same {count} slices", (left, HEADER_Y))
    for i, (name, (high, wide)) in enumerate(matrices.items()):
        top = GRID[3] - i * pitch
        cuts = [(float(a), top - model * unit, float(b) - 0.04, top) for a, b in pairwise(edges)]
        s.board.put(f"matrix.{name}:box", rectangles(s.fill(True), cuts))
        x, y = float(edges[-1]) + 0.26, top - model * unit / 2
        s.text(f"matrix.{name}:name", name, (x, y + 0.17), colour="ink", size="label", weight="medium")
        s.text(f"matrix.{name}:size", f"{high} × {wide} parameters", (x, y - 0.17))
    s.text("dense:sum", f"{int(s.at('weights')):,} parameters", (left, TILES[1] + 0.18), colour="ink", size="body",
           weight="bold")  # fmt: skip
    s.text("dense:use", f"all of them work for each of {rows} tokens", (left, NUMBERS_Y - 0.06))
    s.board.cut = left - 0.3


def experts(s: Stage) -> None:
    """A token, the router, a line to every expert; the shared one's line goes past the router."""
    middle, chosen = (LEFT + RIGHT) / 2, [int(e) for e in s.at("chosen")]
    token_y, router_y, foot, top = HEADER_Y - 0.12, 1.85, 1.58, TILES[3] + 0.1
    rest = [[(middle, foot), (s.x(e), top)] for e in range(s.n) if e not in chosen]
    s.board.put("router:lines", polylines(s.theme, rest, "ghost", 1.2))
    s.board.put("router:chosen", polylines(s.theme, [[(middle, foot), (s.x(e), top)] for e in chosen], "ffn", 3.5))
    always = s.facts["n_shared"]
    words = s.facts["tokens"][s.facts["token"]]
    s.text("token:name", f"token “{words}”", (middle, token_y), "centre", colour="ink", size="label", weight="medium")
    arrow(s.board, "token.in", s.theme, (middle, token_y - 0.22), (middle, router_y + 0.3))
    chip(s.board, "router", s.theme, "ffn", "router", (middle, router_y), (1.9, 0.54))
    s.text("router:size", f"{int(s.at('router')):,} parameters", (middle - 1.15, router_y), "right")
    s.text("router:does", f"scores {s.n}, takes {s.facts['top_k']}", (middle + 1.15, router_y))
    if always:
        x = (SHARED[0] + SHARED[2]) / 2
        s.board.put("shared:line", wire(s.theme, [(middle + 0.75, token_y), (x, token_y), (x, top)], "ffn", 3.5))
        s.text("shared:always", "always", (x + 0.2, 0.6), colour="ink")
    s.experts(chosen, shared=bool(always))
    s.text(
        "experts:size", f"{s.n} experts of {int(s.at('expert')):,} parameters", ((LEFT + RIGHT) / 2, -2.5),
        "centre",
    )  # fmt: skip


def router(s: Stage) -> None:
    """A bar over each expert's tile, as high as its probability."""
    p, chosen = s.at("probabilities"), [int(e) for e in s.at("chosen")]
    high = float(p.max()) * 1.02
    area = Axes((LEFT, TILES[3] + 0.12, RIGHT, 1.75), (-0.5, s.n - 0.5), (0, high))
    bars(s.board, "probability", s.theme, area, p, "ffn", lit=chosen, gap=0.14)
    share = 1 / s.n if s.facts["adds_to_one"] else float(p.mean())
    even = area.point(0, share)[1]
    line(s.board, "even", s.theme, area, [-0.5, s.n - 0.5], [share, share], "ink", width=2, dash=True)
    s.text("even:name", f"1/{s.n}, even" if s.facts["adds_to_one"] else "their mean", (RIGHT + 0.14, even))
    for e in chosen:
        x, y = area.point(e, float(p[e]))
        y = even + 0.14 if abs(y + 0.17 - even) < 0.13 else y + 0.17  # not on the dashes
        s.text(f"probability:{e}", f"{100 * p[e]:.0f}", (x, y), "centre", colour="ink")
    what = "probability" if s.facts["adds_to_one"] else "score"
    s.text("probability:unit", f"{what} of each expert for the last token, in percent", (LEFT, 2.28))
    _passage(s)
    s.experts(chosen)


def _passage(s: Stage) -> None:
    """The tokens read so far in a row, the one that is followed in bold."""
    words: list[str] = s.facts["tokens"]
    start, pitch = (LEFT + 0.9, 0.26) if max(map(len, words)) <= 2 else (LEFT + 1.2, 0.62)
    s.text("passage:name", "reading", (LEFT, HEADER_Y - 0.1))
    token_row(s.board, "passage", s.theme, words, [start + pitch * i for i in range(len(words))],
              HEADER_Y - 0.1, lit=[s.facts["token"]], size="label")  # fmt: skip


def dispatch(s: Stage) -> None:
    """The grid of tokens and experts, and under it how many tokens each expert got."""
    s.grid(s.at("table"))
    s.tokens(GRID, [s.facts["token"]])
    s.text("grid:header", f"filled: the {s.facts['top_k']} experts that a token chose", (LEFT, HEADER_Y))
    s.experts(numbers=False)
    s.text("load:name", "tokens", (EDGE, NUMBERS_Y), "right")
    for e, load in enumerate(s.at("load")):
        if s.n <= 40:
            s.text(f"load:{e}", str(load), (s.x(e), NUMBERS_Y), "centre", colour="ink")


def combination(s: Stage) -> None:
    """Lines from the chosen experts through their weights to the sum, and the sum above the layer's own output."""
    chosen, weights = [int(e) for e in s.at("chosen")], s.at("weights")
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
    total, output = s.at("sum"), s.at("output")
    limit = float(np.abs(output).max())
    arrow(s.board, "sum.out", s.theme, (middle, sum_y + 0.2), (middle, 1.66))
    for key, name, values, y in (("sum.map", "sum", total, 1.72), ("output.map", "layer", output, 2.2)):
        heat(s.board, key, s.theme, values[None], (LEFT, y, RIGHT, y + 0.38), role="ffn", limits=(-limit, limit),
             signed=True)  # fmt: skip
        s.text(f"{key}.name:name", name, (EDGE, y + 0.19), "right")
    scale(s.board, "map.scale", s.theme, (SIDE, 1.72, SIDE + 0.2, 2.58), role="ffn", limits=(-limit, limit),
          signed=True)  # fmt: skip
    error = f"{len(total)} channels; the largest difference is {s.facts['error']}"
    if len(keep) < len(chosen):
        error += f"; the {len(keep)} largest of {len(chosen)} weights are drawn"
    s.text("error:name", error, (LEFT, HEADER_Y - 0.1), colour="ink")
    s.experts(chosen, shared=always)


def shared(s: Stage) -> None:
    """The grid of frame 4, the shared expert's filled column, and what it adds to each token."""
    table, ratio = s.at("table"), s.at("ratio")
    s.grid(table)
    s.tokens(GRID, [s.facts["token"]])
    s.text("grid:header", f"filled: the {s.facts['top_k']} experts that a token chose", (LEFT, HEADER_Y))
    pitch = (GRID[3] - GRID[1]) / len(table)
    rows = [(GRID[3] - (t + 1) * pitch + 0.03, GRID[3] - t * pitch) for t in range(len(table))]
    s.board.put("shared:column", rectangles(s.fill(True), [(SHARED[0], a, SHARED[2], b) for a, b in rows]))
    left, wide = 5.3, 1.2 / float(ratio.max())
    s.board.put("ratio:bars", rectangles(s.theme.tint("ffn", 0.62), [
        (left, a + 0.03, left + wide * float(r), b - 0.03) for (a, b), r in zip(rows, ratio)
    ]))  # fmt: skip
    one = left + wide
    s.board.put("ratio:one", polylines(s.theme, [[(one, GRID[1]), (one, GRID[3])]], "ink", 2))
    s.text("ratio:1", "as a chosen", (left, NUMBERS_Y + 0.5))
    s.text("ratio:2", "one on average", (left, NUMBERS_Y + 0.22))
    s.text("ratio:header", "size of what it adds", (6.7, HEADER_Y), "right")
    s.experts(shared=True)
