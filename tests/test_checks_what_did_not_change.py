"""The checks of notebook 14: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from morph.checks import what_did_not_change as checks
from morph.checks.core import Report
from morph.lab.result import recorded


def bits(logits: Tensor, ids: Tensor, shift: int = 1) -> float:
    S = ids.shape[1]
    return F.cross_entropy(logits[:, : S - shift].flatten(0, 1), ids[:, shift:].flatten()).item() / math.log(2)


def induced(ids: Tensor, first: bool = False) -> Tensor:
    made = ids.clone()
    for row, tokens in enumerate(ids.tolist()):
        for i, token in enumerate(tokens):
            earlier = [j for j in range(i) if tokens[j] == token]
            if earlier:
                made[row, i] = tokens[(earlier[0] if first else earlier[-1]) + 1]
    return made


@pytest.mark.parametrize(
    "report",
    [
        checks.next_token_bits(bits),
        checks.next_token_bits(lambda logits, ids: torch.tensor(bits(logits, ids))),
        checks.even_context(lambda n, layers, width: n / (2 * layers * width)),
        checks.induced(induced),
    ],
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.next_token_bits(...), "define a function"),  # type: ignore[arg-type]
        (checks.next_token_bits(lambda logits, ids: ...), "returns nothing so far"),
        (checks.next_token_bits(lambda logits, ids: logits), "return one number"),
        (checks.next_token_bits(lambda logits, ids: bits(logits, ids) * math.log(2)), "in nats"),
        (checks.next_token_bits(lambda logits, ids: bits(logits, ids, 0)), "shift by one"),
        (checks.next_token_bits(lambda logits, ids: bits(logits, ids, 0) * math.log(2)), "shift by one first"),
        (checks.next_token_bits(lambda logits, ids: bits(-logits, ids)), "the loss is"),
        (checks.even_context(...), "define a function"),  # type: ignore[arg-type]
        (checks.even_context(lambda n, layers, width: None), "returns nothing so far"),
        (checks.even_context(lambda n, layers, width: "many"), "return a number"),
        (checks.even_context(lambda n, layers, width: n / (layers * width)), "weighted sums"),
        (checks.even_context(lambda n, layers, width: n / (4 * layers * width)), "a multiply and an add"),
        (checks.even_context(lambda n, layers, width: 2 * layers * width / n), "that is the inverse"),
        (checks.even_context(lambda n, layers, width: n), "a token in context?"),
        (checks.induced(...), "define a function"),  # type: ignore[arg-type]
        (checks.induced(lambda ids: ...), "returns nothing so far"),
        (checks.induced(lambda ids: ids[:, 0]), "a token for every place"),
        (checks.induced(lambda ids: ids * 0), "itself the guess"),
        (checks.induced(lambda ids: ids), "which came after the first"),
        (checks.induced(lambda ids: induced(ids, first=True)), "the *last* occurrence"),
        (checks.induced(lambda ids: torch.cat((induced(ids)[:, :6], ids[:, 6:]), 1)), "the last two guesses"),
        (checks.induced(lambda ids: induced(ids) if len(ids) == 1 else ids), "all can be"),
        (checks.induced(lambda ids: ids.nothing), "raised AttributeError"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message


SAID: dict[tuple[str, str], set[str]] = {
    ("recall", "One full layer is enough (delta + full)"): {"supported"},
    ("recall", "One full layer is enough (window + full)"): {"supported"},
    ("recall", "A state of fixed size runs full (delta, 4 x 4)"): {"undecided", "within noise"},
    ("recall", "A state of fixed size runs full (linear, 4 x 4)"): {"undecided", "within noise"},
    ("scaling", "The curves are parallel"): {"not supported"},
    ("induction-heads", "Stage 0 has an induction head"): {"within noise"},
    ("induction-heads", "Stage 9 has an induction head"): {"supported"},
    ("induction-heads", "Stage 14 has an induction head"): {"supported"},
    ("induction-heads", "Stage 0 has a previous-token head"): {"not supported"},
    ("induction-heads", "Stage 9 misses its induction head more than another of that layer"): {"not supported"},
    ("induction-heads", "Stage 14 misses its induction head more than another of that layer"): {"not supported"},
}
"""What notebook 14 says in words about verdicts."""


@pytest.mark.parametrize(("experiment", "claim"), SAID)
def test_what_the_notebook_says_of_the_lab_is_what_was_recorded(experiment: str, claim: str) -> None:
    found = [finding.verdict for finding in recorded(experiment).findings if finding.claim.text == claim]
    assert found
    assert {verdict.split(":")[0].split(" at ")[0] for verdict in found} <= SAID[experiment, claim], found


def test_what_else_the_notebook_says_of_the_lab_is_so() -> None:
    assert {finding.verdict for finding in recorded("costs").findings} == {"supported"}
    losses = {
        arm: [statistics.fmean(at) for at in zip(*recorded("scaling").lists(arm, {}, "bits per byte"), strict=True)]
        for arm in recorded("scaling").arms
    }
    old, new = losses.values()
    assert new[0] < old[-1]  # the narrowest of stage 9 below the widest of stage 0
    sizes = recorded("scaling").lists("0: 2017", {}, "parameters")[0]
    assert 14 < sizes[-1] / sizes[0] < 16
    whole = recorded("recall").numbers("linear, 8 x 8", {"pairs": 8}, "accuracy")
    assert statistics.fmean(whole) > 0.95  # as many features as keys
