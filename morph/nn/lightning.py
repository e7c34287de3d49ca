"""Lightning attention (Qin et al., 2024; as in MiniMax-01, 2025): linear attention whose state decays at a fixed speed.

Each head keeps a matrix S (Dh, Dh). A token lets it fade by λ, adds its key times its value, and reads:

    S_t = λ S_{t-1} + k_t v_tᵀ          o_t = S_tᵀ q_t

Nothing is erased and nothing is divided by a sum of weights; q, k and v pass SiLU, one RMSNorm over all heads together
keeps the output's size, and sigmoid(g) gates it. λ = e^-s is no parameter: s falls from head to head as ALiBi's slopes
do, and from layer to layer down to almost 0 in the last, which sums up the whole text. Two forms of the rule follow:
`recurrent_rule` reads as above, `chunked_rule` does whole chunks with matrix products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from morph import config
from morph.nn.cache import StateCache
from morph.nn.context import Context
from morph.nn.deltalayer import SIZE, split
from morph.nn.feedforward import activation_rms
from morph.nn.norm import FullWidthRMSNorm
from morph.nn.organ import Linear, Organ, remember, use_plain

CHUNK = 64  # measured fastest on CPUs among 16 to 256

Heads = Float[Tensor, "B H S Dh"]
Slopes = Float[Tensor, "H"]
State = Float[Tensor, "B H Dh Dh"]


def decay_slopes(n_heads: int, layer: int, n_layers: int) -> Slopes:
    """s = 2^(-8h/H) for head h = 1 .. H, times what falls from 1 in layer 0 to about 0 in layer L - 1; in fp64."""
    heads = torch.arange(1, n_heads + 1, dtype=torch.float64, device="cpu")
    return 2.0 ** (-8 * heads / n_heads) * (1 - layer / (n_layers - 1 + 1e-5) + 1e-5)


@remember
def _placed(n_heads: int, layer: int, n_layers: int, device: torch.device, dtype: torch.dtype) -> Slopes:
    return decay_slopes(n_heads, layer, n_layers).to(device, dtype)


def recurrent_rule(q: Heads, k: Heads, v: Heads, slopes: Slopes, state: State) -> tuple[Heads, State]:
    """The rule token by token, λ = e^-slope. Returns all outputs and the last state."""
    outputs, fade = [], torch.exp(-slopes)[:, None, None]
    for t in range(q.shape[2]):
        state = fade * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append((q[:, :, t, None, :] @ state).squeeze(2))
    return torch.stack(outputs, dim=2), state


def chunked_rule(q: Heads, k: Heads, v: Heads, slopes: Slopes, state: State, chunk: int = CHUNK) -> tuple[Heads, State]:
    """The same, `chunk` tokens at a time.

    A chunk of n tokens that starts from the state S_0 gives o_t = λ^t q_tᵀ S_0 + Σ_{i<=t} λ^(t - i) (q_t · k_i) v_i and
    leaves S_n = λ^n S_0 + Σ λ^(n - i) k_i v_iᵀ. Fillers behind the text write nothing and take no time.
    """
    S = q.shape[2]
    steps = split(torch.ones(1, 1, S, dtype=slopes.dtype, device=slopes.device), chunk).cumsum(-1)[0]  # (1, n, C)
    times = slopes[:, None, None] * steps  # of each token since its chunk's start, (H, n, C)
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    fade = (-slopes[:, None, None, None] * (steps[..., :, None] - steps[..., None, :])).masked_fill(
        ~lower, float("-inf")
    )
    q, k, v = (split(x, chunk) for x in (q, k, v))
    within = (q @ k.transpose(-1, -2) * fade.exp()) @ v
    reading = q * torch.exp(-times)[..., None]
    gathered = (k * torch.exp(times - times[..., -1:])[..., None]).transpose(-1, -2) @ v
    end_fade = torch.exp(-times[..., -1])[..., None, None]
    outputs = []
    for c in range(q.shape[2]):
        outputs.append(within[:, :, c] + reading[:, :, c] @ state)
        state = end_fade[:, c] * state + gathered[:, :, c]
    return torch.cat(outputs, dim=2)[:, :, :S], state


class Lightning(Organ):
    """One mixer layer; no bias anywhere, no position but the order of the tokens."""

    def __init__(self, model: config.ModelConfig, layer: int) -> None:
        super().__init__()
        spec, D = model.mixer(layer), model.d_model
        assert isinstance(spec, config.Lightning)
        self.n_heads, self.place = spec.n_heads, (spec.n_heads, layer, model.n_layers)
        features = spec.n_heads * spec.head_dim
        self.q_proj = Linear(D, features, bias=False)
        self.k_proj = Linear(D, features, bias=False)
        self.v_proj = Linear(D, features, bias=False)
        self.gate_proj = Linear(D, features, bias=False)
        self.out_norm = FullWidthRMSNorm(features, spec.eps or model.norm.eps)
        self.o_proj = Linear(features, D, bias=False, gain=SIZE / activation_rms("sigmoid"))

    def new_cache(self) -> StateCache:
        """An empty cache for this layer."""
        return StateCache()

    def forward(
        self, x: Float[Tensor, "B S D"], context: Context, cache: StateCache | None = None
    ) -> Float[Tensor, "B S D"]:
        """What each token reads from the state after adding to it."""
        if context.real is not None:
            x = x * context.real[..., None]  # padding writes zeros, so the state stays empty until the text begins
        q, k, v = (F.silu(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        with torch.autocast(x.device.type, enabled=False):  # the state is kept in fp32 (or fp64)
            precise = torch.promote_types(x.dtype, torch.float32)
            q, k, v = (part.to(precise).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in (q, k, v))
            state = None if cache is None else cache.state
            if state is None:
                state = q.new_zeros(len(x), self.n_heads, q.shape[-1], q.shape[-1])
            slopes = _placed(*self.place, x.device, precise)
            rule = recurrent_rule if x.shape[1] == 1 and not use_plain() else chunked_rule
            out, state = rule(q, k, v, slopes, state)
            self.record(state_queries=q, state_keys=k, new_values=v, state=state, read=out)
            out = self.out_norm(out)
        if cache is not None:
            cache.state = state
        gate = self.gate_proj(x).sigmoid()
        return self.o_proj((out.transpose(1, 2).flatten(2) * gate).to(x.dtype))
