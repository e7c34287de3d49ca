"""Figure 5, the gated feed-forward network: two matrices, what bends between them, and the third.

By default frames 1 and 3 show a trained network with ReLU, 4 to 6 and 9 a trained one with SiLU in its gates, which
weighs as much (`ffn_sizes`, `ffn_token`, `ffn_pair`); 7 and 8 are sizes of released models. A reader's own model is
shown in the frames that fit it; where 1 or 4 do not, a fresh network of its width stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from morph.config import ModelConfig
from morph.model import Decoder
from morph.story import ffn_pair as pair
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
    pair.together,
    sizes.equal,
    sizes.ratios,
    token.swapped,
)
"""What makes each frame, in order."""


@one_thread()
def figure(model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 5 of a model; None is a recorded one of stage 9, dense and gated, beside a recorded one with ReLU.

    Raises:
        MorphError: when `model` is nothing that `morph.story.subject.subject` knows.
    """
    if model is None:
        look = Look.at(subject("windows", seed=seed), beside=Look.at(subject("relu", seed=seed)))
    else:
        look = Look.at(subject(model, seed=seed))
    beside = [look.beside.subject.provenance] if look.beside else []
    return Figure(
        name=NAME,
        number=NUMBER,
        title=TITLE,
        frames=tuple(make(look) for make in FRAMES),
        provenance={**look.subject.provenance, "tokens": look.tokens, "torch": torch.__version__, "beside": beside},
    )
