"""Softmax attention with shared key-value heads, full or windowed; what else a layer may have is optional.

    o_i = Σ_j softmax_j(q_i · k_j / √Dh) v_j      over the keys j that query i may see

MHA (Vaswani et al., 2017) has one pair of key and value heads per query head; GQA (Ainslie et al., 2023) lets
H / K query heads share each pair. QK-norm (Henry et al., 2020; Dehghani et al., 2023) normalizes each head's q and k;
here, as in Qwen3 (2025), before they are rotated.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from morph import config
from morph.nn.cache import KVCache
from morph.nn.context import Context
from morph.nn.feedforward import activation_rms
from morph.nn.mask import Mask, block_table
from morph.nn.norm import build_qk_norm
from morph.nn.organ import Linear, Organ, use_plain
from morph.nn.position import rotate
from morph.nn.sink import Logits, Sink, fused_with_sink, softmax_with_sink

Queries = Float[Tensor, "B H S Dh"]
Keys = Float[Tensor, "B K N Dh"]
Values = Float[Tensor, "B K N Dv"]
Outputs = Float[Tensor, "B H S Dv"]


def attention_scores(q: Queries, k: Keys, mask: Mask, cap: float | None = None) -> Float[Tensor, "B H S N"]:
    """Scaled products of queries and keys, kept within ± `cap` if there is one, -inf where masked."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if mask.bias is not None:
        scores = scores + mask.bias.to(scores.dtype)
    return scores.masked_fill(~mask.table(q.shape[2], k.shape[2], q.device), float("-inf"))


def attention_weights(
    q: Queries, k: Keys, mask: Mask, sink: Logits | None = None, cap: float | None = None
) -> tuple[Float[Tensor, "B H S N"], Float[Tensor, "B H S N"]]:
    """Scores, and their softmax over the keys and, where there is one, the sink (whose weight is what is missing)."""
    scores = attention_scores(q, k, mask, cap)
    return scores, scores.softmax(dim=-1) if sink is None else softmax_with_sink(scores, sink)[0]


@torch.no_grad()
def precise_weights(
    q: Queries, k: Keys, mask: Mask, sink: Logits | None = None, cap: float | None = None
) -> tuple[Float[Tensor, "B H S N"], Float[Tensor, "B H S N"]]:
    """The same in fp32 (or better), as a kernel of bf16 sums, for those who only look."""
    with torch.autocast(q.device.type, enabled=False):
        precise = torch.promote_types(q.dtype, torch.float32)
        return attention_weights(q.to(precise), k.to(precise), mask, sink, cap)


def plain_attention(
    q: Queries, k: Keys, v: Values, mask: Mask, sink: Logits | None = None, cap: float | None = None
) -> Outputs:
    """The equation, word for word."""
    _, weights = attention_weights(q, k, mask, sink, cap)
    return weights @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def fused_attention(
    q: Queries, k: Keys, v: Values, allowed: Tensor | None, is_causal: bool, sink: Logits | None
) -> Outputs:
    """Torch's fused kernel, which is fast where keys and values are equally wide; the narrower ones are filled up."""
    if sink is not None:
        return fused_with_sink(q, k, v, allowed, is_causal, sink)
    is_grouped, width, out_width = q.shape[1] != k.shape[1], q.shape[-1], v.shape[-1]
    if out_width < width:
        v = F.pad(v, (0, width - out_width))
    elif out_width > width:
        q, k = F.pad(q, (0, out_width - width)), F.pad(k, (0, out_width - width))
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, is_causal=is_causal, enable_gqa=is_grouped, scale=width**-0.5
    )
    return out[..., :out_width]


def blocked_attention(q: Queries, k: Keys, v: Values, window: int, sink: Logits | None = None) -> Outputs:
    """Windowed causal attention in blocks of `window` queries, each against its own and the previous block.

    Work grows with S x window rather than S x S. For a pass without cache and padding.
    """
    (B, H, S, _), K, w = q.shape, k.shape[1], window
    n = -(-S // w)

    def in_blocks(x: Tensor, heads: int) -> Tensor:  # (B, heads, S, Dh) -> (B, n, heads, w, Dh)
        return F.pad(x, (0, 0, 0, n * w - S)).view(B, heads, n, w, -1).transpose(1, 2)

    def with_previous(x: Tensor) -> Tensor:  # (B, n, K, w, Dh) -> (B n, K, 2w, Dh)
        before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), dim=1)
        return torch.cat((before, x), dim=3).flatten(0, 1)

    allowed = block_table(n, w, q.device).expand(B, n, 1, w, 2 * w).flatten(0, 1)
    blocks = in_blocks(q, H).flatten(0, 1), with_previous(in_blocks(k, K)), with_previous(in_blocks(v, K))
    out = fused_attention(*blocks, allowed, False, sink)
    return out.view(B, n, H, w, -1).transpose(1, 2).reshape(B, H, n * w, -1)[:, :, :S]


