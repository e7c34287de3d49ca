"""Figure 8, mixture of experts: twelve frames from a dense network to experts on several devices.

Frames 1 to 5, 8 and 12 read one routed layer, the middle one, while a model reads the figures' passage. By default
they show the recorded model `experts-auxiliary`, whose router chooses by probability alone; frame 12 shows `experts`,
whose load is even. Frames 6 and 7 are counts (`moe_counts`), frames 9 to 11 recorded training runs (`moe_balance`).

Facts of every frame that shows experts: `layer`, `n_experts`, `top_k`, `n_shared`, `tokens` as they are written;
`token` is the number of the one that frames 2, 3 and 5 follow, the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.nn import Parameter

from morph.config import GroupLimitedRouter
from morph.nn.moe import MixtureOfExperts
from morph.story.frame import Array, Claim, Figure, Frame, absent
from morph.story.moe_balance import KEYS, RECORDINGS, TITLES, balance_frames, kind_of
from morph.story.moe_counts import active_frame, combinations_frame, dense_counterpart
from morph.story.moe_devices import KEY as DEVICES_KEY
from morph.story.moe_devices import TITLE as DEVICES_TITLE
from morph.story.moe_devices import devices_frame
from morph.story.moe_layer import (
    TOKENS,
    Routing,
    facts_of,
    feed_forward,
    named,
    reads,
    route,
    routed_layers,
    router_of,
    slices,
)
from morph.story.subject import Subject, siblings
from morph.story.subject import subject as find
from morph.story.threads import one_thread
from morph.story.written import percent, small

NAME, NUMBER, TITLE = "moe", 8, "Mixture of experts"
SLICES = 8
"""Into how many slices a reader's dense network is cut for frame 1; others into as many as experts would run."""
NO_ROUTER = "This model has no router: every token uses the whole of its feed-forward network."
NO_DENSE = "Every layer of this model has experts: there is no dense network in it to show."
DENSE_TITLE = "Dense: every parameter, every token"
NO_SHARED = "This model has no shared expert: all of a token's experts are chosen."
ABSENT = (
    ("experts", "Experts and a router"),
    ("router", "The router scores one token"),
    ("dispatch", "Each token picks its own"),
    ("combination", "The weighted sum"),
    ("shared", "One expert serves every token"),
    *((KEYS[kind], TITLES[kind]) for kind in KEYS),
    (DEVICES_KEY, DEVICES_TITLE),
)
"""Keys and titles of the frames that a model without a router lacks, in order."""
TITLE_OF = dict(ABSENT)


@one_thread()
def figure(*, model: Any = None, seed: int = 0) -> Figure:
    """Figure 8 of the recorded models of `seed`, or of one model (anything that `subject` takes).

    Raises:
        MorphError: when `model` names nothing, or no model was recorded with `seed`.
    """
    if model is None:
        runs = {kind: find(name, seed=seed) for kind, name in RECORDINGS.items()}
        shown, spread = runs["loss"], runs["bias"]
    else:
        shown = spread = find(model, seed=seed)
        moe = shown.config.moe
        runs = {kind_of(moe): shown} if moe and not shown.is_released else {}
    name = "this checkpoint" if shown.is_released else "your model"
    counts = (active_frame(None if model is None else shown.config, name), combinations_frame(shown))
    if shown.config.moe is None:
        gone = [absent(key, title, NO_ROUTER) for key, title in ABSENT]
        frames = (_dense(shown, SLICES), *gone[:4], *counts, *gone[4:])
    else:
        here, moe = route(shown, TOKENS), shown.config.moe
        dense = None if shown.is_released else siblings(shown, [dense_counterpart(shown.config)])[0]
        frames = (
            _dense_beside(shown, here) if dense is None else _dense(dense, moe.top_k + moe.n_shared, here=here),
            _experts(shown, dense, here),
            _router(shown, here),
            _dispatch(shown, here),
            _combination(shown, here),
            *counts,
            _shared(shown, here),
            *balance_frames(runs),
            devices_frame(spread),
        )
    provenance = {**shown.provenance, "beside": [run.provenance for run in runs.values() if run is not shown]}
    return Figure(name=NAME, number=NUMBER, title=TITLE, frames=frames, provenance=provenance)


# ---- words and weights ----


def _listed(numbers: np.ndarray) -> str:
    return ", ".join(map(str, sorted(numbers.tolist())))


def _weights(subject: Subject, layer: int) -> int:
    return sum(p.numel() for p in feed_forward(subject.model.blocks[layer]).parameters())


