"""What all layers of one forward pass share: where the tokens stand, and tables built once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from morph import config
from morph.nn.mask import Mask, build_mask
from morph.nn.organ import remember
from morph.nn.position import rotation_table, sinusoid_table

Table = Callable[[int, int, float], Tensor]


@remember
def _placed(table: Table, length: int, width: int, base: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    return table(length, width, base).to(dtype).to(device)


def _table(table: Table, length: int, width: int, base: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A position table of at least `length` rows; rounded up, so that decoding seldom needs a longer one."""
    return _placed(table, 1 << max(length - 1, 63).bit_length(), width, base, device, dtype)


class Context:
    """One forward pass over columns `past` .. `past + length - 1`.

    Attributes:
        columns: the columns of the tokens read now, (S,), on the CPU.
        positions: the place of each token in its own text, (S,) or (B, S) when rows are padded; padding gets 0.
        real: True where a column holds a token, (B, S); None when all do.
        penalties: terms that organs add to the loss, filled during the pass.
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
        self._masks: list[tuple[int | None, Tensor, Mask]] = []
        self._rotation: tuple[Tensor, Tensor] | None = None

    def mask(self, window: int | None, keys: Int[Tensor, "N"]) -> Mask:
        """Which of the keys standing in columns `keys` are visible; layers that hold the same columns share it."""
        for held_window, held_keys, mask in self._masks:
            if held_window == window and (held_keys is keys or torch.equal(held_keys, keys)):
                return mask
        mask = build_mask(self.columns, keys, window, self.pads, self.is_fresh)
        if mask.allowed is not None:
            mask = replace(mask, allowed=mask.allowed.to(self.device))
        self._masks.append((window, keys, mask))
        return mask

    def sinusoid(self, spec: config.Sinusoid, width: int) -> Float[Tensor, "*b S D"]:
        """The vectors to add to the embedding."""
        return _table(sinusoid_table, self.end, width, spec.base, self.device, self.dtype)[self.positions]

    def rotation(self, spec: config.Rope, width: int) -> tuple[Float[Tensor, "*b S half"], Float[Tensor, "*b S half"]]:
        """Cosines and sines of every token's angles, shaped to turn (B, heads, S, Dh)."""
        if self._rotation is None:
            table = _table(rotation_table, self.end, width, spec.base, self.device, self.dtype)
            cos, sin = table[0][self.positions], table[1][self.positions]
            self._rotation = (cos, sin) if self.pads is None else (cos[:, None], sin[:, None])
        return self._rotation
