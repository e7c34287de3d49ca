"""1. Does depth need a warm-up?

The 2017 recipe raised the learning rate slowly for its first thousands of steps. Xiong et al. (2020) put that down to
where the norms stand: on the stream, gradients fade towards the first layers and are large near the last; on the
branches they are even, and training can start at full speed. How large a difference counts was set after a trial of
other code, in which post-norm of 12 layers ended 1.1 bits worse without warm-up; steps, rates and guards were changed
once since.
"""

from __future__ import annotations

from dataclasses import replace

from morph.config import ModelConfig, Placement
from morph.lab import probes
from morph.lab.needs import learned
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure
from morph.lab.tasks import Text
from morph.steps import stage
from morph.train.recipe import Recipe

DEPTHS = (12, 24)
STEPS = {12: 360, 24: 150}  # as many as the time allows: a step of 24 layers takes twice as long
WARM = 0.33
OTHERS: tuple[Placement, ...] = ("sandwich", "depth-scaled-sandwich", "post-branch", "parallel")


def deep(placement: Placement, layers: int) -> ModelConfig:
    """Stage 0 with its norms moved, and more layers."""
    return replace(stage(0, "nano"), placement=placement, n_layers=layers)


def trained(placement: Placement, layers: int, warmup: float) -> Arm:
    """An arm with or without warm-up."""
    name = f"{placement} {layers}" + (", warm-up" if warmup else "")
    return Arm(name, deep(placement, layers), {"warmup": warmup, "steps": STEPS[layers]})


EXPERIMENT = Experiment(
    number=1,
    name="warm-up",
    title="Warm-up at depth",
    question="Does a deep post-norm model need a warm-up, and does a pre-norm one do without?",
    arms=(
        trained("post", 12, 0.0),
        trained("post", 12, WARM),
        trained("pre", 12, 0.0),
        trained("pre", 12, WARM),
        trained("post", 24, 0.0),
        trained("post", 24, WARM),
        trained("pre", 24, 0.0),
        *(Arm(f"{name} {layers}", deep(name, layers), is_trained=False) for layers in DEPTHS for name in OTHERS),
    ),
    vary={"learning_rate": (3e-4, 1e-3, 3e-3)},
    best=Best("learning_rate", by="bits per byte"),
    task=Text(),
    recipe=Recipe(steps=STEPS[12], batch_size=8, evaluate_every=1000, evaluation_windows=128),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("first gradient over last", probes.first_gradient, at="init", is_log=True),
        Measure("gradient by layer", probes.gradient_sizes, along="layer, from 0", at="init", is_log=True),
        Measure("loss while training", probes.loss_curve(12), "bits"),
    ),
    shown=3,
    claims=(
        Claim(
            "At one rate, post-norm of 12 layers ends worse without warm-up", "bits per byte",
            of="post 12", against="post 12, warm-up", more_than=0.1, at={"learning_rate": 3e-3},
            needs=learned("post 12, warm-up"),
        ),
        Claim(
            "It does so even where each is at its best rate", "bits per byte",
            of="post 12", against="post 12, warm-up", more_than=0.05, needs=learned("post 12, warm-up"),
        ),
        Claim(
            "Post-norm of 24 layers ends worse without warm-up, at its best rate", "bits per byte",
            of="post 24", against="post 24, warm-up", more_than=0.05, needs=learned("post 24, warm-up"),
        ),
        Claim(
            "Pre-norm of 12 layers loses next to nothing without warm-up", "bits per byte",
            of="pre 12", against="pre 12, warm-up", less_than=0.05, needs=learned("pre 12"),
        ),
        *(
            Claim(
                f"At {layers} layers, pre-norm without warm-up is ahead of post-norm with it", "bits per byte",
                of=f"post {layers}, warm-up", against=f"pre {layers}", more_than=0.1,
            )
            for layers in DEPTHS
        ),
        *(
            Claim(
                f"Post-norm of {layers} layers starts with far less gradient in its first layer, beside its last, than "
                "pre-norm",
                "first gradient over last", of=f"pre {layers}", against=f"post {layers}", more_than=10, ratio=True,
            )
            for layers in DEPTHS
        ),
    ),
    minutes=30,
    not_shown="""
        Width 48 and a few hundred steps of bytes, fewer at 24 layers than at 12: a model that has not begun to learn
        might do so later. Pre-norm of 24 layers is trained without warm-up only, and rates above 0.003, where pre-norm
        might want one too, are not tried. Warm-up takes a third of all steps (published ones: a few in a hundred), and
        with it a part of the learning. The first layer's gradient is held against the last one's of the same model: a
        small quotient may come of large last layers as well as of small first ones, and the plot tells which. Other
        remedies than moving the norm (scaled residuals, smaller initial weights) are not
        tried, and neither are the spikes late in long trainings that post-norm is also blamed for.
    """,
)  # fmt: skip
