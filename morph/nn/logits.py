"""From the stream to logits: the one place where they are made, for reading, for the loss and for writing text.

z = x Wᵀ,  then  z · scale  (Cohere, 2024)  or  cap · tanh(z / cap)  (Gemma 2, 2024) where the config says so
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from morph import config


def logits_of(
    x: Float[Tensor, "*T D"], weight: Float[Tensor, "V D"], rule: config.LogitRule | None = None
) -> Float[Tensor, "*T V"]:
    """What the head says of every token of the vocabulary."""
    logits = F.linear(x, weight)
    if isinstance(rule, config.LogitScale):
        return logits * rule.scale
    if isinstance(rule, config.LogitCap):
        return rule.cap * torch.tanh(logits / rule.cap)
    return logits
