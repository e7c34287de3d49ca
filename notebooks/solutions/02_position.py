# %% [markdown]
# Solutions to the exercises of `02_position`; each cell replaces the one with the same first line.

# %%
import math
from dataclasses import replace

import torch

from morph.config import YarnRope
from morph.story.subject import subject

deep = subject("deep")


# %%
# Exercise 1 · speeds of a head's pairs
def speeds_of(width: int, base: float):
    """b^(-2i/d) for every pair i."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


# %%
# Exercise 2 · rows turned by their places
def turned(x: torch.Tensor, speeds: torch.Tensor):
    """Each pair (i, i + d/2) of row m turned by m times its speed."""
    angles = torch.outer(torch.arange(len(x), dtype=speeds.dtype), speeds)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), dim=-1)


# %%
# Exercise 3 · the base whose slowest pair turns once in a text
def base_for(width: int, length: float):
    """From 2π b^((d - 2)/d) = L."""
    return (length / (2 * math.pi)) ** (width / (width - 2))


# %%
# Exercise 4 · a position for texts four times longer
longer = replace(deep.config, position=YarnRope(factor=4.0, original_length=deep.config.context_length))
