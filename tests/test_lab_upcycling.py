"""Experiment 24: sides that took as many steps over the same text, and readings that say what they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from morph.lab.catalogue import find
from morph.lab.experiments.e24_upcycling import FRESH, LIFE, RESTARTED, RISING, SHARE, Later, draw, live, told
from morph.lab.result import collect
from morph.lab.spec import Cell
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.steps import stage
from morph.upcycling.move import Told
from morph.upcycling.walk import Carried, Report

EXPERIMENT = find("upcycling")
CELLS = {cell.arm: cell for cell in EXPERIMENT.cells() if cell.seed == 0}


def quick(arm: str) -> Cell:
    return next(cell for cell in EXPERIMENT.cells(quick=True) if cell.arm == arm)


def report(kind: Any, holds_for: int | None = None) -> Report:
    move = Carried("x", (), Told(kind, "", (), holds_for), (), (), (), 0.0, None)
    return Report((move,), 0.0, 1.0)


def test_all_sides_take_as_many_steps_and_rise_over_as_many() -> None:
    assert CELLS[LIFE].steps == CELLS[FRESH[14]].steps == 15 * SHARE
    assert CELLS[RESTARTED].steps == CELLS[FRESH[9]].steps == 10 * SHARE
    for arm, steps in ((LIFE, SHARE), (RESTARTED, SHARE), *((FRESH[k], (k + 1) * SHARE) for k in range(1, 15))):
        rates = [CELLS[arm].recipe.with_(steps=steps).rate(step) for step in range(steps)]
        assert rates.index(max(rates)) == RISING - 1 and set(rates[RISING:]) == {3e-3}
    assert len({cell.key for cell in EXPERIMENT.cells()}) == 3 * 16
    assert CELLS[FRESH[9]].config == CELLS[RESTARTED].config == stage(9, "nano")
    assert all(CELLS[FRESH[k]].config == stage(k, "nano") and CELLS[FRESH[k]].steps == (k + 1) * SHARE for k in FRESH)
    assert (CELLS[LIFE].config, CELLS[FRESH[14]].config) == (stage(0, "nano"), stage(14, "nano"))


def test_a_later_share_reads_on_where_the_last_one_ended() -> None:
    config, recipe = stage(0, "nano"), CELLS[LIFE].recipe
    for now, whole in zip(Later(skip=36).batch(config, recipe, 2, 0), Text().batch(config, recipe, 38, 0), strict=True):
        assert np.array_equal(now, whole)


def test_a_life_passes_through_all_stages_and_keeps_its_loss_where_the_function_is_kept() -> None:
    steps: list[int] = []
    found = live(quick(LIFE), steps.append)
    assert steps == list(range(1, 16))
    carried, trained = found["as carried"], found["after training"]
    assert isinstance(carried, list) and isinstance(trained, list) and len(carried) == len(trained) == 15
    for exact in (10, 11, 13):
        assert carried[exact] == pytest.approx(trained[exact - 1], abs=1e-5)
    assert trained[0] < carried[0] and carried[7] != pytest.approx(trained[6], abs=1e-3)
    assert found["bits at stage 14"] == trained[14] and found["bits at stage 9"] == trained[9]
    assert found["jump where the function is kept"] < 1e-5 < found["largest jump"]  # type: ignore[operator]


def test_restarts_train_one_model_and_the_rest_in_one_go() -> None:
    found = live(quick(RESTARTED), lambda step: None)
    bits = found["after training"]
    assert isinstance(bits, list) and len(bits) == 10 and bits[-1] < bits[0] and found["bits at stage 9"] == bits[-1]
    assert found["as carried"] is None and found["bits at stage 14"] is None
    whole = live(quick(FRESH[14]), lambda step: None)
    assert whole["bits at stage 14"] == whole["after training"][-1] and whole["bits at stage 9"] is None  # type: ignore[index]


def test_readings_follow_from_the_losses_around_each_change() -> None:
    before = [8.0, 4.1, 4.6, *[3.0] * 12]
    after = [4.0, 3.9, 4.2, *[2.5] * 12]
    reports = [report("function-preserving"), report("recipe"), *[report("function-preserving", 16)] * 12]
    found = told(CELLS[LIFE], before, after, reports)
    assert found["jump where the function is kept"] == pytest.approx(0.1), "one that holds for short texts is left out"
    assert found["largest jump"] == pytest.approx(0.7) and found["debt of a change"] == pytest.approx(0.3)
    fresh = told(CELLS[FRESH[14]], [], [4.5, 3.0, 2.0], [])
    assert (fresh["bits one share into stage 14"], fresh["bits at stage 14"]) == (4.5, 2.0)
    assert list(found) == list(fresh) == [measure.name for measure in EXPERIMENT.measures]


def test_the_drawing_shows_the_life_and_the_others() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    found = {}
    for cell in EXPERIMENT.cells():
        higher = 0.0 if cell.arm == LIFE else 0.5
        after = [4.0 + higher - 0.1 * k + 0.01 * cell.seed for k in range(cell.steps // SHARE)]
        readings = told(cell, [8.0, *after[:-1]], after, [report("function-preserving")] * 14)
        found[cell.key] = {"readings": readings, "steps": 1, "diverged_at": None, "cpu_seconds": 1.0}
    result = collect(EXPERIMENT, False, found)
    draw(result, figure)
    (axes,) = figure.axes
    assert [len(line.get_ydata()) for line in axes.lines] == [30, 14, 10, 15]
    assert axes.lines[0].get_ydata()[1] == pytest.approx(4.01), "means over seeds"
    for k, label in enumerate(text for text in axes.texts if text.get_text() != LIFE):
        others = [
            float(line.get_ydata()[i]) for line in axes.lines[2:] for i in (k - 1, k) if 0 <= i < len(line.get_ydata())
        ]
        assert label.xy[1] >= max(others), "a change's name stands above every curve there"
    assert {f.verdict for f in result.findings if "identity" in f.claim.text} == {"supported"}


@pytest.mark.parametrize("arm", [LIFE, RESTARTED, FRESH[9]])
def test_a_life_that_diverges_has_no_readings(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(trial: Trial, on_step: object) -> None:
        trial.diverged_at = 1

    monkeypatch.setattr("morph.lab.experiments.e24_upcycling.fit", diverge)
    found = live(quick(arm), lambda step: None)
    assert found == {measure.name: None for measure in EXPERIMENT.measures}
