"""A block: mix across tokens, then compute within each, both added to the residual stream.

The classes differ only in where the norm stands. Post-norm (Vaswani et al., 2017) puts it on the stream, so every
layer rescales what all earlier layers wrote. Pre-norm (GPT-2, 2019; Xiong et al., 2020) puts it on the branch: the
stream is a plain sum, and one final norm is needed before the head.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from morph import config
from morph.nn.attention import SoftmaxAttention
from morph.nn.cache import KVCache, StateCache
from morph.nn.context import Context
from morph.nn.delta import GatedDeltaNet
from morph.nn.feedforward import MLP, GatedMLP
from morph.nn.moe import MixtureOfExperts
from morph.nn.norm import build_norm
from morph.nn.organ import Organ

Stream = Float[Tensor, "B S D"]


def build_mixer(model: config.ModelConfig, layer: int) -> SoftmaxAttention | GatedDeltaNet:
    """What mixes tokens in layer `layer`."""
    spec = model.mixer(layer)
    if isinstance(spec, config.GatedDeltaNet):
        return GatedDeltaNet(model, spec)
    window = spec.window if isinstance(spec, config.SlidingWindow) else None
    return SoftmaxAttention(model, model.position_in(layer), window)


def build_feed_forward(model: config.ModelConfig) -> MLP | GatedMLP | MixtureOfExperts:
    """What a token computes by itself."""
    spec = model.feed_forward
    if isinstance(spec, config.MoE):
        return MixtureOfExperts(spec, model.d_model)
    if isinstance(spec, config.GatedMLP):
        return GatedMLP(spec, model.d_model, model.bias)
    return MLP(spec, model.d_model, model.bias)


class Block(Organ):
    """The organs of one layer; a subclass says how they meet the stream."""

    has_final_norm: bool

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = build_norm(model.norm, model.d_model)
        self.attention = build_mixer(model, layer)
        self.feed_forward_norm = build_norm(model.norm, model.d_model)
        self.feed_forward = build_feed_forward(model)

    def new_cache(self) -> KVCache | StateCache:
        """An empty cache for this layer."""
        return self.attention.new_cache()


class PostNormBlock(Block):
    """x ← norm(x + attention(x));  x ← norm(x + feed_forward(x))."""

    has_final_norm = False

    def forward(self, x: Stream, context: Context, cache: KVCache | StateCache | None = None) -> Stream:
        """The stream after this block."""
        attention = self.attention(x, context, cache)
        middle = self.attention_norm(x + attention)
        feed_forward = self.feed_forward(middle, context)
        out = self.feed_forward_norm(middle + feed_forward)
        self.record(attention_delta=attention, middle=middle, feed_forward_delta=feed_forward, stream=out)
        return out


class PreNormBlock(Block):
    """x ← x + attention(norm(x));  x ← x + feed_forward(norm(x))."""

    has_final_norm = True

    def forward(self, x: Stream, context: Context, cache: KVCache | StateCache | None = None) -> Stream:
        """The stream after this block."""
        attention = self.attention(self.attention_norm(x), context, cache)
        middle = x + attention
        feed_forward = self.feed_forward(self.feed_forward_norm(middle), context)
        out = middle + feed_forward
        self.record(attention_delta=attention, middle=middle, feed_forward_delta=feed_forward, stream=out)
        return out


BLOCKS: dict[str, type[Block]] = {"post": PostNormBlock, "pre": PreNormBlock}
