"""Positions in whole models: caches, counts and forms agree whatever tells places apart; what cannot be is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph import config as c
from morph.errors import MorphError
from morph.nn import context as context_module
from morph.nn.mask import Mask
from morph.nn.organ import plain_forms
from morph.steps import stage
from tests.models import random_ids, relative_error
from tests.test_cache import LENGTH, read_in_chunks
from tests.test_positions import DOUBLE, IN_LAYERS, built, with_position

UNDER_WINDOWS = ("partial", "yarn", "alibi", "none", "none-far", "yarn-far", "alibi-near")  # one of each path
EACH_IN_LAYERS = pytest.mark.parametrize("position", IN_LAYERS.values(), ids=IN_LAYERS)

# ---- laws ----


@pytest.mark.parametrize("name", UNDER_WINDOWS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3e-5), (DOUBLE, 1e-12)])
@torch.no_grad()
def test_the_cache_law_holds_under_windows(name: str, dtype: torch.dtype, bound: float) -> None:
    """Full pass = token by token = a prefill longer than the window = random chunks; rows padded = rows alone."""
    model = built(with_position(9, IN_LAYERS[name]), dtype=dtype)
    ids, lengths = random_ids(model, 3, LENGTH), torch.tensor([LENGTH, LENGTH - 23, 9])
    full, padded = model(ids), model(ids, lengths=lengths)
    cuts = sorted(random.Random(0).sample(range(1, LENGTH), 5))
    for way in (list(range(1, LENGTH)), list(range(LENGTH - 9, LENGTH)), cuts):
        assert relative_error(read_in_chunks(model, ids, way), full) < bound
    chunked = read_in_chunks(model, ids, cuts, lengths)
    assert chunked.isfinite().all()
    for row, n in enumerate(lengths.tolist()):
        alone = model(ids[row : row + 1, LENGTH - n :])[0]
        assert relative_error(padded[row, LENGTH - n :], alone) < bound
        assert relative_error(chunked[row, LENGTH - n :], alone) < bound


@EACH_IN_LAYERS
@torch.no_grad()
def test_the_counting_law_holds(position: c.Position) -> None:
    """Rotation and biases are element-wise: no FLOPs, no parameters, no bytes in the cache."""
    model = built(with_position(9, position))
    counted, rope = morph.count(model.config), morph.count(stage(9, "nano"))
    counter = FlopCounterMode(display=False)
    with counter, plain_forms():
        model(random_ids(model, 1, 45))
    flops = counted.flops(45)
    assert counter.get_total_flops() == flops.linear + flops.head + flops.scores_dense
    assert (flops, counted.total) == (rope.flops(45), rope.total)
    cache = model.new_cache(1)
    model(random_ids(model, 1, 45), cache=cache)
    assert cache.nbytes == morph.count(model.config, bytes_per_value=4).cache_bytes(45)


@EACH_IN_LAYERS
@torch.no_grad()
def test_plain_and_fast_forms_agree_under_windows(position: c.Position) -> None:
    model = built(with_position(9, position), dtype=DOUBLE)
    ids = random_ids(model, 2, LENGTH)
    for lengths in (None, torch.tensor([LENGTH, 41])):
        fast = model(ids, lengths=lengths)
        with plain_forms():
            assert relative_error(model(ids, lengths=lengths), fast) < 1e-12


@pytest.mark.parametrize(
    ("position", "is_symmetric"),
    [
        (c.NoPosition(), True), (c.Rope(), False), (c.PartialRope(fraction=0.5), False), (c.Alibi(), False),
        (c.Sinusoid(), False), (c.LearnedPosition(length=64), False),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)  # fmt: skip
@torch.no_grad()
def test_without_mask_and_position_a_shuffle_is_not_noticed(
    position: c.Position, is_symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shuffled tokens give shuffled outputs; with a position, or the causal mask alone, they do not."""
    model = built(with_position(4, position), dtype=DOUBLE)
    ids, order = random_ids(model, 1, 30), torch.randperm(30)
    assert relative_error(model(ids[:, order]), model(ids)[:, order]) > 0.01, "the causal mask tells order"
    monkeypatch.setattr(context_module, "build_mask", lambda *_: Mask(None, is_causal=False))
    error = relative_error(model(ids[:, order]), model(ids)[:, order])
    assert error < 1e-12 if is_symmetric else error > 0.01


