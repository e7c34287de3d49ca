"""Checks of the exercises of notebook 11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morph
from morph.checks.core import check, expect
from morph.config import ModelConfig
from morph.train.sweep import HIGHER, LOWER, WITHIN, Sweep

CASES = (
    (LOWER, [3.0, 3.1, 2.9], [3.5, 3.6, 3.4001]),
    (HIGHER, [3.0, 3.1, 2.9, 3.3], [2.9, 3.0, 2.8, 3.21]),
    (WITHIN, [3.0, 3.1, 2.9], [3.1, 3.0, 3.0]),
    (WITHIN, [2.0, 2.6], [2.5, 2.5]),
    (LOWER, [2.0, 1.0, 3.0], [2.1, 1.1, 3.1001]),
)
"""Verdict, values after and before, by seed: the last only where pairs are kept."""


@check
def training_flops(answer: Callable[[ModelConfig, int, int], Any]) -> str:
    """Exercise 1: three forward passes for each window of each step."""
    expect(callable(answer), "define a function of config, steps and batch")
    for stage, size, steps, batch in ((0, "nano", 60, 4), (10, "tiny", 300, 8), (14, "nano", 1, 1)):
        config = morph.stage(stage, size)
        given, forward = answer(config, steps, batch), morph.count(config).flops(config.context_length).total
        expect(given is not None and given is not ..., "the function returns nothing so far; start from one window")
        expect(isinstance(given, int | float), f"give a number, not {given!r:.40}")
        where = f"stage {stage} ({size}), {steps} steps of {batch} windows"
        expect(given != steps * batch * forward, f"{where}: that is the forward passes; a backward pass is two more")
        expect(
            given != 3 * steps * batch * config.context_length * forward,
            f"{where}: .total is already that of all {config.context_length} tokens of a window",
        )
        right = 3 * steps * batch * forward
        expect(abs(given - right) < 1, f"{where} take {right:.3e} FLOPs, yours says {given:.3e}")
    whole = 3 * 60 * 4 * sum(morph.count(morph.stage(k, "nano")).flops(64).total for k in range(len(morph.SLUGS)))
    return f"three forward passes a window; all fifteen stages of this notebook took {whole:.1e} FLOPs"


@check
def verdict(answer: Callable[[list[float], list[float]], Any]) -> str:
    """Exercise 2: a paired t-interval."""
    expect(callable(answer), "define a function of two lists")
    for right, after, before in CASES:
        given = answer(list(after), list(before))
        expect(given is not None and given is not ..., "the function returns nothing so far; start from differences")
        expect(given in (LOWER, HIGHER, WITHIN), f"answer with {LOWER!r}, {HIGHER!r} or {WITHIN!r}, not {given!r:.40}")
        hint = "lower is after below before" if {given, right} == {LOWER, HIGHER} else "pair them seed by seed first"
        expect(given == right, f"{after} after {before} is {right!r}, yours says {given!r}: {hint}")
    sweep = Sweep.reference()
    for step in morph.STEPS:
        found = sweep.difference(step.number)
        assert found is not None
        values = ([run.bits_per_byte for run in sweep[k].runs] for k in (step.number, step.number - 1))
        given = answer(*values)
        expect(given == found.verdict, f"the sweep says of {step.slug} {found.verdict!r}, yours {given!r}")
    return "as the sweep has it, for all fourteen steps"


@check
def front(answer: Any) -> str:
    """Exercise 3: the stages that no other beats in bits and FLOPs."""
    expect(answer is not ..., "compare every stage with every other: two numbers each")
    expect(
        isinstance(answer, set | frozenset | list | tuple) and all(isinstance(slug, str) for slug in answer),
        "give a set of slugs, such as {'rope', 'moe'}",
    )
    points = {stage.slug: (stage.mean, stage.flops_per_token) for stage in Sweep.reference().stages}
    unknown = sorted(set(answer) - points.keys())
    expect(not unknown, f"{', '.join(unknown)}: no such stage; morph.SLUGS lists them")
    beats = {
        slug: [other for other, (b, f) in points.items() if b <= bits and f <= flops and (b, f) != (bits, flops)]
        for slug, (bits, flops) in points.items()
    }
    for slug in points:
        if slug in answer:
            expect(not beats[slug], f"{slug} is beaten in both by {', '.join(beats[slug][:3])}")
    missing = [slug for slug in points if not beats[slug] and slug not in answer]
    expect(not missing, f"{len(missing)} more: a stage that costs more but predicts better is not beaten")
    best, cheapest = min(points, key=lambda s: points[s][0]), min(points, key=lambda s: points[s][1])
    return f"{len(set(answer))} of {len(points)} stages, from {cheapest} (cheapest) to {best} (best)"
