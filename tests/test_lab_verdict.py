"""Verdicts, held against SciPy and against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from morph.errors import MorphError
from morph.lab.verdict import NOT_SUPPORTED, SUPPORTED, Interval, interval, judge, paired

OF = {0: 2.10, 1: 2.25, 2: 2.18}
AGAINST = {0: 2.00, 1: 2.13, 2: 2.10}  # differences 0.10, 0.12, 0.08


def test_a_paired_interval_is_students() -> None:
    found = paired(OF, AGAINST)
    assert (found.n, found.mean) == (3, pytest.approx(0.10))
    assert found.high - found.mean == pytest.approx(4.303 * 0.02 / math.sqrt(3))  # s = 0.02 by hand
    exact = stats.ttest_rel(list(OF.values()), list(AGAINST.values())).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(exact.low, rel=1e-4), pytest.approx(exact.high, rel=1e-4))


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_the_interval_of_values_is_students(n: int) -> None:
    values = [((7 * i * i + 3) % 11) / 10 for i in range(n)]
    exact = stats.t.interval(0.95, n - 1, loc=sum(values) / n, scale=stats.sem(values))
    found = interval(values)
    assert found.mean - found.low == pytest.approx(found.mean - exact[0], rel=3e-4)
    assert found.high - found.mean == pytest.approx(exact[1] - found.mean, rel=3e-4)


def test_pairs_are_matched_by_seed_and_not_by_order() -> None:
    assert paired(OF, dict(reversed(AGAINST.items()))) == paired(OF, AGAINST)
    shared = paired(OF, {1: 2.0, 2: 2.0, 9: 77.0})
    assert (shared.n, shared.mean) == (2, pytest.approx((0.25 + 0.18) / 2))
    with pytest.raises(MorphError, match=r"seeds \[0, 1, 2\] and \[7\] share none"):
        paired(OF, {7: 1.0})


def test_a_ratio_is_paired_in_logarithms() -> None:
    found = paired({0: 2.0, 1: 8.0, 2: 4.0}, {0: 1.0, 1: 1.0, 2: 1.0}, ratio=True)
    assert found.mean == pytest.approx(4.0)  # of 2, 8 and 4
    half = 4.303 * math.log(2) / math.sqrt(3)  # the logarithms spread by log 2
    assert (found.low, found.high) == (pytest.approx(4 * math.exp(-half)), pytest.approx(4 * math.exp(half)))
    with pytest.raises(MorphError, match=r"a ratio of 0\.0 means nothing"):
        paired({0: 0.0}, {0: 1.0}, ratio=True)


@pytest.mark.parametrize(
    ("low", "high", "bound", "expected"),
    [
        (0.05, 0.15, {"more_than": 0.04}, SUPPORTED),
        (0.05, 0.15, {"more_than": 0.05}, "within noise at 3 seeds"),  # the bound itself does not count
        (0.05, 0.15, {"more_than": 0.10}, "within noise at 3 seeds"),
        (0.05, 0.15, {"more_than": 0.15}, NOT_SUPPORTED),
        (0.05, 0.15, {"more_than": 0.20}, NOT_SUPPORTED),  # surely above 0, and still too small to count
        (0.05, 0.15, {"less_than": 0.20}, SUPPORTED),
        (0.05, 0.15, {"less_than": 0.10}, "within noise at 3 seeds"),
        (0.05, 0.15, {"less_than": 0.01}, NOT_SUPPORTED),
        (-0.05, 0.15, {"within": 0.2}, SUPPORTED),
        (-0.05, 0.15, {"within": 0.1}, "within noise at 3 seeds"),
        (0.15, 0.25, {"within": 0.1}, NOT_SUPPORTED),
        (-0.25, -0.15, {"within": 0.1}, NOT_SUPPORTED),
    ],
)
def test_the_interval_is_held_against_the_bound(low: float, high: float, bound: dict, expected: str) -> None:
    assert judge(Interval((low + high) / 2, low, high, 3), **bound) == expected


def test_a_ratio_lies_within_a_factor_both_ways() -> None:
    assert judge(Interval(1.0, 0.6, 1.9, 3), within=2.0, ratio=True) == SUPPORTED
    assert judge(Interval(1.0, 0.4, 1.9, 3), within=2.0, ratio=True) == "within noise at 3 seeds"
    assert judge(Interval(0.3, 0.2, 0.45, 3), within=2.0, ratio=True) == NOT_SUPPORTED


def test_one_seed_says_nothing() -> None:
    found = interval([5.0])
    assert (found.mean, found.low, found.high) == (5.0, -math.inf, math.inf)
    assert judge(found, more_than=0.0) == "one seed: no spread"


def test_what_is_no_number_has_no_interval() -> None:
    for values in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(MorphError, match="give finite values"):
            interval(values)
    with pytest.raises(MorphError, match="a claim needs a bound"):
        judge(interval([1.0, 2.0]))
