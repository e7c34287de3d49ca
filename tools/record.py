"""Train the models that the figures show, and write them where the package ships them.

    python tools/record.py [NAME ...] [--seeds 0 1]

Without a NAME it makes all of `morph.story.subject.RECORDED`, each from `RECIPES` below, on the default corpus (the
`.py` text of this Python's standard library), one after the other and on one thread: half an hour in all.
Each becomes `morph/story/recorded/NAME-SEED.safetensors`: weights in bf16 (selection biases in fp32), and in the header
its `config`, its `facts` (name in words, recipe, corpus, versions, date, bits per byte on held-out text) and its
`metrics` (the steps that were validated). `morph.story.subject.recorded` reads it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

import morph
from morph.config import MLA, ModelConfig, as_kind
from morph.errors import MorphError, nearest
from morph.story.subject import RECORDED
from morph.train.checkpoint import load_model, unique_tensors
from morph.train.data import Corpus, load_corpus
from morph.train.device import use_threads
from morph.train.files import replace_bytes
from morph.train.loop import StepReport, train
from morph.train.recipe import Recipe, default_recipe
from morph.train.runs import Run

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "morph" / "story" / "recorded"
LARGEST = 1_400_000  # bytes of one file: all of them together stay a small download
KEPT = ("step", "bits_per_byte", "validation_bits_per_byte", "balance", "gradient_norm", "load")
KEPT += ("expert_load", "selection_bias")


@dataclass(frozen=True)
class Recording:
    """What to train and why: `what` names the config in words, `sentence` says what the figures show of it."""

    what: str
    config: Callable[[], ModelConfig]
    recipe: Recipe
    sentence: str


def with_warm_up(config: ModelConfig, steps: int) -> ModelConfig:
    """The same, with dense attention in the first steps, which the indexer learns from."""
    latent = as_kind(config.attention, MLA, "attention")
    indexer = latent.indexer
    assert indexer is not None
    return replace(config, attention=replace(latent, indexer=replace(indexer, warm_up=steps)))


TINY = default_recipe("tiny").with_(steps=1200)
DEEP = default_recipe("nano").with_(steps=600, batch_size=8, evaluate_every=100)
EXPERTS = default_recipe("nano").with_(steps=600, batch_size=8, evaluate_every=25)

RECIPES = {
    "deep": Recording(
        "stage 8 (qk-norm) at nano width, 24 layers",
        lambda: replace(morph.stage(8, "nano"), n_layers=24),
        DEEP,
        "Deep and narrow: what each of 48 branches writes to the residual stream.",
    ),
    "relu": Recording(
        "stage 4 (rope) at tiny width, 2 layers",
        lambda: replace(morph.stage(4, "tiny"), n_layers=2),
        TINY,
        "The network with two matrices and ReLU, as trained: what it silences.",
    ),
    "windows": Recording(
        "stage 9 (sliding-window), tiny",
        lambda: morph.stage(9, "tiny"),
        TINY,
        "Three windowed layers and a global one: where attention looks, and how far gradients reach.",
    ),
    "sink": Recording(
        "fork attention-sink, tiny",
        lambda: morph.fork("attention-sink", "tiny"),
        TINY,
        "A learned logit per head that takes what attention does not want to spend.",
    ),
    "experts": Recording(
        "stage 13 (loss-free-balance), nano",
        lambda: morph.stage(13, "nano"),
        EXPERTS,
        "32 experts, 7 chosen and one shared, balanced by a bias on the choice.",
    ),
    "experts-auxiliary": Recording(
        "stage 12 (shared-expert), nano",
        lambda: morph.stage(12, "nano"),
        EXPERTS,
        "The same experts, balanced by an auxiliary loss.",
    ),
    "experts-unbalanced": Recording(
        "fork unbalanced, nano",
        lambda: morph.fork("unbalanced", "nano"),
        EXPERTS,
        "The same experts, balanced by nothing.",
    ),
    "hybrid": Recording(
        "stage 14 (hybrid), nano",
        lambda: morph.stage(14, "nano"),
        EXPERTS.with_(evaluate_every=100),
        "Three layers with a state of fixed size and one of softmax attention.",
    ),
    "sparse": Recording(
        "fork sparse-attention, nano",
        lambda: with_warm_up(morph.fork("sparse-attention", "nano"), 200),
        DEEP,
        "An indexer that chooses which tokens attention reads, after 200 steps in which it watched dense attention.",
    ),
}
"""Name -> what is trained."""


def record(
    recording: Recording, seed: int, path: Path, corpus: Corpus, on_step: Callable[[StepReport], None] | None = None
) -> int:
    """Train one model and write it to `path` in one move; returns its bytes. Raises MorphError when too large."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", recording.config(), recording.recipe.with_(seed=seed), corpus, "cpu")
        outcome = train(run, corpus=corpus, on_step=on_step)
        assert outcome.summary is not None, "nothing stopped it"
        weights = {name: compact(name, tensor) for name, tensor in unique_tensors(load_model(run)).items()}
        facts = {
            "name": f"{recording.what}, trained for {run.recipe.steps:,} steps, seed {seed}",
            "sentence": recording.sentence,
            "seed": seed,
            "recipe": run.recipe.to_dict(),
            "corpus": {key: corpus.describe()[key] for key in ("name", "sha256", "train_bytes", "validation_bytes")},
            "versions": run.facts["versions"],
            "date": run.facts["date"],
            "validation_bits_per_byte": outcome.summary.validation_bits_per_byte,
        }
        metrics = [thinned(step) for step in run.metrics() if "validation_bits_per_byte" in step]
    header = {"config": run.config.to_dict(), "facts": facts, "metrics": metrics}
    data = save(weights, {name: json.dumps(value, separators=(",", ":")) for name, value in header.items()})
    if len(data) > LARGEST:
        raise MorphError(f"{path.name} would take {len(data):,} bytes; choose a config that fits in {LARGEST:,}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, data)
    return len(data)


def compact(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """In bf16; selection biases stay in fp32, for their steps are smaller than what bf16 can tell apart."""
    return tensor if name.endswith("selection_bias") else tensor.to(torch.bfloat16)


def thinned(step: dict[str, Any]) -> dict[str, Any]:
    """What the figures read of a step, other measurements to six significant digits."""
    kept = {name: step[name] for name in KEPT if name in step}
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in kept.items()}


def require_names(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Raise MorphError for a name that is not in the table, and for a seed that is none."""
    for name in names:
        if name not in RECIPES:
            raise MorphError(f"nothing is recorded as {name[:40]!r}: give {', '.join(RECIPES)}{nearest(name, RECIPES)}")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise MorphError(f"seed is {seed}: give a whole number from 0 to {2**32 - 1}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record what is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tools/record.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECIPES)}; all without")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1], metavar="SEED", help="0 and 1 without")
    asked = parser.parse_args(arguments)
    try:
        require_names(asked.names, asked.seeds)
        use_threads(1)  # a second one would not make such small models faster, and other sums in another order
        corpus = load_corpus()
        for seed in asked.seeds:
            for name in asked.names or RECORDED:
                path = FOLDER / f"{name}-{seed}.safetensors"
                size = record(RECIPES[name], seed, path, corpus, progress(path.stem))
                print(f"{path.relative_to(ROOT)}: {size:,} bytes", flush=True)
    except MorphError as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    return 0


def progress(name: str) -> Callable[[StepReport], None]:
    """Prints the validated steps."""

    def tell(report: StepReport) -> None:
        if report.validation_bits_per_byte is not None:
            fullest = f", fullest expert {report.load:.2f} x even" if report.load is not None else ""
            held_out = f"held out {report.validation_bits_per_byte:.3f} bits per byte"
            print(f"{name} step {report.step}: {held_out}{fullest}", flush=True)

    return tell


if __name__ == "__main__":
    sys.exit(main())
