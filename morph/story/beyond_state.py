"""Frames 3 to 6 of figure 9: one state of a live layer, token by token; interference, erasing, fading.

Arrays: `states` (moment, key feature, value feature), the state after some tokens (3); `pairs`, `sum`, `delta`, the
error of what is recalled by the number of stored pairs (4); `answered`, `value`, `after`, `weight` (5); `alpha` (head,
token) and `half_life` (head,) (6).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from morph.nn.deltalayer import token_by_token, unit
from morph.story.beyond_kit import NO_RULE, NO_STATE, Look
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.residual_kit import near, numbers
from morph.story.written import percent, small

MOMENTS = (1, 4, 16, 64)
TRIALS, MOST = 20, 3
"""Draws of random pairs, and how many times as many pairs as the state has rows are stored at most."""
TITLES = {
    "state": "A state, token by token",
    "interference": "Sums run into each other",
    "erase": "Erase, then write",
    "decay": "Every head forgets at a rate",
}


def _rule(look: Look, layer: int, until: int) -> Tensor:
    """The states (H, Dk, Dv) of a delta layer after `until` tokens, by the rule as it reads."""
    names = ("unit_queries", "unit_keys", "new_values", _decay_name(look, layer), "beta")
    q, k, v, decay, beta = (look.of(layer, name)[None, :, :until] for name in names)
    repeats = v.shape[1] // k.shape[1]
    q, k = (x.repeat_interleave(repeats, dim=1) for x in (q, k))
    decay = decay if decay.dim() == 4 else decay[..., None]
    start = torch.zeros(1, v.shape[1], k.shape[-1], v.shape[-1], dtype=torch.float64)
    return token_by_token(q, k, v, decay, beta, start)[1][0]


def grows(look: Look) -> Frame:
    """One head's state after 1, 4, 16 and 64 tokens."""
    if not look.states:
        return absent("state", TITLES["state"], NO_STATE)
    if not look.deltas:
        return absent("state", TITLES["state"], NO_RULE)
    layer, length = look.deltas[len(look.deltas) // 2], look.ids.shape[1]
    moments = [m for m in MOMENTS if m <= length]
    states = [_rule(look, layer, m) for m in moments]
    last = look.of(layer, "state")
    head = int(last.flatten(1).norm(dim=1).argmax())
    shown = torch.stack([s[head] for s in states])
    whole = _rule(look, layer, length)
    error = float((whole - last).abs().max() / last.abs().max())
    rows, columns = shown.shape[1:]
    return Frame(
        key="state",
        title=TITLES["state"],
        caption=(
            f"One head’s memory is {rows}×{columns} numbers, however long the text. Each token writes its value under "
            f"its key. Token by token it is the layer’s own, to {small(error)}."
        ),
        alt=f"{len(moments)} maps of {rows} by {columns} cells, after {', '.join(map(str, moments))} tokens: faint at "
        "first, then filled with stripes that come and go.",
        claim=Claim(
            text="The state that the rule gives, token by token, is the one that the layer ended with.",
            holds=lambda f: float(f.values("error")) < 1e-4 and f.values("states").shape[1] == f.facts["rows"],
        ),
        arrays={
            "states": numbers(shown, ("moment", "key", "value"), f"blocks.{layer}.attention, head {head}"),
            "error": numbers(error, (), "largest difference from the layer's own state, over its largest number"),
        },
        facts={"aside": f"layer {layer}, head {head}", "moments": moments, "rows": rows, "layer": layer, "head": head},
        source=look.source,
    )  # fmt: skip


def interference(look: Look) -> Frame:
    """Random pairs in a state as wide as the layer's: recalled from a plain sum and from the delta rule."""
    if not look.deltas:
        return absent("interference", TITLES["interference"], NO_RULE if look.states else NO_STATE)
    width = look.of(look.deltas[0], "unit_keys").shape[-1]
    pairs = list(range(1, MOST * width + 1))
    generator = torch.Generator().manual_seed(look.subject.seed)
    errors = {"sum": np.zeros(len(pairs)), "delta": np.zeros(len(pairs)), "orthogonal": np.zeros(width)}
    for _ in range(TRIALS):
        k = unit(torch.randn(len(pairs), width, generator=generator, dtype=torch.float64))
        v = unit(torch.randn(len(pairs), width, generator=generator, dtype=torch.float64))
        basis = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
        for i, n in enumerate(pairs):
            errors["sum"][i] += _forgotten(k[:n].T @ v[:n], k[:n], v[:n]) / TRIALS
            errors["delta"][i] += _forgotten(_stored(k[:n], v[:n]), k[:n], v[:n]) / TRIALS
            if n <= width:
                errors["orthogonal"][n - 1] += _forgotten(basis[:n].T @ v[:n], basis[:n], v[:n]) / TRIALS
    half = width // 2
    return Frame(
        key="interference",
        title=TITLES["interference"],
        caption=(
            f"Store random pairs in {width}×{width} numbers. At {half} of them a plain sum errs by "
            f"{percent(errors['sum'][half - 1])}, the delta rule by {percent(errors['delta'][half - 1])}. "
            f"Orthogonal keys disturb nothing, up to {width} pairs."
        ),
        alt=f"Error of what is recalled against the number of stored pairs, 1 to {pairs[-1]}. The plain sum rises at "
        f"once; the delta rule stays below it; orthogonal keys stay at 0 up to {width}.",
        claim=Claim(
            text="Orthogonal keys recall exactly; with random keys the delta rule errs less than the sum at every "
            "number of pairs from two on.",
            holds=lambda f: bool(
                f.values("orthogonal").max() < 1e-6 and (f.values("delta")[1:] < f.values("sum")[1:]).all()
            ),
        ),
        arrays={
            "pairs": Array(values=np.array(pairs), axes=("count",), source="pairs stored"),
            **{
                name: numbers(np.round(values, 9), ("count",), f"‖Sᵀk − v‖ over ‖v‖, mean of {TRIALS} draws")
                for name, values in errors.items()
            },
        },
        facts={"aside": f"{width} × {width} numbers", "width": width},
        source=f"Random unit keys and values, {TRIALS} draws, seed {look.subject.seed}; decay 1 and β = 1.",
    )  # fmt: skip


def _stored(k: Tensor, v: Tensor) -> Tensor:
    """The state (Dk, Dv) after pairs (n, Dk), (n, Dv) by the delta rule with decay 1 and β = 1."""
    n, width = k.shape
    one = torch.ones(1, 1, n, dtype=k.dtype)
    start = torch.zeros(1, 1, width, v.shape[-1], dtype=k.dtype)
    keys, values = k[None, None], v[None, None]
    return token_by_token(keys, keys, values, 0 * one[..., None], one, start)[1][0, 0]


def _forgotten(state: Tensor, k: Tensor, v: Tensor) -> float:
    """Mean relative error of what a state answers to all stored keys."""
    return float(((k @ state - v).norm(dim=-1) / v.norm(dim=-1)).mean())


def erase(look: Look) -> Frame:
    """What the state answered to the last token's key, the value, and what it answers after the write."""
    if not look.deltas:
        return absent("erase", TITLES["erase"], NO_RULE if look.states else NO_STATE)
    layer, last = look.deltas[len(look.deltas) // 2], look.ids.shape[1]
    before, after = _rule(look, layer, last - 1), _rule(look, layer, last)
    head = int(look.of(layer, "beta")[:, -1].argmax())
    keys = look.of(layer, "unit_keys")
    key = keys[head * keys.shape[0] // before.shape[0], -1]
    value, weight = look.of(layer, "new_values")[head, -1], float(look.of(layer, "beta")[head, -1])
    fade = look.of(layer, _decay_name(look, layer))[head, -1].exp()
    answered = key @ (before[head] * (fade if fade.dim() == 0 else fade[:, None]))
    answers = key @ after[head]
    left, closer = float((answered - value).norm()), float((answers - value).norm())
    return Frame(
        key="erase",
        title=TITLES["erase"],
        caption=(
            f"The state is asked what it holds for this key, and moved {percent(weight)} of the way to the new value. "
            f"Its answer was {left:.2f} away before, {closer:.2f} after."
        ),
        alt="Three rows of bars: what the faded state answers to the key, the new value, and what the state answers "
        "after the write, which lies between them.",
        claim=Claim(
            text="After the write the state answers old + β (value − old), as the key has length 1.",
            holds=lambda f: near(
                f.values("after"),
                f.values("answered") + f.values("weight") * (f.values("value") - f.values("answered")),
                2e-3,
            ),
        ),
        arrays={
            "answered": numbers(answered, ("feature",), f"blocks.{layer}.attention: (αS)ᵀk, last token"),
            "value": numbers(value, ("feature",), f"blocks.{layer}.attention.new_values, last token"),
            "after": numbers(answers, ("feature",), "Sᵀk behind the write"),
            "weight": numbers(weight, (), f"blocks.{layer}.attention.beta, last token"),
        },
        facts={"aside": f"layer {layer}, head {head}", "layer": layer, "head": head},
        source=look.source,
    )  # fmt: skip


def decay(look: Look) -> Frame:
    """α of every head of a layer, token by token, and how soon half of a memory is gone."""
    if not look.deltas:
        return absent("decay", TITLES["decay"], NO_RULE if look.states else NO_STATE)
    layer = look.deltas[len(look.deltas) // 2]
    each = {n: _per_head(look.of(n, _decay_name(look, n))) for n in look.deltas}
    logs = torch.cat([*each.values()])
    alpha = logs.exp()
    half_life = math.log(2) / -logs.mean(dim=1)
    names = [f"{n}.{head}" for n, heads in each.items() for head in range(len(heads))]
    shortest, longest = float(half_life.min()), float(half_life.max())
    return Frame(
        key="decay",
        title=TITLES["decay"],
        caption=(
            f"Before each write α fades all that is stored, as much as the token decides. Of {len(names)} heads the "
            f"quickest loses half in {shortest:.1f} tokens, the slowest in {longest:.0f}."
        ),
        alt=f"A map of {len(names)} heads by {alpha.shape[1]} tokens, coloured by α from 0 to 1; beside each row its "
        f"half-life in tokens, {shortest:.1f} to {longest:.0f}.",
        claim=Claim(
            text="Every α is between 0 and 1, and a head's half-life follows from their geometric mean.",
            holds=lambda f: bool(
                (f.values("alpha") > 0).all()
                and (f.values("alpha") <= 1).all()
                and np.allclose(
                    f.values("half_life"), np.log(2) / -np.log(f.values("alpha")).mean(axis=1), rtol=0.02
                )
            ),
        ),
        arrays={
            "alpha": numbers(alpha, ("head", "token"), "exp of blocks.*.attention.log_decay"),
            "half_life": numbers(half_life, ("head",), "ln 2 over the mean of −log α"),
        },
        facts={"aside": "all state layers", "names": names, "layers": look.deltas, "layer": layer},
        source=look.source,
    )  # fmt: skip


def _decay_name(look: Look, layer: int) -> str:
    """What a layer records: one log α for each head, or one for each of its key features (KDA)."""
    own = f"blocks.{layer}.attention.log_decay"
    return "log_decay" if own in look.seen else "log_decays"


def _per_head(log_decay: Tensor) -> Tensor:
    """(H, S): of a rule with a decay for each key feature, their mean."""
    return log_decay if log_decay.dim() == 2 else log_decay.mean(-1)
