"""Figure 3, rotary position: one pair of a query and a key on a dial, all pairs, texts beyond the trained ones.

The dial of pair i is `pairI:ring` in every frame; frames 1 to 4 are in `scenes.fig03_before`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from morph.story import Figure, Frame
from scenes.board import Board
from scenes.boards import frame_of
from scenes.charts import Axes, Tick, axes, dots, line, number
from scenes.chrome import chrome
from scenes.dials import arc, at, hand, ring, sector
from scenes.fig03_before import learned, requirement, shuffle, sinusoid
from scenes.parts import polygons, polylines, wire
from scenes.shape import Point
from scenes.theme import Theme
from scenes.type import label

CENTRE: Point = (-3.6, 0.25)
RADIUS = 2.3
COLUMN, RIGHT = 0.95, 6.5
"""Left and right of what stands beside the dial."""
SEEN = 0.3
"""Share of the position's colour in the part of a dial that a hand has swept."""


def board(figure: Figure, index: int, theme: Theme) -> Board:
    """The still of frame `index` (1 to 12)."""
    frame, made = frame_of(figure, index), Board()
    chrome(made, frame, theme, f"{index:02d} / {len(figure):02d}")
    DRAW[frame.key](made, frame, theme)
    return made


# ---- 5 to 7: one pair ----


def _angle(point: np.ndarray) -> float:
    return float(np.arctan2(point[1], point[0]))


class Dial:
    """The large dial of one pair, with the hands of query and key."""

    def __init__(self, board: Board, frame: Frame, theme: Theme) -> None:
        self.board, self.frame, self.theme = board, frame, theme
        self.facts = frame.facts
        self.key = f"pair{self.facts['pair']}"
        self.unit = 0.94 * RADIUS / self.facts["reach"]

    def face(self) -> None:
        x, y = CENTRE
        cross = [[(x - RADIUS, y), (x + RADIUS, y)], [(x, y - RADIUS), (x, y + RADIUS)]]
        self.board.put(f"{self.key}:ring", ring(self.theme, CENTRE, RADIUS, fill="panel"))
        self.board.put("dial:cross", polylines(self.theme, cross, "ghost", 1))
        words = label(
            f"pair {self.facts['pair']} of 0–{self.facts['pairs'] - 1}, θ = {self.facts['speed']:.3f}",
            "floor", self.theme.colour("muted"),
        )  # fmt: skip
        self.board.put("dial:name", words.at(-6.65, 3.0))

    def trail(self, name: str, role: str) -> None:
        """Faint hands at the places that a token's hand has passed."""
        walk = self.frame.values(name)[:-1]
        length = float(np.hypot(*walk[0])) * self.unit
        faint = [[CENTRE, at(CENTRE, length, _angle(point))] for point in walk]
        self.board.put(f"{name}:trail", polylines(self.theme, faint, self.theme.tint(role, 0.45, on="panel"), 2))

    def hand(self, name: str, role: str, letter: str) -> None:
        """The hand at its place, its name outside of the dial."""
        walk = self.frame.values(name)
        angle = _angle(walk[0]) + (len(walk) - 1) * self.facts["speed"]
        length = float(np.hypot(*walk[0])) * self.unit
        self.board.put(f"hands:{name}", hand(self.theme, CENTRE, length, angle, role, width=0.07, head=0.26))
        self.letter(f"{name}:letter", letter, angle)

    def letter(self, key: str, letter: str, angle: float) -> None:
        """A name outside of the dial; in a film it goes round with its hand."""
        x, y = at(CENTRE, RADIUS + 0.2, angle)
        lean = np.cos(angle)
        anchor = "left" if lean > 0.35 else "right" if lean < -0.35 else "centre"
        ink = self.theme.colour("ink")
        made = label(f"${letter}$", "body", ink, markup=True).at(x, y + 0.12 * np.sin(angle), anchor)
        made.heading = angle
        self.board.put(key, made)

    def swept(self, key: str, start: float, sweep: float) -> None:
        self.board.put(key, arc(self.theme, CENTRE, 0.62, start, sweep, "position", 6))

    def both(self) -> None:
        """Both hands and the arc between them."""
        walk, n = self.frame.values("key"), self.facts["places"][1]
        self.trail("key", "cache")
        self.trail("query", "attention")
        self.swept("gap:arc", _angle(walk[0]) + n * self.facts["speed"], self.facts["gap"])
        self.hand("key", "cache", "R_(n theta) k")
        self.hand("query", "attention", "R_(m theta) q")


