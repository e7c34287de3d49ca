"""Normalization of a feature vector.

LayerNorm (Ba et al., 2016):   γ ⊙ (x - μ) / √(σ² + ε) + β, with mean μ and variance σ² over the features.
RMSNorm (Zhang & Sennrich, 2019): γ ⊙ x / √(mean(x²) + ε): no centring, no shift, one reduction.

Variants: LayerNorm without its shift β (PaLM, 2022); RMSNorm that stores γ - 1, so that weight decay pulls γ to 1, not
to 0 (Gemma, 2024); RMSNorm of all heads of a token at once (OLMo 2, 2024). Gains γ start at 1 unless told otherwise.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from morph import config
from morph.nn.organ import Organ, use_plain
from morph.nn.own import own_organ

Features = Float[Tensor, "*B D"]


def alike(first: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the widest of their types, which fused kernels ask for (bf16 meets fp32 under autocast)."""
    dtype = functools.reduce(torch.promote_types, (t.dtype for t in others), first.dtype)
    return tuple(t.to(dtype) for t in (first, *others))


class Norm(Organ):
    """What every norm has: ε, a stored weight per feature, and a plain and a fused form."""

    def __init__(self, width: int, eps: float, gain: float = 1.0) -> None:
        super().__init__()
        self.eps, self.gain = eps, gain
        self.weight = nn.Parameter(torch.empty(width))

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.constant_(self.weight, self.gain)

    def plain(self, x: Features) -> Features:
        """The equation, word for word."""
        raise NotImplementedError

    def fused(self, x: Features) -> Features:
        """The same through torch's kernel."""
        raise NotImplementedError

    def forward(self, x: Features) -> Features:
        """`x` normalized over its last axis."""
        self.record(input=x)
        return self.plain(x) if use_plain() else self.fused(x)


class LayerNorm(Norm):
    """Standardize over the last axis, then scale and shift."""

    def __init__(self, width: int, eps: float, gain: float = 1.0) -> None:
        super().__init__(width, eps, gain)
        self.bias = nn.Parameter(torch.empty(width))

    def init_weights(self, generator: torch.Generator) -> None:
        super().init_weights(generator)
        nn.init.zeros_(self.bias)

    def plain(self, x: Features) -> Features:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).square().mean(-1, keepdim=True)
        return self.weight * (x - mean) * torch.rsqrt(variance + self.eps) + self.bias

    def fused(self, x: Features) -> Features:
        x, weight, bias = alike(x, self.weight, self.bias)
        return F.layer_norm(x, weight.shape, weight, bias, self.eps)


class LayerNormNoBias(Norm):
    """Standardize over the last axis, then scale."""

    def plain(self, x: Features) -> Features:
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)

    def fused(self, x: Features) -> Features:
        x, weight = alike(x, self.weight)
        return F.layer_norm(x, weight.shape, weight, None, self.eps)


class RMSNorm(Norm):
    """Divide by the root mean square over the last axis, then scale."""

    def plain(self, x: Features) -> Features:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def fused(self, x: Features) -> Features:
        x, weight = alike(x, self.weight)
        return F.rms_norm(x, weight.shape, weight, self.eps)


class ZeroCentredRMSNorm(Norm):
    """RMSNorm that stores its gain's distance from 1."""

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.constant_(self.weight, self.gain - 1)

    def plain(self, x: Features) -> Features:
        return (1 + self.weight) * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def fused(self, x: Features) -> Features:
        x, weight = alike(x, self.weight)
        return F.rms_norm(x, weight.shape, 1 + weight, self.eps)


class FullWidthRMSNorm(RMSNorm):
    """RMSNorm over all heads of a token together: heads keep their sizes relative to each other."""

    def plain(self, x: Float[Tensor, "B heads S Dh"]) -> Float[Tensor, "B heads S Dh"]:
        return self._in_heads(super().plain(x.transpose(1, 2).flatten(2)), x.shape[1])

    def fused(self, x: Float[Tensor, "B heads S Dh"]) -> Float[Tensor, "B heads S Dh"]:
        return self._in_heads(super().fused(x.transpose(1, 2).flatten(2)), x.shape[1])

    def _in_heads(self, x: Float[Tensor, "B S features"], heads: int) -> Float[Tensor, "B heads S Dh"]:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)


NORMS: dict[type[config.Norm], type[Norm]] = {
    config.LayerNorm: LayerNorm,
    config.LayerNormNoBias: LayerNormNoBias,
    config.RMSNorm: RMSNorm,
    config.ZeroCentredRMSNorm: ZeroCentredRMSNorm,
}


def build_norm(spec: config.Norm, width: int, gain: float = 1.0) -> Norm:
    """The module for a normalization record, over `width` features, with gains that start at `gain`."""
    own = own_organ(spec, width, gain)
    if own is not None:
        return own  # type: ignore[return-value]
    return NORMS[type(spec)](width, spec.eps, gain)


def build_qk_norm(spec: config.QKNorm, heads: int, head_dim: int) -> Norm:
    """The module that normalizes queries or keys (B, heads, S, Dh)."""
    if isinstance(spec, config.FullWidthRMSNorm):
        return FullWidthRMSNorm(heads * head_dim, spec.eps)
    return build_norm(spec, head_dim)
