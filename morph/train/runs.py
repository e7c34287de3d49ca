"""A run is a folder.

    config.json     the model
    recipe.json     recipe and seed, corpus and its SHA-256, versions, device, date
    metrics.jsonl   one line a step, with validation where it was measured
    checkpoints/    step-000100/ {model.safetensors, optimizer.safetensors, state.json}, the last two
    latest          name of the checkpoint to continue from, written after it
    summary.json    final numbers, written last: a run with a summary is finished

Every file is replaced in one move, so a run killed at any moment can be resumed. Reading a run needs no
torch.
"""

import dataclasses
import datetime
import hashlib
import json
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import morph
from morph.config import ModelConfig, diff
from morph.errors import MorphError
from morph.train.data import Corpus, load_corpus
from morph.train.files import disk_error, new_folder, read_json, read_text, replace_bytes, replace_json, require_free
from morph.train.recipe import Recipe
from morph.train.records import COUNT, DIGEST, NUMBER, POSITIVE, SHARE, TABLE, TEXT, TEXT_OR_NONE, require_fields

FORMAT = 1
AGAIN = "restore it, or start again in a new --out"

_FACTS = {
    "stage": TEXT_OR_NONE, "size": TEXT_OR_NONE, "recipe": TABLE, "corpus": TABLE, "device": TEXT, "versions": TABLE,
    "date": TEXT,
}  # fmt: skip
_CORPUS = {"name": TEXT, "path": TEXT, "sha256": DIGEST, "train_bytes": COUNT, "validation_bytes": COUNT}
_SUMMARY = {
    "steps": POSITIVE, "validation_bits_per_byte": SHARE, "train_bits_per_byte": SHARE, "tokens": POSITIVE,
    "cpu_seconds": SHARE,
}  # fmt: skip
VERSIONS = {"morph": TEXT, "torch": TEXT, "python": TEXT}
_CHECKPOINT = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Summary:
    """What a finished run reports. The training loss is the mean over the last tenth of the steps."""

    steps: int
    validation_bits_per_byte: float
    train_bits_per_byte: float
    tokens: int
    cpu_seconds: float


def versions() -> dict[str, str]:
    """The versions that a run depends on."""
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = "absent"
    return {"morph": morph.__version__, "torch": torch_version, "python": platform.python_version()}


