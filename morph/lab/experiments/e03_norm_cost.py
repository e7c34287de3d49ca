"""3. What does RMSNorm save?

LayerNorm needs two statistics of a token's features, RMSNorm one (Zhang & Sennrich, 2019). As written that is one sum
over the features less, and one exchange between ranks less where the features are split over them. Yet both statistics
of LayerNorm fit in one exchange: as sums of x and x², which rounding spoils where the mean is large, or as every rank's
own mean and variance, merged (Chan et al., 1979). What is saved depends on the form; `morph.lab.sharded` has all.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from morph import config
from morph.lab import probes
from morph.lab.norms import FORMS, error, exchanged, mean_in_stream, sums, time_of
from morph.lab.result import Result
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need, Quick
from morph.lab.tasks import Text
from morph.steps import stage
from morph.train.plot import ACCENT, INK, QUIET
from morph.train.recipe import Recipe


def draw(result: Result, figure: Any) -> None:
    """Every seed's loss on top; below it what each form exchanges, and how it rounds."""
    from matplotlib.ticker import LogLocator, NullLocator

    panels = figure.subplot_mosaic([["loss", "loss"], ["exchanges", "error"]], height_ratios=[2, 4])
    forms = [("LayerNorm", form) for form in FORMS] + [("RMSNorm", "apart")]
    names = [f"{arm}, {form}" for arm, form in forms[:-1]] + ["RMSNorm"]
    rows = [result.numbers(arm, {}, "bits per byte") for arm in ("LayerNorm", "RMSNorm")]
    _dots(panels["loss"], "bits per byte of held-out text", ["LayerNorm", "RMSNorm"], rows)
    rows = [result.numbers(arm, {}, f"exchanges, {form}") for arm, form in forms]
    _dots(panels["exchanges"], "exchanges a norm, forward and backward", names, rows)
    panels["exchanges"].set_xlim(0, 4.5)
    rows = [result.numbers(arm, {}, f"rounding error, {form}") for arm, form in forms]
    _dots(panels["error"], "RMS of the error at a mean of 1000 spreads", [""] * len(names), rows)
    panels["error"].set_xscale("log")
    panels["error"].xaxis.set_major_locator(LogLocator(numticks=6))
    panels["error"].xaxis.set_minor_locator(NullLocator())


def _dots(axes: Any, label: str, names: list[str], rows: list[list[float]]) -> None:
    for row, values in enumerate(rows):
        axes.plot(values, [row] * len(values), "o", color=QUIET, markersize=4, zorder=3)
        axes.plot([statistics.fmean(values)], [row], "|", color=ACCENT, markersize=12, markeredgewidth=2, zorder=2)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(label, fontsize=9, color=INK)
    axes.tick_params(colors=INK, labelsize=8)
    axes.grid(axis="y", color=QUIET, alpha=0.2)
    axes.spines[["top", "right", "left"]].set_visible(False)


EXPERIMENT = Experiment(
    number=3,
    name="norm-cost",
    title="What RMSNorm saves",
    question="Does leaving out the mean cost loss, and what sums and exchanges does it save, in which form?",
    arms=(
        Arm("LayerNorm", stage("pre-norm", "nano")),
        Arm("RMSNorm", stage("rms-norm", "nano")),
        Arm("LayerNorm, no shift", replace(stage("pre-norm", "nano"), norm=config.LayerNormNoBias()), is_trained=False),
    ),
    vary={"learning_rate": (5e-3, 1.2e-2, 3e-2)},
    best=Best("learning_rate", by="bits per byte"),
    seeds=(0, 1, 2, 3, 4),
    task=Text(),
    recipe=Recipe(steps=130, batch_size=8, warmup=0.1, evaluate_every=130, evaluation_windows=128),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("exchanges, apart", lambda trial: exchanged("apart")(trial)[0], "a norm", at="init"),
        Measure("exchanges, together", lambda trial: exchanged("together")(trial)[0], "a norm", at="init"),
        # rounding depends on the processor: read where a rerun is not asked for the same digits
        Measure("rounding error, apart", error("apart"), "RMS, mean 1000", is_log=True),
        Measure("rounding error, together", error("together"), "RMS, mean 1000", is_log=True),
        Measure("rounding error, merged", error("merged"), "RMS, mean 1000", is_log=True),
        Measure("exchanges, merged", lambda trial: exchanged("merged")(trial)[0], "a norm", at="init"),
        Measure("numbers, together", lambda trial: exchanged("together")(trial)[1], "a token and rank", at="init"),
        Measure("sums forward", lambda trial: sums(trial.config.norm)[0], "over features", at="init"),
        Measure("sums backward", lambda trial: sums(trial.config.norm)[1], "over features", at="init"),
        Measure("mean over spread", mean_in_stream, "of features, before norms"),
        Measure("time over LayerNorm's", lambda trial: time_of(trial.config.norm), "this machine"),
    ),
    shown=3,
    claims=(
        Claim(
            "Leaving out the mean costs no loss", "bits per byte", of="RMSNorm", against="LayerNorm", within=0.05,
            needs=(Need("bits per byte", "LayerNorm", less_than=4.0),),  # far below `needs.BYTE_FREQUENCIES`
        ),
        Claim(  # features drawn at random have a mean of 1/√48 of their spread
            "There is little to leave out: in a trained stream the mean is small beside the spread",
            "mean over spread", of="LayerNorm", less_than=0.5,
        ),
        Claim(
            "As written, RMSNorm sums over the features half as often",
            "sums forward", of="RMSNorm", against="LayerNorm", ratio=True, less_than=0.6,
        ),
        Claim(
            "With an exchange for each statistic, it needs half as many",
            "exchanges, apart", of="RMSNorm", against="LayerNorm", ratio=True, less_than=0.6,
        ),
        Claim(
            "It needs fewer even when both statistics of LayerNorm share one exchange",
            "exchanges, together", of="LayerNorm", against="RMSNorm", more_than=0.5,
        ),
        Claim(
            "What is exchanged is then half as much",
            "numbers, together", of="RMSNorm", against="LayerNorm", ratio=True, less_than=0.6,
        ),
        Claim(  # float32 loses 10⁶ ε of a variance of 1 in mean(x²) - mean², and 10³ ε of x - mean
            "A large mean spoils LayerNorm from sums of x and x²",
            "rounding error, together", of="LayerNorm", more_than=0.003,
        ),
        Claim("It does not spoil it from two passes", "rounding error, apart", of="LayerNorm", less_than=0.0003),
        Claim("Nor from merged means and variances", "rounding error, merged", of="LayerNorm", less_than=0.0003),
    ),
    minutes=4,
    not_shown="""
        What an exchange costs in time: all ranks are one process here (the tests hold two real ones to the same numbers
        and counts), and most systems do not split a norm's features at all. Fused kernels read the features once for
        either norm; the ratio of times is of torch's kernels on the machine it was measured on, and no claim is made of
        it. LayerNorm also has a shift, which RMSNorm leaves out with the mean: both go in one step. Backward passes are
        counted as autograd derives them; written by hand, LayerNorm's needs one exchange of two sums in every form. A
        mean of 1000 spreads was chosen to show rounding; that of trained streams is told beside it.
    """,
    quick=Quick(steps=10),
    draw=draw,
)  # fmt: skip
