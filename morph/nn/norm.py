"""Normalization of a feature vector.

LayerNorm (Ba et al., 2016):   γ ⊙ (x - μ) / √(σ² + ε) + β, with mean μ and variance σ² over the features.
RMSNorm (Zhang & Sennrich, 2019): γ ⊙ x / √(mean(x²) + ε): no centring, no shift, one reduction.
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


class LayerNorm(Organ):
    """Standardize over the last axis, then scale and shift."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.ones_(self.weight)
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


class RMSNorm(Organ):
    """Divide by the root mean square over the last axis, then scale."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.ones_(self.weight)

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


def build_norm(spec: config.Norm, width: int) -> LayerNorm | RMSNorm:
    """The module for a normalization record, over `width` features."""
    if isinstance(spec, config.LayerNorm):
        return LayerNorm(width, spec.eps)
    return RMSNorm(width, spec.eps)
