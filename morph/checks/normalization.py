"""Checks of the exercises of notebook 03."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morph.checks.core import check, expect

FOCUS = ((0.5, 2), (0.5, 64), (0.9, 8192), (0.02, 131_072))
"""Shares and numbers of keys that exercise 5 asks for."""


@check
def layer_norm(answer: Callable[[Tensor, Tensor, Tensor, float], Any]) -> str:
    """Exercise 1: LayerNorm of some vectors, with gain, shift and ε."""
    expect(callable(answer), "define a function of x, gain, shift and eps")
    generator = torch.Generator().manual_seed(1)
    x, gain, shift = (torch.randn(shape, generator=generator) for shape in ((3, 5, 24), (24,), (24,)))
    for start, eps in ((2.0, 1e-5), (0.0, 0.5)):
        given, right = answer(x + start, gain, shift, eps), F.layer_norm(x + start, (24,), gain, shift, eps)
        expect(given is not None and given is not ..., "the function returns nothing so far; what differs is the mean")
        expect(isinstance(given, Tensor) and given.shape == x.shape, f"give a tensor of shape {tuple(x.shape)}")
        if torch.allclose(given, right, atol=1e-4):
            continue
        rms = gain * F.rms_norm(x + start, (24,), eps=eps) + shift
        expect(
            not torch.allclose(given, rms, atol=1e-4), "that is RMSNorm with gain and shift: take the mean off first"
        )
        bare = F.layer_norm(x + start, (24,), eps=eps)
        expect(not torch.allclose(given, bare, atol=1e-4), "the norm is right; multiply by gain and add shift")
        whole = x + start
        whole = gain * F.rms_norm(whole - whole.mean(), (24,), eps=eps) + shift
        expect(not torch.allclose(given, whole, atol=1e-4), "each token has its own mean: x.mean(-1, keepdim=True)")
        wrong = float((given - right).abs().max())
        expect(eps < 0.1, f"with a large eps yours is off by {wrong:.2g}: hand eps on to the norm")
        expect(False, f"yours is off by up to {wrong:.2g}: the RMSNorm of x less its mean, times gain, plus shift")
    return "RMSNorm of x less its mean, times the gain, plus the shift"


@check
def merged(answer: Callable[[Tensor, Tensor], Any]) -> str:
    """Exercise 2: mean and variance of the whole from those of equal parts."""
    expect(callable(answer), "define a function of means and variances")
    generator = torch.Generator().manual_seed(2)
    for far in (0.0, 3000.0):
        x = torch.randn(6, 4, 32, generator=generator) + torch.arange(4)[:, None] + far  # (T, R, features of a rank)
        means, variances = x.mean(-1).T, x.var(-1, correction=0).T
        given = answer(means.clone(), variances.clone())
        expect(given is not None and given is not ..., "the function returns nothing so far; start with the mean")
        expect(isinstance(given, tuple | list) and len(given) == 2, "return two things: mean and variance")
        mean, variance = given
        expect(
            all(isinstance(part, Tensor) and part.shape == (6,) for part in given),
            "both are (T,), here (6,): reduce over the ranks, the first axis",
        )
        whole = means.mean(0) - x.mean((-1, -2))
        expect(torch.allclose(mean - x.mean((-1, -2)), whole, atol=1e-2), "the mean of the whole is the mean of means")
        exact = x.double().flatten(1)
        right = exact.var(-1, correction=0).float()
        if torch.allclose(variance, right, rtol=2e-3):
            continue
        expect(
            not torch.allclose(variance, variances.mean(0), rtol=2e-3),
            "the mean of the variances leaves out that the ranks' means differ from each other",
        )
        sample = variances.mean(0) + means.var(0)
        expect(
            not torch.allclose(variance, sample, rtol=2e-3),
            "var divides by R - 1 unless told otherwise: the ranks are all there is, so divide by R",
        )
        expect(
            far == 0,
            f"right where the mean is small; at a mean of {far:,.0f} yours says {float(variance[0]):.2f} for "
            f"{float(right[0]):.2f}: a difference of large squares has few digits left",
        )
        expect(
            False, f"the variance is {float(right[0]):.3f}, yours {float(variance[0]):.3f}: add how the means differ"
        )
    return "the mean of the variances and the variance of the means; it holds at a mean of 3,000, too"


@check
def unheard(answer: Callable[[Tensor], Any]) -> str:
    """Exercise 3: two directions that LayerNorm's derivative sends to zero."""
    expect(callable(answer), "define a function of x")
    x = torch.randn(20, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.7
    given = answer(x.clone())
    expect(
        given is not None and given is not ..., "the function returns nothing so far; which changes leave LN(x) alone?"
    )
    expect(isinstance(given, Tensor) and given.shape == (2, 20), "give a tensor (2, d), a direction a row")
    expect(bool((given.norm(dim=-1) > 1e-6).all()), "a vector of zeros is no direction")
    directions = F.normalize(given.double(), dim=-1)
    slope = torch.autograd.functional.jacobian(lambda v: F.layer_norm(v, (20,), eps=1e-12), x)
    left = (directions @ slope.T).norm(dim=-1) / torch.linalg.matrix_norm(slope, 2)
    for row, share in enumerate(left.tolist()):
        expect(
            share < 1e-3,
            f"row {row} is heard: {share:.0%} of the largest slope is left; LayerNorm does not see a shift of all "
            "features, nor their common size",
        )
    expect(
        float(torch.linalg.svdvals(directions)[-1]) > 1e-3, "both rows are the same direction; there is a second one"
    )
    return "all features shifted alike, and all of them larger about their mean: neither moves LayerNorm's output"


@check
def largest_score(answer: Callable[[Tensor, Tensor], Any]) -> str:
    """Exercise 4: √d_h times the largest |gq · gk| of one feature."""
    expect(callable(answer), "define a function of gq and gk")
    generator = torch.Generator().manual_seed(4)
    pairs: list[tuple[Tensor, Tensor]] = [(torch.ones(16), torch.ones(16))]
    for width in (9, 64):
        made = 0.5 + torch.rand(2, width, generator=generator)
        made[0, 2], made[1, 2] = -2.0, 1.8  # the largest product is negative
        made[1, 5], made[0, 5] = 1.9, 0.1  # the largest of the second gains stands where the first is small
        pairs.append((made[0], made[1]))
    for gq, gk in pairs:
        given, right = answer(gq, gk), math.sqrt(len(gq)) * float((gq * gk).abs().max())
        expect(given is not None and given is not ..., "the function returns nothing so far; take gains of 1 first")
        given = float(given)
        if abs(given - right) < 1e-3 * right:
            continue
        apart = math.sqrt(len(gq)) * float(gq.abs().max() * gk.abs().max())
        expect(
            abs(given - apart) > 1e-3 * apart,
            "that bound is never reached: the largest gains stand in different features, and q meets k feature by "
            "feature",
        )
        signed = math.sqrt(len(gq)) * float((gq * gk).max())
        expect(abs(given - signed) > 1e-3 * abs(signed), "a product of gains may be negative: it is |score| we ask for")
        expect(
            given > right,
            f"a score of {right:.2f} is possible, yours says at most {given:.2f}: put all of q and k into one feature",
        )
        expect(False, f"no pair gets beyond {right:.2f}, yours says {given:.2f}: |q · k| is a sum over features")
    return "√d_h times the largest product of gains in one feature"


@check
def needed(answer: Callable[[float, int], Any]) -> str:
    """Exercise 5: log((n - 1) a / (1 - a))."""
    expect(callable(answer), "define a function of a and n")
    for share, n in FOCUS:
        given, right = answer(share, n), math.log(share / (1 - share) * (n - 1))
        expect(
            given is not None and given is not ..., "the function returns nothing so far; solve for e to the B first"
        )
        given = float(given)
        got = 1 / (1 + (n - 1) * math.exp(-min(max(given, -700.0), 700.0)))
        expect(
            abs(given - right) < 1e-6,
            f"with a score of {given:.3f} it gets {got:.2%} of {n:,} keys, not {share:.0%}"
            + ("; log is the natural one" if abs(given * math.log(2) - right) < 1e-6 else ": solve for B"),
        )
    return f"log((n - 1) a / (1 - a)): half of 131,072 keys' weight takes a score of {math.log(131_071):.1f}"
