"""Checks of the exercises of notebook 04."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morph.checks.core import check, expect

WIDTHS = ((4096, 1.0, 256, 11_008), (4096, 1.3, 1024, 14_336), (8192, 1.3, 4096, 28_672), (96, 1.0, 1, 256))
"""d, factor, multiple and the width they give: Llama 2 7B, Llama 3 8B, Llama 2 70B, and the tiny size here."""


@check
def hidden_width(answer: Callable[[int, float, int], Any]) -> str:
    """Exercise 1: the hidden width that Llama's code computes."""
    expect(callable(answer), "define a function of d, factor and multiple")
    for d, factor, multiple, right in WIDTHS:
        given = answer(d, factor, multiple)
        expect(given is not None and given is not ..., "the function returns nothing so far; start with 2 · 4d / 3")
        expect(
            isinstance(given, int) and not isinstance(given, bool),
            f"give a whole number, not {given!r}: int() cuts, and // divides without a rest",
        )
        hint = (
            f"it is no multiple of {multiple}" if given % multiple
            else "round up, not to the nearest" if given < right
            else "a multiple is left as it is: rounding up must not add one more" if given == right + multiple
            else "two thirds of 4d first, then the factor"
        )  # fmt: skip
        expect(given == right, f"for d = {d:,}, factor {factor:g}, multiple {multiple:,} yours is {given:,}: {hint}")
    return "11,008 and 14,336, as released; 28,672 is Llama 2 70B"


@check
def product(gate: Any, up: Any, down: Any) -> str:
    """Exercise 2: matrices of a SwiGLU network that multiplies its two inputs."""
    parts = (gate, up, down)
    expect(all(part is not ... for part in parts), "what is SiLU(a) - SiLU(-a)? Put a and -a in two gates")
    expect(all(isinstance(part, Tensor) for part in parts), "give three tensors")
    expect(
        gate.ndim == 2 and gate.shape[1] == 2 and up.shape == gate.shape and down.shape == (1, len(gate)),
        "W_gate and W_up are (F, 2), W_down is (1, F)",
    )
    pairs = 3 * torch.randn(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    wide = [part.double() for part in parts]
    out = ((F.silu(pairs @ wide[0].T) * (pairs @ wide[1].T)) @ wide[2].T)[:, 0]
    right = pairs.prod(dim=1)
    error = float((out - right).abs().max())
    if error >= 1e-4:
        factor = float((out @ right) / (right @ right))
        scaled = abs(factor) > 1e-6 and float((out / factor - right).abs().max()) < 1e-4
        hint = (
            f"that is ab times {factor:.3g}: only the way down is off" if scaled
            else "one gate is not enough: what does SiLU(-a) lack of -a?" if len(gate) == 1
            else "each channel is SiLU(row of W_gate · (a, b)) times (row of W_up · (a, b)); add two up to a times b"
        )  # fmt: skip
        expect(False, f"the largest error is {error:.2g}: {hint}")
    return f"exact for any a and b, in {len(gate)} channels without a bias"


@check
def working(answer: Callable[[Tensor, float], Any]) -> str:
    """Exercise 3: the fewest channels of each token that hold a share of its squares."""
    expect(callable(answer), "define a function of hidden and share")
    hidden = torch.randn(30, 40, generator=torch.Generator().manual_seed(6)).pow(3)
    hidden[0] = 0
    hidden[0, 7] = 2.0
    for share in (0.5, 0.9, 0.99):
        given = answer(hidden.clone(), share)
        expect(given is not None and given is not ..., "the function returns nothing so far; sort the squares first")
        expect(isinstance(given, Tensor) and given.shape == (30,), "return one number a token, (T,)")
        expect(not given.is_floating_point(), "whole numbers: count, do not average")
        expect(int(given[0]) == 1, f"a token with one channel that is not zero needs 1, yours says {int(given[0])}")
        sums = hidden.square().sort(dim=-1, descending=True).values.cumsum(-1)
        right = (sums < share * sums[:, -1:]).sum(-1) + 1
        by_size = hidden.abs().sort(dim=-1, descending=True).values.cumsum(-1)
        is_size = bool((given == (by_size < share * by_size[:, -1:]).sum(-1) + 1).all())
        hint = (
            "square first: the signal is the sum of squares" if is_size
            else "take the largest squares first" if bool((given > right).any())
            else "one channel more: at least the share, so count the one that reaches it"
        )  # fmt: skip
        expect(bool((given == right).all()), f"for a share of {share:g} some token is off: {hint}")
    return "largest first, summed until they reach the share"
