"""What the frames of figure 5 look at: one dense feed-forward network of a model, and what it read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from morph.measure.trace import trace
from morph.nn.feedforward import MLP, GatedMLP
from morph.story.moe_layer import feed_forward
from morph.story.subject import Subject

TOKENS, TEXTS = 64, 8
NO_GATE = "The feed-forward networks of this model have two matrices and no gate."
NO_DENSE = "Every layer of this model has experts in the place of one network: figure 8 shows them."


@dataclass(frozen=True)
class Look:
    """A network and its readings.

    Attributes:
        subject: the model.
        layer: the middle one of those with a dense network, None where all have experts.
        network: that layer's.
        x: (T, D), what it read of `TEXTS` texts, in fp64; the first text's tokens come first.
        tokens: of one text.
    """

    subject: Subject
    layer: int | None
    network: MLP | GatedMLP | None
    x: Tensor
    tokens: int

    @staticmethod
    def at(subject: Subject) -> Look:
        """Let the model read the figures' passage."""
        dense = [
            layer for layer, block in enumerate(subject.model.blocks) if isinstance(feed_forward(block), MLP | GatedMLP)
        ]
        length = min(TOKENS, subject.config.context_length)
        if not dense:
            return Look(subject, None, None, torch.zeros(0, subject.config.d_model), length)
        layer = dense[len(dense) // 2]
        network = feed_forward(subject.model.blocks[layer])
        assert isinstance(network, MLP | GatedMLP)
        read: list[Tensor] = []
        hook = network.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].detach().double()))
        try:
            with torch.no_grad(), trace(subject.model):
                subject.model(subject.ids(length, TEXTS))
        finally:
            hook.remove()
        return Look(subject, layer, network, read[0].flatten(0, 1), length)

    @property
    def lacks(self) -> str:
        """Why nothing gated can be shown, "" where it can."""
        return NO_DENSE if self.network is None else NO_GATE if isinstance(self.network, MLP) else ""

    @property
    def gated(self) -> GatedMLP:
        """The network, where it has a gate."""
        assert isinstance(self.network, GatedMLP)
        return self.network

    @property
    def last(self) -> Tensor:
        """(D,): what it read at the last token of the first text."""
        return self.x[self.tokens - 1]

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gate before its activation, and value, (..., F) each, in fp64."""
        with torch.no_grad():
            gate, value = (
                x @ part.weight.double().T + (0 if part.bias is None else part.bias.double())
                for part in (self.gated.gate, self.gated.up)
            )
        return gate, value

    @property
    def source(self) -> str:
        """Whose numbers these are, as a sentence."""
        name = self.subject.name
        return f"{name[0].upper()}{name[1:]}."

    @property
    def where(self) -> str:
        """The layer, as figures write it."""
        return "" if self.layer is None else f"layer {self.layer}"
