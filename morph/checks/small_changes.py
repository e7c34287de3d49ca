"""Checks of the exercises of notebook 09."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import morph
from morph.checks.core import check, expect
from morph.measure.largest import largest

TOKENS, WIDTH, PIECES = 70, 8, 500
SLICES = (1, 16, 32, 70)
DRAFTS = ((0.0, 3), (0.5, 1), (0.8, 1), (0.8, 3), (1.0, 2), (0.6, 0))
"""Probability of a draft and drafts a pass that exercise 3 asks for."""


@check
def sliced_loss(answer: Callable[[Tensor, Tensor, Tensor, int], Any]) -> str:
    """Exercise 1: a mean cross-entropy for which no more than some rows of logits are held."""
    expect(callable(answer), "define a function of x, weight, targets and rows")
    made = torch.Generator().manual_seed(1)
    x, weight = torch.randn(TOKENS, WIDTH, generator=made), torch.randn(PIECES, WIDTH, generator=made)
    targets = torch.randint(PIECES, (TOKENS,), generator=made)
    right = F.cross_entropy(x @ weight.T, targets)
    for rows in SLICES:
        with largest() as held:
            given = answer(x.clone(), weight.clone(), targets.clone(), rows)
        expect(given is not None and given is not ..., "the function returns nothing so far; x.split(rows) cuts x")
        given = torch.as_tensor(given)
        expect(given.numel() == 1, f"return one number, the mean over all tokens, and not {tuple(given.shape)}")
        share = float(given) / float(right)
        expect(
            abs(share * TOKENS - 1) > 1e-4 and abs(share - TOKENS) > 1e-2,
            "the sum over tokens and their mean are a factor of the tokens apart; return the mean",
        )
        last = TOKENS % rows
        expect(
            abs(share - 1) < 1e-4,
            f"with rows = {rows} the mean is {float(right):.5f}, yours {float(given):.5f}"
            + (f": the last slice has {last} tokens; add up sums, and divide once" if last else ""),
        )
        most = max(rows * PIECES, PIECES * WIDTH) * x.element_size()
        expect(
            held.nbytes <= most,
            f"with rows = {rows} a tensor of shape {held.shape} was made: multiply one slice at a time",
        )
    return f"never more than rows x V numbers; all {TOKENS} at once would be {TOKENS * PIECES:,}"


@check
def folded(answer: Callable[[Tensor, Tensor, Tensor], Any]) -> str:
    """Exercise 2: the output bias that makes a value bias superfluous, tried on a whole model of stage 2."""
    expect(callable(answer), "define a function of value_bias, o_weight and o_bias")
    model = morph.build(replace(morph.stage("rms-norm", "nano"), n_layers=2), seed=3).double().eval()
    ids = torch.arange(20)[None] * 7 % 256
    made = torch.Generator().manual_seed(4)
    with torch.no_grad():
        mixers: list[Any] = [block.attention for block in model.blocks]
        for mixer in mixers:
            mixer.v_proj.bias.normal_(generator=made)
            mixer.o_proj.bias.normal_(generator=made)
        before = model(ids)
        for mixer in mixers:
            value, weight, bias = mixer.v_proj.bias, mixer.o_proj.weight, mixer.o_proj.bias
            given = answer(value.clone(), weight.clone(), bias.clone())
            expect(given is not None and given is not ..., "the function returns nothing so far; what does the map do?")
            expect(
                isinstance(given, Tensor) and given.shape == bias.shape,
                f"return a bias of the output map, {tuple(bias.shape)}",
            )
            expect(
                not torch.allclose(given, weight @ value) and not torch.allclose(given, bias),
                "the new bias is the old one and what the map makes of the value bias",
            )
            value.zero_()
            bias.copy_(given)
        moved = float((model(ids) - before).abs().max())
    expect(
        moved < 1e-9,
        f"the logits move by {moved:.1e}: each head's weights add up to 1, so the value bias reaches the output map "
        "as it is; o_weight is (D, features)",
    )
    return f"the logits of two layers move by {moved:.0e}; the value bias was one of the output map all along"


@check
def tokens_per_pass(answer: Callable[[float, int], Any]) -> str:
    """Exercise 3: tokens that a pass yields on average with n drafts, each right with probability p."""
    expect(callable(answer), "define a function of p and n")
    for p, n in DRAFTS:
        given, right = answer(p, n), float(sum(p**k for k in range(n + 1)))
        expect(given is not None and given is not ..., "the function returns nothing so far; when is draft k kept?")
        expect(isinstance(given, int | float), f"return a number, not {type(given).__name__}")
        hint = "draft k is kept when it and all before it are right"
        if abs(given - (1 + p * n)) < 1e-9:
            hint = "a draft counts only while all before it were right: not p each, but p, p², ..."
        elif abs(given - (right - 1)) < 1e-9:
            hint = "the trunk itself always writes one more"
        expect(
            abs(given - right) < 1e-9, f"with p = {p:g} and n = {n} a pass yields {right:.3f}, yours {given}: {hint}"
        )
    return "1 + p + p² + ... + pⁿ: at 0.8, one draft gives 1.8 tokens a pass, three give 2.95"
