"""What the lab recorded, as numbers of a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from morph.errors import MorphError
from morph.lab.result import Result, recorded
from morph.lab.verdict import SUPPORTED
from morph.story.frame import Array


@cache
def run(name: str) -> Result:
    """A recorded experiment, read once."""
    return recorded(name)


def by_seed(name: str, arms: Sequence[str], measure: str, point: Mapping[str, float] | None = None) -> Array:
    """What every seed of some arms of an experiment read, (arm, seed).

    Raises:
        MorphError: when an arm lacks a reading that another has.
    """
    rows = [run(name).numbers(arm, dict(point or {}), measure) for arm in arms]
    if not rows[0] or len({len(row) for row in rows}) > 1:
        raise MorphError(f"experiment {name!r} has no {measure!r} of each seed of {', '.join(arms)}: record it again")
    return Array(values=np.array(rows), axes=("arm", "seed"), source=f"recorded experiment {name}: {measure}")


def holds(name: str, claim: str) -> bool:
    """Whether a claim of an experiment is supported. Raises `MorphError` when it makes no such claim."""
    verdicts = {found.verdict for found in run(name).findings if found.claim.text == claim}
    if not verdicts:
        raise MorphError(f"experiment {name!r} claims nothing like {claim!r}: see morph lab report")
    return verdicts == {SUPPORTED}


def trained(name: str) -> str:
    """How long the models of an experiment were trained, and with how many seeds: `50 steps, 3 seeds`."""
    declared = run(name).declared
    return f"{declared['recipe']['steps']:,} steps, {len(declared['seeds'])} seeds"
