"""What decoding keeps of the past, one small object per layer under one protocol.

Softmax layers keep keys and values (`KVCache`), or short vectors that both unfold from (`LatentCache`); under a window
only those of the last w tokens, so the bytes stop growing. Recurrent layers keep a state of fixed size (`StateCache`),
those with a convolution the tail of its inputs as well (`ConvStateCache`). Nothing is written in place, so a snapshot
is a handful of references.

The law that the tests hold every stage to: a full forward pass, a prefill followed by decoding, and any chunking of
the text give the same logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from morph.errors import MorphError, short


class LayerCache:
    """What every layer's cache can do; all it holds are tensor attributes with the batch first, or None."""

    held: tuple[str, ...]

    def tensors(self) -> dict[str, Tensor | None]:
        """Name to tensor, in a fixed order."""
        return {name: getattr(self, name) for name in self.held}

    @property
    def nbytes(self) -> int:
        """Bytes of storage behind the tensors held now."""
        return sum(t.untyped_storage().nbytes() for t in self.tensors().values() if t is not None)

    def select(self, rows: Int[Tensor, "B2"]) -> None:
        """Keep these rows, in this order."""
        for name, tensor in self.tensors().items():
            if tensor is not None:
                setattr(self, name, tensor.index_select(0, rows.to(tensor.device)))

    def snapshot(self) -> dict[str, Any]:
        """References to what is held; later steps replace tensors and never change them."""
        return dict(vars(self))

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Come back to `snapshot`."""
        vars(self).update(snapshot)


class SightCache(LayerCache):
    """What a softmax layer keeps of the tokens in sight, (B, .., N, features), and their columns (N,) on the CPU.

    With a `window` w only the last w are kept: query i sees keys i-w+1 .. i, so nothing older can matter.
    """

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.columns: Tensor | None = None
        for name in self.held:
            setattr(self, name, None)

    def extend(self, new: tuple[Tensor, ...], columns: Int[Tensor, "S"]) -> tuple[tuple[Tensor, ...], Int[Tensor, "N"]]:
        """Add the new tokens' tensors, in the order of `held`; return all that some new query may see, and its columns.

        After a prefill longer than the window that is more than stays cached.
        """
        if self.columns is not None:
            self._keep_after(int(columns[0]))
            before = (getattr(self, name) for name in self.held)
            new = tuple(torch.cat(both, dim=-2) for both in zip(before, new, strict=True))
            columns = torch.cat((self.columns, columns))
        self.columns = columns
        for name, tensor in zip(self.held, new, strict=True):
            setattr(self, name, tensor)
        self._keep_after(int(columns[-1]))
        return new, columns

    def _keep_after(self, newest: int) -> None:
        """Drop what a query in column `newest` does not see."""
        if self.window is None or self.columns is None or not len(self.columns):
            return
        if newest - int(self.columns[0]) >= self.window:
            self._keep(self.columns > newest - self.window)

    def _keep(self, kept: Bool[Tensor, "N"]) -> None:
        """Drop all other tokens. Indexing copies, so that a short tail does not keep a long prefill's storage alive."""
        assert self.columns is not None
        self.columns = self.columns[kept]
        for name, tensor in self.tensors().items():
            if tensor is not None:
                setattr(self, name, tensor[..., kept, :])

    def evict(self, columns: Int[Tensor, "n"]) -> None:
        """Forget what stands in these columns."""
        if self.columns is not None:
            self._keep(~torch.isin(self.columns, columns.cpu()))


class KVCache(SightCache):
    """Keys and values (B, K, N, Dh) of one softmax layer."""

    held = ("keys", "values")
    keys: Tensor | None
    values: Tensor | None

    def append(
        self, keys: Float[Tensor, "B K S Dh"], values: Float[Tensor, "B K S Dh"], columns: Int[Tensor, "S"]
    ) -> tuple[Float[Tensor, "B K N Dh"], Float[Tensor, "B K N Dh"], Int[Tensor, "N"]]:
        """Add the new keys and values; return all that some new query may see, and the columns they stand in."""
        (keys, values), columns = self.extend((keys, values), columns)
        return keys, values, columns


class LatentCache(SightCache):
    """Normed latents (B, N, R) that keys and values unfold from, and one rotated key (B, N, Dr) for all heads."""

    held: tuple[str, ...] = ("latents", "rotary_keys")
    latents: Tensor | None
    rotary_keys: Tensor | None