def _matrices(subject: Subject, layer: int) -> list[tuple[str, Parameter]]:
    """The matrices of a dense network by their names, biases left out."""
    network = feed_forward(subject.model.blocks[layer])
    return [(name.removesuffix(".weight"), p) for name, p in network.named_parameters() if p.ndim == 2]


# ---- frames 1 and 2: one network, many networks ----


def _all_different(frame: Frame) -> bool:
    return len(set(frame.values("chosen").tolist())) == frame.facts["top_k"]


EXPERTS_ALONE = Claim(
    text="A token uses top_k different experts, and the shared ones.",
    holds=lambda f: _all_different(f) and (f.values("shared") > 0) == (f.facts["n_shared"] > 0),
)
EXPERTS_LIKE_DENSE = Claim(
    text="The experts that a token uses weigh as much as the dense network; the router comes on top.",
    holds=lambda f: bool(
        f.values("dense") == f.values("expert") * f.facts["top_k"] + f.values("shared") and _all_different(f)
    ),
)


def _dense_beside(subject: Subject, here: Routing) -> Frame:
    """A dense layer of a released model with experts: nothing is built in the place of one that it has not."""
    routed = routed_layers(subject)
    dense = [layer for layer in range(subject.config.n_layers) if layer not in routed]
    return _dense(subject, SLICES, layer=dense[-1]) if dense else absent("dense", DENSE_TITLE, NO_DENSE)


def _dense(subject: Subject, count: int, *, here: Routing | None = None, layer: int | None = None) -> Frame:
    """With `here` the subject is the dense counterpart of the routed model that `here` is of."""
    if layer is None:
        layer = here.layer if here else subject.config.n_layers // 2
    tokens, sizes = slices(subject, layer, TOKENS, count)
    weights = _weights(subject, layer)
    name = "The model of the next frames with one dense network in each layer, untrained" if here else named(subject)
    return Frame(
        key="dense",
        title=DENSE_TITLE,
        caption=(
            f"One network of {weights:,} parameters. Cut into {count} slices, each adds something to every token: "
            f"the smallest addition is {percent(sizes.min() / sizes.mean())} of the mean."
        ),
        alt=(
            f"A map of {len(tokens)} tokens by {count} slices of one feed-forward network: how much each slice adds to "
            f"each token, a length from {sizes.min():.2g} to {sizes.max():.2g}. No cell is empty."
        ),
        claim=Claim(
            text="Every slice of the network adds something to every token: all weights are used.",
            holds=lambda f: bool((f.values("sizes") > 0).all() and f.values("weights") > 0),
        ),
        arrays={
            "sizes": Array(
                values=sizes.round(4).astype(float),
                axes=("token", "slice"),
                source=f"blocks.{layer}.feed_forward: length of W_down[:, slice] @ hidden[slice]",
            ),
            "weights": Array(values=np.array(weights), axes=(), source=f"numel of blocks.{layer}.feed_forward"),
        },
        facts={
            "aside": f"layer {layer}", "layer": layer, "tokens": list(tokens), "n_slices": count,
            "n_experts": here.probabilities.shape[1] if here else 4 * count, "n_shared": 0,
            "matrices": {name: list(p.shape) for name, p in _matrices(subject, layer)},
        },
        source=f"{name}, reading {subject.reads}.",
    )  # fmt: skip


def _experts(subject: Subject, dense: Subject | None, here: Routing) -> Frame:
    """Beside a `dense` counterpart, where one was built, the experts of a token weigh as much."""
    facts, layer = facts_of(subject, here), feed_forward(subject.model.blocks[here.layer])
    assert isinstance(layer, MixtureOfExperts)
    n, k, always = facts["n_experts"], facts["top_k"], facts["n_shared"]
    one = sum(p[0].numel() for p in layer.experts.parameters())
    router, shared = (sum(p.numel() for p in part.parameters()) for part in (layer.router, layer.shared))
    beside = ", and the shared one always runs" if always == 1 else f", and {always} always run" if always else ""
    beside_dense = {}
    if dense is not None:
        source = "numel of frame 1's network"
        beside_dense = {"dense": Array(values=np.array(_weights(dense, here.layer)), axes=(), source=source)}
    return Frame(
        key="experts",
        title=TITLE_OF["experts"],
        caption=(
            f"{n} small networks replace one. A router of {router:,} parameters picks {k} for each token{beside}: "
            f"{one * k + shared:,} of {one * n + shared:,} parameters work."
        ),
        alt=(
            f"A token goes to a router, which has a line to each of {n} experts in a row. The lines and tiles of the "
            f"{k} chosen are filled: {_listed(here.chosen[-1])}."
            + (f" Beside them {always} shared, always filled." if always else "")
        ),
        claim=EXPERTS_LIKE_DENSE if dense else EXPERTS_ALONE,
        arrays={
            "expert": Array(values=np.array(one), axes=(), source="numel of one expert"),
            "router": Array(values=np.array(router), axes=(), source="numel of the router"),
            "shared": Array(values=np.array(shared), axes=(), source="numel of the shared experts"),
            **beside_dense,
            "chosen": Array(values=here.chosen[-1], axes=("rank",), source=f"{router_of(here)}.chosen, last token"),
        },
        facts=facts,
        source=reads(subject),
    )


