"""The checks of notebook 13: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.checks import your_own_step as checks
from morph.checks.core import Report
from morph.config import Interleaved, ModelConfig, SlidingWindow, as_kind
from morph.steps import Size

IDS = torch.arange(40)[None] * 5 % 256


def half(config: ModelConfig, size: Size) -> ModelConfig:
    layout = as_kind(config.layout, Interleaved, "layout")
    local = as_kind(layout.local, SlidingWindow, "layout.local")
    return replace(config, layout=replace(layout, local=replace(local, window=local.window // 2)))


def rude(config: ModelConfig, size: Size) -> ModelConfig:
    local = config.layout.local  # type: ignore[union-attr]
    return replace(config, layout=replace(config.layout, local=replace(local, window=local.window // 2)))  # type: ignore[union-attr, arg-type]


def silent(config: ModelConfig, size: Size) -> ModelConfig:
    try:
        return half(config, size)
    except morph.MorphError:
        return config


def also_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(half(config, size), norm=replace(config.norm, eps=1e-6))


@torch.no_grad()
def holds(fork: ModelConfig, base: ModelConfig) -> bool:
    return bool((morph.build(fork, seed=0)(IDS) - morph.build(base, seed=0)(IDS)).abs().max() < 1e-4)


def two_seeds(fork: ModelConfig, base: ModelConfig) -> bool:
    return bool((morph.build(fork, seed=0)(IDS) - morph.build(base, seed=1)(IDS)).abs().max() < 1e-4)


def partial_rms(x: Tensor, gain: Tensor, count: int, eps: float) -> Tensor:
    return gain * x / (x[..., :count].square().mean(-1, keepdim=True) + eps).sqrt()


def outside(x: Tensor, gain: Tensor, count: int, eps: float) -> Tensor:
    return gain * x / (x[..., :count].square().mean(-1, keepdim=True).sqrt() + eps)


@pytest.mark.parametrize(
    "report", [checks.half_window(half), checks.relation(holds, 40), checks.partial_rms(partial_rms)]
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.half_window(...), "define a function"),  # type: ignore[arg-type]
        (checks.half_window(lambda c, s: ...), "returns nothing so far"),
        (checks.half_window(lambda c, s: 8), "return a config"),
        (checks.half_window(lambda c, s: c), "yours: nothing"),
        (checks.half_window(also_norm), "norm.eps"),
        (checks.half_window(rude), "on 'gqa' it raises AttributeError"),
        (checks.half_window(silent), "there it must raise a MorphError"),
        (checks.relation(..., 40), "define a function"),  # type: ignore[arg-type]
        (checks.relation(lambda a, b: None, ...), "returns nothing so far"),
        (checks.relation(lambda a, b: torch.tensor(True), 40), "not Tensor"),
        (checks.relation(two_seeds, 40), "build both from one seed"),
        (checks.relation(lambda a, b: a == b, 40), "these are the same"),
        (checks.relation(lambda a, b: True, 40), "with a window of 4 they differ"),
        (checks.relation(lambda a, b: holds(*(replace(c, norm=morph.stage(9).norm) for c in (a, b))), 40), "another ε"),
        (checks.relation(holds, ...), "now the smallest window"),
        (checks.relation(holds, "40"), "a whole number"),
        (checks.relation(holds, 39), "hides token 0 from token 39"),
        (checks.relation(holds, 64), "and so is less"),
        (checks.partial_rms(lambda *_: ...), "returns nothing so far"),
        (checks.partial_rms(lambda x, g, n, e: partial_rms(x, g, n, e)[..., :n]), "all are divided"),
        (checks.partial_rms(lambda x, g, n, e: partial_rms(x, g, 48, e)), "with the first 3 features"),
        (checks.partial_rms(outside), "under the root"),
        (checks.partial_rms(lambda x, g, n, e: partial_rms(x, torch.ones(48), n, e)), "multiply by the gain"),
        (checks.partial_rms(lambda x, g, n, e: x.nothing), "raised AttributeError"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message
