"""Gated DeltaNet (Yang et al., 2024; as in Qwen3-Next, 2025): a state of fixed size in the place of a cache.

Each value head keeps a matrix S (Dk, Dv). A token first lets all of it fade by α, then moves what S answers to its key
a share β of the way towards its value; α multiplies the erased part too:

    S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ          o_t = S_tᵀ q_t

Around the rule: a causal depthwise convolution with SiLU over q, k and v; q and k of unit length; α = exp(-A
softplus(a + dt)) and β = sigmoid(b) per head; RMSNorm of the output, times SiLU(z). Two forms follow: `recurrent_rule`
reads as above, token by token; `chunked_rule` does whole chunks with matrix products.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from morph import config
from morph.nn.cache import StateCache
from morph.nn.context import Context
from morph.nn.norm import RMSNorm
from morph.nn.organ import Linear, Organ, use_plain

CHUNK = 32  # measured fastest on CPUs among 16 to 128

Keys = Float[Tensor, "B H S Dk"]
Values = Float[Tensor, "B H S Dv"]
PerHead = Float[Tensor, "B H S"]
State = Float[Tensor, "B H Dk Dv"]


def recurrent_rule(
    q: Keys, k: Keys, v: Values, log_decay: PerHead, beta: PerHead, state: State
) -> tuple[Values, State]:
    """The rule token by token; `log_decay` is log α <= 0. Returns all outputs and the last state."""
    outputs = []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t, None, None].exp()
        held = (k[:, :, t, None, :] @ state).squeeze(2)  # what the faded state answers to this key
        write = beta[:, :, t, None] * (v[:, :, t] - held)
        state = state + k[:, :, t, :, None] * write[:, :, None, :]
        outputs.append((q[:, :, t, None, :] @ state).squeeze(2))
    return torch.stack(outputs, dim=2), state


def chunked_rule(
    q: Keys, k: Keys, v: Values, log_decay: PerHead, beta: PerHead, state: State, chunk: int = CHUNK
) -> tuple[Values, State]:
    """The same, `chunk` tokens at a time.

    Inside a chunk that starts from S_0, with G_t the sum of log α up to t, the written values u_t obey

        u_t + Σ_{i<t} β_t e^(G_t - G_i) (k_t · k_i) u_i = β_t v_t - β_t e^(G_t) k_tᵀ S_0

    a unit lower-triangular system, solved once for both right-hand sides. Then
    o_t = e^(G_t) q_tᵀ S_0 + Σ_{i<=t} e^(G_t - G_i) (q_t · k_i) u_i and S_C = e^(G_C) S_0 + Σ e^(G_C - G_i) k_i u_iᵀ.
    """
    S, Dv = q.shape[2], v.shape[-1]
    short = -S % chunk  # a filler token keeps the state: nothing fades (log α = 0), nothing is written (β = 0)
    q, k, v = (F.pad(x, (0, 0, 0, short)).unflatten(2, (-1, chunk)) for x in (q, k, v))
    log_decay, beta = (F.pad(x, (0, short)).unflatten(2, (-1, chunk)) for x in (log_decay, beta))

    G = log_decay.cumsum(-1)
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    fade = (G[..., :, None] - G[..., None, :]).masked_fill(~lower, float("-inf")).exp()  # e^(G_t - G_i), i <= t
    beta, growth = beta[..., None], G.exp()[..., None]
    system = (beta * k @ k.transpose(-1, -2) * fade).tril(-1)
    sides = torch.cat((beta * v, beta * growth * k), dim=-1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    from_values, from_state = solved[..., :Dv], solved[..., Dv:]
    within = q @ k.transpose(-1, -2) * fade
    q_from_state = q * growth
    k_to_end = (k * (G[..., -1:] - G).exp()[..., None]).transpose(-1, -2)
    end_fade = growth[..., -1:, :]

    outputs = []
    for c in range(q.shape[2]):
        u = from_values[:, :, c] - from_state[:, :, c] @ state
        outputs.append(q_from_state[:, :, c] @ state + within[:, :, c] @ u)
        state = end_fade[:, :, c] * state + k_to_end[:, :, c] @ u
    return torch.cat(outputs, dim=2)[:, :, :S], state


def unit(x: Tensor) -> Tensor:
    """`x` at length 1 along the last axis; ε inside the root, as the released models have it."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class CausalConv(Organ):
    """Every channel's own filter over the last `taps` tokens: y_t = Σ_j w_j x_{t - taps + 1 + j}."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps))

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5, generator=generator)

    def forward(
        self, x: Float[Tensor, "B S C"], tail: Float[Tensor, "B taps_1 C"] | None
    ) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B taps_1 C"]]:
        """The filtered tokens and the tail to hand back with the next ones."""
        taps, S = self.weight.shape[1], x.shape[1]
        before = x.new_zeros(len(x), taps - 1, x.shape[2]) if tail is None else tail.to(x.dtype)
        x = torch.cat((before, x), dim=1)
        y = torch.zeros_like(x[:, :S])
        for j in range(taps):
            y = y + x[:, j : j + S] * self.weight[:, j]
        return y.to(x.dtype), x[:, S:].clone()


class GatedDeltaNet(Organ):
    """One mixer layer; no bias anywhere, no position but the order of the tokens."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__()
        spec, D = model.mixer(layer), model.d_model
        assert isinstance(spec, config.GatedDeltaNet)
        self.spec = spec
        keys, values = spec.n_key_heads * spec.key_head_dim, spec.n_value_heads * spec.value_head_dim
        self.q_proj = Linear(D, keys, bias=False)
        self.k_proj = Linear(D, keys, bias=False)
        self.v_proj = Linear(D, values, bias=False)
        self.z_proj = Linear(D, values, bias=False)
        self.beta_proj = Linear(D, spec.n_value_heads, bias=False)
        self.decay_proj = Linear(D, spec.n_value_heads, bias=False)
        self.conv = CausalConv(2 * keys + values, spec.conv_size)
        self.log_A = nn.Parameter(torch.empty(spec.n_value_heads))
        self.dt_bias = nn.Parameter(torch.empty(spec.n_value_heads))
        self.out_norm = RMSNorm(spec.value_head_dim, spec.eps or model.norm.eps)
        # Normed and gated heads have RMS 0.6. Drawn smaller, the branch starts about as large as the average over a
        # window of 16 or 32 that it replaces; over a window of 256 that average is about half as large.
        self.o_proj = Linear(values, D, bias=False, gain=0.6)

    def init_weights(self, generator: torch.Generator) -> None:
        """A in (1, 16) and time steps in (0.001, 0.1), as in Mamba-2: memories of one to a thousand tokens."""
        nn.init.uniform_(self.log_A, 1.0, 16.0, generator=generator).log_()
        nn.init.uniform_(self.dt_bias, math.log(1e-3), math.log(1e-1), generator=generator).exp_()
        self.dt_bias.add_(torch.log(-torch.expm1(-self.dt_bias)))  # the inverse of softplus

    def new_cache(self) -> StateCache:
        """An empty cache for this layer."""
        return StateCache()

    def forward(
        self, x: Float[Tensor, "B S D"], context: Context, cache: StateCache | None = None
    ) -> Float[Tensor, "B S D"]:
        """What each token reads from the state after writing to it."""
        spec = self.spec
        if context.real is not None:
            x = x * context.real[..., None]  # padding writes zeros, so the state stays empty until the text begins
        mixed = torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=-1)
        mixed, tail = self.conv(mixed, None if cache is None else cache.tail)
        keys = spec.n_key_heads * spec.key_head_dim
        q, k, v = F.silu(mixed).split((keys, keys, mixed.shape[-1] - 2 * keys), dim=-1)

        with torch.autocast(x.device.type, enabled=False):  # the state is kept in fp32 (or fp64)
            precise = torch.promote_types(x.dtype, torch.float32)
            q, k, v = (
                part.to(precise).unflatten(-1, (heads, -1)).transpose(1, 2)
                for part, heads in ((q, spec.n_key_heads), (k, spec.n_key_heads), (v, spec.n_value_heads))
            )
            ratio = spec.n_value_heads // spec.n_key_heads
            q = unit(q).repeat_interleave(ratio, dim=1) * spec.key_head_dim**-0.5
            k = unit(k).repeat_interleave(ratio, dim=1)
            raw_decay, raw_beta = (p(x).transpose(1, 2).to(precise) for p in (self.decay_proj, self.beta_proj))
            A, dt_bias = self.log_A.to(precise).exp()[:, None], self.dt_bias.to(precise)[:, None]
            log_decay, beta = -A * F.softplus(raw_decay + dt_bias), spec.beta_max * raw_beta.sigmoid()
            state = None if cache is None else cache.state
            if state is None:
                state = q.new_zeros(len(x), spec.n_value_heads, spec.key_head_dim, spec.value_head_dim)
            rule = recurrent_rule if x.shape[1] == 1 and not use_plain() else chunked_rule
            out, state = rule(q, k, v, log_decay, beta, state)
            self.record(
                unit_queries=q, unit_keys=k, new_values=v, log_decay=log_decay, beta=beta, state=state, read=out
            )
            out = self.out_norm(out)
        if cache is not None:
            cache.state, cache.tail = state, tail
        gate = F.silu(self.z_proj(x))
        return self.o_proj((out.transpose(1, 2).flatten(2) * gate).to(x.dtype))
