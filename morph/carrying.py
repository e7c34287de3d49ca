"""The model in a folder carried over to another stage, and written as a folder of the same kind.

A run becomes a run that stands at step 0 with the carried weights, with the recipe and the text of the first: `morph
train --out FOLDER --resume` trains it, with a fresh optimizer and its schedule from the start. A checkpoint becomes a
checkpoint, where a family of transformers can hold the new config. What was carried, and how, stands in `upcycle.txt`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from morph.config import Attention, Interleaved, ModelConfig, SlidingWindow
from morph.errors import MorphError
from morph.folder import Folder
from morph.forks import config_of, name_of
from morph.model import Decoder
from morph.steps import SIZES, Size, attention_of
from morph.train.data import training_offsets, windows
from morph.train.files import disk_error, new_folder, require_free, write_bytes
from morph.upcycling.mixing import usual_window
from morph.upcycling.walk import MOST_TOKENS, TEXTS, Report, plan, upcycle

REPORT = "upcycle.txt"
TOKENIZER = ("tokenizer*", "special_tokens_map.json", "generation_config.json")


def carry_over(path: str | Path, to: str, out: Path | None = None) -> tuple[Report, Path]:
    """Carry the model in a folder to a stage, a fork or a composition of the same widths; the report, and where it is.

    Args:
        path: a run or a checkpoint.
        to: as `config_of` reads it.
        out: a new folder; None for one beside the first, named after both.

    Raises:
        MorphError: for a folder without a model, a change without a recipe, and a folder that is there already.
    """
    folder, name = Folder.at(path), name_of(to)
    target = config_of(to, size_like(folder.config))
    out = out or folder.path.parent / f"{folder.path.resolve().name}-{name}"
    require_free(out, "--out", "remove it first")
    if out.resolve().is_relative_to(folder.path.resolve()):
        raise MorphError(f"--out {out} lies in {folder.path}, which is left as it is: give a folder elsewhere")
    plan(folder.config, _with_heads_of(target, folder.config))
    model = folder.model()
    done, report = upcycle(model, _with_heads_of(target, folder.config), ids=_text(folder))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(out) as hidden:
            (_write_run if folder.kind == "run" else _write_checkpoint)(folder, done, hidden, name)
            write_bytes(hidden / REPORT, f"{report}\n".encode())
    except OSError as error:
        raise disk_error(error, out, "nothing was written") from None
    return report, out


def size_like(config: ModelConfig) -> Size:
    """The widths of a config; what a stage before the change does not say is as in the named sizes."""
    attention, layout = attention_of(config), config.layout
    alike = (s.n_kv_heads for s in SIZES.values() if (s.d_model, s.n_heads) == (config.d_model, attention.n_heads))
    few = next(alike, attention.n_heads // 2 if attention.n_heads % 2 == 0 else 1)
    local = layout.local if isinstance(layout, Interleaved) else None
    return Size(
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        n_heads=attention.n_heads,
        n_kv_heads=attention.n_kv_heads if attention.n_kv_heads < attention.n_heads else few,
        context_length=config.context_length,
        window=local.window if isinstance(local, SlidingWindow) else usual_window(config),
    )


def _with_heads_of(target: ModelConfig, config: ModelConfig) -> ModelConfig:
    """The target with heads as wide as the model's: sizes say how many, and not how wide."""
    attention = target.attention
    if isinstance(attention, Attention) and attention.width != attention_of(config).width:
        return replace(target, attention=replace(attention, head_dim=attention_of(config).width))
    return target


def _text(folder: Folder) -> Tensor | None:
    """Windows of the text that a run was trained on; None for a checkpoint, which brings none."""
    if folder.kind != "run":
        return None
    corpus, length = folder.run.corpus(), min(folder.config.context_length, MOST_TOKENS)
    offsets = training_offsets(corpus.train.size, length, TEXTS, folder.run.seed, 0, 0)
    return torch.from_numpy(windows(corpus.train, offsets, length)[0].copy())


def _write_run(folder: Folder, model: Decoder, hidden: Path, name: str) -> None:
    """A run at step 0 that holds the model."""
    from morph.train.checkpoint import State, save_checkpoint
    from morph.train.loop import make_optimizer
    from morph.train.runs import Run

    old = folder.run
    run = Run.create(hidden, model.config, old.recipe, old.corpus(), old.facts["device"], name, old.facts["size"])
    save_checkpoint(run, model, make_optimizer(model, run.recipe), State())


def _write_checkpoint(folder: Folder, model: Decoder, hidden: Path, name: str) -> None:
    """A checkpoint that holds it, the tokenizer beside it."""
    from morph import hf

    hf.save(model, hidden)
    for pattern in TOKENIZER:
        for file in folder.path.glob(pattern):
            if file.is_file():
                shutil.copyfile(file, hidden / file.name)
