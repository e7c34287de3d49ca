"""Which keys a query may see.

A query in column i sees keys in columns j ≤ i, and under a window w only the last w of them, its own included
(i - w < j). Rows of a batch may be padded on the left: those columns hold no token and are seen by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from morph.nn.organ import remember


@dataclass(frozen=True)
class Mask:
    """What a softmax layer needs to know.

    Attributes:
        allowed: True where the query may see the key, (S, N) or (B, 1, S, N); None when a rule says it all.
        is_causal: with `allowed` None, whether keys after the query are hidden.
        window: with `is_causal`, how many keys back a query sees, its own included; None for all.
        bias: what is added to the scores besides, (H, S, N) or (B, H, S, N), -inf where hidden; None for nothing.
    """

    allowed: Bool[Tensor, "*b S N"] | None
    is_causal: bool
    window: int | None = None
    bias: Float[Tensor, "*c H S N"] | None = None

    def table(self, n_queries: int, n_keys: int, device: torch.device) -> Bool[Tensor, "*b S N"]:
        """The same as an explicit table."""
        if self.allowed is not None:
            return self.allowed
        if self.is_causal:
            return causal_table(n_queries, self.window, device)
        return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)


def visible(
    queries: Int[Tensor, "S"], keys: Int[Tensor, "N"], window: int | None, pads: Int[Tensor, "B"] | None
) -> Bool[Tensor, "*b S N"]:
    """The table for queries and keys standing in the given columns.

    Args:
        queries, keys: column numbers.
        window: tokens in sight, or None for all.
        pads: number of padding columns at the left of each row.

    Returns:
        (S, N), or (B, 1, S, N) with `pads`. A padding query sees everything: its result is never used, and a row
        of the softmax with nothing in sight would be undefined.
    """
    distance = queries[:, None] - keys[None, :]
    allowed = distance >= 0
    if window is not None:
        allowed = allowed & (distance < window)
    if pads is None:
        return allowed
    real_key = keys[None, :] >= pads[:, None]
    padding_query = queries[None, :] < pads[:, None]
    return ((allowed & real_key[:, None, :]) | padding_query[:, :, None])[:, None]


@remember
def causal_table(length: int, window: int | None, device: torch.device) -> Bool[Tensor, "S S"]:
    """The table of `length` tokens that start a text, none of them padding."""
    columns = torch.arange(length)
    return visible(columns, columns, window, None).to(device)


@remember
def block_table(blocks: int, window: int, device: torch.device) -> Bool[Tensor, "n 1 w w2"]:
    """For each block of `window` queries, which keys of the block before it and of its own it may see."""
    inside = visible(torch.arange(window, 2 * window), torch.arange(2 * window), window, None)
    first = inside & (torch.arange(2 * window) >= window)  # nothing stands before the first block
    return torch.stack((first, *[inside] * (blocks - 1)))[:, None].to(device)


def build_mask(
    queries: Int[Tensor, "S"],
    keys: Int[Tensor, "N"],
    window: int | None,
    pads: Int[Tensor, "B"] | None,
    is_fresh: bool,
) -> Mask:
    """The cheapest `Mask` for these columns; `is_fresh` says that no earlier tokens are cached."""
    if pads is None and is_fresh:
        return Mask(None, is_causal=True, window=None if window is None or window >= len(queries) else window)
    if pads is None and len(queries) == 1 and (window is None or int(queries[0] - keys[0]) < window):
        return Mask(None, is_causal=False)  # one new token, and every cached key is in its sight
    return Mask(visible(queries, keys, window, pads), is_causal=False)
