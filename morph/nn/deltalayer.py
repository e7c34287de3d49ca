"""What all layers of the delta rule share: Gated DeltaNet (`morph.nn.delta`) and KDA (`morph.nn.kda`).

Each head keeps a matrix S (Dk, Dv). A token first lets it fade, row by row, by α_t (Dk numbers, or the same one for all
rows), then moves what S answers to its key a share β of the way towards its value:

    S_t = (I - β_t k_t k_tᵀ) Diag(α_t) S_{t-1} + β_t k_t v_tᵀ          o_t = S_tᵀ q_t

Around the rule: a causal depthwise convolution with SiLU over q, k and v; q and k of unit length; α = exp(-A
softplus(a + dt)) and β = sigmoid(b); RMSNorm of each head's output, times a gate. A layer says how a and the gate come
about, and how its rule runs in chunks.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from morph.nn.cache import ConvStateCache
from morph.nn.context import Context
from morph.nn.conv import CausalConv
from morph.nn.norm import RMSNorm
from morph.nn.organ import Linear, Organ, use_plain

Keys = Float[Tensor, "B H S Dk"]
Values = Float[Tensor, "B H S Dv"]
PerHead = Float[Tensor, "B H S"]
PerRow = Float[Tensor, "B H S rows"]
State = Float[Tensor, "B H Dk Dv"]

SIZE = 0.36
"""RMS of what a layer with a state writes at first.

That is about the size of the average over a window of 16 or 32 which it replaces; over a window of 256 that average is
about half as large.
"""


def unit(x: Tensor) -> Tensor:
    """`x` at length 1 along the last axis; ε inside the root, as the released models have it."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def token_by_token(q: Keys, k: Keys, v: Values, log_decay: PerRow, beta: PerHead, state: State) -> tuple[Values, State]:
    """The rule as it reads, one log α <= 0 for each row of the state or for all; all outputs and the last state."""
    outputs = []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t, :, None].exp()
        held = (k[:, :, t, None, :] @ state).squeeze(2)  # what the faded state answers to this key
        write = beta[:, :, t, None] * (v[:, :, t] - held)
        state = state + k[:, :, t, :, None] * write[:, :, None, :]
        outputs.append((q[:, :, t, None, :] @ state).squeeze(2))
    return torch.stack(outputs, dim=2), state


def chunk_by_chunk(
    system: Float[Tensor, "B H n C C"],
    within: Float[Tensor, "B H n C C"],
    reading: Float[Tensor, "B H n C Dk"],
    erasing: Float[Tensor, "B H n C Dk"],
    writing: Float[Tensor, "B H n C Dv"],
    to_end: Float[Tensor, "B H n C Dk"],
    end_fade: Float[Tensor, "B H n rows"],
    state: State,
) -> tuple[Float[Tensor, "B H n_C Dv"], State]:
    """The same, n chunks of C tokens, all products within a chunk already at hand.

    In a chunk that starts from the state S_0, the written values U (C, Dv) obey (I + system) U = writing - erasing S_0,
    with `system` strictly lower-triangular; it is solved once for both right-hand sides. The outputs are then
    reading S_0 + within U, and the chunk leaves the state Diag(end_fade) S_0 + to_endᵀ U.
    """
    solved = torch.linalg.solve_triangular(
        system, torch.cat((writing, erasing), dim=-1), upper=False, unitriangular=True
    )
    from_values, from_state = solved[..., : writing.shape[-1]], solved[..., writing.shape[-1] :]
    outputs = []
    for c in range(reading.shape[2]):
        u = from_values[:, :, c] - from_state[:, :, c] @ state
        outputs.append(reading[:, :, c] @ state + within[:, :, c] @ u)
        state = end_fade[:, :, c, :, None] * state + to_end[:, :, c].transpose(-1, -2) @ u
    return torch.cat(outputs, dim=2), state


def split(x: Float[Tensor, "B H S *f"], chunk: int) -> Float[Tensor, "B H n C *f"]:
    """Chunks of tokens, the last one filled up: a filler keeps the state, its log α, β and all else being 0."""
    features = x.dim() - 3
    return F.pad(x, (0, 0) * features + (0, -x.shape[2] % chunk)).unflatten(2, (-1, chunk))


