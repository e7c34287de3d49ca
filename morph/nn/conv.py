"""A short causal convolution along the text, each channel by itself (as in H3 and Mamba, 2023)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from morph.nn.organ import Organ


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
