"""10. Does it help to cut experts finer, and to share one?

Cut in four, with four times as many chosen, experts hold and cost what they did, and can be combined in far more ways;
an expert that every token passes shall learn what all of them would otherwise learn apart (DeepSeekMoE, Dai et al.,
2024). Whether experts have become different is told there by taking from every token those that it likes best: the less
the others can stand in for them, the more that costs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from morph.config import ModelConfig, MoE
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.nn.router import Router, best
from morph.steps import experts_of, stage
from morph.train.recipe import Recipe


def shallow(number: int) -> ModelConfig:
    """A stage two layers deep, as in experiment 9."""
    return replace(stage(number, "nano"), n_layers=2)


def cut_in(parts: int, n_shared: int = 0) -> ModelConfig:
    """Stage 10 with each expert cut in `parts`, of which `n_shared` are taken from the routed ones and shared."""
    config = shallow(10)
    moe: MoE = experts_of(config)
    n, k = parts * moe.n_experts - n_shared, parts * moe.top_k - n_shared
    expert = replace(moe.expert, width=moe.expert.width // parts)
    return replace(
        config,
        feed_forward=replace(moe, expert=expert, n_experts=n, top_k=k, n_shared=n_shared, routed_scale=float(k)),
    )


def later(scores: Tensor, top_k: int, barred: int) -> Tensor:
    """The `top_k` experts of each token that follow its `barred` best, (T, E) -> (T, k)."""
    return best(scores, top_k + barred)[:, barred:]


def without_favourites(trial: Trial) -> float | None:
    """What held-out text costs more, in bits a byte, when each token must do without its best eighth of the experts.

    That is half of what it would have chosen (4 of 7 beside a shared expert); as many others take their place.
    """
    routers = [module for module in trial.model.modules() if isinstance(module, Router)]
    if not routers:
        return None
    for router in routers:
        barred = round(router.logits.out_features / 8)
        router.choose = partial(later, top_k=router.top_k, barred=barred)  # type: ignore[method-assign]
    try:
        return trial.task.evaluate(trial.model, trial.recipe)["bits per byte"] - probes.bits_per_byte(trial)
    finally:
        for router in routers:
            del router.choose


def fullest(trial: Trial) -> float | None:
    """The fullest expert's load over an even one; a dense network has none."""
    return probes.fullest_expert(trial) if isinstance(trial.config.feed_forward, MoE) else None


WHOLE, HALVES, QUARTERS, SHARED = "2 of 8", "4 of 16 halves", "8 of 32 quarters", "7 of 31 quarters, 1 shared"
COUNTS = 0.02
"""Bits a byte: at 2 billion parameters finer and shared experts together gained 0.059 nat a token (Dai et al., 2024),
which with four bytes a token is this."""


def balanced(*arms: str) -> tuple[Need, ...]:
    """Balance must have worked: the fullest expert cannot carry more than some four times an even load."""
    return tuple(Need("fullest expert over even", arm, less_than=3) for arm in arms)


EXPERIMENT = Experiment(
    number=10,
    name="granularity",
    title="Finer experts, and a shared one",
    question="With as many parameters in all and as many for each token: do finer experts learn more, or a shared one?",
    arms=(
        Arm("dense", shallow(9)),
        Arm(WHOLE, cut_in(1)),
        Arm(HALVES, cut_in(2)),
        Arm(QUARTERS, cut_in(4)),
        Arm(SHARED, cut_in(4, n_shared=1)),
    ),
    vary={"learning_rate": (3e-3, 1e-2, 2e-2)},
    best=Best("learning_rate", by="bits per byte"),
    task=Text(),
    recipe=Recipe(steps=200, batch_size=4, evaluate_every=200, evaluation_windows=128),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("cost of barring the favourites", without_favourites, "bits per byte"),
        Measure("fullest expert over even", fullest, is_log=True),
        Measure("training loss, last quarter", probes.training_loss(), "bits"),
    ),
    shown=3,
    claims=(
        Claim(
            "Experts learn more than a dense network of as many active parameters",
            "bits per byte", of="dense", against=WHOLE, more_than=COUNTS, needs=balanced(WHOLE),
        ),
        Claim(
            "Finer experts learn more",
            "bits per byte", of=WHOLE, against=QUARTERS, more_than=COUNTS, needs=balanced(WHOLE, QUARTERS),
        ),
        Claim(
            "With a shared expert they learn more",
            "bits per byte", of=QUARTERS, against=SHARED, more_than=COUNTS, needs=balanced(QUARTERS, SHARED),
        ),
        Claim(
            "Finer experts replace each other less",
            "cost of barring the favourites", of=QUARTERS, against=WHOLE, more_than=0.05,
            needs=balanced(WHOLE, QUARTERS),
        ),
        Claim(
            "Beside a shared expert they replace each other less",
            "cost of barring the favourites", of=SHARED, against=QUARTERS, more_than=0.05,
            needs=balanced(QUARTERS, SHARED),
        ),
    ),
    minutes=6,
    not_shown="""
        But for the routers, all mixtures hold 173,856 parameters, and a token meets 63,264 of them, as in the dense
        network. Routers grow with the experts: 768 parameters for 8, 1,536 for 16, 3,072 for 32, 2,976 for 31. So few
        bytes are read that experts have hardly had time to become different. What many small products cost on a device
        is not measured. With and without the shared expert 4 routed ones are barred, of 7 or of 8; the shared one goes
        on working. Loads are added up over steps: an imbalance that swings from step to step is not seen.
    """,
)  # fmt: skip
