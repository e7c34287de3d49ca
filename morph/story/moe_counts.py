"""Frames 6 and 7 of figure 8: what experts weigh, and how many ways there are to combine them. Counted, not measured.

Frame `active`: `total` and `active` (model,) parameters of our stages, `released_total` and `released_active` of
released models, all from `morph.count`; their names in the facts `names` and `released`. Frame `combinations`:
`experts`, `chosen`, `combinations`, `stored` and `used` expert weights in one layer, each (design,), and `picks`
(design, expert), who was chosen for one token of the passage in a model built so, NaN beyond a design's experts.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

import morph
from morph.config import ModelConfig, MoE
from morph.nn.moe import MixtureOfExperts
from morph.story.frame import Array, Claim, Frame
from morph.story.moe_layer import TOKENS, feed_forward, middle_layer, route
from morph.story.released import RELEASED
from morph.story.subject import Subject, siblings
from morph.story.written import percent, ten

STAGES = (9, 10, 11, 12, 13)
MIXTURES = ("Mixtral 8×7B", "Qwen3-30B-A3B", "Qwen3-235B-A22B")
"""Released models of frame 6."""


def active_frame(own: ModelConfig | None, name: str = "your model") -> Frame:
    """Frame 6: our stages 9 to 13, or (with `own`) a reader's model and its dense counterpart; and released models."""
    if own is None:
        names = [f"{k} {morph.SLUGS[k]}" for k in STAGES]
        configs = [morph.stage(k, "nano") for k in STAGES]
    else:
        counterpart = dense_counterpart(own)
        names, configs = ["dense, as wide", name], [counterpart, own]
        if own == counterpart:
            names, configs = names[1:], configs[1:]
    ours, theirs = [morph.count(c) for c in configs], {n: morph.count(RELEASED[n].config) for n in MIXTURES}
    total, active = (np.array([f(c) for c in ours]) for f in (lambda c: c.total, lambda c: c.active.all))
    grown, kept = total[-1] / total[0], active[-1] / active[0] - 1
    shares = {n: c.active.all / c.total for n, c in theirs.items()}
    (first, first_share), (last, last_share) = list(shares.items())[:: len(shares) - 1]
    what = (
        f"{grown:.1f} times the parameters, yet a token uses only {percent(kept)} more than in the dense model."
        if grown > 1
        else "Every parameter of this model is active."
    )
    source = "morph.count"
    return Frame(
        key="active",
        title="Total grows, active stays",
        caption=(
            f"{what} {first} uses {percent(first_share)} of its parameters, {last} {percent(last_share)}."
        ),
        alt=(
            "Bars, total parameters the active ones in full colour. "
            + " ".join(f"{n}: {t:,}, active {a:,}." for n, t, a in zip(names, total, active))
            + " Released models: "
            + " ".join(f"{n}: {c.total:,}, active {c.active.all:,}." for n, c in theirs.items())
        ),
        claim=Claim(
            text="Experts multiply the total, active counts move by under a tenth; released models use under a third.",
            holds=_active_holds if own is None else _active_is_less,
        ),
        arrays={
            "total": Array(values=total, axes=("model",), source=f"{source}(config).total"),
            "active": Array(values=active, axes=("model",), source=f"{source}(config).active.all"),
            "released_total": Array(
                values=np.array([c.total for c in theirs.values()]), axes=("model",), source=f"{source}, on meta"
            ),
            "released_active": Array(
                values=np.array([c.active.all for c in theirs.values()]), axes=("model",), source=f"{source}, on meta"
            ),
        },
        facts={"aside": "parameters", "names": names, "released": list(theirs)},
        source="Counted on modules built without storage; the released models from their published configs.",
    )  # fmt: skip


def _active_holds(frame: Frame) -> bool:
    total, active = frame.values("total"), frame.values("active")
    share = frame.values("released_active") / frame.values("released_total")
    grows = total[1:].min() > 2 * total[0] and total[0] == active[0]
    return bool(grows and abs(active / active[0] - 1).max() < 0.1 and share.max() < 1 / 3)


def _active_is_less(frame: Frame) -> bool:
    return bool((frame.values("active") <= frame.values("total")).all())


