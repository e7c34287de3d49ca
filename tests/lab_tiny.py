"""An experiment of the real kind that takes seconds; workers import it as `tests.lab_tiny`."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import morph
from morph.errors import MorphError
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Quick
from morph.lab.tasks import Recall
from morph.lab.trial import Trial
from morph.train.recipe import Recipe

CONFIG = replace(morph.stage(4, "nano"), vocab_size=16, n_layers=1)


def patience(trial: Trial) -> float:
    """Can be told, from outside, to take long or to fail."""
    if "LAB_TEST_FAIL" in os.environ and trial.seed == 1:
        raise MorphError("this seed was told to fail")
    time.sleep(float(os.environ.get("LAB_TEST_SLEEP", "0")))
    return float(len(trial.steps))


EXPERIMENT = Experiment(
    number=99,
    name="tiny",
    title="A tiny experiment",
    question="Does the lab run?",
    arms=(
        Arm("rope", CONFIG),
        Arm("silu", replace(morph.stage(5, "nano"), vocab_size=16, n_layers=1)),
        Arm("untrained", CONFIG, is_trained=False),
    ),
    vary={"pairs": (1, 2), "learning_rate": (1e-3, 1e-2)},
    best=Best("learning_rate", by="loss", take="lowest"),
    task=lambda point: Recall(pairs=int(point["pairs"]), keys=8, values=8),
    recipe=Recipe(steps=3, batch_size=4, evaluate_every=2, evaluation_windows=8),
    measures=(
        Measure("loss", lambda trial: trial.evaluations[-1][1]["loss"], "nats", diverged=9.0),
        Measure("curve", probes.loss_curve(3)),
        Measure("steps", patience),
        Measure("stream", probes.stream_sizes, at="init"),
    ),
    claims=(
        Claim("SiLU is no worse", "loss", of="silu", against="rope", less_than=5.0),
        Claim("It takes three steps", "steps", of="rope", within=3.5, at={"pairs": 1, "learning_rate": 1e-2}),
    ),
    minutes=1,
    not_shown="Anything.",
    quick=Quick(steps=2, vary={"pairs": (2,)}),
)
