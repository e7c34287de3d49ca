"""Figure 2, frames 4 to 8: what all layers write, and how the stream grows."""

from __future__ import annotations

import numpy as np

from morph.story import Figure, Frame
from morph.story.written import percent, small
from scenes.board import Board
from scenes.charts import Axes, axes, bars, heat, scale
from scenes.fig02_parts import (
    LEFT,
    MAP,
    PLOT,
    STREAM,
    THICK,
    curve,
    greatest,
    layer_ticks,
    named,
    stream,
    text,
)
from scenes.parts import polylines
from scenes.theme import Theme

SIDE = 4.75
"""Left edge of the words at the right of the maps."""
UNDER = -2.36
"""Where the lower half of the stage ends, above the numbers of the layers."""


def states_on_stream(board: Board, frame: Frame, theme: Theme, limit: float) -> None:
    """The stream, and on it every state of the token as a column."""
    stream(board, theme)
    heat(board, "states", theme, frame.values("states"), MAP, limits=(-limit, limit), signed=True)
    text(board, "states:name", theme, "x₀", LEFT + 0.75, STREAM + 0.35, "centre", size="label")
    text(board, "states:last", theme, f"x{_lower(frame.facts['layers'])}", 4.3, STREAM + 0.35, "centre", size="label")


def under_states(frame: Frame, y: tuple[float, float], bottom: float = UNDER, top: float = -0.25) -> Axes:
    """A plot area whose x is the state's number, each below its column in the map above."""
    count = frame.values("states").shape[1]
    return Axes((MAP[0], bottom, MAP[2], top), (-0.5, count - 0.5), y)


def layers_below(board: Board, frame: Frame, theme: Theme, area: Axes, columns: int = 2) -> None:
    """Numbers of the layers under a plot whose x counts the columns of the map above, so many to a layer."""
    for i, layer in enumerate(layer_ticks(frame.facts["layers"])):
        x = area.point(columns * layer, area.y[0])[0]
        text(board, f"layers:{i}", theme, f"{layer:g}", x, UNDER - 0.2, "centre", ink=False)
    text(board, "layers:name", theme, "layer", MAP[2] + 0.3, UNDER - 0.2, ink=False)


