"""15. What did the changes leave as it was? The arithmetic of a step, and where 6·N ends.

Kaplan et al. (2020; their N is without embeddings) count 2 FLOPs for each parameter that a token meets on the way
forward, and twice as many on the way back: 6·N a token. That is of matrix products with weights alone. Scores are
products of activations with each other, so attention adds to it with every token in sight; the table of the vocabulary
is met as a whole by the head, and by the embedding not at all; experts that rest are not met.

Counts are exact and a matter of shapes: seeds agree, intervals have no width, and who writes a claim knows much of what
will come. That the delta rule costs more was asked of FLOPs over 6·N first, and of FLOPs after a look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import morph
from morph.lab.fit import start
from morph.lab.flops import step_flops
from morph.lab.plot import curves
from morph.lab.result import Result
from morph.lab.spec import Arm, Cell, Claim, Experiment, Measure, Reading
from morph.lab.tasks import Text
from morph.steps import SLUGS, stage
from morph.train.plot import QUIET
from morph.train.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

CONTEXTS = (64, 128, 256, 512)
SHORT, LONG = CONTEXTS.index(64), CONTEXTS.index(512)  # nano's own length, and more than ten times its width
WIDE = "0, 4,096 tokens"
STAGES = [f"{k}: {slug}" for k, slug in enumerate(SLUGS)]


def counts(cell: Cell, on_step: Callable[[int], None]) -> Mapping[str, Reading]:
    """FLOPs of a step over one sequence of each length in `CONTEXTS`, over 6·N for each of its tokens."""
    trial, weights = start(cell.config, cell.task, cell.recipe), morph.count(cell.config)
    steps = [step_flops(trial, context) for context in CONTEXTS]
    needed = [forward + backward for forward, backward in steps]
    visible = [3 * weights.flops(context).total for context in CONTEXTS]

    def over(flops: list[int], parameters: int) -> list[float]:
        return [some / (6 * parameters * context) for some, context in zip(flops, CONTEXTS, strict=True)]

    active = over(needed, weights.active.all)
    forward, backward = steps[LONG]
    return {
        "over 6·N by context": active,
        "visible over 6·N by context": over(visible, weights.active.all),
        "backward over two forwards": backward / (2 * forward),
        "over 6·N, 64 tokens": active[SHORT],
        "over 6·N, 512 tokens": active[LONG],
        "over 6·N without the table": over(needed, weights.active.without_embeddings)[SHORT],
        "over 6·N with resting experts": over(needed, weights.total)[SHORT],
        "visible kFLOPs of a token": visible[SHORT] / 3 / CONTEXTS[SHORT] / 1e3,
    }


def draw(result: Result, figure: SubFigure) -> None:
    """The ratio over the context, of the stages where it changes: as counted, and without what a mask hides."""
    panels = {"over 6·N by context": "every score formed", "visible over 6·N by context": "visible scores only"}
    for axes, (name, title) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        found = {arm: result.readings(arm, {}, name).values() for arm in (STAGES[k] for k in (0, 9, 13, 14))}
        over = {arm: (CONTEXTS, list(zip(*rows, strict=True))) for arm, rows in found.items()}
        curves(axes, over, x="tokens of context", y="FLOPs of a step over 6·N a token", is_log_y=True)
        axes.axhline(1, color=QUIET, linewidth=0.8)
        axes.set_title(title, loc="left", fontsize=10)
    if legend := figure.axes[0].get_legend():  # the right panel's serves both
        legend.remove()
    figure.axes[1].set_ylabel("")


EXPERIMENT = Experiment(
    number=15,
    name="costs",
    title="What a step costs",
    question="Is a backward pass still two forward passes, and does 6·N still tell the FLOPs of a token?",
    arms=(
        *(Arm(name, stage(k, "nano"), is_trained=False) for k, name in enumerate(STAGES)),
        Arm(WIDE, replace(stage(0, "nano"), vocab_size=4096), is_trained=False),
    ),
    task=Text(),
    recipe=Recipe(steps=1, batch_size=1),
    procedure=counts,
    measures=(
        Measure("over 6·N by context", is_log=True),
        Measure("visible over 6·N by context", is_log=True),
        Measure("backward over two forwards"),
        Measure("over 6·N, 64 tokens"),
        Measure("over 6·N, 512 tokens"),
        Measure("over 6·N without the table", unit="64 tokens"),
        Measure("over 6·N with resting experts", unit="64 tokens"),
        Measure("visible kFLOPs of a token", unit="forward, 64 tokens"),
    ),
    shown=1,
    claims=(
        *(
            Claim(
                f"A backward pass costs two forward passes{text}",
                "backward over two forwards", of=STAGES[k], ratio=True, within=within,
            )
            for k, text, within in ((0, "", 1.02), (13, ", with experts too", 1.02), (14, ", with a state nearly", 1.1))
        ),
        *(
            Claim(
                f"6·N tells the FLOPs of stage {k} at its own 64 tokens",
                "over 6·N, 64 tokens", of=STAGES[k], ratio=True, within=1.25,
            )
            for k in (0, 13, 14)
        ),
        Claim(
            "N is of the experts that a token meets: with all of them it says more than twice too much",
            "over 6·N with resting experts", of=STAGES[13], less_than=0.5,
        ),
        Claim(
            "N is with the table that the head multiplies by: a large vocabulary weighs more than all layers",
            "over 6·N without the table", of=WIDE, more_than=2,
        ),
        Claim(
            "At ten times the width in tokens, attention costs more than everything in N",
            "over 6·N, 512 tokens", of=STAGES[0], more_than=2,
        ),
        Claim(
            "With three layers in four that keep a state, context weighs less",
            "over 6·N, 512 tokens", of=STAGES[14], against=STAGES[13], ratio=True, less_than=0.75,
        ),
        Claim(
            "In chunks, the delta rule computes more than the windows that it replaced",
            "visible kFLOPs of a token", of=STAGES[14], against=STAGES[13], ratio=True, more_than=1.1,
        ),
    ),
    minutes=2,
    not_shown="""
        Time: what runs how fast is a matter of kernels and memory, and FLOPs say little of it. The counter sees matrix
        products and triangular solves; norms, softmax, activations, rotations and short convolutions count nothing, and
        at width 48 they take much of the time. Plain forms are counted, which form every score and mask it afterwards:
        "visible" is a formula that leaves those out, and a flash kernel forms scores again on the way back. The delta
        rule is counted in chunks of 64 tokens, as it is trained; token by token it needs fewer FLOPs and more time.
    """,
    draw=draw,
)  # fmt: skip
