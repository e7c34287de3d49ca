"""Figure 4, frames 7 to 11: gradients and sizes by layer, trainings at depth, scores and entropies by factor."""

from __future__ import annotations

import numpy as np

from morph.story.written import ten
from scenes.charts import Axes, axes, dots, line, number
from scenes.fig02_norms import ROLES, descent
from scenes.fig02_parts import PLOT, curve, layer_ticks, named
from scenes.parts import polylines
from scenes.pen import Pen

TRAINED = (-3.1, -1.85, 6.2, 2.7)
"""Where the trainings are drawn."""


def gradients(pen: Pen) -> None:
    """The gradient's length by layer, relative to the top, on its way down."""
    descent(pen.board, pen.theme, pen.frame)


def growth(pen: Pen) -> None:
    """RMS of the stream by layer."""
    layers, words, depth = pen.facts["layers"], pen.facts["names"], pen.at("depth")
    series = {name: pen.at(name) for name in words}
    top = max(float(v.max()) for v in series.values())
    area = Axes(PLOT, (0, layers), (0, 1.06 * top))
    axes(
        pen.board, "depth", pen.theme, area, x_label="layers passed", y_label="RMS of the stream",
        x_ticks=layer_ticks(layers), y_ticks=[float(t) for t in range(0, int(top) + 1, 1 if top < 6 else 2)],
    )  # fmt: skip
    for name, ys in series.items():
        curve(pen.board, name, pen.theme, area, ys, ROLES[name], xs=depth, width=4, dash=name == "post-branch")
    named(pen.board, pen.theme, area, series, {n: f"{w}, {series[n][-1]:.2f}" for n, w in words.items()})


def warm_up(pen: Pen) -> None:
    """A row an arm, a dot a seed; a gap between the depths."""
    bits, arms, limit = pen.at("bits"), pen.facts["arms"], float(pen.at("frequencies"))
    low, high = 0.25 * np.floor(4 * bits.min()), max(limit + 0.1, 0.25 * np.ceil(4 * bits.max()))
    deep = sum("12" in arm for arm in arms)
    rows = [i + (0.6 if i >= deep else 0.0) for i in range(len(arms))]
    area = Axes(TRAINED, (float(low), float(high)), (rows[-1] + 0.7, -0.9))
    ticks = [float(t) for t in np.arange(low, high + 0.01, 0.25)]
    axes(pen.board, "bits", pen.theme, area, x_label="bits per byte at the end of training", x_ticks=ticks)
    line(pen.board, "limit", pen.theme, area, [limit, limit], [rows[-1] + 0.7, -0.6], "muted", dash=True)
    x, y = area.point(limit, -0.6)
    pen.text("limit:name", f"byte frequencies alone, {limit:.2f}", (x, y + 0.2), "right", colour="muted")
    for i, (arm, row) in enumerate(zip(arms, rows)):
        left, height = area.point(float(low), row)
        right = area.point(float(high), row)[0]
        pen.board.put(f"arm{i}:rule", polylines(pen.theme, [[(left, height), (right, height)]], "ghost", 0.8))
        role = "cache" if arm.startswith("post") else "ink"
        dots(pen.board, f"arm{i}", pen.theme, area, bits[i], np.full(bits.shape[1], row), role, size=0.09)
        pen.text(f"arm{i}:name", _arm(arm), (TRAINED[0] - 0.2, height), "right")


def _arm(arm: str) -> str:
    """`post 12, warm-up` as `post-norm, 12 layers, warm-up`."""
    place, _, rest = arm.partition(" ")
    depth, _, warm = rest.partition(", ")
    return f"{place}-norm, {depth} layers, {warm or 'no warm-up'}"


def logits(pen: Pen) -> None:
    """The largest score by factor, both logarithmic."""
    highest = max(float(pen.at(name).max()) for name in ("with", "without"))
    powers = range(int(np.ceil(np.log10(highest))) + 1)
    low = min(1.0, *(float(pen.at(name).min()) for name in ("with", "without")))
    ticks = [(10.0**p, f"{10**p:,}" if p < 6 else ten(p)) for p in powers if 10.0**p <= 1.3 * highest]
    _by_factor(pen, (0.8 * low, 1.3 * highest), ticks, "largest score of the layer", log_y=True, digits=1)


def entropy(pen: Pen) -> None:
    """Entropy of the weights by factor."""
    top = float(np.ceil(max(float(pen.at(name).max()) for name in ("with", "without"))))
    ticks = [float(t) for t in range(int(top) + 1)]
    _by_factor(pen, (0, 1.05 * top), ticks, "entropy of a query’s weights, in bits", log_y=False, digits=2)


def _by_factor(
    pen: Pen, y: tuple[float, float], y_ticks: list[float] | list[tuple[float, str]], y_label: str, *, log_y: bool,
    digits: int,
) -> None:  # fmt: skip
    factor = pen.at("factor")
    area = Axes(PLOT, (0.9, float(factor[-1])), y, log_x=True, log_y=log_y)
    axes(
        pen.board, "factor", pen.theme, area, x_label="factor on queries and keys", y_label=y_label,
        x_ticks=[float(f) for f in factor], y_ticks=y_ticks,
    )  # fmt: skip
    series = {name: pen.at(name) for name in ("without", "with")}
    for name, role in (("without", "attention"), ("with", "norm")):
        curve(pen.board, name, pen.theme, area, series[name], role, xs=factor, width=4, dash=name == "without")
        dots(pen.board, name, pen.theme, area, factor, series[name], role, size=0.06)
    words = {"without": "without a norm", "with": "with QK-norm"}
    told = {n: f"{w}, {number(float(round(series[n][-1], digits)))}" for n, w in words.items()}
    named(pen.board, pen.theme, area, series, told)
