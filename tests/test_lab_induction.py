"""Every run is longer than two windows reach, and what was solved counts as solved to the end of the training."""

from __future__ import annotations

import pytest

from morph.lab import mixers
from morph.lab.experiments import e17_induction
from morph.lab.fit import start
from morph.lab.tasks import Induction
from morph.train.recipe import Recipe


def test_two_windows_do_not_reach_the_token_that_induction_copies() -> None:
    assert mixers.LAYERS * (e17_induction.WINDOW - 1) < e17_induction.SHORTEST - 1
    assert e17_induction.TOKENS > 2 * e17_induction.LONGEST, "else what was not seen would tell what comes"


def test_the_mean_accuracy_counts_a_solved_task_as_solved_to_the_end() -> None:
    trial = start(mixers.full(64), Induction(), Recipe(steps=40, evaluate_every=10))
    trial.evaluations = [(10, {"accuracy": 0.5}), (20, {"accuracy": 1.0})]
    assert e17_induction.mean_accuracy(trial) == pytest.approx((0.5 + 1 + 1 + 1) / 4)
    trial.evaluations += [(30, {"accuracy": 0.2}), (40, {"accuracy": 0.3})]
    assert e17_induction.mean_accuracy(trial) == pytest.approx(0.5)
