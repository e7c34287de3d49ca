"""What one routed layer does with some tokens, for figure 8.

Everything comes from the trace of one forward pass, the layer's own output from a hook beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import morph
from morph.nn.moe import MixtureOfExperts
from morph.story.subject import Subject

TOKENS = 16
"""Of the passage: as many as can be read as rows of a picture."""


@dataclass(frozen=True)
class Routing:
    """One layer's work on T tokens, fp32.

    Attributes:
        layer: its number, from 0.
        tokens: as they are written in figures.
        probabilities: (T, E), of the router.
        bias: (E,), added to them for the choice only; None where the model has none.
        chosen: (T, k), most preferred first.
        weights: (T, k), renormalized and scaled.
        parts: (T, k, D), what each chosen expert adds, its weight included.
        shared: (T, D), what the shared experts add; zeros where there is none.
        output: (T, D), what the layer itself gave.
    """

    layer: int
    tokens: tuple[str, ...]
    probabilities: np.ndarray
    bias: np.ndarray | None
    chosen: np.ndarray
    weights: np.ndarray
    parts: np.ndarray
    shared: np.ndarray
    output: np.ndarray

    @property
    def table(self) -> np.ndarray:
        """Who goes where: (T, E) booleans."""
        table = np.zeros(self.probabilities.shape, dtype=bool)
        np.put_along_axis(table, self.chosen, True, axis=1)
        return table


def named(subject: Subject) -> str:
    """What a subject is, at the start of a sentence and short enough for one line."""
    name = subject.name if len(subject.name) <= 80 else subject.name[:79] + "…"
    return name[:1].upper() + name[1:]


def routed_layers(subject: Subject) -> tuple[int, ...]:
    """Numbers of the layers that have a router."""
    return tuple(i for i, block in enumerate(subject.model.blocks) if isinstance(feed_forward(block), MixtureOfExperts))


def middle_layer(subject: Subject) -> int:
    """The routed layer that the figures look at: the one in the middle."""
    layers = routed_layers(subject)
    return layers[len(layers) // 2]


@torch.no_grad()
def route(subject: Subject, length: int, batch: int = 1) -> Routing:
    """The middle routed layer on `batch` stretches of the figures' passage, one after the other in T."""
    layer, ids = middle_layer(subject), subject.ids(length, batch)
    with morph.trace(subject.model) as seen:
        output = passing(subject, feed_forward(subject.model.blocks[layer]), ids)[1]
    of = f"blocks.{layer}.feed_forward"

    def read(name: str) -> np.ndarray:
        return seen[f"{of}.{name}"].numpy()

    probabilities, weights = read("router.probabilities"), read("router.weights")
    shared = np.zeros_like(output.numpy())
    gate = read("shared_gate")[..., None] if f"{of}.shared_gate" in seen else 1.0
    for name in seen:
        if name.startswith(f"{of}.shared.") and name.endswith(".output"):
            shared = shared + gate * seen[name].numpy()
    has_bias = f"{of}.router.selection_bias" in seen
    return Routing(
        layer=layer,
        tokens=tuple(subject.shown(int(t)) for t in ids.flatten()),
        probabilities=probabilities,
        bias=read("router.selection_bias") if has_bias else None,
        chosen=read("router.chosen"),
        weights=weights,
        parts=read("experts.parts") * weights[..., None],
        shared=shared.reshape(len(weights), -1),
        output=output.flatten(0, 1).numpy(),
    )


@torch.no_grad()
def slices(subject: Subject, layer: int, length: int, count: int) -> tuple[tuple[str, ...], np.ndarray]:
    """What each of `count` equal slices of a dense layer's hidden features adds: tokens, and sizes (T, count)."""
    ids, down = subject.ids(length), feed_forward(subject.model.blocks[layer]).down
    assert isinstance(down, nn.Linear)
    hidden, _ = passing(subject, down, ids)
    cuts = zip(hidden[0].tensor_split(count, dim=-1), down.weight.tensor_split(count, dim=1), strict=True)
    sizes = torch.stack([(part @ matrix.T).norm(dim=-1) for part, matrix in cuts], dim=-1)
    return tuple(subject.shown(int(t)) for t in ids[0]), sizes.numpy()


def passing(subject: Subject, module: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor]:
    """What goes into a module and what comes out of it while the model reads `ids`."""
    held: list[tuple[Tensor, Tensor]] = []
    hook = module.register_forward_hook(lambda _, args, out: held.append((args[0].clone(), out.clone())))
    try:
        subject.model(ids)
    finally:
        hook.remove()
    return held[-1]


def feed_forward(block: nn.Module) -> nn.Module:
    """A block's feed-forward half, dense or routed."""
    found = block.feed_forward
    assert isinstance(found, nn.Module)
    return found


# ---- what frames have in common ----


def facts_of(subject: Subject, here: Routing) -> dict[str, Any]:
    """The facts of every frame that shows experts; see `morph.story.moe`."""
    moe = subject.config.moe
    assert moe is not None
    return {
        "aside": f"layer {here.layer}",
        "layer": here.layer, "n_experts": moe.n_experts, "top_k": moe.top_k, "n_shared": moe.n_shared,
        "tokens": list(here.tokens), "token": len(here.tokens) - 1,
    }  # fmt: skip


def reads(subject: Subject) -> str:
    """Where the numbers come from, cut to one line."""
    return f"{named(subject)}, reading {subject.reads}."


def router_of(here: Routing) -> str:
    """The prefix of the router's tensors in a trace."""
    return f"blocks.{here.layer}.feed_forward.router"
