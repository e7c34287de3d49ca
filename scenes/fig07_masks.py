"""Figure 7, masks: maps of who sees whom, scales and plots of what that saves, and cones of what is heard all the same.

Keys: `mask`, `weights` and `row` in the frames of one layer, `layer0`, `layer1`, ... in the stack, `cone` in the four
frames of reach. Everything drawn is read from a frame of `morph.story.masks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from morph.story import Figure
from morph.story.written import ten
from scenes.board import Board
from scenes.charts import Axes, arrow, axes, bars, dots, heat, levels, line, scale
from scenes.chrome import chrome
from scenes.parts import polylines, rectangles
from scenes.pen import Pen
from scenes.shape import Box
from scenes.theme import Theme
from scenes.type import label

MASK: Box = (-5.75, -2.15, -1.55, 2.05)
WEIGHTS: Box = (-0.85, -2.15, 3.35, 2.05)
CONE: Box = (-4.75, -2.2, 4.0, 2.35)
PLOT: Box = (-5.5, -1.85, 3.1, 2.4)


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 12)."""
    frame, made = figure.frames[index - 1], Board()
    chrome(made, frame, theme, f"{index:02d} / {len(figure):02d}")
    draw: dict[str, Callable[[Pen], None]] = {
        "causal": _one_layer, "window": _one_layer, "cache": _cache, "stack": _stack, "work": _work,
        "olmo": _olmo, "tables": _tables, "sink": _sink,
    }  # fmt: skip
    draw.get(frame.key, _cone)(Pen(made, theme, frame))
    return made


