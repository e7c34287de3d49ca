"""1. Does depth need a warm-up?

The 2017 recipe raised the learning rate slowly for its first thousands of steps. Xiong et al. (2020) put that down to
where the norms stand: on the stream, gradients fade towards the first layers and are large near the last; on the
branches they are even, and training can start at full speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from morph.config import ModelConfig, Placement
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Point
from morph.lab.tasks import Text
from morph.steps import stage
from morph.train.recipe import Recipe


def deep(placement: Placement) -> Callable[[Point], ModelConfig]:
    """Stage 0 with its norms moved, and as many layers as the point says."""
    return lambda point: replace(stage(0, "nano"), placement=placement, n_layers=int(point["layers"]))


EXPERIMENT = Experiment(
    number=1,
    name="warm-up",
    title="Warm-up at depth",
    question="Does a deep post-norm model need a warm-up, and does a pre-norm one do without?",
    arms=(
        Arm("post", deep("post"), {"warmup": 0.0}),
        Arm("post, warm-up", deep("post"), {"warmup": 0.3}),
        Arm("pre", deep("pre"), {"warmup": 0.0}),
        Arm("pre, warm-up", deep("pre"), {"warmup": 0.3}),
        Arm("sandwich", deep("sandwich"), is_trained=False),
        Arm("depth-scaled sandwich", deep("depth-scaled-sandwich"), is_trained=False),
        Arm("post-branch", deep("post-branch"), is_trained=False),
        Arm("parallel", deep("parallel"), is_trained=False),
    ),
    vary={"layers": (12, 24), "learning_rate": (1e-3, 3e-3, 1e-2)},
    best=Best("learning_rate", by="bits per byte"),
    task=Text(),
    recipe=Recipe(steps=200, batch_size=8, evaluate_every=200, evaluation_windows=128),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("first gradient over last", probes.first_gradient, at="init", is_log=True),
        Measure("gradient by layer", probes.gradient_sizes, at="init", is_log=True),
        Measure("loss while training", probes.loss_curve(), "bits"),
    ),
    shown=3,
    claims=(
        Claim(
            "At one rate, post-norm without warm-up ends worse than with it",
            "bits per byte", of="post", against="post, warm-up", more_than=0.1, at={"learning_rate": 3e-3},
        ),
        Claim(
            "Post-norm without warm-up ends worse even at its best rate",
            "bits per byte", of="post", against="post, warm-up", more_than=0.05,
        ),
        Claim(
            "Pre-norm loses nothing without warm-up",
            "bits per byte", of="pre", against="pre, warm-up", less_than=0.05,
        ),
        Claim(
            "At the start the first layer hears far less of the loss in post-norm than in pre-norm",
            "first gradient over last", of="pre", against="post", more_than=10, ratio=True,
        ),
    ),
    minutes=24,
    not_shown="""
        Width 48 and a few hundred steps of bytes. Other remedies than moving the norm (scaled residuals, smaller
        initial weights) are not tried, and neither are the spikes late in long trainings that post-norm is also blamed
        for.
    """,
)  # fmt: skip
