"""19. How large should a vocabulary be?

Llama 2 had 32,000 pieces, Llama 3 has 128,256, Gemma 3 262,208. More pieces make tokens longer, and so the text shorter
for everything inside the model. At its end they cost: every token of a training batch has a logit for each piece, and
the table a row. Byte-level BPE of five sizes is learned from Python's library, from another quarter with each seed, and
tried on texts of several kinds that it was not learned from. No model is trained. The lengths that claims name (2.5
bytes, and a quarter more) were set after a pilot with other seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from morph.config import ModelConfig
from morph.lab import pieces
from morph.lab.plot import curves
from morph.lab.spec import Arm, Claim, Experiment, Measure, Quick
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.steps import stage
from morph.train.recipe import Recipe

if TYPE_CHECKING:
    from morph.lab.result import Result

SIZES = (256, 512, 1024, 4096, 16384)
TOKENS, BYTES, MIB = 4096, 4, 2**20  # of the window whose logits are counted; of a number in fp32
OTHERS = [name for name in pieces.SENTENCES if name != "English"]
OTHER_SCRIPTS = [name for name in OTHERS if name != "German"]
BPE = "byte-level BPE"


def reader(vocabulary: int) -> ModelConfig:
    """The least model with that many pieces; nothing is asked of it but its vocabulary."""
    return replace(stage("qk-norm", "nano"), n_layers=1, vocab_size=vocabulary)


def counted(trial: Trial) -> ModelConfig:
    """The model whose weights are counted, and never built: stage 8 of GPT-2's shape with the trial's vocabulary."""
    return replace(stage("qk-norm", "small"), vocab_size=trial.config.vocab_size, context_length=TOKENS)


def read_as_text(trial: Trial) -> Text:
    """The task, which gives the texts."""
    assert isinstance(trial.task, Text)
    return trial.task


def tokenizer(trial: Trial) -> Any:
    """Of the trial's size, learned from its seed's quarter of the text."""
    return pieces.learned(read_as_text(trial), trial.config.vocab_size, trial.seed)


def length_on(text: Callable[[Text], str]) -> Callable[[Trial], float]:
    """Bytes per token of a text."""
    return lambda trial: pieces.bytes_per_token(tokenizer(trial), text(read_as_text(trial)))


def over_english(names: Sequence[str]) -> Callable[[Trial], list[float]]:
    """Tokens of the four sentences in each language over those in English."""

    def read(trial: Trial) -> list[float]:
        known = tokenizer(trial)
        english = pieces.tokens_of(known, pieces.SENTENCES["English"])
        return [pieces.tokens_of(known, pieces.SENTENCES[name]) / english for name in names]

    return read


def logits(trial: Trial) -> float:
    """MiB of the logits of one window of 4,096 tokens."""
    return TOKENS * trial.config.vocab_size * BYTES / MIB


def weights(trial: Trial) -> float:
    """MiB of all weights of the counted model."""
    return count(counted(trial)).total * BYTES / MIB


def logits_of_a_byte(trial: Trial) -> float:
    """Bytes of logits for each byte of held-out Python, which a longer token spreads over more text."""
    return trial.config.vocab_size * BYTES / length_on(pieces.held_out_text)(trial)


KINDS: dict[str, Callable[[Trial], float]] = {
    "Python": length_on(pieces.held_out_text),
    "docstrings": length_on(pieces.docstrings),
    "digits": length_on(lambda task: pieces.digits()),
    "other scripts": length_on(lambda task: "\n".join(pieces.SENTENCES[name] for name in OTHER_SCRIPTS)),
}


def draw(result: Result, figure: Any) -> None:
    """Lengths of tokens by kind of text; the same sentences by language; what logits and weights take."""
    top, middle, bottom = figure.subplots(3, 1)
    sizes = [int(point["vocabulary"]) for point in result.points]
    every = {name: [list(result.readings(BPE, p, name).values()) for p in result.points] for name in result.measures}

    def over(names: dict[str, str]) -> dict[str, tuple[list[int], list[Any]]]:
        return {shown: (sizes, every[name]) for name, shown in names.items()}

    curves(
        top, over({f"bytes per token, {kind}": kind for kind in KINDS}), x="pieces in the vocabulary",
        y="bytes per token",
    )  # fmt: skip
    by_language = [[*zip(*seeds, strict=True)] for seeds in every["tokens over English"]]
    curves(
        middle, {name: (sizes, [found[i] for found in by_language]) for i, name in enumerate(OTHERS)},
        x="pieces in the vocabulary", y="tokens over English,\nthe same sentences",
    )  # fmt: skip
    curves(
        bottom,
        over({"logits of 4,096 tokens": "logits of\n4,096 tokens", "all weights": "all weights\n(GPT-2's shape)"}),
        x="pieces in the vocabulary", y="MiB, fp32", is_log_y=True,
    )  # fmt: skip


EXPERIMENT = Experiment(
    number=19,
    name="vocabulary",
    title="Size of the vocabulary",
    question="How much text does a token hold, for which texts, and what do its logits cost as the vocabulary grows?",
    arms=(Arm(BPE, lambda point: reader(int(point["vocabulary"])), is_trained=False),),
    vary={"vocabulary": SIZES},
    seeds=(0, 1, 2, 3, 4),
    task=Text(),
    recipe=Recipe(batch_size=1),
    measures=(
        *(Measure(f"bytes per token, {kind}", read, at="init") for kind, read in KINDS.items()),
        Measure("tokens over English", over_english(OTHERS), ", ".join(OTHERS), at="init"),
        Measure(
            "tokens over English, other scripts", lambda trial: statistics.fmean(over_english(OTHER_SCRIPTS)(trial)),
            at="init",
        ),
        Measure("logits of 4,096 tokens", logits, "MiB in fp32; bf16 takes half", at="init", is_log=True),
        Measure("all weights", weights, "MiB in fp32, GPT-2's shape", at="init", is_log=True),
        Measure("logits of a byte of Python", logits_of_a_byte, "bytes in fp32", at="init", is_log=True),
    ),
    shown=3,
    claims=(
        Claim(
            "4,096 pieces make one token of two and a half bytes of Python",
            "bytes per token, Python", of=BPE, more_than=2.5, at={"vocabulary": 4096},
        ),
        Claim(
            "Four times as many lengthen it by less than a quarter",
            "bytes per token, Python",
            of=BPE, less_than=1.25, ratio=True, at={"vocabulary": 16384}, against_at={"vocabulary": 4096},
        ),
        Claim(
            "So 16 times the pieces mean more than 8 times the logits for a byte of text",
            "logits of a byte of Python",
            of=BPE, more_than=8, ratio=True, at={"vocabulary": 16384}, against_at={"vocabulary": 1024},
        ),
        Claim(
            "Digits at random gain little", "bytes per token, digits",
            of=BPE, less_than=2, at={"vocabulary": 16384},
        ),
        Claim(
            "A script that the training text lacks stays near bytes", "bytes per token, other scripts",
            of=BPE, less_than=1.3, at={"vocabulary": 16384},
        ),
        Claim(
            "There the same sentences take three times the tokens of English, and more",
            "tokens over English, other scripts", of=BPE, more_than=3, at={"vocabulary": 4096},
        ),
    ),
    minutes=2,
    not_shown="""
        Which size makes the best model: no model is trained, and the loss per byte at equal FLOPs is not measured
        (larger models are said to deserve larger vocabularies). Two megabytes of Python are no web text: tokenizers of
        released models have learned from many languages, and far more evenly than this one, which has hardly met a
        letter outside ASCII. Four sentences a language are an illustration, no corpus; the spread over seeds is that of
        the training text alone. Logits need not be kept whole: a loss computed in slices, as Morph's own, never holds
        them all.
    """,
    quick=Quick(steps=1, vary={"vocabulary": (1024, 4096, 16384)}),
    draw=draw,
)  # fmt: skip
