"""What the frames of figure 2 share: their material, and how numbers become arrays and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from morph.story.frame import Array, Claim, Frame
from morph.story.stream import Stream

COUNTS = {4: "four", 5: "five"}
FEATURES, WORDS, LONG_WORDS = 48, 16, 8
"""Features of a vector, tokens of the passage that are drawn, and of those that are whole words; more would be too
small to see."""


@dataclass(frozen=True)
class Material:
    """What the frames are made of.

    Attributes:
        it: the model shown.
        start: the same as initialized; None when `it` is, and when nobody here knows how it began.
        placed: its config as initialized with other placements of the norms, by placement; empty when it is too large.
    """

    it: Stream
    start: Stream | None
    placed: Mapping[str, Stream]

    @property
    def words(self) -> int:
        """How many of the last tokens are drawn."""
        return WORDS if self.it.subject.vocabulary.unit == "byte" else LONG_WORDS

    @property
    def first(self) -> Stream:
        """The model as initialized."""
        return self.start or self.it


def make(
    m: Material,
    models: str,
    *,
    key: str,
    title: str,
    caption: str,
    alt: str,
    claim: Claim,
    arrays: dict[str, Array],
    facts: Mapping[str, Any] | None = None,
    plain: Claim | None = None,
) -> Frame:
    """A frame with its aside and its source; `models` says who is in it: "shown", "both" or "placed".

    What deep trained models do need not be true of a reader's: where `claim` does not hold, the frame claims `plain`,
    and so it does of a released model, which is not set beside its beginning.
    """
    subject, layers = m.it.subject, m.it.subject.config.n_layers
    state = "as released" if subject.is_released else "trained" if m.start else "as initialized"
    states = {
        "shown": state,
        "both": "trained and as initialized" if m.start else state,
        "placed": "as initialized",
    }
    tokens = len(m.it.tokens)
    what = {
        "shown": f"{subject.name}; the last of {tokens} tokens",
        "both": f"{subject.name}; RMS and means over {tokens} tokens",
        "placed": f"the same config and seed, untrained, its norms in {COUNTS.get(len(m.placed), '')} places; "
        f"RMS and means over {tokens} tokens",
    }[models]
    made = Frame(
        key=key,
        title=title,
        caption=caption,
        alt=alt,
        claim=claim,
        arrays=arrays,
        facts={
            "aside": f"{layers} layers, {states[models]}",
            "layers": layers,
            "width": subject.config.d_model,
            "trained": subject.is_trained and models != "placed",
            **(facts or {}),
        },
        source=f"{what[0].upper()}{what[1:]}.",
    )
    if plain is None or (made.check() and not subject.is_released):
        return made
    return replace(made, claim=plain)


# ---- arrays ----


def numbers(values: Tensor | np.ndarray | float, axes: Sequence[str], source: str, digits: int = 6) -> Array:
    """An array with its numbers cut to `digits` significant ones, which is what a figure's file holds."""
    held = values.detach().double().numpy() if isinstance(values, Tensor) else np.asarray(values, dtype=float)
    cut = np.array([float(f"{v:.{digits}g}") for v in held.ravel()]).reshape(held.shape)
    return Array(values=cut, axes=tuple(axes), source=source)


def halves(writes: Tensor, prefix: str, source: str) -> dict[str, Array]:
    """One number a write as two arrays over layers, `attention` and `feed_forward`."""
    return {
        f"{prefix}{half}": numbers(writes[i::2], ("layer",), source.format(half))
        for i, half in enumerate(("attention", "feed_forward"))
    }


# ---- arithmetic ----


def near(a: np.ndarray, b: np.ndarray, slack: float = 1e-3) -> bool:
    """Whether all numbers agree within `slack`, which covers their rounding to significant digits.

    Numbers above 1 may differ by as large a part of the largest.
    """
    return bool(np.abs(a - b).max() <= slack * max(1.0, np.abs(b).max()))


def rms_of(vector: Tensor) -> float:
    """Root mean square of all numbers."""
    return float(vector.detach().double().square().mean().sqrt())


def misses(curve: Tensor, measured: Tensor) -> float:
    """The largest relative distance of a curve from what was measured."""
    return round(float((curve / measured - 1).abs().max()), 4)


def off_diagonal_mean(matrix: np.ndarray) -> float:
    """Mean of a square matrix without its diagonal."""
    return float(matrix[~np.eye(len(matrix), dtype=bool)].mean())


# ---- words ----


def drawn(width: int) -> str:
    """How many features a picture shows."""
    return f"{width}" if width <= FEATURES else f"the first {FEATURES}"


def span(values: Tensor) -> str:
    """`0.50 to 1.11`."""
    low, high = torch.aminmax(values)
    return f"{low:.2f} to {high:.2f}"
