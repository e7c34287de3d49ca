"""What a config weighs: parameters, cache bytes and forward FLOPs, as exact integers.

Parameters are counted on the module itself, built without storage. Cache bytes and FLOPs are formulas that the tests
hold against live caches and against torch's own FLOP counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from morph import config as c
from morph.errors import MorphError
from morph.measure.mixers import MixerCost, mixer_cost
from morph.model import Decoder, build
from morph.nn.moe import MixtureOfExperts

STATE_BYTES = 4  # a recurrent state is kept in fp32 when the rest is in bf16 or fp32


@dataclass(frozen=True)
class Active:
    """Parameters that one token meets: the chosen experts' share of the routed ones, and all others.

    Published figures follow one of three conventions; a tied table counts as the head, a table of places as an input
    embedding.
    """

    all: int
    without_input_embedding: int
    without_embeddings: int


@dataclass(frozen=True)
class Flops:
    """Forward FLOPs of one sequence of `context` tokens, without MTP heads; a multiply and an add are two.

    Attributes:
        linear: every matrix that the tokens meet, the head excepted.
        head: the map to the vocabulary.
        scores: softmax scores and weighted sums, over the keys each query may see.
        scores_dense: the same when every query meets every key, as the plain form and most kernels' counts have it.
        delta: the chunked recurrent rules, their triangular solves included.
    """

    context: int
    linear: int
    head: int
    scores: int
    scores_dense: int
    delta: int

    @property
    def total(self) -> int:
        """Everything, counting visible scores."""
        return self.linear + self.head + self.scores + self.delta

    @property
    def per_token(self) -> int:
        """`total` divided by the tokens, rounded."""
        return round(self.total / self.context)


@dataclass(frozen=True)
class Count:
    """The weights of a config, with keys and values at `bytes_per_value` bytes each; made by `count`."""

    config: c.ModelConfig
    bytes_per_value: int = 2

    @cached_property
    def _model(self) -> Decoder:
        return build(self.config, device="meta")

    @cached_property
    def total(self) -> int:
        """Parameters, a tied table once and MTP heads included. Selection biases are buffers and not counted."""
        return sum(p.numel() for p in self._model.parameters())

    @property
    def mtp(self) -> int:
        """How many of them are those of MTP heads, which a forward pass leaves out (published totals often do too)."""
        return sum(p.numel() for p in self._model.mtp.parameters())

    @cached_property
    def active(self) -> Active:
        """Parameters that one token meets in a forward pass, and so none of MTP heads."""
        resting = self.mtp
        if moe := self.config.moe:
            layers = [m for m in self._model.blocks.modules() if isinstance(m, MixtureOfExperts)]
            routed = sum(p.numel() for layer in layers for p in layer.experts.parameters())
            resting += routed - routed // moe.n_experts * moe.top_k
        table = self.config.vocab_size * self.config.d_model
        places = (self.config.position_limit or 0) * self.config.d_model  # looked up and added, like an embedding
        everything = self.total - resting
        tables = 1 if self.config.tied else 2
        inner = everything - places
        return Active(everything, inner - (0 if self.config.tied else table), inner - tables * table)

    def _mixers(self, context: int = 1) -> list[MixerCost]:
        return [mixer_cost(self.config, layer, context) for layer in range(self.config.n_layers)]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of the past that one token writes, windowed layers (which forget them later) included."""
        return sum(mixer.per_token for mixer in self._mixers()) * self.bytes_per_value

    @property
    def state_bytes(self) -> int:
        """Bytes of recurrent state and convolution tail per sequence, whatever its length."""
        return sum(mixer.state * STATE_BYTES + mixer.tail * self.bytes_per_value for mixer in self._mixers())

    def cache_bytes(self, context: int) -> int:
        """Bytes that one sequence of `context` tokens keeps; a windowed layer keeps min(context, window)."""
        _positive("context", context)
        kept = sum(m.per_token * (context if m.window is None else min(context, m.window)) for m in self._mixers())
        return kept * self.bytes_per_value + self.state_bytes

    def flops(self, context: int) -> Flops:
        """Forward FLOPs of one sequence of `context` tokens."""
        _positive("context", context)
        S, model, mixers = context, self.config, self._mixers(context)
        return Flops(
            context=S,
            linear=sum(m.linear for m in mixers)
            + 2 * S * sum(_feed_forward_weights(model, layer) for layer in range(model.n_layers)),
            head=2 * S * model.d_model * model.vocab_size,
            scores=sum(m.scores for m in mixers),
            scores_dense=sum(m.scores_dense for m in mixers),
            delta=sum(m.delta for m in mixers),
        )


def _feed_forward_weights(model: c.ModelConfig, layer: int) -> int:
    """Matrix entries that a token meets in one feed-forward layer, the router's and the gate's included."""
    spec, D = model.feed_forward_in(layer), model.d_model
    if isinstance(spec, c.MoE):
        return 3 * D * spec.active_width + D * (spec.n_experts + (spec.shared_gate is not None))
    return (2 if isinstance(spec, c.MLP) else 3) * D * spec.width


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise MorphError(f"{name} = {value} is below 1; give a whole number from 1")


@lru_cache(maxsize=256)
def count(config: c.ModelConfig, bytes_per_value: int = 2) -> Count:
    """Weigh a config. Nothing large is allocated, whatever its size; `bytes_per_value` is 2 for a bf16 cache."""
    _positive("bytes_per_value", bytes_per_value)
    return Count(config, bytes_per_value)
