"""17. Which mixers learn to continue what was read before, and how soon?

To foresee the second reading of a run, a model must find the last time it read the present token and copy the one after
it (Olsson et al., 2022). Softmax attention needs two layers for that: one to mark each token with the one before it,
one to look the mark up. A layer with a short convolution is handed the mark. A fading sum is handed no mark and looks
at no single place, and windows that together do not reach back a run never see the place. How long a run is differs
from sequence to sequence: a head that looks a fixed distance back, whatever stands there, does not solve it.
"""

from __future__ import annotations

from morph.lab import mixers, probes
from morph.lab.mixers import below_full, everywhere, laid_out
from morph.lab.needs import settled, solved
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Quick
from morph.lab.tasks import Induction
from morph.lab.trial import Trial
from morph.train.recipe import Recipe

SHORTEST, LONGEST, TOKENS, READ = 6, 9, 20, 16
STEPS = 720
WINDOW = 3  # two layers of it reach 4 tokens back; the token to copy stands at least SHORTEST - 1 = 5 back


def mean_accuracy(trial: Trial) -> float:
    """Over all evaluations of the whole training; those after the task was solved count as 1."""
    found = [values["accuracy"] for _, values in trial.evaluations]
    planned = trial.recipe.steps // trial.recipe.evaluate_every
    return (sum(found) + max(0, planned - len(found))) / max(planned, len(found))


SOLVES = solved("full")


EXPERIMENT = Experiment(
    number=17,
    name="induction",
    title="Induction",
    question="Which mixers learn to continue a run that they read before, and in how many steps?",
    arms=(
        Arm("full", mixers.full(TOKENS)),
        Arm("window of 3", laid_out(TOKENS, everywhere(mixers.window(WINDOW)))),
        Arm("delta", laid_out(TOKENS, everywhere(mixers.delta(mixers.HEAD))), alter=mixers.start_without_fading),
        Arm("lightning", laid_out(TOKENS, everywhere(mixers.lightning(8)))),
        Arm("delta + full", laid_out(TOKENS, below_full(mixers.delta(mixers.HEAD))), alter=mixers.start_without_fading),
    ),
    vary={"learning_rate": (3.5e-3, 7e-3, 1.5e-2)},
    best=Best("learning_rate", by="mean accuracy", take="highest"),
    task=Induction(shortest=SHORTEST, longest=LONGEST, tokens=TOKENS, read=READ),
    recipe=Recipe(  # a rate that stays shows who is still learning
        steps=STEPS, batch_size=32, warmup=0.05, final_rate=1.0, weight_decay=0.01,
        evaluate_every=24, evaluation_windows=64,
    ),
    measures=(
        Measure(
            "steps taken", probes.steps_taken, f"to 99.5 %, of at most {STEPS}", diverged=float(STEPS), is_log=True
        ),
        Measure("accuracy", probes.accuracy, diverged=0.0),
        Measure("mean accuracy", mean_accuracy, "over all of training", diverged=0.0),
        Measure("late gain", probes.late_gain("accuracy"), diverged=0.0),
    ),
    claims=(
        Claim("Full attention learns it", "accuracy", of="full", more_than=0.9),
        Claim(
            "Windows that together reach back less than a run cannot",
            "accuracy", of="full", against="window of 3", more_than=0.5, needs=(SOLVES, settled("window of 3")),
        ),
        Claim("Gated DeltaNet learns it", "accuracy", of="delta", more_than=0.9, needs=(settled("delta"),)),
        Claim(
            "Lightning attention, with no convolution, learns it worse",
            "accuracy", of="delta", against="lightning", more_than=0.2, needs=(solved("delta"), settled("lightning")),
        ),
        Claim(
            "Full attention over a layer with a convolution learns it sooner than over another of its kind",
            "steps taken", of="delta + full", against="full", less_than=0.8, ratio=True,
            needs=(SOLVES, solved("delta + full")),
        ),
        Claim(
            "Gated DeltaNet alone learns it sooner than full attention",
            "steps taken", of="delta", against="full", less_than=0.8, ratio=True, needs=(SOLVES, solved("delta")),
        ),
    ),
    minutes=12,
    not_shown="""
        Whether the convolution is what helps: Gated DeltaNet differs from lightning attention in its rule and its gates
        too (experiment hybrid-parts takes them apart). Runs of 6 to 9 different tokens out of 20, read until there are
        16, in two narrow layers; text is longer and ambiguous. Delta layers have one head of 16 as softmax attention
        has, and their decays start at almost none; lightning attention has four heads of 8, as its speeds of forgetting
        are fixed by their number. Sooner means sooner at 99.5 % of the answers, whoever began to learn first; steps are
        counted in evaluations, 24 apart, and an arm that never came so far counts as 720, so that a quotient of steps
        above 1 may be larger yet. An arm that has not learned it after 720
        steps is called unable only where its late gain is near 0, and then at this size. Arms differ in parameters, as
        their layers have different maps. A first look at 480 steps, with the rates 0.007 to 0.03, left two claims
        undecided and all arms best at the lowest rate; steps and rates were changed after it.
    """,
    quick=Quick(steps=10, recipe={"evaluation_windows": 32, "evaluate_every": 5}),
)  # fmt: skip
