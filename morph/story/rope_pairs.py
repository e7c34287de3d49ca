"""Figure 3, frames 5 to 9: one pair of a live query and key turned by their places, then all pairs of a head.

Facts name what is drawn: `pair` of `pairs`, its `speed` in radians a token, `words` and `places` of query and key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from morph.config import Rotation
from morph.story.frame import Array, Claim, Frame
from morph.story.rope_layer import EXACT, TURN, Layer, dot
from morph.story.subject import Subject
from morph.story.written import small

QUERY_AT, KEY_AT = 7, 4
"""Places of the pair that frames 5 to 7 turn."""
SLIDE = 6
"""Places by which frame 7 moves both, on the picture; the measured slides go further."""
FARTHEST = 512
"""Places by which both are moved at most."""
DIALS = 12
"""Most pairs drawn as dials."""
AVOIDED = "kmnq"
"""Letters that name something else in these frames; no token spelled so is chosen."""


@dataclass(frozen=True)
class Live:
    """A rotating layer, its queries and keys before rotation as complex pairs, and the pair that frames 5 to 7 turn.

    Attributes:
        queries, keys: (H, S, pairs), a key head repeated for each query head that shares it.
        rest: dot products of the features that do not turn, (H, S, S).
        head, pair: which head and which of its pairs.
        tokens: index of the token whose query is turned, and of the one whose key is.
    """

    subject: Subject
    layer: Layer
    rope: Rotation
    speeds: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    rest: np.ndarray
    head: int
    pair: int
    tokens: tuple[int, int]

    @classmethod
    def of(cls, subject: Subject, layer: Layer, rope: Rotation) -> Live:
        seen, speeds = layer.attend(layer.x, None), layer.speeds
        q, k = seen["queries"], seen["keys"].repeat(len(seen["queries"]) // len(seen["keys"]), axis=0)
        (queries, still), (keys, other) = layer.split(q), layer.split(k)
        rest = still @ other.swapaxes(1, 2)
        pair = int(np.abs(speeds * QUERY_AT - 1.5).argmin())  # about a quarter turn at the query's place
        words = [subject.shown(token) for token in layer.ids]
        head, tokens = _legible(queries[:, :, pair], keys[:, :, pair], float(speeds[pair]), words)
        return cls(subject, layer, rope, speeds, queries, keys, rest, head, pair, tokens)

    @property
    def length(self) -> int:
        """Tokens in a trained text, or in the longest that a released model's config allows."""
        return self.subject.config.context_length

    @property
    def texts(self) -> str:
        """What that length is, in words: of a released model only its config's limit is known."""
        return "texts of up to" if self.subject.is_released else "trained on texts of"

    @property
    def where(self) -> str:
        """The trace's prefix of the layer."""
        return f"blocks.{self.layer.index}.attention"

    @property
    def words(self) -> tuple[str, str]:
        """The two tokens, as written."""
        shown = self.subject.shown
        return shown(self.layer.ids[self.tokens[0]]), shown(self.layer.ids[self.tokens[1]])

    @property
    def query(self) -> complex:
        """The pair of the query before it turns."""
        return complex(self.queries[self.head, self.tokens[0], self.pair])

    @property
    def key(self) -> complex:
        """The pair of the key before it turns."""
        return complex(self.keys[self.head, self.tokens[1], self.pair])

    @property
    def pair_source(self) -> str:
        """Where frames 5 to 7 come from, in words."""
        return (
            f"Pair {self.pair} of 0–{len(self.speeds) - 1}, head {self.head}, layer {self.layer.index} of "
            f"{self.subject.name}."
        )


def _legible(q: np.ndarray, k: np.ndarray, speed: float, words: list[str]) -> tuple[int, tuple[int, int]]:
    """Head and tokens, letters, whose query and key (H, S) are both long in a pair and stand well apart when turned."""
    long = np.minimum(np.abs(q)[:, :, None], np.abs(k)[:, None, :])
    apart = np.abs(np.angle(q[:, :, None] * k.conj()[:, None, :] * np.exp(1j * speed * (QUERY_AT - KEY_AT))))
    reads = np.array([in_letters(word) and word not in AVOIDED for word in words])
    if not reads.any():  # bare ids
        reads[:] = True
    good = np.where((apart > 0.7) & (apart < 1.3) & reads[:, None] & reads, long, 0.01 * long)
    head, m, n = np.unravel_index(int(good.argmax()), good.shape)
    return int(head), (int(m), int(n))


