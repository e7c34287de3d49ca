"""Checks of the exercises of notebook 13."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import morph
from morph.checks.core import check, expect
from morph.config import Interleaved, Listed, ModelConfig, SlidingWindow
from morph.errors import MorphError
from morph.steps import SIZES, Size

LENGTH = 40
"""Tokens of exercise 2."""


@check
def half_window(answer: Callable[[ModelConfig, Size], Any]) -> str:
    """Exercise 1: a change of the window alone, refused where there is none."""
    expect(callable(answer), "define a function of config and size")
    for stage, size in ((9, "nano"), (13, "tiny")):
        config = morph.stage(stage, size)
        given = answer(config, SIZES[size])
        expect(given is not None and given is not ..., "the function returns nothing so far; start from config.layout")
        expect(isinstance(given, ModelConfig), "return a config: replace(config, layout=...)")
        changed = [str(change) for change in morph.diff(config, given)]
        window = SIZES[size].window
        right = [f"layout.local.window: {window} → {window // 2}"]
        expect(changed == right, f"stage {stage} ({size}) should change by {right[0]}, yours: {changed or 'nothing'}")
    for where in ("gqa", "hybrid", "all-local"):
        config = morph.compose(where, size="nano")
        try:
            answer(config, SIZES["nano"])
        except MorphError:
            continue
        except Exception as error:  # what a reader of the error would see
            expect(False, f"on {where!r} it raises {type(error).__name__}; ask as_kind for what it needs first")
        expect(False, f"{where!r} has no windows in an interleaved layout; there it must raise a MorphError")
    return "half the window where there is one, and a sentence where there is none"


def _pair(window: int, size: str = "nano") -> tuple[ModelConfig, ModelConfig]:
    """Stage 9 with its global layer first, and stage 9, both with this window."""
    local, base = SlidingWindow(window=window), morph.stage(9, size)
    first = replace(base, layout=Listed(global_layers=(0,), local=local))
    return first, replace(base, layout=Interleaved(n_local=3, local=local))


@check
def relation(holds: Callable[[ModelConfig, ModelConfig], Any], smallest: Any) -> str:
    """Exercise 2: same logits or not, and the window from which on they are the same."""
    expect(callable(holds), "define a function of two configs")
    fork, base = _pair(LENGTH)
    given = holds(base, base)
    expect(given is not None and given is not ..., "the function returns nothing so far; build both with seed=0")
    expect(isinstance(given, bool), f"answer True or False, not {type(given).__name__}; bool(...) makes one")
    expect(given, "a config and itself are the same model; build both from one seed")
    expect(holds(fork, base) is True, f"with a window of {LENGTH} both see all of {LENGTH} tokens: these are the same")
    expect(holds(*_pair(4)) is False, "with a window of 4 they differ: is the largest difference below 1e-4?")
    expect(
        holds(replace(base, norm=replace(base.norm, eps=0.05)), base) is False,
        "another ε gives other logits; compare the numbers, not the shapes or the configs' fields",
    )
    expect(smallest is not ..., "now the smallest window; try holds with a few")
    expect(isinstance(smallest, int) and smallest > 0, "give a whole number")
    expect(smallest >= LENGTH, f"a window of {smallest} hides token 0 from token {LENGTH - 1}")
    expect(smallest == LENGTH, f"{smallest} is enough, and so is less: a window counts the token itself")
    return f"the same model from a window of {LENGTH} on, another one below"


@check
def partial_rms(answer: Callable[[Tensor, Tensor, int, float], Any]) -> str:
    """Exercise 3: the RMS of the first features divides all of them."""
    expect(callable(answer), "define a function of x, gain, count and eps")
    generator = torch.Generator().manual_seed(4)
    x, gain = torch.randn(3, 7, 48, generator=generator), torch.rand(48, generator=generator) + 0.5
    for count, eps in ((48, 1e-5), (3, 1e-5), (12, 0.5)):
        given = answer(x.clone(), gain.clone(), count, eps)
        expect(given is not None and given is not ..., "the function returns nothing so far; start from x[..., :count]")
        expect(
            isinstance(given, Tensor) and given.shape == x.shape, f"the shape stays {tuple(x.shape)}: all are divided"
        )
        right = gain * x / (x[..., :count].square().mean(-1, keepdim=True) + eps).sqrt()
        if torch.allclose(given, right, rtol=1e-4, atol=1e-5):
            continue
        outside = gain * x / (x[..., :count].square().mean(-1, keepdim=True).sqrt() + eps)
        expect(not torch.allclose(given, outside, rtol=1e-4, atol=1e-5), "ε stands under the root, as in RMSNorm")
        expect(not torch.allclose(given * gain, right, rtol=1e-4, atol=1e-5), "multiply by the gain")
        where = "all features: that is RMSNorm" if count == 48 else f"the first {count} features"
        expect(False, f"with {where}, the largest difference is {(given - right).abs().max():.2g}")
    a_few = (x[..., :3].square().mean(-1).sqrt() / x.square().mean(-1).sqrt()).std()
    return f"right; with 3 of 48 features the size is off by {a_few:.0%} as a rule: that noise is its price"
