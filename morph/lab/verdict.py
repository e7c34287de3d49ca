"""What the data say of a claim: arithmetic alone, no torch.

Both sides saw the same batches from the same seeds, so differences are paired by seed. With n seeds their mean has a
95 % t-interval (Student, 1908), and a claim "the difference is more than c" is

    supported               when the whole interval lies above c,
    not supported           when the whole interval lies below c,
    within noise            when c lies inside: n seeds cannot tell.

The effect that counts is thus in the claim; a difference from zero that is smaller than it supports nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from morph.errors import MorphError
from morph.train.sweep import t95

SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "undecided"
NO_EVIDENCE = "quick run: no evidence"


def within_noise(n: int) -> str:
    """The verdict when n seeds cannot tell."""
    return f"within noise at {n} seeds" if n > 1 else "one seed: no spread"


@dataclass(frozen=True)
class Interval:
    """A mean over n seeds and its 95 % interval; one seed has no interval, and its ends are infinite."""

    mean: float
    low: float
    high: float
    n: int


def interval(values: Sequence[float]) -> Interval:
    """The mean of independent values and its t-interval. Raises MorphError for none, and for what is not finite."""
    if not values or not all(math.isfinite(value) for value in values):
        raise MorphError(f"no interval of {list(values)!r}: give finite values, at least one")
    mean, n = statistics.fmean(values), len(values)
    half = t95(n - 1) * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.inf
    return Interval(mean, mean - half, mean + half, n)


def paired(of: Mapping[int, float], against: Mapping[int, float], ratio: bool = False) -> Interval:
    """`of` minus `against` over the seeds that both have; with `ratio` their quotient, its logarithms averaged.

    Raises MorphError when they share no seed, or a quotient is asked of a number that is not above 0.
    """
    seeds = [seed for seed in of if seed in against]
    if not seeds:
        raise MorphError(f"seeds {sorted(of)} and {sorted(against)} share none: nothing can be paired")
    if not ratio:
        return interval([of[seed] - against[seed] for seed in seeds])
    if wrong := [value for side in (of, against) for value in side.values() if not value > 0]:
        raise MorphError(f"a ratio of {wrong[0]!r} means nothing: give values above 0, or claim a difference")
    logs = interval([math.log(of[seed] / against[seed]) for seed in seeds])
    return Interval(math.exp(logs.mean), math.exp(logs.low), _exp(logs.high), logs.n)


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def judge(
    found: Interval,
    *,
    more_than: float | None = None,
    less_than: float | None = None,
    within: float | None = None,
    ratio: bool = False,
) -> str:
    """The verdict on one inequality; exactly one bound is given (`within`: from its negative, or inverse, to it)."""
    low, high = -math.inf, math.inf
    if more_than is not None:
        low = more_than
    elif less_than is not None:
        high = less_than
    elif within is not None:
        low, high = (1 / within if ratio else -within), within
    else:
        raise MorphError("a claim needs a bound: give more_than, less_than or within")
    if found.n < 2:
        return within_noise(found.n)
    if low < found.low and found.high < high:
        return SUPPORTED
    if found.high <= low or found.low >= high:
        return NOT_SUPPORTED
    return within_noise(found.n)
