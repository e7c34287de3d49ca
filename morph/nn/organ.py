"""What every organ shares: repeatable initial weights, a place to be observed, and a plain form.

Letters used for shapes in the whole project: `B` batch, `S` sequence, `D` model width, `H` query heads, `K` KV heads,
`Dh` head width, `E` experts, `T` tokens flattened, `V` vocabulary; besides `N` keys in sight, cached ones included,
`k` experts (or tokens) chosen, `G` groups of experts, `F` hidden width of a feed-forward network, `Dk` and `Dv` widths
of a key and a value where they may differ, `R` and `Rq` ranks of latents, `Dr` features that rotate apart from others,
`Hi` and `Di` heads of an indexer and their width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import ParamSpec

import torch
from torch import Tensor, nn

Recorder = Callable[[str, Tensor], None]
P = ParamSpec("P")


def remember(table: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Make a table once per set of arguments; a compiler traces the plain function instead."""
    remembered = lru_cache(maxsize=64)(table)

    def lookup(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if torch.compiler.is_compiling():
            return table(*args, **kwargs)
        return remembered(*args, **kwargs)  # type: ignore[arg-type]

    return lookup


_plain = False


@contextmanager
def plain_forms() -> Iterator[None]:
    """Inside, every organ that has a fused form runs its readable one: norms, matrix products, softmax written out.

    It computes what the fast form computes (the tests hold both together) and is what FLOPs are counted on.
    """
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


def use_plain() -> bool:
    """Whether `plain_forms` is in force."""
    return _plain


class Organ(nn.Module):
    """A module that draws its own initial weights and can be watched.

    `recorder` is None except while a trace is open, so watching costs one comparison when off.
    """

    recorder: Recorder | None = None

    def init_weights(self, generator: torch.Generator) -> None:
        """Draw this organ's own parameters and fill its buffers (children draw theirs)."""

    def record(self, **tensors: Tensor) -> None:
        """Hand named tensors to an open trace."""
        if self.recorder is not None:
            for name, tensor in tensors.items():
                self.recorder(name, tensor)


class Linear(Organ, nn.Linear):
    """`y = x Wᵀ (+ b)` with W of shape (out, in) drawn from N(0, gain² / fan_in) and b = 0.

    An input of RMS 1 therefore leaves with RMS `gain`, at any width.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool, gain: float = 1.0) -> None:
        super().__init__(d_in, d_out, bias=bias)
        self.gain = gain

    def reset_parameters(self) -> None:
        """Nothing on the meta device: there torch would import its compiler to draw no numbers."""
        if not self.weight.is_meta:
            super().reset_parameters()

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.gain * self.in_features**-0.5, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Embedding(Organ, nn.Embedding):
    """A table of V rows drawn from N(0, 1/D); the model multiplies what it reads, as a rule by √D: RMS 1."""

    def reset_parameters(self) -> None:
        """Nothing on the meta device, as in `Linear`."""
        if not self.weight.is_meta:
            super().reset_parameters()

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5, generator=generator)


def init_weights(model: nn.Module, seed: int) -> None:
    """Draw every organ's weights from a generator seeded by `(seed, the organ's name)`.

    An organ that a step leaves alone thus starts with the very same numbers before and after the step.
    """
    for name, module in model.named_modules():
        if isinstance(module, Organ):
            digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
            module.init_weights(generator)
