"""Normalization of a feature vector.

LayerNorm (Ba et al., 2016):   γ ⊙ (x - μ) / √(σ² + ε) + β, with mean μ and variance σ² over the features.
RMSNorm (Zhang & Sennrich, 2019): γ ⊙ x / √(mean(x²) + ε): no centring, no shift, one reduction.
LayerNorm without its shift β (Cohere, 2024) stands between the two. Gains γ start at 1 unless told otherwise.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from morph import config
from morph.nn.organ import Organ, use_plain


def alike(first: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the widest of their types, which fused kernels ask for (bf16 meets fp32 under autocast)."""
    dtype = functools.reduce(torch.promote_types, (t.dtype for t in others), first.dtype)
    return tuple(t.to(dtype) for t in (first, *others))


class Norm(Organ):
    """What every norm has: ε and a gain per feature, which starts at `gain`."""

    def __init__(self, width: int, eps: float, gain: float = 1.0) -> None:
        super().__init__()
        self.eps, self.gain = eps, gain
        self.weight = nn.Parameter(torch.empty(width))

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.constant_(self.weight, self.gain)


class LayerNorm(Norm):
    """Standardize over the last axis, then scale and shift."""

    def __init__(self, width: int, eps: float, gain: float = 1.0) -> None:
        super().__init__(width, eps, gain)
        self.bias = nn.Parameter(torch.empty(width))

    def init_weights(self, generator: torch.Generator) -> None:
        super().init_weights(generator)
        nn.init.zeros_(self.bias)

    def plain(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The equation, word for word."""
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).square().mean(-1, keepdim=True)
        return self.weight * (x - mean) * torch.rsqrt(variance + self.eps) + self.bias

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The same through the fused kernel."""
        self.record(input=x)
        if use_plain():
            return self.plain(x)
        x, weight, bias = alike(x, self.weight, self.bias)
        return F.layer_norm(x, weight.shape, weight, bias, self.eps)


class LayerNormNoBias(Norm):
    """Standardize over the last axis, then scale."""

    def plain(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The equation, word for word."""
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The same through the fused kernel."""
        self.record(input=x)
        if use_plain():
            return self.plain(x)
        x, weight = alike(x, self.weight)
        return F.layer_norm(x, weight.shape, weight, None, self.eps)


class RMSNorm(Norm):
    """Divide by the root mean square over the last axis, then scale."""

    def plain(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The equation, word for word."""
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The same through the fused kernel."""
        self.record(input=x)
        if use_plain():
            return self.plain(x)
        x, weight = alike(x, self.weight)
        return F.rms_norm(x, weight.shape, weight, self.eps)


NORMS: dict[type[config.Norm], type[LayerNorm] | type[LayerNormNoBias] | type[RMSNorm]] = {
    config.LayerNorm: LayerNorm,
    config.LayerNormNoBias: LayerNormNoBias,
    config.RMSNorm: RMSNorm,
}


def build_norm(spec: config.Norm, width: int, gain: float = 1.0) -> LayerNorm | LayerNormNoBias | RMSNorm:
    """The module for a normalization record, over `width` features, with gains that start at `gain`."""
    return NORMS[type(spec)](width, spec.eps, gain)
