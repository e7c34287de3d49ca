"""The counting law: what `count` says is what live objects weigh and what torch's FLOP counter sees."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.errors import MorphError
from morph.nn.organ import plain_forms
from morph.steps import stage
from tests.models import STAGES, random_ids


def solve_flops(system: torch.Size, sides: torch.Size, *args: Any, **kwargs: Any) -> int:
    """Forward substitution: n² multiply-adds per right-hand side, halved by the triangle, two FLOPs each."""
    return math.prod(system[:-2]) * system[-1] ** 2 * sides[-1]


@pytest.mark.parametrize("k", STAGES)
@pytest.mark.parametrize(("size", "length"), [("nano", 45), ("nano", 64), ("tiny", 33)])
@torch.no_grad()
def test_flops_are_those_of_the_plain_form(k: int, size: str, length: int) -> None:
    model = morph.build(stage(k, size))
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.linalg_solve_triangular: solve_flops})
    with counter, plain_forms():
        model(random_ids(model, 1, length))
    flops = morph.count(stage(k, size)).flops(length)
    assert counter.get_total_flops() == flops.linear + flops.head + flops.scores_dense + flops.delta


@pytest.mark.parametrize("k", STAGES)
def test_visible_scores_are_the_masks_own_count(k: int) -> None:
    config, length = stage(k, "nano"), 45
    pairs = 0
    for layer in range(4):
        mixer = config.mixer(layer)
        window = getattr(mixer, "window", length)
        if hasattr(mixer, "n_heads") or hasattr(mixer, "window"):
            pairs += sum(min(i + 1, window) for i in range(length))
    assert morph.count(config).flops(length).scores == 4 * 48 * pairs


@pytest.mark.parametrize("k", STAGES)
def test_parameters_are_those_of_the_live_model(k: int) -> None:
    model, counted = morph.build(stage(k, "nano")), morph.count(stage(k, "nano"))
    assert counted.total == sum(p.numel() for p in model.parameters())
    if k < 10:
        assert counted.active.all == counted.total
    else:
        routed = sum(p.numel() for n, p in model.named_parameters() if ".experts." in n)
        top_k, experts = (2, 8) if k == 10 else (8, 32) if k == 11 else (7, 32)
        assert counted.active.all == counted.total - routed + routed * top_k // experts
    assert counted.active.without_embeddings == counted.active.all - 256 * 48


def test_the_ledger_of_the_tiny_stages() -> None:
    """The figures a reader sees, worked out by hand once."""
    kv = [morph.count(stage(k)).kv_bytes_per_token for k in STAGES]
    assert kv[:7] == [4 * 2 * 4 * 24 * 2] * 7 == [1536] * 7
    assert kv[7:14] == [768] * 7
    assert kv[14] == 192, "one softmax layer in four"
    held = [morph.count(stage(k)).cache_bytes(1024) for k in STAGES]
    assert held[8] == 1024 * 768
    assert held[9] == 1024 * 192 + 3 * 32 * 192
    state, tail = 3 * 4 * 24 * 24 * 4, 3 * 3 * (48 + 48 + 96) * 2
    assert held[14] == 1024 * 192 + state + tail
    assert morph.count(stage(14)).state_bytes == state + tail


def test_per_token_flops_are_close_to_twice_the_active_parameters() -> None:
    counted = morph.count(stage(6, "small"))
    flops = counted.flops(1024)
    assert flops.per_token == pytest.approx(2 * counted.active.all + flops.scores / 1024, rel=0.01)


@pytest.mark.parametrize("call", [lambda n: n.flops(0), lambda n: n.cache_bytes(-3)])
def test_contexts_start_at_one(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MorphError, match="below 1"):
        call(morph.count(stage(0)))
