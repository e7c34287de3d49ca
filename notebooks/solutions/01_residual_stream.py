# %% [markdown]
# Solutions to the exercises of `01_residual_stream`; each cell replaces the one with the same first line.

# %%
import math
from dataclasses import replace

import torch

import morph


# %%
# Exercise 1 · the stream after some layers, from its parts
def stream_after(trace: dict[str, torch.Tensor], layers: int) -> torch.Tensor:
    """x₀ and the two deltas of each layer so far."""
    x = trace["stream"].clone()
    for layer in range(layers):
        x += trace[f"blocks.{layer}.attention_delta"] + trace[f"blocks.{layer}.feed_forward_delta"]
    return x


# %%
# Exercise 2 · length of a sum of W unit vectors, any two of which have the cosine c
def length_of_sum(W: int, c: float) -> float:
    """W squares of 1, and W (W - 1) ordered pairs of c."""
    return math.sqrt(W + W * (W - 1) * c)


# %%
# Exercise 3 · the factor of one part in the last state of a post-norm model
def factor_left(found: list[float], w: int) -> float:
    """Every norm from the part's own on divides it; x₀ meets them all."""
    return 1 / math.prod(found[max(w, 0) :])


# %%
# Exercise 4 · 96 layers whose stream is a sum and stays small
calm = replace(morph.stage(8, size="nano"), n_layers=96, placement="depth-scaled-sandwich")
