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
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import morph
from morph.config import ModelConfig, diff
from morph.errors import MorphError
from morph.train.data import Corpus, load_corpus
from morph.train.files import disk_error, new_folder, read_json, replace_bytes, replace_json, require_free
from morph.train.recipe import Recipe

FORMAT = 1


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
    ) -> "Run":
        """Make the folder. Raises MorphError when it exists, cannot be written, or the text is too short."""
        path = Path(path)
        require_free(path, "--out", f"continue it with: morph train --out {path} --resume")
        check_fit(config, corpus)
        facts = {
            "format": FORMAT,
            "stage": stage,
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
        facts = read_json(path / "recipe.json")
        if facts.get("format") != FORMAT:
            raise MorphError(
                f"{path} has run format {facts.get('format')!r}; this version reads {FORMAT}: train it again"
            )
        try:
            return cls(
                path,
                ModelConfig.from_dict(read_json(path / "config.json")),
                Recipe.from_dict(facts["recipe"]),
                facts,
            )
        except (KeyError, TypeError) as error:
            raise MorphError(f"{path} is not a complete run (missing {error}): start again in a new --out") from None

    def require_same(self, config: ModelConfig | None, recipe: dict[str, Any]) -> None:
        """Raise MorphError if what is given again differs from what is recorded (None is not given)."""
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
        """One dictionary a step; a last line cut short by a kill is left out."""
        try:
            lines = self.metrics_path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        records = []
        for line in lines:
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def truncate_metrics(self, step: int) -> None:
        """Forget the steps after `step`: a resumed run takes them again."""
        kept = [r for r in self.metrics() if r["step"] <= step]
        replace_bytes(self.metrics_path, "".join(json.dumps(r) + "\n" for r in kept).encode())

    @property
    def summary(self) -> Summary | None:
        """The final numbers, or None while the run is not finished."""
        path = self.path / "summary.json"
        return Summary(**read_json(path)) if path.exists() else None

    def write_summary(self, summary: Summary) -> None:
        replace_json(self.path / "summary.json", dataclasses.asdict(summary))

    def checkpoints(self) -> list[Path]:
        """Complete checkpoints, oldest first (a checkpoint gets its name when it is complete)."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def latest(self) -> Path | None:
        """The checkpoint to continue from: the one `latest` names, else the newest left, else None."""
        pointer = self.path / "latest"
        named = self.path / "checkpoints" / pointer.read_text().strip() if pointer.exists() else None
        if named is not None and named.is_dir():
            return named
        left = self.checkpoints()
        return left[-1] if left else None


def check_fit(config: ModelConfig, corpus: Corpus) -> None:
    """Raise MorphError unless bytes fit the vocabulary and both splits hold a window."""
    if config.vocab_size < 256:
        raise MorphError(f"vocab_size is {config.vocab_size}, but bytes need 256: raise vocab_size to at least 256")
    corpus.require(config.context_length)


def config_digest(config: ModelConfig) -> str:
    """A short name for a config, kept in each checkpoint to tell strangers apart."""
    return hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()[:16]
