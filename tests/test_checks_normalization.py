"""The checks of notebook 03: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from morph.checks import normalization as checks
from morph.checks.core import Report
from morph.lab.result import recorded


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
    return gain * F.rms_norm(x - x.mean(-1, keepdim=True), (x.shape[-1],), eps=eps) + shift


def rms_norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
    return gain * F.rms_norm(x, (x.shape[-1],), eps=eps) + shift


def one_mean(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
    return rms_norm(x - x.mean(), gain, shift, eps)


def merged(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    return means.mean(0), variances.mean(0) + means.var(0, correction=0)


def by_squares(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    return means.mean(0), (variances + means.square()).mean(0) - means.mean(0).square()


def unheard(x: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(x), x - x.mean()])


def largest_score(gq: Tensor, gk: Tensor) -> float:
    return math.sqrt(len(gq)) * float((gq * gk).abs().max())


def needed(a: float, n: int) -> float:
    return math.log(a / (1 - a) * (n - 1))


@pytest.mark.parametrize(
    "report",
    [
        checks.layer_norm(layer_norm),
        checks.merged(merged),
        checks.unheard(unheard),
        checks.unheard(lambda x: torch.stack([x, torch.ones_like(x)])),  # another basis of the same plane
        checks.largest_score(largest_score),
        checks.needed(needed),
    ],
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.layer_norm(...), "define a function"),  # type: ignore[arg-type]
        (checks.layer_norm(lambda x, gain, shift, eps: ...), "returns nothing so far"),
        (checks.layer_norm(lambda x, gain, shift, eps: x[0]), "give a tensor of shape"),
        (checks.layer_norm(rms_norm), "take the mean off first"),
        (checks.layer_norm(lambda x, gain, shift, eps: F.layer_norm(x, (24,), eps=eps)), "multiply by gain"),
        (checks.layer_norm(one_mean), "each token has its own mean"),
        (checks.layer_norm(lambda x, gain, shift, eps: layer_norm(x, gain, shift, 1e-5)), "hand eps on"),
        (checks.layer_norm(lambda x, gain, shift, eps: x), "yours is off by up to"),
        (checks.merged(lambda means, variances: ...), "returns nothing so far"),
        (checks.merged(lambda means, variances: means), "return two things"),
        (checks.merged(lambda means, variances: (means, variances)), "both are (T,)"),
        (checks.merged(lambda means, variances: (means.sum(0), variances.sum(0))), "the mean of means"),
        (checks.merged(lambda means, variances: (means.mean(0), variances.mean(0))), "differ from each other"),
        (checks.merged(lambda m, v: (m.mean(0), v.mean(0) + m.var(0))), "divide by R"),
        (checks.merged(lambda m, v: (m.mean(0), v.sum(0))), "add how the means differ"),
        (checks.merged(by_squares), "a difference of large squares"),
        (checks.unheard(lambda x: None), "returns nothing so far"),
        (checks.unheard(lambda x: x), "(2, d)"),
        (checks.unheard(lambda x: torch.zeros(2, len(x))), "a vector of zeros"),
        (checks.unheard(lambda x: torch.eye(len(x))[:2]), "row 0 is heard"),
        (checks.unheard(lambda x: torch.stack([x - x.mean(), 2 * (x.mean() - x)])), "the same direction"),
        (checks.largest_score(lambda gq, gk: ...), "returns nothing so far"),
        (checks.largest_score(lambda gq, gk: float((gq * gk).abs().max())), "is possible"),
        (
            checks.largest_score(lambda gq, gk: len(gq) ** 0.5 * gq.abs().max() * gk.abs().max()),
            "in different features",
        ),
        (checks.largest_score(lambda gq, gk: len(gq) ** 0.5 * (gq * gk).max()), "may be negative"),
        (checks.largest_score(lambda gq, gk: len(gq) * (gq * gk).abs().max()), "no pair gets beyond"),
        (checks.needed(lambda a, n: ...), "returns nothing so far"),
        (checks.needed(lambda a, n: needed(a, n) / math.log(2)), "log is the natural one"),
        (checks.needed(lambda a, n: math.log(a * (n - 1))), "solve for B"),
        (checks.needed(lambda a, n: 1 / 0), "raised ZeroDivisionError"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message


SAID = [  # experiment, what of, against what, at what -> the verdict that the text draws on
    ("norm-cost", "bits per byte", "RMSNorm", "LayerNorm", {}, "supported"),
    ("norm-cost", "rounding error, together", "LayerNorm", None, {}, "supported"),
    ("norm-cost", "rounding error, merged", "LayerNorm", None, {}, "supported"),
    ("warm-up", "bits per byte", "post 12", "post 12, warm-up", {}, "within noise"),
    ("warm-up", "bits per byte", "post 12", "post 12, warm-up", {"learning_rate": 0.003}, "undecided"),
    ("warm-up", "bits per byte", "post 24", "post 24, warm-up", {}, "undecided"),
    ("warm-up", "bits per byte", "post 12, warm-up", "pre 12", {}, "supported"),
    ("warm-up", "bits per byte", "post 24, warm-up", "pre 24", {}, "supported"),
    ("stream-growth", "change by training", "pre", None, {}, "supported"),
    ("qk-norm", "bits per byte", "QK-norm", "without", {"learning_rate": 0.001}, "supported"),
    ("qk-norm", "rise beyond the trained length", "QK-norm", "without", {"learning_rate": 0.003}, "within noise"),
]


@pytest.mark.parametrize(("name", "measure", "of", "against", "point", "verdict"), SAID)
def test_what_the_notebook_says_of_the_lab_was_recorded(
    name: str, measure: str, of: str, against: str | None, point: dict[str, float], verdict: str
) -> None:
    """An experiment that comes out otherwise needs other words."""
    found = [
        finding.verdict
        for finding in recorded(name).findings
        if (finding.claim.measure, finding.claim.of, finding.claim.against) == (measure, of, against)
        and finding.point == point
    ]
    assert found and all(given.startswith(verdict) for given in found)


def test_rms_norm_took_longer_where_it_was_timed() -> None:
    assert min(recorded("norm-cost").numbers("RMSNorm", {}, "time over LayerNorm's")) > 1
