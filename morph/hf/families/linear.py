"""What families with recurrent layers share: which layers are, and the shape of a convolution's weight."""

from __future__ import annotations

from typing import TypeVar

from morph.config import Layout, ModelConfig, Spec, State
from morph.errors import MorphError
from morph.hf.families.parts import FULL, layout_of
from morph.hf.settings import Settings
from morph.hf.weights import Rule, each

LINEAR = "linear_attention"

S = TypeVar("S", bound=Spec)


def read_layers(s: Settings, n_layers: int, local: State, period: int) -> Layout:
    """The layout of `layer_types`; where the key is missing each `period`-th layer sees the whole past."""
    types = [LINEAR if (layer + 1) % period else FULL for layer in range(n_layers)]
    if "layer_types" in s:
        types = s.words("layer_types", n_layers, (LINEAR, FULL))
    s.ignore("layer_types")
    return layout_of([layer for layer, name in enumerate(types) if name == FULL], n_layers, local)


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
