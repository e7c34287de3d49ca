"""The checks of notebook 08: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from morph.checks import beyond_softmax as checks
from morph.checks.core import Report
from morph.measure.mixers import mixer_cost
from morph.story.measured import by_seed, holds
from morph.story.released import RELEASED


def step(state: Tensor, k: Tensor, v: Tensor, q: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    state = alpha * state
    state = state + beta * torch.outer(k, v - state.T @ k)
    return state, state.T @ q


def misprinted(state: Tensor, k: Tensor, v: Tensor, q: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    new = (alpha * torch.eye(len(k)).double() - beta * torch.outer(k, k)) @ state + beta * torch.outer(k, v)
    return new, new.T @ q


def added(state: Tensor, k: Tensor, v: Tensor, q: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    new = alpha * state + beta * torch.outer(k, v)
    return new, new.T @ q


def unfading(state: Tensor, k: Tensor, v: Tensor, q: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    return step(state, k, v, q, 1.0, beta)


def early(state: Tensor, k: Tensor, v: Tensor, q: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    return step(state, k, v, q, alpha, beta)[0], state.T @ q


def keys_for_queries(*given: Any) -> tuple[Tensor, Tensor]:
    new, _ = step(*given)
    return new, new.T @ given[1]


def level(kv_heads: int, head_dim: int, heads: int, key_dim: int, value_dim: int) -> float:
    return 4 * heads * key_dim * value_dim / (4 * kv_heads * head_dim)


def best(scores: Tensor, top_k: int) -> Tensor:
    causal = torch.ones_like(scores, dtype=torch.bool).tril()
    order = scores.masked_fill(~causal, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(causal).scatter(-1, order[:, :top_k], True) & causal


def later(scores: Tensor, top_k: int) -> Tensor:
    """Ties to the later key."""
    causal = torch.ones_like(scores, dtype=torch.bool).tril()
    shifted = scores + 1e-3 * torch.arange(len(scores))
    return best(shifted, top_k) & causal


def unhidden(scores: Tensor, top_k: int) -> Tensor:
    """Chooses among all keys."""
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(min(top_k, len(scores))).indices, True)


def every(scores: Tensor, top_k: int) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool).tril()


@pytest.mark.parametrize(
    "report",
    [
        checks.delta_step(step),
        checks.level_at(level),
        checks.parity(lambda bit: (1, 2 * bit)),
        checks.parity(lambda bit: [1.0, 2.0] if bit else [1.0, 0.0]),
        checks.kept(best),
    ],
)
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


def test_the_example_is_the_released_model() -> None:
    config = RELEASED["Qwen3-Next 80B-A3B"].config
    state, cache = mixer_cost(config, 0, 1), mixer_cost(config, 3, 1)
    assert f"in Qwen3-Next {4 * state.state / (2 * cache.per_token):,.0f} tokens" in checks.level_at(level).message


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.delta_step(...), "define a function"),  # type: ignore[arg-type]
        (checks.delta_step(lambda *given: ...), "returns nothing so far"),
        (checks.delta_step(lambda *given: given[0]), "return two things"),
        (checks.delta_step(lambda *given: (given[0].T, given[0].T)), "stays (Dk, Dv)"),
        (checks.delta_step(misprinted), "alpha multiplies the erased part"),
        (checks.delta_step(added), "nothing is erased"),
        (checks.delta_step(unfading), "with alpha = 0.5 and beta = 0 the state differs"),
        (checks.delta_step(lambda *given: (step(*given)[0], given[0])), "(Dv,), here (3,)"),
        (checks.delta_step(early), "after the write"),
        (checks.delta_step(keys_for_queries), "read the new state with q"),
        (checks.level_at(lambda *sizes: None), "returns nothing so far"),
        (checks.level_at(lambda *sizes: "many"), "one number"),
        (checks.level_at(lambda *sizes: 2 * level(*sizes)), "a key and a value"),
        (checks.level_at(lambda *sizes: level(*sizes) / 2), "fp32, four bytes"),
        (checks.level_at(lambda *sizes: 7.0), "1024 tokens, yours 7"),
        (checks.parity(lambda bit: None), "returns nothing so far"),
        (checks.parity(lambda bit: 1.0), "return two numbers"),
        (checks.parity(lambda bit: (1.5, 0)), "alpha is 1.5 for a bit of 0"),
        (checks.parity(lambda bit: (1, 3 * bit)), "beta is 3 for a bit of 1"),
        (checks.parity(lambda bit: (1, bit)), "must be negative"),
        (checks.parity(lambda bit: (1, 1.5 * bit)), "nothing may fade"),
        (checks.parity(lambda bit: (0.999, 2 * bit)), "a zero keeps S as is"),
        (checks.parity(lambda bit: ("a", "b")), "raised ValueError"),
        (checks.kept(lambda scores, top_k: None), "returns nothing so far"),
        (checks.kept(lambda scores, top_k: scores[0]), "(S, S), here (24, 24)"),
        (checks.kept(lambda scores, top_k: best(scores, top_k).float()), "of bool"),
        (checks.kept(unhidden), "may not read a later key"),
        (checks.kept(lambda scores, top_k: unhidden(scores, top_k) & every(scores, top_k)), "and should"),
        (checks.kept(every), "query 6 keeps 7 of 7 keys and should 6"),
        (checks.kept(lambda scores, top_k: best(-scores, top_k)), "a better scored one is left out"),
        (checks.kept(later), "stable=True"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message


def test_what_the_notebook_tells_of_the_parts_was_recorded() -> None:
    name = "hybrid-parts"
    assert holds(name, "The convolution is worth something")
    assert holds(name, "The decay is worth something")
    assert not holds(name, "The output gate is worth something")
    assert not holds(name, "The hybrid learns more than windows")
    arms = ("windows", "hybrid", "no convolution", "no output gate")
    windows, hybrid, bare, ungated = by_seed(name, arms, "bits per byte").values.mean(axis=1)
    assert ungated < hybrid < windows < bare
