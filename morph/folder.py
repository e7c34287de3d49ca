"""A folder with a model in it: a run of ours, or a released checkpoint in Hugging Face's layout.

Every command that takes a folder recognises it here. What a folder is can be read off its files:

* a run has `config.json` and `recipe.json`, as `morph train` wrote them;
* a checkpoint has a `config.json` that names its `model_type` or `architectures`; `morph.hf` reads the rest.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeGuard

import torch

import morph
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.forks import config_of
from morph.measure.memory import available_memory
from morph.model import Decoder
from morph.telling import title
from morph.train.files import reason, special_kind
from morph.train.runs import Run
from morph.vocabulary import Bytes, Vocabulary, vocabulary_of

OTHER_PARTS = (
    "mtp.*", "model.mtp.*", "visual.*", "model.visual.*", "vision_*", "model.vision_*", "audio_*", "model.audio_*",
    "multi_modal_projector.*", "model.multi_modal_projector.*", "vit_*",
)  # fmt: skip
"""Names of weights that stand beside a language model: towers for images and sound, predictors of further tokens."""
GIVE = "give a run (the --out of morph train) or the folder of a Hugging Face checkpoint"


@dataclass(frozen=True)
class Folder:
    """A folder that holds a model; its parts are read when they are asked for.

    Attributes:
        path: where it is.
        kind: whose layout it has.
    """

    path: Path
    kind: Literal["run", "checkpoint"]

    @classmethod
    def at(cls, path: str | Path) -> Folder:
        """Recognise a folder. Raises MorphError, with what was found, when it holds no model."""
        path = Path(path)
        _require_folder(path)
        if (path / "recipe.json").exists():
            return cls(path, "run")
        config = _config(path)
        if not ("model_type" in config or "architectures" in config):
            raise MorphError(
                f"{path / 'config.json'} names no model_type, and without a recipe.json the folder is no run: {GIVE}"
            )
        return cls(path, "checkpoint")

    @cached_property
    def run(self) -> Run:
        """The run in it."""
        return Run.load(self.path)

    @cached_property
    def config(self) -> ModelConfig:
        """The model's config."""
        if self.kind == "run":
            return self.run.config
        from morph import hf

        config: ModelConfig = hf.read_config(self.path)
        return config

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What its ids stand for."""
        return Bytes() if self.kind == "run" else vocabulary_of(self.path, self.config.vocab_size)

    def model(self, dtype: torch.dtype | None = None) -> Decoder:
        """The model with its weights, in evaluation mode on the CPU.

        Args:
            dtype: None for that of the files.
        """
        if self.kind == "run":
            from morph.train import load_model

            model = load_model(self.run)
            return model if dtype is None else model.to(dtype)
        from morph import hf

        self._require_memory(dtype)
        loaded: Decoder = hf.load(self.path, dtype=dtype, skip=self.left_out)
        return loaded

    def _require_memory(self, dtype: torch.dtype | None) -> None:
        """Raise MorphError when the weights alone are more than the memory that is free."""
        free = available_memory(torch.device("cpu"))
        stored = sum(file.stat().st_size for file in self.path.glob("*.safetensors"))
        needed = stored if dtype is None else morph.count(self.config).total * dtype.itemsize
        if free is not None and needed > free:
            how = "" if dtype is None else f" as {str(dtype).removeprefix('torch.')}"
            raise MorphError(
                f"{self.path} takes {needed / 1e9:,.1f} GB of memory{how}, and {free / 1e9:,.1f} GB are free: "
                "choose a smaller model, or a machine with more"
            )

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """Patterns of the weights in it that no logit of a text depends on, of parts that Morph does not have."""
        if self.kind == "run":
            return ()
        from morph.hf.files import opened

        with opened(self.path) as held:
            names = held.shard_of()
        parts = (*OTHER_PARTS, f"model.layers.{self.config.n_layers}.*")  # DeepSeek numbers its predictor as a layer
        return tuple(part for part in parts if any(fnmatchcase(name, part) for name in names))

    @property
    def name(self) -> str:
        """What the folder is called, in signs that can be written on a line."""
        return "".join(sign if sign.isprintable() else "?" for sign in self.path.resolve().name)

    @property
    def described(self) -> str:
        """What it is, in a few words: the stage of a run, or the family of a checkpoint."""
        if self.kind == "run":
            return str(self.run.facts["stage"] or "a config of its own")
        config = _config(self.path)
        named = config.get("model_type") or config.get("architectures")
        return str(named[0] if isinstance(named, list) and named else named)


def config_named(word: str, size: str) -> tuple[str, ModelConfig]:
    """What a word of the command line names, a folder or a stage, fork or composition at a size: heading and config.

    Raises:
        MorphError: when it names none of these.
    """
    if is_folder(word):
        folder = Folder.at(word)
        return folder.name, folder.config
    return title(word), config_of(word, size)


def is_folder(word: object) -> TypeGuard[str]:
    """Whether a word of the command line names a folder, rather than a stage or a fork."""
    return isinstance(word, str) and os.path.isdir(word)


def _require_folder(path: Path) -> None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MorphError(f"no run at {path}, and no checkpoint: {GIVE}") from None
    except (OSError, ValueError) as error:
        raise MorphError(f"cannot read {path} ({reason(error)}): {GIVE}") from None
    if not path.is_dir():
        raise MorphError(f"{path} is a {special_kind(found.st_mode) or 'file'}, not a folder: {GIVE}")


def _config(path: Path) -> dict[str, Any]:
    """The table in `config.json`; a folder without one is told apart from others that people give."""
    file = path / "config.json"
    if not file.is_file():
        inside = next((p for p in sorted(path.glob("snapshots/*")) if (p / "config.json").is_file()), None)
        if inside is not None:  # the cache of Hugging Face's hub
            raise MorphError(f"{path} holds downloads of a model: give one of them, such as {inside}")
        raise MorphError(f"{path} is not a complete run and no checkpoint: it has no config.json; {GIVE}")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MorphError(f"{file} cannot be read ({reason(error)}): restore it; {GIVE}") from None
    if not isinstance(found, dict):
        raise MorphError(f"{file} holds no table: restore it; {GIVE}")
    return found
