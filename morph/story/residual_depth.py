"""Frames 4 to 8 of figure 2: all layers of one model, trained and as initialized."""

from __future__ import annotations

from typing import Any

import numpy as np

from morph.story.frame import Array, Claim, Frame, absent
from morph.story.residual_kit import (
    FEATURES,
    Material,
    drawn,
    halves,
    make,
    misses,
    near,
    numbers,
    off_diagonal_mean,
    span,
)
from morph.story.stream import apart, cosines, cross_share, fitted, is_sum, random_cosines, rebuilt
from morph.story.written import percent, small

BINS = np.linspace(-0.8, 1.0, 37)
"""Edges of the histograms of cosines."""
CLOSE = 0.1
"""A curve that is nowhere further from what was measured, relatively, is said to fit."""


def total(m: Material) -> Frame:
    """The last state is x_0 plus every delta."""
    it, config = m.it, m.it.subject.config
    writes, D = len(it.deltas), config.d_model
    title = "The stream is a sum"
    if not is_sum(config):
        return absent("sum", title, "This model's stream is no sum: a norm divides it at every addition. See frame 9.")
    last = it.states[-1, -1]
    error = float((rebuilt(it)[-1] - last).abs().max())
    largest = float(last.abs().max())
    tensors = "blocks.*.middle and blocks.*.stream", "blocks.*.attention_delta and blocks.*.feed_forward_delta"
    return make(
        m,
        "shown",
        key="sum",
        title=title,
        caption=f"After {config.n_layers} layers the stream is x₀ plus {writes} deltas. Added up again in fp32, "
        f"they miss it by {small(error)} at most; its largest value is {largest:.0f}.",
        alt=f"Two maps of {drawn(D)} features: above, the stream before and after each of {writes} writes, its values "
        f"growing to the right; below, what each write added. The sum misses the last state by {error:.1e}.",
        claim=Claim(
            text="x₀ and the deltas add up to the last state, to rounding.",
            holds=lambda f: (
                near(f.values("states")[:, 0] + f.values("deltas").sum(1), f.values("states")[:, -1], 0.02)
                and float(f.values("error")) < 1e-5 * float(f.values("largest"))
            ),
        ),
        arrays={
            "states": numbers(it.states[:, -1, :FEATURES].T, ("feature", "state"), f"stream, {tensors[0]}"),
            "deltas": numbers(it.deltas[:, -1, :FEATURES].T, ("feature", "write"), tensors[1]),
            "error": numbers(error, (), "largest |x₀ + Σ deltas - last state|, fp32"),
            "largest": numbers(largest, (), f"largest |blocks.{config.n_layers - 1}.stream[0, -1]|"),
        },
        facts={"shown": min(D, FEATURES)},
    )


def sizes(m: Material) -> Frame:
    """How much each branch writes."""
    it, first = m.it, m.first
    a, f = (it.writes[half::2] for half in (0, 1))
    ranges = f"feed-forward {span(f)}, attention {span(a)}"
    grew = all(it.writes[half::2].mean() > first.writes[half::2].mean() for half in (0, 1))
    end = "" if m.start is None else " Training made both larger." if grew else " Dashes: before training."
    return make(
        m,
        "both",
        key="sizes",
        title="How much each layer writes",
        caption=f"RMS of each delta, layer by layer: {ranges}.{end}",
        alt=f"Under the map of the stream a bar for each write, attention and feed-forward in turn: {ranges}."
        + (" Dashed lines: as initialized." if m.start else ""),
        claim=Claim(
            text="On average the feed-forward network writes more than attention, and every write is larger than 0.1.",
            holds=lambda frame: bool(
                frame.values("feed_forward").mean() > frame.values("attention").mean()
                and min(frame.values("feed_forward").min(), frame.values("attention").min()) > 0.1
            ),
        ),
        plain=Claim(
            text="The ranges named are those of the writes.",
            holds=lambda frame: all(
                near(np.array([w.min(), w.max()]), np.array([d.min(), d.max()]))
                for w, d in ((f.numpy(), frame.values("feed_forward")), (a.numpy(), frame.values("attention")))
            ),
        ),
        arrays={
            **halves(it.writes, "", "RMS over tokens and features of blocks.*.{}_delta"),
            **(halves(m.start.writes, "first_", "the same, as initialized") if m.start else {}),
            **({"states": total(m).arrays["states"]} if is_sum(it.subject.config) else {}),
        },
    )


