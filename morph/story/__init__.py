"""The figures as data: `figure("morph")` gives frames with captions, claims and numbers; others draw them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from morph.errors import MorphError, nearest
from morph.story.frame import Array, Claim, Figure, Frame

MODULES = {"morph": "morph.story.morph"}
"""Figure name -> the module whose `figure(**options)` makes it."""


def names() -> tuple[str, ...]:
    """Names of the figures, in order of their numbers."""
    return tuple(MODULES)


def figure(name: str, **options: Any) -> Figure:
    """Make the figure `name`; `options` go to its module (figure `morph` takes `sweep`). Raises `MorphError`."""
    if name not in MODULES:
        raise MorphError(f"no figure is called {name!r}; there is {', '.join(MODULES)}{nearest(name, MODULES)}")
    made = import_module(MODULES[name]).figure(**options)
    assert isinstance(made, Figure)
    return made


__all__ = ["Array", "Claim", "Figure", "Frame", "figure", "names"]
