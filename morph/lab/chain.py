"""The longest chain of matrix products in a pass: what no amount of parallel hardware can do at the same time.

A product that needs another's outcome comes after it; those that need none of each other (queries, keys and values of a
layer) count as one. Every operation of the pass is followed, as torch dispatches it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from morph.lab.trial import Trial
from morph.nn.organ import plain_forms

_ATEN = torch.ops.aten
PRODUCTS = frozenset(
    op.default for op in (_ATEN.mm, _ATEN.addmm, _ATEN.bmm, _ATEN.baddbmm, _ATEN.mv, _ATEN.dot)
)  # fmt: skip


class Chain(TorchDispatchMode):
    """Follows what is computed inside; `longest` is the most products that had to wait for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0
        self._behind: dict[int, int] = {}  # a tensor's id -> products on the longest way to it
        self._kept: list[Tensor] = []  # so that no id is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = (self._behind.get(id(x), 0) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
        behind = max(given, default=0) + (func in PRODUCTS)
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self._behind[id(x)] = behind
                self._kept.append(x)
        self.longest = max(self.longest, behind)
        return out


@torch.no_grad()
def longest_chain(trial: Trial) -> int:
    """Of one forward pass over one sequence, its logits included."""
    ids = torch.zeros(1, trial.config.context_length, dtype=torch.long)
    with plain_forms(), Chain() as chain:
        trial.model(ids)
    return chain.longest
