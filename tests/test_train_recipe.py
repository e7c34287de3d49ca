"""The recipe: its schedule in numbers, and its refusals."""

import math
from typing import Any

import pytest

from morph.errors import MorphError
from morph.train.recipe import Recipe, default_recipe


def test_the_rate_rises_linearly_and_falls_as_a_cosine_to_a_tenth() -> None:
    recipe = Recipe(steps=300, learning_rate=3e-3)
    assert recipe.rate(0) == pytest.approx(3e-3 / 30)
    assert recipe.rate(29) == recipe.rate(30) == 3e-3
    middle = 3e-3 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 100 / 269)))
    assert recipe.rate(130) == pytest.approx(middle)
    assert recipe.rate(299) == pytest.approx(3e-4)


@pytest.mark.parametrize("steps", [1, 2, 3, 11])
def test_short_runs_have_a_rate_for_every_step(steps: int) -> None:
    recipe = Recipe(steps=steps)
    rates = [recipe.rate(step) for step in range(steps)]
    assert all(3e-4 - 1e-12 <= rate <= 3e-3 for rate in rates)
    assert max(rates) == 3e-3


def test_round_trip_and_changes() -> None:
    recipe = default_recipe("nano").with_(steps=7, seed=None)
    assert (recipe.steps, recipe.seed, recipe.batch_size) == (7, 0, 4)
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    with pytest.raises(MorphError, match="unknown recipe field 'momentum'"):
        Recipe.from_dict({"momentum": 0.9})
    with pytest.raises(MorphError, match="the recipe lacks 'accumulation'"):
        Recipe.from_dict({"steps": 3})
    assert recipe.digest() == Recipe.from_dict(recipe.to_dict()).digest() != recipe.with_(clip=0.5).digest()
    with pytest.raises(MorphError, match="unknown size 'huge': choose one of nano, tiny, small"):
        default_recipe("huge")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("steps", 0, "steps is 0: give a whole number of at least 1"),
        ("batch_size", 2.5, "batch_size is 2.5"),
        ("seed", -1, "seed is -1"),
        ("learning_rate", float("nan"), "learning_rate is nan: give a number above 0"),
        ("warmup", 1.5, "warmup is 1.5: give a share from 0 to 1"),
        ("weight_decay", -0.1, "weight_decay is -0.1"),
        ("betas", (0.9, 1.0), "betas are"),
        ("steps", 10**30, "give a whole number of at least 1 and at most 1,000,000,000"),
        ("clip", "1", "clip is '1': give a number"),
        ("learning_rate", 10**400, "give a number"),
        ("betas", "ab", "betas are 'ab'"),
        ("betas", 0.9, "betas are 0.9"),
        ("precision", "fp8", "precision is 'fp8': choose one of auto, fp32, bf16"),
    ],
)
def test_impossible_values_are_refused(field: str, value: Any, words: str) -> None:
    with pytest.raises(MorphError, match=words):
        Recipe(**{field: value})
