"""The figures in a notebook: `Stepper("morph")` draws a story's frames in the browser, to be stepped by keys.

The browser gets facts and draws them itself, so a step needs no kernel: pictures are data here. The same code
makes a page of its own (`Stepper.to_html`) that opens without a server and asks the network for nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from morph.errors import MorphError

if TYPE_CHECKING:
    from morph.widgets.stepper import Stepper as Stepper

__all__ = ["Stepper"]


def __getattr__(name: str) -> Any:
    if name != "Stepper":
        raise AttributeError(f"module 'morph.widgets' has no attribute {name!r}")
    if find_spec("anywidget") is None:
        raise MorphError(
            "notebook figures need anywidget, which is not installed: pip install -e '.[notebook]' in Morph's folder"
        )
    from morph.widgets.stepper import Stepper

    return Stepper
