"""The checks of notebook 11: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

import morph
from morph.checks import train_every_stage as checks
from morph.checks.core import Report
from morph.train import Sweep

T95 = {1: 12.706, 2: 4.303, 3: 3.182}
SWEEP = Sweep.reference()
POINTS = {stage.slug: (stage.mean, stage.flops_per_token) for stage in SWEEP.stages}
FRONT = {
    slug
    for slug, (b, f) in POINTS.items()
    if not any(x <= b and y <= f and (x, y) != (b, f) for x, y in POINTS.values())
}


def flops(config: morph.ModelConfig, steps: int, batch: int) -> int:
    return 3 * steps * batch * morph.count(config).flops(config.context_length).total


def verdict(after: list[float], before: list[float]) -> str:
    d = [a - b for a, b in zip(after, before)]
    half = T95[len(d) - 1] * statistics.stdev(d) / len(d) ** 0.5
    mean = statistics.fmean(d)
    return "within the spread" if abs(mean) <= half else "lower" if mean < 0 else "higher"


def unpaired(after: list[float], before: list[float]) -> str:
    """Two spreads instead of one of differences."""
    mean = statistics.fmean(after) - statistics.fmean(before)
    half = T95[len(after) - 1] * (statistics.variance(after) + statistics.variance(before)) ** 0.5 / len(after) ** 0.5
    return "within the spread" if abs(mean) <= half else "lower" if mean < 0 else "higher"


@pytest.mark.parametrize("report", [checks.training_flops(flops), checks.verdict(verdict), checks.front(FRONT)])
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


def test_the_front_has_its_ends() -> None:
    best = min(POINTS, key=lambda slug: POINTS[slug][0])
    assert best in FRONT and 1 < len(FRONT) < len(POINTS)
    assert best in checks.front(FRONT).message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.training_flops(...), "define a function"),  # type: ignore[arg-type]
        (checks.training_flops(lambda *_: ...), "returns nothing so far"),
        (checks.training_flops(lambda *_: "many"), "give a number"),
        (checks.training_flops(lambda c, s, b: flops(c, s, b) // 3), "a backward pass is two more"),
        (checks.training_flops(lambda c, s, b: flops(c, s, b) * c.context_length), "is already that of all 64 tokens"),
        (checks.training_flops(lambda c, s, b: flops(c, s, 1)), "yours says"),
        (checks.verdict(...), "define a function"),  # type: ignore[arg-type]
        (checks.verdict(lambda a, b: None), "returns nothing so far"),
        (checks.verdict(lambda a, b: "worse"), "answer with 'lower'"),
        (checks.verdict(lambda a, b: verdict(b, a)), "lower is after below before"),
        (checks.verdict(unpaired), "pair them seed by seed first"),
        (checks.verdict(lambda a, b: a[9]), "raised IndexError"),
        (checks.front(...), "compare every stage"),
        (checks.front(3), "give a set of slugs"),
        (checks.front({"rop"}), "rop: no such stage"),
        (checks.front(set(POINTS)), "is beaten in both by"),
        (checks.front(FRONT - {"hybrid"} if "hybrid" in FRONT else set()), "more: a stage that costs more"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message
