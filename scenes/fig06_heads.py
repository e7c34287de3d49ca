"""Figure 6, frames 5 to 9: query heads in a row, what is cached under them to scale, and the two forms of latents.

A query head keeps its place from frame to frame. Area is bytes: a feature is as wide and a token as high in all four
frames, and the outline is what MHA keeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from morph.story.written import in_bytes, ten
from scenes.charts import heat, scale
from scenes.parts import chip, polylines
from scenes.pen import Pen
from scenes.shape import Box
from scenes.type import label

LEFT, RIGHT = -5.5, 4.1
ROWS = {"keys": (0.3, 1.62), "values": (-1.42, -0.1)}
"""Bottom and top of the cached keys and values."""
CHIP_Y, SIDE = 2.72, 4.6
GAP = 0.06
MAPS: tuple[tuple[str, float], ...] = (("naive", 1.5), ("absorbed", -0.1), ("difference", -1.7))
"""Frame 9: what is drawn, and the foot of its map."""
WIDE: Box = (-6.7, 0, 3.3, 0.95)


def heads(pen: Pen) -> None:
    """One kind of attention: chips, lines, maps, and the numbers at the right."""
    facts, theme = pen.facts, pen.theme
    n, n_kv = facts["n_heads"], facts["n_kv"]
    slot = (RIGHT - LEFT) / n
    centres = [LEFT + (i + 0.5) * slot for i in range(n)]
    style: dict[str, Any] = {"role": "cache", "limits": (-facts["limit"], facts["limit"]), "signed": True}
    for i, x in enumerate(centres):
        words = (f"query {i}" if slot > 1.1 else str(i)) if slot > 0.34 else ""
        if words:
            chip(pen.board, f"query{i}", theme, "attention", words, (x, CHIP_Y), (min(1.3, 0.86 * slot), 0.42))
    if slot <= 0.34:
        pen.text("query:name", f"{n} query heads", ((LEFT + RIGHT) / 2, CHIP_Y), "centre", weight="medium")
    outlines = [[(LEFT, a), (RIGHT, a), (RIGHT, b), (LEFT, b), (LEFT, a)] for a, b in ROWS.values()]
    pen.board.put("whole:outline", polylines(theme, outlines, "ghost", 1.5))
    feature = slot / facts["head_dim"]
    places = _whole(pen, style, slot, n, n_kv) if n_kv else _latent(pen, style, feature)
    foot, top = CHIP_Y - 0.25, ROWS["keys"][1] + 0.08
    reads = facts["reads"] if n_kv else [0] * n
    ends = [[(x, foot), (_between(places[reads[i]], x), top)] for i, x in enumerate(centres)]
    pen.board.put("reads:lines", polylines(theme, ends, "attention", 2.5))
    _side(pen)
    first, last = "token 0", str(len(facts["tokens"]) - 1)
    pen.text("axis:first", first, (LEFT - 0.12, ROWS["keys"][1] - 0.1), "right", "muted")
    pen.text("axis:last", last, (LEFT - 0.12, ROWS["keys"][0] + 0.1), "right", "muted")
    scale(pen.board, "limit", theme, (LEFT, -2.3, LEFT + 2.4, -2.17), **style)
    pen.text("limit:name", "value of a cached number", (LEFT + 2.6, -2.24), colour="muted")
    pen.text("whole:name", "outline: what MHA keeps", (RIGHT, -2.24), "right", "muted")


def _between(place: tuple[float, float], x: float) -> float:
    """Where on a map's top a line from a head at `x` ends: straight down, or at the nearer edge's inside."""
    left, right = place
    inset = min(0.25, (right - left) / 4)
    return min(max(x, left + inset), right - inset)


def _whole(pen: Pen, style: dict[str, Any], slot: float, n: int, n_kv: int) -> list[tuple[float, float]]:
    """Cached heads, each under the middle of those that read it; answers where they stand."""
    places = []
    group = n // n_kv
    for i in range(n_kv):
        middle = LEFT + (i + 0.5) * group * slot
        places.append((middle - slot / 2 + GAP / 2, middle + slot / 2 - GAP / 2))
    for name, (bottom, top) in ROWS.items():
        for i, (left, right) in enumerate(places):
            heat(pen.board, f"{name}{i}", pen.theme, pen.at(name)[i], (left, bottom, right, top), **style)
        pen.text(f"{name}:name", name, (LEFT - 0.12, (bottom + top) / 2), "right", weight="medium")
    if slot > 1.1:
        words = f"{pen.facts['head_dim']} features"
        pen.text(
            "feature:name", words, ((places[0][0] + places[0][1]) / 2, ROWS["values"][0] - 0.22), "centre", "muted"
        )
    return places


def _latent(pen: Pen, style: dict[str, Any], feature: float) -> list[tuple[float, float]]:
    """The latent and the rotary key side by side; values unfold from the same latent."""
    bottom, top = ROWS["keys"]
    names = [name for name in ("latents", "rotary_keys", "index_keys") if name in pen.frame.arrays]
    sizes = [pen.at(name).shape[-1] * pen.facts["stride"] * feature for name in names]
    x = (LEFT + RIGHT - sum(sizes) - GAP * (len(sizes) - 1)) / 2
    place = x
    low, high = ROWS["values"]
    for i, (name, size) in enumerate(zip(names, sizes)):
        heat(pen.board, name, pen.theme, pen.at(name)[0], (x, bottom, x + size, top), **style)
        words = {"latents": "latent", "rotary_keys": "rotary key", "index_keys": "index key"}[name]
        width = pen.at(name).shape[-1] if pen.facts["stride"] == 1 else None
        words = words if width is None else f"{words}, {width}"
        anchor: Any = "centre" if i == 0 else "left"
        pen.text(f"{name}:name", words, (x + size / 2 if i == 0 else x + 0.04 + 0.9 * max(0, i - 1), bottom - 0.2),
                 anchor, weight="medium")  # fmt: skip
        x += size + GAP
    pen.text("keys:name", "kept", (LEFT - 0.12, (bottom + top) / 2), "right", weight="medium")
    middle = (low + high) / 2
    pen.text("values:name", "no values kept: each head unfolds keys and values from the latent",
             ((LEFT + RIGHT) / 2, middle), "centre", "muted")  # fmt: skip
    return [(place, x - GAP)]


def _side(pen: Pen) -> None:
    """Numbers, bytes and the lab's word at the right."""
    facts, told = pen.facts, pen.facts["lab"]
    pen.text("size:numbers", f"{facts['numbers']} numbers", (SIDE, 1.48), weight="bold", size="body")
    pen.text("size:bytes", f"{in_bytes(facts['bytes'])} a token and layer", (SIDE, 1.1))
    if facts["share"] != 1:
        pen.text("size:share", f"{facts['share']:.0%} of MHA’s", (SIDE, 0.8))
    pen.text("lab:head", "In the lab, bits per byte", (SIDE, -0.2), colour="muted")
    pen.text("lab:bits", f"{told['bits']:.2f}", (SIDE, -0.54), weight="bold", size="body")
    if told["verdict"]:
        pen.text("lab:mha", f"MHA: {told['mha']:.2f}", (SIDE + 0.75, -0.54), colour="muted")
        pen.text("lab:claim", f"costs less than {told['bound']:g}?", (SIDE, -0.92))
        pen.text("lab:verdict", told["verdict"].split(":")[0], (SIDE, -1.22), room=2.25)
        if not facts["n_kv"]:
            pen.text("lab:arm", f"there: {told['arm']}".replace("'", "’"), (SIDE, -1.52), colour="muted", room=2.25)
    else:
        pen.text("lab:mha", f"mean of {told['seeds']} seeds", (SIDE + 0.75, -0.54), colour="muted")


