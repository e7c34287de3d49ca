# %% [markdown]
# Solutions to the exercises of `07_mixture_of_experts`; each cell replaces the one with the same first line.

# %%
import math

import torch


# %%
# Exercise 1 · from scores to weights
def my_route(logits: torch.Tensor, k: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax, the k best, divided by their sum and scaled."""
    best, chosen = logits.softmax(dim=-1).topk(k, dim=-1)
    return scale * best / best.sum(dim=-1, keepdim=True), chosen


# %%
# Exercise 2 · the share of the weights that one token uses
def used_share(n: int, k: int, shared: int) -> float:
    """Shared experts are stored and used, chosen ones used, the others only stored."""
    return (k + shared) / (n + shared)


# %%
# Exercise 3 · the fair comparison with 2 of 8
equal_k = 2 * 256 // 8
teams = math.comb(256, equal_k)

# %%
# Exercise 4 · a bias that every token obeys
logits = torch.randn(50, 8, generator=torch.Generator().manual_seed(3))
bias = torch.zeros(8)
bias[3] = 1.0  # a probability is at most 1, so no other can come before it twice


# %%
# Exercise 5 · the best seven on the best two devices
def limited(p: torch.Tensor) -> torch.Tensor:
    """Devices by the sum of their probabilities, experts of the others put out of reach."""
    by_device = p.unflatten(-1, (4, 8))
    kept = by_device.sum(dim=-1).topk(2, dim=-1).indices
    is_in = torch.zeros(len(p), 4, dtype=torch.bool).scatter(1, kept, True)
    return by_device.masked_fill(~is_in[..., None], -1).flatten(1).topk(7, dim=-1).indices
