"""Training: the text, the recipe, the loop, recorded runs, and the sweep over all stages.

The names below load on first use, so that reading a sweep (which the figures do) never imports torch.
"""

from morph.lazy import on_first_use

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
    "sweep_of": "sweeper",
}

__all__ = sorted(_HOME)

__getattr__, __dir__ = on_first_use(__name__, _HOME)
