"""8. How many layers must see everything, how far must the others see, and what do they look at?

A window's cache stops growing, so windows are mixed with layers that see all: 1 : 1 in Gemma 2 and gpt-oss, 3 : 1 in
Olmo 3, 5 : 1 in Gemma 3, none in Mistral 7B. Twelve layers hold each of these ratios exactly. L layers of windows w can
hear L (w - 1) + 1 tokens; how much a prediction depends on each of them is read from gradients (Luo et al., 2016).

That windows cost nothing says something only where there was something to lose, so every claim about loss needs full
attention to gain from far tokens. Those of no loss got this guard after the first results, which then said less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from morph.config import AllGlobal, AllLocal, Interleaved, Layout, ModelConfig, SlidingWindow
from morph.lab import probes, receptive
from morph.lab.plot import curves
from morph.lab.result import Result
from morph.lab.spec import Arm, Claim, Experiment, Measure, Need, Point, Quick
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.steps import stage
from morph.train.plot import INK, QUIET
from morph.train.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

LAYERS, LENGTH = 12, 128
WINDOWS = (8, 32)
EDGES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


def of(layout: Callable[[SlidingWindow], Layout]) -> Callable[[Point], ModelConfig]:
    """Stage 7, twelve layers deep, on texts of 128 tokens, with another layout."""
    base = replace(stage("gqa", "nano"), n_layers=LAYERS, context_length=LENGTH)
    return lambda point: replace(base, layout=layout(SlidingWindow(window=int(point["window"]))))


def n_to_one(n: int) -> Callable[[SlidingWindow], Layout]:
    """`n` local layers, then a global one, over and over."""
    return lambda window: Interleaved(n_local=n, local=window)


def cache(trial: Trial) -> float:
    """KiB that a text of `LENGTH` tokens keeps in bf16."""
    return count(trial.config).cache_bytes(LENGTH) / 1024


def late_bits(trial: Trial) -> float:
    """Mean loss where more tokens lie behind than any window holds."""
    return probes.loss_between(LENGTH // 2, LENGTH, rows=trial.recipe.evaluation_windows)(trial)


def field(trial: Trial) -> float:
    """Tokens that hold 90 % of the squared gradient."""
    return receptive.tokens_within(receptive.gradient_shares(trial, trial.recipe.evaluation_windows // 2))


def by_distance(trial: Trial) -> list[float]:
    """Share of the squared gradient of one token, by distance."""
    return receptive.in_bins(receptive.gradient_shares(trial, trial.recipe.evaluation_windows // 2), EDGES)


def far_tokens(trial: Trial) -> float:
    """Bits saved by reading more than the last 16 tokens."""
    return receptive.worth_of_far_tokens(trial, 16, trial.recipe.evaluation_windows)


def draw(result: Result, figure: SubFigure) -> None:
    """Loss over cache, a line an arm from its smaller to its larger window; below, gradients over distance."""
    panels = figure.subplots(1 + len(result.points), 1)
    loss, kept = "bits at 64-127", "cache of 128 tokens"
    over = {}
    for arm in result.arms:
        places = [result.numbers(arm, point, kept)[0] for point in result.points]
        over[arm] = (places, [result.numbers(arm, point, loss) for point in result.points])
    curves(panels[0], over, x="cache of 128 tokens, KiB (smaller window on the left)", y=loss)
    middle = [(first + end + 1) / 2 for first, end in pairwise(EDGES)]
    for axes, point in zip(panels[1:], result.points, strict=True):
        found = {arm: result.readings(arm, point, "gradient by distance").values() for arm in result.arms}
        shares = {arm: (middle, list(zip(*rows, strict=True))) for arm, rows in found.items() if rows}
        curves(axes, shares, x="tokens back, the last one included", y="share of a token", is_log_y=True)
        axes.axvline(point["window"], color=QUIET, linewidth=0.8, linestyle="--")
        title = f"squared gradient of the last prediction, window {point['window']} (dashed)"
        axes.set_title(title, loc="left", fontsize=10, color=INK)
        axes.set_xticks([2**n for n in range(8)], [str(2**n) for n in range(8)])
        axes.set_ylim(1e-6, 2)  # below, shares run down to exactly 0 beyond the reach
        axes.set_yticks([10.0**-n for n in range(7)], [f"{10.0**-n:g}" for n in range(7)])
        axes.minorticks_off()


SOMETHING_TO_LOSE = Need("worth of far tokens", "full", more_than=0.05)

EXPERIMENT = Experiment(
    number=8,
    name="windows",
    title="Windows: how many, how wide",
    question="What do windows save and cost, and how far back does a trained model look within what it can hear?",
    arms=(
        Arm("full", of(lambda window: AllGlobal())),
        Arm("1 : 1", of(n_to_one(1))),
        Arm("3 : 1", of(n_to_one(3))),
        Arm("5 : 1", of(n_to_one(5))),
        Arm("all local", of(lambda window: AllLocal(local=window))),
    ),
    vary={"window": WINDOWS},
    task=Text(),
    recipe=Recipe(steps=110, batch_size=4, learning_rate=5e-3, evaluate_every=110, evaluation_windows=64),
    measures=(
        Measure("bits at 64-127", late_bits, diverged=8.0),
        Measure("cache of 128 tokens", cache, "KiB", at="init"),
        Measure("effective field", field, "tokens with 90 % of the squared gradient"),
        Measure("theoretical reach", receptive.theoretical_reach, "of 128 tokens", at="init"),
        Measure("worth of far tokens", far_tokens, "bits saved by reading more than 16"),
        Measure("gradient by distance", by_distance, is_log=True),
    ),
    shown=3,
    claims=(
        *(
            Claim(
                text, "bits at 64-127", of=arm, against="full", less_than=0.05, needs=(SOMETHING_TO_LOSE,)
            )
            for text, arm in (
                ("Half the layers can be windows at no loss", "1 : 1"),
                ("So can three in four", "3 : 1"),
                ("So can five in six", "5 : 1"),
            )
        ),
        Claim(
            "Windows of 8 in all layers cost loss", "bits at 64-127", of="all local", against="full", more_than=0.05,
            at={"window": 8}, needs=(SOMETHING_TO_LOSE,),
        ),
        Claim(
            "Windows of 32 in all layers cost none", "bits at 64-127", of="all local", against="full", less_than=0.05,
            at={"window": 32}, needs=(SOMETHING_TO_LOSE,),
        ),
        Claim(
            "Full attention looks mostly at the nearer half", "effective field", of="full", less_than=64,
            at={"window": 8},
        ),
        Claim(
            "Windows of 8 look at less than half of the 85 tokens they can hear", "effective field", of="all local",
            less_than=42.5, at={"window": 8},
        ),
        Claim(
            "Wider windows look further", "effective field", of="all local", more_than=1.5, ratio=True,
            at={"window": 32}, against_at={"window": 8},
        ),
        Claim(
            "Two global layers look beyond windows of 8", "effective field", of="5 : 1", against="all local",
            more_than=1.2, ratio=True, at={"window": 8},
        ),
    ),
    minutes=8,
    not_shown="""
        What windows cost a model that has learned to use far tokens: after 110 steps full attention gains nothing from
        them, and windows are ahead of it. Text of bytes, where most of what can be foreseen follows from the last few:
        what windows cost where something far away is needed is the matter of recall. 128 tokens are few; in long texts
        a global layer's share of the cache grows, and the ratio with it: at 128 tokens windows of 32 keep a quarter of
        what a global layer does. One learning rate for all. Gradients say how a prediction would change with a small
        change of an embedding, not what the model would lose without that token, and one strong neighbour can hide many
        weak ones.
    """,
    quick=Quick(steps=4, vary={"window": WINDOWS}),
    draw=draw,
)  # fmt: skip
