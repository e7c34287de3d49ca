"""Figure 4, normalization and its place: what a norm computes, where it stands, and what it does to queries and keys.

Frames 1 and 2 norm one live vector in both ways (`norm_vector`). Frames 3 to 8 build the model's config with its norms
in four places and look at them as initialized (`norm_places`); 9 is the lab's recorded training at depth. Frames 10 and
11 make the queries and keys of one live layer larger, with their norms and without (`norm_heads`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from morph.config import ModelConfig
from morph.model import Decoder
from morph.story import norm_heads as heads
from morph.story import norm_places as places
from morph.story import norm_vector as vector
from morph.story.frame import Figure, Frame
from morph.story.residual_kit import Material
from morph.story.residual_norms import placed
from morph.story.stream import read
from morph.story.subject import subject
from morph.story.threads import one_thread

NAME, NUMBER, TITLE = "norm", 4, "Normalization and its place"
FRAMES: tuple[Callable[[Material], Frame], ...] = (
    vector.layer_norm,
    vector.rms_norm,
    places.post,
    places.pre,
    places.sandwich,
    places.post_branch,
    places.gradient,
    places.growth,
    places.warm_up,
    heads.largest,
    heads.entropy,
)
"""What makes each frame, in order."""


@one_thread()
def figure(model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 4 of a model; None is the recorded one of 24 layers.

    Raises:
        MorphError: when `model` is nothing that `morph.story.subject.subject` knows.
    """
    source = subject("deep" if model is None else model, seed=seed)
    material = Material(
        read(source), None, {s.config.placement: read(s) for s in placed(source) if s.config.placement in places.PLACES}
    )
    return Figure(
        name=NAME,
        number=NUMBER,
        title=TITLE,
        frames=tuple(make(material) for make in FRAMES),
        provenance={**source.provenance, "tokens": len(material.it.tokens), "torch": torch.__version__},
    )
