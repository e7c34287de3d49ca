"""Figure 6, frames 3, 4, 10 and 11: what is counted and weighed, as lines and bars."""

from __future__ import annotations

import numpy as np

from morph.story.written import in_bytes
from scenes.charts import Axes, axes, dots, line
from scenes.parts import polylines, rectangles
from scenes.pen import Pen
from scenes.shape import Box

GIB = 2.0**30
PLOT: Box = (-5.9, -1.85, 3.2, 2.45)
ROOF: Box = (-5.9, -1.9, 5.2, 2.5)
BARS = (-4.35, 2.15)
"""Left and right end of frame 10's bars."""
SCALES = (-4.3, 2.0)
COLOURS = {
    "keys": ("cache", 1.0), "values": ("cache", 0.55), "latents": ("attention", 1.0), "rotary keys": ("position", 1.0),
    "index keys": ("norm", 1.0), "state": ("ffn", 1.0), "tail": ("ffn", 0.55),
}  # fmt: skip
"""Kind of tensor -> role, and how much of its colour."""


def llama(pen: Pen) -> None:
    """Weights below, two caches on top of them, and the chip's memory as a line."""
    tokens, theme, facts = pen.at("tokens"), pen.theme, pen.facts
    weights, memory = (float(pen.at(name)) / GIB for name in ("weights", "memory"))
    area = Axes(PLOT, (0, float(tokens[-1])), (0, 90))
    quarter = int(tokens[-1]) // 4
    axes(
        pen.board, "plot", theme, area, x_label="tokens of one text", y_label="GiB of memory, bf16",
        x_ticks=[i * quarter for i in range(5)], y_ticks=[0, 20, 40, 60, 80],
    )  # fmt: skip
    left, bottom, right, _ = PLOT
    top = area.point(0, weights)[1]
    pen.board.put("weights:box", rectangles(theme.tint("ffn", 0.42), [(left, bottom, right, top)]))
    pen.text("weights:name", f"weights: {weights:.1f} GiB", (right + 0.2, (bottom + top) / 2))
    for key, name in (("mha", "as MHA"), ("gqa", "as released")):
        cache = pen.at(key) / GIB
        line(pen.board, key, theme, area, tokens, weights + cache, "cache", width=4, dash=key == "mha")
        dots(pen.board, key, theme, area, tokens[1:], weights + cache[1:], "cache", size=0.06)
        x, y = area.point(float(tokens[-1]), float(weights + cache[-1]))
        pen.text(f"{key}:name", f"{name}: + {cache[-1]:g} GiB", (x + 0.2, y + 0.14), weight="bold", size="label")
        each = in_bytes(int(pen.at(key)[-1] // tokens[-1]))
        pen.text(f"{key}:each", f"{each} a token", (x + 0.2, y - 0.2), colour="muted")
    y = area.point(0, memory)[1]
    line(pen.board, "memory", theme, area, [0, float(tokens[-1])], [memory, memory], "ink", dash=True, width=2)
    words = f"all memory of an {facts['chip']}: {float(pen.at('memory')) / 1e9:.0f} GB = {memory:.1f} GiB"
    pen.text("memory:name", words, (left + 0.2, y + 0.2))


def intensity(pen: Pen) -> None:
    """Roofs of the chips with their ridge points; models stand on the chosen chip's slope."""
    theme, facts = pen.theme, pen.facts
    flops, bandwidth, each = (pen.at(name) / 1e12 for name in ("flops", "bandwidth", "intensity"))
    each = each * 1e12
    area = Axes(ROOF, (0.6, 1000), (2, 4000), True, True)
    axes(
        pen.board, "plot", theme, area, x_label="operations for each byte read",
        y_label="attainable, 10¹² operations a second",
        x_ticks=[1, 4, 16, 64, 256], y_ticks=[10, 100, 1000],
    )  # fmt: skip
    lit = facts["chips"].index(facts["chip"])
    slope, ridges = bandwidth[lit], flops / bandwidth
    for i, name in enumerate(facts["chips"]):  # of the other chips the flat part alone
        role, width = ("ink", 3.0) if i == lit else ("ghost", 1.5)
        xs = [max(0.6, 2 / slope), ridges[i], 1000] if i == lit else [ridges[i], 1000]
        ys = [min(x * bandwidth[i], flops[i]) for x in xs]
        line(pen.board, f"chip.{name}", theme, area, xs, ys, role, width=width)
        dots(pen.board, f"chip.{name}", theme, area, [ridges[i]], [flops[i]], role, size=0.07)
    _chip_names(pen, area, flops, ridges)
    dots(pen.board, "model", theme, area, each, each * slope, "cache", size=0.1)
    groups: dict[float, list[str]] = {}
    for name, value in zip(facts["names"], each):
        groups.setdefault(round(float(value), 3), []).append(name)
    for i, (value, names) in enumerate(groups.items()):
        x, y = area.point(value, value * slope)
        number = f"{value:g}" if value < 20 else f"{value:.0f}"
        words = f"{number}  {', '.join(names)}"
        weight = "bold" if facts["own"] in names else "medium"
        is_alone = names == [facts["own"]] and value > 2
        if is_alone or 20 < value < ridges.min():  # there, between the slope and the lowest roof, is no room
            pen.text(f"model{i}:name", words, (x - 0.18, y + 0.16), "right", weight=weight, room=4.0)
        else:
            pen.text(f"model{i}:name", words, (x + 0.2, y - 0.16), weight=weight, room=6.5 - x)
    told = (
        f"the slope: what an {facts['chip']} reads, {slope:g} TB/s, times operations a byte",
        "left of its ridge point arithmetic waits for the cache:",
        f"MHA stays {ridges[lit] / each.min():.0f} times below, {facts['orders']:.1f} powers of ten",
    )
    for i, words in enumerate(told):
        pen.text(f"slope:{i}", words, (0.3, -0.85 - 0.32 * i), colour="ink" if i == 2 else "muted")


def _chip_names(pen: Pen, area: Axes, flops: np.ndarray, ridges: np.ndarray) -> None:
    """Each chip's name and ridge point at the right end of its roof, one under another."""
    x, last = ROOF[2] + 0.12, np.inf
    for i in sorted(range(len(flops)), key=lambda i: (-flops[i], -ridges[i])):
        name = pen.facts["chips"][i]
        y = min(area.point(1000, flops[i])[1], last - 0.27)
        pen.text(
            f"chip.{name}:name",
            f"{name} {ridges[i]:.0f}",
            (x, y),
            weight="bold" if name == pen.facts["chip"] else "regular",
        )
        if last == np.inf:
            pen.text("roof:head", "ridge points", (x, y + 0.32), colour="muted")
        last = y


def released(pen: Pen) -> None:
    """A bar a model on a logarithmic scale, outlined up to a head for each query."""
    theme, facts = pen.theme, pen.facts
    written, mha = pen.at("written"), pen.at("mha")
    low = 2.0 ** np.floor(np.log2(written.min()) - 1)
    high = 2.0 ** np.ceil(np.log2(mha.max()))
    top, foot = 2.62, -2.35
    pitch = (top - foot) / len(written)

    def at(value: float) -> float:
        return float(BARS[0] + (BARS[1] - BARS[0]) * np.log2(value / low) / np.log2(high / low))

    for i, tick in enumerate(t for t in (2.0**10, 2.0**13, 2.0**16, 2.0**19, 2.0**22) if low < t <= high):
        pen.board.put(f"tick{i}:line", polylines(theme, [[(at(tick), foot), (at(tick), top + 0.08)]], "ghost", 0.8))
        pen.text(f"tick{i}:name", in_bytes(int(tick)), (at(tick), top + 0.28), "centre", "muted")
    for words, x, anchor in (
        ("bytes a token", 3.35, "right"),
        ("keeps", 3.6, "left"),
        ("layers that grow", 6.8, "right"),
    ):
        pen.text(f"head.{words}:name", words, (x, top + 0.28), anchor, "muted")
    bars, outlines = [], []
    for i, (row, n, whole) in enumerate(zip(facts["rows"], written.tolist(), mha.tolist())):
        y, weight = top - (i + 0.5) * pitch, "bold" if row["name"] == facts["own"] else "regular"
        a, b = y - 0.34 * pitch, y + 0.34 * pitch
        bars.append((BARS[0], a, at(n), b))
        if whole > n:
            outlines.append([(at(n), a), (at(whole), a), (at(whole), b), (at(n), b)])
        pen.text(f"row{i}:name", row["name"], (BARS[0] - 0.15, y), "right", weight=weight)
        pen.text(f"row{i}:bytes", in_bytes(n), (3.35, y), "right", weight="bold")
        pen.text(f"row{i}:kind", row["kind"], (3.6, y), weight=weight)
        colour = "muted" if row["keeps"] == row["layers"] else "ink"
        pen.text(f"row{i}:keeps", f"{row['keeps']} of {row['layers']}", (6.8, y), "right", colour)
    pen.board.put("written:bars", rectangles(theme.colour("cache"), bars))
    pen.board.put("mha:outline", polylines(theme, outlines, "cache", 1.5))
    pen.text(
        "mha:name",
        "outline: a key and a value for every query head; the scale is logarithmic",
        (BARS[0], foot - 0.2),
        colour="muted",
    )


def weighed(pen: Pen) -> None:
    """A stacked bar a model, by kind of tensor; a mark where the formula says that it ends."""
    theme, facts = pen.theme, pen.facts
    table, formula = pen.at("weighed"), pen.at("formula")
    others = formula[1:] if facts["own"] else formula
    top, foot = 2.85, -2.5
    pitch = (top - foot) / len(table)
    boxes: dict[str, list[Box]] = {kind: [] for kind in facts["kinds"]}
    marks = []
    for i, (row, sizes, whole) in enumerate(zip(facts["rows"], table.tolist(), formula.tolist())):
        is_own = facts["own"] and i == 0
        unit = (SCALES[1] - SCALES[0]) / float(whole if is_own else others.max())
        y, x = top - (i + 0.5) * pitch, SCALES[0]
        a, b = y - 0.3 * pitch, y + 0.3 * pitch
        told = []
        for kind, size in zip(facts["kinds"], sizes):
            if size:
                boxes[kind].append((x, a, x + size * unit, b))
                told.append(f"{kind} {in_bytes(size)}")
                x += size * unit
        end = SCALES[0] + whole * unit
        marks.append([(end, a - 0.06), (end, b + 0.06)])
        pen.text(f"row{i}:name", row["name"], (SCALES[0] - 0.15, y), "right", weight="bold" if is_own else "medium")
        pen.text(f"row{i}:sum", in_bytes(sum(sizes)), (max(x, end) + 0.15, y + 0.13), weight="bold")
        pen.text(f"row{i}:parts", ", ".join(told), (max(x, end) + 0.15, y - 0.15), colour="muted",
                 room=6.8 - max(x, end) - 0.15)  # fmt: skip
        if row["what"]:
            pen.text(f"row{i}:what", row["what"], (6.8, y + 0.13), "right", "muted")
        elif is_own:
            pen.text(f"row{i}:what", "on a scale of its own", (6.8, y + 0.13), "right", "muted")
    for kind, spots in boxes.items():
        if spots:
            role, share = COLOURS[kind]
            colour = theme.colour(role) if share == 1 else theme.tint(role, share)
            pen.board.put(f"{kind}:bars", rectangles(colour, spots))
    pen.board.put("formula:marks", polylines(theme, marks, "ink", 3))
    pen.text("formula:name", "mark: the formula", (6.8, top + 0.12), "right")