def in_letters(word: str) -> bool:
    """Whether a token is written in letters alone, but for a blank before them."""
    return word.removeprefix("␣").isalpha()


def _plane(z: np.ndarray | complex) -> np.ndarray:
    """Complex numbers as points (..., 2)."""
    z = np.asarray(z)
    return np.stack((z.real, z.imag), axis=-1)


def _complex(points: np.ndarray) -> np.ndarray:
    return np.asarray(points[..., 0] + 1j * points[..., 1])


# ---- 5 to 7: one pair ----


def _turned_by(points: np.ndarray, speed: float) -> bool:
    """Whether points (place, 2) are the first one turned by place times speed."""
    z = _complex(points)
    return bool(np.abs(z - z[0] * np.exp(1j * speed * np.arange(len(z)))).max() < EXACT * max(1.0, abs(z[0])))


def _pair_facts(live: Live, query_at: int, key_at: int) -> dict[str, Any]:
    return {
        "pair": live.pair, "pairs": len(live.speeds), "speed": float(live.speeds[live.pair]), "words": list(live.words),
        "places": [query_at, key_at], "layer": live.layer.index, "head": live.head,
        "reach": max(abs(live.query), abs(live.key)),
    }  # fmt: skip


def _meeting_facts(live: Live, query_at: int, key_at: int) -> dict[str, Any]:
    """The same with what comes of both: their gap (of their own, and turned) and their dot product."""
    return {
        **_pair_facts(live, query_at, key_at), "own": _between(live, 0, 0), "gap": _between(live, query_at, key_at),
        "score": _score(live, query_at, key_at),
    }  # fmt: skip


def _round(speed: float) -> int:
    """Whole tokens in one turn."""
    return int(np.ceil(TURN / speed))


def _degrees(angle: float) -> str:
    return f"{np.degrees(angle):.0f}°"


def _hands(live: Live, query_at: int, key_at: int | None) -> dict[str, Array]:
    """The query's pair at the places 0 .. `query_at`, the key's at 0 .. `key_at`."""
    speed = live.speeds[live.pair]

    def walk(z: complex, at: int, name: str) -> Array:
        return Array(
            values=_plane(z * np.exp(1j * speed * np.arange(at + 1))), axes=("place", "coordinate"),
            source=f"{live.where}.{name} before rotation, turned here by place × speed",
        )  # fmt: skip

    made = {"query": walk(live.query, query_at, "queries")}
    return made if key_at is None else {**made, "key": walk(live.key, key_at, "keys")}


def query(live: Live) -> Frame:
    speed = float(live.speeds[live.pair])
    angle = _degrees(QUERY_AT * speed)
    return Frame(
        key="query",
        title="Turn the query by its place",
        caption=(
            f"Two features of a query are a point in a plane. Each place turns it by θ = {speed:.3f} radians more: "
            f"{angle} at place {QUERY_AT}. Its length stays."
        ),
        alt=(
            f"A dial. Faint hands show the query of token {live.words[0]} before rotation and place by place, "
            f"a bright hand is where it stands at place {QUERY_AT}, turned by {angle}."
        ),
        claim=Claim(
            text="Each place turns the pair by the same angle and leaves its length.",
            holds=lambda f: _turned_by(f.values("query"), f.facts["speed"]),
        ),
        arrays={
            **_hands(live, QUERY_AT, None),
            "features": Array(
                values=_plane(live.query * np.exp(1j * speed * np.arange(_round(speed) + 1))),
                axes=("place", "coordinate"),
                source=f"{live.where}.queries: the pair at the places of one turn",
            ),
        },
        facts=_pair_facts(live, QUERY_AT, KEY_AT),
        source=live.pair_source,
    )


def key(live: Live) -> Frame:
    speed = float(live.speeds[live.pair])
    between = _between(live, QUERY_AT, KEY_AT)
    return Frame(
        key="key",
        title="Turn the key by its place",
        caption=(
            f"The key, at place {KEY_AT}, turns by {KEY_AT} times the same angle. The gap between the hands is their "
            f"own plus {QUERY_AT}\u00a0−\u00a0{KEY_AT}\u00a0=\u00a0{QUERY_AT - KEY_AT} such steps."
        ),
        alt=(
            f"The same dial with a second hand, the key of token {live.words[1]}, turned by "
            f"{_degrees(KEY_AT * speed)}. The angle between the two hands is {_degrees(between)}; "
            f"their dot product is {_score(live, QUERY_AT, KEY_AT):.3f}."
        ),
        claim=Claim(
            text="The gap between the hands is the one before rotation plus m − n steps.",
            holds=lambda f: _gap_holds(f.values("query"), f.values("key"), f.facts["speed"]),
        ),
        arrays={
            **_hands(live, QUERY_AT, KEY_AT),
            "scores": Array(
                values=np.array([_score(live, QUERY_AT, n) for n in range(_round(speed) + 1)]),
                axes=("key place",),
                source=f"{live.where}: the pair's product, query at {QUERY_AT}, key at the places of one turn",
            ),
        },
        facts=_meeting_facts(live, QUERY_AT, KEY_AT),
        source=live.pair_source,
    )


