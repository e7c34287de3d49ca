"""Gated DeltaNet (Yang et al., 2024; as in Qwen3-Next, 2025): a state of fixed size in the place of a cache.

Each value head keeps a matrix S (Dk, Dv). A token first lets all of it fade by α, then moves what S answers to its key
a share β of the way towards its value; α multiplies the erased part too:

    S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ          o_t = S_tᵀ q_t

α = exp(-A softplus(a + dt)) is one number for each head, and SiLU(z) gates the output; `morph.nn.deltalayer` has the
rest of the layer. Two forms of the rule follow: `recurrent_rule` reads as above, token by token; `chunked_rule` does
whole chunks with matrix products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from morph import config
from morph.nn.deltalayer import (
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
from morph.nn.deltalayer import unit as unit
from morph.nn.organ import Linear

CHUNK = 32  # measured fastest on CPUs among 16 to 128


def recurrent_rule(
    q: Keys, k: Keys, v: Values, log_decay: PerHead, beta: PerHead, state: State
) -> tuple[Values, State]:
    """The rule token by token; `log_decay` is log α <= 0. Returns all outputs and the last state."""
    return token_by_token(q, k, v, log_decay[..., None], beta, state)


def chunked_rule(
    q: Keys, k: Keys, v: Values, log_decay: PerHead, beta: PerHead, state: State, chunk: int = CHUNK
) -> tuple[Values, State]:
    """The same, `chunk` tokens at a time.

    Inside a chunk that starts from S_0, with G_t the sum of log α up to t, the written values u_t obey

        u_t + Σ_{i<t} β_t e^(G_t - G_i) (k_t · k_i) u_i = β_t v_t - β_t e^(G_t) k_tᵀ S_0

    a unit lower-triangular system. Then o_t = e^(G_t) q_tᵀ S_0 + Σ_{i<=t} e^(G_t - G_i) (q_t · k_i) u_i and
    S_C = e^(G_C) S_0 + Σ e^(G_C - G_i) k_i u_iᵀ.
    """
    S = q.shape[2]
    q, k, v, log_decay, beta = (split(x, chunk) for x in (q, k, v, log_decay, beta))
    G = log_decay.cumsum(-1)
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    fade = (G[..., :, None] - G[..., None, :]).masked_fill(~lower, float("-inf")).exp()  # e^(G_t - G_i), i <= t
    beta, growth = beta[..., None], G.exp()[..., None]
    out, state = chunk_by_chunk(
        system=(beta * k @ k.transpose(-1, -2) * fade).tril(-1),
        within=q @ k.transpose(-1, -2) * fade,
        reading=q * growth,
        erasing=beta * growth * k,
        writing=beta * v,
        to_end=k * (G[..., -1:] - G).exp()[..., None],
        end_fade=growth[..., -1, :],
        state=state,
    )
    return out[:, :, :S], state


class GatedDeltaNet(DeltaLayer):
    """One mixer layer."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        spec = model.mixer(layer)
        assert isinstance(spec, config.GatedDeltaNet)
        keys, values = (spec.n_key_heads, spec.key_head_dim), (spec.n_value_heads, spec.value_head_dim)
        # Normed and gated heads have RMS 0.6, and the branch starts with RMS 0.36, as `SIZE` has it.
        super().__init__(model.d_model, keys, values, 1, spec.conv_size, spec.eps or model.norm.eps, gain=0.6)
        self.beta_max = spec.beta_max

    def make_gates(self, D: int) -> None:
        """One matrix each."""
        self.z_proj = Linear(D, self.n_heads * self.value_dim, bias=False)
        self.beta_proj = Linear(D, self.n_heads, bias=False)
        self.decay_proj = Linear(D, self.n_heads, bias=False)

    def decay_input(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S H"]:
        """One number for each head."""
        raw: Tensor = self.decay_proj(x)
        return raw

    def gate(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S values"]:
        """SiLU(z)."""
        return F.silu(self.z_proj(x))

    def rule(
        self, q: Keys, k: Keys, v: Values, log_decay: PerRow, beta: PerHead, state: State, is_step: bool
    ) -> tuple[Values, State]:
        """One token by the recurrent form, more by the chunked one."""
        each = log_decay[..., 0]
        self.record(log_decay=each)
        return (recurrent_rule if is_step else chunked_rule)(q, k, v, each, beta, state)
