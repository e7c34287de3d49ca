"""One attention layer of a live model, asked with rows and rotations of our choosing: what figure 3 measures on.

All arithmetic is in fp64 on a copy of the layer. A head's features are taken in pairs, each pair as one complex number,
so that turning by an angle is one product.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

import morph
from morph.config import LearnedPosition, NoPosition, Pairing, Rotation, Sinusoid
from morph.nn.attention import SoftmaxAttention, SoftmaxMixer, attention_weights
from morph.nn.context import Context
from morph.nn.latent import LatentAttention
from morph.nn.mask import Mask
from morph.nn.position import attention_scale, frequencies
from morph.story.subject import Subject

EXACT = 1e-9
"""What fp64 may leave of a difference that is zero by construction, relative to what it is a difference of."""
TURN = 2 * np.pi


@dataclass(frozen=True)
class Layer:
    """A softmax layer, the passage it reads, and what each token brings to it.

    Attributes:
        index: of its block.
        mixer: the model's own layer.
        ids: the tokens, (S,).
        x: what the layer reads, (S, D), in fp64.
    """

    index: int
    mixer: SoftmaxMixer
    ids: list[int]
    x: Tensor

    @cached_property
    def attention(self) -> SoftmaxMixer:
        """A copy of the layer in fp64."""
        return deepcopy(self.mixer).double()

    @property
    def rope(self) -> Rotation | None:
        """How the layer turns its queries and keys."""
        return self.mixer.rope

    @property
    def width(self) -> int:
        """Features of a head among which the rotation finds those that turn: all, but for a head of latents."""
        if isinstance(self.mixer, LatentAttention):
            return self.mixer.spec.rope_dim
        assert isinstance(self.mixer, SoftmaxAttention)
        return self.mixer.head_dim

    @property
    def scale(self) -> float:
        """What multiplies the product of a traced query and key."""
        return self.mixer.scale if isinstance(self.mixer, LatentAttention) else float(self.width**-0.5)

    @property
    def speeds(self) -> np.ndarray:
        """Radians per token of each pair that turns, (pairs,); none in a layer that does not rotate."""
        return np.zeros(0) if self.rope is None else np.asarray(frequencies(self.rope, self.width).numpy())

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Heads of unrotated queries or keys (..., Dh) as the pairs that will turn, and the features that will not.

        A rotation that enlarges what it turns (YaRN) has done so here.
        """
        assert self.rope is not None
        count, first = 2 * len(self.speeds), x.shape[-1] - self.width  # a head of latents turns its last features
        turning = pairs(x[..., first : first + count], count // 2, self.rope.pairing) * attention_scale(self.rope)
        return turning, np.concatenate((x[..., :first], x[..., first + count :]), axis=-1)

    def capped(self, scores: np.ndarray) -> np.ndarray:
        """Scaled scores as the softmax reads them: within the layer's cap, if it has one."""
        cap = self.mixer.cap if isinstance(self.mixer, SoftmaxAttention) else None
        return scores if cap is None else cap * np.tanh(scores / cap)

    def attend(self, x: Tensor, rope: Rotation | None) -> dict[str, np.ndarray]:
        """The layer's own forward pass over rows `x` (S, D) at places 0 .. S-1, by the trace's names; batch dropped.

        With `rope` None the layer is told nothing of places, but for its causal mask.
        """
        seen: dict[str, Tensor] = {}
        layer = deepcopy(self.attention)
        layer.rope, layer.recorder = rope, seen.__setitem__
        if isinstance(layer, SoftmaxAttention):
            layer.alibi_heads = 0
        with torch.no_grad():
            layer(x[None], Context(0, len(x), None, x.device, x.dtype))
        return {name: tensor[0].numpy() for name, tensor in seen.items()}

    def unmasked(self, seen: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Attention of traced queries, keys and values with no mask: weights (H, S, S), outputs (H, S, Dv)."""
        q, k, v = (torch.from_numpy(seen[name])[None] for name in ("queries", "keys", "values"))
        sink, cap, layer = None, None, self.attention
        if isinstance(layer, SoftmaxAttention):
            sink, cap = None if layer.sink is None else layer.sink.logits, layer.cap
        with torch.no_grad():
            q = q * (self.scale * q.shape[-1] ** 0.5)  # what follows divides by √Dh
            weights = attention_weights(q, k, Mask(None, is_causal=False), sink, cap)[1]
            out = weights @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
        return weights[0].numpy(), out[0].numpy()


def layers(subject: Subject, length: int) -> list[Layer]:
    """The model's softmax layers after one pass over `length` tokens of the passage."""
    found = subject.softmax
    read: dict[SoftmaxMixer, Tensor] = {}

    def keep(attention: SoftmaxMixer, inputs: tuple[Tensor, ...]) -> None:
        read[attention] = inputs[0][0].detach().double()

    hooks = [attention.register_forward_pre_hook(keep) for attention in found.values()]
    ids = subject.ids(length)
    try:
        with torch.no_grad():
            subject.model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return [Layer(index, attention, ids[0].tolist(), read[attention]) for index, attention in found.items()]


def unplaced(subject: Subject) -> Subject:
    """The same weights without a vector added to the embedding; a model that adds none is returned as it is."""
    if not isinstance(subject.config.position, Sinusoid | LearnedPosition):
        return subject
    model = morph.build(replace(subject.config, position=NoPosition())).eval()
    model.load_state_dict(subject.model.state_dict(), strict=False)
    return replace(subject, model=model)


def pairs(x: np.ndarray, turning: int, pairing: Pairing = "half-split") -> np.ndarray:
    """The first 2 x `turning` features as complex numbers (..., turning).

    Feature i stands beside feature i + turning or, "interleaved", feature 2i beside 2i + 1.
    """
    if pairing == "interleaved":
        return np.asarray(x[..., 0 : 2 * turning : 2] + 1j * x[..., 1 : 2 * turning : 2])
    return np.asarray(x[..., :turning] + 1j * x[..., turning : 2 * turning])


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Dot products of pairs, elementwise: the real part of a times the conjugate of b."""
    return np.asarray((a * b.conj()).real)
