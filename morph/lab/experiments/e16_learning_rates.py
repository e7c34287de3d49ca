"""16. Which stages forgive a wrong learning rate?

A rate that is best for one width or depth is wrong for the next, so a model that learns almost as well at rates around
its best is easier to scale. Wortsman et al. (2023) put it in a number: how far the loss stays above the best one, on
average over rates spread evenly in logarithm. They found that QK-norm lowers it, as does warm-up; Xiong et al. (2020)
blame the norms of 2017, which stand on the stream.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from morph.lab.fit import fit, start
from morph.lab.plot import curves
from morph.lab.probes import bits_at_most
from morph.lab.result import Result
from morph.lab.spec import Arm, Cell, Claim, Experiment, Measure, Need, Quick, Reading
from morph.lab.tasks import Text
from morph.steps import stage
from morph.train.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)


def every_rate(cell: Cell, on_step: Callable[[int], None]) -> Mapping[str, Reading]:
    """Train the cell's model afresh at each of `RATES`: same weights at the start, same batches.

    A run that diverged, or ended worse than guessing, counts as guessing: 8 bits per byte.
    """
    losses: list[float] = []

    def told(step: int) -> None:
        on_step((len(losses) * cell.steps + step) // len(RATES))

    for rate in RATES:
        trial = start(cell.config, cell.task, cell.recipe.with_(learning_rate=rate))
        fit(trial, told)
        losses.append(bits_at_most(trial))
    return sensitivity(losses)


def sensitivity(losses: Sequence[float]) -> dict[str, Reading]:
    """The readings that follow from the loss at each of `RATES`."""
    best = min(losses)
    return {
        "sensitivity": statistics.fmean(losses) - best,
        "bits per byte": list(losses),
        "best bits per byte": best,
        "best rate": RATES[losses.index(best)],
    }


def draw(result: Result, figure: SubFigure) -> None:
    """Loss over the learning rate, a curve an arm."""
    found = {arm: result.readings(arm, {}, "bits per byte").values() for arm in result.arms}
    over = {arm: (RATES, list(zip(*rows, strict=True))) for arm, rows in found.items()}
    curves(figure.subplots(), over, x="learning rate", y="bits per byte")


def inside(arm: str) -> Need:
    """The rates must reach beyond an arm's best on both sides."""
    return Need("best rate", arm, more_than=RATES[0], less_than=RATES[-1])


EXPERIMENT = Experiment(
    number=16,
    name="learning-rates",
    title="Sensitivity to the learning rate",
    question="How much does a learning rate that is not the best one cost, before and after the norms were moved?",
    arms=(
        Arm("0: 2017", stage(0, "nano")),
        Arm("1: pre-norm", stage(1, "nano")),
        Arm("9: QK-norm, windows", stage(9, "nano")),
        Arm("14: hybrid", stage(14, "nano")),
    ),
    task=Text(),
    recipe=Recipe(steps=110, batch_size=4, warmup=0.1, evaluate_every=110, evaluation_windows=64),
    procedure=every_rate,
    measures=(
        Measure("bits per byte"),
        Measure("sensitivity", unit="bits above the best, mean over rates"),
        Measure("best bits per byte"),
        Measure("best rate", is_log=True),
    ),
    shown=1,
    claims=(
        Claim(
            "Norms on the stream make the rate matter more than norms on the branches",
            "sensitivity", of="0: 2017", against="1: pre-norm", more_than=0.1,
            needs=(inside("0: 2017"), inside("1: pre-norm")),
        ),
        Claim(
            "By stage 9, which has QK-norm, the rate matters less than after step 1",
            "sensitivity", of="1: pre-norm", against="9: QK-norm, windows", more_than=0.05,
            needs=(inside("1: pre-norm"), inside("9: QK-norm, windows")),
        ),
        Claim(
            "At stage 14 too the rate matters less than after step 1",
            "sensitivity", of="1: pre-norm", against="14: hybrid", more_than=0.05,
            needs=(inside("1: pre-norm"), inside("14: hybrid")),
        ),
    ),
    minutes=6,
    not_shown="""
        What makes stages 9 and 14 differ: eight and thirteen steps lie between them and stage 1. The published effect
        is of long trainings, where logits have time to grow, and of larger models; 110 steps at width 48 see only what
        goes wrong early, and at the lowest rates they end before much is learned, which counts as sensitivity too.
        Weight decay is multiplied by the rate, as AdamW has it here and in most libraries, so the highest rates decay
        weights faster as well. The number depends on the range of rates, 0.001 to 0.3; the published one caps a loss
        at its value at the start, this one at 8 bits.
    """,
    quick=Quick(steps=4),
    draw=draw,
)  # fmt: skip