# ---- frame 9 ----


def absorption(pen: Pen) -> None:
    """Two maps that look alike, their difference, and the next token's logits both ways."""
    facts, theme = pen.facts, pen.theme
    left, _, right, tall = WIDE
    limits = (-facts["limit"], facts["limit"])
    unit = 10.0 ** facts["power"]
    most = float(np.ceil(np.abs(pen.at("difference")).max() / unit)) or 1.0
    words = {
        "naive": "naive: every head’s keys unfold from all latents, and meet its query",
        "absorbed": "absorbed: the query folds into the latents’ space, and meets them as they are",
        "difference": f"absorbed less naive, in units of {ten(facts['power'])}",
    }
    formulas = {
        "naive": '$q_h dot (W_("uk",h) c_j) + q_h^R dot k_j^R$',
        "absorbed": '$(W_("uk",h)^top q_h) dot c_j + q_h^R dot k_j^R$',
    }
    for name, bottom in MAPS:
        at = (left + 0.75, bottom - 0.15, right, bottom - 0.15 + tall - 0.05)
        values, style = (
            (pen.at(name) / unit, {"limits": (-most, most)})
            if name == "difference"
            else (pen.at(name), {"limits": limits})
        )
        heat(pen.board, name, theme, values, at, signed=True, **style)
        pen.text(f"{name}:name", words[name], (at[0], at[3] + 0.22), weight="medium")
        pen.text(f"{name}:first", "head 0", (at[0] - 0.1, at[3] - 0.12), "right", "muted")
        pen.text(f"{name}:last", str(facts["n_heads"] - 1), (at[0] - 0.1, at[1] + 0.12), "right", "muted")
        if name in formulas:
            formula = label(formulas[name], "label", theme.colour("ink"), markup=True)
            pen.board.put(f"{name}.formula:text", formula.at(3.6, at[3] - 0.2))
    pen.text("axis:tokens", f"tokens 0 to {facts['tokens'] - 1}", (right, MAPS[0][1] + tall + 0.02), "right", "muted")
    scale(pen.board, "scores", theme, (left + 0.75, -2.3, left + 2.75, -2.17), limits=limits, signed=True)
    pen.text("scores:name", "score", (left + 2.9, -2.24), colour="muted")
    scale(pen.board, "errors", theme, (1.3, -2.3, 3.3, -2.17), limits=(-most, most), signed=True)
    pen.text("errors:name", f"× {ten(facts['power'])}", (1.15, -2.24), "right", "muted")
    _logits(pen)


def _logits(pen: Pen) -> None:
    """The most likely next tokens with their logits in both forms."""
    x = 3.6
    pen.text("logits:head", "next token: naive, absorbed", (x, -0.45), colour="muted", room=3.2)
    for i, word in enumerate(pen.facts["best"]):
        y = -0.8 - 0.3 * i
        plain, fast = pen.at("logits")[:, i]
        pen.text(f"logit{i}:word", f"“{word}”", (x, y), weight="medium", room=0.9)
        pen.text(f"logit{i}:naive", f"{plain:.4f}".replace("-", "−"), (x + 1.85, y), "right")
        pen.text(f"logit{i}:absorbed", f"{fast:.4f}".replace("-", "−"), (x + 2.95, y), "right")
