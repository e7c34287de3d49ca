# %% [markdown]
# Solutions to the exercises of `06_masks`; each cell replaces the one with the same first line.

# %%
import math

import torch


# %%
# Exercise 1 · a window that keeps the first tokens
def stream_mask(length: int, window: int, kept: int) -> torch.Tensor:
    """(query, key): a band, the first columns, and nothing above the diagonal."""
    i = torch.arange(length)
    distance = i[:, None] - i[None, :]
    return (distance >= 0) & ((distance < window) | (i[None, :] < kept))


# %%
# Exercise 2 · layers needed to hear so far back
def layers_needed(distance: int, window: int) -> int:
    """Each layer carries it window - 1 places."""
    return math.ceil(distance / (window - 1))


# %%
# Exercise 3 · factor by which the cache shrinks
def saving(n: int, w: int, s: int) -> float:
    """n + 1 layers of s tokens, against n of min(s, w) and one of s."""
    return (n + 1) * s / (n * min(s, w) + s)


# %%
# Exercise 4 · the logit that takes a share
def sink_logit(n: int, share: float) -> float:
    """share = e^σ / (e^σ + n)."""
    return math.log(n * share / (1 - share))