def _square(pen: Pen, key: str, at: Box) -> None:
    """An outline around a map."""
    left, bottom, right, top = at
    corners = [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
    pen.board.put(f"{key}:frame", polylines(pen.theme, [corners], "wire", 1.5))


# ---- one layer ----


def _one_layer(pen: Pen) -> None:
    """The mask, the weights under it, and the last query's strongest keys with their numbers."""
    facts, theme, mask = pen.facts, pen.theme, pen.at("mask")
    n, pairs = facts["tokens"], int(pen.at("in_sight").sum())
    pen.board.cut = (MASK[2] + WEIGHTS[0]) / 2
    pen.text("mask:name", f"in sight: {pairs:,} of {n * n:,} pairs", (MASK[0], MASK[3] + 0.3), weight="medium")
    pen.board.put("mask:seen", rectangles(theme.tint("attention", 0.62), _runs(mask, MASK)))
    _square(pen, "mask", MASK)
    pen.text("mask:query", "query", (MASK[0] - 0.14, MASK[3] - 0.12), "right", "muted")
    pen.text("mask:last", str(n - 1), (MASK[0] - 0.14, MASK[1] + 0.12), "right", "muted")
    pen.text("mask:first", "key 0", (MASK[0], MASK[1] - 0.22), "left", "muted")
    pen.text("mask:end", str(n - 1), (MASK[2], MASK[1] - 0.22), "right", "muted")

    name = f"weights of layer {facts['layer']}, head {facts['head']}"
    pen.text("weights:name", name, (WEIGHTS[0], WEIGHTS[3] + 0.3), weight="medium")
    limits = (0.0, facts["limit"])
    own = f"weights.layer{facts['layer']}"  # in a film one layer's weights give way to the next one's
    heat(pen.board, own, theme, np.where(mask > 0, pen.at("weights"), np.nan), WEIGHTS, limits=limits)
    _square(pen, "weights", WEIGHTS)
    tall = (WEIGHTS[3] - WEIGHTS[1]) / len(mask)
    left, bottom, right, _ = WEIGHTS
    corners = [(left, bottom), (right, bottom), (right, bottom + tall), (left, bottom + tall), (left, bottom)]
    pen.board.put("row:frame", polylines(theme, [corners], "ink", 2))

    x = 4.05
    scale(pen.board, "limits", theme, (x, 1.55, x + 2.3, 1.7), limits=limits, text=lambda v: _weight(v, limits[1]))
    pen.text("limits:name", "weight", (x, 1.93), colour="muted")
    pen.text("row:query", f"the last query, “{facts['query']}”,", (x, 0.55), room=2.75)
    pen.text("row:looks", "looks most at", (x, 0.25))
    for i, row in enumerate(facts["strongest"]):
        y = -0.3 - 0.62 * i
        back = "itself" if row["back"] == 0 else f"{row['back']} back"
        pen.text(f"row:key{i}", f"“{row['key']}”  {back}", (x, y), weight="medium", room=1.95)
        pen.text(f"row:weight{i}", f"{row['weight']:.2f}", (6.45, y), "right", weight="medium")
        pen.board.put(f"row:whole{i}", rectangles(theme.colour("panel"), [(x, y - 0.29, x + 2.4, y - 0.19)]))
        part = (x, y - 0.29, x + 2.4 * row["weight"], y - 0.19)
        pen.board.put(f"row:bar{i}", rectangles(theme.colour("attention"), [part]))
    arrow(pen.board, "row", theme, (WEIGHTS[2] + 0.08, bottom + tall / 2), (x - 0.12, -1.95))


def _weight(value: float, high: float) -> str:
    """The end of a scale that stronger weights share says so."""
    return f"{value:.2g}" + (" and more" if value == high and high < 1 else "")


def _runs(mask: np.ndarray, at: Box) -> list[Box]:
    """One box a row of a mask, over its visible keys."""
    left, bottom, right, top = at
    wide, tall = (right - left) / mask.shape[1], (top - bottom) / mask.shape[0]
    boxes = []
    for row, seen in enumerate(mask > 0):
        keys = np.flatnonzero(seen)
        y = top - row * tall
        boxes.append((left + keys[0] * wide, y - tall, left + (keys[-1] + 1) * wide, y))
    return boxes


# ---- the cache ----


def _cache(pen: Pen) -> None:
    tokens, w, theme = pen.at("tokens"), pen.facts["window"], pen.theme
    kib = {name: pen.at(name) / 1024 for name in pen.frame.arrays if name != "tokens"}
    highest = max(values[-1] for values in kib.values())
    area = Axes(PLOT, (0, tokens[-1] * 1.02), (0, highest * 1.05))
    ticks = [(float(v), f"{v:g} KiB") for v in np.linspace(0, highest, 5)]
    whole = [int(t) for t in np.linspace(0, tokens[-1], 5)]
    axes(pen.board, "plot", theme, area, x_label="tokens read, s", y_label="held by one layer",
         x_ticks=whole, y_ticks=ticks)  # fmt: skip
    if "far" in kib:
        slope = kib["far"][-1] / tokens[-1]
        far = f"layer {pen.facts['far']} sees all: {kib['far'][-1]:g} KiB"
        line(pen.board, "held:far", theme, area, [0, tokens[-1]], [0, slope * tokens[-1]], "wire", width=2, name=far)
        dots(pen.board, "held:far", theme, area, tokens, kib["far"], "cache", size=0.06)
    capped = kib["formula"][-1]
    line(
        pen.board, "held:local", theme, area, [0, min(w, tokens[-1]), tokens[-1]], [0, capped, capped], "wire", width=2
    )
    dots(pen.board, "held:local", theme, area, tokens, kib["local"], "cache", size=0.06)
    x, y = area.point(tokens[-1], capped)
    pen.text("held:local:name", f"layer {pen.facts['local']}, window {w}: {kib['local'][-1]:g} KiB", (x + 0.14, y))
    x, y = area.point(w, capped)
    pen.board.put("cap:line", polylines(theme, [[(x, y - 0.12), (x, PLOT[1])]], "ghost", 2))
    pen.text("cap:name", f"bytes per token × min(s, {w})", (x + 0.16, (y + PLOT[1]) / 2), colour="muted")


# ---- the stack ----


def _stack(pen: Pen) -> None:
    rows, theme, limits = pen.facts["rows"], pen.theme, (0.0, pen.facts["limit"])
    n, gap = len(rows), 0.4
    side = min(2.95, (12.9 - gap * (n - 1)) / n)
    left, bottom = -(n * side + gap * (n - 1)) / 2, 0.35 - side / 2
    pen.board.cut = None if n % 2 or n == 2 else 0.0  # of two maps the scale's words reach over the middle
    for i, row in enumerate(rows):
        x = left + i * (side + gap)
        at, key = (x, bottom, x + side, bottom + side), f"layer{i}"
        sees = "sees all" if row["window"] is None else f"window {row['window']}"
        weight = "bold" if row["window"] is None else "regular"
        pen.text(f"{key}:name", f"layer {row['layer']}", (x, at[3] + 0.58), colour="muted")
        pen.text(f"{key}:sees", sees, (x, at[3] + 0.27), weight=weight)
        masked = np.where(pen.at("mask")[i] > 0, pen.at("weights")[i], np.nan)
        heat(pen.board, key, theme, masked, at, limits=limits)
        _square(pen, key, at)
        pen.text(f"{key}:pairs", f"{row['pairs']:,} pairs", (x, bottom - 0.27), weight=weight)
        pen.text(f"{key}:held", f"keeps {row['held']} tokens", (x, bottom - 0.58), weight=weight)
    right = left + n * side + gap * (n - 1)
    scale(pen.board, "limits", theme, (right - 2.6, -2.35, right, -2.22), limits=limits,
          text=lambda v: _weight(v, limits[1]))  # fmt: skip
    pen.text("limits:name", "weight, mean over heads", (right - 2.75, -2.29), "right", "muted")


# ---- cones ----


def _cone(pen: Pen) -> None:
    """Rows by depth, the embedding at the bottom; cells where the gradient is not zero, coloured by its size."""
    heard, theme, facts = pen.at("heard"), pen.theme, pen.facts
    depths, tokens = heard.shape
    left, bottom, right, top = CONE
    wide, tall = (right - left) / tokens, (top - bottom) / depths
    limits = (float(facts["limits"][0]), float(facts["limits"][1]))
    power = np.where(heard > 0, pen.at("power"), np.nan)
    heat(pen.board, "cone", theme, power[::-1], CONE, limits=limits)
    _square(pen, "cone", CONE)

    names = ["embedding", *(f"{kind} {layer}" for layer, kind in enumerate(facts["kinds"]))]
    pen.text("kind:head", "layer", (left - 0.15, top + 0.27), "right", "muted")
    pen.text("count:head", "tokens heard", (right + 0.15, top + 0.27), "left", "muted")
    opens = facts["opens"]
    for row, name in enumerate(names):
        y = bottom + (row + 0.5) * tall
        is_far = name.startswith("global")
        weight, colour = ("bold", "ink") if is_far else ("regular", "muted")
        pen.text(f"kind:{row}", name, (left - 0.15, y), "right", colour, weight)
        turns = row == opens or (opens is None and row == depths - 1)
        weight, colour = ("bold", "ink") if turns else ("regular", "muted")
        pen.text(f"count:{row}", str(int(heard[row].sum())), (right + 0.15, y), "left", colour, weight)
    pen.text("cone:first", "token 0", (left, bottom - 0.22), "left", "muted")
    pen.text("cone:last", f"token {tokens - 1}, the listener", (right, bottom - 0.22), "right", "muted")

    w, depth = facts["window"], depths - 1
    steps = [tokens - 1 - row * (w - 1) for row in range(depths)]
    stairs = [p for row, s in enumerate(steps) for p in ((left + s * wide, bottom + (row + k) * tall) for k in (0, 1))]
    pen.board.put("hops:line", polylines(theme, [stairs], "ink" if opens is None else "background", 2.5))
    by_hops = depth * (w - 1) + 1
    x = left + (tokens - by_hops) * wide
    words = f"L(w − 1) + 1 = {by_hops}" if opens is None else f"hops alone: {by_hops}"
    pen.text("hops:name", words, (x, top + 0.27), weight="bold" if opens is None else "regular")
    if opens is None:
        x = left + (tokens - depth * w) * wide
        pen.board.put("wrong:line", polylines(theme, [[(x, top + 0.1), (x, top - 2 * tall)]], "ghost", 2.5))
        pen.text("wrong:name", f"not L×w = {depth * w}", (x + 0.12, top - 1.5 * tall), colour="muted")
    for i, words in enumerate(facts.get("lab", ())):
        pen.text(f"lab:{i}", words, (left + 0.2, bottom + 1.3 - 0.33 * i), colour="muted" if i == 0 else "ink")
    at = (5.75, -1.75, 5.9, 1.75)
    scale(pen.board, "powers", theme, at, limits=limits, text=lambda v: ten(round(v)))
    pen.text("powers:name", "gradient", (5.75, 2.0), colour="muted")


# ---- work ----


def _work(pen: Pen) -> None:
    tokens, theme, w = pen.at("tokens"), pen.theme, pen.facts["window"]
    low, high = float(pen.at("visible_formula")[0]), float(pen.at("dense")[-1])
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    area = Axes(PLOT, (tokens[0] * 0.85, tokens[-1] * 1.1), (10.0 ** powers[0], 10.0 ** powers[-1]), True, True)
    axes(pen.board, "plot", theme, area, x_label="tokens", y_label="FLOPs of one layer's scores and weighted sums",
         x_ticks=[int(t) for t in tokens], y_ticks=[(10.0**p, _short(10.0**p)) for p in powers])  # fmt: skip
    for key, name in (("dense", "dense"), ("blocked", f"windowed, in blocks of {w}")):
        values = pen.at(key)
        line(pen.board, f"work:{key}", theme, area, tokens, values, "attention",
             name=f"{name}: {_short(float(values[-1]))}")  # fmt: skip
        dots(pen.board, f"work:{key}", theme, area, tokens, values, "attention", size=0.07)
    line(pen.board, "work:visible", theme, area, tokens, pen.at("visible_formula"), "wire", dash=True)
    x, y = area.point(tokens[-1], pen.at("visible_formula")[-1])
    y = min(y - 0.06, area.point(tokens[-1], pen.at("blocked")[-1])[1] - 0.25)  # under the name of the line above
    pen.text("work:visible:name", "pairs in sight alone, by formula", (x + 0.14, y), colour="muted")
    x, y = area.point(tokens[-1], high)
    down = area.point(tokens[-1], float(pen.at("blocked")[-1]))[1]
    arrow(pen.board, "saved", theme, (x + 0.55, y - 0.2), (x + 0.55, down + 0.2))
    saved = f"÷ {high / pen.at('blocked')[-1]:.0f}"
    pen.text("saved:name", saved, (x + 0.75, (y + down) / 2), weight="bold", size="label")


def _short(value: float) -> str:
    """`403 M`, `100 k`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:g}"


# ---- a released model ----


def _olmo(pen: Pen) -> None:
    facts, theme = pen.facts, pen.theme
    n, tall = len(facts["kinds"]), float(pen.at("full").max()) / 2**20
    far = {i for i, kind in enumerate(facts["kinds"]) if kind == "global"}
    pen.board.cut = 3.3
    rows = (("full", (-5.6, 0.75, 3.1, 2.3), "all layers global", set(range(n))),
            ("mixed", (-5.6, -2.0, 3.1, -0.45), "three windows, one global", far))  # fmt: skip
    for key, at, words, lit in rows:
        area = Axes(at, (-0.5, n - 0.5), (0, tall))
        axes(pen.board, key, theme, area, y_ticks=[(0, "0"), (tall, f"{tall:g} MiB")], y_label="cache of each layer")
        bars(pen.board, key, theme, area, pen.at(key) / 2**20, "cache", lit=lit, gap=0.25)
        pen.text(f"{key}:total", f"{facts[key] / 2**30:.4g} GiB", (3.5, at[3] - 0.35), weight="bold", size="title")
        pen.text(f"{key}:words", words, (3.5, at[3] - 0.8))
    pen.text("mixed:first", "layer 0", (-5.6, -2.25), "left", "muted")
    pen.text("mixed:last", f"layer {n - 1}", (3.1, -2.25), "right", "muted")
    windowed = float(pen.at("mixed").min()) / 2**20
    pen.text("mixed:local", f"a window of {facts['window']:,} keeps {windowed:g} MiB", (3.5, -1.58), "left", "muted")
    pen.text("full:words2", f"{facts['context']:,} tokens in each", (3.5, 1.17), "left", "muted")


# ---- position tables ----


def _tables(pen: Pen) -> None:
    """A row a model, a column a layer type: which angles its queries turned by."""
    theme, columns = pen.theme, {"local": (-3.2, 1.35), "far": (1.85, 6.4)}
    style: dict[str, Any] = {"role": "position", "limits": (-1, 1), "signed": True}
    for name, words in (("local", "layers with a window"), ("far", "global layers")):
        pen.text(f"{name}:head", words, (columns[name][0], 2.95), weight="medium")
    for i, row in enumerate(pen.facts["rows"]):
        top = 2.3 - 1.52 * i
        pen.text(f"row{i}:name", row["name"], (-6.45, top - 0.3), weight="medium", size="label")
        pen.text(f"row{i}:whose", row["whose"], (-6.45, top - 0.65), colour="muted")
        for name, (left, right) in columns.items():
            if row[name]:
                at, key = (left, top - 1.0, right, top), f"row{i}.{name}"
                pen.text(f"{key}:turns", row[name], (left, top + 0.2), colour="muted")
                heat(pen.board, key, theme, pen.at(f"{i}.{name}"), at, **style)
                _square(pen, key, at)
    scale(pen.board, "angles", theme, (3.4, -2.3, 6.4, -2.17), **style)
    pen.text("angles:name", "cosine of the angle turned", (3.25, -2.24), "right", "muted")
    pairs, positions = pen.at("2.far").shape
    pen.text("axis:fast", "pair 0", (-3.32, top - 0.12), "right", "muted")
    pen.text("axis:slow", f"pair {pairs - 1}", (-3.32, top - 0.88), "right", "muted")
    pen.text("axis:first", "position 0", (-3.2, -1.97), "left", "muted")
    pen.text("axis:last", str(positions - 1), (1.35, -1.97), "right", "muted")


# ---- the sink ----


def _sink(pen: Pen) -> None:
    theme, facts = pen.theme, pen.facts
    highest = max(float(np.nanmax(pen.at(name))) for name in ("first", "first_with_sink", "taken"))
    limits = (0.0, float(np.ceil(highest * 100) / 100))
    maps: tuple[tuple[str, str, str, list[int]], ...] = (
        ("first", "weight on token 0", "this model", facts["layers"]),
        ("first_with_sink", "weight on token 0", facts["beside"], facts["sink_layers"]),
        ("taken", "weight on the sink", "of the same model", facts["sink_layers"]),
    )
    side, gap, left, bottom = 3.3, 0.85, -5.6, -1.6
    for i, (name, words, more, layers) in enumerate(maps):
        x = left + i * (side + gap)
        at = (x, bottom, x + side, bottom + side)
        pen.text(f"{name}:name", words, (x, at[3] + 0.62), weight="bold" if name == "taken" else "medium")
        pen.text(f"{name}:more", more, (x, at[3] + 0.3), colour="muted")
        _numbers(pen, name, at, limits, layers, with_layers=i == 0)
    right = left + 3 * side + 2 * gap
    scale(pen.board, "shares", theme, (right - side, -2.35, right, -2.22), limits=limits, text=lambda v: f"{v:.0%}")
    pen.text("shares:name", "percent of the weight", (right - side - 0.15, -2.29), "right", "muted")


def _numbers(pen: Pen, name: str, at: Box, limits: tuple[float, float], layers: list[int], with_layers: bool) -> None:
    """Layers by heads with their shares in percent, where a cell is large enough to hold them."""
    values, (left, bottom, right, top) = pen.at(name), at
    n, heads = values.shape
    wide, tall = (right - left) / heads, (top - bottom) / n
    heat(pen.board, name, pen.theme, values, at, limits=limits, gap=0.06)
    scheme = levels(values, "attention", limits, False)
    colours = scheme.colours(pen.theme)
    for row in range(n):
        y = top - (row + 0.5) * tall
        if with_layers and tall > 0.24:
            pen.text(f"{name}:layer{row}", f"layer {layers[row]}", (left - 0.12, y), "right", "muted")
        for head in range(heads) if wide > 0.6 and tall > 0.3 else ():
            fill = colours[int(scheme.of(values[row, head : head + 1])[0])]
            words = label(f"{100 * values[row, head]:.1f}", "body", pen.theme.text_on(fill), "medium")
            pen.board.put(f"{name}:{row}.{head}", words.at(left + (head + 0.5) * wide, y, "centre"))
    if with_layers and tall <= 0.24:  # the first and the last alone
        pen.text(f"{name}:layer", f"layer {layers[0]}", (left - 0.12, top - 0.1), "right", "muted")
        pen.text(f"{name}:layer.last", str(layers[-1]), (left - 0.12, bottom + 0.1), "right", "muted")
    if wide <= 0.6:
        pen.text(f"{name}:head", "head 0", (left, bottom - 0.2), "left", "muted")
        pen.text(f"{name}:head.last", str(heads - 1), (right, bottom - 0.2), "right", "muted")
    for head in range(heads) if wide > 0.6 else ():
        where: Any = (left + (head + 0.5) * wide, bottom - 0.2)
        pen.text(f"{name}:head{head}", f"head {head}" if head == 0 else str(head), where, "centre", "muted")
