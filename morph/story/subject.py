"""The model that a figure shows: a recorded one, a reader's own run, a released checkpoint, or a stage from its seed.

Recorded models are part of the package: weights in bf16 with their config, recipe, seed, versions and metrics in the
file's header. `python tools/record.py` trains them again.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import morph
from morph.config import Attention, ModelConfig
from morph.errors import MorphError, nearest
from morph.folder import Folder, is_folder
from morph.forks import FORKS, JOIN, config_of, name_of
from morph.model import Decoder
from morph.nn.attention import SoftmaxMixer
from morph.steps import SLUGS, number_of, stage
from morph.story.text import PASSAGE, repeated
from morph.vocabulary import Bytes, Numbers, Vocabulary

RECORDED = (
    "deep", "relu", "windows", "sink", "experts", "experts-auxiliary", "experts-unbalanced", "hybrid", "sparse",
)  # fmt: skip
"""Names of the recorded models; each is there for the seeds 0 and 1."""
MOST_LETTERS = 24
"""Of a folder's name in a figure."""
RANDOM = 4096
"""Ids drawn in the place of the passage where a model has no tokenizer."""


@dataclass(frozen=True)
class Subject:
    """A model to look at.

    Attributes:
        model: in evaluation mode, fp32, on the CPU.
        name: what it is, in words: stage, size, training, seed.
        is_trained: whether it was trained at all.
        seed: of its initial weights and its training.
        metrics: one record a step of its training, as in a run's `metrics.jsonl`; empty when untrained.
        provenance: JSON values for `Figure.provenance`.
        vocabulary: what its ids stand for.
        is_released: whether it comes from elsewhere, so that nobody here knows its initial weights.
    """

    model: Decoder
    name: str
    is_trained: bool
    seed: int
    metrics: tuple[dict[str, Any], ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    vocabulary: Vocabulary = field(default_factory=Bytes)
    is_released: bool = False

    @property
    def config(self) -> ModelConfig:
        """The model's config."""
        return self.model.config

    @property
    def has_sink(self) -> bool:
        """Whether its softmax layers have a learned sink."""
        attention = self.config.attention
        return isinstance(attention, Attention) and attention.sink is not None

    @property
    def softmax(self) -> dict[int, SoftmaxMixer]:
        """The layers that mix by softmax attention: number -> organ."""
        mixers = enumerate(block.attention for block in self.model.blocks)
        return {layer: mixer for layer, mixer in mixers if isinstance(mixer, SoftmaxMixer)}

    def ids(self, length: int, batch: int = 1) -> Tensor:
        """Tokens of the figures' passage, (B, S); the seed moves where they start.

        What stands before every text of the model stands before each row.
        """
        start = [*self.vocabulary.start][:length]
        offsets = (137 * self.seed + 211 * row for row in range(batch))
        return torch.tensor([[*start, *repeated(self._passage, length - len(start), at)] for at in offsets])

    @cached_property
    def _passage(self) -> list[int]:
        size = self.config.vocab_size
        if isinstance(self.vocabulary, Numbers):
            return torch.randint(size, (RANDOM,), generator=torch.Generator().manual_seed(self.seed)).tolist()
        return [min(token, size - 1) for token in self.vocabulary.read(PASSAGE)]

    @property
    def material(self) -> str:
        """What the figures let it read is made of, in words."""
        return "random ids" if isinstance(self.vocabulary, Numbers) else "Python source"

    @property
    def reads(self) -> str:
        """The same in a sentence: it reads ..."""
        return "ids drawn at random" if isinstance(self.vocabulary, Numbers) else "a passage of Python"

    def shown(self, token: int) -> str:
        """How one of its tokens is written in a figure."""
        return self.vocabulary.shown(token)


def subject(source: Decoder | ModelConfig | str | int | Path, *, seed: int = 0, size: str = "tiny") -> Subject:
    """The model that `source` names.

    Args:
        source: a `Decoder` (copied as it is now) or `ModelConfig`; the folder of a run or of a released checkpoint; a
            stage (0 to 14 or slug) or a fork's slug, or several joined by +, built at `size` with fresh weights; or a
            name in `RECORDED`.
        seed: of fresh weights, or which recording.
        size: of a stage or fork.

    Raises:
        MorphError: when it is none of these, and for a seed that a run could not have.
    """
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise MorphError(f"seed is {seed!r}: give a whole number from 0 to {2**32 - 1}")
    if isinstance(source, Decoder):
        model = copy.deepcopy(source).float().cpu().eval()  # the reader's own stays as it is
        return Subject(model, "your model", True, seed, provenance={"model": "given", "seed": seed})
    if isinstance(source, ModelConfig):
        return _fresh(source, "your config", seed)
    if isinstance(source, Path) or is_folder(source):
        folder = Folder.at(source)
        return _from_run(folder) if folder.kind == "run" else _released(folder, seed)
    word = str(source)
    if word in RECORDED:
        return recorded(word, seed)
    if word in FORKS or (isinstance(source, str) and JOIN in word):
        name = name_of(word)
        return _fresh(config_of(name, size), f"{'fork ' if name in FORKS else ''}{name}, {size}", seed)
    try:
        number = number_of(source)
    except MorphError:
        known = (*SLUGS, *FORKS, *RECORDED)
        raise MorphError(
            f"{word[:60]!r} is no folder of a run or checkpoint, no stage and no fork: give a run (morph train --out), "
            f"a checkpoint, a stage 0 to {len(SLUGS) - 1}, or a slug{nearest(word, known)}"
        ) from None
    return _fresh(stage(number, size=size), f"stage {number} ({SLUGS[number]}), {size}", seed)


def recorded(name: str, seed: int = 0) -> Subject:
    """A model of `RECORDED`, trained from `seed`. Raises MorphError for another name or seed."""
    path = files("morph.story") / "recorded" / f"{name}-{seed}.safetensors"
    if name not in RECORDED or not path.is_file():
        raise MorphError(f"no model was recorded as {name!r} with seed {seed}: there is {', '.join(RECORDED)}, 0 or 1")
    return read_recording(Path(str(path)))


def read_recording(path: Path) -> Subject:
    """The model in a file that `tools/record.py` wrote. Raises MorphError when it is none."""
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError:
        raise MorphError("recorded models need safetensors: pip install -e '.[notebook]' in Morph's folder") from None
    from morph.train.checkpoint import fill

    try:
        with safe_open(str(path), framework="pt") as file:
            header = {name: json.loads(text) for name, text in (file.metadata() or {}).items()}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        config, facts, metrics = (header[name] for name in ("config", "facts", "metrics"))
        name, seed = facts["name"], facts["seed"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise MorphError(f"{path} is no recorded model ({error}); make it again: python tools/record.py") from None
    model = morph.build(ModelConfig.from_dict(config), seed=seed)
    fill(model, weights, path, "make it again: python tools/record.py")
    return Subject(model.eval(), name, True, seed, tuple(metrics), facts)


def siblings(source: Subject, configs: Iterable[ModelConfig]) -> list[Subject]:
    """Fresh models of other configs from the subject's seed: organs of one name start with the same numbers."""
    made = (_fresh(config, "built beside it", source.seed) for config in configs)
    known = source.config.vocab_size
    return [replace(s, vocabulary=source.vocabulary) if s.config.vocab_size == known else s for s in made]


def _fresh(config: ModelConfig, name: str, seed: int) -> Subject:
    facts = {"model": name, "config": config.to_dict(), "seed": seed, "training": "none, weights as initialized"}
    model = morph.build(config, seed=seed).eval()
    return Subject(model, f"{name}, untrained, seed {seed}", False, seed, provenance=facts)


def _from_run(folder: Folder) -> Subject:
    run = folder.run
    model, records = folder.model(), tuple(run.metrics())
    what, name = folder.described, _shortened(folder.name)
    told = os.fsencode(json.dumps(run.facts, ensure_ascii=False)).decode(errors="replace")  # paths need not be UTF-8
    facts = {
        "model": f"run {name}: {what}", "config": run.config.to_dict(), "seed": run.seed,
        "training": json.loads(told), "steps": len(records),
    }  # fmt: skip
    return Subject(model, f"your run {name} ({what}), {len(records)} steps", True, run.seed, records, facts)


def _released(folder: Folder, seed: int) -> Subject:
    vocabulary, model = folder.vocabulary, folder.model(torch.float32)
    what, name = folder.described, _shortened(folder.name)
    is_bare = isinstance(vocabulary, Numbers)
    facts = {
        "model": f"checkpoint {name}: {what}", "config": model.config.to_dict(), "seed": seed,
        "training": "not known here", "text": "random ids" if is_bare else "its tokenizer",
        "left_out": list(folder.left_out),
    }  # fmt: skip
    told = f"checkpoint {name} ({what}){', random ids' if is_bare else ''}"
    return Subject(model, told, True, seed, (), facts, vocabulary, is_released=True)


def _shortened(name: str) -> str:
    """A folder's name as figures write it, short enough for a corner."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"
