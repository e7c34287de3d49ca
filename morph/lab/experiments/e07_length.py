"""7. Trained on 64 tokens, what does a model make of 512?

A place that training never saw is a new row, a new angle, or a new number of keys to share the attention with. Press et
al. (ALiBi, 2021) showed that sinusoid and rotation fail beyond the trained length, Kazemnejad et al. (2023) that models
without position fail less. Peng et al. (YaRN, 2023) slow the rotations of a trained model, so that its new angles are
old ones. A window never shows a distance that training did not: with 4 layers of 16 the stack reaches 61 tokens, fewer
than it was trained on, so that from there on its loss cannot depend on the place. What it rises by all the same is due
to the texts, which are the same for all arms: the rise of others is held against it. Which way losses go was known from
a trial of other code at width 64; sizes of claims are well below what it saw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor

from morph import build
from morph.config import (
    Alibi,
    AllLocal,
    LearnedPosition,
    ModelConfig,
    NoPosition,
    Rope,
    Sinusoid,
    SlidingWindow,
    YarnRope,
)
from morph.forks import config_of
from morph.lab.fit import fit, start
from morph.lab.plot import curves
from morph.lab.probes import position_losses
from morph.lab.result import Result
from morph.lab.spec import Arm, Cell, Claim, Experiment, Measure, Reading
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.steps import stage
from morph.train.plot import INK, QUIET
from morph.train.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

TRAINED, READ = 64, 512
EDGES = (0, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
TUNING = 0.1  # share of the steps that are taken again, of as many tokens, at the greater length
BASE = stage("gqa", "nano")  # RoPE, and no QK-norm, whose part in this is experiment 6's
YARN = YarnRope(factor=READ / TRAINED, original_length=TRAINED)


def train_short(cell: Cell, on_step: Callable[[int], None]) -> Mapping[str, Reading | None]:
    """Train at `TRAINED` tokens, YaRN's arms with plain RoPE; tune those whose config is longer; read `READ` tokens."""
    config = cell.config
    position = Rope() if isinstance(config.position, YarnRope) else config.position
    trial = start(replace(config, position=position, context_length=TRAINED), cell.task, cell.recipe)
    fit(trial, on_step)
    if trial.diverged_at is None and config != trial.config:
        trial = stretched(trial, config)
    if trial.diverged_at is not None:
        return {measure.name: None for measure in cell.experiment.measures}
    return dict(readings(trial))


def stretched(trial: Trial, config: ModelConfig) -> Trial:
    """The trained weights under another config; trained on, where that has a greater length."""
    model = build(config, seed=trial.seed)
    model.load_state_dict(trial.model.state_dict())
    after = Trial(model.eval(), trial.task, tuning(trial.recipe, config.context_length))
    if config.context_length > TRAINED:
        fit(after)
    return dataclasses.replace(after, recipe=trial.recipe)


