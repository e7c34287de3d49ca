"""How tensors of a checkpoint become ours and ours theirs: a list of rules, each read in both directions.

A rule names tensors on both sides and how to go from one to the other. The rules of a model name every tensor of both
sides exactly once, so whatever is unknown, missing or of another shape is told before a number is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
Map = Callable[[Tensors], Tensors]


def same(tensors: Tensors) -> Tensors:
    """The tensors as they are."""
    return tensors


def each(change: Callable[[Tensor], Tensor]) -> Map:
    """The map that changes every tensor alike."""
    return lambda tensors: tuple(change(tensor) for tensor in tensors)


@dataclass(frozen=True)
class Rule:
    """Tensors by name on our side and on theirs; `read` makes ours of theirs, `write` theirs of ours.

    `write` must run on the meta device too: what it makes there of our shapes is what a checkpoint must hold.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Map = same
    write: Map = same


def copied(ours: str, theirs: str) -> Rule:
    """One tensor, the same on both sides."""
    return Rule((ours,), (theirs,))


def linear(ours: str, theirs: str, bias: bool = False) -> list[Rule]:
    """The weight of a linear map, and its bias if it has one."""
    return [copied(f"{ours}.{part}", f"{theirs}.{part}") for part in ("weight", "bias")[: 1 + bias]]


def transposed(ours: str, theirs: str) -> Rule:
    """One matrix that is (in, out) on their side."""
    turn = each(lambda tensor: tensor.transpose(-1, -2))
    return Rule((ours,), (theirs,), turn, turn)


def fused(ours: Sequence[str], theirs: str, sizes: Sequence[int], dim: int = 0) -> Rule:
    """Several of ours that are one of theirs, end to end along `dim`, with these sizes."""
    return Rule(
        tuple(ours),
        (theirs,),
        lambda tensors: tensors[0].split(list(sizes), dim=dim),
        lambda tensors: (torch.cat(tensors, dim=dim),),
    )


def grouped(ours: Sequence[str], theirs: str, sizes: Sequence[int], groups: int) -> Rule:
    """Several of ours that are one of theirs, in which `sizes` rows of each stand together, `groups` times."""

    def read(tensors: Tensors) -> Tensors:
        parts = tensors[0].unflatten(0, (groups, -1)).split(list(sizes), dim=1)
        return tuple(part.flatten(0, 1) for part in parts)

    def write(tensors: Tensors) -> Tensors:
        parts = [tensor.unflatten(0, (groups, -1)) for tensor in tensors]
        return (torch.cat(parts, dim=1).flatten(0, 1),)

    return Rule(tuple(ours), (theirs,), read, write)


def stacked(ours: str, theirs: Sequence[str]) -> Rule:
    """One of ours whose first axis (experts) they keep as separate tensors."""
    return Rule((ours,), tuple(theirs), lambda tensors: (torch.stack(tensors),), lambda tensors: tensors[0].unbind(0))


def chained(rule: Rule, read: Map, write: Map) -> Rule:
    """A rule with `read` after its own reading, and `write` before its own writing."""
    return Rule(
        rule.ours, rule.theirs, lambda tensors: read(rule.read(tensors)), lambda tensors: rule.write(write(tensors))
    )
