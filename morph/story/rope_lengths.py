"""Figure 3, frames 10 to 12: what a trained layer makes of distance, and what is done for texts longer than trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from morph.config import Llama3Rope, PartialRope, Rope, Rotation, YarnRope
from morph.nn.position import frequencies
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.measured import by_seed
from morph.story.rope_layer import EXACT, TURN
from morph.story.rope_pairs import Live, drawn, some_of
from morph.story.written import many

HEADS = 4
"""Most heads drawn as curves."""
FACTOR = 4.0
"""How much longer than the trained texts frame 12 reads."""
BASES = (
    ("Llama 2", 10_000.0, 4_096, 128), ("Llama 3", 500_000.0, 8_192, 128), ("Qwen3", 1_000_000.0, 32_768, 128),
)  # fmt: skip
"""Model, base, tokens of its training texts before any extension, features of a head; from their configs."""

# ---- 10: what the trained layer makes of distance ----


def distance(live: Live) -> Frame:
    offsets = np.arange(len(live.layer.ids))
    heads = np.unique(np.linspace(0, len(live.queries) - 1, min(HEADS, len(live.queries))).round().astype(int))
    mean, low, high = (np.stack(part) for part in zip(*(_by_offset(live, int(h), offsets) for h in heads)))
    count = live.queries.shape[1] ** 2
    story = _told(mean)
    return Frame(
        key="distance",
        title="Does the score fall with distance?",
        caption=_distance_caption(story, len(heads), live.subject.is_trained),
        alt=(
            f"{len(heads)} curves, one a head: the mean score against the offset, 0 to {offsets[-1]}, in a band from "
            f"the tenth to the ninetieth percentile. Peaks at offsets {', '.join(map(str, story['peaks']))}; lowest "
            f"points at {', '.join(map(str, story['lows']))}."
        ),
        claim=Claim(
            text="The caption's counts are those of the curves, and the curves lie inside their bands.",
            holds=lambda f: bool(
                _told(f.values("mean")) == f.facts["told"]
                and (f.values("low") <= f.values("high")).all()
                and (f.values("mean")[:, 0] <= f.values("high")[:, 0]).all()
            ),
        ),
        arrays={
            name: Array(
                values=values.round(5), axes=("head", "offset"),
                source=f"{live.where}.queries and .keys before rotation: {count:,} pairs, each set at every offset",
            )
            for name, values in (("mean", mean), ("low", low), ("high", high))
        },
        facts={"told": story, "heads": heads.tolist(), "count": count, "layer": live.layer.index},
        source=f"Layer {live.layer.index} of {live.subject.name}: {count:,} pairs of query and key at each offset.",
    )  # fmt: skip


def _by_offset(live: Live, head: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, tenth and ninetieth percentile of the scaled scores of every query with every key, at each offset."""
    q, k = live.queries[head], live.keys[head]
    products = (q[:, None, :] * k.conj()[None, :, :]).reshape(-1, q.shape[-1])
    turned = np.exp(1j * np.outer(live.speeds, offsets))
    scores = products.real @ turned.real - products.imag @ turned.imag + live.rest[head].reshape(-1, 1)
    scores = live.layer.capped(scores * live.layer.scale)
    low, high = np.percentile(scores, (10, 90), axis=0)
    return scores.mean(0), low, high


