"""What a cache holds, tensor by tensor: by the name of its layer, with shape and bytes.

cache = model.new_cache()
model(ids, cache=cache)
for tensor in held(cache):
    print(tensor.name, tensor.shape, tensor.nbytes)        # blocks.3.keys (1, 2, 128, 24) 24576
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from morph.nn.cache import Cache

SHAPES: dict[str, tuple[str, str]] = {
    "keys": ("B K N Dh", "keys in sight of the next token, rotated where positions are rotations"),
    "values": ("B K N Dh", "their values"),
    "latents": ("B N R", "normed latents in sight, from which keys and values unfold (latent attention)"),
    "rotary_keys": ("B N Dr", "their one key for all heads, rotated where positions are rotations (latent attention)"),
    "index_keys": ("B N Di", "the indexer's key of every token in sight (sparse attention)"),
    "state": ("B H Dk Dv", "the state of a recurrent layer"),
    "tail": ("B taps C", "the last inputs of its convolution (delta layers)"),
}
"""Every kind of tensor that a cache can hold: shape and meaning. The letters are those of `morph.nn.organ`."""


@dataclass(frozen=True)
class Held:
    """One tensor of a cache.

    Attributes:
        name: `blocks.LAYER.KIND`.
        kind: of `SHAPES`.
        tensor: the tensor itself, not a copy.
        nbytes: the storage behind it, as `Cache.nbytes` counts.
    """

    name: str
    kind: str
    tensor: Tensor
    nbytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """As numbers; `SHAPES[kind]` has the letters."""
        return tuple(self.tensor.shape)


def held(cache: Cache) -> tuple[Held, ...]:
    """All that a cache holds now, layer by layer; nothing before the first token."""
    return tuple(
        Held(f"blocks.{layer}.{kind}", kind, tensor, tensor.untyped_storage().nbytes())
        for layer, part in enumerate(cache.layers)
        for kind, tensor in part.tensors().items()
        if tensor is not None
    )