def dense_counterpart(config: ModelConfig) -> ModelConfig:
    """The same model with one dense network as wide as what a token uses of the experts; a dense model as it is."""
    moe = config.moe
    if moe is None:
        return config
    return replace(config, feed_forward=replace(moe.expert, width=moe.active_width))


def combinations_frame(subject: Subject) -> Frame:
    """Frame 7: 8 choose 2, 32 choose 8 and 256 choose 8, each built of as many weights and asked for a token."""
    coarse, fine = (morph.stage(k, "nano").feed_forward for k in (10, 11))
    assert isinstance(coarse, MoE) and isinstance(fine, MoE)
    stored = coarse.n_experts * coarse.expert.width
    finest = replace(fine, expert=replace(fine.expert, width=stored // 256), n_experts=256)
    base = morph.stage(11, "nano")
    models = siblings(subject, [replace(base, feed_forward=moe) for moe in (coarse, fine, finest)])
    sizes = [_expert_weights(model) for model in models]
    ns, ks = (np.array([getattr(m, name) for m in (coarse, fine, finest)]) for name in ("n_experts", "top_k"))
    ways = [math.comb(int(n), int(k)) for n, k in zip(ns, ks)]
    picks = np.full((len(ns), ns.max()), np.nan)
    for i, model in enumerate(models):
        picks[i, : ns[i]] = route(model, TOKENS).table[-1]
    fewer = ks[0] * sizes[0] / (ks[2] * sizes[2])
    return Frame(
        key="combinations",
        title="Finer experts, more combinations",
        caption=(
            f"Cut in four at the same cost, experts combine in {ways[1]:,} ways instead of {ways[0]}. "
            f"{ns[2]} choose {ks[2]} gives {power(ways[2])}, but uses {fewer:.0f} times fewer parameters."
        ),
        alt=" ".join(
            f"A strip of {n} experts with {k} filled, {k * s:,} of {n * s:,} parameters: {power(w)} combinations."
            for n, k, s, w in zip(ns, ks, sizes, ways)
        ),
        claim=Claim(
            text="All three store as much; the first two use as much, the third an eighth; binomials are exact.",
            holds=_combinations_hold,
        ),
        arrays={
            "experts": Array(values=ns, axes=("design",), source="config.feed_forward.n_experts"),
            "chosen": Array(values=ks, axes=("design",), source="config.feed_forward.top_k"),
            "combinations": Array(values=np.array(ways), axes=("design",), source="n! / (k! (n - k)!)"),
            "stored": Array(values=ns * sizes, axes=("design",), source="numel of the experts of one layer"),
            "used": Array(values=ks * sizes, axes=("design",), source="numel of the chosen experts of one layer"),
            "picks": Array(
                values=picks, axes=("design", "expert"), source="blocks.2.feed_forward.router.chosen, last token"
            ),
        },
        facts={"aside": "one layer, equally many parameters", "ways": [power(w) for w in ways]},
        source=f"Stages 10 and 11 at nano width and a variant with {ns[2]} experts, untrained, seed {subject.seed}.",
    )  # fmt: skip


def _expert_weights(subject: Subject) -> int:
    """Weights of one expert."""
    moe = feed_forward(subject.model.blocks[middle_layer(subject)])
    assert isinstance(moe, MixtureOfExperts)
    return sum(p[0].numel() for p in moe.experts.parameters())


def _combinations_hold(frame: Frame) -> bool:
    a = {name: array.values for name, array in frame.arrays.items()}
    exact = [math.comb(int(n), int(k)) for n, k in zip(a["experts"], a["chosen"])] == a["combinations"].tolist()
    same = len(set(a["stored"].tolist())) == 1 and a["used"][0] == a["used"][1] == 8 * a["used"][2]
    return bool(exact and same and (np.nansum(a["picks"], axis=1) == a["chosen"]).all())


def power(n: int) -> str:
    """A count as it is read: in full up to nine digits, then as a power of ten."""
    if n < 10**9:
        return f"{n:,}"
    exponent = math.floor(math.log10(n))
    return f"{n / 10**exponent:.1f}\u00a0×\u00a0{ten(exponent)}"
