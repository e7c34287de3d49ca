"""How a token knows its place.

Sinusoid (Vaswani et al., 2017), added to the embedding once: p[m, 2i] = sin(m b^(-2i/D)), p[m, 2i+1] = cos(same).
Rotation (Su et al., 2021), applied to q and k in every layer: the pair (x_i, x_{i + Dh/2}) turns by the angle
m b^(-2i/Dh). Turned dot products depend on the two vectors and the distance alone:
⟨R(m)q, R(n)k⟩ = ⟨q, R(n - m)k⟩. Pairs are half a head apart, as in Llama.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def frequencies(width: int, base: float) -> Float[Tensor, "half"]:
    """Angles per token, b^(-2i/width) for i = 0 .. width/2 - 1, in fp64."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def sinusoid_table(length: int, width: int, base: float) -> Float[Tensor, "S D"]:
    """The added vectors of positions 0 .. length-1, sine in even and cosine in odd features, in fp64."""
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies(width, base))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def rotation_table(length: int, width: int, base: float) -> Float[Tensor, "2 S half"]:
    """Cosines and sines of the angles of positions 0 .. length-1, in fp64."""
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies(width, base))
    return torch.stack((angles.cos(), angles.sin()))


def rotate(
    x: Float[Tensor, "B heads S Dh"], cos: Float[Tensor, "*b S half"], sin: Float[Tensor, "*b S half"]
) -> Float[Tensor, "B heads S Dh"]:
    """Turn each pair (i, i + Dh/2) by its angle; computed in the tables' precision, returned in that of `x`."""
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)
