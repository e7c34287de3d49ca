"""9. What happens to a router that nothing holds in balance?

An expert that is chosen more learns more and is chosen more. Fedus et al. (2021) add a loss against it, Wang et al.
(2024) a bias on the choice that moves by a fixed step against the load. Sizes of claims come from a trial of other
code, which looked at the load of one step.
"""

from __future__ import annotations

from dataclasses import replace

from morph.config import AuxiliaryLoss, ModelConfig, MoE, NoBalance, SelectionBias
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure
from morph.lab.tasks import Text
from morph.steps import experts_of, stage
from morph.train.recipe import Recipe


def balanced_by(balance: AuxiliaryLoss | SelectionBias | NoBalance) -> ModelConfig:
    """Stage 10, two layers deep, with 16 experts of which a token gets 2."""
    config = stage("moe", "nano")
    experts: MoE = replace(experts_of(config), n_experts=16, balance=balance)
    return replace(config, n_layers=2, feed_forward=experts)


BALANCED = ("auxiliary loss", "bias, step 0.001", "bias, step 0.003")

EXPERIMENT = Experiment(
    number=9,
    name="router-collapse",
    title="Router collapse",
    question="Does a router left alone grow uneven, do both remedies help, and what do they cost?",
    arms=(
        Arm("none", balanced_by(NoBalance())),
        Arm("auxiliary loss", balanced_by(AuxiliaryLoss(coefficient=0.01))),
        Arm("bias, step 0.001", balanced_by(SelectionBias(rate=0.001))),
        Arm("bias, step 0.003", balanced_by(SelectionBias(rate=0.003))),
        Arm("bias, step 0.02", balanced_by(SelectionBias(rate=0.02))),
    ),
    vary={"learning_rate": (1e-3, 3e-3, 1e-2)},
    best=Best("learning_rate", by="bits per byte"),
    task=Text(),
    recipe=Recipe(steps=300, batch_size=8, warmup=0.05, evaluate_every=300, evaluation_windows=128),
    measures=(
        Measure("fullest expert over even", probes.fullest_expert, is_log=True),
        Measure("fullest expert in a step", probes.fullest_in_a_step, "over even", is_log=True),
        Measure("dead experts", probes.dead_experts, "of 16, below a tenth of an even load"),
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("training loss, last quarter", probes.training_loss(), "bits"),
    ),
    shown=4,
    claims=(
        Claim("Left alone, experts die", "dead experts", of="none", more_than=1),
        *(
            Claim(
                f"Over many steps the fullest expert carries more without balance than with {arm}",
                "fullest expert over even", of="none", against=arm, more_than=2, ratio=True,
            )
            for arm in BALANCED
        ),
        Claim(
            "Over many steps, too large a step balances worse",
            "fullest expert over even", of="bias, step 0.02", against="bias, step 0.003", more_than=1.2, ratio=True,
        ),
        Claim(  # added, with its measure, after a look at 60 steps: sums over steps hide what swings
            "In each step, too large a step of the bias balances worse",
            "fullest expert in a step", of="bias, step 0.02", against="bias, step 0.003", more_than=1.2, ratio=True,
        ),
        *(
            Claim(f"{arm[0].upper()}{arm[1:]} costs no loss", "bits per byte", of=arm, against="none", less_than=0.03)
            for arm in BALANCED
        ),
    ),
    minutes=9,
    not_shown="""
        Whether imbalance costs quality in the long run: a few hundred steps are too few for unused experts to be
        missed. What it costs in time when experts live on different devices is not measured at all. Loads are added up
        over the second half of the training; in its first steps every router is even. An imbalance that swings from
        step to step averages out of such sums, which is why the fullest expert of each step is counted, too; there,
        1024 choices at random would reach 1.2.
    """,
)  # fmt: skip