def _gap_holds(query: np.ndarray, key: np.ndarray, speed: float) -> bool:
    q, k = _complex(query), _complex(key)
    expected = q[0] * k[0].conj() * np.exp(1j * speed * (len(q) - len(k)))
    turned = _turned_by(query, speed) and _turned_by(key, speed)
    return turned and bool(abs(q[-1] * k[-1].conj() - expected) < EXACT * max(1.0, abs(expected)))


def _between(live: Live, m: float, n: float) -> float:
    """Angle from the key's hand at place n to the query's at place m, -π to π."""
    return float(np.angle(live.query * np.conj(live.key) * np.exp(1j * live.speeds[live.pair] * (m - n))))


def _score(live: Live, m: float, n: float) -> float:
    """Dot product of the turned pair."""
    speed = live.speeds[live.pair]
    return float(dot(live.query * np.exp(1j * m * speed), live.key * np.exp(1j * n * speed)))


def slide(live: Live) -> Frame:
    slides = np.arange(max(SLIDE, min(live.length, FARTHEST)) + 1)
    both = np.array([_score(live, QUERY_AT + s, KEY_AT + s) for s in slides.tolist()])
    alone = np.array([_score(live, QUERY_AT + s, KEY_AT) for s in slides.tolist()])
    whole = _whole(live, slides)
    deviation = float(max(np.ptp(both), np.ptp(whole)))
    at = (QUERY_AT + SLIDE, KEY_AT + SLIDE)
    return Frame(
        key="slide",
        title="Slide both: the score stays",
        caption=(
            f"Both move on by 0 to {slides[-1]} places: this pair's product stays {both[0]:.3f}, the whole head's "
            f"stays too, to {small(deviation)}. Move the query alone and it swings."
        ),
        alt=(
            f"The dial with both hands turned on by {SLIDE} places, the angle between them as before. Beside it, the "
            f"dot product against the slide: a flat line at {both[0]:.3f} when both move, a wave between "
            f"{alone.min():.2f} and {alone.max():.2f} when only the query moves."
        ),
        claim=Claim(
            text="The score of a slid pair, and of the whole head, stays; the query's alone does not.",
            holds=lambda f: _only_both_stay(f.values("both"), f.values("whole"), f.values("alone")),
        ),
        arrays={
            **_hands(live, *at),
            "both": Array(values=both, axes=("slide",), source=f"{live.where}: the pair at places m + s, n + s"),
            "whole": Array(values=whole, axes=("slide",), source=f"{live.where}: the whole head at m + s, n + s"),
            "alone": Array(values=alone, axes=("slide",), source=f"{live.where}: the pair at places m + s, n"),
        },
        facts={**_meeting_facts(live, *at), "slide": SLIDE, "deviation": small(deviation)},
        source=live.pair_source,
    )  # fmt: skip


def _only_both_stay(both: np.ndarray, whole: np.ndarray, alone: np.ndarray) -> bool:
    """Changes are measured by the larger of 1 and the largest score, the swing by its own largest score."""
    stays = all(np.ptp(scores) < EXACT * max(1.0, np.abs(scores).max()) for scores in (both, whole))
    return bool(stays and np.ptp(alone) > 0.1 * np.abs(alone).max())


def _whole(live: Live, slides: np.ndarray) -> np.ndarray:
    """The score of the whole head, all pairs and the features that do not turn, at places m + s and n + s."""
    q, k = live.queries[live.head, live.tokens[0]], live.keys[live.head, live.tokens[1]]
    angles = slides[:, None] * live.speeds
    q, k = q * np.exp(1j * (angles + QUERY_AT * live.speeds)), k * np.exp(1j * (angles + KEY_AT * live.speeds))
    paired = dot(q, k).sum(-1)
    return np.asarray(paired + live.rest[live.head, live.tokens[0], live.tokens[1]])


# ---- 8 and 9: all pairs ----


