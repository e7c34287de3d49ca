"""The work of attention's two products, q kᵀ and weights v, as torch's own counter sees it.

The counter reads matrix products and nothing of the fused kernels, so it is set on plain forms: on a model's layer,
which forms every score and masks afterwards, and on the same queries and keys cut in blocks of one window, which
forms only what lies in a query's own block and the one before.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from morph import config
from morph.model import Decoder
from morph.nn.attention import plain_attention
from morph.nn.cache import Cache
from morph.nn.mask import Mask, visible
from morph.nn.organ import plain_forms


@torch.no_grad()
def dense_flops(model: Decoder, ids: Int[Tensor, "B S"], cache: Cache | None = None) -> list[int]:
    """FLOPs of scores and weighted sums in every layer of a forward pass in plain form (0 for a delta layer's).

    With a `cache`, which reads them, `ids` meet what it holds as well: one more token is a step of decoding.
    """
    counter = FlopCounterMode(display=False)
    with counter, plain_forms():
        model(ids, cache=cache)
    found = counter.get_flop_counts()
    layers = [f"{type(model).__name__}.blocks.{layer}.attention" for layer in range(len(model.blocks))]
    return [int(found.get(name, {}).get(torch.ops.aten.bmm, 0)) for name in layers]


@torch.no_grad()
def blocked(
    q: Float[Tensor, "B H S Dh"], k: Float[Tensor, "B K S Dh"], v: Float[Tensor, "B K S Dh"], window: int
) -> tuple[Float[Tensor, "B H S Dh"], int]:
    """Windowed attention a block of `window` queries at a time in plain form, and the FLOPs it took."""
    outs, counter = [], FlopCounterMode(display=False)
    with counter:
        for start in range(0, q.shape[2], window):
            end = min(start + window, q.shape[2])
            first = max(0, start - window)
            mask = Mask(visible(torch.arange(start, end), torch.arange(first, end), window, None), is_causal=False)
            outs.append(plain_attention(q[:, :, start:end], k[:, :, first:end], v[:, :, first:end], mask))
    return torch.cat(outs, dim=2), int(counter.get_total_flops())


def blocked_flops(attention: config.Attention, length: int, window: int) -> int:
    """FLOPs that `blocked` takes for one text of `length` tokens; they depend on shapes alone, so zeros will do."""
    q = torch.zeros(1, attention.n_heads, length, attention.width)
    k = torch.zeros(1, attention.n_kv_heads, length, attention.width)
    return blocked(q, k, k, window)[1]
