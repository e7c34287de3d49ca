"""18. Should the head be the embedding?

One table can read tokens in and write them out (Press & Wolf, 2017; the 2017 Transformer did so), which saves V x D
weights: a quarter of Qwen3-0.6B, and one part in fifteen of Llama 3 8B, which has two tables. A table of its own for
the head is free to differ from the embedding; the same weights could also widen the body.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from morph.config import MLP, ModelConfig, as_kind
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.steps import size_of, stage
from morph.train.recipe import Recipe

TIED = stage("rope", replace(size_of("nano"), d_model=24, n_layers=2, n_heads=2))
"""Stage 4, so small that one table of 256 rows is near a third of it."""


def wider() -> ModelConfig:
    """Tied, with the weights of a second table in the feed-forward networks: two matrices in each layer."""
    mlp = as_kind(TIED.feed_forward, MLP, "feed_forward")
    more = TIED.vocab_size // (2 * TIED.n_layers)
    return replace(TIED, feed_forward=replace(mlp, width=mlp.width + more))


def table_share(trial: Trial) -> float:
    """Share of the parameters in embedding and head."""
    weight = count(trial.config)
    return 1 - weight.active.without_embeddings / weight.total


def initial_bits(trial: Trial) -> float:
    """Bits per byte of held-out text before training; even odds give 8."""
    return float(probes.position_losses(trial, trial.config.context_length).mean())


@torch.no_grad()
def repeated(trial: Trial) -> float:
    """Mean probability that the next byte is given of being the one just read."""
    ids = trial.held_out(32)[0]
    return float(trial.model(ids).softmax(dim=-1).gather(-1, ids[..., None]).mean())


COUNTS = 0.02
"""Bits per byte, 0.7 % of some 3 bits: a third of what 30 % more parameters bring by the exponent of Kaplan et al.
(Scaling Laws for Neural Language Models, 2020), 1 - 1.3 ** -0.076 = 2 %."""

EXPERIMENT = Experiment(
    number=18,
    name="tying",
    title="Tied embeddings",
    question="Does a head of its own pay, and do its weights serve better there than in the body?",
    arms=(
        Arm("tied", TIED),
        Arm("untied", replace(TIED, tied=False)),
        Arm("tied, wider body", wider()),
    ),
    vary={"learning_rate": (2e-2, 4e-2, 8e-2)},
    best=Best("learning_rate", by="bits per byte"),
    seeds=(0, 1, 2, 3, 4),
    task=Text(),
    recipe=Recipe(steps=220, batch_size=8, warmup=0.05, evaluate_every=220, evaluation_windows=256),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("bits before training", initial_bits, at="init"),
        Measure("probability of a repeat before training", repeated, at="init"),
        Measure("parameters in tables", table_share, "share", at="init"),
    ),
    shown=4,
    claims=(
        Claim(
            "At equal body, a head of its own learns more",
            "bits per byte", of="tied", against="untied", more_than=COUNTS,
        ),
        Claim(
            "The control: as many weights more in the body learn more",
            "bits per byte", of="tied", against="tied, wider body", more_than=COUNTS,
        ),
        Claim(
            "At equal parameters, the body makes more of them than a second table",
            "bits per byte", of="untied", against="tied, wider body", more_than=COUNTS,
        ),
        Claim(
            "Untrained, a tied model does worse than an untied one, since it says again what it reads",
            "bits before training", of="tied", against="untied", more_than=0.5,
        ),
    ),
    minutes=3,
    not_shown="""
        Vocabularies of words: bytes are 256 tokens, all of them frequent, and a table has a large share here only
        because the body is tiny (width 24). In a large vocabulary most rows are rarely read, which may favour one
        table; in a large model the share is small, which makes two cheap. Both arms multiply the embedding by the root
        of the width and draw tables alike, so that they differ in nothing else; untied models are often drawn
        differently. In source code a byte often is the one before it (spaces), so saying it again costs less than it
        would in words. A second table adds no arithmetic to a token, the wider body does.
    """,
)  # fmt: skip
