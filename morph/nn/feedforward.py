"""What a token computes by itself.

MLP (Vaswani et al., 2017):  W_down act(W_up x).
Gated MLP (Shazeer, 2020):   W_down (act(W_gate x) ⊙ W_up x); with SiLU it is called SwiGLU. gpt-oss (2025) clamps both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from morph import config
from morph.nn.context import Context
from morph.nn.organ import Linear, Organ


def relu_squared(z: Tensor) -> Tensor:
    """ReLU(z)² (So et al., Primer, 2021)."""
    return F.relu(z).square()


def gelu_tanh(z: Tensor) -> Tensor:
    """GELU by its tanh approximation, as GPT-2 and Gemma compute it."""
    return F.gelu(z, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,  # z times the normal distribution function, not its tanh approximation
    "gelu-tanh": gelu_tanh,
    "relu-squared": relu_squared,
    "sigmoid": torch.sigmoid,  # of gates on attention
}


@cache
def activation_rms(name: str) -> float:
    """√E[act(z)²] for z ~ N(0, 1): how much an activation shrinks what passes, 0.707 for ReLU.

    The way down is drawn larger by the inverse, so that a branch starts with the same size whatever its activation.
    """
    z = torch.linspace(-12, 12, 100_001, dtype=torch.float64, device="cpu")
    density = torch.exp(-z.square() / 2)
    return float((ACTIVATIONS[name](z).square() * density).sum().div(density.sum()).sqrt())


class MLP(Organ):
    """Up, activate, down."""

    def __init__(self, spec: config.MLP, d_model: int, bias: bool) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[spec.activation]
        self.up = Linear(d_model, spec.width, bias)
        self.down = Linear(spec.width, d_model, bias, gain=1 / activation_rms(spec.activation))

    def forward(self, x: Float[Tensor, "B S D"], context: Context) -> Float[Tensor, "B S D"]:
        """Each token through the two matrices."""
        hidden = self.up(x)
        self.record(preactivation=hidden)
        return self.down(self.activation(hidden))


def meeting(spec: config.GatedMLP | config.ClampedGatedMLP) -> Callable[[Tensor, Tensor], Tensor]:
    """How the two halves, gate and value, become one: act(gate) ⊙ value, or gpt-oss's clamped form."""
    if isinstance(spec, config.ClampedGatedMLP):
        return partial(clamped_swiglu, limit=spec.limit, alpha=spec.alpha)
    return partial(_gated, ACTIVATIONS[spec.activation])


def _gated(activation: Callable[[Tensor], Tensor], gate: Tensor, value: Tensor) -> Tensor:
    return activation(gate) * value


def clamped_swiglu(gate: Tensor, value: Tensor, limit: float, alpha: float) -> Tensor:
    """g σ(alpha g) ⊙ (u + 1) with g at most `limit` and u within ± `limit` (gpt-oss, 2025)."""
    gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (value + 1)


@cache
def meeting_rms(spec: config.GatedMLP | config.ClampedGatedMLP) -> float:
    """The RMS that leaves `meeting` for two independent halves of N(0, 1)."""
    if isinstance(spec, config.GatedMLP):
        return activation_rms(spec.activation)
    z = torch.linspace(-12, 12, 2_401, dtype=torch.float64, device="cpu")
    density = torch.exp(-z.square() / 2)
    density = density / density.sum()
    out = meeting(spec)(z[:, None], z[None, :]).square()
    return float((out * density[:, None] * density[None, :]).sum().sqrt())


class GatedMLP(Organ):
    """An activated gate times a value, then down."""

    def __init__(
        self,
        spec: config.GatedMLP | config.ClampedGatedMLP,
        d_model: int,
        bias: bool,
        down_fan_in: int | None = None,
    ) -> None:
        super().__init__()
        self.meet = meeting(spec)
        self.gate = Linear(d_model, spec.width, bias)
        self.up = Linear(d_model, spec.width, bias)
        # As one slice of a wider network (`down_fan_in`) its way down is drawn as that network's would be.
        slice_gain = (spec.width / (down_fan_in or spec.width)) ** 0.5
        self.down = Linear(spec.width, d_model, bias, gain=slice_gain / meeting_rms(spec))

    def forward(self, x: Float[Tensor, "B S D"], context: Context) -> Float[Tensor, "B S D"]:
        """Each token through the three matrices."""
        gate, value = self.gate(x), self.up(x)
        self.record(preactivation=gate, value=value)
        return self.down(self.meet(gate, value))
