"""Figure 3, rotary position: twelve frames measured on one live model.

Frames 1 to 4 (`rope_before`) are about order without rotation; 5 to 9 (`rope_pairs`) turn a live query and key; 10 to
12 (`rope_lengths`) are about distance, trained lengths and longer texts.
"""

from __future__ import annotations

from pathlib import Path

from morph.config import ModelConfig
from morph.model import Decoder
from morph.story.frame import Figure, Frame, absent
from morph.story.rope_before import requirement, shuffle, sinusoid, table
from morph.story.rope_layer import Layer, layers, unplaced
from morph.story.rope_lengths import base, distance, longer
from morph.story.rope_pairs import Live, clocks, key, query, slide, wavelengths
from morph.story.subject import Subject
from morph.story.subject import subject as make_subject
from morph.story.threads import one_thread

NAME, NUMBER, TITLE = "rope", 3, "Rotary position"
DEFAULT = "windows"
NO_SOFTMAX = "This model has no softmax attention, so no query meets a key."
SHORTEST, LONGEST = 16, 128
"""Tokens of the passage that the figure reads: the trained length, within these."""


@one_thread()
def figure(*, model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 3 of a model that `morph.story.subject.subject` takes, or (None) of the recorded model `windows`.

    Raises:
        MorphError: when there is no such model.
    """
    subject = make_subject(DEFAULT if model is None else model, seed=seed)
    length = min(max(subject.config.context_length, SHORTEST), LONGEST)
    read = layers(subject, min(length, subject.config.position_limit or length))
    turning = [layer for layer in read if len(layer.speeds)]
    seeing = [layer for layer in turning if layer.mixer.window is None] or turning
    return Figure(
        name=NAME,
        number=NUMBER,
        title=TITLE,
        frames=(*_before(subject, read, length), *_turning(subject, seeing[-1] if seeing else None)),
        provenance={**subject.provenance, "name": subject.name},
    )


def _before(subject: Subject, read: list[Layer], length: int) -> list[Frame]:
    """Frames 1 to 4."""
    if not read:
        first, fourth = (
            absent(key, title, NO_SOFTMAX)
            for key, title in (("shuffle", "Shuffle the tokens"), ("requirement", "The requirement"))
        )
    else:
        bare = unplaced(subject)
        first = shuffle(bare, read[0] if bare is subject else layers(bare, length)[0])
        fourth = requirement(subject, read[0])
    return [first, sinusoid(subject.config), table(subject), fourth]


def _turning(subject: Subject, layer: Layer | None) -> list[Frame]:
    """Frames 5 to 12."""
    if layer is not None and layer.rope is not None:
        live = Live.of(subject, layer, layer.rope)
        return [make(live) for make in (query, key, slide, clocks, wavelengths, distance, base, longer)]
    kind = type(subject.config.position).__name__
    why = f"This model rotates nothing: its position is {kind}."
    if not subject.softmax:
        why = NO_SOFTMAX
    lost = {
        "query": "Turn the query", "key": "Turn the key", "slide": "Slide both", "clocks": "Clocks",
        "wavelengths": "Wavelengths", "distance": "Score and distance", "base": "", "longer": "Longer texts",
    }  # fmt: skip
    return [absent(key, title, why) if title else base(None) for key, title in lost.items()]
