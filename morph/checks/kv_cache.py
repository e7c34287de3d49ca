"""Checks of the exercises of notebook 05."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from morph.checks.core import check, expect

LAYOUTS: tuple[tuple[tuple[int | None, ...], int, int], ...] = (
    ((None, None), 100, 1), ((None,), 7, 3), ((32, 32, 32, None), 20, 1), ((32, 32, 32, None), 5000, 2),
)  # fmt: skip
"""Windows of the layers, tokens and texts that exercise 1 asks for."""
LATENTS = ((128, 512, 64, 2), (64, 512, 64, 2), (16, 128, 32, 1))
"""Query heads, rank, rotary width and bytes a number of exercise 2."""
WEIGHTS, TOKEN, MEMORY, TOKENS = 8_030_261_248 * 2, 2 * 32 * 8 * 128 * 2, 80 * 10**9, 8192
"""Of Llama 3 8B and one H100, for exercise 4."""


@check
def cache_bytes(answer: Callable[[Sequence[int | None], int, int, int, int, int], Any]) -> str:
    """Exercise 1: bytes of a cache of layers with and without windows."""
    expect(callable(answer), "define a function of windows, n_kv, d_h, s, b and size")
    for windows, s, b in LAYOUTS:
        given = answer(list(windows), 2, 24, s, b, 2)
        expect(
            given is not None and given is not ..., "the function returns nothing so far; what does one token leave?"
        )
        kept = sum(s if window is None else min(s, window) for window in windows)
        right, asked = 2 * 2 * 24 * 2 * kept * b, f"with windows {list(windows)}, {s} tokens and {b} texts"
        expect(isinstance(given, int), f"bytes are whole numbers, {asked} yours are {given!r}")
        expect(2 * given != right, f"{asked} you are at half of {right:,}: keys and values")
        expect(b == 1 or given * b != right, f"{asked} it is {right:,}: every text has a cache of its own")
        whole = right // kept * s * len(windows)
        expect(given == right or given != whole, f"{asked} it is {right:,}: a window keeps the last tokens alone")
        expect(given == right, f"{asked} it is {right:,}, yours {given:,}")
    return "2 · n_kv · d_h · size for every token that a layer keeps, min(s, w) of them"


@check
def latent_intensity(answer: Callable[[int, int, int, int], Any]) -> str:
    """Exercise 2: operations for each byte that absorbed latent attention reads."""
    expect(callable(answer), "define a function of n_q, r, d_rope and size")
    for n_q, r, d_rope, size in LATENTS:
        given = answer(n_q, r, d_rope, size)
        expect(
            given is not None and given is not ..., "the function returns nothing so far; count for one cached token"
        )
        expect(isinstance(given, int | float), f"give a number, not {given!r}")
        right, asked = 2 * n_q * (2 * r + d_rope) / ((r + d_rope) * size), f"with n_q = {n_q} and r = {r}"
        near = {
            right / 2: "a multiply and an add are two operations",
            2 * n_q * (r + d_rope) / ((r + d_rope) * size): "that is the score alone; the weighted sum gathers latents",
            4 * n_q * (r + d_rope) / ((r + d_rope) * size): "the weighted sum leaves the rotary key out",
            right * n_q: "all heads share one read of the latent, as those of MQA do",
            right * size: f"{size} bytes a number",
            right / n_q: "every query head does that work",
        }
        hint = next((words for value, words in near.items() if abs(given - value) < 1e-6 * value), "")
        good = abs(given - right) < 1e-6 * right
        expect(good, f"{asked} it is {right:.1f}, yours {given:.1f}" + (f": {hint}" if hint else ""))
    return "n_q (2r + d_rope) / (r + d_rope) in bf16: 242 for DeepSeek-V3, where an H100 could do 295"


@check
def absorbed_scores(answer: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Any]) -> str:
    """Exercise 3: scores of folded queries and cached latents."""
    expect(callable(answer), "define a function of q, q_rope, w_uk, latents and rotary_keys")
    H, N, nope, rope, R = 4, 50, 24, 12, 48
    g = torch.Generator().manual_seed(5)
    q, q_rope, w_uk = (torch.randn(*shape, generator=g) for shape in ((H, nope), (H, rope), (H, nope, R)))
    latents, rotary = (torch.randn(N, width, generator=g) for width in (R, rope))
    counter = FlopCounterMode(display=False)
    with counter:
        given = answer(q, q_rope, w_uk, latents, rotary)
    expect(given is not None and given is not ..., "the function returns nothing so far; fold w_uk into q first")
    expect(isinstance(given, Tensor) and given.shape == (H, N), f"return a score a head and token, ({H}, {N})")
    plain = torch.einsum("hd,hdr,nr->hn", q.double(), w_uk.double(), latents.double())
    right = plain + q_rope.double() @ rotary.double().T
    size = float(right.abs().max())

    def off(other: Tensor) -> float:
        return float((given.double() - other).abs().max()) / size

    expect(off(plain) > 1e-5, "the rotary part is missing: each head's rotated query meets the one rotary key")
    expect(off(right) < 1e-5, f"scores are off by {off(right):.1%} of the largest; q is (H, nope), w_uk (H, nope, R)")
    unfolding, flops = 2 * H * N * nope * R, counter.get_total_flops()
    expect(
        flops < unfolding,
        f"right, but {flops:,} FLOPs: every token's keys were unfolded. Multiply q by w_uk first, once a head",
    )
    return f"{flops:,} FLOPs; unfolding the keys of {N} tokens alone would take {unfolding:,}"


@check
def texts(answer: Any) -> str:
    """Exercise 4: how many texts of 8,192 tokens fit beside Llama 3 8B in 80 GB."""
    expect(answer is not ..., "what is left beside the weights, and what does one text take?")
    expect(isinstance(answer, int), f"a whole number of texts, not {answer!r}")
    each = TOKEN * TOKENS
    right = (MEMORY - WEIGHTS) // each
    expect(answer != MEMORY // each, "the weights take room too: two bytes a parameter")
    expect(answer != (MEMORY - WEIGHTS) // (4 * each), f"{answer} is for 32 key-value heads; Llama 3 8B has 8")
    expect(
        answer == right,
        f"{answer} texts take {answer * each / 1e9:.1f} GB, and {(MEMORY - WEIGHTS) / 1e9:.1f} are left",
    )
    return f"{right} texts of {TOKENS:,} tokens, {right * each / 1e9:.1f} GB; as MHA a quarter of them"
