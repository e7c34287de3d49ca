"""What attention does with its cache in one step of decoding: FLOPs and bytes for each cached token, and their ratio.

A step reads the whole cache of a layer once, for one new query in every head; all query heads that share a key-value
head share that read. With two bytes a value the ratio is H / K FLOPs a byte for H query and K key-value heads, however
long the text, however many texts (each has a cache of its own). A chip that can do far more FLOPs than it can read
bytes waits (Williams et al., Roofline, 2009; Shazeer, Fast Transformer Decoding, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from morph import config as c
from morph.measure.mixers import mixer_cost


@dataclass(frozen=True)
class Reading:
    """What one new query in every head of a layer costs for each cached token.

    Attributes:
        flops: of its score and its share in the weighted sum, a multiply and an add counted as two.
        values: numbers read of it.
    """

    flops: int
    values: int

    def intensity(self, bytes_per_value: int = 2) -> float:
        """FLOPs for each byte read."""
        return self.flops / (self.values * bytes_per_value)


def reading(model: c.ModelConfig, layer: int) -> Reading | None:
    """What layer `layer` (from 0) does with a cached token; None for a layer with a state, which caches none.

    Latent attention decodes in its absorbed form, where all heads meet the latent itself; what an indexer reads
    besides is left out.
    """
    spec = model.mixer(layer)
    if isinstance(spec, c.State):
        return None
    if isinstance(latent := model.attention, c.MLA):
        model = replace(model, attention=replace(latent, indexer=None))
        cost = mixer_cost(model, layer, 1)
        return Reading(2 * latent.n_heads * (2 * latent.kv_rank + latent.rope_dim), cost.per_token)
    cost = mixer_cost(model, layer, 1)
    return Reading(cost.scores, cost.per_token)


def unfolded(spec: c.MLA) -> int:
    """Numbers of a token's keys and values in one layer, were each head's own cached and not the latent."""
    return spec.n_heads * (spec.width + spec.v_dim)
