"""11. How many pairs can a mixer recall?

Attention keeps every pair and can look up any of them. A state of fixed size keeps a sum of them, and a window forgets
what it no longer sees. The task is multi-query associative recall (Arora et al., 2023).
"""

from __future__ import annotations

from dataclasses import replace

from morph.config import AllGlobal, Interleaved, Layout, Listed, ModelConfig, SlidingWindow
from morph.forks import config_of
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need, Quick
from morph.lab.tasks import Recall
from morph.steps import stage
from morph.train.recipe import Recipe

LAYERS = 2
WINDOW = SlidingWindow(window=8)


def mixing_by(layout: Layout) -> ModelConfig:
    """Stage 8 (RoPE, gated, grouped keys, QK-norm), two layers deep, with another layout."""
    return replace(stage("qk-norm", "nano"), vocab_size=64, n_layers=LAYERS, layout=layout)


def delta() -> Interleaved:
    """The layout of stage 14, whose first three layers keep a state."""
    layout = config_of("hybrid", "nano").layout
    assert isinstance(layout, Interleaved)
    return layout


def settled(arm: str) -> Need:
    """A claim that an arm fails needs it to have stopped learning."""
    return Need("late gain", arm, less_than=0.03)


SOLVES = Need("accuracy", "full", more_than=0.9)

EXPERIMENT = Experiment(
    number=11,
    name="recall",
    title="Recall of many pairs",
    question="Which mixers can bring back any of n pairs, and does a state of fixed size run full?",
    arms=(
        Arm("full", mixing_by(AllGlobal())),
        Arm("window of 8", mixing_by(Interleaved(n_local=LAYERS, local=WINDOW))),
        Arm("delta", mixing_by(delta())),
        Arm("delta + full", mixing_by(Listed(local=delta().local, global_layers=(1,)))),
    ),
    vary={"pairs": (4, 8), "learning_rate": (3e-3, 1e-2, 2e-2)},
    best=Best("learning_rate", by="accuracy", take="highest"),
    task=lambda point: Recall(pairs=int(point["pairs"])),
    recipe=Recipe(  # a rate that stays shows who is still learning
        steps=500, batch_size=32, warmup=0.05, final_rate=1.0, weight_decay=0.01,
        evaluate_every=50, evaluation_windows=256,
    ),
    measures=(
        Measure("accuracy", probes.accuracy, diverged=0.0),
        Measure("steps taken", probes.steps_taken),
        Measure("late gain", probes.late_gain("accuracy"), diverged=0.0),
    ),
    claims=(
        Claim("Full attention recalls every pair", "accuracy", of="full", more_than=0.9),
        Claim(
            "A window recalls only what is near",
            "accuracy", of="full", against="window of 8", more_than=0.2, at={"pairs": 8},
            needs=(SOLVES, settled("window of 8")),
        ),
        Claim(
            "A state of fixed size runs full", "accuracy", of="full", against="delta", more_than=0.2, at={"pairs": 8},
            needs=(SOLVES, settled("delta")),
        ),
        Claim(
            "One full layer is enough",
            "accuracy", of="full", against="delta + full", within=0.05, needs=(SOLVES, settled("delta + full")),
        ),
    ),
    minutes=25,
    not_shown="""
        Where the limit of a state lies: it has 4 heads of 12 x 12 numbers here, and one number of steps for all. A
        mixer that was still learning when the steps ran out is called undecided, not unable. All models get the same
        short convolution over embeddings, so that joining a key with its value is not what is tested.
    """,
    quick=Quick(steps=10, recipe={"evaluation_windows": 32, "evaluate_every": 5}),
)  # fmt: skip
