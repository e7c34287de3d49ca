"""Checks of the exercises of notebook 06."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import morph
from morph.checks.core import check, expect
from morph.config import AllGlobal, Interleaved, SlidingWindow

RETURNS = "the function returns nothing so far"


def _given(value: Any, hint: str) -> None:
    expect(value is not None and value is not ..., f"{RETURNS}; {hint}")


@check
def stream_mask(answer: Callable[[int, int, int], Any]) -> str:
    """Exercise 1: a causal window that also keeps the first tokens in sight."""
    expect(callable(answer), "define a function of length, window and kept")
    for length, window, kept in ((8, 3, 0), (8, 3, 2), (12, 4, 1), (5, 9, 3), (6, 1, 1)):
        given = answer(length, window, kept)
        _given(given, "start from the table of distances i - j")
        expect(
            isinstance(given, torch.Tensor) and given.dtype == torch.bool and given.shape == (length, length),
            f"give a ({length}, {length}) tensor of booleans",
        )
        case = f"length {length}, window {window}, kept {kept}"
        for i in range(length):
            for j in range(length):
                seen = bool(given[i, j])
                expect(not (seen and j > i), f"{case}: query {i} sees key {j}, which comes later")
                right = j <= i and (i - j < window or j < kept)
                why = "one of the first" if j < kept else f"{i - j} back" if right else f"{i - j} back and not kept"
                expect(seen == right, f"{case}: query {i} {'should' if right else 'should not'} see key {j}, {why}")
    return "a band, the first columns, nothing of the future; with kept = 0 the plain window"


@check
def layers_needed(answer: Callable[[int, int], Any]) -> str:
    """Exercise 2: the least number of window layers that carries a token so far."""
    expect(callable(answer), "define a function of distance and window")
    for window in (2, 3, 5, 32):
        for distance in (0, 1, window - 1, window, 2 * window - 2, 2 * window - 1, 97):
            given = answer(distance, window)
            _given(given, "how far does one layer carry?")
            right = -(-distance // (window - 1))
            hint = "a window counts the token itself, so a layer carries window − 1 places"
            expect(
                isinstance(given, int | float) and given == right,
                f"{distance} places back with a window of {window} takes {right} layers, yours says {given}: {hint}",
            )
    return "distance over window − 1, rounded up: the formula of the reach, solved for the layers"


@check
def saving(answer: Callable[[int, int, int], Any]) -> str:
    """Exercise 3: how many times smaller the cache of a mixed stack is."""
    expect(callable(answer), "define a function of n, w and s")
    for n, w, s in ((3, 16, 8), (3, 16, 64), (1, 16, 64), (5, 8, 1000), (3, 4096, 65_536)):
        local = SlidingWindow(window=w)
        mixed = replace(morph.stage(9, "nano"), n_layers=n + 1, layout=Interleaved(n_local=n, local=local))
        whole = morph.count(replace(mixed, layout=AllGlobal())).cache_bytes(s)
        right = whole / morph.count(mixed).cache_bytes(s)
        given = answer(n, w, s)
        _given(given, "count tokens held in n + 1 layers, with and without windows")
        hint = (
            "a text shorter than the window saves nothing" if s < w else "n layers hold min(s, w) tokens, one holds s"
        )
        expect(
            isinstance(given, int | float) and abs(given - right) < 1e-6 * right,
            f"{n} : 1 with window {w:,} at {s:,} tokens saves a factor of {right:.3f}, yours says {given}: {hint}",
        )
    return "(n + 1) s / (n min(s, w) + s), which goes to n + 1 as the text grows"


@check
def sink_logit(answer: Callable[[int, float], Any]) -> str:
    """Exercise 4: the sink's logit for a given share among equal scores."""
    expect(callable(answer), "define a function of n and share")
    for n, share in ((1, 0.5), (3, 0.25), (128, 0.5), (128, 0.9)):
        given = answer(n, share)
        _given(given, "the sink's share is e^σ over the sum of all exponentials")
        expect(isinstance(given, int | float), "give a number")
        logits = torch.tensor([0.0] * n + [float(given)], dtype=torch.float64)
        taken = float(logits.softmax(0)[-1])
        expect(
            abs(taken - share) < 1e-9,
            f"among {n} keys of score 0 your logit {given:.3f} takes {taken:.3f} and should take {share}: "
            "solve share = e^σ / (e^σ + n) for σ",
        )
    return "log(n · share / (1 − share)): the more keys, the larger the logit that a sink needs"
