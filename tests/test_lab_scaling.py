"""The scaling curve: its exponent, its models, and the rule for the rate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import morph
from morph.lab import recorded
from morph.lab.experiments import e22_scaling
from morph.lab.experiments.e22_scaling import EXPERIMENT, NEW, WIDTHS, at_width, exponent
from morph.lab.fit import fit, measure, start
from morph.lab.probes import bits_per_byte
from morph.lab.tasks import Text
from tests.test_train_data import folder


def test_the_exponent_of_a_power_is_found() -> None:
    sizes = [1e4, 1e5, 2e5, 1e6]
    assert exponent(sizes, [7 * n**-0.076 for n in sizes]) == pytest.approx(0.076)


def test_widths_change_width_alone() -> None:
    for arm in EXPERIMENT.arms:
        number = e22_scaling.STAGES[arm.name]
        assert at_width(number, 48) == arm.config
        sizes = [morph.count(at_width(number, width)).active.without_embeddings for width in WIDTHS]
        assert 12 < sizes[-1] / sizes[0] < 16
        assert {at_width(number, width).n_layers for width in WIDTHS} == {4}


def test_rates_are_those_that_experiment_16_found_best() -> None:
    found = recorded("learning-rates")
    for name, number in e22_scaling.STAGES.items():
        (arm,) = [arm for arm in found.arms if arm.startswith(f"{number}:")]
        assert set(found.readings(arm, {}, "best rate").values()) == {e22_scaling.RATES[number]}
        assert {cell.recipe.learning_rate for cell in EXPERIMENT.cells() if cell.arm == name} == {
            e22_scaling.RATES[number]
        }


def test_a_cell_trains_every_width_at_a_rate_that_falls_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e22_scaling, "WIDTHS", (24, 96))
    (cell,) = [c for c in EXPERIMENT.cells(quick=True) if c.arm == NEW]
    recipe = cell.recipe.with_(steps=2, evaluate_every=2, evaluation_windows=4)
    cell = replace(cell, recipe=recipe, task=Text(path=str(folder(tmp_path / "text"))))
    told: list[int] = []
    found = measure(cell, told.append)["readings"]
    assert told == [0, 1, 1, 2]
    assert found.keys() == {m.name for m in EXPERIMENT.measures}
    for place, (width, rate) in enumerate(((24, 2e-2), (96, 5e-3))):
        trial = start(at_width(9, width), cell.task, recipe.with_(learning_rate=rate))
        fit(trial)
        assert found["bits per byte"][place] == pytest.approx(bits_per_byte(trial), rel=1e-5) != 8.0
        assert found["parameters"][place] == morph.count(trial.config).total - 256 * width
    assert [found["bits per byte, narrowest"], found["bits per byte, widest"]] == found["bits per byte"]
    assert found["mean bits per byte"] == pytest.approx(sum(found["bits per byte"]) / 2, rel=1e-5)