# ---- frames 3 to 5: one token chooses, many choose, the sum ----


def _router(subject: Subject, here: Routing) -> Frame:
    facts, p, chosen = facts_of(subject, here), here.probabilities[-1], here.chosen[-1]
    n, k = facts["n_experts"], facts["top_k"]
    adds_to_one = abs(float(p.sum()) - 1) < 1e-3  # a sigmoid router scores each expert by itself
    what = "probability" if adds_to_one else "score"
    how = "" if here.bias is None else ", a selection bias added,"
    biases = {}
    if here.bias is not None:
        source = f"{router_of(here)}.selection_bias"
        biases = {"bias": Array(values=here.bias.round(6).astype(float), axes=("expert",), source=source)}
    end = f"{'holds' if k == 1 else 'hold'} {percent(p[chosen].sum() / p.sum())} of {'it' if adds_to_one else 'all'}"
    return Frame(
        key="router",
        title=TITLE_OF["router"],
        caption=(
            f"The router gives each of {n} experts a {what}. The {'' if k == 1 else f'{k} '}highest{how} {end}; "
            f"an even router would give {'it' if k == 1 else 'them'} {percent(k / n)}."
        ),
        alt=(
            f"A bar for each of {n} experts: its {what} for the token {here.tokens[-1]!r}, the last of "
            f"{''.join(here.tokens)!r}. Full are the chosen: "
            + ", ".join(f"{e} with {p[e]:.3f}" for e in sorted(chosen.tolist()))
            + "."
        ),
        claim=Claim(
            text="No expert left out has more, bias included, than a chosen one; probabilities add to 1.",
            holds=_best_are_chosen,
        ),
        arrays={
            "probabilities": Array(
                values=p.round(6).astype(float), axes=("expert",), source=f"{router_of(here)}.probabilities"
            ),
            "chosen": Array(values=chosen, axes=("rank",), source=f"{router_of(here)}.chosen"),
            **biases,
        },
        facts={**facts, "adds_to_one": adds_to_one, "groups": _groups(subject)},
        source=reads(subject),
    )


def _groups(subject: Subject) -> int:
    """In how many groups the router chooses, 1 when it is free to take any expert."""
    moe = subject.config.moe
    return moe.router.n_groups if moe and isinstance(moe.router, GroupLimitedRouter) else 1


def _best_are_chosen(frame: Frame) -> bool:
    p, chosen = frame.values("probabilities"), frame.values("chosen")
    score, free = p.copy(), frame.facts["groups"] == 1
    if "bias" in frame.arrays:
        score += frame.values("bias")
    left_out = np.delete(score, chosen)
    best = not left_out.size or score[chosen].min() >= left_out.max() - 2e-6
    return bool((best or not free) and (abs(p.sum() - 1) < 1e-3) == frame.facts["adds_to_one"])


def _dispatch(subject: Subject, here: Routing) -> Frame:
    facts, table = facts_of(subject, here), here.table
    load = table.sum(axis=0)
    idle, patterns = int((load == 0).sum()), len({tuple(row) for row in table.tolist()})
    none = "no expert none" if idle == 0 else f"{idle} expert{'' if idle == 1 else 's'} none"
    return Frame(
        key="dispatch",
        title=TITLE_OF["dispatch"],
        caption=(
            f"{len(table)} tokens choose {facts['top_k']} experts each, in {patterns} different ways. "
            f"The fullest expert gets {load.max()} tokens, {none}; an even share is {table.sum() / len(load):.1f}."
        ),
        alt=(
            f"A grid of {len(table)} tokens by {len(load)} experts, {table.sum()} cells filled. "
            f"Tokens per expert: {', '.join(map(str, load.tolist()))}."
        ),
        claim=Claim(
            text="Every token has exactly k experts, and the counts under the grid are its columns' sums.",
            holds=lambda f: bool(
                (f.values("table").sum(axis=1) == f.facts["top_k"]).all()
                and (f.values("table").sum(axis=0) == f.values("load")).all()
            ),
        ),
        arrays={
            "table": Array(values=table.astype(int), axes=("token", "expert"), source=f"{router_of(here)}.chosen"),
            "load": Array(values=load, axes=("expert",), source="column sums of the table"),
        },
        facts=facts,
        source=reads(subject),
    )


