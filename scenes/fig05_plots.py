"""Figure 5, frames 2, 3 and 5 to 9: curves, inputs, channels, sizes."""

from __future__ import annotations

import numpy as np

from morph.story.written import percent
from scenes.charts import Axes, arrow, axes, bars, dots, line, number
from scenes.fig02_parts import greatest
from scenes.parts import discs, polylines, rectangles
from scenes.pen import Pen
from scenes.shape import Box

WHOLE: Box = (-5.9, -2.0, 6.2, 2.6)
SQUARE: Box = (-3.2, -2.05, 1.8, 2.65)
ROLES = {"relu": "ink", "gelu": "muted", "silu": "ffn"}
"""Colour of an activation."""


def curves(pen: Pen) -> None:
    """The three functions, near zero."""
    z, names = pen.at("z"), pen.facts["names"]
    shown = z <= 2.0
    area = Axes(WHOLE, (-4, 2), (-0.5, 2))
    axes(
        pen.board, "bend", pen.theme, area, x_label="input", y_label="output",
        x_ticks=[-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0], y_ticks=[0.0, 1.0, 2.0],
    )  # fmt: skip
    for name, role in ROLES.items():
        line(pen.board, name, pen.theme, area, z[shown], pen.at(name)[shown], role, width=4, dash=name == "gelu")
    for name, (x, y) in {"relu": (-3.6, 0.13), "gelu": (0.15, -0.2), "silu": (-2.6, -0.33)}.items():
        told = names[name] + (", dashed" if name == "gelu" else "")
        pen.text(f"{name}:name", told, area.point(x, y), weight="medium", size="label")


def below_zero(pen: Pen) -> None:
    """A histogram of the inputs, and the marks left of which a function passes less than a tenth."""
    edges, share = pen.at("edges"), pen.at("share")
    low, high = float(edges[0]), float(edges[-1])
    area = Axes((WHOLE[0], WHOLE[1], WHOLE[2], 1.75), (-0.5, len(share) - 0.5), (0, 1.05 * float(share.max())))
    place = Axes(area.at, (low, high), area.y)
    axes(
        pen.board, "inputs", pen.theme, area, x_label="input to the bend",
        x_ticks=[((v - low) / (high - low) * len(share) - 0.5, number(v)) for v in (-4.0, -2.0, 0.0, 2.0, 4.0)],
    )  # fmt: skip
    bars(pen.board, "inputs", pen.theme, area, share, "ffn", gap=0.1)
    words = ("ReLU passes nothing", "GELU under a tenth", "SiLU under a tenth")
    for i, (mark, cut, told, role) in enumerate(zip(pen.at("marks"), pen.at("cut"), words, ROLES.values())):
        x, top = place.point(float(mark), 0)[0], 2.62 - 0.33 * i
        line = [(x, area.at[1]), (x, top - 0.14)]
        pen.board.put(f"mark{i}:line", polylines(pen.theme, [line], role, 3))
        pen.text(f"mark{i}:name", f"{told}: {percent(float(cut))}", (x - 0.12, top), "right", weight="medium")


def channels(pen: Pen) -> None:
    """Three rows of bars: gate, value, product; full where the gate lets a half or more through."""
    numbers, passes = pen.at("channel"), pen.facts["passes"]
    rows = (("gate", "gate, bent", "ffn"), ("value", "value", "ink"), ("product", "product", "ffn"))
    for i, (name, words, role) in enumerate(rows):
        values = pen.at(name)
        top = greatest(values)
        bottom = 1.45 - 1.72 * i
        area = Axes((-4.2, bottom, 6.2, bottom + 1.3), (-0.5, len(values) - 0.5), (-top, top))
        ticks = [(n, str(int(c))) for n, c in enumerate(numbers)] if name == "product" else []
        axes(
            pen.board, name, pen.theme, area, y_ticks=[(-top, number(-top)), 0.0, top], x_ticks=ticks,
            x_label="number of the hidden feature" if ticks else "",
        )  # fmt: skip
        bars(pen.board, name, pen.theme, area, values, role, lit=passes)
        pen.text(f"{name}:name", words, (-6.6, bottom + 0.65), size="label", weight="medium")
    pen.text("passes:name", "full: a gate of ½ or more", (6.2, 2.95), "right", colour="muted")


