"""A sink: one learned logit per query head that takes part in the softmax and carries no value.

    w_ij = exp(s_ij) / (exp(b_h) + Σ_n exp(s_in))        what is left over, exp(b_h) / (same), reaches nothing

A softmax must spend its whole weight, and trained models park what they cannot use on the first token (Xiao et al.,
2023). A sink gives it a place of its own (Miller, 2023, with b = 0; gpt-oss, 2025, with one b per head). The logit is
compared with the scaled scores as it is.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from morph.nn.organ import Organ

Logits = Float[Tensor, "H"]


class Sink(Organ):
    """The logits, at 0 in the beginning: one more key, neither liked nor disliked."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.empty(n_heads))

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.logits)


def softmax_with_sink(
    scores: Float[Tensor, "B H S N"], logits: Logits
) -> tuple[Float[Tensor, "B H S N"], Float[Tensor, "B H S"]]:
    """The weights of the keys, and that of the sink; together they sum to 1."""
    column = logits.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat((scores, column), dim=-1).softmax(dim=-1)
    return weights[..., :-1], weights[..., -1]


def fused_with_sink(
    q: Float[Tensor, "B H S Dh"],
    k: Float[Tensor, "B K N Dh"],
    v: Float[Tensor, "B K N Dh"],
    allowed: Bool[Tensor, "*b S N"] | Float[Tensor, "*b S N"] | None,
    is_causal: bool,
    logits: Logits,
) -> Float[Tensor, "B H S Dh"]:
    """The same through torch's fused kernel, which knows no sinks: the sink becomes a key.

    Queries get one feature more, which holds √Dh b_h, and of the keys only the sink's, put first, has a 1 there: its
    scaled score is b_h for every query, the others keep theirs, and its value is 0. Causally, a query that is thrown
    away again stands first too, so that every other one sees the sink and its own past. Features are filled up to a
    multiple of eight, as kernels like them.
    """
    (B, H, S, Dh), K = q.shape, k.shape[1]
    extra = 8 - Dh % 8
    mark = F.pad((logits * Dh**0.5).to(q.dtype)[:, None, None], (0, extra - 1))
    sink = F.pad(torch.ones_like(k[:, :, :1, :1]), (Dh, extra - 1))
    q = torch.cat((q, mark.expand(B, H, S, extra)), dim=-1)
    k = torch.cat((sink, F.pad(k, (0, extra))), dim=2)
    v = F.pad(v, (0, extra, 1, 0))
    if is_causal:
        q = F.pad(q, (0, 0, 1, 0))
    elif allowed is not None:
        allowed = F.pad(allowed, (1, 0), value=True if allowed.dtype == torch.bool else 0.0)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, is_causal=is_causal, enable_gqa=H != K, scale=Dh**-0.5
    )
    return out[:, :, is_causal:, :Dh]
