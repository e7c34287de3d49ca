"""Cross-entropy of a linear head, without ever holding all logits of a large vocabulary.

For 8 x 8192 tokens and a vocabulary of 151,936 the fp32 logits alone are 37 GiB. Here they are made for a slice of the
tokens at a time, reduced to a number, forgotten, and made again when the gradient is wanted.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from morph import config
from morph.nn.logits import logits_of

FEW = 2**24  # logits up to here (64 MiB in fp32) are simply made at once


def summed_cross_entropy(
    x: Float[Tensor, "T D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "T"],
    rule: config.LogitRule | None = None,
) -> Float[Tensor, ""]:
    """Sum of -log softmax(logits)[target] over the tokens whose target is not -100, in nats; fp32 or better."""
    logits = logits_of(x, weight, rule)
    return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets, reduction="sum")


def cross_entropy(
    x: Float[Tensor, "T D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "T"],
    rule: config.LogitRule | None = None,
) -> Float[Tensor, ""]:
    """The same as a mean over the counted tokens, in slices when there are more than `FEW` logits."""
    counted = (targets != -100).sum().clamp(min=1)
    rows = max(1, FEW // len(weight))
    if len(x) <= rows:
        return summed_cross_entropy(x, weight, targets, rule) / counted
    slices = zip(x.split(rows), targets.split(rows), strict=True)
    parts = [
        checkpoint(summed_cross_entropy, some, weight, wanted, rule, use_reentrant=False) for some, wanted in slices
    ]
    return torch.stack(parts).sum() / counted