def growth(m: Material) -> Frame:
    """The stream's RMS by depth against a random walk's."""
    if not is_sum(m.it.subject.config):
        why = "This model's stream does not grow: a norm brings it back to one size at every addition. See frame 9."
        return absent("growth", "Does it grow like √ℓ?", why)
    arrays: dict[str, Array] = {}
    facts: dict[str, Any] = {}
    for prefix, stream in (("first_", m.first), ("", m.it)) if m.start else (("", m.it),):
        sigma, curve = fitted(stream)
        size = stream.sizes[::2]
        facts |= {
            f"{prefix}sigma": round(sigma, 3),
            f"{prefix}curve_misses": misses(curve, size),
        }
        arrays[f"{prefix}rms"] = numbers(size, ("layers passed",), "RMS over tokens and features, after every layer")
        arrays[f"{prefix}curve"] = numbers(curve, ("layers passed",), "√(r₀² + ℓσ²), σ² by least squares")
    ends = f"from {m.it.sizes[0]:.1f} to {m.it.sizes[-1]:.1f}"
    off = arrays["curve"].values / arrays["rms"].values - 1
    worst = facts["worst"] = int(np.abs(off).argmax())
    verdict = f"{_high(off[worst])} after layer {worst}, {_high(off[-1])} at the end."
    if facts["curve_misses"] < CLOSE:
        verdict = f"within {percent(facts['curve_misses'])}."
    formula = "√(r₀² + ℓσ²)"
    if m.start:
        within = f"fits within {percent(facts['first_curve_misses'])}, as for independent writes"
        caption = f"As initialized, {formula} {within}. Trained, it is {verdict}"
    else:
        caption = f"The stream's RMS grows {ends}. The best {formula}, right for independent writes, is {verdict}"
    return make(
        m,
        "both",
        key="growth",
        title="Does it grow like √ℓ?",
        caption=caption,
        alt=f"RMS of the stream by depth, {ends}, with the fitted curve of independent writes dashed. {caption}",
        claim=Claim(
            text="As initialized, growth is that of independent writes within 15%; a trained one departs twice as far.",
            holds=_growth_holds,
        ),
        plain=Claim(text="The curve misses the stream by as much as is said.", holds=lambda f: _told(f)),
        arrays=arrays,
        facts=facts,
    )


def _high(off: float) -> str:
    return f"{percent(abs(off))} too {'high' if off > 0 else 'low'}"


def _off(f: Frame, prefix: str) -> float:
    return float(np.abs(f.values(f"{prefix}curve") / f.values(f"{prefix}rms") - 1).max())


def _told(f: Frame) -> bool:
    return abs(_off(f, "") - f.facts["curve_misses"]) < 0.01


def _growth_holds(f: Frame) -> bool:
    both = "first_rms" in f.arrays
    alike = _off(f, "first_" if both else "") < 0.15
    return _told(f) and alike and (not both or _off(f, "") > 2 * _off(f, "first_"))


