"""The checks of notebook 04: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from morph.checks import feed_forward as checks
from morph.checks.core import Report
from morph.config import GatedMLP
from morph.story.released import RELEASED

GATE = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
UP = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
DOWN = torch.ones(1, 2)


def width(d: int, factor: float, multiple: int) -> int:
    return -(-int(factor * (8 * d // 3)) // multiple) * multiple


def counted(hidden: Tensor, share: float, power: float = 2, largest: bool = True, more: int = 1) -> Tensor:
    sums = hidden.abs().pow(power).sort(dim=-1, descending=largest).values.cumsum(-1)
    return (sums < share * sums[:, -1:]).sum(-1) + more


def in_order(hidden: Tensor, share: float) -> Tensor:
    sums = hidden.square().cumsum(-1)
    found = (sums < share * sums[:, -1:]).sum(-1) + 1
    return torch.where((hidden != 0).sum(-1) == 1, 1, found)


@pytest.mark.parametrize(
    "report",
    [
        checks.hidden_width(width),
        checks.product(GATE, UP, DOWN),
        checks.product(UP, GATE, DOWN),
        checks.product(2 * GATE, UP, DOWN / 2),
        checks.working(counted),
    ],
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.hidden_width(...), "define a function"),  # type: ignore[arg-type]
        (checks.hidden_width(lambda d, factor, multiple: ...), "returns nothing so far"),
        (checks.hidden_width(lambda d, factor, multiple: 8 * d / 3), "give a whole number"),
        (checks.hidden_width(lambda d, factor, multiple: 8 * d // 3), "no multiple of 256"),
        (checks.hidden_width(lambda d, factor, multiple: 8 * d // 3 // multiple * multiple), "round up"),
        (checks.hidden_width(lambda d, factor, multiple: width(d, 1, multiple)), "round up"),
        (checks.hidden_width(lambda d, factor, multiple: width(d, factor, multiple) + multiple), "must not add one"),
        (checks.hidden_width(lambda d, factor, multiple: width(2 * d, factor, multiple)), "then the factor"),
        (checks.product(..., ..., ...), "SiLU(a) - SiLU(-a)"),
        (checks.product(1, 2, 3), "three tensors"),
        (checks.product(GATE, UP, DOWN.T), "W_down is (1, F)"),
        (checks.product(GATE[:1], UP[:1], DOWN[:, :1]), "one gate is not enough"),
        (checks.product(GATE, UP, 2 * DOWN), "ab times 2"),
        (checks.product(GATE, UP.abs(), DOWN), "add two up to a times b"),
        (checks.product(GATE, 0 * UP, DOWN), "add two up to a times b"),
        (checks.working(...), "define a function"),  # type: ignore[arg-type]
        (checks.working(lambda hidden, share: ...), "returns nothing so far"),
        (checks.working(lambda hidden, share: hidden.sum()), "one number a token"),
        (checks.working(lambda hidden, share: counted(hidden, share).float()), "whole numbers"),
        (checks.working(lambda hidden, share: counted(hidden, share, largest=False)), "needs 1, yours says 40"),
        (checks.working(in_order), "the largest squares first"),
        (checks.working(lambda hidden, share: counted(hidden, share, power=1)), "square first"),
        (checks.working(lambda hidden, share: counted(hidden, share, more=0).clamp(min=1)), "one channel more"),
        (checks.working(lambda hidden, share: 1 // 0), "ZeroDivisionError"),
    ],
)
def test_wrong_answers_get_the_right_hint(report: Report, hint: str) -> None:
    assert not report.passed
    assert hint in report.message


@pytest.mark.parametrize(("name", "row"), [("Llama 2 7B", 0), ("Llama 3 8B", 1)])
def test_the_widths_asked_for_are_released_ones(name: str, row: int) -> None:
    config: Any = RELEASED[name].config
    assert isinstance(config.feed_forward, GatedMLP)
    assert (config.d_model, config.feed_forward.width) == (checks.WIDTHS[row][0], checks.WIDTHS[row][3])
