"""Norms over features that are split between ranks, with every exchange counted.

With d features on R ranks each holds d/R of every token's. A norm needs sums over all of them, and so an exchange. How
many depends on how it is written:

* `rms`: the mean of x²; one exchange of one number a token.
* `separate`: LayerNorm as it is defined, the mean, then the mean of (x - mean)²; two exchanges, one after another.
* `together`: LayerNorm from the sums of x and x², var = mean(x²) - mean²; one exchange of two numbers. Where the mean
  is large beside the spread the difference of two large numbers is what rounding left of it.
* `merged`: LayerNorm from each rank's own mean and variance (Chan et al., 1979); one exchange of two numbers, gathered
  and not summed, and nothing large is subtracted.

Shapes: x (*, D/R), gains and shifts likewise; a `Group` makes the exchange. Here all ranks live in one process, their
parts stacked along a first axis (`Ranks`); the tests hold a group of real processes to the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from morph.errors import MorphError


class Group(Protocol):
    """The ranks that share a token's features."""

    size: int

    def total(self, x: Tensor) -> Tensor:
        """(*, n) of each rank to their sum (*, n), at every rank: an all-reduce."""

    def gather(self, x: Tensor) -> Tensor:
        """(*, n) of each rank to (*, R, n), at every rank: an all-gather."""


class Ranks:
    """R ranks in one process: tensors hold a part of each, (R, *, n), and every exchange is counted.

    Attributes:
        exchanges: collectives so far, those of backward passes included.
        numbers: what each rank has given into them.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise MorphError(f"{size} ranks can hold nothing: give at least 1")
        self.size, self.exchanges, self.numbers = size, 0, 0

    def split(self, x: Tensor) -> Tensor:
        """(*, D) to (R, *, D/R). Raises MorphError when R does not divide D."""
        if x.shape[-1] % self.size:
            raise MorphError(f"{x.shape[-1]} features do not split evenly over {self.size} ranks: choose a divisor")
        return torch.stack(x.chunk(self.size, dim=-1))

    def whole(self, x: Tensor) -> Tensor:
        """The inverse of `split`."""
        return torch.cat(x.unbind(0), dim=-1)

    def total(self, x: Tensor) -> Tensor:
        return _call(_Total, x, self)

    def gather(self, x: Tensor) -> Tensor:
        return _call(_Gather, x, self)

    def count(self, given: Tensor) -> None:
        """One exchange, into which each rank gives its part of `given`."""
        self.exchanges += 1
        self.numbers += given[0].numel()


def _call(function: type[torch.autograd.Function], x: Tensor, ranks: Ranks) -> Tensor:
    found: Tensor = function.apply(x, ranks)
    return found


class _Total(torch.autograd.Function):
    """All-reduce. Every rank's loss depends on every rank's part, so that the gradient is all-reduced too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        ranks.count(x)
        return x.sum(0, keepdim=True).expand_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.ranks.count(gradients[0])
        return gradients[0].sum(0, keepdim=True).expand_as(gradients[0]), None


class _Gather(torch.autograd.Function):
    """All-gather; its gradient is a reduce-scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        ranks.count(x)
        return x.movedim(0, -2).expand(ranks.size, *x.shape[1:-1], ranks.size, x.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.ranks.count(gradients[0])
        return gradients[0].sum(0).movedim(-2, 0), None


Norm = Callable[[Tensor, float, Group], Tensor]
"""From a rank's features (*, D/R), ε and the group to the same without gain and shift, which need no exchange."""


def rms(x: Tensor, eps: float, group: Group) -> Tensor:
    """x / √(mean(x²) + ε)."""
    d = x.shape[-1] * group.size
    square = group.total(x.square().sum(-1, keepdim=True)) / d
    return x * torch.rsqrt(square + eps)


def separate(x: Tensor, eps: float, group: Group) -> Tensor:
    """(x - μ) / √(σ² + ε): μ first, then σ² of what is left."""
    d = x.shape[-1] * group.size
    centred = x - group.total(x.sum(-1, keepdim=True)) / d
    variance = group.total(centred.square().sum(-1, keepdim=True)) / d
    return centred * torch.rsqrt(variance + eps)


def together(x: Tensor, eps: float, group: Group) -> Tensor:
    """The same with σ² = mean(x²) - μ², not below 0."""
    d = x.shape[-1] * group.size
    sums = torch.stack((x.sum(-1), x.square().sum(-1)), dim=-1)
    mean, square = (group.total(sums) / d).split(1, dim=-1)
    variance = (square - mean.square()).clamp(min=0)
    return (x - mean) * torch.rsqrt(variance + eps)


def merged(x: Tensor, eps: float, group: Group) -> Tensor:
    """The same from every rank's own μ and σ²: σ² is the mean of theirs and the variance of their means."""
    own = x.mean(-1, keepdim=True)
    spread = (x - own).square().mean(-1, keepdim=True)
    means, spreads = group.gather(torch.cat((own, spread), dim=-1)).unbind(-1)
    mean = means.mean(-1, keepdim=True)
    variance = spreads.mean(-1, keepdim=True) + (means - mean).square().mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps)
