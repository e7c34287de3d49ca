"""Multi-head latent attention: keys and values of all heads unfold from one short vector, and only that is cached.

    c_q = norm(W_dq x)             q_h = [W_uq,h c_q | rotate(W_qr,h c_q)]        without q_rank, x stands for c_q
    c   = norm(W_dkv x)            k_h = [W_uk,h c   | rotate(W_kr x)]            v_h = W_uv,h c
    o_h = Σ_j softmax_j(q_h · k_h,j / √(nope + rope)) v_h,j

(DeepSeek-V2, 2024.) Of a token stay c and the one rotated key that all heads share. A rotation cannot pass through
W_uk, so it has features of its own; without one, q_h · W_uk,h c = (W_uk,hᵀ q_h) · c: queries can meet the latents
themselves, and heads gather latents and unfold what they gathered. That is the absorbed form: one key-value head that
is R + rope wide. It saves the unfolding, and pays with longer dot products.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from morph import config
from morph.nn.attention import SoftmaxMixer, fast_attention, fused_attention, plain_attention, precise_weights
from morph.nn.cache import LatentCache
from morph.nn.context import Context
from morph.nn.mask import Mask
from morph.nn.norm import RMSNorm
from morph.nn.organ import Linear, use_plain
from morph.nn.position import rotate

Latents = Float[Tensor, "B N R"]
RotaryKeys = Float[Tensor, "B N Dr"]
Queries = Float[Tensor, "B H S Dh"]
Heads = Float[Tensor, "B H S Dv"]


def absorbing_saves(spec: config.MLA, queries: int, keys: int) -> bool:
    """Whether the absorbed form takes fewer products than unfolding the keys and values of all `keys` tokens.

    For one head: unfolding costs R (nope + v) a key and folding as much a query; a pair of the two costs
    nope + rope + v unfolded and 2 R + rope folded.
    """
    fold = spec.kv_rank * (spec.nope_dim + spec.v_dim)
    unfolded = fold * keys + (spec.width + spec.v_dim) * queries * keys
    return fold * queries + (2 * spec.kv_rank + spec.rope_dim) * queries * keys < unfolded


class LatentAttention(SoftmaxMixer):
    """One layer; within a sliding window it sees the last tokens only.

    Both projections of the stream carry a bias where the model has biases, and so does the last one; what unfolds a
    latent has none.
    """

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__()
        spec, D, local, position = model.attention, model.d_model, model.mixer(layer), model.position_in(layer)
        assert isinstance(spec, config.MLA), "other kinds of attention have modules of their own"
        self.spec, self.n_heads = spec, spec.n_heads
        self.scale = spec.width**-0.5 if spec.scale is None else spec.scale
        self.window = local.window if isinstance(local, config.SlidingWindow) else None
        self.rope = position if isinstance(position, config.Rotary) else None
        queries = spec.n_heads * spec.width
        if spec.q_rank is None:
            self.q_proj = Linear(D, queries, bias=False)
        else:
            self.q_down = Linear(D, spec.q_rank, model.bias)
            self.q_latent_norm = RMSNorm(spec.q_rank, spec.eps)
            self.q_up = Linear(spec.q_rank, queries, bias=False)
        self.kv_down = Linear(D, spec.kv_rank + spec.rope_dim, model.bias)  # latent, then the shared key
        self.kv_latent_norm = RMSNorm(spec.kv_rank, spec.eps)
        self.kv_up = Linear(spec.kv_rank, spec.n_heads * (spec.nope_dim + spec.v_dim), bias=False)  # key, value a head
        self.o_proj = Linear(spec.n_heads * spec.v_dim, D, model.bias)

    def new_cache(self) -> LatentCache:
        """An empty cache for this layer."""
        return LatentCache(self.window)

    def forward(
        self, x: Float[Tensor, "B S D"], context: Context, cache: LatentCache | None = None
    ) -> Float[Tensor, "B S D"]:
        """What each token gathers from the tokens it may see."""
        q, (latents, rotary_keys) = self.queries(self.ask(x), context), self.compress(x, context)
        columns = context.columns
        if cache is not None:
            (latents, rotary_keys), columns = cache.extend((latents, rotary_keys), columns)
        out = self.attend(q, latents, rotary_keys, context.mask(self.window, columns), cache is not None)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def ask(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S Rq"]:
        """What queries unfold from: their normed latents, or `x` itself."""
        if self.spec.q_rank is None:
            return x
        down = self.q_down(x)
        asking = self.q_latent_norm(down).to(down.dtype)  # under autocast the norm answers in fp32
        self.record(query_latents=asking)
        return asking

    def queries(self, asking: Float[Tensor, "B S Rq"], context: Context) -> Queries:
        """Every head's query, its last features rotated."""
        unfold = self.q_proj if self.spec.q_rank is None else self.q_up
        q = unfold(asking).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        self.record(unrotated_queries=q)
        plain, turning = q.split((self.spec.nope_dim, self.spec.rope_dim), dim=-1)
        return torch.cat((plain, self.turn(turning, context)), dim=-1)

    def compress(
        self, x: Float[Tensor, "B S D"], context: Context
    ) -> tuple[Float[Tensor, "B S R"], Float[Tensor, "B S Dr"]]:
        """What is kept of every token: its normed latent and its rotated key."""
        down = self.kv_down(x)
        latents, keys = down.split((self.spec.kv_rank, self.spec.rope_dim), dim=-1)
        self.record(unrotated_rotary_keys=keys)
        return self.kv_latent_norm(latents).to(down.dtype), self.turn(keys[:, None], context)[:, 0]

    def turn(self, x: Float[Tensor, "B heads S Dr"], context: Context) -> Float[Tensor, "B heads S Dr"]:
        """The features rotated by their places, where positions are rotations."""
        if self.rope is None:
            return x.clone()  # a cache that held a view would hold all that was projected
        return rotate(x, *context.rotation(self.rope, self.spec.rope_dim), self.rope.pairing)

    def attend(self, q: Queries, latents: Latents, rotary_keys: RotaryKeys, mask: Mask, is_cached: bool) -> Heads:
        """The heads' outputs, in the absorbed form when tokens are `is_cached` and it is the cheaper one."""
        absorb = is_cached and not use_plain() and absorbing_saves(self.spec, q.shape[2], latents.shape[1])
        if self.recorder is not None:
            self.record(latents=latents, rotary_keys=rotary_keys)
        if not absorb:
            k, v = self.unfold(latents, rotary_keys)
            self.watch(q, k, v, mask)
            attention = plain_attention if use_plain() else fast_attention
            out = attention(q * (self.scale * self.spec.width**0.5), k, v, mask)
        else:
            if self.recorder is not None:
                with torch.no_grad():
                    self.watch(q, *self.unfold(latents, rotary_keys), mask)
            out = self.absorbed(q, latents, rotary_keys, mask)
        self.record(heads=out)
        return out

    def unfold(
        self, latents: Latents, rotary_keys: RotaryKeys
    ) -> tuple[Float[Tensor, "B H N Dh"], Float[Tensor, "B H N Dv"]]:
        """The keys and values of all heads."""
        both = self.kv_up(latents).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = both.split((self.spec.nope_dim, self.spec.v_dim), dim=-1)
        shared = rotary_keys[:, None].expand(-1, self.n_heads, -1, -1)
        return torch.cat((k, shared.to(k.dtype)), dim=-1), v

    def unfolders(self) -> tuple[Float[Tensor, "H Dn R"], Float[Tensor, "H Dv R"]]:
        """Each head's maps from a latent to its key and to its value."""
        up = self.kv_up.weight.unflatten(0, (self.n_heads, -1))
        to_key, to_value = up.split((self.spec.nope_dim, self.spec.v_dim), dim=1)
        return to_key, to_value

    def fold(self, q: Queries) -> Float[Tensor, "B H S Dc"]:
        """Queries that meet what is cached, latent and rotated key side by side: their products are those with keys."""
        plain, turned = q.split((self.spec.nope_dim, self.spec.rope_dim), dim=-1)
        return torch.cat((plain @ self.unfolders()[0], turned), dim=-1)

    def absorbed(self, q: Queries, latents: Latents, rotary_keys: RotaryKeys, mask: Mask) -> Heads:
        """The same without unfolding a key or a value: queries fold into the latents' space, outputs unfold from it.

        All heads share one key, so their queries line up as S H queries of one head. What they gather is the whole key,
        of which the rotated part is dropped: a value of its own would be a copy.
        """
        (B, H, S, _), R = q.shape, self.spec.kv_rank
        _, to_value = self.unfolders()
        folded = self.fold(q) * (self.scale * (R + self.spec.rope_dim) ** 0.5)
        key = torch.cat((latents, rotary_keys), dim=-1)[:, None]
        allowed = None
        if mask.allowed is not None or mask.is_causal:
            table = mask.table(S, key.shape[2], q.device)
            allowed = table.repeat(H, 1) if table.dim() == 2 else table.expand(-1, H, -1, -1).reshape(B, 1, H * S, -1)
        gathered = fused_attention(folded.reshape(B, 1, H * S, -1), key, key, allowed, False, None)
        return gathered[..., :R].unflatten(2, (H, S))[:, 0] @ to_value.transpose(-1, -2)

    def watch(self, q: Queries, k: Float[Tensor, "B H N Dh"], v: Float[Tensor, "B H N Dv"], mask: Mask) -> None:
        """Hand a trace what softmax attention hands it."""
        if self.recorder is not None:
            scores, weights = precise_weights(q * (self.scale * self.spec.width**0.5), k, mask)
            self.record(queries=q, keys=k, values=v, scores=scores, weights=weights)