def _lower(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def total(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """Every state above, every delta below, the same token and features; the sum's error at the right."""
    frame = figure.frames[index - 1]
    deltas, facts = frame.values("deltas"), frame.facts
    limit, little = greatest(frame.values("states")), greatest(deltas)
    states_on_stream(board, frame, theme, limit)
    area = under_states(frame, (0, 1), top=-0.06)
    left = area.point(0.5, 0)[0]
    heat(board, "deltas", theme, deltas, (left, UNDER + 0.02, MAP[2], -0.06), limits=(-little, little), signed=True)
    layers_below(board, frame, theme, area)
    text(board, "deltas:name", theme, "every delta", LEFT, -1.1)
    text(board, "deltas:count", theme, f"{deltas.shape[1]} in all", LEFT, -1.42, ink=False)
    most = f"largest value of x{_lower(facts['layers'])}"
    _told(board, theme, "largest", most, f"{float(frame.values('largest')):.1f}", 2.85)
    _told(board, theme, "error", "largest error of the sum", small(float(frame.values("error"))), 1.08)
    if facts["shown"] < facts["width"]:
        text(board, "states:shown", theme, f"{facts['shown']} of {facts['width']} features", LEFT, 0.05, ink=False)
    scale(board, "states.scale", theme, (SIDE, -0.17, 6.6, -0.03), limits=(-limit, limit), signed=True, text="{:g}")
    text(board, "states.scale:name", theme, "the stream", SIDE, 0.2, ink=False)
    scale(board, "deltas.scale", theme, (SIDE, -1.32, 6.6, -1.18), limits=(-little, little), signed=True, text="{:g}")
    text(board, "deltas.scale:name", theme, "a delta", SIDE, -0.94, ink=False)


def _told(board: Board, theme: Theme, key: str, words: str, number: str, y: float) -> None:
    text(board, f"{key}:name", theme, words, SIDE, y, ink=False)
    text(board, f"{key}:value", theme, number, SIDE, y - 0.36, size="body", weight="bold")


def sizes(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """The states stay; each delta below them becomes a bar of its size."""
    frame = figure.frames[index - 1]
    halves = {half: frame.values(half) for half in ("attention", "feed_forward")}
    top = greatest(*halves.values())
    if "states" in frame.arrays:
        limit = greatest(frame.values("states"))
        states_on_stream(board, frame, theme, limit)
        scale(board, "states.scale", theme, (SIDE, -0.17, 6.6, -0.03), limits=(-limit, limit), signed=True, text="{:g}")
    else:
        stream(board, theme)
    count = 2 * frame.facts["layers"] + 1
    area = Axes((MAP[0], UNDER, MAP[2], -0.4), (-0.5, count - 0.5), (0, 1.15 * top))  # names stay below the scale
    axes(board, "sizes", theme, area, y_ticks=[0, _half(top), 2 * _half(top)], y_label="RMS of each delta")
    layers_below(board, frame, theme, area)
    rows, ends = {}, {}
    for i, (half, role) in enumerate((("attention", "attention"), ("feed_forward", "ffn"))):
        row = np.full(count, np.nan)
        row[1 + i :: 2] = halves[half]
        bars(board, half, theme, area, row, role, gap=0.12)
        ends[half] = np.array([halves[half][-1]])
        if f"first_{half}" in frame.arrays:
            xs = np.arange(1 + i, count, 2)
            curve(board, f"first.{half}", theme, area, frame.values(f"first_{half}"), "ink", xs=xs, width=2, dash=True)
        rows[half] = halves[half].mean()
    words = {
        "attention": f"attention, mean {rows['attention']:.2f}",
        "feed_forward": f"feed-forward, mean {rows['feed_forward']:.2f}",
    }
    named(board, theme, area, ends, words)
    if "first_attention" in frame.arrays:
        text(board, "first:name", theme, "dashes: as initialized", SIDE - 0.87, UNDER + 0.12, ink=False)


def _half(top: float) -> float:
    """A round number near half of the greatest."""
    return float(f"{top / 2.2:.1g}")


def growth(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """RMS by depth, trained and as initialized, each with its fitted curve; the largest gap is marked."""
    frame = figure.frames[index - 1]
    facts, layers = frame.facts, frame.facts["layers"]
    names = [n for n in ("rms", "curve", "first_rms", "first_curve") if n in frame.arrays]
    top = max(float(frame.values(n).max()) for n in names)
    area = Axes(PLOT, (0, layers), (0, 1.04 * top))
    axes(
        board, "plot", theme, area, x_label="layers passed", y_label="RMS of the stream",
        x_ticks=layer_ticks(layers), y_ticks=_round_ticks(top),
    )  # fmt: skip
    looks = {"rms": ("ink", THICK, False), "curve": ("muted", 3.5, True), "first_rms": ("ink", 4, False)}
    looks["first_curve"] = ("muted", 3.5, True)
    curves = {name: frame.values(name) for name in names}
    for name in sorted(names, key=lambda n: "curve" in n):
        role, width, dash = looks[name]
        curve(board, name, theme, area, curves[name], role, width=width, dash=dash)
    state = "trained" if facts["trained"] else "as initialized"
    words = {
        "rms": f"{state}, {curves['rms'][-1]:.1f}",
        "curve": f"√ fitted, σ = {facts['sigma']:.2f}",
        "first_rms": f"as initialized, {curves['first_rms'][-1]:.1f}" if "first_rms" in curves else "",
        "first_curve": f"√ fitted, σ = {facts['first_sigma']:.2f}" if "first_rms" in curves else "",
    }
    named(board, theme, area, curves, {n: words[n] for n in names})
    if facts["curve_misses"] > 0.1:
        x = facts["worst"]
        low, high = sorted((curves["rms"][x], curves["curve"][x]))
        ends = [area.point(x, low), area.point(x, high)]
        board.put("gap", polylines(theme, [ends], "ink", 3))
        off = f"{curves['curve'][x] / curves['rms'][x] - 1:+.0%}".replace("-", "−")
        x, y = ends[1]
        near = x < area.at[0] + 1  # between the axis and the curve there is no room
        place = (area.at[0] + 0.14, y + 0.5, "left") if near else (x - 0.1, y + 0.3, "right")
        text(board, "gap:name", theme, off, *place)


def _round_ticks(top: float) -> list[float]:
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if top / s <= 5 or s == 1000)
    return [i * step for i in range(int(top / step) + 1)]


def angles(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """The cosines of all pairs as a map; how single cosines are spread, beside those of random vectors."""
    frame = figure.frames[index - 1]
    facts, matrix = frame.facts, frame.values("cosines").copy()
    np.fill_diagonal(matrix, np.nan)  # every delta's cosine with itself is 1 and says nothing
    board.cut = 0.2
    limit = greatest(matrix[~np.isnan(matrix)])
    size = 4.75
    at = (-5.75, -2.2, -5.75 + size, -2.2 + size)
    heat(board, "cosines", theme, matrix, at, limits=(-limit, limit), signed=True)
    cell = size / len(matrix)
    for i, layer in enumerate(layer_ticks(facts["layers"])[1:]):
        middle = (2 * layer - 1) * cell
        text(board, f"cosines:x{i}", theme, f"{layer:g}", at[0] + middle, at[1] - 0.2, "centre", ink=False)
        text(board, f"cosines:y{i}", theme, f"{layer:g}", at[0] - 0.12, at[3] - middle, "right", ink=False)
    text(board, "cosines:name", theme, "cosine of every two deltas, mean over tokens", at[0], at[3] + 0.24, ink=False)
    text(board, "cosines:axis", theme, "layer", at[0] - 0.12, at[1] - 0.2, "right", ink=False)
    scale(board, "cosines.scale", theme, (-0.8, -2.2, -0.65, 0.2), limits=(-limit, limit), signed=True, text="{:.2g}")

    _spread(board, frame, theme)


def _spread(board: Board, frame: Frame, theme: Theme) -> None:
    """How often which cosine occurs: random vectors, the model as initialized, the model."""
    facts, edges = frame.facts, frame.values("bins")
    middles = (edges[1:] + edges[:-1]) / 2
    kinds = {k: frame.values(f"{k}pairs") for k in ("random_", "first_", "") if f"{k}pairs" in frame.arrays}
    inside = (middles > -0.62) & (middles < 0.72)
    top = max(float(shares.max()) for shares in kinds.values())
    area = Axes((0.75, -1.95, 6.45, 2.55), (-0.62, 0.72), (0, 1.02 * top))
    axes(
        board, "spread", theme, area, x_label="cosine of a pair, one token", x_ticks=[-0.5, 0, 0.5],
        y_label="how often",
    )  # fmt: skip
    looks = {"random_": ("ghost", THICK, False), "first_": ("ink", 2.5, True), "": ("ink", 4.5, False)}
    for kind, shares in kinds.items():
        role, width, dash = looks[kind]
        curve(board, f"{kind}pairs", theme, area, shares[inside], role, xs=middles[inside], width=width, dash=dash)
    left, right = area.point(-0.22, 0.8 * top), area.point(0.26, 0.6 * top)
    rows = [row for row in (("random_", "random vectors"), ("first_", "as initialized")) if row[0] in kinds]
    for i, (kind, words) in enumerate(rows):
        y = left[1] - 0.72 * i
        text(board, f"{kind}:name", theme, words, left[0], y, "right")
        text(board, f"{kind}:mean", theme, _mean(facts[f"{kind}mean"]), left[0], y - 0.27, "right", ink=False)
    text(board, "it:name", theme, "trained" if facts["trained"] else "this model", *right, weight="medium")
    text(board, "it:mean", theme, _mean(facts["mean"]), right[0], right[1] - 0.27, ink=False)


def _mean(value: float) -> str:
    return "mean 0.000" if abs(value) < 5e-4 else f"mean {value:+.3f}".replace("-", "−")


def shares(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """Delta over stream by layer, both halves, trained and as initialized."""
    frame = figure.frames[index - 1]
    layers, prefixes = frame.facts["layers"], [p for p in ("", "first_") if f"{p}attention" in frame.arrays]
    series = {f"{p}{h}": frame.values(f"{p}{h}") for p in prefixes for h in ("attention", "feed_forward")}
    low, high = min(float(v.min()) for v in series.values()), max(float(v.max()) for v in series.values())
    area = Axes(PLOT, (1, max(layers, 2)), (0.9 * low, 1.1 * high), log_y=True)
    ticks = [(t, percent(t)) for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5) if low <= t <= high]
    axes(
        board, "plot", theme, area, x_label="layer", y_label="delta over stream",
        x_ticks=sorted({1, *layer_ticks(layers)[1:]}), y_ticks=ticks,
    )  # fmt: skip
    xs = np.arange(1, layers + 1)
    for key, ys in series.items():
        first = key.startswith("first_")
        role = "ffn" if key.endswith("feed_forward") else "attention"
        curve(board, key, theme, area, ys, role, xs=xs, width=2.5 if first else 5, dash=first)
    state = "trained" if frame.facts["trained"] else "as initialized"
    words = {
        key: f"{'feed-forward' if key.endswith('forward') else 'attention'}, "
        f"{'as initialized' if key.startswith('first_') else state}"
        for key in series
    }
    named(board, theme, area, series, words)
