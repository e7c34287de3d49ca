"""What cells learn: the text of Python's library, or sequences made to need one ability and nothing else.

Batches depend on (seed, step, index) alone, as everywhere in Morph: arms with one seed see the same sequences.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from morph.config import ModelConfig
from morph.errors import MorphError
from morph.train.data import Corpus, load_corpus, training_offsets, validation_offsets, windows
from morph.train.recipe import Recipe

if TYPE_CHECKING:
    from morph.model import Decoder

Arrays = tuple[np.ndarray, np.ndarray]
IGNORED = -100  # a target that is not counted
_HELD_OUT = 2**31  # stands where a seed would: sequences that no training step sees, the same for every seed


class Task(Protocol):
    """What a model is trained on and judged by."""

    def describe(self) -> dict[str, Any]:
        """All that its batches follow from, as plain values."""

    def check(self, config: ModelConfig) -> None:
        """Raise MorphError for a model that cannot learn it."""

    def prepare(self, model: Decoder, seed: int) -> None:
        """What every model gets before it learns, whatever its arm."""

    def batch(self, config: ModelConfig, recipe: Recipe, step: int, index: int) -> Arrays:
        """Inputs and targets (B, S) of one micro-batch; -100 is not counted."""

    def held_out(self, config: ModelConfig, count: int) -> Arrays:
        """`count` inputs and targets that training never sees, the same for all."""

    def evaluate(self, model: Decoder, recipe: Recipe) -> dict[str, float]:
        """How good it is, by name."""

    def is_solved(self, found: dict[str, float]) -> bool:
        """Whether more training would show nothing."""


@cache
def corpus(path: str | None = None) -> Corpus:
    """The text, read once a process."""
    return load_corpus(path)


@dataclass(frozen=True)
class Text:
    """The next byte of the default corpus, in windows of the model's context length.

    Attributes:
        most_bytes: how much of the training text there is; a short one is read many times (epochs).
        path: another text, as `morph train --data` takes it.
    """

    most_bytes: int | None = None
    path: str | None = None

    def corpus(self) -> Corpus:
        """The text that is trained on and held out."""
        whole = corpus(self.path)
        return whole if self.most_bytes is None else replace(whole, train=whole.train[: self.most_bytes])

    def describe(self) -> dict[str, Any]:
        return {"kind": "text", "most_bytes": self.most_bytes, "sha256": corpus(self.path).sha256}

    def check(self, config: ModelConfig) -> None:
        if config.vocab_size < 256:
            raise MorphError(f"vocab_size is {config.vocab_size}, but bytes need 256: raise it to at least 256")
        self.corpus().require(config.context_length)

    def prepare(self, model: Decoder, seed: int) -> None:
        """Nothing: text is learned by the stages as they are."""

    def batch(self, config: ModelConfig, recipe: Recipe, step: int, index: int) -> Arrays:
        tokens, length = self.corpus().train, config.context_length
        offsets = training_offsets(tokens.size, length, recipe.batch_size, recipe.seed, step, index)
        return windows(tokens, offsets, length)

    def held_out(self, config: ModelConfig, count: int, length: int | None = None) -> Arrays:
        tokens, length = self.corpus().validation, length or config.context_length
        return windows(tokens, validation_offsets(tokens.size, length, count), length)

    def evaluate(self, model: Decoder, recipe: Recipe) -> dict[str, float]:
        """Bits per byte of held-out text."""
        from morph.train.loop import evaluate

        place = model.embedding.weight.device
        return {"bits per byte": evaluate(model, self.corpus(), recipe, model.config.context_length, place)}

    def is_solved(self, found: dict[str, float]) -> bool:
        return False


@dataclass(frozen=True)
class _Made:
    """Sequences drawn from a seed; a subclass says how in `_draw`.

    Attributes:
        has_stem: whether every model gets `Stem`, so that seeing the neighbour is not what is tested.
        solved_at: accuracy at which training ends.
    """

    has_stem: bool = True
    solved_at: float = 0.995

    @property
    def vocabulary(self) -> int:
        raise NotImplementedError

    @property
    def length(self) -> int:
        """S."""
        raise NotImplementedError

    def _draw(self, raw: np.random.Philox, count: int) -> Arrays:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        return {"kind": type(self).__name__.lower(), **asdict(self)}

    def check(self, config: ModelConfig) -> None:
        if config.vocab_size < self.vocabulary:
            raise MorphError(
                f"vocab_size is {config.vocab_size}, but this {type(self).__name__.lower()} task has "
                f"{self.vocabulary} tokens: raise it to at least that"
            )

    def prepare(self, model: Decoder, seed: int) -> None:
        if self.has_stem:
            from morph.lab.made import add_stem

            add_stem(model, seed)

    def batch(self, config: ModelConfig, recipe: Recipe, step: int, index: int) -> Arrays:
        return self._draw(_stream(recipe.seed, step, index), recipe.batch_size)

    def held_out(self, config: ModelConfig, count: int) -> Arrays:
        return self._draw(_stream(_HELD_OUT, 0, 0), count)

    def evaluate(self, model: Decoder, recipe: Recipe) -> dict[str, float]:
        """Accuracy over the counted targets of `recipe.evaluation_windows` sequences, and their loss in nats."""
        from morph.lab.made import answers

        right, loss = answers(model, self.held_out(model.config, recipe.evaluation_windows))
        return {"accuracy": right, "loss": loss}

    def is_solved(self, found: dict[str, float]) -> bool:
        return found["accuracy"] >= self.solved_at


@dataclass(frozen=True)
class Recall(_Made):
    """Multi-query associative recall (Arora et al., 2023): n pairs of key and value, then every key once, in any order.

        k₃ v₉ k₁ v₄ … k₇ v₂ | k₁ k₇ … k₃    at each key after the bar, its value is asked for

    Keys differ within a sequence; values are drawn freely, so that 1 / `values` is chance. Each key is asked for once:
    with repeated questions a nearer answer could be read instead of the pair.
    """

    pairs: int = 8
    keys: int = 32
    values: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.pairs <= self.keys:
            raise MorphError(f"pairs is {self.pairs}, but keys must differ: give 1 to keys = {self.keys}")
        if self.values < 2:
            raise MorphError(f"values is {self.values}: give at least 2, or there is nothing to recall")

    @property
    def vocabulary(self) -> int:
        return self.keys + self.values

    @property
    def length(self) -> int:
        return 3 * self.pairs

    def _draw(self, raw: np.random.Philox, count: int) -> Arrays:
        keys = _shuffled(raw, count, self.keys)[:, : self.pairs]
        values = self.keys + (_raw(raw, count, self.pairs) % np.uint64(self.values)).astype(np.int64)
        order = _shuffled(raw, count, self.pairs)
        told = np.stack((keys, values), axis=-1).reshape(count, 2 * self.pairs)
        ids = np.concatenate((told, np.take_along_axis(keys, order, axis=1)), axis=1)
        targets = np.full_like(ids, IGNORED)
        targets[:, 2 * self.pairs :] = np.take_along_axis(values, order, axis=1)
        return ids, targets


@dataclass(frozen=True)
class Induction(_Made):
    """A shuffled run of different tokens, read over and over: from the second reading on, what follows can be foreseen.

        k₃ k₇ k₁ k₄ k₃ k₇ k₁ …    a run of 4; at its second k₃ and from there on, the next token is asked for

    What foresees it is a head that finds the last time the present token was read and looks at what came next (Olsson
    et al., 2022). How long the run is differs from sequence to sequence: where it did not, it would be enough to look
    back so far, whatever stands there.

    Attributes:
        shortest, longest: how many tokens a run may have, both included.
        tokens: how many there are to choose from.
        read: S, tokens read in all.
    """

    shortest: int = 8
    longest: int = 12
    tokens: int = 64
    read: int = 24
    has_stem: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.shortest <= self.longest <= self.tokens:
            raise MorphError(
                f"runs have {self.shortest} to {self.longest} tokens, but these must differ: "
                f"give at least 2 and at most tokens = {self.tokens}"
            )
        if self.read <= self.longest:
            raise MorphError(f"read is {self.read}: give more than longest = {self.longest}, or nothing is asked")

    @property
    def vocabulary(self) -> int:
        return self.tokens

    @property
    def length(self) -> int:
        return self.read

    def _draw(self, raw: np.random.Philox, count: int) -> Arrays:
        once = _shuffled(raw, count, self.tokens)[:, : self.longest]
        lengths = self.shortest + (_raw(raw, count, 1) % np.uint64(self.longest - self.shortest + 1)).astype(np.int64)
        place = np.arange(self.read + 1)[None]
        text = np.take_along_axis(once, place % lengths, axis=1)
        return text[:, :-1], np.where(place[:, :-1] < lengths, IGNORED, text[:, 1:])


def _stream(seed: int, step: int, index: int) -> np.random.Philox:
    """Raw bits that are the same in every version of NumPy."""
    return np.random.Philox(np.random.SeedSequence([seed, step, index, 1]))


def _raw(stream: np.random.Philox, rows: int, columns: int) -> np.ndarray:
    return stream.random_raw(rows * columns).reshape(rows, columns)


def _shuffled(stream: np.random.Philox, rows: int, n: int) -> np.ndarray:
    """`rows` orders of 0 .. n-1, (rows, n) int64."""
    return _raw(stream, rows, n).argsort(axis=1, kind="stable").astype(np.int64)