class IndexedCache(LatentCache):
    """The same with the indexer's key of every token (B, N, Di)."""

    held = ("latents", "rotary_keys", "index_keys")
    index_keys: Tensor | None


class StateCache(LayerCache):
    """The state (B, H, Dk, Dv) of one recurrent layer, always in fp32 or fp64."""

    held: tuple[str, ...] = ("state",)

    def __init__(self) -> None:
        self.state: Tensor | None = None


class ConvStateCache(StateCache):
    """The same, and the last inputs (B, taps-1, channels) of the layer's convolution."""

    held = ("state", "tail")

    def __init__(self) -> None:
        super().__init__()
        self.tail: Tensor | None = None


@dataclass
class Cache:
    """The caches of all layers, how many columns they have seen, and each row's padding (B,), on the CPU.

    `made_for` is the config of the models that can use it.
    """

    batch_size: int
    layers: list[LayerCache]
    columns: int = 0
    pads: Tensor | None = None
    made_for: object = None

    @property
    def nbytes(self) -> int:
        """Bytes held now by all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, rows: Int[Tensor, "B2"]) -> None:
        """Keep these rows of the batch, in this order, in every layer.

        Raises:
            MorphError: for what is no list of rows that are there.
        """
        whole = isinstance(rows, Tensor) and rows.dtype in (torch.int64, torch.int32) and rows.ndim == 1
        if not whole or not len(rows) or not bool(((rows >= 0) & (rows < self.batch_size)).all()):
            found = rows.tolist() if isinstance(rows, Tensor) else rows
            raise MorphError(
                f"rows = {short(found)}: give a tensor of one or more whole numbers from 0 to {self.batch_size - 1}"
            )
        for layer in self.layers:
            layer.select(rows)
        self.batch_size = len(rows)
        self.pads = None if self.pads is None else self.pads.index_select(0, rows.cpu())

    def snapshot(self) -> Any:
        """Everything needed to come back to this moment."""
        layers = [layer.snapshot() for layer in self.layers]
        return self.batch_size, self.columns, self.pads, layers, self.made_for

    def restore(self, snapshot: Any) -> None:
        """Come back to the moment of `snapshot`. Raises MorphError for that of a cache for other models."""
        if snapshot[-1] is not self.made_for and snapshot[-1] != self.made_for:
            raise MorphError("this snapshot is that of a cache for models with another config; take one of this cache")
        self.batch_size, self.columns, self.pads, layers, _ = snapshot
        for layer, held in zip(self.layers, layers, strict=True):
            layer.restore(held)

    def evict(self, columns: Int[Tensor, "n"]) -> None:
        """Forget these columns in every softmax layer; a recurrent state cannot forget selectively.

        Raises:
            MorphError: for what is no tensor of whole numbers.
        """
        if not isinstance(columns, Tensor) or columns.dtype not in (torch.int64, torch.int32):
            raise MorphError(f"columns = {short(columns)}: give a tensor of whole numbers, such as torch.tensor([0])")
        for layer in self.layers:
            if isinstance(layer, SightCache):
                layer.evict(columns)

    def longest(self, length: int, lengths: Int[Tensor, "B"] | None) -> int:
        """Tokens in the longest row once `length` more columns, with `lengths` tokens in them, are admitted."""
        before = torch.zeros(1, dtype=torch.long) if self.pads is None else -self.pads
        return self.columns + int((before + (length if lengths is None else lengths.cpu())).max())

    def admit(self, batch_size: int, length: int, lengths: Int[Tensor, "B"] | None) -> None:
        """Take note of `length` new columns of which each row's last `lengths` hold tokens.

        Raises:
            MorphError: if the batch size differs from the cache's, or padding follows a row's first token.
        """
        if batch_size != self.batch_size:
            raise MorphError(
                f"{batch_size} rows for a cache of {self.batch_size}; make the cache with new_cache({batch_size})"
            )
        if lengths is not None:
            new = length - lengths.cpu()
            before = torch.zeros_like(new) if self.pads is None else self.pads
            started = before < self.columns
            if bool((started & (new > 0)).any()):
                row = int((started & (new > 0)).nonzero()[0])
                raise MorphError(f"row {row} is padded by {int(new[row])} after its first token; pad before it only")
            self.pads = before + new if bool((before + new > 0).any()) else None
        self.columns += length
