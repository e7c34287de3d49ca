"""A block: mix across tokens, then compute within each, both added to the residual stream.

The classes differ only in where the norms stand. Post-norm (Vaswani et al., 2017) puts them on the stream, so every
layer rescales what all earlier layers wrote; so does MiniMax-01 (2025), ahead of each branch. All others leave the
stream a plain sum, with one final norm before the head: pre-norm (GPT-2, 2019; Xiong et al., 2020) normalizes what a
branch reads, post-branch norm (OLMo 2, 2024) what it writes, a sandwich (Gemma 2, 2024) both; in a parallel block
(GPT-J, 2021) both halves read one normalized stream.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from morph import config
from morph.nn.attention import SoftmaxAttention
from morph.nn.cache import LayerCache
from morph.nn.context import Context
from morph.nn.delta import GatedDeltaNet
from morph.nn.feedforward import MLP, GatedMLP
from morph.nn.kda import KimiDelta
from morph.nn.latent import LatentAttention
from morph.nn.lightning import Lightning
from morph.nn.moe import MixtureOfExperts
from morph.nn.norm import build_norm
from morph.nn.organ import Organ
from morph.nn.own import own_organ
from morph.nn.sparse import SparseAttention

Stream = Float[Tensor, "B S D"]


Mixer = SoftmaxAttention | LatentAttention | GatedDeltaNet | KimiDelta | Lightning


def windowed(model: config.ModelConfig, layer: int) -> SoftmaxAttention | LatentAttention:
    """The model's attention, which a window limits to the last tokens."""
    return MIXERS[type(model.attention)](model, layer)  # type: ignore[return-value]


def latent(model: config.ModelConfig, layer: int) -> LatentAttention:
    """Latent attention, to all tokens in sight or to those that its indexer chooses."""
    assert isinstance(model.attention, config.MLA)
    return LatentAttention(model, layer) if model.attention.indexer is None else SparseAttention(model, layer)


MIXERS: dict[type[config.Spec], Callable[[config.ModelConfig, int], Mixer]] = {
    config.Attention: SoftmaxAttention,
    config.MLA: latent,
    config.SlidingWindow: windowed,
    config.GatedDeltaNet: GatedDeltaNet,
    config.KimiDelta: KimiDelta,
    config.Lightning: Lightning,
}
"""Kind of mixer -> its module, made of a config and the number of its layer."""


def build_mixer(model: config.ModelConfig, layer: int) -> Mixer:
    """What mixes tokens in layer `layer`."""
    return MIXERS[type(model.mixer(layer))](model, layer)


def build_feed_forward(model: config.ModelConfig, layer: int) -> MLP | GatedMLP | MixtureOfExperts:
    """What a token computes by itself in layer `layer`."""
    spec = model.feed_forward_in(layer)
    if isinstance(spec, config.MoE):
        return MixtureOfExperts(spec, model.d_model)
    own = own_organ(spec, model.d_model, model.bias)
    if own is not None:
        return own  # type: ignore[return-value]
    if isinstance(spec, config.MLP):
        return MLP(spec, model.d_model, model.bias)
    return GatedMLP(spec, model.d_model, model.bias)


def build_dropout(model: config.ModelConfig) -> nn.Module:
    """What zeroes a share of features while training (Srivastava et al., 2014) and scales up the rest; or nothing."""
    return nn.Identity() if model.dropout is None else nn.Dropout(model.dropout.rate)


class Block(Organ):
    """One layer; a subclass says which norms it has and how its two halves meet the stream."""

    has_final_norm = True
    attention: Mixer
    feed_forward: MLP | GatedMLP | MixtureOfExperts

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__()
        self.drop = build_dropout(model)  # on what a branch adds

    def new_cache(self) -> LayerCache:
        """An empty cache for this layer."""
        return self.attention.new_cache()