def _told(mean: np.ndarray) -> dict[str, Any]:
    """What can be said of curves (head, offset): where they peak, how many fall at every step or rise after a low."""
    falls = (np.diff(mean, axis=1) < 0).all(axis=1)
    lows = mean.argmin(axis=1)
    return {
        "peaks": mean.argmax(axis=1).tolist(),
        "lows": lows.tolist(),
        "steady": int(falls.sum()),
        "near": int((mean.argmax(axis=1) < 8).sum()),
        "return": int((lows < mean.shape[1] * 7 // 8).sum()),
    }


def _distance_caption(told: dict[str, Any], heads: int, trained: bool) -> str:
    if not trained:
        return (
            f"Untrained: the mean score wanders. Of {heads} heads {many(told['steady'], heads)} fall at every step; "
            "rotation alone promises no decay."
        )
    is_wave = told["steady"] == 0 and 2 * told["return"] > heads
    near, back, steady = (many(told[name], heads) for name in ("near", "return", "steady"))
    return (
        f"Of {heads} heads {near} peak within eight tokens, {back} sink and rise again, {steady} fall at every step. "
        + ("What is learned is a wave, not a decay." if is_wave else "Rotation alone promises no decay.")
    )


# ---- 11 and 12: longer texts ----


def base(live: Live | None) -> Frame:
    rows = [(name, base, length, geometric(base, features)) for name, base, length, features in BASES]
    if live is not None:
        rows.insert(0, ("This model", live.rope.base, live.length, live.speeds))
    waves = [TURN / speeds for *_, speeds in rows]
    full = [int((w <= length).sum()) for w, (_, _, length, _) in zip(waves, rows)]
    widest = max(len(w) for w in waves)
    padded = np.stack([np.pad(w, (0, widest - len(w)), constant_values=0.0) for w in waves])
    llama, qwen = waves[-3], waves[-1]
    return Frame(
        key="base",
        title="The base is a dial",
        caption=(
            f"From b = 10⁴ to 10⁶ the slowest turn grows from {llama[-1]:,.0f} to {qwen[-1]:,.0f} tokens. Texts grew "
            f"too: {full[-3]}, {full[-2]} and {full[-1]} of 64 clocks complete a turn."
        ),
        alt=(
            "Rows of points on one logarithmic axis of tokens, a row a model, each with a mark at its trained length. "
            + "; ".join(
                f"{name}, base {base:,.0f}: {n} of {len(w)} turns fit into {length:,} tokens"
                for (name, base, length, _), n, w in zip(rows, full, waves)
            )
            + "."
        ),
        claim=Claim(
            text="A larger base slows every pair but the first; the counts are those of the points.",
            holds=lambda f: _bases_hold(f.values("wavelengths"), f.values("lengths"), f.facts["full"]),
        ),
        arrays={
            "wavelengths": Array(values=padded, axes=("model", "pair"), source="2π b^(2i/d); 0: no such pair"),
            "lengths": Array(
                values=np.array([length for _, _, length, _ in rows]), axes=("model",),
                source="trained lengths of the published models, and of this one's config",
            ),
        },
        facts={
            "names": [r[0] for r in rows], "bases": [r[1] for r in rows], "full": full, "pairs": list(map(len, waves)),
            "texts": "trained on" if live is None or not live.subject.is_released else "up to",
        },
        source="Bases and lengths of the released configs, before any extension; heads of 128 features.",
    )  # fmt: skip


def geometric(base: float, features: int) -> np.ndarray:
    """Radians per token of a plain rotation."""
    return np.asarray(frequencies(Rope(base=base), features).numpy())


def _bases_hold(waves: np.ndarray, lengths: np.ndarray, full: list[int]) -> bool:
    published = waves[-len(BASES) :]
    slower = bool((np.diff(published[:, 1:], axis=0) > 0).all() and np.ptp(published[:, 0]) < EXACT)
    return slower and [int(((w > 0) & (w <= length)).sum()) for w, length in zip(waves, lengths)] == full


def longer(live: Live) -> Frame:
    """Which angles a text `FACTOR` times longer shows that no trained text did."""
    base, features, length = live.rope.base, 2 * len(live.speeds), live.length
    if isinstance(live.rope, YarnRope | Llama3Rope):  # its speeds are made for more than it was first trained on
        length = live.rope.original_length
    if features < 4:
        return absent("longer", "Longer texts", "Only one pair of features turns: nothing can be left out.")
    ropes: list[tuple[str, Rotation | None]] = [
        ("RoPE", Rope(base=base)),
        ("YaRN", YarnRope(base=base, factor=FACTOR, original_length=length)),
        ("Partial", PartialRope(base=base, fraction=2 * (features // 4) / features)),
        ("NoPE", None),
    ]
    how = ("turns every pair", "slows slow pairs", f"turns {features // 4} pairs", "turns nothing")
    count = features // 2
    speeds = np.zeros((len(ropes), count))
    for row, (_, rope) in enumerate(ropes):
        if rope is not None:
            found = frequencies(rope, features).numpy()
            speeds[row, : len(found)] = found
    seen = np.minimum(length * np.where([[n == "YaRN"] for n, _ in ropes], speeds[0], speeds), TURN)
    hand = (FACTOR * length * speeds) % TURN
    new = unseen(hand, seen)
    turned = (speeds > 0).sum(1)
    lab = by_seed("length", ("RoPE", "YaRN, no training", "NoPE"), "rise")
    rise = lab.values.mean(axis=1).tolist()
    allowed, within = "the trained length", "in training"
    if live.subject.is_released:
        allowed, within = "the length its config allows", "within it"
    return Frame(
        key="longer",
        title="Slow down, leave out, remove",
        caption=(
            f"At {FACTOR:.0f} times {allowed}, {new[0].sum()} of {count} hands point where none did {within}; with "
            f"YaRN, {many(new[1].sum(), count)}. In the lab RoPE lost {rise[0]:.2f} bits, YaRN {rise[1]:.2f}."
        ),
        alt=(
            f"Four rows of dials, a dial a pair. Shaded is the part of the circle that texts of {length} tokens show, "
            f"the hand is where {FACTOR * length:.0f} tokens lead. RoPE: {new[0].sum()} hands outside. YaRN, which "
            f"slows the slow pairs by {FACTOR:.0f}: {new[1].sum()} outside. Partial rotation: {turned[2]} dials have "
            "hands. NoPE: no hands. At the right, bits per byte that the lab's models lost beyond the trained length: "
            f"RoPE {rise[0]:.2f}, YaRN {rise[1]:.2f}, NoPE {rise[2]:.2f}."
        ),
        claim=Claim(
            text="YaRN keeps the fastest pair, slows the slow ones by at most its factor, and shows no new angle; in "
            "the lab it lost less than RoPE with every seed.",
            holds=lambda f: _longer_holds(f),
        ),
        arrays={
            "speeds": Array(values=speeds, axes=("scheme", "pair"), source="morph.nn.position.frequencies"),
            "seen": Array(values=seen, axes=("scheme", "pair"), source="trained length × trained speed, at most 2π"),
            "hand": Array(values=hand, axes=("scheme", "pair"), source=f"{FACTOR:.0f} × length × speed, mod 2π"),
            "lab": lab,
        },
        facts={
            "names": [name for name, _ in ropes], "how": list(how), "turned": turned.tolist(),
            "new": new.sum(1).tolist(),
            "drawn": drawn(count).tolist(), "length": length, "factor": FACTOR,
            "lab": [0, 1, 3], "lab_where": "lab, at 4 to 8 times",
        },
        source=(
            f"Speeds for {features} turning features a head, base {base:,.0f}, {live.texts} {length:,} tokens"
            f"{some_of(count)}."
        ),
    )  # fmt: skip


def unseen(hand: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Where a hand's angle (0 to 2π) lies beyond those that were seen."""
    return np.asarray((hand > seen + EXACT) & (seen < TURN))


def _longer_holds(frame: Frame) -> bool:
    speeds, seen, hand = (frame.values(name) for name in ("speeds", "seen", "hand"))
    ratio = speeds[0] / speeds[1]
    new = unseen(hand, seen).sum(1).tolist()
    slowed = abs(ratio[0] - 1) < EXACT and (np.diff(ratio) > -EXACT).all() and ratio[-1] < frame.facts["factor"] + EXACT
    helped = (frame.values("lab")[1] < frame.values("lab")[0]).all()
    return bool(slowed and helped and new == frame.facts["new"] and new[1] == 0 and (speeds[3] == 0).all())
