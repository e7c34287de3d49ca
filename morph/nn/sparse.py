"""Sparse attention: a small indexer chooses the tokens that each query attends to, on top of latent attention.

    I(t, s) = Σ_h w_t,h relu(q_t,h · k_s / √Di)          query t attends to the `top_k` tokens s ≤ t of largest I

(DeepSeek-V3.2, 2025.) The indexer's queries unfold from the latent that attention's queries unfold from; its one key a
token, LayerNormed, is cached beside the latent. It reads every token in sight, with heads so cheap that this costs
little; attention, which costs more, reads `top_k`. Ties go to the earlier token.

A choice has no gradient, so the indexer learns from attention itself: its loss is the divergence of softmax(I) from
attention's weights, averaged over heads, over the tokens attended to. All it reads is detached: that loss moves the
indexer alone, and the model's loss everything else. In the first `warm_up` steps of training attention is dense and the
indexer learns from all tokens in sight; a model that does not train always chooses.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from morph import config
from morph.nn.attention import precise_weights
from morph.nn.cache import IndexedCache, LatentCache
from morph.nn.context import Context
from morph.nn.latent import LatentAttention
from morph.nn.mask import Mask
from morph.nn.norm import LayerNorm
from morph.nn.organ import Linear, Organ
from morph.nn.position import rotate
from morph.nn.router import best

KEY_EPS = 1e-6  # of the key's norm, in all released models

IndexQueries = Float[Tensor, "B Hi S Di"]
IndexKeys = Float[Tensor, "B N Di"]
HeadWeights = Float[Tensor, "B S Hi"]
Scores = Float[Tensor, "B S N"]
Chosen = Int[Tensor, "B S k"]


class Indexer(Organ):
    """Scores tokens cheaply and chooses; while training it counts steps and measures how far it is from attention."""

    steps: Tensor

    def __init__(self, spec: config.Indexer, q_rank: int, d_model: int, rope: config.Rotation | None) -> None:
        super().__init__()
        self.spec, self.rope = spec, rope
        self.q_proj = Linear(q_rank, spec.n_heads * spec.head_dim, bias=False)
        self.k_proj = Linear(d_model, spec.head_dim, bias=False)
        self.k_norm = LayerNorm(spec.head_dim, KEY_EPS)
        self.weights_proj = Linear(d_model, spec.n_heads, bias=False)
        if spec.warm_up:
            self.register_buffer("steps", torch.empty((), dtype=torch.long))

    def init_weights(self, generator: torch.Generator) -> None:
        if self.spec.warm_up:
            self.steps.zero_()

    @torch.no_grad()
    def end_step(self) -> None:
        """Count a step of training."""
        if self.spec.warm_up:
            self.steps += 1

    def forward(
        self, x: Float[Tensor, "B S D"], asking: Float[Tensor, "B S Rq"], context: Context
    ) -> tuple[IndexQueries, Float[Tensor, "B S Di"], HeadWeights]:
        """Queries, keys and the weights of heads, of the tokens read now; what they are made of gets no gradient."""
        x, asking = x.detach(), asking.detach()
        q = self.q_proj(asking).unflatten(-1, (self.spec.n_heads, -1)).transpose(1, 2)
        k = self.k_proj(x)
        k = self.k_norm(k).to(k.dtype)[:, None]
        if self.rope is not None:  # turns the first features, all heads alike
            cos, sin = context.rotation(self.rope, self.spec.rope_dim)
            q, k = (rotate(part, cos, sin, self.spec.pairing) for part in (q, k))
        return q, k[:, 0], self.weights_proj(x) * self.spec.n_heads**-0.5

    def score(self, q: IndexQueries, k: IndexKeys, weights: HeadWeights, mask: Mask) -> Scores:
        """I of every query and token, -inf where the mask hides it, in fp32: rounded scores would tie."""
        with torch.autocast(q.device.type, enabled=False):
            precise = torch.promote_types(q.dtype, torch.float32)
            q, k, weights = q.to(precise), k.to(precise), weights.to(precise)
            matches = F.relu(q @ k[:, None].transpose(-1, -2) * self.spec.head_dim**-0.5)
            scores = (matches * weights.transpose(1, 2)[..., None]).sum(dim=1)
        table = mask.table(q.shape[2], k.shape[1], q.device)
        return scores.masked_fill(~table.view(-1, *table.shape[-2:]), float("-inf"))

    def choose(self, scores: Scores) -> Chosen:
        """The tokens that each query attends to, best first; while too few are in sight, some out of sight as well."""
        chosen = best(scores.detach().flatten(0, 1), self.spec.top_k).unflatten(0, scores.shape[:2])
        self.record(scores=scores, chosen=chosen)
        return chosen

    def limit(self, mask: Mask, chosen: Chosen, keys: int) -> Mask:
        """The mask with all but the chosen tokens hidden, or as it is when nothing is left to hide."""
        if keys <= self.spec.top_k:
            return mask
        B, S = chosen.shape[:2]
        seen = torch.zeros(B, S, keys, dtype=torch.bool, device=chosen.device).scatter_(-1, chosen, True)
        if self.training and self.spec.warm_up:
            seen = seen | (self.steps < self.spec.warm_up)
        return Mask(mask.table(S, keys, chosen.device) & seen[:, None], is_causal=False)

    def lesson(self, scores: Scores, attended: Float[Tensor, "B H S N"], mask: Mask) -> Float[Tensor, ""]:
        """KL(mean of the heads' weights || softmax of the scores) over the tokens attended to, in nats a query."""
        table = mask.table(scores.shape[1], scores.shape[2], scores.device)
        is_out = ~table.view(-1, *table.shape[-2:])
        ours = scores.masked_fill(is_out, float("-inf")).log_softmax(dim=-1).masked_fill(is_out, 0.0)
        return F.kl_div(ours, attended.mean(dim=1), reduction="none").sum(dim=-1).mean()


class SparseAttention(LatentAttention):
    """Latent attention to the tokens that an indexer chooses."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__(model, layer)
        assert self.spec.indexer is not None and self.spec.q_rank is not None
        self.indexer = Indexer(self.spec.indexer, self.spec.q_rank, model.d_model, self.rope)

    def new_cache(self) -> IndexedCache:
        """An empty cache for this layer."""
        return IndexedCache(self.window)

    def forward(
        self, x: Float[Tensor, "B S D"], context: Context, cache: LatentCache | None = None
    ) -> Float[Tensor, "B S D"]:
        """What each token gathers from the tokens chosen for it."""
        asking, columns = self.ask(x), context.columns
        q, (latents, rotary_keys) = self.queries(asking, context), self.compress(x, context)
        index_queries, index_keys, head_weights = self.indexer(x, asking, context)
        if cache is not None:
            (latents, rotary_keys, index_keys), columns = cache.extend((latents, rotary_keys, index_keys), columns)
        mask = context.mask(self.window, columns)
        scores = self.indexer.score(index_queries, index_keys, head_weights, mask)
        self.indexer.record(queries=index_queries, keys=index_keys, head_weights=head_weights)
        chosen = self.indexer.choose(scores)
        mask = self.indexer.limit(mask, chosen, len(columns))
        if self.training and cache is None and torch.is_grad_enabled():
            with torch.no_grad():
                keys, _ = self.unfold(latents, rotary_keys)
                _, attended = precise_weights(q * (self.scale * self.spec.width**0.5), keys, mask)
            context.lessons.append(self.indexer.lesson(scores, attended, mask))
        is_decoding = cache is not None and q.shape[2] == 1 and not self.training and self.recorder is None
        if is_decoding and mask.allowed is not None and len(columns) > chosen.shape[-1]:
            latents, rotary_keys, mask = only(chosen[:, 0], latents, rotary_keys, mask.allowed)
        out = self.attend(q, latents, rotary_keys, mask, cache is not None)
        return self.o_proj(out.transpose(1, 2).flatten(2))


def only(
    chosen: Int[Tensor, "B k"],
    latents: Float[Tensor, "B N R"],
    rotary_keys: Float[Tensor, "B N Dr"],
    allowed: Bool[Tensor, "B 1 1 N"],
) -> tuple[Float[Tensor, "B k R"], Float[Tensor, "B k Dr"], Mask]:
    """The chosen tokens alone, for one query: attention's work no longer grows with the text."""
    chosen = chosen.sort(dim=-1).values
    latents, rotary_keys = (
        part.gather(1, chosen[..., None].expand(-1, -1, part.shape[-1])) for part in (latents, rotary_keys)
    )
    return latents, rotary_keys, Mask(allowed.gather(-1, chosen[:, None, None]), is_causal=False)
