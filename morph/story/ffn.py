"""Figure 5, the gated feed-forward network: two matrices, what bends between them, and the third.

Frames 1 and 4 put the network of 2017 and a gated one of as many parameters on the same reading. Frames 3, 5, 6 and 9
look into one trained network (`ffn_token`); 7 and 8 are sizes (`ffn_sizes`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from morph.config import ModelConfig
from morph.model import Decoder
from morph.story import ffn_sizes as sizes
from morph.story import ffn_token as token
from morph.story.ffn_kit import Look
from morph.story.frame import Figure, Frame
from morph.story.subject import subject
from morph.story.threads import one_thread

NAME, NUMBER, TITLE = "ffn", 5, "The gated feed-forward network"
FRAMES: tuple[Callable[[Look], Frame], ...] = (
    sizes.two_matrices,
    token.curves,
    token.below_zero,
    sizes.three_matrices,
    token.channels,
    token.together,
    sizes.equal,
    sizes.ratios,
    token.swapped,
)
"""What makes each frame, in order."""


@one_thread()
def figure(model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 5 of a model; None is the recorded one of stage 9, whose feed-forward networks are dense and gated.

    Raises:
        MorphError: when `model` is nothing that `morph.story.subject.subject` knows.
    """
    look = Look.at(subject("windows" if model is None else model, seed=seed))
    return Figure(
        name=NAME,
        number=NUMBER,
        title=TITLE,
        frames=tuple(make(look) for make in FRAMES),
        provenance={**look.subject.provenance, "tokens": look.tokens, "torch": torch.__version__},
    )
