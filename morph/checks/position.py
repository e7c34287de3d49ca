"""Checks of the exercises of notebook 02."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import morph
from morph.checks.core import check, expect
from morph.config import ModelConfig, Rope, Rotary
from morph.nn import position

TIMES = 4
"""How much longer than trained the texts of exercise 4 are."""


@check
def speeds(answer: Callable[[int, float], Any]) -> str:
    """Exercise 1: a function of head width and base, the angle per token of each pair."""
    expect(callable(answer), "define a function of a head's width and a base")
    for width, base in ((8, 10_000.0), (128, 500_000.0)):
        given = answer(width, base)
        expect(given is not None and given is not ..., "the function returns nothing so far; start from a range of i")
        found = torch.as_tensor(given, dtype=torch.float64)
        right = position.frequencies(Rope(base=base), width)
        expect(
            found.shape == right.shape,
            f"a head of {width} features has {width // 2} pairs; yours gives {tuple(found.shape)}",
        )
        expect(abs(float(found[0]) - 1) < 1e-6, f"pair 0 turns by 1 radian a token; yours by {float(found[0]):.4g}")
        expect(
            torch.allclose(found, right, rtol=1e-4, atol=0),
            f"width {width}, base {base:,.0f}: the last pair turns by {float(right[-1]):.4g} radians a token, yours by "
            f"{float(found[-1]):.4g}; the exponent is −2i/width",
        )
    return "one radian a token for the first pair, each next one slower by the same ratio"


@check
def rotate(answer: Callable[[Tensor, Tensor], Any]) -> str:
    """Exercise 2: a function of rows (S, d) and speeds (d/2,), row m turned by m times the speeds."""
    expect(callable(answer), "define a function of rows x and speeds")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 8, generator=generator, dtype=torch.float64)
    omega = position.frequencies(Rope(), 8)
    given = answer(x.clone(), omega)
    expect(given is not None and given is not ..., "the function returns nothing so far; split x into its two halves")
    expect(isinstance(given, Tensor) and given.shape == x.shape, "return a tensor of the shape of x")
    given = given.double()
    cos, sin = position.rotation_table(6, Rope(), 8)
    right = position.rotate(x[None, None], cos, sin)[0, 0]
    expect(not torch.allclose(given, x), "nothing is turned yet: row m turns by m times its speeds")
    lengths = torch.allclose(given.norm(dim=-1), x.norm(dim=-1))
    expect(lengths, "a rotation leaves every length as it was; yours does not")
    expect(torch.allclose(given[0], x[0]), "row 0 stands at place 0 and does not turn")
    expect(not torch.allclose(given, position.rotate(x[None, None], cos, -sin)[0, 0]), "it turns the other way round")
    expect(
        torch.allclose(given, right),
        "feature i is paired with feature i + d/2 here, not with its neighbour; the new pair is "
        "(a cos − b sin, b cos + a sin)",
    )
    return "the same as the project's own, to the last digit"


@check
def base_for(answer: Callable[[int, float], Any]) -> str:
    """Exercise 3: the base whose slowest pair makes exactly one turn in `length` tokens."""
    expect(callable(answer), "define a function of a head's width and a length in tokens")
    for width, length in ((128, 4096.0), (24, 128.0)):
        given = answer(width, length)
        expect(given is not None and given is not ..., "the function returns nothing so far; solve 2π b^((d−2)/d) = L")
        right = (length / (2 * math.pi)) ** (width / (width - 2))
        nearly = abs(float(given) - length / (2 * math.pi)) < 1e-6 * length
        expect(not nearly, "L / 2π would do for endlessly many pairs; the last exponent is (d − 2)/d, not 1")
        expect(
            abs(float(given) / right - 1) < 1e-6,
            f"with base {float(given):,.1f} the slowest of {width // 2} pairs takes "
            f"{2 * math.pi * float(given) ** ((width - 2) / width):,.1f} tokens a turn, not {length:,.0f}",
        )
    return "b = (L / 2π)^(d/(d − 2))"


@check
def stretched(answer: Any, trained: ModelConfig) -> str:
    """Exercise 4: `trained` with a position that shows no new angle in texts `TIMES` as long, its fastest pair kept."""
    expect(answer is not ..., "start from replace(config, position=...)")
    expect(isinstance(answer, ModelConfig), "give a ModelConfig, made with replace(...)")
    paths = {change.path.split(".")[0] for change in morph.diff(trained, answer)}
    expect(bool(paths), "that is the config as it was")
    others = sorted(paths - {"position"})
    expect(not others, f"change the position alone; yours also changes {', '.join(others)}")
    after, before = answer.position, trained.position
    assert isinstance(before, Rotary)
    expect(isinstance(after, Rotary), "the model was trained to be turned: keep a rotation")
    assert isinstance(after, Rotary)
    old, new = (position.frequencies(spec, trained.attention.width) for spec in (before, after))
    expect(new.shape == old.shape, "turn as many pairs as the model was trained with")
    expect(
        abs(float(new[0] / old[0]) - 1) < 1e-6,
        f"the fastest pair now turns by {float(new[0]):.3f} instead of {float(old[0]):.3f}: neighbours look strange to "
        f"the model; slow the slow pairs alone",
    )
    length = trained.context_length
    seen = (length * old).clamp(max=2 * math.pi)
    shown = (TIMES * length * new).clamp(max=2 * math.pi)
    astray = (shown > seen + 1e-6).nonzero().flatten().tolist()
    expect(
        not astray,
        f"by token {TIMES * length} pair {astray[0] if astray else 0} has shown an angle that no trained text showed "
        f"({len(astray)} of {len(old)} pairs have)",
    )
    return f"{type(after).__name__}: no new angle at {TIMES} times the trained length, and the fastest pair as it was"