def together(pen: Pen) -> None:
    """A dot a token, its gate to the right, its value upwards; lines where each counts as there."""
    gate, value, there = pen.at("gate"), pen.at("value"), pen.facts["there"]
    left, right, top = 1.08 * float(gate.min()), 1.08 * float(gate.max()), 1.05 * greatest(value)
    area = Axes((-5.9, -2.05, 1.6, 2.65), (min(left, -0.1), max(right, 0.1)), (-top, top))
    low, high = (float(np.trunc(v)) for v in (gate.min(), gate.max()))
    axes(
        pen.board, "token", pen.theme, area, x_label="gate, before its bend", y_label="value",
        x_ticks=[low, 0.0, high], y_ticks=[(-there, f"−{there:.1f}"), 0.0, (there, f"{there:.1f}")],
    )  # fmt: skip
    edges = [[area.point(0, -top), area.point(0, top)]]
    edges += [[area.point(area.x[0], y), area.point(area.x[1], y)] for y in (-there, there)]
    pen.board.put("token:edges", polylines(pen.theme, edges, "ghost", 1.5))
    both = (np.abs(value) > there) & (gate > 0)
    for name, which, role, size in (("rest", ~both, "ghost", 0.04), ("both", both, "ffn", 0.07)):
        at = [area.point(float(x), float(y)) for x, y in zip(gate[which], value[which])]
        pen.board.put(f"tokens:{name}", discs(pen.theme.colour(role), at, size))
    pen.text("head:count", "tokens", (5.1, 2.35), "right", colour="muted")
    pen.text("head:mean", "passes", (6.6, 2.35), "right", colour="muted")
    for i, (words, count, mean) in enumerate(zip(pen.facts["cases"], pen.at("counts"), pen.at("means"))):
        y, weight = 1.85 - 0.5 * i, "bold" if i == 0 else "regular"
        pen.text(f"case{i}:name", words, (2.1, y), size="label", weight=weight)
        pen.text(f"case{i}:count", f"{int(count)}", (5.1, y), "right", size="label", weight=weight)
        pen.text(f"case{i}:mean", f"{mean:.2f}", (6.6, y), "right", size="label", weight=weight)
    untrained = [] if pen.facts["before"] is None else [("untrained, the best feature", pen.facts["before"])]
    for i, (words, contrast) in enumerate([("both over one missing", pen.facts["contrast"]), *untrained]):
        y = -0.6 - 0.45 * i
        pen.text(f"contrast{i}:name", words, (2.1, y), size="label", colour="muted")
        pen.text(f"contrast{i}:value", f"× {contrast:.1f}", (6.6, y), "right", size="label", weight="medium")
    pen.text("how:0", "there: larger than its RMS, the line", (2.1, -1.75), colour="muted")
    pen.text("how:1", "open: above 0", (2.1, -2.05), colour="muted")


def equal(pen: Pen) -> None:
    """Bars of parameters, cut into matrices."""
    parameters, facts = pen.at("parameters"), pen.facts
    rows = (
        ("two matrices of 4d", f"d × {4 * facts['width']:,}", 2),
        ("three of 8d/3", f"d × {facts['exact']:,.2f}", 3),
        ("three, rounded up", f"d × {facts['rounded']:,}", 3),
    )
    longest = 7.4 / float(parameters.max())
    for i, (words, shape, count) in enumerate(rows):
        y = 2.2 - 1.2 * i
        length = float(parameters[i]) * longest
        step = length / count
        boxes = [(-2.6 + step * n, y - 0.35, -2.6 + step * (n + 1) - 0.06, y + 0.35) for n in range(count)]
        pen.board.put(f"bar{i}", rectangles(pen.theme.tint("ffn", 0.62), boxes))
        pen.text(f"bar{i}:name", words, (-6.6, y + 0.18), size="label", weight="medium")
        pen.text(f"bar{i}:shape", f"each {shape}", (-6.6, y - 0.18), colour="muted")
        told = f"{parameters[i] / 1e6:.1f} M"
        pen.text(f"bar{i}:count", told, (-2.6 + length + 0.12, y + 0.14), size="label")
        if i == 2:
            pen.text("bar2:more", f"{facts['more']:.1%} more", (-2.6 + length + 0.12, y - 0.2), colour="muted")
    _rounding(pen)


