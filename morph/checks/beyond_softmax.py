"""Checks of the exercises of notebook 08."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from morph.checks.core import check, expect
from morph.nn.deltalayer import token_by_token, unit

LAYERS = ((2, 256, 32, 128, 128), (8, 128, 16, 64, 64), (1, 12, 4, 12, 12))
"""KV heads and their width, heads of a state and its rows and columns, that exercise 2 asks for; first Qwen3-Next's."""
TEXTS = ((), (0, 0, 0), (1,), (1, 1), (1, 0, 1, 1, 0), (1, 0) * 300 + (1,))
"""Bits that exercise 3 reads."""
TOLERANCE = 1e-6


@check
def delta_step(answer: Callable[[Tensor, Tensor, Tensor, Tensor, float, float], Any]) -> str:
    """Exercise 1: the gated delta rule for one token."""
    expect(callable(answer), "define a function of state, k, v, q, alpha and beta")
    draw = torch.Generator().manual_seed(4)
    old, k, v, q = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((5, 3), (5,), (3,), (5,)))
    k = unit(k)
    for alpha, beta in ((1.0, 1.0), (1.0, 0.3), (0.5, 0.0), (0.5, 0.8)):
        given = answer(old.clone(), k.clone(), v.clone(), q.clone(), alpha, beta)
        expect(given is not None and given is not ..., "the function returns nothing so far; start with alpha * state")
        expect(isinstance(given, tuple | list) and len(given) == 2, "return two things: the state and what is read")
        state, read = given
        expect(isinstance(state, Tensor) and state.shape == (5, 3), "the state stays (Dk, Dv), here (5, 3)")
        right, out = _step(old, k, v, q, alpha, beta)
        if not _close(state, right):
            misprint = (alpha * torch.eye(5, dtype=k.dtype) - beta * torch.outer(k, k)) @ old + beta * torch.outer(k, v)
            only_sum = alpha * old + beta * torch.outer(k, v)
            expect(not _close(state, misprint), "alpha multiplies the erased part, too: ask the state after it faded")
            expect(not _close(state, only_sum), "nothing is erased: write v minus what the state answers to k already")
            expect(False, f"with alpha = {alpha:g} and beta = {beta:g} the state differs: fade, ask it for k, correct")
        expect(isinstance(read, Tensor) and read.shape == (3,), "what is read is (Dv,), here (3,): stateᵀ q")
        expect(not _close(read, old.T @ q), "the query reads after the write, not before")
        expect(_close(read, out), "read the new state with q: stateᵀ q")
    return "the state moved by alpha and beta exactly as the layer's own rule moves it"


def _step(state: Tensor, k: Tensor, v: Tensor, q: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """The rule of `morph.nn.deltalayer` on one token of one head."""
    q, k, v = (x[None, None, None] for x in (q, k, v))
    log_decay, strength = torch.full((1, 1, 1, 1), alpha).double().log(), torch.full((1, 1, 1), beta).double()
    out, new = token_by_token(q, k, v, log_decay, strength, state[None, None])
    return new[0, 0], out[0, 0, 0]


@check
def level_at(answer: Callable[[int, int, int, int, int], Any]) -> str:
    """Exercise 2: the tokens at which a softmax layer's cache weighs what a delta layer's state does."""
    expect(callable(answer), "define a function of kv_heads, head_dim, heads, key_dim and value_dim")
    for kv_heads, head_dim, heads, key_dim, value_dim in LAYERS:
        given = answer(kv_heads, head_dim, heads, key_dim, value_dim)
        expect(given is not None and given is not ..., "the function returns nothing so far; weigh the state first")
        expect(isinstance(given, int | float), "give one number of tokens")
        right = heads * key_dim * value_dim / (kv_heads * head_dim)
        expect(abs(given - 2 * right) > TOLERANCE, "a token caches a key and a value: two vectors a head")
        expect(abs(given - right / 2) > TOLERANCE, "a state is fp32, four bytes a number; the cache is bf16, two")
        expect(
            abs(given - right) < TOLERANCE,
            f"{heads} heads of {key_dim} x {value_dim} against {kv_heads} of {head_dim}: {right:g} tokens, "
            f"yours {given:g}; divide the state's bytes by those that a token caches",
        )
    kv_heads, head_dim, heads, key_dim, value_dim = LAYERS[0]
    level = heads * key_dim * value_dim / (kv_heads * head_dim)
    return f"in Qwen3-Next {level:,.0f} tokens, and three times as many for its three states to each cache"


@check
def parity(answer: Callable[[int], Any]) -> str:
    """Exercise 3: a decay and a strength for each bit, so that a state of one number counts ones modulo 2."""
    expect(callable(answer), "define a function of a bit, 0 or 1")
    chosen = {}
    for bit in (0, 1):
        given = answer(bit)
        expect(given is not None and given is not ..., "the function returns nothing so far: by what does S change?")
        expect(isinstance(given, tuple | list) and len(given) == 2, "return two numbers: alpha and beta")
        alpha, beta = (float(x) for x in given)
        expect(0 <= alpha <= 1, f"alpha is {alpha:g} for a bit of {bit}; it has to lie from 0 to 1")
        expect(0 <= beta <= 2, f"beta is {beta:g} for a bit of {bit}; it has to lie from 0 to 2")
        chosen[bit] = alpha * (1 - beta)
    expect(chosen[1] < 0, f"a one multiplies S by {chosen[1]:g}; to turn its sign, 1 - beta must be negative")
    for bits in TEXTS:
        state = 1.0
        for bit in bits:
            state *= chosen[bit]
        wanted = -1 if sum(bits) % 2 else 1
        told = "".join(map(str, bits)) if len(bits) < 9 else f"{len(bits)} bits"
        expect(
            abs(state - wanted) < TOLERANCE,
            f"after {told or 'no bits'} S is {state:.3g} not {wanted}: nothing may fade, a zero keeps S as is",
        )
    return "a reflection for a one; with beta up to 1 no factor is negative, and no sign can turn"


@check
def kept(answer: Callable[[Tensor, int], Any]) -> str:
    """Exercise 4: the mask of the best-scored keys that a query can see."""
    expect(callable(answer), "define a function of scores and top_k")
    draw = torch.Generator().manual_seed(5)
    for size, top_k in ((24, 6), (24, 1), (5, 9)):
        scores = (2 * torch.randn(size, size, generator=draw)).round()  # whole numbers, so that some tie
        given = answer(scores.clone(), top_k)
        expect(given is not None and given is not ..., "the function returns nothing so far; hide the future first")
        expect(isinstance(given, Tensor) and given.shape == scores.shape, f"the mask is (S, S), here ({size}, {size})")
        expect(given.dtype == torch.bool, "a mask is a tensor of bool")
        expect(not bool(given.triu(1).any()), "a query may not read a later key, even a well scored one")
        for t in range(size):
            seen, mine = scores[t, : t + 1], given[t, : t + 1]
            wanted = min(top_k, t + 1)
            expect(int(mine.sum()) == wanted, f"query {t} keeps {int(mine.sum())} of {t + 1} keys and should {wanted}")
            best = seen.argsort(descending=True, stable=True)[:wanted]
            right = torch.zeros_like(mine).scatter(0, best, torch.ones_like(mine))
            expect(
                bool((seen[mine].sort().values == seen[right].sort().values).all()),
                f"query {t} keeps a key while a better scored one is left out: hide the future before you choose",
            )
            expect(bool((mine == right).all()), "of equal scores the earlier key stays: sort with stable=True")
    return "the best in sight, the future hidden, ties to the earlier key"


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a.double() - b).abs().max() < TOLERANCE)