def drawn(count: int) -> np.ndarray:
    """Which of `count` pairs are drawn as dials: all, or some spread evenly from the fastest to the slowest."""
    return np.unique(np.linspace(0, count - 1, min(count, DIALS)).round().astype(int))


def some_of(count: int) -> str:
    """Says so where not all of `count` pairs are drawn."""
    return "" if count <= DIALS else f"; {DIALS} of {count} pairs drawn"


def clocks(live: Live) -> Frame:
    place = max(1, live.length // 4)
    turns = place * live.speeds / TURN
    ratio = live.speeds[:-1] / live.speeds[1:] if len(turns) > 1 else np.ones(1)
    geometric = bool(np.ptp(ratio) < EXACT)
    pace = f"{ratio[0]:.2f} times slower than the one before" if geometric else "slower than the one before"
    return Frame(
        key="clocks",
        title=f"{len(turns)} clocks, fast to slow",
        caption=(
            f"Each pair turns at its own speed, {pace}. At place {place} the fastest has turned "
            f"{turns[0]:,.1f} times, the slowest by {_small(turns[-1])}."
        ),
        alt=(
            f"{len(drawn(len(turns)))} dials. On each the part swept from place 0 to place {place}, the hand at its "
            f"end: {', '.join(f'{t:.2g}' for t in turns[drawn(len(turns))])} turns."
        ),
        claim=Claim(
            text="Speeds fall from pair to pair, the fastest by one radian a token; by one ratio when unscaled.",
            holds=lambda f: _speeds_hold(f.values("speeds"), f.facts["geometric"]),
        ),
        arrays={
            "speeds": Array(values=live.speeds, axes=("pair",), source=f"{live.where}.rope: b^(-2i/d) and its scaling"),
            "turns": Array(values=turns, axes=("pair",), source=f"place {place} × speed / 2π"),
        },
        facts={
            "place": place, "geometric": geometric, "drawn": drawn(len(turns)).tolist(), "base": live.rope.base,
            "pair": live.pair,
        },
        source=_rope_source(live),
    )  # fmt: skip


def _speeds_hold(speeds: np.ndarray, geometric: bool) -> bool:
    ratio = speeds[:-1] / speeds[1:]
    falls = bool((ratio > 1).all()) and 0 < speeds[0] <= 1
    return falls and (np.ptp(ratio) < EXACT if geometric and len(ratio) else True)


def _small(turns: float) -> str:
    """A turn's part as an angle."""
    degrees = 360 * turns
    return f"{degrees:.0f}°" if degrees >= 10 else f"{degrees:.2g}°" if degrees >= 1e-3 else f"{small(degrees)}°"


def _rope_source(live: Live) -> str:
    return (
        f"{type(live.rope).__name__}, base {live.rope.base:,.0f}, {2 * len(live.speeds)} turning features a head: "
        f"{live.subject.name}{some_of(len(live.speeds))}."
    )


def wavelengths(live: Live) -> Frame:
    waves = TURN / live.speeds
    full = int((waves <= live.length).sum())
    return Frame(
        key="wavelengths",
        title=f"One turn: {waves[0]:,.0f} to {waves[-1]:,.0f} tokens",
        caption=(
            f"Texts of {live.length:,} tokens turn {full} of {len(waves)} clocks all the way round. "
            + ("Of the others they show" if live.subject.is_released else "Of the others the model has only seen")
            + " the filled part."
        ),
        alt=(
            f"{len(waves)} points on a logarithmic axis of tokens, {waves[0]:.1f} to {waves[-1]:,.0f}. A line marks "
            f"{'the longest texts' if live.subject.is_released else 'the trained length'}, {live.length:,}; {full} "
            "lie left of it. Each is a small dial, filled as far as seen."
        ),
        claim=Claim(
            text="A turn takes 2π / speed; the counted ones fit into a trained text.",
            holds=lambda f: bool(
                np.allclose(f.values("wavelengths") * f.values("speeds"), TURN, rtol=1e-12)
                and (f.values("wavelengths") <= f.facts["length"]).sum() == f.facts["full"]
            ),
        ),
        arrays={
            "wavelengths": Array(values=waves, axes=("pair",), source="2π / speed"),
            "speeds": Array(values=live.speeds, axes=("pair",), source=f"{live.where}.rope"),
        },
        facts={
            "length": live.length,
            "full": full,
            "drawn": drawn(len(waves)).tolist(),
            "pair": live.pair,
            "texts": live.texts,
        },
        source=_rope_source(live),
    )