def _beside(board: Board, theme: Theme, formula: str, rows: list[tuple[str, str, str]]) -> None:
    """What stands beside the dial: a formula above, numbers below, two in a row: (key, name, value)."""
    board.put("formula", label(formula, "body", theme.colour("ink"), markup=True).at(COLUMN, 2.72))
    for i, (key, words, value) in enumerate(rows):
        x, y = COLUMN + 2.85 * (i % 2), -1.42 - 0.76 * (i // 2)
        board.put(f"{key}:name", label(words, "floor", theme.colour("muted")).at(x, y))
        board.put(f"{key}:value", label(value, "body", theme.colour("ink"), "medium").at(x, y - 0.35))


def _area(x: tuple[float, float], reach: float) -> Axes:
    """The chart between the two."""
    return Axes((COLUMN + 0.45, -0.5, RIGHT, 1.75), x, (-reach, reach))


def _ticks(place: int, last: int) -> list[float]:
    """First, a place and last, but for what would run into another."""
    if place < 0.06 * last:
        return [0, last]
    return [0, place, last] if last > 1.2 * place else [0, place]


def _level(score: float, area: Axes) -> list[Tick]:
    """Zero and the score, but for one that would run into zero."""
    return [0, (score, f"{score:.2f}".replace("-", "−"))] if abs(score) > 0.2 * area.y[1] else [0]


def query(board: Board, frame: Frame, theme: Theme) -> None:
    """The query's pair, turned place by place."""
    board.cut = 0.3
    dial = Dial(board, frame, theme)
    dial.face()
    walk, features, facts = frame.values("query"), frame.values("features"), frame.facts
    m, theta = facts["places"][0], facts["speed"]
    dial.trail("query", "attention")
    dial.swept("gap:arc", _angle(walk[0]), m * theta)
    dial.hand("query", "attention", "R_(m theta) q")
    if np.cos(m * theta) < np.cos(0.3):  # else both letters would stand on one spot
        dial.letter("query:start", "q", _angle(walk[0]))
    matrix = 'mat(delim: "(", cos m theta, -sin m theta; sin m theta, cos m theta) vec(delim: "(", q_1, q_2)'
    _beside(
        board, theme, f"$R_(m theta) q = {matrix}$",
        [
            ("place", f"place of the query, “{facts['words'][0]}”", f"m = {m}"),
            ("turn", "turned by", f"mθ = {m * theta:.3f} = {np.degrees(m * theta):.0f}°"),
            ("length", "length before", _signed(float(np.hypot(*walk[0])))),
            ("after", "length after", _signed(float(np.hypot(*walk[-1])))),
        ],
    )  # fmt: skip
    places = np.arange(len(features))
    area = _area((0, len(features) - 1), 1.15 * facts["reach"])
    axes(board, "chart", theme, area, x_label="place m", y_label="its features: first solid, second dashed",
         x_ticks=_ticks(m, len(features) - 1), y_ticks=[0])  # fmt: skip
    line(board, "first", theme, area, places, features[:, 0], "attention", width=4)
    line(board, "second", theme, area, places, features[:, 1], "attention", width=3, dash=True)
    dots(board, "now", theme, area, [m, m], features[m], "ink", size=0.08)


def key(board: Board, frame: Frame, theme: Theme) -> None:
    """The key beside it, and the gap between both."""
    board.cut = 0.3
    dial = Dial(board, frame, theme)
    dial.face()
    dial.both()
    facts, scores = frame.facts, frame.values("scores")
    _meeting(board, theme, facts)
    n = facts["places"][1]
    area = _area((0, len(scores) - 1), 1.15 * float(np.abs(scores).max()))
    axes(board, "chart", theme, area, x_label="place n of the key", y_label="dot product",
         x_ticks=_ticks(n, len(scores) - 1), y_ticks=_level(facts["score"], area))  # fmt: skip
    line(board, "alone", theme, area, np.arange(len(scores)), scores, "cache", width=3)
    dots(board, "now", theme, area, [n], [scores[n]], "ink", size=0.08)


def _meeting(board: Board, theme: Theme, facts: Mapping[str, Any], last: str = "") -> None:
    """Formula and numbers of a query that meets a key; `last` is how far the product strayed."""
    (m, n), (q, k) = facts["places"], facts["words"]
    turned = round(float(np.degrees((m - n) * facts["speed"])), 1)
    gap = round(float(np.degrees(facts["own"] + (m - n) * facts["speed"])), 1)
    sum_ = f"{gap - turned:.1f}° + {turned:.1f}° = {gap:.1f}°".replace("-", "−")  # rounded so that it adds up
    rows = [
        ("place", f"query “{q}”, key “{k}” at", f"m = {m}, n = {n}"),
        ("gap", f"their gap: own + {m - n}θ", sum_),
        ("score", "their dot product", _signed(facts["score"])),
    ]
    rows += [("stray", "largest change, fp64", last)] if last else []
    _beside(board, theme, "$chevron.l R_(m theta) q, R_(n theta) k chevron.r = q^top R_((n - m) theta) k$", rows)


def _whole(degrees: float) -> str:
    return f"{degrees:.0f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def slide(board: Board, frame: Frame, theme: Theme) -> None:
    """Both moved on by the same number of places; the score against the slide."""
    board.cut = 0.3
    dial = Dial(board, frame, theme)
    dial.face()
    dial.both()
    facts = frame.facts
    _meeting(board, theme, facts, facts["deviation"])
    both, alone = frame.values("both"), frame.values("alone")
    area = _area((0, len(both) - 1), 1.15 * float(np.abs(alone).max()))
    slides = np.arange(len(both))
    axes(board, "chart", theme, area, x_label="slide s, in places", y_label="dot product",
         x_ticks=[0, len(both) // 2, len(both) - 1], y_ticks=_level(facts["score"], area))  # fmt: skip
    line(board, "alone", theme, area, slides, alone, theme.tint("attention", 0.6), width=2)
    line(board, "both", theme, area, slides, both, "position", width=5)
    dots(board, "now", theme, area, [facts["slide"]], [both[facts["slide"]]], "ink", size=0.08)
    told = label("flat: both slide; wave: the query alone", "floor", theme.colour("muted"))
    board.put("chart:told", told.at(RIGHT, 1.97, "right"))


# ---- 8 and 9: all pairs ----


def _grid(count: int) -> list[Point]:
    """Centres of dials in two rows."""
    columns = -(-count // 2)
    pitch = min(2.25, 13.2 / columns)
    return [
        ((i % columns - (columns - 1) / 2) * pitch, 1.72 if i < columns else -1.14) for i in range(count)
    ]  # fmt: skip


def clocks(board: Board, frame: Frame, theme: Theme) -> None:
    """A dial a pair: what it has swept from place 0 to the frame's place."""
    speeds, turns = frame.values("speeds"), frame.values("turns")
    drawn = frame.facts["drawn"]
    radius = 0.86
    head = label(f"swept from place 0 to place {frame.facts['place']}", "floor", theme.colour("muted"))
    board.put("clocks:name", head.at(-6.65, 2.92))
    for i, centre in zip(drawn, _grid(len(drawn))):
        dial, turned = f"pair{i}", 2 * np.pi * turns[i]
        board.put(f"{dial}:ring", ring(theme, centre, radius, fill="panel"))
        colour = theme.tint("position", SEEN, on="panel")
        board.put(f"{dial}:swept", sector(theme, centre, radius - 0.03, 0.0, turned, colour))
        board.put(f"{dial}:hand", hand(theme, centre, 0.93 * radius, turned % (2 * np.pi), "position", width=0.045))
        x, y = centre
        speed = label(f"$theta_({i}) = {_speed(speeds[i])}$", "label", theme.colour("ink"), markup=True)
        board.put(f"{dial}:speed", speed.at(x, y - radius - 0.24, "centre"))
        swept = label(_turns(turns[i]), "floor", theme.colour("muted"))
        board.put(f"{dial}:turns", swept.at(x, y - radius - 0.55, "centre"))


def _speed(value: float) -> str:
    if value >= 1e-4:
        return f"{value:.3g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} times 10^({int(power)})"


def _turns(turns: float) -> str:
    return f"{turns:.1f} turns" if turns >= 1 else f"{360 * turns:.0f}°" if turns > 0.03 else f"{360 * turns:.2g}°"


def wavelengths(board: Board, frame: Frame, theme: Theme) -> None:
    """Each dial stands at the tokens of one turn, filled as far as trained texts turn it; a line marks their length."""
    waves, facts = frame.values("wavelengths"), frame.facts
    length = facts["length"]
    high = 10.0 ** np.ceil(np.log10(max(waves[-1], length) * 1.3))
    room = max(0.8, 0.06 * len(waves))
    area = Axes((-6.2, -1.95, 6.3, 2.2), (1, high), (len(waves) - 1 + room, -room), log_x=True)
    ticks = [10.0**p for p in range(int(np.log10(high)) + 1)]
    axes(board, "waves", theme, area, x_label="tokens in one full turn", y_label="pair, fastest first", x_ticks=ticks)
    trained = area.point(length, 0)[0]
    board.put("trained:line", wire(theme, [(trained, area.at[1]), (trained, area.at[3] + 0.1)], "ink", 3))
    ink = theme.colour("ink")
    told = label(f"{facts['texts']} {length:,}", "floor", ink)
    board.put("trained:name", told.at(max(trained, -2.6), 2.55, "centre"))
    drawn = facts["drawn"]
    rest = [i for i in range(len(waves)) if i not in drawn]
    if rest:
        dots(board, "others", theme, area, waves[rest], rest, "ghost", size=0.04)
    for i in drawn:
        spot, seen = area.point(waves[i], i), 2 * np.pi * length / waves[i]
        board.put(f"pair{i}:ring", ring(theme, spot, 0.21, fill="panel"))
        board.put(f"pair{i}:swept", sector(theme, spot, 0.19, 0.0, seen, "position"))
    first, last = area.point(waves[drawn[0]], drawn[0]), area.point(waves[drawn[-1]], drawn[-1])
    if len(drawn) > 1:
        fast = label(f"{waves[0]:,.1f} tokens", "floor", ink)
        board.put("fastest:tokens", fast.at(first[0] - 0.36, first[1], "right"))
    share = length / waves[-1]
    part = f"{share:.1%}" if share >= 0.001 else "under 0.1%"
    words = [f"{waves[-1]:,.0f} tokens"] + ([f", {part} of a turn seen"] if share < 1 else [])
    edge = min(x for x, y in (area.point(waves[i], i) for i in drawn) if abs(y - last[1]) < 0.3) - 0.36
    slow = label("".join(words), "floor", ink)
    if edge - slow.width < trained + 0.1 < edge:  # the line would run through the longer words
        slow = label(words[0], "floor", ink)
    board.put("slowest:tokens", slow.at(edge, last[1], "right"))
    full = facts["full"]
    board.put("full:name", label(f"{full} complete a turn", "body", ink, "medium").at(trained - 0.3, -0.9, "right"))
    board.put("part:name", label(f"{len(waves) - full} never do", "body", ink, "medium").at(trained + 0.3, 1.75))


# ---- 10: distance ----


def distance(board: Board, frame: Frame, theme: Theme) -> None:
    """A small chart a head: the mean score over the offset, in the band that holds most pairs."""
    mean, low, high = (frame.values(name) for name in ("mean", "low", "high"))
    board.cut = 0.0
    bottom, top = float(low.min()), float(high.max())
    offsets = np.arange(mean.shape[1])
    columns = 2 if len(mean) > 1 else 1
    for i, head in enumerate(frame.facts["heads"]):
        left = -6.2 + 6.95 * (i % columns)
        floor = (0.55 if len(mean) > 2 else -0.9) - 2.72 * (i // columns)
        area = Axes((left, floor, left + 5.55, floor + 2.0), (0, float(offsets[-1])), (bottom, top))
        key = f"head{head}"
        rim = [area.point(x, y) for x, y in zip(offsets, high[i])]
        rim += [area.point(x, y) for x, y in zip(offsets[::-1], low[i][::-1])]
        board.put(f"{key}:band", polygons(theme.tint("position", 0.22), [rim]))
        zero = [area.point(0, 0), area.point(offsets[-1], 0)]
        board.put(f"{key}:zero", wire(theme, zero, "ghost", 1))
        last = i >= len(mean) - columns
        axes(
            board, key, theme, area, x_ticks=[0, len(offsets) // 4, len(offsets) // 2, int(offsets[-1])],
            y_ticks=[(0, "0"), (bottom, _whole(bottom)), (top, _whole(top))],
            x_label="offset m − n, in tokens" if last else "",
            y_label=f"head {head}" + ("" if i else ": mean score; in the band, 8 pairs in 10"),
        )  # fmt: skip
        line(board, key, theme, area, offsets, mean[i], "position", width=4)


# ---- 11 and 12: longer texts ----


def base(board: Board, frame: Frame, theme: Theme) -> None:
    """A row of turns a model, on one axis, with its trained length."""
    waves, lengths, facts = frame.values("wavelengths"), frame.values("lengths"), frame.facts
    powers = range(max(8, int(np.ceil(np.log10(max(waves.max(), lengths.max())))) + 1))
    area = Axes((-4.4, -2.0, 4.3, 2.6), (1, 10.0 ** powers[-1]), (len(waves) - 0.5, -0.5), log_x=True)
    ink, muted = theme.colour("ink"), theme.colour("muted")
    axes(board, "turns", theme, area, x_label="tokens in one full turn", x_ticks=[10.0**p for p in powers])
    for row, (name, value) in enumerate(zip(facts["names"], facts["bases"])):
        y = area.point(1, row)[1]
        found = waves[row][waves[row] > 0]
        inside = found[found <= lengths[row]]
        outside = found[found > lengths[row]]
        size = 0.06 if len(found) <= 16 else 0.026
        dots(board, f"model{row}.outside", theme, area, outside, np.full(len(outside), row), "ghost", size=size)
        dots(board, f"model{row}.inside", theme, area, inside, np.full(len(inside), row), "position", size=size)
        mark = area.point(float(lengths[row]), row)[0]
        board.put(f"model{row}:mark", wire(theme, [(mark, y - 0.3), (mark, y + 0.3)], "ink", 3))
        told = f"{lengths[row]:,}" if row else f"{facts['texts']} {lengths[row]:,} tokens"
        board.put(f"model{row}:length", label(told, "floor", ink).at(mark, y + 0.46, "centre"))
        board.put(f"model{row}:name", label(name, "label", ink, "medium").at(-6.65, y + 0.15))
        board.put(f"model{row}:base", label(f"b = {number(value)}", "floor", muted).at(-6.65, y - 0.17))
        told = f"{facts['full'][row]} of {facts['pairs'][row]}"
        board.put(f"model{row}:full", label(told, "label", ink, "medium").at(4.75, y + 0.15))
        board.put(f"model{row}:round", label("complete a turn", "floor", muted).at(4.75, y - 0.17))


def longer(board: Board, frame: Frame, theme: Theme) -> None:
    """A row of dials a scheme: the shaded part was seen in training, the hand is where a longer text leads.

    At the right, what the lab measured of three of them.
    """
    speeds, seen, place = (frame.values(name) for name in ("speeds", "seen", "hand"))
    facts, radius = frame.facts, 0.36
    drawn = facts["drawn"]
    pitch = 9.6 / len(drawn)
    ink, muted = theme.colour("ink"), theme.colour("muted")
    xs = [-4.35 + pitch * i for i in range(len(drawn))]
    board.put("fast", label("fastest pair", "floor", muted).at(xs[0] - radius, 2.98))
    told = f"shaded: seen in texts of {facts['length']:,}; hand: at token {facts['factor'] * facts['length']:,.0f}"
    board.put("legend", label(told, "floor", ink).at((xs[0] + xs[-1]) / 2, 2.98, "centre"))
    board.put("slow", label("slowest pair", "floor", muted).at(xs[-1] + radius, 2.98, "right"))
    board.put("lab", label(facts["lab_where"], "floor", muted).at(6.7, 2.98, "right"))
    for row, rises in zip(facts["lab"], frame.values("lab")):
        y = 2.2 - 1.35 * row
        told = label(f"{rises.mean():+.2f} bits a byte", "floor", ink, "medium")
        board.put(f"lab{row}:rise", told.at(6.7, y + 0.16, "right"))
        told = label(f"{rises.min():.2f} to {rises.max():.2f}", "floor", muted)
        board.put(f"lab{row}:span", told.at(6.7, y - 0.14, "right"))
    for row, name in enumerate(facts["names"]):
        y = 2.2 - 1.35 * row
        board.put(f"scheme{row}:name", label(name, "label", ink, "medium").at(-6.65, y + 0.32))
        board.put(f"scheme{row}:how", label(facts["how"][row], "floor", muted).at(-6.65, y))
        if facts["turned"][row]:
            told = f"{facts['new'][row]} new angles"
            board.put(f"scheme{row}:told", label(told, "floor", ink).at(-6.65, y - 0.3))
        for x, i in zip(xs, drawn):
            key, angle = f"scheme{row}.pair{i}", place[row, i]
            if speeds[row, i] == 0:
                board.put(f"{key}:ring", ring(theme, (x, y), radius, "ghost", width=1.2))
                continue
            new = seen[row, i] < 2 * np.pi - 1e-9 and angle > seen[row, i] + 1e-9
            (rim, role), thick = ("position", "position") if new else ("ghost", "ink"), 0.06 if new else 0.035
            board.put(f"{key}:ring", ring(theme, (x, y), radius, rim, fill="panel", width=4 if new else 1.5))
            colour = theme.tint("position", SEEN, on="panel")
            board.put(f"{key}:seen", sector(theme, (x, y), radius - 0.03, 0.0, seen[row, i], colour))
            board.put(f"{key}:hand", hand(theme, (x, y), 0.9 * radius, angle, role, width=thick, head=0.14))


DRAW: dict[str, Callable[[Board, Frame, Theme], None]] = {
    "shuffle": shuffle, "sinusoid": sinusoid, "learned": learned, "requirement": requirement, "query": query,
    "key": key, "slide": slide, "clocks": clocks, "wavelengths": wavelengths, "distance": distance, "base": base,
    "longer": longer,
}  # fmt: skip
