"""Figure 9, beyond softmax: a memory of fixed size in the place of a cache, what it holds, and what it loses.

Frames 1, 2, 7 and 8 weigh and count (`beyond_work`), 3 to 6 look into one state (`beyond_state`), 9 reads the lab's
recorded trainings and 10 an indexer that chooses what attention reads (`beyond_recall`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from morph.config import ModelConfig
from morph.model import Decoder
from morph.story import beyond_recall as recall
from morph.story import beyond_state as state
from morph.story import beyond_work as work
from morph.story.beyond_kit import Look
from morph.story.frame import Figure, Frame
from morph.story.subject import subject
from morph.story.threads import one_thread

NAME, NUMBER, TITLE = "beyond-softmax", 9, "Beyond softmax"
FRAMES: tuple[Callable[[Look], Frame], ...] = (
    work.held,
    work.orders,
    state.grows,
    state.interference,
    state.erase,
    state.decay,
    work.per_token,
    work.stack,
    recall.recalled,
    recall.chosen,
)
"""What makes each frame, in order."""


@one_thread()
def figure(model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 9 of a model; None is the recorded one of stage 14, three layers in four with a state.

    Raises:
        MorphError: when `model` is nothing that `morph.story.subject.subject` knows.
    """
    look = Look.at(subject("hybrid" if model is None else model, seed=seed))
    return Figure(
        name=NAME,
        number=NUMBER,
        title=TITLE,
        frames=tuple(make(look) for make in FRAMES),
        provenance={**look.subject.provenance, "tokens": len(look.ids[0]), "torch": torch.__version__},
    )
