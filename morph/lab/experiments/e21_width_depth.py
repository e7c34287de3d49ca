"""21. Wider or deeper?

A layer of width d has some 12 d² parameters, so that as many of them make few wide layers or many narrow ones. Kaplan
et al. (2020) found that the loss hardly cares over a wide range of shapes; Tay et al. (2021) prefer deep and narrow,
Levine et al. (2020) show that how much depth pays is set by the width. A step costs about as many FLOPs either way, but
layers wait for each other, and the parts of a layer do not.
"""

from __future__ import annotations

from dataclasses import replace

from morph.config import GatedMLP, ModelConfig
from morph.lab import probes
from morph.lab.chain import longest_chain
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need, Point, Quick
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.steps import attention_of, stage
from morph.train.recipe import Recipe

SHAPES = {2: (88, 255), 4: (64, 171), 8: (48, 107), 16: (32, 85)}
"""Layers -> d and the width of the gated network, which evens out what multiples of 8 leave of 12 d² · layers."""


def shaped(point: Point) -> ModelConfig:
    """Stage 6 (pre-norm, RMSNorm, RoPE, SwiGLU, no biases), four heads of d/4, in another shape."""
    config, layers = stage("gated-ffn", "nano"), int(point["layers"])
    d, width = SHAPES[layers]
    attention = replace(attention_of(config), head_dim=d // 4)
    ffn = GatedMLP(width=width, activation="silu")
    return replace(config, n_layers=layers, d_model=d, attention=attention, feed_forward=ffn)


def block_parameters(trial: Trial) -> float:
    """Of all blocks; the tied table (256 d) and the final norm are not in it."""
    return float(sum(p.numel() for p in trial.model.blocks.parameters()))


def flops(trial: Trial) -> float:
    """Thousands a token of one forward pass: matrices, visible scores and head."""
    return count(trial.config).flops(trial.config.context_length).per_token / 1000


def at(layers: int) -> Point:
    """A point of the grid."""
    return {"layers": layers}


ARM = "as many parameters"
LEARNS = (Need("bits per byte", ARM, less_than=4.2),)  # well below `needs.BYTE_FREQUENCIES`

EXPERIMENT = Experiment(
    number=21,
    name="width-depth",
    title="Wider or deeper",
    question="Of as many parameters, after as many steps and tokens: does a wider or a deeper model know more?",
    arms=(Arm(ARM, shaped),),
    vary={"layers": tuple(SHAPES), "learning_rate": (4e-3, 1e-2, 2.5e-2)},
    best=Best("learning_rate", by="bits per byte"),
    task=Text(),
    recipe=Recipe(steps=100, batch_size=4, warmup=0.1, evaluate_every=100, evaluation_windows=96),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("chain of products", longest_chain, "one after another, a pass", at="init", is_log=True),
        Measure("block parameters", block_parameters, at="init"),
        Measure("kFLOPs per token", flops, "forward", at="init"),
        Measure("loss while training", probes.loss_curve(), "bits"),
    ),
    claims=(
        # Kaplan et al.: some 3 % of the loss over a 40-fold range of d / layers; 3 % of 3.5 bits are 0.1
        Claim(
            "8 layers learn as much as 4",
            "bits per byte", of=ARM, at=at(8), against_at=at(4), within=0.1, needs=LEARNS,
        ),
        Claim(
            "16 layers learn as much as 4",
            "bits per byte", of=ARM, at=at(16), against_at=at(4), within=0.1, needs=LEARNS,
        ),
        Claim(
            "2 layers are too few: they end worse than 4",
            "bits per byte", of=ARM, at=at(2), against_at=at(4), more_than=0.03, needs=LEARNS,
        ),
        Claim(
            "16 layers cost about as many FLOPs as 2",
            "kFLOPs per token", of=ARM, at=at(16), against_at=at(2), ratio=True, within=1.15,
        ),
        Claim(  # six products a layer and the head: 97 over 13
            "But far more of them must wait for each other",
            "chain of products", of=ARM, at=at(16), against_at=at(2), ratio=True, more_than=4,
        ),
    ),
    minutes=4,
    not_shown="""
        What shape is best in the end: 100 steps of 256 bytes are the beginning of a training, where a deep model may
        yet be slow to start, and bytes of code ask for little composition. The tied table of 256 rows is not among the
        equal parameters; it is 22,528 numbers at 2 layers and 8,192 at 16. Heads narrow with d, from 22 to 8, and the
        gated network's width over d lies between 2.2 and 2.9. Time is not measured: a chain of products is what many
        small kernels or many devices wait for, and a CPU that is busy with each product hardly notices it.
    """,
    quick=Quick(steps=10, vary={"layers": (2, 4, 8)}),
)  # fmt: skip
