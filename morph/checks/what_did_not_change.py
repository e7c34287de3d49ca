"""Checks of the exercises of notebook 14."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import morph
from morph.checks.core import check, expect
from morph.lab.tasks import IGNORED, Induction

MODELS = ((125_376, 4, 48), (7_504_924_672, 32, 4096), (1_557_611_200, 48, 1600))
"""Weights, layers and features of all query heads: ours, Llama 3 8B (without the input table) and GPT-2 XL."""


@check
def next_token_bits(answer: Callable[[Tensor, Tensor], Any]) -> str:
    """Exercise 1: the loss of the next token in bits, of a text that was read whole."""
    expect(callable(answer), "define a function of logits and ids")
    ids = torch.randint(256, (3, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = morph.build(morph.stage(9, "nano"), seed=1).eval()(ids)
    given = answer(logits.clone(), ids.clone())
    expect(given is not None and given is not ..., "the function returns nothing so far; F.cross_entropy takes logits")
    given = torch.as_tensor(given)
    expect(given.numel() == 1, f"return one number, the mean over all tokens, and not {tuple(given.shape)}")
    nats = float(F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    unshifted = float(F.cross_entropy(logits.flatten(0, 1), ids.flatten()))
    for wrong, hint in (
        (nats, "that is in nats: a bit is ln 2 of them"),
        (unshifted / math.log(2), "position t was compared with token t, which it has read; shift by one"),
        (unshifted, "position t was compared with token t, which it has read, and in nats; shift by one first"),
    ):
        expect(abs(float(given) - wrong) > 1e-4, hint)
    right = nats / math.log(2)
    expect(abs(float(given) - right) < 1e-4, f"the loss is {right:.4f} bits, yours {float(given):.4f}")
    return f"{right:.3f} bits for ids drawn at random, by a fresh model; even odds are 8"


@check
def even_context(answer: Callable[[int, int, int], Any]) -> str:
    """Exercise 2: the context at which scores cost as many FLOPs as products with weights."""
    expect(callable(answer), "define a function of weights, layers and width")
    for weights, layers, width in MODELS:
        given, right = answer(weights, layers, width), weights / (2 * layers * width)
        expect(given is not None and given is not ..., "the function returns nothing so far; count FLOPs of one token")
        expect(isinstance(given, int | float), f"return a number, not {type(given).__name__}")
        ratio = given / right
        hint = "2 FLOPs a weight; how many a layer, a feature and a token in context?"
        if abs(ratio - 2) < 1e-6:
            hint = "scores *and* weighted sums: two products a layer, 4 FLOPs a feature and token in context"
        elif abs(ratio - 0.5) < 1e-6:
            hint = "a weight costs a multiply and an add, too"
        elif abs(ratio - 1 / right**2) < 1e-9:
            hint = "that is the inverse: which grows with the context?"
        expect(
            abs(ratio - 1) < 1e-6,
            f"with {weights:,} weights, {layers} layers and width {width} it is {right:,.0f} tokens, "
            f"yours {given:,.0f}: {hint}",
        )
    ours, llama, _ = (n / (2 * layers * width) for n, layers, width in MODELS)
    return f"N / (2 L n d): {ours:,.0f} tokens for stage 0 of width 48, {llama:,.0f} for Llama 3 8B"


@check
def induced(answer: Callable[[Tensor], Any]) -> str:
    """Exercise 3: the token after the present one's last earlier occurrence, at every place."""
    expect(callable(answer), "define a function of ids")
    ids = torch.tensor([[1, 2, 3, 1, 4, 1, 2, 2]])
    given = answer(ids.clone())
    expect(given is not None and given is not ..., "the function returns nothing so far; compare all ids with all")
    expect(
        isinstance(given, Tensor) and given.shape == ids.shape,
        f"return a token for every place, {tuple(ids.shape)}",
    )
    expect(given[0, :3].tolist() == [1, 2, 3], "a token that was not read before is itself the guess")
    expect(int(given[0, 3]) == 2, "at the second 1 of 1 2 3 1 the guess is 2, which came after the first")
    expect(
        int(given[0, 5]) == 4,
        "at the third 1 of 1 2 3 1 4 1 the guess is 4: the *last* occurrence counts",
    )
    expect(given[0, 6:].tolist() == [3, 2], "in 1 2 3 1 4 1 2 2 the last two guesses are 3 and 2")
    task = Induction(shortest=6, longest=9, tokens=20, read=16)
    runs, targets = (torch.tensor(part) for part in task.held_out(morph.stage(0, "nano"), 64))
    asked = targets != IGNORED
    accuracy = float((answer(runs.clone())[asked] == targets[asked]).float().mean())
    expect(accuracy == 1, f"on runs of 6 to 9 tokens {accuracy:.0%} are right; all can be")
    return f"all {int(asked.sum())} tokens that can be foreseen are, without a trained weight"
