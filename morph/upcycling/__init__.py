"""Upcycling: a trained model carried over to another stage, so that what it has learned need not be learned again.

    model, report = morph.upcycle(model, morph.stage("hybrid", "nano"))
    print(report)

`walk` goes through the organs in the order of the steps; each has its recipe, and what has none is refused. `stream`,
`mixing` and `feedforward` hold the recipes; `move` what they work on. Where a step's relation (`morph.steps`) holds as
an identity, the new model is the same function; elsewhere the report says what was lost, and by how much logits moved.
"""

from morph.lazy import on_first_use

_HOME = {"upcycle": "walk", "plan": "walk", "Report": "walk", "Carried": "walk", "RULES": "walk"}

__all__ = sorted(_HOME)

__getattr__, __dir__ = on_first_use(__name__, _HOME)