def angles(m: Material) -> Frame:
    """Cosines between deltas, against random vectors."""
    it, D = m.it, m.it.subject.config.d_model
    mine = cosines(it.deltas)
    streams = {"": apart(mine), "random_": random_cosines(it)}
    if m.start:
        streams["first_"] = apart(cosines(m.start.deltas))
    facts: dict[str, Any] = {"expected_spread": round(D**-0.5, 4)}
    arrays = {
        "cosines": numbers(mine.mean(0), ("write", "write"), "cosine of blocks.*.*_delta, mean over tokens", 4),
        "bins": numbers(BINS, ("edge",), "edges of the histograms"),
    }
    for prefix, values in streams.items():
        facts[f"{prefix}mean"] = round(float(values.mean()), 4)
        facts[f"{prefix}spread"] = round(float(values.square().mean().sqrt()), 4)
        counts, _ = np.histogram(values.numpy(), BINS)
        source = "vectors drawn from N(0, 1)" if prefix == "random_" else "pairs of deltas of one token, all tokens"
        arrays[f"{prefix}pairs"] = numbers(counts / len(values), ("bin",), f"share of {source}", 4)
    share = facts["cross_share"] = round(cross_share(it), 4) if is_sum(it.subject.config) else 0.0
    text = f"mean cosine is {facts['mean']:.2f}".replace("-", "−")
    tail = f": small, yet these pairs make {percent(share)} of the final squared length."
    tail = tail if share > 0.2 else "."
    if m.start:
        first = facts["first_spread"] < 1.1 * facts["random_spread"] and abs(facts["first_mean"]) < 0.03
        opening = f"As initialized, deltas are {'as' if first else 'less'} orthogonal {'as' if first else 'than'}"
        caption = f"{opening} random vectors. Trained, their {text}{tail}"
    else:
        caption = f"The deltas' {text}, their spread of {facts['spread']:.2f}; random vectors: " + (
            f"{facts['random_spread']:.2f}{tail if share > 0.2 else '.'}"
        )
    return make(
        m,
        "both",
        key="angles",
        title="Are the deltas orthogonal?",
        caption=caption,
        alt=f"A {len(mine[0])} by {len(mine[0])} map of cosines between deltas, and the distribution of single cosines "
        f"beside that of random vectors. {caption}",
        claim=Claim(
            text="As initialized, cosines are those of random vectors; training tilts the deltas towards each other.",
            holds=lambda f: (
                abs(f.facts["random_spread"] * D**0.5 - 1) < 0.03
                and abs(f.facts.get("first_spread", D**-0.5) / f.facts["random_spread"] - 1) < 0.1
                and f.facts["mean"] > f.facts.get("first_mean", -1) + 0.03
                and _counted(f)
            ),
        ),
        plain=Claim(text="The mean is that of the map, and the histogram counts every pair.", holds=_counted),
        arrays=arrays,
        facts=facts,
    )


def _counted(f: Frame) -> bool:
    whole = abs(float(f.values("pairs").sum()) - 1) < 0.01
    return whole and abs(off_diagonal_mean(f.values("cosines")) - f.facts["mean"]) < 1e-3


def shares(m: Material) -> Frame:
    """What a write is, relative to the stream it is added to."""
    it = m.it
    ends = [percent(float(it.shares[i])) for i in (1, -1, 0, -2)]
    less = bool((it.shares[-2:] < 0.8 * it.shares[:2]).all())
    return make(
        m,
        "both",
        key="shares",
        title="Each write counts for less" if less else "What each write counts for",
        caption=f"Delta over stream, first layer to last: {ends[0]} to {ends[1]} for the feed-forward network, "
        f"{ends[2]} to {ends[3]} for attention.",
        alt=f"Size of each delta relative to the stream before it, by layer, on a logarithmic axis: feed-forward from "
        f"{ends[0]} to {ends[1]}, attention from {ends[2]} to {ends[3]}.",
        claim=Claim(
            text="In the last two layers a write is less than half as large a share as in the first two.",
            holds=lambda f: all(
                f.values(half)[-2:].mean() < 0.5 * f.values(half)[:2].mean() for half in ("attention", "feed_forward")
            ),
        ),
        plain=Claim(
            text="The shares named are those of the first and the last layer.",
            holds=lambda f: (
                [percent(float(f.values(half)[i])) for half in ("feed_forward", "attention") for i in (0, -1)] == ends
            ),
        ),
        arrays={
            **halves(it.shares, "", "RMS of blocks.*.{}_delta over RMS of the state before it"),
            **(halves(m.start.shares, "first_", "the same, as initialized") if m.start else {}),
        },
    )
