"""From what a user asks for to a run on disk: every check comes before the first file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morph.config import ModelConfig
from morph.errors import MorphError
from morph.forks import config_of, name_of
from morph.train.data import Corpus, load_corpus
from morph.train.device import pick_device, world
from morph.train.files import reason, require_free, special_kind
from morph.train.memory import require_memory
from morph.train.recipe import default_recipe
from morph.train.runs import Run, check_fit

DEFAULT_SIZE = "tiny"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to train: a stage, a fork or a config file, and how it differs from the size's recipe.

    `size` None is the size of the run that is resumed, else tiny.
    """

    stage: str | None = None
    config_file: Path | None = None
    size: str | None = None
    data: str | None = None
    device: str | None = None
    out: Path | None = None
    resume: bool = False
    changes: dict[str, Any]  # of the Recipe; a value of None keeps the default

    def config(self, size: str = DEFAULT_SIZE) -> ModelConfig | None:
        """The config asked for, of that size when the request names none; None when it names no config."""
        if self.stage is not None and self.config_file is not None:
            raise MorphError("--stage and --config are both given: choose one")
        if self.config_file is not None:
            return read_config(self.config_file)
        return config_of(self.stage, self.size or size) if self.stage is not None else None

    def name(self) -> str:
        """What the run is called when `out` is not given."""
        what = name_of(self.stage) if self.stage is not None else self.config_file.stem if self.config_file else None
        if what is None:
            raise MorphError(
                "nothing to train: give --stage 0 to 14 (or a slug: morph steps, morph forks), or --config FILE"
            )
        return f"{what}-{self.size or DEFAULT_SIZE}-seed{self.changes.get('seed') or 0}"


def read_config(path: Path) -> ModelConfig:
    """A config from a TOML or JSON file. Raises MorphError when it cannot be read or is not one."""
    try:
        if kind := special_kind(path.stat().st_mode):
            raise MorphError(f"the config {path} is a {kind}: give a TOML or JSON file")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MorphError(f"cannot read the config {path} ({reason(error)}): give a TOML or JSON file") from None
    try:
        return ModelConfig.from_dict(json.loads(text)) if path.suffix == ".json" else ModelConfig.from_toml(text)
    except MorphError:
        raise
    except (ValueError, RecursionError) as error:
        raise MorphError(f"the config {path} is not valid JSON or TOML ({reason(error)}): mend that line") from None


def start(request: Request) -> tuple[Run, Corpus]:
    """Create the run, or with `resume` open it and check that nothing differs. Raises MorphError."""
    world()
    out = request.out or Path("runs") / request.name()
    if request.device is not None:
        pick_device(request.device)
    if request.resume:
        run = Run.load(out)
        run.require_same(request.config(run.facts["size"] or DEFAULT_SIZE), request.changes, request.size)
        require_memory(run.config, run.recipe, pick_device(request.device or run.facts["device"]))
        return run, run.corpus(request.data)
    config = request.config()
    if config is None:
        request.name()  # says what is missing
        raise AssertionError
    size = request.size or DEFAULT_SIZE
    recipe = default_recipe(size).with_(**request.changes)
    device = pick_device(request.device or "auto")
    require_free(out, "--out", f"continue it with: morph train --out {out} --resume")
    corpus = load_corpus(request.data)
    check_fit(config, corpus)
    require_memory(config, recipe, device)
    stage = name_of(request.stage) if request.stage is not None else None
    return Run.create(out, config, recipe, corpus, str(device), stage, size), corpus
