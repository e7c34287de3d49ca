"""A feed-forward network cut into experts, of which each token uses a few.

    y = Σ_{e in top-k} w_e expert_e(x) + g Σ shared(x)

The router (`morph.nn.router`) says which and with what weights (Shazeer et al., 2017; Jiang et al., 2024). Fine-grained
and shared experts are from DeepSeekMoE (Dai et al., 2024), where g = 1; Qwen1.5-MoE (2024) has g = sigmoid(w_g · x).
No token is ever dropped.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from morph import config
from morph.nn.context import Context
from morph.nn.feedforward import GatedMLP, meeting, meeting_rms
from morph.nn.organ import Linear, Organ, use_plain
from morph.nn.router import Chosen, Weights, build_router, tally

Tokens = Float[Tensor, "T D"]


class Experts(Organ):
    """E gated networks side by side: `gate` and `up` (E, F, D), `down` (E, D, F), and their biases if they have any."""

    def __init__(self, spec: config.MoE, d_model: int) -> None:
        super().__init__()
        E, width = spec.n_experts, spec.expert.width
        self.meet = meeting(spec.expert)
        self.down_std = spec.active_width**-0.5 / meeting_rms(spec.expert)
        self.gate = nn.Parameter(torch.empty(E, width, d_model))
        self.up = nn.Parameter(torch.empty(E, width, d_model))
        self.down = nn.Parameter(torch.empty(E, d_model, width))
        has_bias = spec.biases is not None
        self.gate_bias = nn.Parameter(torch.empty(E, width)) if has_bias else None
        self.up_bias = nn.Parameter(torch.empty(E, width)) if has_bias else None
        self.down_bias = nn.Parameter(torch.empty(E, d_model)) if has_bias else None

    def init_weights(self, generator: torch.Generator) -> None:
        for matrix in (self.gate, self.up):
            nn.init.normal_(matrix, std=matrix.shape[-1] ** -0.5, generator=generator)
        nn.init.normal_(self.down, std=self.down_std, generator=generator)  # one slice of the network a token meets
        for bias in self._biases():
            if bias is not None:
                nn.init.zeros_(bias)

    def _biases(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.gate_bias, self.up_bias, self.down_bias

    def plain(self, x: Tokens, weights: Weights, chosen: Chosen) -> Tokens:
        """Expert by expert: the tokens that chose it, through its three matrices, back in their places."""
        out = torch.zeros_like(x)
        parts = x.new_zeros(*chosen.shape, x.shape[-1]) if self.recorder is not None else None
        for expert in range(len(self.gate)):
            token, rank = torch.where(chosen == expert)
            gate, up, down = (None if b is None else b[expert] for b in self._biases())
            rows = x[token]
            hidden = self.meet(F.linear(rows, self.gate[expert], gate), F.linear(rows, self.up[expert], up))
            part = F.linear(hidden, self.down[expert], down)
            if parts is not None:
                parts[token, rank] = part.detach().to(parts.dtype)
            out = out.index_add(0, token, (part * weights[token, rank, None]).to(out.dtype))
        if parts is not None:
            self.record(parts=parts)
        return out

    def grouped(self, x: Tokens, weights: Weights, chosen: Chosen) -> Tokens:
        """The same, with the tokens sorted by expert and one grouped matrix product for each of the three maps."""
        k = chosen.shape[1]
        order = chosen.flatten().argsort(stable=True)
        ends = tally(chosen, len(self.gate)).cumsum(0).to(torch.int32)

        experts = chosen.flatten()[order]

        def each(rows: Tensor, matrices: Tensor, bias: Tensor | None) -> Tensor:
            out = F.grouped_mm(rows, matrices.to(rows.dtype).transpose(-1, -2), offs=ends)
            return out if bias is None else out + bias.to(out.dtype)[experts]

        gate, up, down = self._biases()
        rows = x[order // k].to(_compute_dtype(x))
        hidden = self.meet(each(rows, self.gate, gate), each(rows, self.up, up))
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        parts = each(hidden, self.down, down)[back].unflatten(0, (-1, k))
        self.record(parts=parts)
        return (parts * weights[..., None]).sum(dim=1).to(x.dtype)

    def can_group(self, x: Tokens) -> bool:
        """Whether grouped products take these widths (rows of whole 16 bytes) in this precision."""
        dtype = _compute_dtype(x)
        aligned = all(n * dtype.itemsize % 16 == 0 for n in self.gate.shape[1:])
        return aligned and len(x) > 0 and dtype in (torch.float32, torch.bfloat16)

    def eager(self, x: Tokens, weights: Weights, chosen: Chosen) -> Tokens:
        """Each token's weighted sum over its experts, by the faster of the two forms."""
        if use_plain() or not self.can_group(x):
            return self.plain(x, weights, chosen)
        return self.grouped(x, weights, chosen)

    # What torch.compiler.disable does, without importing the compiler (two seconds) before anything is compiled.
    @torch._disable_dynamo  # type: ignore[attr-defined]
    def outside_the_graph(self, x: Tokens, weights: Weights, chosen: Chosen) -> Tokens:
        """The same, never compiled."""
        return self.eager(x, weights, chosen)

    def forward(self, x: Tokens, weights: Weights, chosen: Chosen) -> Tokens:
        """The same, kept out of a compiled graph where torch (2.13) cannot compile grouped products: all but bf16."""
        if torch.compiler.is_compiling() and not (self.can_group(x) and _compute_dtype(x) == torch.bfloat16):
            return self.outside_the_graph(x, weights, chosen)
        return self.eager(x, weights, chosen)


def _compute_dtype(x: Tensor) -> torch.dtype:
    """What matrix products of `x` run in, autocast considered."""
    autocast = torch.is_autocast_enabled(x.device.type)
    return torch.get_autocast_dtype(x.device.type) if autocast else x.dtype


class MixtureOfExperts(Organ):
    """Router, routed experts and the shared ones, in the place of one dense network."""

    def __init__(self, spec: config.MoE, d_model: int) -> None:
        super().__init__()
        self.router = build_router(spec, d_model)
        self.experts = Experts(spec, d_model)
        shared = replace(spec.expert, width=spec.width_of_shared)
        self.shared = nn.ModuleList(
            GatedMLP(shared, d_model, bias=False, down_fan_in=spec.active_width) for _ in range(spec.n_shared)
        )
        self.shared_gate = Linear(d_model, 1, bias=False) if spec.shared_gate else None

    def forward(self, x: Float[Tensor, "B S D"], context: Context) -> Float[Tensor, "B S D"]:
        """Each token through the experts it chose and the shared ones."""
        tokens = x.flatten(0, 1)
        routed = self.experts(tokens, *self.router(tokens, context)).view_as(x)
        self.record(routed=routed)
        out, gate = routed, None
        if self.shared_gate is not None:
            gate = self.shared_gate(x).sigmoid()
            self.record(shared_gate=gate.squeeze(-1))
        for i, shared in enumerate(self.shared):
            answer = shared(x, context)
            self.record(**{f"shared.{i}.output": answer})
            out = out + (answer if gate is None else gate * answer)
        return out