def _rounding(pen: Pen) -> None:
    """8d/3 among the multiples that it is rounded to."""
    exact, up, step = pen.facts["exact"], pen.facts["up"], pen.facts["multiple"]
    low, high, y = up - 1.5 * step, up + 0.75 * step, -1.75
    area = Axes((-2.6, y, 4.8, y + 1), (low, high), (0, 1))

    def at(width: float) -> float:
        return area.point(width, 0)[0]

    multiples = [up - step, up]
    pen.board.put("rule:line", polylines(pen.theme, [[(at(low), y), (at(high), y)]], "wire", 2))
    ticks = [[(at(m), y - 0.12), (at(m), y + 0.12)] for m in multiples]
    pen.board.put("rule:ticks", polylines(pen.theme, ticks, "wire", 2))
    for i, multiple in enumerate(multiples):
        pen.text(f"rule:{i}", f"{multiple:,} = {multiple // step} × {step}", (at(multiple), y - 0.36), "centre")
    pen.text("rule:name", "rounded up", (-6.6, y + 0.18), size="label", weight="medium")
    pen.text("rule:what", f"to a multiple of {step}", (-6.6, y - 0.18), colour="muted")
    pen.board.put("rule.exact:dot", discs(pen.theme.colour("ffn"), [(at(exact), y)], 0.09))
    pen.text("rule.exact:name", f"8d/3 = {exact:,.2f}", (at(exact), y + 0.42), "right")
    arrow(pen.board, "rule.up", pen.theme, (at(exact) + 0.14, y + 0.42), (at(up), y + 0.42))


def ratios(pen: Pen) -> None:
    """A row a model, a dot at its hidden width over d."""
    ratio, facts = pen.at("ratio"), pen.facts
    names, gated = facts["names"], np.array(facts["gated"])
    high = float(np.ceil(ratio.max()))
    area = Axes((-3.4, -1.95, 6.2, 2.5), (2, high), (len(names) - 0.4, -0.6))
    axes(
        pen.board, "ratio", pen.theme, area, x_label="hidden width / d",
        x_ticks=[float(v) for v in range(2, int(high) + 1)],
    )  # fmt: skip
    for key, value, words in (("third", 8 / 3, "8/3"), ("four", 4.0, "4, no gate")):
        low_end, top_end = area.point(value, len(names) - 0.4), area.point(value, -0.6)
        pen.board.put(f"{key}:line", polylines(pen.theme, [[low_end, top_end]], "ghost", 2))
        pen.text(f"{key}:name", words, (top_end[0], top_end[1] + 0.2), "centre", colour="muted")
    rows = np.arange(len(names))
    dots(pen.board, "plain", pen.theme, area, ratio[~gated], rows[~gated], "ink", size=0.09)
    dots(pen.board, "gated", pen.theme, area, ratio[gated], rows[gated], "ffn", size=0.09)
    for i, (name, value) in enumerate(zip(names, ratio)):
        x, y = area.point(float(value), i)
        pen.text(f"model{i}:name", f"{name}, {facts['years'][i]}", (-3.6, y), "right")
        pen.text(f"model{i}:ratio", f"{value:.2f}", (x + 0.18, y))


def swapped(pen: Pen) -> None:
    """A dot for each feature that is written: SiLU to the right, GELU upwards."""
    silu, gelu = pen.at("silu"), pen.at("gelu")
    top = greatest(silu, gelu)
    area = Axes(SQUARE, (-top, top), (-top, top))
    ticks = [(-top, number(-top)), 0.0, top]
    axes(
        pen.board, "written", pen.theme, area, x_label="with SiLU", y_label="written with GELU", x_ticks=ticks,
        y_ticks=ticks,
    )  # fmt: skip
    line(pen.board, "alike", pen.theme, area, [-top, top], [-top, top], "ghost", dash=True, width=2)
    dots(pen.board, "features", pen.theme, area, silu, gelu, "ffn", size=0.06)
    pen.text("alike:name", "alike", (SQUARE[2] + 0.15, SQUARE[3] - 0.1), colour="muted")
    rows = [("cosine, mean over tokens", f"{float(pen.at('cosine')):.3f}")]
    if bits := pen.facts["bits"]:
        rows += [("bits a token, SiLU", f"{bits['silu']:.3f}"), ("bits a token, GELU", f"{bits['gelu']:.3f}")]
    for i, (words, told) in enumerate(rows):
        pen.text(f"row{i}:name", words, (3.4, 1.6 - 0.95 * i), colour="muted", size="label")
        pen.text(f"row{i}:told", told, (3.4, 1.2 - 0.95 * i), size="body", weight="medium")
