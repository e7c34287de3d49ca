"""From what a user asks for to a run on disk: every check comes before the first file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import morph
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.steps import slug_of
from morph.train.data import Corpus
from morph.train.device import pick_device
from morph.train.recipe import default_recipe
from morph.train.runs import Run


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to train: a stage or a config file, and how it differs from the size's recipe."""

    stage: str | None = None
    config_file: Path | None = None
    size: str = "tiny"
    data: str | None = None
    device: str | None = None
    out: Path | None = None
    resume: bool = False
    changes: dict[str, Any]  # of the Recipe; a value of None keeps the default

    def config(self) -> ModelConfig | None:
        """The config asked for, None when nothing names one."""
        if self.stage is not None and self.config_file is not None:
            raise MorphError("--stage and --config are both given: choose one")
        if self.config_file is not None:
            return read_config(self.config_file)
        return morph.stage(self.stage, size=self.size) if self.stage is not None else None

    def name(self) -> str:
        """What the run is called when `out` is not given."""
        what = slug_of(self.stage) if self.stage is not None else self.config_file.stem if self.config_file else None
        if what is None:
            raise MorphError(
                "nothing to train: give --stage 0 to 14 (or a slug; morph steps lists them), or --config FILE"
            )
        return f"{what}-{self.size}-seed{self.changes.get('seed') or 0}"


def read_config(path: Path) -> ModelConfig:
    """A config from a TOML or JSON file. Raises MorphError when it cannot be read or is not one."""
    import json

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MorphError(f"cannot read the config {path} ({error}): give a TOML or JSON file") from None
    if path.suffix != ".json":
        return ModelConfig.from_toml(text)
    try:
        values = json.loads(text)
    except ValueError as error:
        raise MorphError(f"the config {path} is not valid JSON ({error}): mend that line") from None
    return ModelConfig.from_dict(values)


def start(request: Request) -> tuple[Run, Corpus]:
    """Create the run, or with `resume` open it and check that nothing differs. Raises MorphError."""
    from morph.train.data import load_corpus

    out = request.out or Path("runs") / request.name()
    config = request.config()
    if request.device is not None:
        pick_device(request.device)
    if request.resume:
        run = Run.load(out)
        run.require_same(config, request.changes)
        return run, run.corpus(request.data)
    if config is None:
        request.name()  # says what is missing
        raise AssertionError
    recipe = default_recipe(request.size).with_(**request.changes)
    device = str(pick_device(request.device or "auto"))
    corpus = load_corpus(request.data)
    stage = slug_of(request.stage) if request.stage is not None else None
    return Run.create(out, config, recipe, corpus, device, stage), corpus
