"""One move from a config to the next: both models, what the old one shows on some texts, where each tensor is from.

A tensor of the new model is *copied* from the one of its name and shape, *made* by the recipe, or *fresh*: drawn as
`morph.build` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

import morph
from morph.config import ModelConfig
from morph.measure.trace import Trace
from morph.model import Decoder
from morph.nn.attention import SoftmaxAttention
from morph.nn.block import Block
from morph.nn.feedforward import MLP, GatedMLP

RIDGE = 0.01
"""What holds fits back where the measured texts say little, relative to the mean square of what they fit."""
Kind = Literal["function-preserving", "recipe", "fresh"]


@dataclass(frozen=True)
class Told:
    """What a recipe says of itself.

    Attributes:
        kind: "function-preserving" when old and new model are the same function; "recipe" for a conversion that changes
            it; "fresh" when parts of another kind were newly drawn.
        how: what was done, in a sentence.
        lost: what of the old model the new one has no place for.
        holds_for: tokens of the longest text on which they are the same function; None for any.
    """

    kind: Kind
    how: str
    lost: tuple[str, ...] = ()
    holds_for: int | None = None


@dataclass(frozen=True)
class Options:
    """What a user may choose.

    Attributes:
        seed: of fresh tensors, noise, and token ids that are not given.
        steepness: β where SiLU(βz)/β stands in the place of ReLU(z).
        noise: standard deviation of what is added to experts that are copies of each other, relative to their RMS.
    """

    seed: int = 0
    steepness: float = 4.0
    noise: float = 0.0


class Move:
    """The two models of one move, in fp64, the new one with every tensor of the old that fits.

    Attributes:
        old, new: before and after.
        ids: token ids (B, S) on which sizes and differences are measured.
    """

    def __init__(self, old: Decoder, config: ModelConfig, ids: Tensor, options: Options) -> None:
        self.old, self.ids, self.options = old, ids, options
        self.new = morph.build(config, seed=options.seed).double().eval()
        self._held = old.state_dict()
        self._own = self.new.state_dict()  # shares memory with the model
        self._made: set[str] = set()
        self._copied = {n for n, t in self._own.items() if n in self._held and self._held[n].shape == t.shape}
        for name in self._copied:
            self._own[name].copy_(self._held[name])

    def was(self, name: str) -> Tensor:
        """A tensor of the old model."""
        return self._held[name]

    def has(self, name: str) -> bool:
        """Whether the new model has a tensor of this name."""
        return name in self._own

    def had(self, name: str) -> bool:
        """Whether the old model has."""
        return name in self._held

    def now(self, name: str) -> Tensor:
        """A tensor of the new model, as it stands."""
        return self._own[name]

    def names(self) -> tuple[str, ...]:
        """All tensors of the new model."""
        return tuple(self._own)

    def put(self, name: str, value: Tensor) -> None:
        """Give the new model a tensor that the recipe made."""
        assert self._own[name].shape == value.shape, f"{name}: {tuple(value.shape)} for {tuple(self._own[name].shape)}"
        self._own[name].copy_(value)
        self._made.add(name)

    def add(self, name: str, value: Tensor) -> None:
        """The same, on top of what stands there."""
        self.put(name, self._own[name] + value)

    def origins(self) -> dict[str, tuple[str, ...]]:
        """The names of the new model's tensors, by "copied", "made" and "fresh"; a tied head is the embedding."""
        found: dict[str, list[str]] = {"copied": [], "made": [], "fresh": []}
        for name in self._own:
            where = "made" if name in self._made else "copied" if name in self._copied else "fresh"
            found[where].append(name)
        return {where: tuple(names) for where, names in found.items()}

    def blocks(self) -> Iterator[tuple[str, Block, Block]]:
        """The start of a block's names, its old and its new module."""
        for layer, (old, new) in enumerate(zip(self.old.blocks, self.new.blocks, strict=True)):
            assert isinstance(old, Block) and isinstance(new, Block)
            yield f"blocks.{layer}", old, new

    # ---- what the old model shows on the texts ----

    @cached_property
    def seen(self) -> Trace:
        """All that one pass of the old model records, in fp32."""
        with torch.no_grad(), morph.trace(self.old) as seen:
            self.old(self.ids)
        return seen

    @cached_property
    def _read(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            return lambda module, inputs: found.update({name: inputs[0].detach().flatten(0, 1)})

        hooks = [
            getattr(block, half).register_forward_pre_hook(keep(f"{at}.{half}"))
            for at, block, _ in self.blocks()
            for half in ("attention", "feed_forward")
        ]
        try:
            with torch.no_grad():
                self.old(self.ids)
        finally:
            for hook in hooks:
                hook.remove()
        return found

    def read_by(self, half: str) -> Tensor:
        """What `blocks.L.attention` or `blocks.L.feed_forward` reads of all tokens, (T, D)."""
        return self._read[half]


def fit(x: Tensor, y: Tensor) -> Tensor:
    """The matrix W (n, m) that brings x W (T, n) nearest to y (T, m), held back a little towards 0 (ridge)."""
    products = x.T @ x
    held = RIDGE * products.diagonal().mean().clamp(min=1e-12)
    return torch.linalg.solve(products + held * torch.eye(len(products), dtype=x.dtype), x.T @ y)


def readers(at: str, block: Block, half: Literal["attention", "feed_forward"]) -> tuple[str, ...]:
    """The maps whose input is what that half of a block reads; empty when they cannot hold a shift."""
    module = getattr(block, half)
    if isinstance(module, SoftmaxAttention) and module.gate_proj is None:
        return tuple(f"{at}.attention.{name}" for name in ("q_proj", "k_proj", "v_proj"))
    if isinstance(module, GatedMLP):
        return (f"{at}.feed_forward.gate", f"{at}.feed_forward.up")
    return (f"{at}.feed_forward.up",) if isinstance(module, MLP) else ()


def writers(move: Move, at: str) -> dict[str, int]:
    """The tensors of a block whose sum reaches the stream, each with its axis over the D features."""
    endings = ("o_proj.weight", "o_proj.bias", "down.weight", "down.bias")
    names = [name for name in move.names() if name.startswith(f"{at}.")]
    found = {name: 0 for name in names if name.endswith(endings)}
    return found | {name: 1 for name in names if name.endswith(("experts.down", "experts.down_bias"))}