class DeltaLayer(Organ):
    """One layer of the delta rule; no bias anywhere, no position but the order of the tokens.

    A subclass says how many heads of how many features there are, and how many numbers of log α a head has.
    """

    beta_max = 1.0
    beta_proj: Linear

    def __init__(
        self,
        D: int,
        keys: tuple[int, int],
        values: tuple[int, int],
        rows: int,
        taps: int,
        eps: float,
        gain: float,
    ) -> None:
        super().__init__()
        (self.n_key_heads, self.key_dim), (self.n_heads, self.value_dim) = keys, values
        key_features, value_features = math.prod(keys), math.prod(values)
        self.q_proj = Linear(D, key_features, bias=False)
        self.k_proj = Linear(D, key_features, bias=False)
        self.v_proj = Linear(D, value_features, bias=False)
        self.make_gates(D)
        self.conv = CausalConv(2 * key_features + value_features, taps)
        self.log_A = nn.Parameter(torch.empty(self.n_heads))
        self.dt_bias = nn.Parameter(torch.empty(self.n_heads * rows))
        self.out_norm = RMSNorm(self.value_dim, eps)
        self.o_proj = Linear(value_features, D, bias=False, gain=gain)

    def make_gates(self, D: int) -> None:
        """Make `beta_proj` and the maps to the decays and to the output's gate."""
        raise NotImplementedError

    def decay_input(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S H_rows"]:
        """What the decays read, a above."""
        raise NotImplementedError

    def gate(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S values"]:
        """What multiplies the normed output."""
        raise NotImplementedError

    def rule(
        self, q: Keys, k: Keys, v: Values, log_decay: PerRow, beta: PerHead, state: State, is_step: bool
    ) -> tuple[Values, State]:
        """Outputs and last state; `is_step` asks for the form that reads one token."""
        raise NotImplementedError

    def init_weights(self, generator: torch.Generator) -> None:
        """A in (1, 16) and time steps in (0.001, 0.1), as in Mamba-2: memories of one to a thousand tokens."""
        nn.init.uniform_(self.log_A, 1.0, 16.0, generator=generator).log_()
        nn.init.uniform_(self.dt_bias, math.log(1e-3), math.log(1e-1), generator=generator).exp_()
        self.dt_bias.add_(torch.log(-torch.expm1(-self.dt_bias)))  # the inverse of softplus

    def new_cache(self) -> ConvStateCache:
        """An empty cache for this layer."""
        return ConvStateCache()

    def log_decay(self, x: Float[Tensor, "B S D"], precise: torch.dtype) -> PerRow:
        """log α of every token, for each row of the state or for all of them."""
        raw = self.decay_input(x).to(precise) + self.dt_bias.to(precise)
        rows = F.softplus(raw).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return -self.log_A.to(precise).exp()[:, None, None] * rows

    def forward(
        self, x: Float[Tensor, "B S D"], context: Context, cache: ConvStateCache | None = None
    ) -> Float[Tensor, "B S D"]:
        """What each token reads from the state after writing to it."""
        if context.real is not None:
            x = x * context.real[..., None]  # padding writes zeros, so the state stays empty until the text begins
        mixed = torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=-1)
        mixed, tail = self.conv(mixed, None if cache is None else cache.tail)
        keys = self.n_key_heads * self.key_dim
        q, k, v = F.silu(mixed).split((keys, keys, mixed.shape[-1] - 2 * keys), dim=-1)

        with torch.autocast(x.device.type, enabled=False):  # the state is kept in fp32 (or fp64)
            precise = torch.promote_types(x.dtype, torch.float32)
            q, k, v = (
                part.to(precise).unflatten(-1, (heads, -1)).transpose(1, 2)
                for part, heads in ((q, self.n_key_heads), (k, self.n_key_heads), (v, self.n_heads))
            )
            ratio = self.n_heads // self.n_key_heads
            q = unit(q).repeat_interleave(ratio, dim=1) * self.key_dim**-0.5
            k = unit(k).repeat_interleave(ratio, dim=1)
            log_decay = self.log_decay(x, precise)
            beta = self.beta_max * self.beta_proj(x).transpose(1, 2).to(precise).sigmoid()
            state = None if cache is None else cache.state
            if state is None:
                state = q.new_zeros(len(x), self.n_heads, self.key_dim, self.value_dim)
            is_step = x.shape[1] == 1 and not use_plain()
            out, state = self.rule(q, k, v, log_decay, beta, state, is_step)
            self.record(unit_queries=q, unit_keys=k, new_values=v, beta=beta, state=state, read=out)
            out = self.out_norm(out)
        if cache is not None:
            cache.state, cache.tail = state, tail
        return self.o_proj((out.transpose(1, 2).flatten(2) * self.gate(x)).to(x.dtype))
