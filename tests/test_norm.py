"""Normalization: the equations, the fused kernels, and mixed precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from morph.nn.norm import LayerNorm, RMSNorm
from tests.models import relative_error


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_the_fused_kernel_is_the_equation(kind: type[LayerNorm | RMSNorm], dtype: torch.dtype, bound: float) -> None:
    norm = kind(13, eps=1e-3)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(13))
    norm = norm.to(dtype)
    x = (3 * torch.randn(4, 5, 13) + 1).to(dtype)
    assert relative_error(norm(x).double(), norm.plain(x).double()) < bound


def test_values_by_hand() -> None:
    x = torch.tensor([[3.0, -4.0]])
    rms = RMSNorm(2, eps=1e-9)
    nn.init.constant_(rms.weight, 2.0)
    assert rms(x).flatten().tolist() == pytest.approx([2 * 3 / 12.5**0.5, -2 * 4 / 12.5**0.5])
    layer = LayerNorm(2, eps=1e-9)
    nn.init.constant_(layer.weight, 2.0)
    nn.init.constant_(layer.bias, 0.5)
    assert layer(x).flatten().tolist() == pytest.approx([2.5, -1.5])  # the mean is -0.5, the deviation 3.5


@pytest.mark.parametrize(("x", "weight"), [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)])
def test_mixed_types_are_normalized_in_the_wider_one(x: torch.dtype, weight: torch.dtype) -> None:
    norm = RMSNorm(8, eps=1e-5)
    nn.init.ones_(norm.weight)
    assert norm.to(weight)(torch.randn(2, 8).to(x)).dtype == torch.float32
