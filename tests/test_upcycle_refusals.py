"""Upcycling: what is refused, in words that name it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import morph
from morph.config import GatedMLP
from morph.errors import MorphError
from morph.forks import config_of
from morph.steps import stage
from morph.upcycling import plan, walk


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("gqa", "mla", "no recipe carries attention"),
        ("hybrid", "kda", "no recipe carries layout.local"),
        ("silu", "relu-squared", "feed_forward.activation: silu → relu-squared"),
        ("14", "0", "no recipe carries placement: pre → post"),
        ("qk-norm", "attention-sink", "attention.sink"),
        ("moe", "switch-top-1", "train that stage from scratch"),
        ("hybrid+mtp", "hybrid", "start from a model without them"),
        ("untied", "rope", "no recipe carries tied"),
    ],
)
def test_what_has_no_recipe_is_refused_by_name(before: str, after: str, words: str) -> None:
    model = morph.build(config_of(before, "nano"))
    with pytest.raises(MorphError, match="recipe") as error:
        morph.upcycle(model, config_of(after, "nano"))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_slices_that_do_not_fit_and_other_sizes_are_refused() -> None:
    config = replace(stage(9, "nano"), feed_forward=GatedMLP(width=127, activation="silu"))
    with pytest.raises(MorphError, match="no recipe carries feed_forward"):
        plan(config, stage(10, "nano"))
    with pytest.raises(MorphError, match="no recipe carries d_model"):
        plan(stage(3, "nano"), stage(3, "tiny"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"config": "gqa"}, "config is a str"),
        ({"steepness": 0.0}, "steepness is 0"),
        ({"steepness": float("nan")}, "steepness is nan"),
        ({"noise": -1.0}, "noise is -1"),
        ({"noise": "0.1"}, "noise is '0.1': give 0, or a share"),
        ({"steepness": None}, "steepness is None: give a number above 0"),
        ({"steepness": True}, "steepness is True"),
        ({"seed": 1.5}, "seed is 1.5: give a whole number from 0"),
        ({"seed": -1}, "seed is -1"),
        ({"ids": [[1, 2]]}, "ids is a list: give a tensor"),
        ({"ids": torch.zeros(1, 2, dtype=torch.long, device="meta")}, "ids is a meta tensor"),
        ({"ids": torch.zeros(1, 0, dtype=torch.long)}, "give a non-empty"),
        ({"ids": torch.full((1, 2), 256)}, "token id 256 is out of range"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    model = morph.build(stage(3, "nano"))
    with pytest.raises(MorphError, match=words):
        morph.upcycle(model, **({"config": stage(4, "nano")} | arguments))  # type: ignore[arg-type]
    with pytest.raises(MorphError, match="give a model with numbers"):
        morph.upcycle(morph.build(stage(3, "nano"), device="meta"), stage(4, "nano"))


def test_more_than_memory_holds_is_refused_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = morph.build(stage(9, "nano")), stage(10, "nano")
    sizes = [morph.count(c).total for c in (model.config, config)]
    needed = 8 * (2 * sizes[0] + sizes[1])
    monkeypatch.setattr(walk, "available_memory", lambda device: needed)
    morph.upcycle(model, config)
    monkeypatch.setattr(walk, "available_memory", lambda device: needed - 1)
    monkeypatch.setattr(walk, "_carry", None)
    with pytest.raises(MorphError, match=f"carrying {sizes[1]:,} parameters over takes at least 0.0 GB.* are free"):
        morph.upcycle(model, config)


def test_numbers_that_are_none_are_refused() -> None:
    broken = morph.build(stage(5, "nano"))
    broken.blocks[1].feed_forward.up.weight.data[3, 3] = float("nan")  # type: ignore[union-attr,operator]
    with pytest.raises(MorphError, match="logits are not finite, it has diverged"):
        morph.upcycle(broken, stage(6, "nano"))
    half = morph.build(stage(4, "nano")).half()
    assert morph.upcycle(half, stage(5, "nano"))[0].embedding.weight.dtype == torch.float16
    with pytest.raises(MorphError, match=r"blocks\.0\.feed_forward\.up\.weight does not fit float16"):
        morph.upcycle(half, stage(5, "nano"), steepness=9e5)
    silent = morph.build(stage(0, "nano"))
    for parameter in silent.parameters():
        parameter.data.zero_()
    assert morph.upcycle(silent, stage(14, "nano"))[1].difference == 0
