# %% [markdown]
# Solutions to the exercises of `03_normalization`; each cell replaces the one with the same first line.

# %%
import math

import torch
import torch.nn.functional as F


# %%
# Exercise 1 · LayerNorm by way of RMSNorm
def my_layer_norm(x: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, eps: float) -> torch.Tensor:
    """The mean square of what is left without the mean is the variance."""
    return gain * F.rms_norm(x - x.mean(-1, keepdim=True), (x.shape[-1],), eps=eps) + shift


# %%
# Exercise 2 · statistics of the whole from those of its parts
def merged(means: torch.Tensor, variances: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The variance of the whole: the mean of the parts', and the variance of their means."""
    mean = means.mean(dim=0)
    return mean, variances.mean(dim=0) + (means - mean).square().mean(dim=0)


# %%
# Exercise 3 · two directions in which LayerNorm's output does not move
def unheard(x: torch.Tensor) -> torch.Tensor:
    """All features up by the same, or all of them larger by the same factor."""
    return torch.stack([torch.ones_like(x), x - x.mean()])


# %%
# Exercise 4 · the largest score that two gains allow
def largest_score(gq: torch.Tensor, gk: torch.Tensor) -> float:
    """All of both vectors in the feature where the gains' product is largest."""
    return math.sqrt(len(gq)) * (gq * gk).abs().max().item()


# %%
# Exercise 5 · the score for a share
def needed(a: float, n: int) -> float:
    """Solved for B."""
    return math.log(a / (1 - a) * (n - 1))
