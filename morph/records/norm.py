"""Records of normalization; what they compute is in `morph.nn.norm`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from morph.spec import Spec


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Spec):
    """Subtract the mean, divide by the standard deviation, scale and shift (Ba et al., 2016)."""

    kind: ClassVar[str] = "layer-norm"
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class RMSNorm(Spec):
    """Divide by the root mean square and scale (Zhang & Sennrich, 2019)."""

    kind: ClassVar[str] = "rms-norm"
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class LayerNormNoBias(Spec):
    """LayerNorm with a gain and no shift (PaLM, 2022; Cohere's models, 2024)."""

    kind: ClassVar[str] = "layer-norm-no-bias"
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class ZeroCentredRMSNorm(Spec):
    """RMSNorm whose stored weight is its gain's distance from 1 (Gemma, 2024; Qwen3-Next, 2025)."""

    kind: ClassVar[str] = "zero-centred-rms-norm"
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class FullWidthRMSNorm(Spec):
    """On queries and keys: one mean square, and a gain for each feature, over all heads of a token (OLMo 2, 2024)."""

    kind: ClassVar[str] = "full-width-rms-norm"
    eps: float = 1e-5


Norm = LayerNorm | RMSNorm | LayerNormNoBias | ZeroCentredRMSNorm
QKNorm = RMSNorm | ZeroCentredRMSNorm | FullWidthRMSNorm
