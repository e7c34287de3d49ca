"""The checks of notebook 09: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from morph.checks import small_changes as checks
from morph.checks.core import Report
from morph.lab.result import recorded


def sliced(x: Tensor, weight: Tensor, targets: Tensor, rows: int) -> Tensor:
    parts = zip(x.split(rows), targets.split(rows), strict=True)
    return sum(F.cross_entropy(some @ weight.T, t, reduction="sum") for some, t in parts) / len(x)  # type: ignore[return-value]


def mean_of_means(x: Tensor, weight: Tensor, targets: Tensor, rows: int) -> Tensor:
    parts = zip(x.split(rows), targets.split(rows), strict=True)
    return torch.stack([F.cross_entropy(some @ weight.T, t) for some, t in parts]).mean()


def folded(value_bias: Tensor, o_weight: Tensor, o_bias: Tensor) -> Tensor:
    return o_bias + o_weight @ value_bias


@pytest.mark.parametrize(
    "report",
    [
        checks.sliced_loss(sliced),
        checks.sliced_loss(lambda x, w, t, rows: float(sliced(x, w, t, rows))),
        checks.folded(folded),
        checks.tokens_per_pass(lambda p, n: sum(p**k for k in range(n + 1))),
        checks.tokens_per_pass(lambda p, n: n + 1 if p == 1 else (1 - p ** (n + 1)) / (1 - p)),
    ],
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.sliced_loss(...), "define a function"),  # type: ignore[arg-type]
        (checks.sliced_loss(lambda x, w, t, rows: ...), "returns nothing so far"),
        (checks.sliced_loss(lambda x, w, t, rows: x), "return one number"),
        (checks.sliced_loss(lambda x, w, t, rows: sliced(x, w, t, rows) * len(x)), "return the mean"),
        (checks.sliced_loss(lambda x, w, t, rows: sliced(x, w, t, rows) / len(x)), "return the mean"),
        (checks.sliced_loss(mean_of_means), "add up sums"),
        (checks.sliced_loss(lambda x, w, t, rows: F.cross_entropy(x @ w.T, t)), "one slice at a time"),
        (checks.sliced_loss(lambda x, w, t, rows: sliced(x, -w, t, rows)), "the mean is"),
        (checks.sliced_loss(lambda x, w, t, rows: x.nothing), "raised AttributeError"),
        (checks.folded(...), "define a function"),  # type: ignore[arg-type]
        (checks.folded(lambda v, w, b: None), "returns nothing so far"),
        (checks.folded(lambda v, w, b: w), "a bias of the output map"),
        (checks.folded(lambda v, w, b: w @ v), "the new bias is the old one and"),
        (checks.folded(lambda v, w, b: b), "the new bias is the old one and"),
        (checks.folded(lambda v, w, b: b + v @ w), "o_weight is (D, features)"),
        (checks.folded(lambda v, w, b: b + v), "weights add up to 1"),
        (checks.tokens_per_pass(...), "define a function"),  # type: ignore[arg-type]
        (checks.tokens_per_pass(lambda p, n: ...), "returns nothing so far"),
        (checks.tokens_per_pass(lambda p, n: "2"), "return a number"),
        (checks.tokens_per_pass(lambda p, n: 1 + p * n), "not p each"),
        (checks.tokens_per_pass(lambda p, n: sum(p**k for k in range(1, n + 1))), "always writes one more"),
        (checks.tokens_per_pass(lambda p, n: 1 + p**n), "it and all before it are right"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message


SAID = {
    ("tying", "At equal body, a head of its own learns more"): "within noise",
    ("tying", "Untrained, a tied model does worse than an untied one, since it says again what it reads"):
        "not supported",
    ("dropout", "Where the text is read once, dropout 0.2 costs"): "supported",
    ("dropout", "Where it is read ten times, dropout 0.1 gains"): "within noise",
    ("dropout", "Where it is read ten times, dropout 0.2 gains"): "within noise",
    ("dropout", "Read ten times, a text is learned by heart: the gap grows, each at its best rate"): "supported",
    ("dropout", "There dropout narrows the gap, each at its own best rate"): "not supported",
    ("sinks", "Weight gathers on the first token"): "not supported",
    ("sinks", "A learned sink is used"): "not supported",
    ("sinks", "A learned sink takes it away"): "undecided",
    ("mtp-loss", "At equal steps a small model's next token gains and loses nothing"): "within noise",
    ("mtp-loss", "At equal FLOPs more steps are worth more than the second target"): "supported",
    ("width-depth", "16 layers learn as much as 4"): "not supported",
    ("width-depth", "2 layers are too few: they end worse than 4"): "not supported",
}  # fmt: skip
"""What notebook 09 says in words about verdicts."""


@pytest.mark.parametrize(("experiment", "claim"), SAID)
def test_what_the_notebook_says_of_the_lab_is_what_was_recorded(experiment: str, claim: str) -> None:
    found = [finding.verdict for finding in recorded(experiment).findings if finding.claim.text == claim]
    assert found
    assert all(verdict.startswith(SAID[experiment, claim]) for verdict in found), found
