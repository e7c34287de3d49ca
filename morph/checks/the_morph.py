"""Checks of the exercises of notebook 00."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morph
from morph.checks.core import check, expect
from morph.config import Interleaved, ModelConfig, SlidingWindow

FULL_CONTEXT = 1024
"""Tokens at which exercise 3 compares the caches."""


@check
def kv_bytes_per_token(answer: Callable[[ModelConfig], Any]) -> str:
    """Exercise 1: a function from a config to bytes, right for stages 0 to 8 (a cache in every layer)."""
    expect(callable(answer), "define a function of one config")
    for size in ("nano", "tiny"):
        for stage in range(9):
            config = morph.stage(stage, size=size)
            given, right = answer(config), morph.count(config).kv_bytes_per_token
            expect(
                given is not None and given is not ...,
                "the function returns nothing so far; start from n_layers",
            )
            expect(
                given == right,
                f"stage {stage} ({size}) keeps {right:,} bytes a token, yours says {given:,}: count a key "
                f"and a value, for each key-value head (not each query head), two bytes a number",
            )
    return "layers × 2 × key-value heads × head width × 2 bytes, for all nine stages and both sizes"


@check
def same_parameters(answer: Any) -> str:
    """Exercise 2: the slugs of the steps that leave total and active parameters as they were."""
    expect(answer is not ..., "compare morph.count(morph.stage(k)) with that of k - 1, for k from 1 to 14")
    expect(
        isinstance(answer, set | frozenset | list | tuple) and all(isinstance(slug, str) for slug in answer),
        "give a set of slugs, such as {'rope', 'moe'}",
    )
    counts = [morph.count(morph.stage(stage)) for stage in range(len(morph.SLUGS))]
    numbers = [(count.total, count.active.all) for count in counts]
    right = {step.slug for step in morph.STEPS if numbers[step.number] == numbers[step.number - 1]}
    given = set(answer)
    unknown = given - set(morph.SLUGS)
    expect(not unknown, f"{', '.join(sorted(unknown))}: no such step; morph.SLUGS lists them")
    expect(not given - right, f"{min(given - right, default='')} does change a count; print both sides of it")
    expect(not right - given, f"{len(right - given)} more: count weights, not operations or bytes of cache")
    found = ", ".join(slug for slug in morph.SLUGS if slug in right)
    return f"{len(right)} of {len(morph.STEPS)} steps leave both counts alone: {found}"


@check
def widest_window(answer: Any) -> str:
    """Exercise 3: stage 9 with the smallest window that makes its cache as large as stage 8's."""
    expect(answer is not ..., "start from morph.stage(9); its window is layout.local.window")
    expect(isinstance(answer, ModelConfig), "give a ModelConfig, made with replace(...)")
    layout = answer.layout
    expect(
        isinstance(layout, Interleaved) and isinstance(layout.local, SlidingWindow),
        "keep the windows: three local layers to one global layer",
    )
    paths = [change.path for change in morph.diff(morph.stage(9), answer)]
    expect(
        set(paths) <= {"layout.local.window"},
        f"change the window alone; yours also changes {', '.join(paths)}",
    )
    given = morph.count(answer).cache_bytes(FULL_CONTEXT)
    right = morph.count(morph.stage(8)).cache_bytes(FULL_CONTEXT)
    expect(
        given == right,
        f"at {FULL_CONTEXT:,} tokens yours keeps {given:,} bytes and stage 8 {right:,}: "
        f"widen the window until nothing is dropped",
    )
    assert isinstance(layout, Interleaved) and isinstance(layout.local, SlidingWindow)
    expect(
        layout.local.window == FULL_CONTEXT,
        f"the caches agree; a window of {layout.local.window:,} is more than {FULL_CONTEXT:,} tokens need",
    )
    return f"a window of {FULL_CONTEXT:,} keeps all {FULL_CONTEXT:,} tokens: stage 8 again, under another name"
