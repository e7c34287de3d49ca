"""Checks of the exercises of notebook 07."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from morph.checks.core import check, expect

SHAPES = ((8, 2, 0), (32, 8, 0), (32, 7, 1), (256, 8, 1), (4, 4, 0))
"""Routed, chosen and shared experts that exercise 2 asks for."""


@check
def route(answer: Callable[[Tensor, int, float], Any]) -> str:
    """Exercise 1: a function from scores to the weights and indices of the chosen experts."""
    expect(callable(answer), "define a function of logits, k and scale")
    logits = torch.randn(40, 16, generator=torch.Generator().manual_seed(1))
    for k, scale in ((1, 1.0), (2, 2.0), (7, 7.0)):
        given = answer(logits.clone(), k, scale)
        expect(given is not None and given is not ..., "the function returns nothing so far; start with a softmax")
        expect(isinstance(given, tuple | list) and len(given) == 2, "return two things: weights and chosen")
        weights, chosen = given
        expect(
            all(isinstance(part, Tensor) and part.shape == (40, k) for part in (weights, chosen)),
            f"both are (T, k), here (40, {k}); topk gives values and indices of that shape",
        )
        best, indices = logits.softmax(-1).topk(k)
        expect(bool((chosen == indices).all()), "the chosen are the k most probable, most probable first")
        sums = weights.sum(-1)
        expect(
            torch.allclose(sums, torch.full_like(sums, scale), rtol=1e-4),
            f"with k = {k} the weights of a token should add up to {scale:g}, yours to {sums[0]:.3f}: "
            "divide by their own sum, then scale",
        )
        right = scale * best / best.sum(-1, keepdim=True)
        expect(torch.allclose(weights, right, rtol=1e-4), "weights are in proportion to the probabilities")
    return "softmax, the k best, over their sum, times the scale"


@check
def used_share(answer: Callable[[int, int, int], Any]) -> str:
    """Exercise 2: the share of a layer's expert weights that a token uses."""
    expect(callable(answer), "define a function of n, k and shared")
    for n, k, shared in SHAPES:
        given, right = answer(n, k, shared), (k + shared) / (n + shared)
        expect(given is not None and given is not ..., "the function returns nothing so far; count experts")
        hint = "a shared expert is both stored and used" if shared else "chosen over stored"
        expect(
            isinstance(given, int | float) and abs(given - right) < 1e-9,
            f"with {k} of {n} and {shared} shared the share is {right:.4f}, yours {given}: {hint}",
        )
    return "(k + shared) / (n + shared): 8 of 33 in step 12, as 2 of 8 in step 10, nearly"


@check
def equal_cost(equal_k: Any, teams: Any) -> str:
    """Exercise 3: how many of 256 use as much as 2 of 8, and the number of teams."""
    expect(equal_k is not ... and teams is not ..., "a fourth of the weights is used: how many of 256 are a fourth?")
    expect(isinstance(equal_k, int) and isinstance(teams, int), "give two whole numbers; math.comb is exact")
    expect(equal_k == 64, f"{equal_k} of 256 use {equal_k / 256:.1%} of the weights, 2 of 8 use 25%")
    expect(teams == math.comb(256, 64), "teams are the ways to choose 64 of 256: math.comb, not a float")
    return f"64 of 256: {float(teams):.1e} teams, against {math.comb(256, 8):.1e} for the cheaper 8 of 256"


@check
def biased(answer: Any, logits: Tensor) -> str:
    """Exercise 4: a bias that makes every token choose expert 3 among its two."""
    expect(answer is not ..., "one number an expert; how large can the difference of two probabilities be?")
    expect(isinstance(answer, Tensor) and answer.shape == (8,), "give a tensor of 8 numbers")
    p = logits.softmax(-1)
    chosen = (p + answer).topk(2).indices
    obey = float((chosen == 3).any(-1).float().mean())
    expect(obey == 1, f"{obey:.0%} of the tokens choose expert 3; raise its bias above the others'")
    free = len({tuple(sorted(row)) for row in chosen.tolist()})
    expect(free > 1, "every token takes the same two: leave the second choice to the probabilities")
    weight = p.gather(-1, chosen) / p.gather(-1, chosen).sum(-1, keepdim=True)
    least = float(weight[chosen == 3].min())
    return f"all obey, {free} pairs occur; expert 3 still counts by its probability, for one token only {least:.0%}"


@check
def limited(answer: Callable[[Tensor], Any]) -> str:
    """Exercise 5: the best seven experts on each token's best two devices."""
    expect(callable(answer), "define a function of p")
    p = torch.randn(60, 32, generator=torch.Generator().manual_seed(2)).softmax(-1)
    given = answer(p.clone())
    expect(given is not None and given is not ..., "the function returns nothing so far; view p as (T, 4, 8) first")
    expect(isinstance(given, Tensor) and given.shape == (60, 7), "return the indices of the chosen experts, (T, 7)")
    devices = given.long() // 8
    most = max(len(set(row)) for row in devices.tolist())
    expect(most <= 2, f"one token's experts lie on {most} devices; put those of the other devices out of reach")
    kept = p.unflatten(-1, (4, 8)).sum(-1).topk(2).indices
    expect(
        bool((devices[..., None] == kept[:, None]).any(-1).all()),
        "a device counts for the sum of its probabilities; keep the two largest sums",
    )
    is_in = (torch.arange(4)[None, :, None] == kept[:, None, :]).any(-1).repeat_interleave(8, dim=1)
    right = p.masked_fill(~is_in, -1).topk(7).indices
    expect(bool((given == right).all()), "on the kept devices take the seven most probable, most probable first")
    free = sum(len(set(row)) for row in (p.topk(7).indices // 8).tolist()) / len(p)
    return f"at most 2 devices a token, {free:.1f} on average without the limit"
