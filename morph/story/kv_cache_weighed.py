"""Frame 11 of figure 6: every kind of cache that Morph has, weighed tensor by tensor against the formula.

Facts: `rows` (of `name` and `what`: a word on what is cached), `kinds` (of tensors: the columns of `weighed`),
`tokens`, `own` (whether the first row is the model, on a scale of its own).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

import morph
from morph.forks import config_of
from morph.measure.held import SHAPES, held
from morph.model import Decoder
from morph.story.frame import Array, Claim, Frame
from morph.story.kv_cache_step import value_bytes
from morph.story.subject import Subject, subject
from morph.story.written import in_bytes

TOKENS, STEPS = 96, 4
"""Tokens read, and how many of them one at a time."""
BRANCHES = {
    "2017": "a head each", "gqa": "heads shared by two", "mqa": "one for all", "mla": "latents",
    "sparse-attention": "latents, an indexer", "sliding-window": "windows, 3 : 1", "hybrid": "states, 3 : 1",
    "kda": "states, 3 : 1", "lightning": "states, 3 : 1",
}  # fmt: skip
"""Stage or fork -> what it caches."""
KINDS = tuple(SHAPES)


@torch.no_grad()
def weigh(model: Decoder, ids: torch.Tensor) -> dict[str, int]:
    """Bytes by kind of tensor after a prefill and some steps."""
    cache, first = model.new_cache(), max(1, ids.shape[1] - STEPS)
    for piece in (ids[:, :first], *ids[:, first:].split(1, dim=1)):
        if piece.numel():
            model(piece, cache=cache)
    found = dict.fromkeys(KINDS, 0)
    for tensor in held(cache):
        found[tensor.kind] += tensor.nbytes
    return found


def both(one: Subject) -> tuple[list[int], int]:
    """What a model's live cache weighs, by kind of tensor, and what the formula says of it."""
    ids = one.ids(min(TOKENS, one.config.position_limit or TOKENS))
    return list(weigh(one.model, ids).values()), morph.count(one.config, value_bytes(one)).cache_bytes(ids.shape[1])


@cache
def branches(seed: int) -> list[tuple[list[int], int]]:
    """Both numbers of every branch."""
    return [both(subject(config_of(slug), seed=seed)) for slug in BRANCHES]


def weighed_frame(own: Subject, shows_own: bool) -> Frame:
    """Tensors of live caches by kind, and the formula for the same config and length; a reader's own model first."""
    found = branches(own.seed)
    rows = [{"name": slug, "what": what} for slug, what in BRANCHES.items()]
    if shows_own:
        found, rows = [both(own), *found], [{"name": "this model", "what": ""}, *rows]
    weighed, formula = zip(*found)
    sums = np.array(weighed).sum(axis=1)
    used = [i for i, kind in enumerate(KINDS) if any(row[i] for row in weighed)]
    names = [row["name"] for row in rows]
    by_name = dict(zip(names, sums.tolist()))
    most, least = in_bytes(by_name["2017"]), in_bytes(min(by_name[slug] for slug in BRANCHES))
    return Frame(
        key="weighed",
        title="Every cache, on the scales",
        caption=f"{len(rows)} live caches after {TOKENS} tokens, tensor by tensor: each weighs what the formula says, "
        f"to the byte, from {most} down to {least}.",
        alt="A stacked bar for each model, by kind of tensor, and a mark at the formula’s bytes, where all bars end. "
        + " ".join(f"{name}: {in_bytes(int(total))}." for name, total in zip(names, sums)),
        claim=Claim(text="The bytes of all tensors together are the formula’s, exactly.", holds=_holds),
        arrays={
            "weighed": Array(
                values=np.array(weighed)[:, used], axes=("model", "kind"), source="morph.measure.held, nbytes by kind"
            ),
            "formula": Array(
                values=np.array(formula), axes=("model",), source="morph.count(config, bytes a value).cache_bytes"
            ),
        },
        facts={
            "aside": f"after {TOKENS} tokens", "rows": rows, "kinds": [KINDS[i].replace("_", " ") for i in used],
            "tokens": TOKENS, "own": shows_own,
        },
        source=f"Tiny models, untrained, seed {own.seed}, fp32; {TOKENS - STEPS} tokens read at once, {STEPS} singly.",
    )  # fmt: skip


def _holds(frame: Frame) -> bool:
    return np.array_equal(frame.values("weighed").sum(axis=1), frame.values("formula"))
