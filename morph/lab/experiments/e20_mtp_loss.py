"""20. What does a second target teach, and what is its head good for?

With multi-token prediction a head one block deep is asked for the token after next, and its loss reaches the trunk
(Gloeckle et al., 2024; DeepSeek-V3, 2024). Gloeckle et al. saw it help large models and not small ones; DeepSeek-V3
reports that 85 to 90 % of such drafts are accepted. The head costs arithmetic at every step, so the model without it is
also given as many more steps as that arithmetic buys. That drafts must beat a table of the last byte was added after a
pilot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from morph.config import AllGlobal, ModelConfig
from morph.errors import MorphError
from morph.forks import compose
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.speculation import greedy
from morph.steps import stage
from morph.train.recipe import Recipe

PLAIN, WITH_MTP = stage("rope", "nano"), compose("rope", "mtp", size="nano")
STEPS = 180
ROWS = 64  # held-out windows that are drafted on


def mtp_flops(config: ModelConfig, context: int) -> int:
    """Forward FLOPs of the heads of later tokens, which `Count.flops` leaves out, for one sequence.

    Head k reads `context` - k tokens: the map that joins two vectors, a block like the last, and the vocabulary once
    more. Of layers that are all alike, so that one more layer is such a block.
    """
    if not isinstance(config.layout, AllGlobal):
        raise MorphError(f"layout is {config.layout.kind}: these FLOPs are counted for layers that are all global")
    if config.mtp is None:
        return 0
    deeper, found = replace(config, n_layers=config.n_layers + 1), 0
    for S in range(context - config.mtp.depth, context):
        here = count(config).flops(S)
        found += count(deeper).flops(S).total - here.total + here.head + 2 * S * 2 * config.d_model**2
    return found


def flops(config: ModelConfig) -> int:
    """Forward FLOPs of one training sequence, heads of later tokens included."""
    return count(config).flops(config.context_length).total + mtp_flops(config, config.context_length)


LONGER = round(STEPS * flops(WITH_MTP) / flops(PLAIN))
"""Steps without the head that take the arithmetic of `STEPS` with it."""


def whole_run(trial: Trial) -> float:
    """Forward FLOPs of all steps, in 10^9; forward and backward together are about three times as many."""
    return flops(trial.config) * trial.recipe.batch_size * trial.recipe.accumulation * len(trial.steps) / 1e9


@dataclass(frozen=True)
class Drafts:
    """Guesses at the token after next on held-out text, as shares of all columns.

    Attributes:
        right: the head guesses what the text says.
        accepted: it guesses what the trunk writes there, having read the token between: what `morph.speculation` keeps.
        accepted_of_table: the most that any table could have accepted that knows the last byte alone. A trunk that
            has learned little writes the same few bytes, and any draft is then accepted: what counts is beyond this.
    """

    right: float
    accepted: float
    accepted_of_table: float


@torch.no_grad()
def drafts(trial: Trial) -> Drafts | None:
    """What the first head drafts at every column of real text; None for a model without heads."""
    model = trial.model
    if not len(model.mtp):
        return None
    ids, targets = trial.held_out(ROWS)
    x = model.read(ids)
    written = greedy(model.logits(x))[:, 1:]
    later = model.mtp[0](x[:, :-1], model.embed(ids[:, 1:]), model.context(0, ids.shape[1] - 1))
    guessed = greedy(model.logits(later))
    pairs = torch.zeros(trial.config.vocab_size, trial.config.vocab_size, dtype=torch.long)
    pairs.index_put_((ids[:, 1:], written), torch.ones_like(written), accumulate=True)
    return Drafts(
        right=float((guessed == targets[:, 1:]).double().mean()),
        accepted=float((guessed == written).double().mean()),
        accepted_of_table=float(pairs.amax(dim=1).sum() / written.numel()),
    )


def accepted(trial: Trial) -> float | None:
    """Share of the head's drafts that the trunk agrees with."""
    return found.accepted if (found := drafts(trial)) else None


def beyond_table(trial: Trial) -> float | None:
    """How much larger that share is than the most that any table of the last byte could reach on the same text."""
    return found.accepted - found.accepted_of_table if (found := drafts(trial)) else None


def right(trial: Trial) -> float | None:
    """Share of the head's drafts that are what the text says."""
    return found.right if (found := drafts(trial)) else None


LEARNED = Need("bits per byte", "MTP", less_than=3.3)
"""A trunk worth drafting for: it knows more than a table of byte pairs (`needs.BYTE_PAIRS`)."""

EXPERIMENT = Experiment(
    number=20,
    name="mtp-loss",
    title="A loss for the token after next",
    question="Does predicting the token after next help to predict the next, and does the trunk accept such drafts?",
    arms=(
        Arm("next token", PLAIN),
        Arm("next token, equal FLOPs", PLAIN, {"steps": LONGER}),
        Arm("MTP", WITH_MTP),
    ),
    vary={"learning_rate": (3e-3, 8e-3, 2e-2)},
    best=Best("learning_rate", by="bits per byte"),
    task=Text(),
    recipe=Recipe(steps=STEPS, batch_size=8, warmup=0.05, evaluate_every=1000, evaluation_windows=256),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, "of the next byte", diverged=8.0),
        Measure("drafts accepted", accepted, "share"),
        Measure("accepted beyond a table", beyond_table, "share"),
        Measure("drafts right", right, "share"),
        Measure("forward FLOPs of the run", whole_run, "10⁹"),
    ),
    claims=(
        Claim(
            "At equal steps a small model's next token gains and loses nothing",
            "bits per byte", of="MTP", against="next token", within=0.03,
        ),
        Claim(
            "At equal FLOPs more steps are worth more than the second target",
            "bits per byte", of="MTP", against="next token, equal FLOPs", more_than=0.03,
        ),
        Claim(
            "The trunk accepts more than half of the drafts",
            "drafts accepted", of="MTP", more_than=0.5, needs=(LEARNED,),
        ),
        Claim(
            "More than any table that knows the last byte alone could draft",
            "accepted beyond a table", of="MTP", more_than=0.05, needs=(LEARNED,),
        ),
    ),
    minutes=5,
    not_shown="""
        Stage 4 (RoPE, all layers global), the cheapest body that the head can be put on; the fork has it on a hybrid.
        One weight (0.3) and one head; a head is a quarter of this trunk's blocks and a sixtieth of DeepSeek-V3's, so
        the price is exaggerated. Gains were reported for models and trainings thousands of times as large. More steps
        also read more text, at a schedule stretched over them. Drafts are judged at every byte of held-out text; in a
        text that the model writes itself they are accepted more often, because it repeats itself, and a byte is easier
        to foresee than a token of many. No time is measured.
    """,
)  # fmt: skip
