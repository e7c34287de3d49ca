"""Sensitivity to the learning rate: its arithmetic, and what a cell trains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from morph.lab.experiments.e16_learning_rates import EXPERIMENT, RATES, sensitivity
from morph.lab.fit import fit, measure, start
from morph.lab.probes import bits_at_most, bits_per_byte
from morph.lab.spec import Cell
from morph.lab.tasks import Text
from tests.test_train_data import folder


def test_sensitivity_is_the_mean_distance_from_the_best() -> None:
    assert sensitivity([3.0, 2.5, 2.0, 2.5, 4.0, 8.0]) == {
        "sensitivity": pytest.approx((1 + 0.5 + 0 + 0.5 + 2 + 6) / 6),
        "bits per byte": [3.0, 2.5, 2.0, 2.5, 4.0, 8.0],
        "best bits per byte": 2.0,
        "best rate": 1e-2,
    }
    assert sensitivity([2.0] * 6)["sensitivity"] == 0


@pytest.fixture
def cell(tmp_path) -> Cell:  # type: ignore[no-untyped-def]
    (first, *_) = EXPERIMENT.cells(quick=True)
    small = replace(first.config, n_layers=1, context_length=16)
    recipe = first.recipe.with_(steps=3, evaluate_every=3, evaluation_windows=4)
    return replace(first, config=small, recipe=recipe, task=Text(path=str(folder(tmp_path / "text"))))


def test_a_cell_trains_at_every_rate_from_the_same_start(cell: Cell) -> None:
    told: list[int] = []
    found = measure(cell, told.append)
    assert told == sorted(told) and told[-1] == 3 and len(told) == 3 * len(RATES)
    assert found["readings"].keys() == {m.name for m in EXPERIMENT.measures}
    assert min(found["readings"]["bits per byte"]) < 8.0
    for rate, bits in zip(RATES, found["readings"]["bits per byte"], strict=True):
        alone = start(cell.config, cell.task, cell.recipe.with_(learning_rate=rate))
        fit(alone)
        assert bits == pytest.approx(min(bits_per_byte(alone), 8.0), rel=1e-5)


def test_a_run_that_diverged_or_ended_worse_counts_as_guessing(cell: Cell) -> None:
    trial = start(cell.config, cell.task, cell.recipe)
    trial.evaluations = [(3, {"bits per byte": 2.5})]
    assert bits_at_most(trial) == 2.5
    assert bits_at_most(replace(trial, diverged_at=2)) == 8.0
    assert bits_at_most(replace(trial, evaluations=[(3, {"bits per byte": 9.0})])) == 8.0
