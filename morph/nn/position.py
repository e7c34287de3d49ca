"""How a token knows its place: added vectors, rotations, and biases on the scores.

Sinusoid (Vaswani et al., 2017), added to the embedding once: p[m, 2i] = sin(m b^(-2i/D)), p[m, 2i+1] = cos(same).
Rotation (Su et al., 2021), applied to q and k in every layer: the pair (x_i, x_{i + d/2}) turns by the angle m ω_i,
with ω_i = b^(-2i/d) for the d features that turn. Turned dot products depend on the two vectors and the distance alone:
⟨R(m)q, R(n)k⟩ = ⟨q, R(n - m)k⟩. Pairs are half of the turning part apart, as in Llama, or neighbours, as in the paper:
weights reordered, the same function. What the field disagrees on is the speeds ω_i beyond the length a model was
trained on; `frequencies` has them all.
ALiBi (Press et al., 2021) rotates nothing and lowers each score by slope x distance.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from morph import config

# ---- speeds --------------------------------------------------------------------------------------------------


def geometric(width: int, base: float) -> Float[Tensor, "pairs"]:
    """The unscaled speeds, base^(-2i/width) for i = 0 .. width/2 - 1, in fp64."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def frequencies(spec: config.Rotary, head_dim: int) -> Float[Tensor, "pairs"]:
    """Radians that each pair turns per token, fastest first, in fp64.

    Raises:
        MorphError: for a head width that does not come in pairs.
    """
    width = spec.rotated(head_dim)
    if isinstance(spec, config.NtkRope):
        # The exponent makes the slowest speed, base^(-(width - 2) / width), exactly `factor` times slower.
        return geometric(width, spec.base * spec.factor ** (width / (width - 2)))
    plain = geometric(width, spec.base)
    if isinstance(spec, config.LinearRope):
        return plain / spec.factor
    if isinstance(spec, config.YarnRope | config.Llama3Rope):
        slowed = yarn_ramp(spec, width) if isinstance(spec, config.YarnRope) else llama3_ramp(spec, width)
        return plain * (1 - slowed) + plain / spec.factor * slowed
    return plain


def yarn_ramp(spec: config.YarnRope, width: int) -> Float[Tensor, "pairs"]:
    """How far each pair is slowed, 0 (kept) to 1 (divided by `factor`): linear in the pair's number.

    A pair i makes r full turns in `original_length` tokens when i = width ln(original_length / 2πr) / (2 ln base).
    """

    def pair_with(turns: float) -> float:
        return width * math.log(spec.original_length / (2 * math.pi * turns)) / (2 * math.log(spec.base))

    low, high = pair_with(spec.beta_fast), pair_with(spec.beta_slow)
    if spec.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001  # a step instead of a division by zero, placed as the reference code places it
    return ((torch.arange(width // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)


def llama3_ramp(spec: config.Llama3Rope, width: int) -> Float[Tensor, "pairs"]:
    """The same for Llama 3.1: linear in the full turns a pair makes in `original_length` tokens."""
    turns = spec.original_length * geometric(width, spec.base) / (2 * math.pi)
    return 1 - ((turns - spec.low_factor) / (spec.high_factor - spec.low_factor)).clamp(0, 1)


def attention_scale(spec: config.Rotary) -> float:
    """What multiplies cosines and sines alike, so that every score is multiplied by its square."""
    if isinstance(spec, config.YarnRope):
        return yarn_scale(spec.factor) if spec.attention_scale is None else spec.attention_scale
    return 1.0


def yarn_scale(factor: float) -> float:
    """YaRN's fit of how much sharper softmax must be over a text `factor` times longer: 0.1 ln(factor) + 1."""
    return 0.1 * math.log(factor) + 1


# ---- for figures ---------------------------------------------------------------------------------------------


def wavelengths(spec: config.Rotary, head_dim: int) -> Float[Tensor, "pairs"]:
    """Tokens in one full turn of each pair, 2π / ω_i: from 2π up to 2π b^((d-2)/d) when nothing is scaled."""
    return 2 * math.pi / frequencies(spec, head_dim)


def rotation_angles(spec: config.Rotary, head_dim: int, positions: Real[Tensor, "S"]) -> Float[Tensor, "S pairs"]:
    """The angle in radians, unwrapped, by which each pair is turned at each position (whole numbers or not)."""
    return torch.outer(positions.to(torch.float64), frequencies(spec, head_dim))


# ---- tables --------------------------------------------------------------------------------------------------


def sinusoid_table(length: int, width: int, base: float) -> Float[Tensor, "S D"]:
    """The added vectors of positions 0 .. length-1, sine in even and cosine in odd features, in fp64."""
    angles = torch.outer(torch.arange(length, dtype=torch.float64), geometric(width, base))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def rotation_table(length: int, spec: config.Rotary, head_dim: int) -> Float[Tensor, "2 S pairs"]:
    """Cosines and sines of the angles of positions 0 .. length-1, times the attention scale, in fp64."""
    angles = rotation_angles(spec, head_dim, torch.arange(length))
    return torch.stack((angles.cos(), angles.sin())) * attention_scale(spec)


def rotate(
    x: Float[Tensor, "B heads S Dh"],
    cos: Float[Tensor, "*b S pairs"],
    sin: Float[Tensor, "*b S pairs"],
    pairing: config.Pairing = "half-split",
) -> Float[Tensor, "B heads S Dh"]:
    """Turn each pair, (i, i + pairs) or with "interleaved" (2i, 2i + 1), by its angle; features beyond pass untouched.

    Computed in the tables' precision, returned in that of `x`.
    """
    pairs = cos.shape[-1]
    turning, rest = x.to(cos.dtype).tensor_split((2 * pairs,), dim=-1)
    if pairing == "half-split":
        first, second = turning.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
    else:
        first, second = turning.unflatten(-1, (pairs, 2)).unbind(-1)
        both = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
        turned = torch.cat((both, rest), dim=-1)
    return turned.to(x.dtype)


def reorder_pairs(weight: Tensor, head_dim: int, rotated: int, to: config.Pairing) -> Tensor:
    """The rows of a map to queries or keys, (heads x head_dim, ...), for the other pairing: the same scores follow.

    The first `rotated` features of each head are taken to be in the pairing that `to` is not. Gains of a QK-norm and
    biases reorder alike.
    """
    halves = torch.arange(rotated).view(2, rotated // 2)
    order = halves.T.flatten() if to == "interleaved" else torch.arange(rotated).view(-1, 2).T.flatten()
    order = torch.cat((order, torch.arange(rotated, head_dim)))
    return weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def alibi_slopes(n_heads: int) -> Float[Tensor, "H"]:
    """How much each head lowers a score per token of distance, in fp64.

    2^(-8h/n) for h = 1 .. n when n is a power of two; the heads beyond one take every other slope of the next.
    """
    whole = 1 << n_heads.bit_length() - 1
    slopes = [2.0 ** (-8 * h / whole) for h in range(1, whole + 1)]
    between = [2.0 ** (-4 * h / whole) for h in range(1, 2 * (n_heads - whole), 2)]
    return torch.tensor(slopes + between, dtype=torch.float64)


def alibi_bias(queries: Int[Tensor, "S"], keys: Int[Tensor, "N"], n_heads: int) -> Float[Tensor, "H S N"]:
    """What ALiBi adds to the scores of queries and keys in these columns, -slope x distance, in fp64.

    Padding shifts a row's positions and not their distances, so columns serve for all rows.
    """
    distance = (queries[:, None] - keys[None, :]).to(torch.float64)
    return -alibi_slopes(n_heads)[:, None, None] * distance
