"""Figure 2, frames 9 to 13: the same config with its norms in other places, as initialized."""

from __future__ import annotations

import numpy as np

from morph.story import Figure, Frame
from morph.story.written import small, ten, times
from scenes.board import Board
from scenes.charts import Axes, axes, dots, scale
from scenes.fig02_depth import SIDE, UNDER, layers_below, states_on_stream
from scenes.fig02_parts import MAP, PLOT, THICK, curve, greatest, layer_ticks, named, text
from scenes.parts import rectangles
from scenes.theme import Theme

ROLES = {"post": "cache", "pre": "ink", "sandwich": "norm", "post-branch": "norm", "depth-scaled-sandwich": "position"}
"""Colour of a placement's curve."""
CUT = 3.6
"""Where the stage of frame 13 is split on a narrow screen."""


def carried(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """All states above; below, the size of the stream and the factor that x₀ still has in it."""
    frame = figure.frames[index - 1]
    pair = [f for f in figure.frames if f.key in ("post-norm", "pre-norm")]
    limit = greatest(*(f.values("states") for f in pair)) / 2  # else post-norm's small values all look alike
    states_on_stream(board, frame, theme, limit)
    scale(board, "carried.scale", theme, (SIDE, 0.08, 6.6, 0.22), limits=(-limit, limit), signed=True, text=_beyond)
    sizes, left = frame.values("rms"), frame.values("left")
    layers, depth = frame.facts["layers"], frame.values("depth")
    post = frame.facts["placement"] == "post"
    low = min(float(f.values(name).min()) for f in pair for name in ("rms", "left"))
    high = max(float(f.values(name).max()) for f in pair for name in ("rms", "left"))
    area = Axes((MAP[0], UNDER, MAP[2], -0.4), (-0.5, layers + 0.5), (0.2 * low, 1.5 * high), log_y=True)
    powers = [p for p in range(-12, 1, 2) if 10.0**p > 0.2 * low][-4:]
    ticks = [(10.0**p, "1" if p == 0 else ten(p)) for p in powers]
    axes(board, "carried", theme, area, y_ticks=ticks)
    layers_below(board, frame, theme, area, columns=1)
    curve(board, "left", theme, area, left, "cache", xs=depth, width=5)
    curve(board, "rms", theme, area, sizes, "ink", xs=depth, width=THICK)
    last = f"{left[-1]:.2g}" if left[-1] > 0.01 else small(float(left[-1]))
    words = {"rms": f"RMS of the stream, {sizes[-1]:.1f}", "left": f"factor on x₀, {last}"}
    named(board, theme, area, {"rms": sizes, "left": left}, words)
    told = "no norm on the stream"
    if post:
        xs = [area.point(d, 1)[0] for d in depth[1:]]
        board.put("norms", rectangles(theme.colour("norm"), [(x - 0.05, 2.9, x + 0.05, 3.1) for x in xs]))
        told = f"{len(xs)} norms on the stream"
    text(board, "norms:name", theme, told, SIDE - 0.85, 3.0)


def _beyond(limit: float) -> str:
    """The limits of a map whose outermost colours also mean what lies beyond them."""
    return f"≥ {limit:g}" if limit > 0 else f"≤ {limit:g}" if limit < 0 else "0"


def bounded(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """Size of the deltas against how loud the branches are, both logarithmic."""
    frame = figure.frames[index - 1]
    factor = frame.values("factor")
    names = ("pre", "sandwich", "post-branch")
    series = {n: frame.values(n) for n in names}
    low, high = min(float(v.min()) for v in series.values()), max(float(v.max()) for v in series.values())
    area = Axes(PLOT, (0.9, float(factor[-1])), (0.8 * low, 1.15 * high), log_x=True, log_y=True)
    axes(
        board, "plot", theme, area, x_label="factor on the last matrix of every branch", y_label="RMS of the deltas",
        x_ticks=[float(f) for f in factor], y_ticks=[t for t in (0.5, 1, 2, 5, 10) if 0.8 * low <= t <= 1.15 * high],
    )  # fmt: skip
    for name in ("post-branch", "sandwich", "pre"):
        dash = name == "post-branch"
        curve(board, name, theme, area, series[name], ROLES[name], xs=factor, width=3 if dash else 5, dash=dash)
        dots(board, name, theme, area, factor, series[name], ROLES[name], size=0.09)
    words = {
        "pre": f"pre-norm, {series['pre'][-1]:.1f}",
        "sandwich": f"sandwich, {series['sandwich'][-1]:.2f}",
        "post-branch": f"post-branch, {series['post-branch'][-1]:.2f}",
    }
    named(board, theme, area, series, words)


def gradient(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """The gradient's length by layer, relative to the top, for five placements."""
    descent(board, theme, figure.frames[index - 1])


def descent(board: Board, theme: Theme, frame: Frame) -> None:
    """A curve for each placement that the frame names, from the last layer to the first."""
    layers, words = frame.facts["layers"], frame.facts["names"]
    series = {name: frame.values(name)[1:] for name in words}
    low, high = min(float(v.min()) for v in series.values()), max(float(v.max()) for v in series.values())
    area = Axes(PLOT, (-max(layers, 2), -1), (0.85 * low, 1.15 * high), log_y=True)
    ticks = [t for t in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0) if 0.85 * low <= t <= 1.15 * high]
    axes(
        board, "descent", theme, area, x_label="layer, from the last to the first",
        x_ticks=[(-t, f"{t:g}") for t in sorted({1, *layer_ticks(layers)[1:]})], y_ticks=ticks,
        y_label="gradient at the stream, relative to the top layer’s",
    )  # fmt: skip
    xs = np.arange(-layers, 0)
    for name in series:
        series[name] = series[name][::-1]
        curve(board, name, theme, area, series[name], ROLES[name], xs=xs, width=4, dash=name == "post-branch")
    told = {name: f"{word}, × {times(series[name][-1])}" for name, word in words.items()}
    named(board, theme, area, series, told)


def depth_scaled(board: Board, figure: Figure, index: int, theme: Theme) -> None:
    """RMS by depth for second norms with gains of 1 and of 1/√L, independent writes dashed; at the right, trained."""
    frame = figure.frames[index - 1]
    layers, depth = frame.facts["layers"], frame.values("depth")
    names = ("sandwich", "depth-scaled-sandwich")
    top = max(float(frame.values(f"{n}{w}").max()) for n in names for w in ("", " walk"))
    board.cut = CUT
    area = Axes((PLOT[0], PLOT[1], 0.6, PLOT[3]), (0, layers), (0, 1.04 * top))
    axes(
        board, "plot", theme, area, x_label="layers passed", y_label="RMS of the stream, as initialized",
        x_ticks=layer_ticks(layers), y_ticks=[float(t) for t in range(0, int(top) + 1, 1 if top < 6 else 2)],
    )  # fmt: skip
    series, words = {}, {}
    for name, gain in zip(names, ("gain 1", f"gain 1/√{layers}")):
        series[name], series[f"{name}.walk"] = frame.values(name), frame.values(f"{name} walk")
        width = 4 if name == "sandwich" else THICK
        curve(board, name, theme, area, series[name], "ink", xs=depth, width=width)
        curve(board, f"{name}.walk", theme, area, series[f"{name}.walk"], "muted", xs=depth, width=3, dash=True)
        words[name] = f"{gain}, {series[name][-1]:.2f}"
        words[f"{name}.walk"] = f"independent writes, {series[f'{name}.walk'][-1]:.2f}"
    named(board, theme, area, series, words)
    lab = frame.values("lab")
    highest = 10 * float(np.ceil(lab.max() / 10))
    area = Axes((4.4, PLOT[1], 6.3, PLOT[3]), (-0.5, 1.5), (0, highest))
    axes(
        board, "lab", theme, area, x_label=f"lab, {frame.facts['lab']}", y_label="RMS at the end, trained",
        x_ticks=[(0, "gain 1"), (1, f"1/√{frame.facts['lab_layers']}")],
        y_ticks=[float(t) for t in range(0, int(highest) + 1, 10)],
    )  # fmt: skip
    for i, name in enumerate(names):
        dots(board, f"lab.{name}", theme, area, np.full(lab.shape[1], i), lab[i], "ink", size=0.09)
