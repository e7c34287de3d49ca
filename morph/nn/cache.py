"""What decoding keeps of the past, one small object per layer under one protocol.

Softmax layers keep keys and values (`KVCache`; under a window only the last w, so the bytes stop growing);
delta layers keep a state of fixed size and the tail of their convolution (`StateCache`). Nothing is written in
place, so a snapshot is a handful of references.

The law that the tests hold every stage to: a full forward pass, a prefill followed by decoding, and any chunking of
the text give the same logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from morph.errors import MorphError


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


class KVCache(LayerCache):
    """Keys and values (B, K, N, Dh) of one softmax layer, and the columns (N,) they stand in, kept on the CPU.

    With a `window` w only the last w are kept: query i sees keys i-w+1 .. i, so nothing older can matter.
    """

    held = ("keys", "values")

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.columns: Tensor | None = None

    def append(
        self, keys: Float[Tensor, "B K S Dh"], values: Float[Tensor, "B K S Dh"], columns: Int[Tensor, "S"]
    ) -> tuple[Float[Tensor, "B K N Dh"], Float[Tensor, "B K N Dh"], Int[Tensor, "N"]]:
        """Add the new keys and values; return all that some new query may see, and the columns they stand in.

        After a prefill longer than the window that is more than stays cached.
        """
        if self.keys is not None and self.values is not None and self.columns is not None:
            self._keep_after(int(columns[0]))
            keys = torch.cat((self.keys, keys), dim=2)
            values = torch.cat((self.values, values), dim=2)
            columns = torch.cat((self.columns, columns))
        self.keys, self.values, self.columns = keys, values, columns
        self._keep_after(int(columns[-1]))
        return keys, values, columns

    def _keep_after(self, newest: int) -> None:
        """Drop what a query in column `newest` does not see."""
        if self.window is None or self.keys is None or self.values is None or self.columns is None:
            return
        if len(self.columns) and newest - int(self.columns[0]) >= self.window:
            seen = self.columns > newest - self.window
            # Indexing copies, so that a short tail does not keep a long prefill's storage alive.
            self.keys, self.values = self.keys[:, :, seen], self.values[:, :, seen]
            self.columns = self.columns[seen]

    def evict(self, columns: Int[Tensor, "n"]) -> None:
        """Forget the keys and values that stand in these columns."""
        if self.keys is not None and self.values is not None and self.columns is not None:
            kept = ~torch.isin(self.columns, columns.cpu())
            self.keys, self.values = self.keys[:, :, kept], self.values[:, :, kept]
            self.columns = self.columns[kept]


class StateCache(LayerCache):
    """The state (B, H, Dk, Dv) of one recurrent layer and the last inputs (B, taps-1, channels) of its convolution."""

    held = ("state", "tail")

    def __init__(self) -> None:
        self.state: Tensor | None = None
        self.tail: Tensor | None = None


@dataclass
class Cache:
    """The caches of all layers, how many columns they have seen, and each row's padding (B,), on the CPU."""

    batch_size: int
    layers: list[KVCache | StateCache]
    columns: int = 0
    pads: Tensor | None = field(default=None)

    @property
    def nbytes(self) -> int:
        """Bytes held now by all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, rows: Int[Tensor, "B2"]) -> None:
        """Keep these rows of the batch, in this order, in every layer."""
        for layer in self.layers:
            layer.select(rows)
        self.batch_size = len(rows)
        self.pads = None if self.pads is None else self.pads.index_select(0, rows.cpu())

    def snapshot(self) -> Any:
        """Everything needed to come back to this moment."""
        return self.batch_size, self.columns, self.pads, [layer.snapshot() for layer in self.layers]

    def restore(self, snapshot: Any) -> None:
        """Come back to the moment of `snapshot`."""
        self.batch_size, self.columns, self.pads, layers = snapshot
        for layer, held in zip(self.layers, layers, strict=True):
            layer.restore(held)

    def evict(self, columns: Int[Tensor, "n"]) -> None:
        """Forget these columns in every softmax layer; a recurrent state cannot forget selectively."""
        for layer in self.layers:
            if isinstance(layer, KVCache):
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