@dataclass(frozen=True)
class Run:
    """One training run on disk: `Run.create` starts one, `Run.load` opens one."""

    path: Path
    config: ModelConfig
    recipe: Recipe
    facts: dict[str, Any]

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: ModelConfig,
        recipe: Recipe,
        corpus: Corpus,
        device: str,
        stage: str | None = None,
        size: str | None = None,
    ) -> "Run":
        """Make the folder. Raises MorphError when it exists, cannot be written, or the text is too short."""
        path = Path(path)
        require_free(path, "--out", f"continue it with: morph train --out {path} --resume")
        check_fit(config, corpus)
        facts = {
            "format": FORMAT,
            "stage": stage,
            "size": size,
            "recipe": recipe.to_dict(),
            "corpus": corpus.describe(),
            "device": device,
            "versions": versions(),
            "date": datetime.date.today().isoformat(),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_folder(path) as folder:
                replace_json(folder / "config.json", config.to_dict())
                replace_json(folder / "recipe.json", facts)
                (folder / "checkpoints").mkdir()
        except OSError as error:
            raise disk_error(error, path, "or choose another --out") from None
        return cls(path, config, recipe, facts)

    @classmethod
    def load(cls, path: str | Path) -> "Run":
        """Open a run. Raises MorphError when `path` is not one."""
        path = Path(path)
        if not path.is_dir():
            raise MorphError(f"no run at {path}: give the folder that morph train wrote (--out)")
        file = path / "recipe.json"
        facts = require_fields(read_json(file), {}, str(file), AGAIN)
        if facts.get("format") != FORMAT:
            raise MorphError(
                f"{file} has run format {facts.get('format')!r}; this version reads {FORMAT}: train it again"
            )
        facts = require_fields({"size": None} | facts, _FACTS, str(file), AGAIN)
        require_fields(facts["corpus"], _CORPUS, f"{file}: corpus", AGAIN)
        require_fields(facts["versions"], VERSIONS, f"{file}: versions", AGAIN)
        try:
            recipe = Recipe.from_dict(facts["recipe"])
            file = path / "config.json"
            return cls(path, ModelConfig.from_dict(read_json(file)), recipe, facts)
        except RecursionError:
            raise MorphError(f"{file} is nested too deeply: {AGAIN}") from None
        except MorphError as error:
            raise MorphError(str(error) if str(file) in str(error) else f"{file}: {error}") from None

    def require_same(self, config: ModelConfig | None, recipe: dict[str, Any], size: str | None = None) -> None:
        """Raise MorphError if what is given again differs from what is recorded (None is not given)."""
        recorded = self.facts["size"]
        if size is not None and recorded is not None and size != recorded:
            raise MorphError(
                f"{self.path} was started with size {recorded}, not {size}: "
                f"leave the option out, or choose another --out"
            )
        if config is not None and (changes := diff(self.config, config)):
            raise MorphError(
                f"{self.path} was started with another config ({changes[0]}): "
                f"leave out --stage and --config, or choose another --out"
            )
        for name, value in recipe.items():
            if value is not None and value != getattr(self.recipe, name):
                raise MorphError(
                    f"{self.path} was started with {name} {getattr(self.recipe, name)}, not {value}: "
                    f"leave the option out, or choose another --out"
                )

    def corpus(self, path: str | Path | None = None) -> Corpus:
        """Read the run's text again (from `path` if given). Raises MorphError when it is not the same."""
        recorded = self.facts["corpus"]
        corpus = load_corpus(path if path is not None else recorded["path"] or None)
        if corpus.sha256 != recorded["sha256"]:
            raise MorphError(
                f"the text of {self.path} has changed: {corpus.name} now has SHA-256 {corpus.sha256[:12]}, "
                f"the run started with {recorded['sha256'][:12]} and "
                f"Python {self.facts['versions']['python']}; restore it or choose another --out"
            )
        return corpus

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    def metrics(self) -> list[dict[str, Any]]:
        """One dictionary a step, from step 1 on; a last line cut short by a kill is left out.

        Raises MorphError when a line before the last is damaged or missing.
        """
        if not self.metrics_path.exists():
            return []
        lines = read_text(self.metrics_path).split("\n")
        records = []
        for number, line in enumerate(lines[:-1], start=1):
            where = f"{self.metrics_path}, line {number}"
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                raise MorphError(f"{where} is damaged: {AGAIN}") from None
            record = require_fields(found, {"step": POSITIVE, "bits_per_byte": NUMBER}, where, AGAIN)
            if record["step"] != number:
                raise MorphError(f"{where} is of step {record['step']}, not {number}: {AGAIN}")
            records.append(record)
        return records

    def truncate_metrics(self, step: int) -> None:
        """Forget the steps after `step`: a resumed run takes them again. Raises MorphError when some before lack."""
        records = self.metrics()
        if len(records) < step:
            raise MorphError(
                f"{self.metrics_path} has {len(records)} of the {step} steps before the checkpoint: {AGAIN}"
            )
        replace_bytes(self.metrics_path, "".join(json.dumps(r) + "\n" for r in records[:step]).encode())

    @property
    def summary(self) -> Summary | None:
        """The final numbers, or None while the run is not finished. Raises MorphError when they are not the run's."""
        path = self.path / "summary.json"
        if not path.exists():
            return None
        values = require_fields(read_json(path), _SUMMARY, str(path), AGAIN)
        if values["steps"] != self.recipe.steps:
            raise MorphError(f"{path}: steps is {values['steps']}, but the run has {self.recipe.steps}: {AGAIN}")
        return Summary(**{name: values[name] for name in _SUMMARY})

    def write_summary(self, summary: Summary) -> None:
        replace_json(self.path / "summary.json", dataclasses.asdict(summary))

    def checkpoints(self) -> list[Path]:
        """Complete checkpoints, oldest first (a checkpoint gets its name when it is complete)."""
        found = [p for p in (self.path / "checkpoints").glob("step-*") if _CHECKPOINT.fullmatch(p.name) and p.is_dir()]
        return sorted(found, key=lambda p: int(p.name.removeprefix("step-")))

    def latest(self) -> Path | None:
        """The checkpoint to continue from: the one `latest` names, else the newest left, else None."""
        pointer, left = self.path / "latest", self.checkpoints()
        if pointer.exists():
            name = read_text(pointer).strip()
            if not _CHECKPOINT.fullmatch(name):
                raise MorphError(
                    f"{pointer} holds {name[:40]!r}, not a checkpoint's name: remove it to continue from the newest"
                )
            if (named := self.path / "checkpoints" / name) in left:
                return named
        return left[-1] if left else None


def check_fit(config: ModelConfig, corpus: Corpus) -> None:
    """Raise MorphError unless bytes fit the vocabulary and both splits hold a window."""
    if config.vocab_size < 256:
        raise MorphError(f"vocab_size is {config.vocab_size}, but bytes need 256: raise vocab_size to at least 256")
    corpus.require(config.context_length)


def config_digest(config: ModelConfig) -> str:
    """A short name for a config, kept in each checkpoint to tell strangers apart."""
    return hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()[:16]