@pytest.mark.parametrize("position", [*IN_LAYERS.values(), c.LearnedPosition(length=64)], ids=[*IN_LAYERS, "learned"])
def test_files_give_back_the_record(position: c.Position) -> None:
    config = with_position(9, position)
    assert c.ModelConfig.from_toml(config.to_toml()) == config == c.ModelConfig.from_dict(config.to_dict())
    assert morph.diff(config, config) == []
    if config.position != c.Rope():
        assert {change.path.split(".")[0] for change in morph.diff(stage(9, "nano"), config)} == {"position"}


# ---- refusals ----


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: c.PartialRope(fraction=1.5), ["partial-rope.fraction = 1.5", "above 1"]),
        (lambda: c.PartialRope(fraction=0.0), ["fraction = 0.0", "above 0"]),
        (lambda: with_position(4, c.PartialRope(fraction=0.25)), ["rotates 3 of head_dim = 12", "even", "0.166667"]),
        (lambda: with_position(4, c.PartialRope(fraction=0.3)), ["rotates 3.6 of head_dim = 12"]),
        (lambda: c.LinearRope(factor=0.5), ["linear-rope.factor = 0.5", "1 or more"]),
        (lambda: c.NtkRope(factor=0.0), ["ntk-rope.factor = 0.0", "above 0"]),
        (lambda: c.YarnRope(factor=4.0, original_length=0), ["yarn.original_length = 0", ">= 1"]),
        (
            lambda: c.YarnRope(factor=4.0, original_length=64, beta_fast=0.5),
            ["beta_fast = 0.5", "beta_slow = 1.0"],
        ),
        (lambda: c.YarnRope(factor=4.0, original_length=64, base=1.0), ["yarn.base = 1.0", "above 1"]),
        (lambda: c.YarnRope(factor=4.0, original_length=64, truncate=1), ["truncate = 1", "true or false"]),  # type: ignore[arg-type]
        (lambda: c.YarnRope(factor=4.0, original_length=64, attention_scale=-1.0), ["attention_scale = -1.0"]),
        (lambda: c.YarnRope(factor=4.0, original_length=64, attention_scale="1"), ["attention_scale = '1'"]),  # type: ignore[arg-type]
        (
            lambda: c.Llama3Rope(factor=8.0, original_length=64, low_factor=4.0),
            ["high_factor = 4.0", "low_factor = 4.0"],
        ),
        (lambda: c.LearnedPosition(length=0), ["learned-position.length = 0"]),
        (lambda: with_position(0, c.LearnedPosition(length=63)), ["length = 63", "context_length = 64"]),
        (lambda: c.PerLayer(local=c.Sinusoid(), global_=c.Rope()), ["per-layer.local", "alibi, no-position"]),  # type: ignore[arg-type]
        (lambda: with_position(9, None), ["model.position = None", "learned-position", "per-layer"]),  # type: ignore[arg-type]
        (
            lambda: with_position(4, c.NtkRope(factor=4.0), attention=c.Attention(n_heads=24, n_kv_heads=24)),
            ["head_dim = 2", "needs two", "4 or more"],
        ),
        (
            lambda: with_position(
                9, c.PerLayer(local=c.Alibi(), global_=c.Rope()), attention=c.Attention(n_heads=16, n_kv_heads=16)
            ),
            ["head_dim = 3 is odd", "pairs"],
        ),
    ],
)
def test_impossible_positions_are_refused_in_one_line(make: Any, words: list[str]) -> None:
    with pytest.raises(MorphError) as error:
        make()
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
