"""Figure 9, frames 1, 2, 7 and 8: bytes, products in two orders, work by position, the stack."""

from __future__ import annotations

import numpy as np

from morph.story.written import in_bytes, small
from scenes.charts import Axes, axes, dots, heat, line, scale
from scenes.fig02_parts import PLOT, greatest, named
from scenes.parts import rectangles
from scenes.pen import Pen
from scenes.shape import Box

CACHE, STATE = "cache", "position"
"""Colours of what grows and of what stays."""


def held(pen: Pen) -> None:
    """Bytes by tokens."""
    tokens = pen.at("tokens")
    series = {"cache": pen.at("cache") / 1024, "state": pen.at("state") / 1024}
    top = 1.1 * max(float(v.max()) for v in series.values())
    area = Axes(PLOT, (0, float(tokens[-1])), (0, top))
    step = 4.0 if top > 8 else 1.0
    axes(
        pen.board, "bytes", pen.theme, area, x_label="tokens read", y_label="KiB held by a layer",
        x_ticks=[0.0, *(float(t) for t in tokens[len(tokens) // 4 - 1 :: max(1, len(tokens) // 4)])],
        y_ticks=[float(v) for v in np.arange(0, top, max(step, 2.0 ** np.ceil(np.log2(top / 6))))],
    )  # fmt: skip
    for name, role in (("cache", CACHE), ("state", STATE)):
        line(pen.board, name, pen.theme, area, tokens, series[name], role, width=4)
        dots(pen.board, name, pen.theme, area, tokens, series[name], role, size=0.07)
    cache, state = pen.facts["layers"]
    words = {
        "cache": f"layer {cache}, cache: {in_bytes(int(pen.at('cache')[-1]))}",
        "state": f"layer {state}, state: {in_bytes(int(pen.at('state')[-1]))}",
    }
    named(pen.board, pen.theme, area, series, words)


def orders(pen: Pen) -> None:
    """Q, Kᵀ and V; what stands between them in either order, in their scale; the result as a map."""
    facts, flops = pen.facts, pen.at("flops")
    n, dk, dv = facts["length"], facts["key_dim"], facts["value_dim"]
    tall = 1.9
    unit, limit = tall / max(n, dk, dv), greatest(pen.at("left"))
    for i, (name, y, first, middle, role) in enumerate((
        ("left", 1.6, "(QKᵀ) first", (n, n), CACHE), ("right", -1.15, "(KᵀV) first", (dk, dv), STATE),
    )):  # fmt: skip
        x = -6.5
        for word, height, width in (("Q", n, dk), ("Kᵀ", dk, n), ("V", n, dv)):
            wide, high = width * unit, height * unit
            at: Box = (x, y - high / 2, x + wide, y + high / 2)
            pen.board.put(f"{name}.{word}", rectangles(pen.theme.tint("attention", 0.45), [at]))
            pen.text(f"{name}.{word}:name", word, (x + wide / 2, y - tall / 2 - 0.2), "centre", weight="medium")
            x += wide + 0.3
        pen.text(f"{name}:first", first, (x + 0.4, y + 0.16), size="label", weight="medium")
        pen.text(f"{name}:shape", f"{middle[0]} × {middle[1]} a head", (x + 0.4, y - 0.2), colour="muted")
        high, wide = middle[0] * unit, middle[1] * unit
        pen.board.put(
            f"{name}.middle", rectangles(pen.theme.colour(role), [(0.2, y - high / 2, 0.2 + wide, y + high / 2)])
        )
        at = (3.6, y - tall / 2, 3.6 + 0.9, y + tall / 2)
        heat(pen.board, f"{name}.result", pen.theme, pen.at(name), at, limits=(-limit, limit), signed=True)
        pen.text(f"{name}.result:work", f"{int(flops[i]):,}", (4.75, y + 0.16), size="label", weight="medium")
        pen.text(f"{name}.result:unit", f"operations, {facts['heads']} heads", (4.75, y - 0.2), colour="muted")
    at = (5.0, 0.1, 6.6, 0.22)
    scale(pen.board, "result.scale", pen.theme, at, limits=(-limit, limit), signed=True, text="{:.1f}")
    pen.text("error", f"difference {small(float(pen.at('error')))}", (4.7, 0.22), "right", weight="medium")


def per_token(pen: Pen) -> None:
    """Operations for one token by position, both logarithmic."""
    tokens = pen.at("tokens")
    series = {name: pen.at(name).astype(float) for name in ("softmax", "state")}
    low, high = min(float(v.min()) for v in series.values()), max(float(v.max()) for v in series.values())
    area = Axes(PLOT, (0.9 * float(tokens[0]), float(tokens[-1])), (0.7 * low, 1.3 * high), log_x=True, log_y=True)
    ticks = [10.0**p * k for p in range(3, 12) for k in (1, 2, 5) if 0.7 * low <= 10.0**p * k <= 1.3 * high]
    axes(
        pen.board, "work", pen.theme, area, x_label="tokens read before", y_label="operations for the next token",
        x_ticks=[(float(t), f"{t:,}") for t in tokens], y_ticks=ticks,
    )  # fmt: skip
    for name, role in (("softmax", CACHE), ("state", STATE)):
        line(pen.board, name, pen.theme, area, tokens, series[name], role, width=4)
        dots(pen.board, name, pen.theme, area, tokens, series[name], role, size=0.09)
    words = {name: f"{name} layer, {int(values[-1]):,}" for name, values in series.items()}
    named(pen.board, pen.theme, area, series, words)


def stack(pen: Pen) -> None:
    """A row a layer, the last on top, with what it keeps of a long text."""
    kept, facts = pen.at("bytes"), pen.facts
    kinds = facts["kinds"]
    shown = list(range(len(kinds)))[-12:]
    pitch = min(0.95, 4.6 / len(shown))
    longest = 6.2 / float(kept.max())
    for row, layer in enumerate(shown):
        y = -2.0 + pitch * (row + 0.5)
        kind, size = kinds[layer], int(kept[layer])
        role = CACHE if kind == "cache" else STATE
        box = (-5.2, y - 0.3 * pitch, -3.6, y + 0.3 * pitch)
        pen.board.put(f"layer{layer}:box", rectangles(pen.theme.tint(role, 0.35), [box], pen.theme.colour(role)))
        pen.text(f"layer{layer}:kind", kind, (-4.4, y), "centre", weight="medium")
        pen.text(f"layer{layer}:name", f"layer {layer}", (-5.4, y), "right", colour="muted")
        length = max(0.03, size * longest)
        bar = (-3.2, y - 0.2 * pitch, -3.2 + length, y + 0.2 * pitch)
        pen.board.put(f"layer{layer}:bar", rectangles(pen.theme.colour(role), [bar]))
        pen.text(f"layer{layer}:bytes", in_bytes(size), (-3.2 + length + 0.15, y))
    pen.text("full", f"all caches: {in_bytes(facts['full'])}", (6.6, 2.9), "right", colour="muted")
    pen.text("kept", f"kept here: {in_bytes(facts['kept'])}", (-3.2, 2.9), weight="medium")
