"""What the frames of figure 9 look at: a model's pass over the passage, its layers with a state and with a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from morph.measure.trace import trace
from morph.nn.deltalayer import DeltaLayer
from morph.story.subject import Subject

TOKENS = 64
NO_STATE = "No layer of this model keeps a state: all keep keys and values."
NO_RULE = "No layer of this model has a state with the delta rule."
NO_SOFTMAX = "No layer of this model keeps keys and values: all have states of fixed size."


@dataclass(frozen=True)
class Look:
    """A pass.

    Attributes:
        subject: the model.
        ids: (1, S) tokens of the passage.
        seen: the pass's trace.
    """

    subject: Subject
    ids: Tensor
    seen: Mapping[str, Tensor]

    @staticmethod
    def at(subject: Subject) -> Look:
        """Let the model read."""
        ids = subject.ids(min(TOKENS, subject.config.context_length))
        with trace(subject.model) as seen, torch.no_grad():
            subject.model(ids)
        return Look(subject, ids, seen)

    @cached_property
    def states(self) -> list[int]:
        """Layers with a state."""
        layers = range(self.subject.config.n_layers)
        return [layer for layer in layers if f"blocks.{layer}.attention.state" in self.seen]

    @cached_property
    def deltas(self) -> list[int]:
        """Of those, the ones with the delta rule."""
        return [n for n in self.states if isinstance(self.subject.model.blocks[n].attention, DeltaLayer)]

    @cached_property
    def caches(self) -> list[int]:
        """Layers that mix by softmax attention."""
        return list(self.subject.softmax)

    def of(self, layer: int, name: str) -> Tensor:
        """A tensor of a layer's mixer, batch dropped, in fp64."""
        return self.seen[f"blocks.{layer}.attention.{name}"][0].double()

    @property
    def source(self) -> str:
        """Whose numbers these are, as a sentence."""
        name = self.subject.name
        return f"{name[0].upper()}{name[1:]}."
