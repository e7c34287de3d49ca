"""The checks of notebook 06: wrong answers get the hint that helps."""

from __future__ import annotations

import math

import pytest
import torch

from morph.checks import masks as checks


def _band(length: int, window: int) -> torch.Tensor:
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    return (distance >= 0) & (distance < window)


@pytest.mark.parametrize(
    ("check", "answer", "hint"),
    [
        (checks.stream_mask, lambda n, w, k: None, "distances"),
        (checks.stream_mask, lambda n, w, k: _band(n, w).float(), "booleans"),
        (checks.stream_mask, lambda n, w, k: _band(n, w), "should see key 0, one of the first"),
        (checks.stream_mask, lambda n, w, k: _band(n, w + 1), "should not see key 0, 3 back and not kept"),
        (checks.stream_mask, lambda n, w, k: _band(n, w) | (torch.arange(n) < k), "comes later"),
        (checks.layers_needed, lambda d, w: math.ceil(d / w), "counts the token itself"),
        (checks.layers_needed, lambda d, w: d // (w - 1) + 1, "0 places back with a window of 2 takes 0 layers"),
        (checks.layers_needed, lambda d, w: 1 / 0, "raised ZeroDivisionError"),
        (checks.saving, lambda n, w, s: (n + 1) * s / (n * w + s), "a text shorter than the window"),
        (checks.saving, lambda n, w, s: float(n + 1), "saves a factor of 1.000"),
        (checks.saving, ..., "define a function"),
        (checks.sink_logit, lambda n, share: math.log(share / (1 - share)), "takes 0.100 and should take 0.25"),
        (checks.sink_logit, lambda n, share: None, "sum of all exponentials"),
    ],
)  # fmt: skip
def test_wrong_answers_get_a_hint(check, answer, hint: str) -> None:  # type: ignore[no-untyped-def]
    report = check(answer)
    assert not report.passed
    assert hint in report.message


def test_right_answers_pass() -> None:
    assert checks.stream_mask(lambda n, w, k: _band(n, w) | (_band(n, n) & (torch.arange(n) < k))).passed
    assert checks.layers_needed(lambda d, w: math.ceil(d / (w - 1))).passed
    assert checks.saving(lambda n, w, s: (n + 1) * s / (n * min(s, w) + s)).passed
    assert checks.sink_logit(lambda n, share: math.log(n * share / (1 - share))).passed
