"""The cache law: full forward = prefill and decoding = any chunking, padded or not, for every stage."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import morph
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn.cache import KVCache, StateCache
from tests.models import STAGES, random_ids, relative_error, stage_model

LENGTH = 70  # longer than four windows of 16 (so that blocks run), not a multiple of window or chunk


def read_in_chunks(model: Decoder, ids: Tensor, cuts: list[int], lengths: Tensor | None = None) -> Tensor:
    """Logits of `ids` (B, S) read in the chunks that `cuts` (ascending) separate."""
    cache = model.new_cache(len(ids))
    logits, edges = [], [0, *cuts, ids.shape[1]]
    for start, end in pairwise(edges):
        inside = None
        if lengths is not None:
            inside = (lengths - (ids.shape[1] - end)).clamp(0, end - start)  # a row's tokens are its last ones
        logits.append(model(ids[:, start:end], lengths=inside, cache=cache))
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
@torch.no_grad()
def test_prefill_and_decoding_equal_the_full_pass(stage: int, dtype: torch.dtype, bound: float) -> None:
    model = stage_model(stage, dtype=dtype)
    ids = random_ids(model, 2, LENGTH)
    full = model(ids)
    decoded = read_in_chunks(model, ids, list(range(1, LENGTH)))  # token by token
    prefilled = read_in_chunks(model, ids, list(range(61, LENGTH)))  # a prefill longer than the window, then tokens
    assert relative_error(decoded, full) < bound
    assert relative_error(prefilled, full) < bound


@pytest.mark.parametrize("stage", STAGES)
@settings(max_examples=6)
@given(data=st.data())
@torch.no_grad()
def test_any_chunking_of_a_padded_batch_equals_its_rows_alone(stage: int, data: st.DataObject) -> None:
    model = stage_model(stage, dtype=torch.float64)
    cuts = sorted(data.draw(st.sets(st.integers(1, LENGTH - 1), max_size=8), label="cuts"))
    lengths = torch.tensor(
        [LENGTH, *data.draw(st.lists(st.integers(1, LENGTH), min_size=2, max_size=2), label="lengths")]
    )
    ids = random_ids(model, 3, LENGTH, seed=data.draw(st.integers(0, 5), label="seed"))
    together = read_in_chunks(model, ids, cuts, lengths)
    at_once = model(ids, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(ids[row : row + 1, LENGTH - length :])[0]
        assert relative_error(together[row, LENGTH - length :], alone) < 1e-12
        assert relative_error(at_once[row, LENGTH - length :], alone) < 1e-12
    assert together.isfinite().all()


@pytest.mark.parametrize("stage", STAGES)
@torch.no_grad()
def test_decoding_after_padding_ends_needs_no_lengths(stage: int) -> None:
    model = stage_model(stage, dtype=torch.float64)
    ids, lengths = random_ids(model, 2, 30), torch.tensor([20, 7])
    cache = model.new_cache(2)
    model(ids[:, :20], lengths=lengths, cache=cache)
    last = [model(ids[:, t : t + 1], cache=cache)[:, 0] for t in range(20, 30)][-1]
    for row, length in enumerate(lengths.tolist()):
        assert relative_error(last[row], model(ids[row : row + 1, 20 - length :])[0, -1]) < 1e-12


@pytest.mark.parametrize("stage", STAGES)
@torch.no_grad()
def test_the_future_does_not_reach_the_past(stage: int) -> None:
    model = stage_model(stage, dtype=torch.float64)
    ids = random_ids(model, 1, LENGTH)
    changed = ids.clone()
    changed[0, 29:] = (changed[0, 29:] + 7) % 256
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :29], after[:, :29]) or relative_error(after[:, :29], before[:, :29]) < 1e-13
    assert relative_error(after[:, 29], before[:, 29]) > 1e-3, "and the present does change"


@pytest.mark.parametrize("stage", [0, 7, 9, 14])
@torch.no_grad()
def test_rows_can_be_selected_and_a_snapshot_comes_back(stage: int) -> None:
    model = stage_model(stage, dtype=torch.float64)
    ids = random_ids(model, 3, 40)
    cache = model.new_cache(3)
    model(ids[:, :30], lengths=torch.tensor([30, 12, 21]), cache=cache)
    moment, weight = cache.snapshot(), cache.nbytes
    first = model(ids[:, 30:35], cache=cache)
    cache.restore(moment)
    assert cache.nbytes == weight and cache.columns == 30
    assert torch.equal(model(ids[:, 30:35], cache=cache), first)
    cache.restore(moment)
    order = torch.tensor([2, 0, 0])
    cache.select(order)
    assert relative_error(model(ids[order, 30:35], cache=cache), first[order]) < 1e-12


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("length", [5, 16, 45])
@torch.no_grad()
def test_cache_bytes_are_what_is_held(stage: int, length: int) -> None:
    model = stage_model(stage)
    cache, count = model.new_cache(2), morph.count(model.config, bytes_per_value=4)
    model(random_ids(model, 2, length), cache=cache)
    assert cache.nbytes == 2 * count.cache_bytes(length)
    for _ in range(20):
        model(random_ids(model, 2, 1), cache=cache)
    assert cache.nbytes == 2 * count.cache_bytes(length + 20)


@torch.no_grad()
def test_an_evicted_token_is_out_of_sight() -> None:
    """Evicting columns equals never having seen their keys: checked on one layer, where nothing else carries them."""
    cache = KVCache()
    keys, values = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
    cache.append(keys, values, torch.arange(6))
    cache.evict(torch.tensor([0, 3]))
    assert cache.columns is not None and cache.columns.tolist() == [1, 2, 4, 5]
    seen, _, columns = cache.append(keys[:, :, :1], values[:, :, :1], torch.tensor([6]))
    assert torch.equal(seen[:, :, :4], keys[:, :, [1, 2, 4, 5]]) and columns.tolist() == [1, 2, 4, 5, 6]

    windowed = KVCache(window=4)
    windowed.append(keys, values, torch.arange(6))
    windowed.evict(torch.tensor([3, 4]))
    windowed.append(keys[:, :, :1], values[:, :, :1], torch.tensor([6]))
    assert windowed.columns is not None and windowed.columns.tolist() == [5, 6], "2 has left the window of 6"

    model = stage_model(9, dtype=torch.float64)
    ids, held = random_ids(model, 1, 30), model.new_cache(1)
    model(ids[:, :29], cache=held)
    untouched = model(ids, cache=None)[:, -1]
    held.evict(torch.arange(4))
    assert relative_error(model(ids[:, 29:], cache=held)[:, -1], untouched) > 1e-4
    kinds = [
        layer.columns[0].item() for layer in held.layers if isinstance(layer, KVCache) and layer.columns is not None
    ]
    assert kinds == [14, 14, 14, 4]
    assert isinstance(held.layers[0], KVCache)
    held.layers[0].evict(torch.arange(20))  # layers that hold different columns get masks of their own
    assert model(ids[:, :2], cache=held).isfinite().all()


def test_what_a_cache_refuses() -> None:
    model = stage_model(14)
    cache = model.new_cache(2)
    with pytest.raises(MorphError, match=r"3 rows for a cache of 2.*new_cache\(3\)"):
        model(random_ids(model, 3, 4), cache=cache)
    assert cache.columns == 0
    model(random_ids(model, 2, 4), lengths=torch.tensor([4, 0]), cache=cache)
    with pytest.raises(MorphError, match="row 0 is padded by 2 after its first token"):
        model(random_ids(model, 2, 4), lengths=torch.tensor([2, 4]), cache=cache)
    model(random_ids(model, 2, 4), lengths=torch.tensor([4, 1]), cache=cache)
    assert cache.pads is not None and cache.pads.tolist() == [0, 7]
    assert isinstance(cache.layers[0], StateCache) and isinstance(cache.layers[3], KVCache)


def test_a_cache_serves_models_of_its_config_only() -> None:
    """One whose windows are shorter would drop what this model still sees."""
    model, other = stage_model(7), stage_model(9)
    ids = random_ids(model, 2, 3)
    with pytest.raises(MorphError, match="another config"):
        model(ids, cache=other.new_cache(2))
    with pytest.raises(MorphError, match="another config"):
        model.new_cache(2).restore(other.new_cache(2).snapshot())
    assert model(ids, cache=stage_model(7, seed=3).new_cache(2)).shape == (2, 3, 256)


@pytest.mark.parametrize("rows", [[0], torch.tensor([2]), torch.tensor([-1]), torch.tensor([0.5]), torch.tensor([[0]]),
                                  torch.tensor([], dtype=torch.long)], ids=str)  # fmt: skip
def test_rows_that_are_not_there_are_told(rows: Any) -> None:
    model = stage_model("sparse-attention")
    cache = model.new_cache(2)
    model(random_ids(model, 2, 3), cache=cache)
    with pytest.raises(MorphError, match=r"rows = .* whole numbers from 0 to 1"):
        cache.select(rows)
    with pytest.raises(MorphError, match="columns = "):
        cache.evict([0])  # type: ignore[arg-type]