class TwoNormBlock(Block):
    """A block in which each half has one norm."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__(model, layer)
        self.attention_norm = build_norm(model.norm, model.d_model)
        self.attention = build_mixer(model, layer)
        self.feed_forward_norm = build_norm(model.norm, model.d_model)
        self.feed_forward = build_feed_forward(model, layer)


class PostNormBlock(TwoNormBlock):
    """x ← norm(x + attention(x));  x ← norm(x + feed_forward(x))."""

    has_final_norm = False

    def forward(self, x: Stream, context: Context, cache: LayerCache | None = None) -> Stream:
        """The stream after this block."""
        attention = self.drop(self.attention(x, context, cache))
        middle = self.attention_norm(x + attention)
        feed_forward = self.drop(self.feed_forward(middle, context))
        out = self.feed_forward_norm(middle + feed_forward)
        self.record(attention_delta=attention, middle=middle, feed_forward_delta=feed_forward, stream=out)
        return out


class PreNormBlock(TwoNormBlock):
    """x ← x + attention(norm(x));  x ← x + feed_forward(norm(x))."""

    def forward(self, x: Stream, context: Context, cache: LayerCache | None = None) -> Stream:
        """The stream after this block."""
        attention = self.drop(self.attention(self.attention_norm(x), context, cache))
        middle = x + attention
        feed_forward = self.drop(self.feed_forward(self.feed_forward_norm(middle), context))
        out = middle + feed_forward
        self.record(attention_delta=attention, middle=middle, feed_forward_delta=feed_forward, stream=out)
        return out


class PostBranchBlock(TwoNormBlock):
    """x ← x + norm(attention(x));  x ← x + norm(feed_forward(x)): what a branch writes has a known size."""

    def forward(self, x: Stream, context: Context, cache: LayerCache | None = None) -> Stream:
        """The stream after this block."""
        attention = self.drop(self.attention_norm(self.attention(x, context, cache)))
        middle = x + attention
        feed_forward = self.drop(self.feed_forward_norm(self.feed_forward(middle, context)))
        out = middle + feed_forward
        self.record(attention_delta=attention, middle=middle, feed_forward_delta=feed_forward, stream=out)
        return out


class SandwichBlock(TwoNormBlock):
    """x ← x + norm₂(attention(norm₁(x))), and the feed-forward half alike: both ends of a branch are normalized."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__(model, layer)
        gain = self.out_gain(model.n_layers)
        self.attention_out_norm = build_norm(model.norm, model.d_model, gain)
        self.feed_forward_out_norm = build_norm(model.norm, model.d_model, gain)

    @staticmethod
    def out_gain(n_layers: int) -> float:
        """Where the gains of the second norms start."""
        return 1.0

    def forward(self, x: Stream, context: Context, cache: LayerCache | None = None) -> Stream:
        """The stream after this block."""
        attention = self.drop(self.attention_out_norm(self.attention(self.attention_norm(x), context, cache)))
        middle = x + attention
        feed_forward = self.feed_forward_out_norm(self.feed_forward(self.feed_forward_norm(middle), context))
        feed_forward = self.drop(feed_forward)
        out = middle + feed_forward
        self.record(attention_delta=attention, middle=middle, feed_forward_delta=feed_forward, stream=out)
        return out


class DepthScaledSandwichBlock(SandwichBlock):
    """A sandwich whose 2L branches start at size 1/√L, so that together they start as large at any depth."""

    @staticmethod
    def out_gain(n_layers: int) -> float:
        """1/√L."""
        return float(n_layers**-0.5)


class ParallelBlock(Block):
    """n = norm(x);  x ← x + attention(n) + feed_forward(n): the halves can run side by side."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__(model, layer)
        self.norm = build_norm(model.norm, model.d_model)
        self.attention = build_mixer(model, layer)
        self.feed_forward = build_feed_forward(model, layer)

    def forward(self, x: Stream, context: Context, cache: LayerCache | None = None) -> Stream:
        """The stream after this block."""
        normed = self.norm(x)
        attention = self.drop(self.attention(normed, context, cache))
        feed_forward = self.drop(self.feed_forward(normed, context))
        out = x + attention + feed_forward
        self.record(attention_delta=attention, feed_forward_delta=feed_forward, stream=out)
        return out


class NormedStreamBlock(TwoNormBlock):
    """n = norm(x);  x ← s n + b attention(n), and the feed-forward half alike (MiniMax-01, 2025).

    As in post-norm the norms stand on the stream; here they come before a branch, and factors s and b weigh the two.
    """

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__(model, layer)
        weights = model.residual or config.ResidualWeights()
        is_global = model.mixer(layer) is model.attention
        self.stream = weights.attention_stream if is_global else weights.local_stream
        self.branch = weights.attention_branch if is_global else weights.local_branch
        self.feed_forward_stream = weights.feed_forward_stream
        self.feed_forward_branch = weights.feed_forward_branch

    def forward(self, x: Stream, context: Context, cache: LayerCache | None = None) -> Stream:
        """The stream after this block."""
        normed = self.attention_norm(x)
        attention = self.branch * self.drop(self.attention(normed, context, cache))
        middle = self.stream * normed + attention
        normed = self.feed_forward_norm(middle)
        feed_forward = self.feed_forward_branch * self.drop(self.feed_forward(normed, context))
        out = self.feed_forward_stream * normed + feed_forward
        self.record(attention_delta=attention, middle=middle, feed_forward_delta=feed_forward, stream=out)
        return out


BLOCKS: dict[config.Placement, type[Block]] = {
    "post": PostNormBlock,
    "pre": PreNormBlock,
    "sandwich": SandwichBlock,
    "depth-scaled-sandwich": DepthScaledSandwichBlock,
    "post-branch": PostBranchBlock,
    "parallel": ParallelBlock,
    "on-normed-stream": NormedStreamBlock,
}
