"""Checks of the exercises of notebook 01."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import morph
from morph.checks.core import check, expect
from morph.config import ModelConfig

DEPTH, LIMIT = 96, 2.0
"""Layers of exercise 4, and the RMS below which its stream has to end."""


def _traced(config: ModelConfig, seed: int = 3) -> Mapping[str, Tensor]:
    """A trace of a fresh model on sixteen tokens."""
    model = morph.build(config, seed=seed)
    ids = torch.arange(40, 56)[None]
    with morph.trace(model) as seen, torch.no_grad():
        model(ids)
    return seen


@check
def stream_after(answer: Callable[[Mapping[str, Tensor], int], Any]) -> str:
    """Exercise 1: a function from a trace and a number of layers to the stream."""
    expect(callable(answer), "define a function of trace and layers")
    seen = _traced(replace(morph.stage(8, "nano"), n_layers=3))
    for layers in (0, 1, 3):
        start = seen["stream"].clone()
        given = answer(seen, layers)
        right = seen[f"blocks.{layers - 1}.stream"] if layers else start
        expect(given is not None and given is not ..., "the function returns nothing so far; start at trace['stream']")
        expect(bool(torch.equal(seen["stream"], start)), "your function changes the trace itself; add to a clone")
        expect(isinstance(given, Tensor) and given.shape == right.shape, f"give a tensor of shape {tuple(right.shape)}")
        error = float((given - right).abs().max())
        expect(error < 1e-4, f"after {layers} layers yours is off by up to {error:.2g}: add two deltas a layer")
    return "x₀ plus two deltas a layer: the stream after 0, 1 and 3 layers"


@check
def length_of_sum(answer: Callable[[int, float], Any]) -> str:
    """Exercise 2: √(W + W (W - 1) c)."""
    expect(callable(answer), "define a function of W and c")
    for count, cosine in ((1, 0.5), (4, 0.0), (4, 1.0), (48, 0.05), (48, 0.1)):
        given, right = answer(count, cosine), math.sqrt(count + count * (count - 1) * cosine)
        expect(given is not None and given is not ..., "the function returns nothing so far; square the sum")
        expect(
            isinstance(given, int | float) and abs(given - right) < 1e-6,
            f"{count} vectors with a cosine of {cosine:g} add up to a length of {right:.3f}, yours says {given}: "
            "W squares, and W (W - 1) products of different ones",
        )
    ratio = math.sqrt((48 + 48 * 47 * 0.05) / 48)
    return f"√(W + W (W - 1) c): a cosine of 0.05 makes 48 deltas {ratio:.2f} times as long as none"


@check
def factor_left(answer: Callable[[list[float], int], Any]) -> str:
    """Exercise 3: what the norms behind a part divide it by."""
    expect(callable(answer), "define a function of found and w")
    found = [1.5, 1.25, 2.0, 1.6]
    for w in (3, 2, 0, -1):
        given, right = answer(list(found), w), 1 / math.prod(found[max(w, 0) :])
        expect(given is not None and given is not ..., "the function returns nothing so far; which norms does it meet?")
        hint = "x₀ meets every norm" if w < 0 else "a delta is divided by the norm behind its own write, too"
        expect(
            isinstance(given, int | float) and abs(given - right) < 1e-9,
            f"found = {found}, w = {w}: the factor is {right:.4f}, yours {given}; {hint}",
        )
    return "1 over the product of all sizes found from a part's own norm on"


@check
def calm(answer: Any) -> str:
    """Exercise 4: stage 8, 96 layers deep, whose stream is a sum that ends small."""
    expect(answer is not ..., "start from morph.stage(8, size='nano') and replace two fields")
    expect(isinstance(answer, ModelConfig), "give a ModelConfig, made with replace(...)")
    paths = {change.path for change in morph.diff(morph.stage(8, "nano"), answer)}
    expect(
        paths <= {"n_layers", "placement"},
        f"change depth and placement alone; yours also changes {', '.join(sorted(paths - {'n_layers', 'placement'}))}",
    )
    expect(answer.n_layers == DEPTH, f"{DEPTH} layers, please; yours has {answer.n_layers}")
    expect(answer.placement != "post", "post-norm keeps the size, but its stream is no sum: every norm divides it")
    seen = _traced(answer)
    size = float(seen[f"blocks.{DEPTH - 1}.stream"].square().mean().sqrt())
    expect(size < LIMIT, f"this one ends at an RMS of {size:.1f}; the branches have to start smaller")
    return f"{2 * DEPTH} writes and the stream ends at an RMS of {size:.2f}"
