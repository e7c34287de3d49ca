"""One attention layer of a live model, asked with rows and rotations of our choosing: what figure 3 measures on.

All arithmetic is in fp64 on a copy of the layer. A head's features are taken in pairs, each pair as one complex number,
so that turning by an angle is one product.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import morph
from morph.config import LearnedPosition, NoPosition, Rotation, Sinusoid
from morph.nn.attention import SoftmaxAttention
from morph.nn.context import Context
from morph.nn.position import frequencies
from morph.story.subject import Subject

EXACT = 1e-9
"""What fp64 may leave of a difference that is zero by construction."""
TURN = 2 * np.pi


@dataclass(frozen=True)
class Layer:
    """A softmax layer, the passage it reads, and what each token brings to it.

    Attributes:
        index: of its block.
        attention: a copy of the layer in fp64.
        ids: the tokens, (S,).
        x: what the layer reads, (S, D).
    """

    index: int
    attention: SoftmaxAttention
    ids: list[int]
    x: Tensor

    @property
    def rope(self) -> Rotation | None:
        """How the layer turns its queries and keys."""
        return self.attention.rope

    @property
    def speeds(self) -> np.ndarray:
        """Radians per token of each pair that turns, (pairs,); none in a layer that does not rotate."""
        if self.rope is None:
            return np.zeros(0)
        return np.asarray(frequencies(self.rope, self.attention.head_dim).numpy())

    def attend(self, x: Tensor, rope: Rotation | None) -> dict[str, np.ndarray]:
        """The layer's own forward pass over rows `x` (S, D) at places 0 .. S-1, by the trace's names; batch dropped.

        With `rope` None the layer is told nothing of places, but for its causal mask.
        """
        seen: dict[str, Tensor] = {}
        layer = deepcopy(self.attention)
        layer.rope, layer.alibi_heads, layer.recorder = rope, 0, seen.__setitem__
        with torch.no_grad():
            layer(x[None], Context(0, len(x), None, x.device, x.dtype))
        return {name: tensor[0].numpy() for name, tensor in seen.items()}


def layers(subject: Subject, length: int) -> list[Layer]:
    """The model's layers of whole keys and values after one pass over `length` tokens of the passage."""
    found = {index: mixer for index, mixer in subject.softmax.items() if isinstance(mixer, SoftmaxAttention)}
    read: dict[SoftmaxAttention, Tensor] = {}

    def keep(attention: SoftmaxAttention, inputs: tuple[Tensor, ...]) -> None:
        read[attention] = inputs[0][0].detach().double()

    hooks = [attention.register_forward_pre_hook(keep) for attention in found.values()]
    ids = subject.ids(length)
    try:
        with torch.no_grad():
            subject.model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return [
        Layer(index, deepcopy(attention).double(), ids[0].tolist(), read[attention])
        for index, attention in found.items()
    ]


def unplaced(subject: Subject) -> Subject:
    """The same weights without a vector added to the embedding; a model that adds none is returned as it is."""
    if not isinstance(subject.config.position, Sinusoid | LearnedPosition):
        return subject
    model = morph.build(replace(subject.config, position=NoPosition())).eval()
    model.load_state_dict(subject.model.state_dict(), strict=False)
    return replace(subject, model=model)


def pairs(x: np.ndarray, turning: int) -> np.ndarray:
    """The first 2 x `turning` features as complex numbers (..., turning): feature i beside feature i + turning."""
    return np.asarray(x[..., :turning] + 1j * x[..., turning : 2 * turning])


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Dot products of pairs, elementwise: the real part of a times the conjugate of b."""
    return np.asarray((a * b.conj()).real)
