"""The checks of notebook 01: PASS for what is right, a hint for everything else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

import morph
from morph.checks import residual_stream as checks

EIGHT = morph.stage(8, "nano")
CALM = replace(EIGHT, n_layers=96, placement="depth-scaled-sandwich")


def added(trace: Mapping[str, Tensor], layers: int, halves: tuple[str, ...] = ("attention", "feed_forward")) -> Tensor:
    x = trace["stream"].clone()
    for layer in range(layers):
        for half in halves:
            x += trace[f"blocks.{layer}.{half}_delta"]
    return x


def in_place(trace: Mapping[str, Tensor], layers: int) -> Tensor:
    trace["stream"].mul_(2)
    return trace["stream"]


def length(count: int, cosine: float) -> float:
    return math.sqrt(count + count * (count - 1) * cosine)


def factor(found: list[float], w: int) -> float:
    return 1 / math.prod(found[max(w, 0) :])


def test_right_answers_pass() -> None:
    for report in (
        checks.stream_after(added),
        checks.length_of_sum(length),
        checks.factor_left(factor),
        checks.calm(CALM),
    ):
        assert repr(report).startswith("PASS · "), report


@pytest.mark.parametrize(
    ("check", "answer", "hint"),
    [
        (checks.stream_after, ..., "define a function"),
        (checks.stream_after, lambda trace, layers: ..., "returns nothing so far"),
        (checks.stream_after, lambda trace, layers: added(trace, layers, ("attention",)), "off by up to"),
        (checks.stream_after, lambda trace, layers: added(trace, layers)[0], "give a tensor of shape (1, 16, 48)"),
        (checks.stream_after, in_place, "changes the trace itself"),
        (checks.stream_after, lambda trace, layers: trace["nothing"], "nothing was recorded"),
        (checks.length_of_sum, lambda W, c: None, "returns nothing so far"),
        (checks.length_of_sum, lambda W, c: W**0.5, "yours says 2"),
        (checks.length_of_sum, lambda W, c: math.sqrt(W + W * (W - 1) / 2 * c), "W squares"),
        (checks.factor_left, lambda found, w: ..., "returns nothing so far"),
        (checks.factor_left, lambda found, w: 1 / math.prod(found[w + 1 :]), "behind its own write, too"),
        (checks.factor_left, lambda found, w: 1 / math.prod(found[w:]), "x₀ meets every norm"),
        (checks.calm, ..., "start from morph.stage(8"),
        (checks.calm, 96, "give a ModelConfig"),
        (checks.calm, replace(EIGHT, n_layers=96), "ends at an RMS of"),
        (checks.calm, replace(EIGHT, n_layers=96, placement="post"), "its stream is no sum"),
        (checks.calm, replace(CALM, n_layers=24), "96 layers, please"),
        (checks.calm, replace(CALM, context_length=32), "also changes context_length"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(check: Any, answer: Any, hint: str) -> None:
    report = check(answer)
    assert not report.passed
    assert hint in report.message, report.message
