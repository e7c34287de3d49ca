"""Whether a model can be trained in the memory there is, told before anything is built or written."""

import torch

import morph
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.measure.memory import available_memory, gigabytes
from morph.train.recipe import Recipe

BYTES_PER_PARAMETER = 16  # weight, gradient and AdamW's two moments, in fp32
LOGIT_COPIES = 2  # the logits of a micro-batch and their gradient, in fp32


def require_memory(config: ModelConfig, recipe: Recipe, device: torch.device) -> None:
    """Raise MorphError when weights, moments and one micro-batch's logits alone do not fit the device's memory.

    They are a lower bound of what training takes: what passes may still be too large.
    """
    try:
        parameters = morph.count(config).total
    except (RuntimeError, OverflowError, TypeError):  # sizes that torch cannot even write down
        raise MorphError("the config's matrices are too large for any machine: give smaller widths") from None
    available = available_memory(device)
    if available is None:
        return
    weights = BYTES_PER_PARAMETER * parameters
    logits = 4 * LOGIT_COPIES * recipe.batch_size * config.context_length * config.vocab_size
    if weights + logits > available:
        remedy = "choose a smaller --size" if weights > available else "lower --batch-size"
        raise MorphError(
            f"training needs at least {gigabytes(weights + logits)}: {gigabytes(weights)} for {parameters:,} "
            f"parameters, {gigabytes(logits)} for batch_size {recipe.batch_size}; "
            f"{device} has {gigabytes(available)} free: {remedy}"
        )
