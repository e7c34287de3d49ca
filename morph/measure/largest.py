"""The largest tensor that a computation makes on its way, which is what decides whether it fits.

with largest() as made:
    model.loss(ids, targets).total.backward()
made.nbytes, made.shape
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Follows every operation inside, a backward pass included.

    Attributes:
        nbytes: of the largest result so far; a view counts what it shows of its storage, at most all of it.
        shape: of that result.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0
        self.shape: tuple[int, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                nbytes = min(x.nelement() * x.element_size(), x.untyped_storage().nbytes())
                if nbytes > self.nbytes:
                    self.nbytes, self.shape = nbytes, tuple(x.shape)
        return out


@contextmanager
def largest() -> Iterator[Largest]:
    """Follow what is computed inside, and nothing after."""
    with Largest() as made:
        yield made