def tuning(recipe: Recipe, length: int) -> Recipe:
    """A few more steps, at three tenths of the rate, each of as many tokens as those before."""
    return recipe.with_(
        steps=max(1, round(TUNING * recipe.steps)), batch_size=max(1, recipe.batch_size * TRAINED // length),
        learning_rate=0.3 * recipe.learning_rate, evaluation_windows=1,
    )  # fmt: skip


def readings(trial: Trial) -> dict[str, Reading]:
    """Loss by position over held-out texts of `READ` tokens."""
    return summary(position_losses(trial, READ, rows=trial.recipe.evaluation_windows))


def summary(losses: Tensor) -> dict[str, Reading]:
    """Of the loss at each position, (S,)."""
    near, far = float(losses[32:64].mean()), float(losses[256:512].mean())
    return {
        "bits by position": [float(losses[first:end].mean()) for first, end in pairwise(EDGES)],
        "rise": far - near,
        "bits at 32-63": near,
        "bits at 256-511": far,
    }


def draw(result: Result, figure: SubFigure) -> None:
    """Loss over position, a panel for ways to tell places and one for ways around them; RoPE in both."""
    middle = [(first + end + 1) / 2 for first, end in pairwise(EDGES)]
    ways = ("RoPE", "sinusoid", "learned", "NoPE", "ALiBi")
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for axes, arms in zip(panels, (ways, ("RoPE", *(arm for arm in result.arms if arm not in ways))), strict=True):
        found = {arm: result.readings(arm, {}, "bits by position").values() for arm in arms}
        over = {arm: (middle, list(zip(*rows, strict=True))) for arm, rows in found.items() if rows}
        curves(axes, over, x="" if axes is panels[0] else "tokens read, up to and with this one", y="bits")
        axes.axvline(TRAINED, color=QUIET, linewidth=0.8, linestyle="--")
        axes.annotate(
            "trained length", (TRAINED, 1), xycoords=("data", "axes fraction"), xytext=(-4, -2),
            textcoords="offset points", ha="right", va="top", fontsize=8, color=INK,
        )  # fmt: skip
        axes.set_xticks([2**n for n in range(10)], [str(2**n) for n in range(10)])
        axes.minorticks_off()
        axes.margins(y=0.15)


EXPERIMENT = Experiment(
    number=7,
    name="length",
    title="Beyond the trained length",
    question="Trained on 64 tokens and given 512, which models go on as before?",
    arms=(
        Arm("RoPE", BASE),
        Arm("sinusoid", replace(BASE, position=Sinusoid())),
        Arm("learned", replace(BASE, position=LearnedPosition(length=READ))),
        Arm("NoPE", replace(BASE, position=NoPosition())),
        Arm("ALiBi", replace(BASE, position=Alibi())),
        Arm("YaRN, no training", replace(BASE, position=YARN)),
        Arm("RoPE, tuned", replace(BASE, context_length=READ)),
        Arm("YaRN, tuned", replace(BASE, context_length=READ, position=YARN)),
        Arm("window 16", replace(BASE, layout=AllLocal(local=SlidingWindow(window=16)))),
        Arm("hybrid", replace(BASE, layout=config_of("hybrid", "nano").layout)),
    ),
    task=Text(),
    recipe=Recipe(steps=150, batch_size=16, learning_rate=1e-2, evaluate_every=150, evaluation_windows=128),
    procedure=train_short,
    measures=(
        Measure("bits by position"),
        Measure("rise", unit="bits at 256-511 less those at 32-63"),
        Measure("bits at 32-63"),
        Measure("bits at 256-511"),
    ),
    claims=(
        Claim("RoPE fails at angles it never saw", "rise", of="RoPE", against="window 16", more_than=0.5),
        Claim("So does the added sinusoid", "rise", of="sinusoid", against="window 16", more_than=0.2),
        Claim("Rows that were never trained mislead", "rise", of="learned", against="window 16", more_than=0.5),
        Claim("Without position the loss rises too", "rise", of="NoPE", against="window 16", more_than=0.2),
        Claim("NoPE rises less than RoPE", "rise", of="NoPE", against="RoPE", less_than=-0.3),
        Claim("NoPE is worse at the trained length", "bits at 32-63", of="NoPE", against="RoPE", more_than=0.2),
        Claim("A slope on the scores goes on as before", "rise", of="ALiBi", against="window 16", less_than=0.15),
        Claim("A window goes on as before", "rise", of="window 16", within=0.15),
        Claim("A hybrid rises less than RoPE", "rise", of="hybrid", against="RoPE", less_than=-0.5),
        Claim(
            "YaRN helps a trained model without training",
            "bits at 256-511", of="YaRN, no training", against="RoPE", less_than=-0.2,
        ),
        Claim(
            "YaRN tuned for a tenth of the steps goes on as before",
            "rise", of="YaRN, tuned", against="window 16", less_than=0.2,
        ),
        Claim(
            "So tuned, YaRN is below a RoPE tuned alike",
            "bits at 256-511", of="YaRN, tuned", against="RoPE, tuned", less_than=-0.05,
        ),
    ),
    minutes=7,
    not_shown="""
        Whether anything far away is used: a loss that does not rise can be that of a model which looks only near, as
        the window must. One learning rate for all; each arm is held against its own loss inside the trained length
        where it can be. The learned table has 512 rows of which 64 were trained; as released models have it, with no
        rows beyond, it refuses a longer text. The rest of its rows are as they were drawn, less what weight decay took.
        The hybrid's fourth layer rotates, as step 14 has it, and its other layers bring a short convolution. YaRN is
        used with its published constants, made for heads of 64 pairs or so; here there are 6.
    """,
    draw=draw,
)  # fmt: skip
