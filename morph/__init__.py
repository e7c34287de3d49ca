"""Morph: what changed inside the Transformer between 2017 and 2026, one runnable change at a time.

Names are loaded when first used, so that reading configs (or a command's help) never waits for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "morph.errors": ("MorphError",),
    "morph.config": ("ModelConfig", "diff"),
    "morph.steps": ("STEPS", "SLUGS", "stage"),
    "morph.forks": ("FORKS", "compose", "fork"),
    "morph.model": ("Decoder", "build"),
    "morph.decoding": ("generate",),
    "morph.speculation": ("generate_speculative",),
    "morph.measure.count": ("count",),
    "morph.measure.trace": ("trace",),
    "morph.upcycling.walk": ("upcycle",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("story", "train", "widgets", "measure", "hf", "lab")

__all__ = ["__version__", *_HOME_OF]

if TYPE_CHECKING:
    from morph.config import ModelConfig as ModelConfig
    from morph.config import diff as diff
    from morph.decoding import generate as generate
    from morph.errors import MorphError as MorphError
    from morph.forks import FORKS as FORKS
    from morph.forks import compose as compose
    from morph.forks import fork as fork
    from morph.measure.count import count as count
    from morph.measure.trace import trace as trace
    from morph.model import Decoder as Decoder
    from morph.model import build as build
    from morph.speculation import generate_speculative as generate_speculative
    from morph.steps import SLUGS as SLUGS
    from morph.steps import STEPS as STEPS
    from morph.steps import stage as stage
    from morph.upcycling.walk import upcycle as upcycle


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"morph.{name}")
    raise AttributeError(f"module 'morph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
