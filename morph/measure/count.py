"""What a config weighs: parameters, cache bytes and forward FLOPs, as exact integers.

Parameters are counted on the module itself, built without storage. Cache bytes and FLOPs are formulas that the tests
hold against live caches and against torch's own FLOP counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from morph import config as c
from morph.errors import MorphError
from morph.model import Decoder, build
from morph.nn.delta import CHUNK
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
    """Forward FLOPs of one sequence of `context` tokens; a multiply and an add are two.

    Attributes:
        linear: every matrix that the tokens meet, the head excepted.
        head: the map to the vocabulary.
        scores: softmax scores and weighted sums, over the keys each query may see.
        scores_dense: the same when every query meets every key, as the plain form and most kernels' counts have it.
        delta: the chunked delta rule, its triangular solves included.
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
        """Parameters, a tied table once. Selection biases are buffers and not counted."""
        return sum(p.numel() for p in self._model.parameters())

    @cached_property
    def active(self) -> Active:
        """Parameters that one token meets."""
        resting = 0
        if moe := self.config.moe:
            layers = [m for m in self._model.modules() if isinstance(m, MixtureOfExperts)]
            routed = sum(p.numel() for layer in layers for p in layer.experts.parameters())
            resting = routed - routed // moe.n_experts * moe.top_k
        table = self.config.vocab_size * self.config.d_model
        places = (self.config.position_limit or 0) * self.config.d_model  # looked up and added, like an embedding
        everything = self.total - resting
        tables = 1 if self.config.tied else 2
        inner = everything - places
        return Active(everything, inner - (0 if self.config.tied else table), inner - tables * table)

    def _mixers(self) -> list[c.Attention | c.SlidingWindow | c.GatedDeltaNet]:
        return [self.config.mixer(layer) for layer in range(self.config.n_layers)]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token writes, windowed layers (which forget them later) included."""
        softmax = sum(not isinstance(mixer, c.GatedDeltaNet) for mixer in self._mixers())
        attention = self.config.attention
        return softmax * 2 * attention.n_kv_heads * attention.width * self.bytes_per_value

    @property
    def state_bytes(self) -> int:
        """Bytes of recurrent state and convolution tail per sequence, whatever its length."""
        total = 0
        for mixer in self._mixers():
            if isinstance(mixer, c.GatedDeltaNet):
                keys, values = mixer.n_key_heads * mixer.key_head_dim, mixer.n_value_heads * mixer.value_head_dim
                total += STATE_BYTES * values * mixer.key_head_dim
                total += self.bytes_per_value * (mixer.conv_size - 1) * (2 * keys + values)
        return total

    def cache_bytes(self, context: int) -> int:
        """Bytes held for one sequence after `context` tokens: windowed layers hold min(context, window)."""
        _positive("context", context)
        attention, total = self.config.attention, self.state_bytes
        pair = 2 * attention.n_kv_heads * attention.width * self.bytes_per_value
        for mixer in self._mixers():
            if isinstance(mixer, c.SlidingWindow):
                total += pair * min(context, mixer.window)
            elif isinstance(mixer, c.Attention):
                total += pair * context
        return total

    def flops(self, context: int) -> Flops:
        """Forward FLOPs of one sequence of `context` tokens."""
        _positive("context", context)
        S, model, attention = context, self.config, self.config.attention
        linear = scores = dense = delta = 0
        for mixer in self._mixers():
            if isinstance(mixer, c.GatedDeltaNet):
                keys, values = mixer.n_key_heads * mixer.key_head_dim, mixer.n_value_heads * mixer.value_head_dim
                linear += 2 * S * model.d_model * (2 * keys + 3 * values + 2 * mixer.n_value_heads)
                delta += _delta_flops(mixer, S)
            else:
                linear += 4 * S * model.d_model * attention.width * (attention.n_heads + attention.n_kv_heads)
                linear += 2 * S * model.d_model * attention.gate_width
                per_pair = 4 * attention.n_heads * attention.width
                window = min(S, mixer.window) if isinstance(mixer, c.SlidingWindow) else S
                scores += per_pair * (window * (window + 1) // 2 + (S - window) * window)
                dense += per_pair * S * S
        linear += 2 * S * sum(_feed_forward_weights(model, layer) for layer in range(model.n_layers))
        head = 2 * S * model.d_model * model.vocab_size
        return Flops(S, linear, head, scores, dense, delta)


def _feed_forward_weights(model: c.ModelConfig, layer: int) -> int:
    """Matrix entries that a token meets in one feed-forward layer, the router's and the gate's included."""
    spec, D = model.feed_forward_in(layer), model.d_model
    if isinstance(spec, c.MoE):
        return 3 * D * spec.active_width + D * (spec.n_experts + (spec.shared_gate is not None))
    return (3 if isinstance(spec, c.GatedMLP) else 2) * D * spec.width


def _delta_flops(spec: c.GatedDeltaNet, S: int) -> int:
    """The chunked rule: two C x C products over keys, one over values, one solve, three meetings with the state."""
    chunks, C, Dk, Dv = -(-S // CHUNK), CHUNK, spec.key_head_dim, spec.value_head_dim
    per_chunk = 4 * C * C * Dk + 2 * C * C * Dv + C * C * (Dk + Dv) + 6 * C * Dk * Dv
    return spec.n_value_heads * chunks * per_chunk


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise MorphError(f"{name} = {value} is below 1; give a whole number from 1")


@lru_cache(maxsize=256)
def count(config: c.ModelConfig, bytes_per_value: int = 2) -> Count:
    """Weigh a config. Nothing large is allocated, whatever its size; `bytes_per_value` is 2 for a bf16 cache."""
    _positive("bytes_per_value", bytes_per_value)
    return Count(config, bytes_per_value)
