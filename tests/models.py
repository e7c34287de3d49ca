"""Models and inputs that several tests use: every stage at nano size, all numbers moved off their initial values."""

from __future__ import annotations

import torch
from torch import Tensor

import morph
from morph.config import ModelConfig
from morph.forks import config_of
from morph.model import Decoder

STAGES = range(15)


def stage_model(
    stage: int | str | ModelConfig, seed: int = 0, size: str = "nano", dtype: torch.dtype = torch.float32
) -> Decoder:
    """A stage, fork or config, its norms, biases and selection biases moved off 0 and 1: none can go missing unseen."""
    model = morph.build(stage if isinstance(stage, ModelConfig) else config_of(stage, size), seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if (parameter.ndim < 2 or name.endswith("_bias")) and not name.endswith(("log_A", "dt_bias")):
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("selection_bias"):
                buffer.add_(0.02 * torch.randn(buffer.shape, generator=generator))
    return model.to(dtype).eval()


def random_ids(model: Decoder, batch: int, length: int, seed: int = 0) -> Tensor:
    """Token ids (batch, length)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.config.vocab_size, (batch, length), generator=generator)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected magnitude."""
    return float((actual.detach() - expected.detach()).abs().max() / expected.detach().abs().max())
