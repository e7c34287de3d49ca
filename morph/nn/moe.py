"""A feed-forward network cut into experts, of which each token uses a few.

    y = Σ_{e in top-k} w_e expert_e(x) + Σ shared(x),      w = scale · p_e / Σ_{top-k} p,   p = softmax(W_r x)

Routing (Shazeer et al., 2017; Jiang et al., 2024) takes the k most probable experts and renormalizes. Fine-grained and
shared experts are from DeepSeekMoE (Dai et al., 2024). No token is ever dropped, and a tie goes to the lower index.

Left alone, routing collapses onto few experts. Two remedies: an auxiliary loss E Σ_e f_e P_e, with f_e the share of
choices and P_e the mean probability (Fedus et al., 2021), or a bias b_e that is added to p_e for the choice only and
moved against the load after each step, outside the gradient (Wang et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from morph import config
from morph.nn.context import Context
from morph.nn.feedforward import ACTIVATIONS, GatedMLP, activation_rms
from morph.nn.organ import Linear, Organ, use_plain

Tokens = Float[Tensor, "T D"]


class Router(Organ):
    """Chooses experts and weighs them; keeps count of its choices while training."""

    selection_bias: Tensor
    load: Tensor

    def __init__(self, spec: config.MoE, d_model: int) -> None:
        super().__init__()
        self.top_k, self.routed_scale, self.balance = spec.top_k, spec.routed_scale, spec.balance
        self.logits = Linear(d_model, spec.n_experts, bias=False)
        if isinstance(spec.balance, config.SelectionBias):
            self.register_buffer("selection_bias", torch.empty(spec.n_experts))
        self.register_buffer("load", torch.empty(spec.n_experts, dtype=torch.long), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Router:
        """Move with the model, but keep the bias in fp32: in bf16 its small steps would round away."""
        bias = getattr(self, "selection_bias", None)
        super()._apply(fn, recurse)
        if bias is not None and not bias.is_meta:
            self.selection_bias = bias.to(self.selection_bias.device)
        return self

    def init_weights(self, generator: torch.Generator) -> None:
        for buffer in self.buffers(recurse=False):
            buffer.zero_()

    def forward(self, x: Tokens, context: Context) -> tuple[Float[Tensor, "T k"], Int[Tensor, "T k"]]:
        """The weights and indices of each token's experts, most probable first."""
        precise = torch.promote_types(self.logits.weight.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):  # bf16 would tie and flip close choices
            logits = F.linear(x.to(precise), self.logits.weight.to(precise))
            probabilities = logits.softmax(dim=-1)
        has_bias = isinstance(self.balance, config.SelectionBias)
        choice = probabilities.detach() + self.selection_bias if has_bias else probabilities.detach()
        # a stable sort, where topk leaves the order of ties open
        chosen = choice.sort(dim=-1, descending=True, stable=True).indices[:, : self.top_k]
        weights = probabilities.gather(-1, chosen)
        weights = weights / weights.sum(dim=-1, keepdim=True) * self.routed_scale
        self.record(logits=logits, probabilities=probabilities, chosen=chosen, weights=weights)
        if has_bias:
            self.record(selection_bias=self.selection_bias)
        if self.recorder is not None:
            self.record(loads=_tally(chosen, probabilities.shape[-1]))
        if self.training:
            load = _tally(chosen, probabilities.shape[-1])
            self.load += load.detach()
            if isinstance(self.balance, config.AuxiliaryLoss):
                share = load / load.sum()
                uneven = len(load) * (share * probabilities.mean(dim=0)).sum()
                context.penalties.append(self.balance.coefficient * uneven)
        return weights, chosen

    @torch.no_grad()
    def end_step(self) -> Int[Tensor, "E"]:
        """Move the selection bias by the load since the last call, forget that load, and return it."""
        load = self.load.clone()
        if isinstance(self.balance, config.SelectionBias):
            self.selection_bias += self.balance.rate * torch.sign(load.float().mean() - load)
        self.load.zero_()
        return load


