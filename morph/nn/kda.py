"""Kimi Delta Attention (Kimi Linear, 2025): the gated delta rule with a decay of its own for every key feature.

    S_t = (I - β_t k_t k_tᵀ) Diag(α_t) S_{t-1} + β_t k_t v_tᵀ          o_t = S_tᵀ q_t

α_t = exp(-A softplus(a_t + dt)) is a vector of Dk numbers, with one A for each head and one dt for each feature. a and
the output's sigmoid gate pass through few features, two matrices each. `morph.nn.deltalayer` has the rest of the layer.

In chunks the fading between two tokens no longer leaves the sum over features: Σ_d q_td k_id α_{i+1,d} ⋯ α_{t,d}. Two
factors with exponents of opposite sign would make it one matrix product, and overflow. `faded_products` halves instead:
across the middle of a stretch every exponent is a sum of logs from the middle, never positive, whichever the decays.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from morph import config
from morph.nn.deltalayer import (
    SIZE,
    DeltaLayer,
    Keys,
    PerHead,
    PerRow,
    State,
    Values,
    chunk_by_chunk,
    split,
    token_by_token,
)
from morph.nn.feedforward import activation_rms
from morph.nn.organ import Linear

CHUNK = 32  # a power of two; measured fastest on CPUs among 16 to 128


def faded_products(
    readers: Float[Tensor, "m *b C Dk"], keys: Float[Tensor, "*b C Dk"], log_decay: Float[Tensor, "*b C Dk"]
) -> tuple[Float[Tensor, "m *b C C"], Float[Tensor, "*b C Dk"], Float[Tensor, "*b C Dk"]]:
    """Σ_d r_td k_id e^(the sum of log α_d over i+1 .. t) for i <= t, else 0; C is a power of two.

    Stretches of one token (where nothing fades) are joined in pairs, then in fours, and so on: only what the second
    half of a stretch reads of the first is new, one matrix product. In all, the C (C - 1) / 2 pairs of different tokens
    are multiplied, each once.

    Returns:
        The products, and the sums of log α from the chunk's start to each token and from each token to the chunk's end.
    """
    one, C = -2, keys.shape[-2]
    products = (readers * keys).sum(-1)[..., None, None]  # (m, *b, stretches, length, length)
    readers, keys = readers.unsqueeze(one), keys.unsqueeze(one)  # (*b, stretches, length, Dk), as the next two
    before = log_decay.unsqueeze(one)  # log α from the stretch's start to t, t included
    after = torch.zeros_like(before)  # log α from i to the stretch's end, i excluded
    for _ in range(C.bit_length() - 1):
        readers, keys, before, after = (x.unflatten(-3, (-1, 2)) for x in (readers, keys, before, after))
        faded = keys[..., 0, :, :] * after[..., 0, :, :].exp()
        across = (readers[..., 1, :, :] * before[..., 1, :, :].exp()) @ faded.transpose(-1, -2)
        first, second = products.unflatten(-3, (-1, 2)).unbind(-3)
        upper = torch.cat((first, torch.zeros_like(first)), dim=-1)
        products = torch.cat((upper, torch.cat((across, second), dim=-1)), dim=-2)
        totals = before[..., -1:, :]
        before = torch.cat((before[..., 0, :, :], before[..., 1, :, :] + totals[..., 0, :, :]), dim=-2)
        after = torch.cat((after[..., 0, :, :] + totals[..., 1, :, :], after[..., 1, :, :]), dim=-2)
        readers, keys = readers.flatten(-3, -2), keys.flatten(-3, -2)
    return products.squeeze(-3), before.squeeze(-3), after.squeeze(-3)


def recurrent_rule(q: Keys, k: Keys, v: Values, log_decay: Keys, beta: PerHead, state: State) -> tuple[Values, State]:
    """The rule token by token; `log_decay` is log α <= 0. Returns all outputs and the last state."""
    return token_by_token(q, k, v, log_decay, beta, state)


def chunked_rule(
    q: Keys, k: Keys, v: Values, log_decay: Keys, beta: PerHead, state: State, chunk: int = CHUNK
) -> tuple[Values, State]:
    """The same, `chunk` tokens (a power of two) at a time; see `morph.nn.delta.chunked_rule` for the equations."""
    S = q.shape[2]
    q, k, v, log_decay, beta = (split(x, chunk) for x in (q, k, v, log_decay, beta))
    beta = beta[..., None]
    products, before, after = faded_products(torch.stack((beta * k, q)), k, log_decay)
    growth = before.exp()
    out, state = chunk_by_chunk(
        system=products[0].tril(-1),
        within=products[1],
        reading=q * growth,
        erasing=beta * growth * k,
        writing=beta * v,
        to_end=k * after.exp(),
        end_fade=growth[..., -1, :],
        state=state,
    )
    return out[:, :, :S], state


class KimiDelta(DeltaLayer):
    """One mixer layer."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        spec = model.mixer(layer)
        assert isinstance(spec, config.KimiDelta)
        self.rank = spec.gate_rank or spec.head_dim
        heads = (spec.n_heads, spec.head_dim)
        gain = SIZE / activation_rms("sigmoid")
        super().__init__(model.d_model, heads, heads, spec.head_dim, spec.conv_size, spec.eps or model.norm.eps, gain)

    def make_gates(self, D: int) -> None:
        """Maps through few features; β has a matrix of its own."""
        self.beta_proj = Linear(D, self.n_heads, bias=False)
        self.decay_down = Linear(D, self.rank, bias=False)
        self.decay_up = Linear(self.rank, self.n_heads * self.key_dim, bias=False)
        self.gate_down = Linear(D, self.rank, bias=False)
        self.gate_up = Linear(self.rank, self.n_heads * self.value_dim, bias=False)

    def decay_input(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S H_Dk"]:
        """One number for each key feature of each head."""
        raw: Tensor = self.decay_up(self.decay_down(x))
        return raw

    def gate(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S values"]:
        """A sigmoid for each feature of the output."""
        raw: Tensor = self.gate_up(self.gate_down(x))
        return raw.sigmoid()

    def rule(
        self, q: Keys, k: Keys, v: Values, log_decay: PerRow, beta: PerHead, state: State, is_step: bool
    ) -> tuple[Values, State]:
        """One token by the recurrent form, more by the chunked one."""
        self.record(log_decays=log_decay)
        return (recurrent_rule if is_step else chunked_rule)(q, k, v, log_decay, beta, state)
