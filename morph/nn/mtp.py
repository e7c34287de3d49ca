"""Heads that look further: each predicts one token beyond the head before it (multi-token prediction).

    h_i^0 = what the head reads of token i,    h_i^k = norm(block(W [norm(e(t_{i+k})) ; norm(h_i^{k-1})]))

h_i^k has seen the tokens up to t_{i+k} and predicts t_{i+k+1} through the embedding and the head of the trunk
(DeepSeek-AI, DeepSeek-V3, 2024; earlier heads, without a chain, are Gloeckle et al., 2024). While training it makes
each state plan ahead; afterwards the heads are left out, or they draft what the trunk then checks
(`morph.speculation`).

What the report leaves open is settled as in Hugging Face's code: h^0 comes from behind the trunk's final norm, and each
later head reads behind the norm of the one before. A column stands where its h_i does, so the block's rotations are
those of place i; only distances count, and they are the same. What a model adds to its embedding once (a sinusoid, a
learned row) is in h_i already and is not added again.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from morph import config
from morph.nn.block import BLOCKS
from morph.nn.cache import LayerCache
from morph.nn.context import Context
from morph.nn.norm import build_norm
from morph.nn.organ import Linear, Organ


class MTPHead(Organ):
    """One such head: two norms, the map W that joins what they give, a block like the model's last, a norm."""

    def __init__(self, model: config.ModelConfig) -> None:
        super().__init__()
        last = model.n_layers - 1
        kind = BLOCKS[model.placement_in(last)]
        self.token_norm = build_norm(model.norm, model.d_model)
        self.stream_norm = build_norm(model.norm, model.d_model)
        self.join = Linear(2 * model.d_model, model.d_model, bias=False)
        self.block = kind(model, last)
        self.norm = build_norm(model.norm, model.d_model) if kind.has_final_norm else nn.Identity()

    def forward(
        self,
        h: Float[Tensor, "B S D"],
        tokens: Float[Tensor, "B S D"],
        context: Context,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B S D"]:
        """What the shared head reads; `tokens` are the embeddings of the tokens that came since `h` was made."""
        joined = self.join(torch.cat((self.token_norm(tokens), self.stream_norm(h)), dim=-1))
        self.record(stream=joined)
        return self.norm(self.block(joined, context, cache))
