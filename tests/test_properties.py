"""Laws of every composition: random steps and forks, in any order, at small odd sizes.

A change is either refused in one line or leaves a model that keeps all laws: its file gives it back, it weighs what
`count` says, reads a text in any chunks alike, and never looks ahead.
"""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.forks import CHANGES, FORKS, apply
from morph.nn.organ import plain_forms
from morph.steps import SLUGS, Size
from tests.models import random_ids, relative_error, stage_model
from tests.test_cache import read_in_chunks
from tests.test_count import solve_flops

BOUND = 1e-10  # fp64, below ten times what is seen
LONGEST = 24


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    """Small widths; now and then an odd head, or heads that do not divide, to be refused where that counts."""
    n_heads, head_dim = draw(st.integers(1, 4)), draw(st.sampled_from((4, 8, 12, 4, 8, 2, 6, 10, 3)))
    return Size(
        vocab_size=draw(st.integers(2, 30)),
        d_model=n_heads * head_dim + draw(st.sampled_from((0,) * 15 + (1,))),
        n_layers=draw(st.sampled_from((4, 2, 3, 5, 6, 1))),
        n_heads=n_heads,
        n_kv_heads=draw(st.sampled_from([n for n in range(1, 5) if n_heads % n == 0] * 5 + [n_heads + 1])),
        context_length=draw(st.integers(1, LONGEST)),
        window=draw(st.integers(1, 7)),
    )


STARTS = st.sampled_from((*SLUGS, *FORKS, *SLUGS[6:]))
WORDS = st.tuples(st.permutations(tuple(CHANGES)), st.integers(0, 16)).map(lambda drawn: drawn[0][: drawn[1]])


def composed(start: str, words: list[str], size: Size) -> ModelConfig | None:
    """What fits of the words, one after another; all others are refused in one line. None when the start is."""
    try:
        config = morph.compose(start, size=size)
    except MorphError as error:
        assert "\n" not in str(error)
        return None
    for word in words:
        try:
            config = apply(word, config, size)
        except MorphError as error:
            assert "\n" not in str(error) and f"{word!r}" in str(error)
    return config


@torch.no_grad()
def keeps_all_laws(config: ModelConfig, data: st.DataObject) -> None:
    """Files, parameters, FLOPs, bytes, both forms, chunks, padding and causality."""
    assert ModelConfig.from_toml(config.to_toml()) == config
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config

    model, count = stage_model(config, dtype=torch.float64), morph.count(config, bytes_per_value=4)
    assert count.total == sum(p.numel() for p in model.parameters())
    limit = min(LONGEST, config.position_limit or LONGEST)
    S = data.draw(st.integers(1, limit), label="length")
    ids = random_ids(model, 3, S, seed=data.draw(st.integers(0, 3), label="seed"))
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.linalg_solve_triangular: solve_flops})
    with counter, plain_forms():
        plain = model(ids[:1])
    flops = count.flops(S)
    assert counter.get_total_flops() == flops.linear + flops.head + flops.scores_dense + flops.delta

    lengths = torch.tensor([S, *data.draw(st.lists(st.integers(1, S), min_size=2, max_size=2), label="lengths")])
    chunks = data.draw(st.lists(st.integers(1, 8), max_size=6), label="chunks")
    cuts = [cut for cut in accumulate(chunks) if cut < S]
    full, together = model(ids, lengths=lengths), read_in_chunks(model, ids, cuts, lengths)
    assert together.isfinite().all()
    assert relative_error(plain, model(ids[:1])) < BOUND
    for row, n in enumerate(lengths.tolist()):
        alone = model(ids[row : row + 1, S - n :])[0]
        assert relative_error(full[row, S - n :], alone) < BOUND
        assert relative_error(together[row, S - n :], alone) < BOUND

    light = morph.build(config)  # in fp32
    cache = light.new_cache(2)
    light(ids[:2], cache=cache)
    assert cache.nbytes == 2 * count.cache_bytes(S)

    place = data.draw(st.integers(0, S - 1), label="changed")
    changed = ids.clone()
    changed[:, place] = (changed[:, place] + 1) % config.vocab_size
    if place:
        before, after = model(ids)[:, :place], model(changed)[:, :place]
        assert relative_error(after, before) < BOUND


def check(size: Size, start: str, words: list[str], data: st.DataObject) -> None:
    if config := composed(start, words, size):
        keeps_all_laws(config, data)


@settings(max_examples=40)
@given(size=sizes(), start=STARTS, words=WORDS, data=st.data())
def test_every_composition_is_refused_or_keeps_all_laws(
    size: Size, start: str, words: list[str], data: st.DataObject
) -> None:
    check(size, start, words, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=600)
@given(size=sizes(), start=STARTS, words=WORDS, data=st.data())
def test_many_more_compositions_do(size: Size, start: str, words: list[str], data: st.DataObject) -> None:
    check(size, start, words, data)
