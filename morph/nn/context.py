"""What all layers of one forward pass share: where the tokens stand, and tables built once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from morph import config
from morph.nn.mask import Mask, build_mask, causal_table
from morph.nn.organ import remember
from morph.nn.position import alibi_bias, rotation_table, sinusoid_table


@remember
def _placed(
    table: Callable[..., Tensor], length: int, how: tuple[Any, ...], device: torch.device, dtype: torch.dtype
) -> Tensor:
    return table(length, *how).to(dtype).to(device)


def _table(table: Callable[..., Tensor], length: int, *how: Any, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`table(length, *how)` of at least `length` rows; rounded up, so that decoding seldom needs a longer one."""
    return _placed(table, 1 << max(length - 1, 63).bit_length(), how, device, dtype)


@remember
def _causal_bias(
    length: int, window: int | None, n_heads: int, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "H S S"]:
    """ALiBi's terms for `length` tokens that start a text, -inf where the mask hides a key."""
    columns = torch.arange(length)
    bias = alibi_bias(columns, columns, n_heads).to(dtype).to(device)
    return bias.masked_fill(~causal_table(length, window, device), float("-inf"))


class Context:
    """One forward pass over columns `past` .. `past + length - 1`.

    Attributes:
        columns: the columns of the tokens read now, (S,), on the CPU.
        positions: the place of each token in its own text, (S,) or (B, S) when rows are padded; padding gets 0.
        real: True where a column holds a token, (B, S); None when all do.
        penalties: terms that organs add to the loss, filled during the pass.
        lessons: what indexers have yet to learn of attention, likewise.
    """

    def __init__(
        self, past: int, length: int, pads: Int[Tensor, "B"] | None, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.columns = torch.arange(past, past + length)
        self.is_fresh, self.end, self.pads = past == 0, past + length, pads
        self.device, self.dtype = device, dtype
        self.real: Tensor | None = None
        self.positions = self.columns.to(device)
        if pads is not None:
            places = self.columns[None, :] - pads[:, None]
            self.positions, self.real = places.clamp(min=0).to(device), (places >= 0).to(device)
        self.penalties: list[Tensor] = []
        self.lessons: list[Tensor] = []
        self._masks: list[tuple[int | None, int, Tensor, Mask]] = []
        self._rotations: list[tuple[config.Rotary, int, tuple[Tensor, Tensor]]] = []

    def mask(self, window: int | None, keys: Int[Tensor, "N"], alibi_heads: int = 0) -> Mask:
        """Which of the keys standing in columns `keys` are visible; layers that hold the same columns share it.

        `alibi_heads` is the number of query heads of a layer whose scores ALiBi lowers, 0 for all other layers.
        """
        for held_window, held_heads, held_keys, mask in self._masks:
            same = held_window == window and held_heads == alibi_heads
            if same and (held_keys is keys or torch.equal(held_keys, keys)):
                return mask
        mask = build_mask(self.columns, keys, window, self.pads, self.is_fresh)
        if mask.allowed is not None:
            mask = replace(mask, allowed=mask.allowed.to(self.device))
        if alibi_heads:
            mask = replace(mask, bias=self._bias(mask, keys, alibi_heads))
        self._masks.append((window, alibi_heads, keys, mask))
        return mask

    def _bias(self, mask: Mask, keys: Int[Tensor, "N"], n_heads: int) -> Float[Tensor, "*b H S N"]:
        if mask.is_causal:
            return _causal_bias(len(keys), mask.window, n_heads, self.device, self.dtype)
        bias = alibi_bias(self.columns, keys, n_heads).to(self.dtype).to(self.device)
        return bias.masked_fill(~mask.table(len(self.columns), len(keys), self.device), float("-inf"))

    def sinusoid(self, spec: config.Sinusoid, width: int) -> Float[Tensor, "*b S D"]:
        """The vectors to add to the embedding."""
        return _table(sinusoid_table, self.end, width, spec.base, device=self.device, dtype=self.dtype)[self.positions]

    def rotation(
        self, spec: config.Rotary, width: int
    ) -> tuple[Float[Tensor, "*b S pairs"], Float[Tensor, "*b S pairs"]]:
        """Cosines and sines of every token's angles, shaped to turn (B, heads, S, width); equal layers share them."""
        for held, held_width, rotation in self._rotations:
            if held_width == width and (held is spec or held == spec):
                return rotation
        table = _table(rotation_table, self.end, spec, width, device=self.device, dtype=self.dtype)
        cos, sin = table[0][self.positions], table[1][self.positions]
        rotation = (cos, sin) if self.pads is None else (cos[:, None], sin[:, None])
        self._rotations.append((spec, width, rotation))
        return rotation
