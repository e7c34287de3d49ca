"""What families with recurrent layers share: which layers are, and the shape of a convolution's weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

from morph.config import Layout, ModelConfig, Spec, State
from morph.errors import MorphError
from morph.hf.families.parts import FULL, layout_of
from morph.hf.settings import Settings
from morph.hf.weights import Rule, each

LINEAR = "linear_attention"

S = TypeVar("S", bound=Spec)


def read_layers(s: Settings, n_layers: int, local: State, default: list[str]) -> Layout:
    """The layout of `layer_types`, and of `default` where the key is missing."""
    types = s.words("layer_types", n_layers, (LINEAR, FULL)) if "layer_types" in s else default
    s.ignore("layer_types")
    return layout_of([layer for layer, name in enumerate(types) if name == FULL], n_layers, local)


def full_every(period: int, n_layers: int) -> list[str]:
    """The names of the layers when each `period`-th one sees the whole past."""
    return [LINEAR if (layer + 1) % period else FULL for layer in range(n_layers)]


def write_layers(config: ModelConfig, kind: type[S]) -> tuple[list[str], S]:
    """The same, the other way, and the record of the recurrent layers. Raises MorphError without any of this kind."""
    mixers = [config.mixer(layer) for layer in range(config.n_layers)]
    states = {mixer for mixer in mixers if isinstance(mixer, kind)}
    if len(states) != 1:
        raise MorphError(f"layout has no layer of {kind.kind!r}, and this family has both that and attention")
    return [LINEAR if isinstance(mixer, kind) else FULL for mixer in mixers], next(iter(states))


def conv_rule(ours: str, theirs: str) -> Rule:
    """Taps of each channel, (channels, taps) on our side and (channels, 1, taps) on theirs."""
    return Rule((ours,), (theirs,), each(lambda t: t.squeeze(1)), each(lambda t: t.unsqueeze(1)))


def conv_rules(ours: str, theirs: str, sizes: Sequence[int]) -> Rule:
    """The same where the convolutions over queries, keys and values are three on their side."""
    return Rule(
        (ours,),
        tuple(f"{theirs}.{part}_conv1d.weight" for part in "qkv"),
        lambda tensors: (torch.cat([tensor.squeeze(1) for tensor in tensors]),),
        lambda tensors: tensors[0].unsqueeze(1).split(list(sizes)),
    )
