"""4. What does the gate bring?

A feed-forward network bends what it read (ReLU, GELU, SiLU) or, gated, multiplies the bent half with another one. At
equal parameters Shazeer (GLU Variants Improve Transformer, 2020) found three gated matrices of width 8d/3 to lose 2 to
3 % less than two of width 4d with the same bend, and the bends themselves to differ by less than 1 %.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from morph.config import MLP, Activation, GatedMLP, ModelConfig
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.steps import stage
from morph.train.recipe import Recipe

LAYERS = 2


def ungated(activation: Activation) -> ModelConfig:
    """Stage 4 (pre-norm, RoPE, no biases), two layers deep: two matrices of width 4d."""
    rope = stage("rope", "nano")
    return replace(rope, n_layers=LAYERS, feed_forward=MLP(width=4 * rope.d_model, activation=activation))


def gated(activation: Activation) -> ModelConfig:
    """The same with three matrices of width 8d/3."""
    rope = stage("rope", "nano")
    return replace(rope, n_layers=LAYERS, feed_forward=GatedMLP(width=8 * rope.d_model // 3, activation=activation))


def below_zero(trial: Trial) -> float:
    """Share of what activations read that lies below zero: for ReLU, of units that say nothing."""
    seen = probes.watch(trial)
    read = probes.each_layer(trial, seen, "feed_forward.preactivation")
    return statistics.fmean(float((z < 0).double().mean()) for z in read)


COUNTS = 0.02  # bits per byte, 0.7 % of some 3 bits: what ReLU, GELU and Swish differ by in Shazeer's Table 1

EXPERIMENT = Experiment(
    number=4,
    name="gates",
    title="Gates and activations",
    question="Does it matter how a feed-forward network bends, and is a gate worth its third matrix?",
    arms=(
        Arm("ReLU", ungated("relu")),
        Arm("GELU", ungated("gelu")),
        Arm("SiLU", ungated("silu")),
        Arm("GEGLU", gated("gelu")),
        Arm("SwiGLU", gated("silu")),
    ),
    vary={"learning_rate": (1e-2, 2e-2, 4e-2)},
    best=Best("learning_rate", by="bits per byte"),
    seeds=tuple(range(8)),  # differences in the literature are small, and five seeds decided only one claim
    task=Text(),
    recipe=Recipe(steps=170, batch_size=8, warmup=0.05, evaluate_every=170, evaluation_windows=256),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("preactivations below zero", below_zero, "share"),
    ),
    claims=(
        Claim("SiLU and ReLU are level", "bits per byte", of="SiLU", against="ReLU", within=COUNTS),
        Claim("SiLU and GELU are level", "bits per byte", of="SiLU", against="GELU", within=COUNTS),
        Claim(
            "A gate learns more from as many parameters (SiLU)",
            "bits per byte", of="SiLU", against="SwiGLU", more_than=COUNTS,
        ),
        Claim(
            "A gate learns more from as many parameters (GELU)",
            "bits per byte", of="GELU", against="GEGLU", more_than=COUNTS,
        ),
        Claim("SwiGLU and GEGLU are level", "bits per byte", of="SwiGLU", against="GEGLU", within=COUNTS),
        Claim(
            "Training makes ReLU sparser than the half it starts with",
            "preactivations below zero", of="ReLU", more_than=0.6,
        ),
    ),
    minutes=10,
    not_shown="""
        Where losses end: 170 steps compare how fast small networks learn the first of it, and Shazeer trained for
        65,536 and more. The gated networks are also narrower (128 units for 192) and draw their first weights
        in another way; which of the two halves helps is not taken apart. Parameters and matrix products are equal,
        time need not be. Other gates (ReLU, sigmoid, none) are not tried. A first look with
        five seeds decided only the last claim; three more were added after it.
    """,
)  # fmt: skip
