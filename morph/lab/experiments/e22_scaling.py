"""22. Did the changes alter how loss falls with size, or only where it starts?

Kaplan et al. (2020) found loss to fall as a power of the number of parameters, a straight line when both axes are
logarithmic, and its slope hardly to depend on the shape of the model. If that holds, a better block moves the line down
and leaves it parallel. One learning rate for all widths would bend it: under Adam the best one falls about as 1 / width
(Yang et al., Tensor Programs V, 2022). So the rate here is that of width 48 times 48 / width, and the rate of width 48
is the one that experiment 16 found best for the stage, of six.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import morph
from morph.config import ModelConfig
from morph.lab.fit import fit, start
from morph.lab.needs import BYTE_FREQUENCIES
from morph.lab.plot import curves
from morph.lab.probes import bits_at_most
from morph.lab.result import Result
from morph.lab.spec import Arm, Cell, Claim, Experiment, Measure, Need, Quick, Reading
from morph.lab.tasks import Text
from morph.steps import SIZES, SLUGS, stage
from morph.train.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

WIDTHS = (24, 48, 72, 96)
RATES = {0: 3e-3, 9: 1e-2}
"""Stage -> its learning rate at width 48, from experiment 16."""
STAGES = {f"{number}: {SLUGS[number]}": number for number in RATES}
OLD, NEW = STAGES


def at_width(number: int, width: int) -> ModelConfig:
    """Stage `number` at nano size, but for its width."""
    return stage(number, replace(SIZES["nano"], d_model=width))


def every_width(cell: Cell, on_step: Callable[[int], None]) -> Mapping[str, Reading]:
    """Train the arm's stage at each of `WIDTHS` on the same batches."""
    losses: list[float] = []
    sizes: list[float] = []

    def told(step: int) -> None:
        on_step((len(losses) * cell.steps + step) // len(WIDTHS))

    for width in WIDTHS:
        config = at_width(STAGES[cell.arm], width)
        rate = cell.recipe.learning_rate * cell.config.d_model / width
        trial = start(config, cell.task, cell.recipe.with_(learning_rate=rate))
        fit(trial, told)
        losses.append(bits_at_most(trial))
        sizes.append(morph.count(config).active.without_embeddings)
    return {
        "bits per byte": losses,
        "parameters": sizes,
        "exponent": exponent(sizes, losses),
        "mean bits per byte": statistics.fmean(losses),
        "bits per byte, narrowest": losses[0],
        "bits per byte, widest": losses[-1],
    }


def exponent(sizes: Sequence[float], losses: Sequence[float]) -> float:
    """a of loss ~ parameters⁻ᵃ, by least squares on the logarithms."""
    return -statistics.linear_regression([*map(math.log, sizes)], [*map(math.log, losses)]).slope


def draw(result: Result, figure: SubFigure) -> None:
    """Loss over parameters."""
    over = {}
    for arm in result.arms:
        losses, sizes = (result.lists(arm, {}, name) for name in ("bits per byte", "parameters"))
        over[arm] = (sizes[0], list(zip(*losses, strict=True)))
    curves(
        figure.subplots(), over, x="parameters without the table of tokens", y="bits per byte", is_log_y=True
    )  # fmt: skip


LEARNED = tuple(
    Need(f"bits per byte, {width}", arm, less_than=BYTE_FREQUENCIES - 0.15)
    for arm in STAGES
    for width in ("narrowest", "widest")
)

EXPERIMENT = Experiment(
    number=22,
    name="scaling",
    title="A small scaling curve",
    question="How does loss fall with parameters at equal tokens, and do the stages' curves run in parallel?",
    arms=tuple(
        Arm(name, stage(number, "nano"), {"learning_rate": RATES[number]}) for name, number in STAGES.items()
    ),
    task=Text(),
    recipe=Recipe(steps=400, batch_size=8, warmup=0.1, evaluate_every=400, evaluation_windows=128),
    procedure=every_width,
    measures=(
        Measure("bits per byte", is_log=True),
        Measure("exponent", unit="a of loss ~ N⁻ᵃ"),
        Measure("mean bits per byte"),
        Measure("bits per byte, narrowest"),
        Measure("bits per byte, widest"),
        Measure("parameters", is_log=True),
    ),
    shown=1,
    claims=(
        *(
            Claim(f"Loss falls with parameters at stage {number}", "exponent", of=arm, more_than=0.01, needs=LEARNED)
            for arm, number in STAGES.items()
        ),
        Claim("The curves are parallel", "exponent", of=NEW, against=OLD, within=0.02, needs=LEARNED),
        *(
            Claim(
                f"Stage 9 is below stage 0 at the {width} width",
                f"bits per byte, {width}", of=OLD, against=NEW, more_than=0.05, needs=LEARNED,
            )
            for width in ("narrowest", "widest")
        ),
    ),
    minutes=8,
    not_shown="""
        The exponent of a scaling law: those are fitted to models that have learned what they can, over many powers of
        ten. Here 204,800 bytes are read and parameters grow fifteenfold: how fast a model learns decides, not how much
        it can hold. Width alone grows, four layers stay. The rule for the rate is stated, not tested: it is applied to
        all weights alike, where the paper spares the embedding and all vectors; where it is wrong it bends both curves,
        and not surely by as much, and experiment 16 trained for fewer steps. Parallel is meant of the loss itself, on
        logarithmic axes: no floor that no model could pass is taken off, and what is parallel so is not parallel in
        bits. Widths are equal, parameters not quite: stage 9 has about a tenth fewer at each. Nine steps lie between
        the two stages. Loss over tokens is not shown.
    """,
    quick=Quick(steps=12),
    draw=draw,
)  # fmt: skip
