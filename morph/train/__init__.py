"""Training: the text, the recipe, the loop, recorded runs, and the sweep over all stages.

The names below load on first use, so that reading a sweep (which the figures do) never imports torch.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Corpus": "data",
    "load_corpus": "data",
    "Recipe": "recipe",
    "Run": "runs",
    "Summary": "runs",
    "train": "loop",
    "StepReport": "loop",
    "load_model": "checkpoint",
    "Sweep": "sweep",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
