"""`morph hf check`: does Morph compute what transformers computes, and if not, from which layer on?

Both read the same folder in fp32 and the same random tokens, one after the other, so that one model is in memory at a
time. Compared are the stream into the first block, after every block, after the final norm, and the logits.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from morph.config import ModelConfig, SlidingWindow
from morph.errors import MorphError, short
from morph.hf.checkpoint import load, open_config
from morph.measure.trace import trace
from morph.model import Decoder

TOWERS = ("vision", "visual", "multi_modal")
"""Parts of names that belong to what sees images, which text does not pass through."""
MOST = 65_536
"""Tokens in all texts of a check: plain attention takes memory by their square."""
TOLERANCE = 1e-4
"""Largest relative error that passes in fp32: rounding grows with depth, and a wrong organ gives 1e-2 or more."""


@dataclass(frozen=True)
class Difference:
    """One tensor: its name, the largest difference over the largest magnitude, and that magnitude."""

    name: str
    error: float
    size: float


@dataclass(frozen=True)
class Report:
    """What a check found; `rows` in the order of computation."""

    folder: str
    model_type: str
    shape: tuple[int, int]
    tolerance: float
    rows: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> Difference:
        """The row with the largest error; one that is not a number comes before all."""
        return max(self.rows, key=lambda row: math.inf if math.isnan(row.error) else row.error)

    @property
    def first_wrong(self) -> Difference | None:
        """The first row beyond the tolerance."""
        return next((row for row in self.rows if not row.error <= self.tolerance), None)

    @property
    def passed(self) -> bool:
        """Whether every row is within the tolerance."""
        return self.first_wrong is None

    def __str__(self) -> str:
        batch, tokens = self.shape
        lines = [f"{self.folder}: {self.model_type}, {batch} x {tokens} tokens, fp32", ""]
        lines.append(f"{'':<14}{'relative error':>16}{'largest value':>16}")
        for row in self.rows:
            mark = "" if row.error <= self.tolerance else "  ←"
            lines.append(f"{row.name:<14}{row.error:>16.1e}{row.size:>16.4g}{mark}")
        lines += ["", *self.notes]
        worst = f"worst {self.worst.error:.1e} ({self.worst.name}), tolerance {self.tolerance:g}"
        if self.first_wrong is None:
            return "\n".join([*lines, f"The same as transformers: {worst}."])
        return "\n".join([*lines, f"NOT the same as transformers, from {self.first_wrong.name} on: {worst}."])


def check(
    folder: str | Path,
    *,
    tokens: int | None = None,
    batch: int = 2,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    skip: Sequence[str] = (),
) -> Report:
    """Compare Morph's model of a folder with transformers' on random tokens.

    Args:
        folder: a checkpoint folder; see `load`.
        tokens: how many in a text; None for 64, or a few beyond the window when that is at most 1,008.
        batch, seed: texts, and what draws them.
        tolerance: the largest relative error that passes.
        skip: weights that Morph leaves where they are; see `load`.

    Raises:
        MorphError: without transformers, for a folder that Morph or transformers cannot load, and for numbers that
            make no text.
    """
    family, config = open_config(folder)
    window, limit = _window(config), config.position_limit
    if tokens is None:
        tokens = 64 if window is None or window > 1008 else max(64, window + 16)
        tokens = tokens if limit is None else min(tokens, limit)
    _check_text(tokens, batch, seed, limit)
    if type(tolerance) not in (int, float) or not 0 < tolerance < math.inf:
        raise MorphError(f"tolerance = {short(tolerance)}: give a number above 0, such as {TOLERANCE:g}")
    ids = torch.randint(0, config.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(seed))
    theirs = _their_states(_load_theirs(Path(folder), family.architecture), ids)
    ours = _our_states(load(folder, dtype=torch.float32, skip=skip), ids)
    assert len(ours) == len(theirs)
    names = ["embedding", *(f"layer {layer}" for layer in range(config.n_layers - 1)), "final norm", "logits"]
    rows = [_difference(*row) for row in zip(names, ours, theirs, strict=True)]
    notes: tuple[str, ...] = ()
    if window is not None and tokens <= window:
        notes = (f"The window of {window} tokens hid nothing from {tokens}: --tokens {window + 16} would show it.",)
    return Report(str(folder), family.model_type, (batch, tokens), tolerance, tuple(rows), notes)


def _check_text(tokens: int, batch: int, seed: int, limit: int | None) -> None:
    """Raise MorphError for texts that cannot be drawn, that the model cannot place, or that no memory holds."""
    whole = type(tokens) is int and type(batch) is int
    most = MOST if limit is None else min(limit, MOST)
    if not whole or tokens < 1 or batch < 1 or tokens > most or tokens * batch > MOST:
        raise MorphError(
            f"tokens = {short(tokens)}, batch = {short(batch)}: give 1 or more of each, at most {most:,} tokens in a "
            f"text and {MOST:,} in all"
        )
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise MorphError(f"seed = {short(seed)}: give a whole number from 0 to {2**32 - 1}")


def _window(config: ModelConfig) -> int | None:
    mixers = [config.mixer(layer) for layer in range(config.n_layers)]
    return max((mixer.window for mixer in mixers if isinstance(mixer, SlidingWindow)), default=None)


def _difference(name: str, ours: Tensor, theirs: Tensor) -> Difference:
    size = float(theirs.abs().max())
    return Difference(name, float((ours - theirs).abs().max()) / max(size, 1e-30), size)


def _our_states(model: Decoder, ids: Tensor) -> list[Tensor]:
    """The stream into block 0, after each block but the last, after the final norm; and the logits."""
    with torch.no_grad(), trace(model) as seen:
        logits = model(ids)
        last = model.norm(seen[f"blocks.{model.config.n_layers - 1}.stream"].to(logits.device))
    between = [seen[f"blocks.{layer}.stream"] for layer in range(model.config.n_layers - 1)]
    return [seen["stream"], *between, last, logits]


def _their_states(model: Any, ids: Tensor) -> list[Tensor]:
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    return [*out.hidden_states, out.logits]


def _load_theirs(folder: Path, architecture: str) -> Any:
    """transformers' model, with its plain attention and experts."""
    try:
        transformers = importlib.import_module("transformers")
    except ModuleNotFoundError:
        raise MorphError(
            "comparing with Hugging Face's models needs transformers: pip install -e '.[hf]' in Morph's folder"
        ) from None
    model_class = getattr(transformers, architecture, None)
    if model_class is None:
        raise MorphError(
            f"transformers {transformers.__version__} has no {architecture}; install a newer release to compare with"
        )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model, report = model_class.from_pretrained(
            folder,
            output_loading_info=True,
            dtype=torch.float32,
            attn_implementation="eager",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        raise MorphError(f"transformers cannot load {folder} ({error}); fetch or save the folder again") from None
    parameters = dict(model.named_parameters())
    missing = sorted(n for n in report["missing_keys"] if n in parameters and not any(part in n for part in TOWERS))
    if missing:
        raise MorphError(
            f"transformers finds no {missing[0]} in {folder} and draws it at random, so there is nothing to compare "
            f"with; it may know these weights under another model_type"
        )
    model.config._experts_implementation = "eager"
    return model.eval()