class Experts(Organ):
    """E gated networks side by side: `gate` and `up` (E, F, D), `down` (E, D, F)."""

    def __init__(self, spec: config.MoE, d_model: int) -> None:
        super().__init__()
        E, width = spec.n_experts, spec.expert.width
        self.activation = ACTIVATIONS[spec.expert.activation]
        self.down_std = spec.active_width**-0.5 / activation_rms(spec.expert.activation)
        self.gate = nn.Parameter(torch.empty(E, width, d_model))
        self.up = nn.Parameter(torch.empty(E, width, d_model))
        self.down = nn.Parameter(torch.empty(E, d_model, width))

    def init_weights(self, generator: torch.Generator) -> None:
        for matrix in (self.gate, self.up):
            nn.init.normal_(matrix, std=matrix.shape[-1] ** -0.5, generator=generator)
        nn.init.normal_(self.down, std=self.down_std, generator=generator)  # one slice of the network a token meets

    def plain(self, x: Tokens, weights: Float[Tensor, "T k"], chosen: Int[Tensor, "T k"]) -> Tokens:
        """Expert by expert: the tokens that chose it, through its three matrices, back in their places."""
        out = torch.zeros_like(x)
        parts = x.new_zeros(*chosen.shape, x.shape[-1]) if self.recorder is not None else None
        for expert in range(len(self.gate)):
            token, rank = torch.where(chosen == expert)
            hidden = self.activation(F.linear(x[token], self.gate[expert])) * F.linear(x[token], self.up[expert])
            part = F.linear(hidden, self.down[expert])
            if parts is not None:
                parts[token, rank] = part.detach().to(parts.dtype)
            out = out.index_add(0, token, (part * weights[token, rank, None]).to(out.dtype))
        if parts is not None:
            self.record(parts=parts)
        return out

    def grouped(self, x: Tokens, weights: Float[Tensor, "T k"], chosen: Int[Tensor, "T k"]) -> Tokens:
        """The same, with the tokens sorted by expert and one grouped matrix product for each of the three maps."""
        k = chosen.shape[1]
        order = chosen.flatten().argsort(stable=True)
        ends = _tally(chosen, len(self.gate)).cumsum(0).to(torch.int32)

        def each(rows: Tensor, matrices: Tensor) -> Tensor:
            return F.grouped_mm(rows, matrices.to(rows.dtype).transpose(-1, -2), offs=ends)

        rows = x[order // k].to(_compute_dtype(x))
        hidden = self.activation(each(rows, self.gate)) * each(rows, self.up)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        parts = each(hidden, self.down)[back].unflatten(0, (-1, k))
        self.record(parts=parts)
        return (parts * weights[..., None]).sum(dim=1).to(x.dtype)

    def can_group(self, x: Tokens) -> bool:
        """Whether grouped products take these widths (rows of whole 16 bytes) in this precision."""
        dtype = _compute_dtype(x)
        aligned = all(n * dtype.itemsize % 16 == 0 for n in self.gate.shape[1:])
        return aligned and len(x) > 0 and dtype in (torch.float32, torch.bfloat16)

    def eager(self, x: Tokens, weights: Float[Tensor, "T k"], chosen: Int[Tensor, "T k"]) -> Tokens:
        """Each token's weighted sum over its experts, by the faster of the two forms."""
        if use_plain() or not self.can_group(x):
            return self.plain(x, weights, chosen)
        return self.grouped(x, weights, chosen)

    # What torch.compiler.disable does, without importing the compiler (two seconds) before anything is compiled.
    @torch._disable_dynamo  # type: ignore[attr-defined]
    def outside_the_graph(self, x: Tokens, weights: Float[Tensor, "T k"], chosen: Int[Tensor, "T k"]) -> Tokens:
        """The same, never compiled."""
        return self.eager(x, weights, chosen)

    def forward(self, x: Tokens, weights: Float[Tensor, "T k"], chosen: Int[Tensor, "T k"]) -> Tokens:
        """The same, kept out of a compiled graph where torch (2.13) cannot compile grouped products: all but bf16."""
        if torch.compiler.is_compiling() and not (self.can_group(x) and _compute_dtype(x) == torch.bfloat16):
            return self.outside_the_graph(x, weights, chosen)
        return self.eager(x, weights, chosen)


def _compute_dtype(x: Tensor) -> torch.dtype:
    """What matrix products of `x` run in, autocast considered."""
    autocast = torch.is_autocast_enabled(x.device.type)
    return torch.get_autocast_dtype(x.device.type) if autocast else x.dtype


def _tally(chosen: Int[Tensor, "T k"], n_experts: int) -> Int[Tensor, "E"]:
    """How often each expert was chosen; unlike `bincount` of a shape that a compiler knows."""
    choices = chosen.flatten()
    return torch.zeros(n_experts, dtype=torch.long, device=chosen.device).scatter_add(
        0, choices, torch.ones_like(choices)
    )


class MixtureOfExperts(Organ):
    """Router, routed experts and the shared ones, in the place of one dense network; none has a bias."""

    def __init__(self, spec: config.MoE, d_model: int) -> None:
        super().__init__()
        self.router = Router(spec, d_model)
        self.experts = Experts(spec, d_model)
        self.shared = nn.ModuleList(
            GatedMLP(spec.expert, d_model, bias=False, down_fan_in=spec.active_width) for _ in range(spec.n_shared)
        )

    def forward(self, x: Float[Tensor, "B S D"], context: Context) -> Float[Tensor, "B S D"]:
        """Each token through the experts it chose and the shared ones."""
        tokens = x.flatten(0, 1)
        routed = self.experts(tokens, *self.router(tokens, context)).view_as(x)
        self.record(routed=routed)
        out = routed
        for i, shared in enumerate(self.shared):
            answer = shared(x, context)
            self.record(**{f"shared.{i}.output": answer})
            out = out + answer
        return out
