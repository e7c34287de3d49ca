"""Figure 8, frames 6 and 7: parameters and combinations, counted."""

from __future__ import annotations

import numpy as np

from morph.story.written import percent
from scenes.fig08_stage import HEADER_Y, LEFT, QUIET, RIGHT, Stage
from scenes.parts import rectangles


def active(s: Stage) -> None:
    """Bars of total parameters with the active ones filled: ours at the left, released models at the right."""
    ours = (s.facts["names"], s.at("total"), s.at("active"))
    theirs = (s.facts["released"], s.at("released_total"), s.at("released_active"))
    s.board.cut = 0.0
    for key, title, left, (names, total, active) in (
        ("ours", "stages at nano size" if len(ours[0]) > 2 else "this model", -6.5, ours),
        ("released", "released models", 0.35, theirs),
    ):
        s.text(f"{key}:title", title, (left, HEADER_Y - 0.1), colour="ink", size="label", weight="medium")
        pitch = min(1.96, 3.92 / max(1, len(names) - 1))
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
            s.text(f"{key}{i}:active", f"{_short(a)} active, {percent(a / t)}", (left + 2.3, y))
        s.board.put(f"{key}:rest", rectangles(s.theme.tint("ffn", QUIET), rest))
        s.board.put(f"{key}:active", rectangles(s.theme.colour("ffn"), lit))


def _short(n: float) -> str:
    """A count of parameters: `114,192`, `12.9 M`, `46.7 B`."""
    for size, unit in ((1e9, "B"), (1e6, "M")):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n:,.0f}"


def combinations(s: Stage) -> None:
    """Three strips of the same stored parameters, cut finer from top to bottom; the filled parts are those used."""
    used, stored = s.at("used"), s.at("stored")
    notes = ("stage 10", "stage 11, as many FLOPs", f"{used[0] / used[2]:.0f} times fewer FLOPs")
    for i, (n, k) in enumerate(zip(s.at("experts").tolist(), s.at("chosen").tolist())):
        y = 2.0 - 1.7 * i
        picks = np.flatnonzero(s.at("picks")[i, :n] > 0).tolist()
        s.row("experts" if n == 32 else f"strip{n}", n, y - 0.45, y, picks)
        s.text(f"ways{i}:name", f"{n} choose {k}", (LEFT, y + 0.3), colour="ink", size="label", weight="medium")
        s.text(f"ways{i}:count", s.facts["ways"][i], (LEFT + 2.2, y + 0.3), colour="ink", size="body", weight="bold")
        s.text(f"ways{i}:note", notes[i], (RIGHT, y + 0.3), "right")
        s.text(f"ways{i}:used", f"uses {used[i]:,}", (RIGHT + 0.2, y - 0.1), colour="ink")
        s.text(f"ways{i}:stored", f"of {stored[i]:,} parameters", (RIGHT + 0.2, y - 0.37))
