"""The checks of notebook 07: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from morph.checks import mixture_of_experts as checks
from morph.checks.core import Report

LOGITS = torch.randn(50, 8, generator=torch.Generator().manual_seed(3))


def route(logits: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor]:
    best, chosen = logits.softmax(-1).topk(k)
    return scale * best / best.sum(-1, keepdim=True), chosen


def unscaled(logits: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor]:
    return logits.softmax(-1).topk(k)


def equal(logits: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor]:
    return torch.full((len(logits), k), scale / k), logits.topk(k).indices


def on_devices(p: Tensor, count: int = 2, by_best: bool = False) -> Tensor:
    groups = p.unflatten(-1, (4, 8))
    worth = groups.amax(-1) if by_best else groups.sum(-1)
    is_in = torch.zeros(len(p), 4, dtype=torch.bool).scatter(1, worth.topk(count).indices, True)
    return groups.masked_fill(~is_in[..., None], -1).flatten(1).topk(7).indices


def only(expert: int, size: float) -> Tensor:
    return size * torch.nn.functional.one_hot(torch.tensor(expert), 8).float()


@pytest.mark.parametrize(
    "report",
    [
        checks.route(route),
        checks.used_share(lambda n, k, shared: (k + shared) / (n + shared)),
        checks.equal_cost(64, math.comb(256, 64)),
        checks.biased(only(3, 1.0), LOGITS),
        checks.limited(on_devices),
    ],
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.route(...), "define a function"),  # type: ignore[arg-type]
        (checks.route(lambda logits, k, scale: ...), "returns nothing so far"),
        (checks.route(lambda logits, k, scale: logits), "return two things"),
        (checks.route(lambda logits, k, scale: (logits, logits)), "both are (T, k)"),
        (checks.route(unscaled), "add up to 1"),
        (checks.route(equal), "in proportion to the probabilities"),
        (checks.route(lambda logits, k, scale: route(-logits, k, scale)), "the k most probable"),
        (checks.used_share(lambda n, k, shared: k / n), "both stored and used"),
        (checks.used_share(lambda n, k, shared: None), "returns nothing so far"),
        (checks.used_share(lambda n, k, shared: n / k), "chosen over stored"),
        (checks.equal_cost(..., ...), "a fourth of the weights"),
        (checks.equal_cost(64.0, 1), "two whole numbers"),
        (checks.equal_cost(8, math.comb(256, 8)), "8 of 256 use 3.1%"),
        (checks.equal_cost(64, math.comb(256, 8)), "math.comb, not a float"),
        (checks.biased(..., LOGITS), "one number an expert"),
        (checks.biased(torch.zeros(3), LOGITS), "a tensor of 8 numbers"),
        (checks.biased(only(3, 0.01), LOGITS), "raise its bias"),
        (checks.biased(only(3, 2.0) + only(4, 2.0), LOGITS), "leave the second choice"),
        (checks.limited(lambda p: ...), "returns nothing so far"),
        (checks.limited(lambda p: p.topk(6).indices), "(T, 7)"),
        (checks.limited(lambda p: p.topk(7).indices), "put those of the other devices out of reach"),
        (checks.limited(lambda p: on_devices(p, by_best=True)), "the sum of its probabilities"),
        (checks.limited(lambda p: on_devices(p).flip(-1)), "most probable first"),
        (checks.limited(lambda p: p.nothing), "raised AttributeError"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message
