"""FLOPs of a training step as torch's own counter sees them: exact, a matter of shapes alone.

The counter sees matrix products, and with the formula below triangular solves; norms, softmax, activations, rotations
and convolutions over time (elementwise here) count nothing. It is set on plain forms, in which every score is formed
and masked afterwards: kernels that skip what a mask hides do less (`morph.measure.count` tells both).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from morph.lab.trial import Trial
from morph.nn.organ import plain_forms


def solve_flops(system: torch.Size, sides: torch.Size, *args: Any, **kwargs: Any) -> int:
    """Substitution: n² / 2 multiply-adds for each right-hand side, two FLOPs each."""
    return math.prod(system[:-2]) * system[-1] ** 2 * sides[-1]


def step_flops(trial: Trial, context: int) -> tuple[int, int]:
    """FLOPs of one forward pass with its loss, and of the backward pass, over one sequence of `context` tokens."""
    model = trial.model
    ids = torch.arange(context).remainder(model.config.vocab_size)[None]  # which tokens is all the same
    mapping: Any = {torch.ops.aten.linalg_solve_triangular: solve_flops}
    forward, backward = (FlopCounterMode(display=False, custom_mapping=mapping) for _ in range(2))
    with plain_forms():
        with forward:
            loss = model.loss(ids, ids).total
        with backward:
            loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()
