"""The figures as data: `figure("morph")` gives frames with captions, claims and numbers; others draw them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from morph.errors import MorphError, nearest
from morph.story.frame import Array, Claim, Figure, Frame

MODULES = {
    "morph": "morph.story.morph",
    "residual": "morph.story.residual",
    "rope": "morph.story.rope",
    "norm": "morph.story.norm",
    "ffn": "morph.story.ffn",
    "kv-cache": "morph.story.kv_cache",
    "masks": "morph.story.masks",
    "moe": "morph.story.moe",
    "beyond-softmax": "morph.story.beyond",
}
"""Figure name -> the module whose `figure(**options)` makes it."""
OPTIONS = {"morph": ("sweep",)} | dict.fromkeys(
    ("residual", "rope", "norm", "ffn", "kv-cache", "masks", "moe", "beyond-softmax"), ("model", "seed")
)
"""Figure name -> the options that it takes; said here, so that nobody need import a module to know."""


def names() -> tuple[str, ...]:
    """Names of the figures, in order of their numbers."""
    return tuple(MODULES)


def require_known(name: str) -> None:
    """Raise `MorphError` unless a figure is called `name`."""
    if name not in names():
        raise MorphError(f"no figure is called {name!r}; there is {', '.join(MODULES)}{nearest(name, MODULES)}")


def figure(name: str, **options: Any) -> Figure:
    """Make the figure `name`; `options` go to its module.

    Figure `morph` takes `sweep`, the others take `model` (anything that `morph.story.subject.subject` takes) and
    `seed`.

    Raises:
        MorphError: for an unknown figure, an option that the figure does not take, or what its module refuses.
    """
    require_known(name)
    for option in options:
        if option not in OPTIONS[name]:
            raise MorphError(f"figure {name!r} takes no {option}; it takes {', '.join(OPTIONS[name])}")
    made = import_module(MODULES[name]).figure(**options)
    assert isinstance(made, Figure)
    return made


__all__ = ["Array", "Claim", "Figure", "Frame", "figure", "names"]
