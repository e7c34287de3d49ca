"""What the frames of figure 5 look at: one feed-forward network of a model, and what it read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from morph.config import ClampedGatedMLP, DenseFirst, ModelConfig, MoE
from morph.config import GatedMLP as GatedSpec
from morph.measure.trace import trace
from morph.nn.feedforward import MLP, GatedMLP
from morph.nn.moe import MixtureOfExperts
from morph.story.moe_layer import feed_forward
from morph.story.subject import Subject

TOKENS, TEXTS = 64, 8
NO_GATE = "The feed-forward networks of this model have two matrices and no gate."
NO_DENSE = "Routed experts stand in the place of every network of this model: figure 8 shows them."


@dataclass(frozen=True)
class Look:
    """A network and its readings.

    Attributes:
        subject: the model.
        layer: the middle one of those that have a network which every token uses, None where none has.
        network: that layer's dense one, or its first shared expert.
        x: (T, D), what it read of `TEXTS` texts, in fp64; the first text's tokens come first.
        tokens: of one text.
        beside: a look at a network with two matrices, to be set beside this one.
    """

    subject: Subject
    layer: int | None
    network: MLP | GatedMLP | None
    x: Tensor
    tokens: int
    beside: Look | None = None

    @staticmethod
    def at(subject: Subject, beside: Look | None = None) -> Look:
        """Let the model read the figures' passage."""
        found = [_for_every_token(feed_forward(block)) for block in subject.model.blocks]
        layers = [layer for layer, network in enumerate(found) if network is not None]
        length = min(TOKENS, subject.config.context_length)
        if not layers:
            return Look(subject, None, None, torch.zeros(0, subject.config.d_model), length, beside)
        layer = layers[len(layers) // 2]
        network = found[layer]
        assert network is not None
        read: list[Tensor] = []
        hook = network.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].detach().double()))
        try:
            with torch.no_grad(), trace(subject.model):
                subject.model(subject.ids(length, TEXTS))
        finally:
            hook.remove()
        return Look(subject, layer, network, read[0].flatten(0, 1), length, beside)

    @property
    def lacks(self) -> str:
        """Why nothing gated can be shown, "" where it can."""
        return NO_DENSE if self.network is None else NO_GATE if isinstance(self.network, MLP) else ""

    @property
    def plain(self) -> Look | None:
        """A look at a network with two matrices: this one, the one beside it, or None where there is neither."""
        return self if isinstance(self.network, MLP) else self.beside

    @property
    def gated(self) -> GatedMLP:
        """The network, where it has a gate."""
        assert isinstance(self.network, GatedMLP)
        return self.network

    @property
    def last(self) -> Tensor:
        """(D,): what it read at the last token of the first text."""
        return self.x[self.tokens - 1]

    @property
    def inputs(self) -> Tensor:
        """(T, F): what goes into the bend, of the gate where there is one."""
        part = self.network.up if isinstance(self.network, MLP) else self.gated.gate
        return _through(part, self.x)

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gate before its activation, and value, (..., F) each, in fp64."""
        return _through(self.gated.gate, x), _through(self.gated.up, x)

    def factors(self, gate: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The bent gate, and the value as it is multiplied: gpt-oss's is clamped and 1 larger."""
        expert = self.subject.config.feed_forward_in(self.layer or 0)
        spec = expert.expert if isinstance(expert, MoE) else expert
        neutral = 0.0 if isinstance(spec, ClampedGatedMLP) else 1.0  # the value that is multiplied as 1
        meet, one = self.gated.meet, torch.ones_like(gate)
        return meet(gate, neutral * one), meet(one, value) / meet(one, neutral * one)

    @property
    def source(self) -> str:
        """Whose numbers these are, as a sentence."""
        name = self.subject.name
        return f"{name[0].upper()}{name[1:]}."

    @property
    def where(self) -> str:
        """The layer, as figures write it."""
        if self.layer is None:
            return ""
        is_shared = isinstance(feed_forward(self.subject.model.blocks[self.layer]), MixtureOfExperts)
        return f"layer {self.layer}{', shared expert' if is_shared else ''}"


def _through(part: nn.Linear, x: Tensor) -> Tensor:
    """A linear map in fp64."""
    with torch.no_grad():
        return x @ part.weight.double().T + (0 if part.bias is None else part.bias.double())


def _for_every_token(organ: nn.Module) -> MLP | GatedMLP | None:
    """A layer's network that every token uses: the dense one, or the first shared expert."""
    if isinstance(organ, MixtureOfExperts):
        organ = organ.shared[0] if len(organ.shared) else organ
    return organ if isinstance(organ, MLP | GatedMLP) else None


def with_activation(config: ModelConfig, name: str) -> ModelConfig | None:
    """The config with another bend in every gate; None where some network has no gate to bend so."""

    def bent(spec: object) -> GatedSpec | MoE | DenseFirst | None:
        if isinstance(spec, GatedSpec):
            return replace(spec, activation=name)  # type: ignore[arg-type]
        if isinstance(spec, MoE) and isinstance(expert := bent(spec.expert), GatedSpec):
            return replace(spec, expert=expert)
        if isinstance(spec, DenseFirst):
            dense, experts = bent(spec.dense), bent(spec.experts)
            if isinstance(dense, GatedSpec) and isinstance(experts, MoE):
                return replace(spec, dense=dense, experts=experts)
        return None

    found = bent(config.feed_forward)
    return None if found is None else replace(config, feed_forward=found)
