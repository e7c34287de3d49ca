"""FLOPs of a step: counted on small models and worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import morph
from morph.lab.experiments.e15_costs import CONTEXTS, EXPERIMENT, counts
from morph.lab.fit import start
from morph.lab.flops import solve_flops, step_flops
from morph.lab.trial import Trial
from morph.steps import stage
from morph.train.recipe import Recipe


def trial(k: int, **changes: object) -> Trial:
    return start(replace(stage(k, "nano"), n_layers=1, **changes), EXPERIMENT.task, Recipe())  # type: ignore[arg-type]


def test_a_dense_step_by_hand() -> None:
    S, D, V = 32, 48, 256
    forward = 2 * S * 12 * D * D + 4 * D * S * S + 2 * S * D * V
    assert step_flops(trial(0), S) == (forward, 2 * forward)


@pytest.mark.parametrize("k", [9, 13, 14])
def test_the_forward_part_is_what_count_says(k: int) -> None:
    some = trial(k)
    forward, backward = step_flops(some, 32)
    told = morph.count(some.config).flops(32)
    assert forward == told.linear + told.head + told.scores_dense + told.delta
    assert backward == 2 * forward if k < 14 else 1.95 < backward / forward < 2.2


def test_a_solve_by_hand() -> None:
    assert solve_flops(torch.Size((3, 4, 4)), torch.Size((3, 4, 5))) == 3 * 4 * 4 * 5


def test_the_readings_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {cell.arm: cell for cell in EXPERIMENT.cells(quick=True)}
    assert len(cells) == 16
    cell = cells["0, 4,096 tokens"]
    small = replace(cell, config=replace(cell.config, n_layers=1))
    found = counts(small, lambda step: None)
    assert found.keys() == {measure.name for measure in EXPERIMENT.measures}
    S, D, V = 64, 48, 4096
    step = 3 * (2 * 12 * D * D + 4 * D * S + 2 * D * V)
    vectors = 4 * D + 4 * D + D + 2 * (D + D)  # biases of attention and network, gains and shifts of two norms
    layer = 12 * D * D + vectors
    assert found["over 6·N without the table"] == pytest.approx(step / (6 * layer))
    assert found["over 6·N, 64 tokens"] == pytest.approx(step / (6 * (layer + D * V)))
    assert found["over 6·N, 64 tokens"] == found["over 6·N by context"][CONTEXTS.index(64)]  # type: ignore[index]
    assert found["over 6·N, 512 tokens"] == found["over 6·N by context"][CONTEXTS.index(512)]  # type: ignore[index]
    assert found["visible kFLOPs of a token"] == pytest.approx((step / 3 - 4 * D * (S - 1) / 2) / 1e3)
    assert found["backward over two forwards"] == 1