def fast_attention(q: Queries, k: Keys, v: Values, mask: Mask, sink: Logits | None = None) -> Outputs:
    """The same through fused kernels; windowed layers skip the blocks out of sight once there are enough of them."""
    allowed, is_causal = mask.allowed, mask.is_causal
    if mask.bias is not None:
        allowed, is_causal = mask.bias.to(q.dtype), False
    elif mask.window is not None:
        if q.shape[2] >= 4 * mask.window:
            return blocked_attention(q, k, v, mask.window, sink)
        allowed, is_causal = mask.table(q.shape[2], k.shape[2], q.device), False
    return fused_attention(q, k, v, allowed, is_causal, sink)


class SoftmaxMixer(Organ):
    """What every layer of softmax attention can be asked, however it makes its queries, keys and values.

    Attributes:
        window: tokens in sight; None for all.
        rope: how it turns queries and keys; None when it does not.
        n_heads: query heads.
    """

    n_heads: int

    window: int | None
    rope: config.Rotation | None


class SoftmaxAttention(SoftmaxMixer):
    """One attention layer; within a sliding window it sees the last tokens only."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__()
        spec, D, local, position = model.attention, model.d_model, model.mixer(layer), model.position_in(layer)
        assert isinstance(spec, config.Attention), "other kinds of attention have modules of their own"
        self.n_heads, self.n_kv_heads, self.head_dim = spec.n_heads, spec.n_kv_heads, spec.width
        self.window = None
        if isinstance(local, config.SlidingWindow):
            self.window, self.n_heads = local.window, local.n_heads or spec.n_heads
        # Forms below divide by √Dh; another scale is brought in through the queries.
        self.stretch = None if spec.scale is None else spec.scale * self.head_dim**0.5
        self.rope = position if isinstance(position, config.Rotary) else None
        self.alibi_heads = self.n_heads if isinstance(position, config.Alibi) else 0
        bias, features = model.bias or spec.qkv_bias is not None, self.n_heads * self.head_dim
        self.q_proj = Linear(D, features, bias)
        self.k_proj = Linear(D, self.n_kv_heads * self.head_dim, bias)
        self.v_proj = Linear(D, self.n_kv_heads * self.head_dim, bias)
        gates = self.n_heads * (self.head_dim if isinstance(spec.gate, config.OutputGate) else 1)
        self.gate_proj = Linear(D, gates, bias=False) if spec.gate else None
        # As below an activation, what a gate takes away at first is given back on the way out.
        self.o_proj = Linear(features, D, model.bias, gain=1 / activation_rms("sigmoid") if spec.gate else 1.0)
        self.q_norm = build_qk_norm(spec.qk_norm, self.n_heads, self.head_dim) if spec.qk_norm else None
        self.k_norm = build_qk_norm(spec.qk_norm, self.n_kv_heads, self.head_dim) if spec.qk_norm else None
        self.sink = Sink(self.n_heads) if spec.sink else None
        self.cap = spec.softcap.cap if spec.softcap else None

    def new_cache(self) -> KVCache:
        """An empty cache for this layer."""
        return KVCache(self.window)

    def _heads(self, x: Float[Tensor, "B S features"]) -> Float[Tensor, "B heads S Dh"]:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(
        self, x: Float[Tensor, "B S D"], context: Context, cache: KVCache | None = None
    ) -> Float[Tensor, "B S D"]:
        """What each token gathers from the tokens it may see."""
        q, k, v = self._heads(self.q_proj(x)), self._heads(self.k_proj(x)), self._heads(self.v_proj(x))
        self.record(projected_queries=q, projected_keys=k)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        self.record(unrotated_queries=q, unrotated_keys=k)
        if self.rope is not None:
            cos, sin = context.rotation(self.rope, self.head_dim)
            q, k = rotate(q, cos, sin, self.rope.pairing), rotate(k, cos, sin, self.rope.pairing)
        if self.stretch is not None:
            q = q * self.stretch
        q, k = q.to(v.dtype), k.to(v.dtype)  # under autocast the norm answers in fp32
        columns = context.columns
        if cache is not None:
            k, v, columns = cache.append(k, v, columns)
        mask = context.mask(self.window, columns, self.alibi_heads)
        sink = None if self.sink is None else self.sink.logits
        if self.recorder is not None:
            scores, weights = precise_weights(q, k, mask, sink, self.cap)
            rest = {} if sink is None else {"sink_weights": softmax_with_sink(scores, sink)[1].detach()}
            self.record(queries=q, keys=k, values=v, scores=scores, weights=weights, **rest)
        if use_plain() or self.cap is not None:  # fused kernels have no cap
            out = plain_attention(q, k, v, mask, sink, self.cap)
        else:
            out = fast_attention(q, k, v, mask, sink)
        self.record(heads=out)
        if self.gate_proj is not None:
            gate = self.gate_proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2).sigmoid()
            self.record(gate=gate.expand_as(out))
            out = out * gate
        return self.o_proj(out.transpose(1, 2).flatten(2))