def _combination(subject: Subject, here: Routing) -> Frame:
    facts, order = facts_of(subject, here), np.argsort(here.chosen[-1])
    chosen, weights, parts = (a[-1][order] for a in (here.chosen, here.weights, here.parts))
    total = parts.sum(axis=0) + here.shared[-1]
    error = float(np.abs(total - here.output[-1]).max())
    beside = "then add the shared one's" if facts["n_shared"] else "and add up"
    return Frame(
        key="combination",
        title=TITLE_OF["combination"],
        caption=(
            f"Scale the {facts['top_k']} outputs by their router weights, which add up to {weights.sum():.3g}, "
            f"{beside}. The layer's own output differs by {small(error)} at most."
        ),
        alt=(
            "Lines rise from the chosen experts to their weights: "
            + ", ".join(f"expert {e} times {w:.2f}" for e, w in zip(chosen, weights))
            + f". They meet in a sum of {len(total)} channels, drawn above the layer's own output; both look alike."
        ),
        claim=Claim(
            text="The weighted outputs and the shared one add up to what the layer gave.",
            holds=lambda f: bool(
                np.abs(f.values("sum") - f.values("output")).max()
                < 1e-5 * max(1.0, np.abs(f.values("output")).max())
                and f.values("error") < 1e-5 * max(1.0, np.abs(f.values("output")).max())
                and len(f.values("weights")) == f.facts["top_k"]
            ),
        ),
        arrays={
            "chosen": Array(values=chosen, axes=("expert",), source=f"{router_of(here)}.chosen, in order"),
            "weights": Array(
                values=weights.round(6).astype(float), axes=("expert",), source=f"{router_of(here)}.weights"
            ),
            "sizes": Array(
                values=np.linalg.norm(parts, axis=1).round(4).astype(float), axes=("expert",),
                source=f"length of weight x blocks.{here.layer}.feed_forward.experts.parts",
            ),
            "sum": Array(values=total, axes=("channel",), source="sum of weight x experts.parts, and shared.*.output"),
            "output": Array(values=here.output[-1], axes=("channel",), source=f"blocks.{here.layer}.feed_forward"),
            "error": Array(values=np.array(error), axes=(), source="largest difference of sum and output, in fp32"),
        },
        facts={**facts, "error": small(error)},
        source=reads(subject),
    )  # fmt: skip


# ---- frame 8: the shared expert ----


SHARED_ALONE = Claim(
    text="The shared expert adds something to every token.", holds=lambda f: bool((f.values("ratio") > 0).all())
)
SHARED_AMONG_CHOSEN = Claim(
    text="The shared expert adds something to every token; no chosen expert serves them all.",
    holds=lambda f: bool(
        (f.values("ratio") > 0).all() and f.values("table").sum(axis=0).max() < len(f.values("ratio"))
    ),
)


def _shared(subject: Subject, here: Routing) -> Frame:
    facts = facts_of(subject, here)
    if not facts["n_shared"]:
        return absent("shared", TITLE_OF["shared"], NO_SHARED)
    shared, parts = np.linalg.norm(here.shared, axis=-1), np.linalg.norm(here.parts, axis=-1)
    ratio = shared / parts.mean(axis=1)
    who = "The shared expert serves" if facts["n_shared"] == 1 else f"{facts['n_shared']} shared experts serve"
    return Frame(
        key="shared",
        title=TITLE_OF["shared"],
        caption=(
            f"{who} every token, never chosen. Over the {len(ratio)} tokens it adds {ratio.mean():.1f} times "
            f"as much as a chosen expert does on average, for one token {ratio.max():.1f} times."
        ),
        alt=(
            f"The grid of tokens and experts of frame 4, and at its right a filled column for the shared expert. "
            f"Beside each row a bar: what it adds over what a chosen one adds, {ratio.min():.1f} to {ratio.max():.1f}."
        ),
        claim=SHARED_ALONE if subject.is_released else SHARED_AMONG_CHOSEN,
        arrays={
            "table": Array(
                values=here.table.astype(int), axes=("token", "expert"), source=f"{router_of(here)}.chosen"
            ),
            "ratio": Array(
                values=ratio.round(4).astype(float), axes=("token",),
                source="length of shared.*.output over the mean length of weight x experts.parts",
            ),
        },
        facts=facts,
        source=reads(subject),
    )  # fmt: skip
