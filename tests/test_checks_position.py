"""The checks of notebook 02: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.checks import position as checks
from morph.checks.core import Report
from morph.config import LinearRope, ModelConfig, NoPosition, NtkRope, PartialRope, YarnRope

TRAINED = morph.stage(8, "nano")


def speeds(width: int, base: float) -> Tensor:
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def turned(x: Tensor, omega: Tensor, sign: float = 1.0, neighbours: bool = False) -> Tensor:
    angles = sign * torch.outer(torch.arange(len(x), dtype=omega.dtype), omega)
    a, b = (x[:, 0::2], x[:, 1::2]) if neighbours else x.chunk(2, dim=-1)
    halves = a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()
    return torch.stack(halves, dim=-1).flatten(1) if neighbours else torch.cat(halves, dim=-1)


def at(position: Any, **others: Any) -> ModelConfig:
    return replace(TRAINED, position=position, **others)


YARN = YarnRope(factor=4.0, original_length=TRAINED.context_length)


@pytest.mark.parametrize(
    "report",
    [
        checks.speeds(speeds),
        checks.speeds(lambda d, b: [b ** (-2 * i / d) for i in range(d // 2)]),
        checks.rotate(turned),
        checks.base_for(lambda d, length: (length / (2 * math.pi)) ** (d / (d - 2))),
        checks.stretched(at(YARN), TRAINED),
        checks.stretched(at(replace(YARN, factor=8.0)), TRAINED),
    ],
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report
    assert repr(report).startswith("PASS · ")


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.speeds(...), "define a function"),  # type: ignore[arg-type]
        (checks.speeds(lambda d, b: ...), "returns nothing so far"),
        (checks.speeds(lambda d, b: [1.0] * d), "has 4 pairs; yours gives (8,)"),
        (checks.speeds(lambda d, b: speeds(d, b) * 2 * math.pi), "pair 0 turns by 1 radian a token; yours by 6.283"),
        (checks.speeds(lambda d, b: b ** (-torch.arange(d // 2) / d)), "the exponent is −2i/width"),
        (checks.rotate(...), "define a function"),  # type: ignore[arg-type]
        (checks.rotate(lambda x, w: None), "returns nothing so far"),
        (checks.rotate(lambda x, w: x[:, :4]), "the shape of x"),
        (checks.rotate(lambda x, w: x * 2), "leaves every length"),
        (checks.rotate(lambda x, w: x.flip(1)), "row 0 stands at place 0"),
        (checks.rotate(lambda x, w: turned(x, w, sign=-1)), "the other way round"),
        (checks.rotate(lambda x, w: turned(x, w, neighbours=True)), "not with its neighbour"),
        (checks.rotate(lambda x, w: x @ w), "raised RuntimeError"),
        (checks.base_for(...), "define a function"),  # type: ignore[arg-type]
        (checks.base_for(lambda d, length: None), "returns nothing so far"),
        (checks.base_for(lambda d, length: length / (2 * math.pi)), "endlessly many pairs"),
        (checks.base_for(lambda d, length: 10_000.0), "the slowest of 64 pairs takes 54,4"),
        (checks.stretched(..., TRAINED), "start from replace"),
        (checks.stretched(YARN, TRAINED), "give a ModelConfig"),
        (checks.stretched(TRAINED, TRAINED), "as it was"),
        (checks.stretched(at(YARN, bias=True), TRAINED), "also changes bias"),
        (checks.stretched(at(NoPosition()), TRAINED), "keep a rotation"),
        (checks.stretched(at(PartialRope(fraction=0.5)), TRAINED), "as many pairs"),
        (checks.stretched(at(LinearRope(factor=4.0)), TRAINED), "turns by 0.250 instead of 1.000"),
        (checks.stretched(at(NtkRope(factor=4.0)), TRAINED), "has shown an angle that no trained text showed"),
        (checks.stretched(at(replace(YARN, factor=2.0)), TRAINED), "has shown an angle that no trained text showed"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Report, hint: str) -> None:
    assert not report.passed
    assert hint in report.message
    assert repr(report).startswith("Not yet · ")
