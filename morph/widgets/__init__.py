"""The figures in a notebook, explorers of a model on a reader's own text, and training as it goes.

    Stepper("rope")                            a figure, stepped by keys
    AttentionExplorer("windows", text="…")     attention maps of every layer and head
    TokenTrace(9, text="…", token=5)           one token's stream through the layers
    RouterView("experts", text="…")            which experts each token goes to
    TrainingMonitor(["rope", "gqa"])           loss curves of models while they train
    show_findings("sinks")                     what an experiment of the lab claimed and what came of it
    show_picture(draw, alt="…")                a plot of your own, for light pages and dark ones

The browser gets numbers and draws them itself, so a step needs no kernel. The same code makes a page of its own
(`.to_html`) that opens without a server and asks the network for nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from morph.errors import MorphError

if TYPE_CHECKING:
    from morph.widgets.explorers import AttentionExplorer as AttentionExplorer
    from morph.widgets.explorers import RouterView as RouterView
    from morph.widgets.explorers import TokenTrace as TokenTrace
    from morph.widgets.monitor import TrainingMonitor as TrainingMonitor
    from morph.widgets.picture import show_picture as show_picture
    from morph.widgets.stepper import Stepper as Stepper
    from morph.widgets.table import show_findings as show_findings
    from morph.widgets.table import show_table as show_table

_HOME = {
    "Stepper": "stepper", "AttentionExplorer": "explorers", "TokenTrace": "explorers", "RouterView": "explorers",
    "TrainingMonitor": "monitor", "show_table": "table", "show_findings": "table", "show_picture": "picture",
}  # fmt: skip

__all__ = [
    "AttentionExplorer", "RouterView", "Stepper", "TokenTrace", "TrainingMonitor", "show_findings", "show_picture",
    "show_table",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'morph.widgets' has no attribute {name!r}")
    if find_spec("anywidget") is None:
        raise MorphError(
            "notebook figures need anywidget, which is not installed: pip install -e '.[notebook]' in Morph's folder"
        )
    return getattr(import_module(f"morph.widgets.{_HOME[name]}"), name)
