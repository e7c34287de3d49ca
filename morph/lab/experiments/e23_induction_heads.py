"""23. Where are the heads that continue a run, and do they matter?

Olsson et al. (2022) found two kinds of heads in all transformers that they looked into: a previous-token head, which
marks each token with the one before it, and above it an induction head, which finds the mark of the present token and
reads what came next. Windows leave the long look to the global layers, and a layer with a convolution may take over the
marking. Here three stages learn to continue a run of unknown length, and are then opened. A head is called by these
names from a mean weight of 0.5 on. What is asked of heads that may not be there was guarded by their scores after a
first look, in which stage 0 had none that marks the token before.
"""

from __future__ import annotations

from dataclasses import replace

from morph.config import Interleaved, ModelConfig, SlidingWindow, as_kind
from morph.lab import heads, probes
from morph.lab.needs import solved
from morph.lab.spec import Arm, Claim, Experiment, Measure, Need, Quick
from morph.lab.tasks import Induction
from morph.steps import stage
from morph.train.recipe import Recipe

SHORTEST, LONGEST, TOKENS, READ = 6, 9, 20, 16
WINDOW = 4  # shorter than any run: no local head can look at the place that is asked for, at least 5 tokens back


def opened(number: int) -> ModelConfig:
    """A stage at size nano, with a vocabulary for runs."""
    return replace(stage(number, "nano"), vocab_size=TOKENS)


def short_sighted() -> ModelConfig:
    """Stage 9 with windows shorter than all runs: layers 0 to 2 see 4 tokens, layer 3 all."""
    layout = as_kind(opened(9).layout, Interleaved, "layout")
    return replace(opened(9), layout=replace(layout, local=SlidingWindow(window=WINDOW)))


STAGES = ("stage 0", "stage 9", "stage 14")


def has(score: str, arm: str) -> Need:
    """What is said of a head needs one that is worth the name."""
    return Need(score, arm, more_than=0.5)


EXPERIMENT = Experiment(
    number=23,
    name="induction-heads",
    title="Induction heads, found",
    question="Which heads continue a run that was read before, in which layers, and what is lost without them?",
    arms=(
        Arm("stage 0", opened(0)),
        Arm("stage 9", short_sighted()),
        Arm("stage 14", opened(14)),
    ),
    task=Induction(shortest=SHORTEST, longest=LONGEST, tokens=TOKENS, read=READ),
    recipe=Recipe(
        steps=500, batch_size=32, learning_rate=5e-3, warmup=0.1, final_rate=1.0, weight_decay=0.01,
        evaluate_every=25, evaluation_windows=128,
    ),
    measures=(
        Measure("induction score", heads.induction, "weight of the best head"),
        Measure("previous-token score", heads.previous_token, "weight of the best head"),
        Measure("induction score by layer", heads.induction_by_layer, along="layer, from 0"),
        Measure("previous-token score by layer", heads.previous_token_by_layer, along="layer, from 0"),
        Measure("loss without the induction head", heads.added_without_induction_head, "bits added"),
        Measure("loss without another head", heads.added_without_other_head, "bits added"),
        Measure("induction head missed more", heads.added_beyond_other_head, "bits"),
        Measure("layers between", heads.layers_between, "from previous-token head to induction head"),
        Measure("accuracy", probes.accuracy, diverged=0.0),
        Measure("steps taken", probes.steps_taken),
    ),
    shown=6,
    claims=(
        *(
            Claim(
                f"{arm[0].upper()}{arm[1:]} has an induction head",
                "induction score", of=arm, more_than=0.5, needs=(solved(arm),),
            )
            for arm in STAGES
        ),
        *(
            Claim(
                f"{arm[0].upper()}{arm[1:]} has a previous-token head",
                "previous-token score", of=arm, more_than=0.5, needs=(solved(arm),),
            )
            for arm in STAGES[:2]
        ),
        Claim(
            "The softmax layer of stage 14 has no previous-token head",
            "previous-token score", of="stage 14", less_than=0.3, needs=(solved("stage 14"),),
        ),
        Claim(
            "In stage 0 the induction head stands above the previous-token head",
            "layers between", of="stage 0", more_than=0.5,
            needs=(solved("stage 0"), has("induction score", "stage 0"), has("previous-token score", "stage 0")),
        ),
        *(
            Claim(
                f"{arm[0].upper()}{arm[1:]} misses its induction head more than another of that layer",
                "induction head missed more", of=arm, more_than=0.5, needs=(solved(arm), has("induction score", arm)),
            )
            for arm in STAGES
        ),
    ),
    minutes=4,
    not_shown="""
        Trained on runs of 6 to 9 different tokens, read until there are 16, and on nothing else, at one learning rate,
        and opened on the same kind of runs: whether text would form such heads at this size is not tried, and neither
        is when they form. The previous-token score is of all tokens from the third on (0.13 where all weights are
        equal, 0.26 in a window of 4 tokens), and of one head: marking that several share is not seen. Only the best
        head is silenced, and held against the one of its layer that scores lowest, which may still do the same: where
        two heads do, one is hardly missed. Weights say where a head looks, not what it writes. Stage 14 has softmax in
        its last layer alone, where a previous-token head could serve no induction head beside it, so that none is no
        surprise; the layers with a state below have no weights, and their score is drawn as 0: that they (their
        convolutions, it may be) mark the token before would be concluded from an induction head above, not seen. With
        windows of 4 tokens only the last layer of stage 9 could hold an induction head at all.
    """,
    quick=Quick(steps=10, recipe={"evaluation_windows": 32, "evaluate_every": 5}),
)  # fmt: skip
