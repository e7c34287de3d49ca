"""Which experts a token goes to, and how much each counts.

    w = scale · p_e / Σ_{top-k} p,   p = softmax(W_r x)

The k most probable experts are chosen and their probabilities divided by their sum (Jiang et al., 2024); a tie goes to
the lower index. `SwitchRouter`, `SigmoidRouter` and `GroupLimitedRouter` score, choose or weigh otherwise.

Left alone, routing grows uneven and can collapse. Two remedies: an auxiliary loss E Σ_e f_e P_e, with f_e the share of
choices and P_e the mean probability (Fedus et al., 2021), or a bias b_e that is added to p_e for the choice only and
moved against the load after each step, outside the gradient (Wang et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from morph import config
from morph.nn.context import Context
from morph.nn.organ import Linear, Organ

Scores = Float[Tensor, "T E"]
Weights = Float[Tensor, "T k"]
Chosen = Int[Tensor, "T k"]


def tally(chosen: Chosen, n_experts: int) -> Int[Tensor, "E"]:
    """How often each expert was chosen; unlike `bincount` of a shape that a compiler knows."""
    choices = chosen.flatten()
    return torch.zeros(n_experts, dtype=torch.long, device=chosen.device).scatter_add(
        0, choices, torch.ones_like(choices)
    )


def best(scores: Float[Tensor, "T n"], k: int) -> Chosen:
    """Indices of the k largest, best first; equal ones in order (topk would leave that open)."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[:, :k]


class Router(Organ):
    """Chooses experts and weighs them; keeps count of its choices while training.

    This class is the softmax router; a variant overrides `score`, `choose` or `weigh`.
    """

    selection_bias: Tensor
    load: Tensor

    def __init__(self, spec: config.MoE, d_model: int) -> None:
        super().__init__()
        self.top_k, self.routed_scale, self.balance = spec.top_k, spec.routed_scale, spec.balance
        self.logits = Linear(d_model, spec.n_experts, bias=spec.biases is not None)
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

    def score(self, logits: Scores) -> Scores:
        """How well each expert suits each token, between 0 and 1."""
        return logits.softmax(dim=-1)

    def distribution(self, scores: Scores) -> Scores:
        """The scores as probabilities that add to 1, for the auxiliary loss."""
        return scores

    def choose(self, choice: Scores) -> Chosen:
        """Each token's experts, best first, by its scores with the selection bias added."""
        return best(choice, self.top_k)

    def weigh(self, scores: Weights) -> Weights:
        """The chosen experts' weights."""
        return scores / scores.sum(dim=-1, keepdim=True) * self.routed_scale

    def forward(self, x: Float[Tensor, "T D"], context: Context) -> tuple[Weights, Chosen]:
        """The weights and indices of each token's experts, best first."""
        precise = torch.promote_types(self.logits.weight.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):  # bf16 would tie and flip close choices
            bias = None if self.logits.bias is None else self.logits.bias.to(precise)
            logits = F.linear(x.to(precise), self.logits.weight.to(precise), bias)
            scores = self.score(logits)
        choice = scores.detach()
        if isinstance(self.balance, config.SelectionBias):
            choice = choice + self.selection_bias
            self.record(selection_bias=self.selection_bias)
        chosen = self.choose(choice)
        weights = self.weigh(scores.gather(-1, chosen))
        self.record(logits=logits, probabilities=scores, chosen=chosen, weights=weights)
        if self.recorder is not None:
            self.record(loads=tally(chosen, scores.shape[-1]))
        if self.training:
            self._watch(chosen, scores, context)
        return weights, chosen

    def _watch(self, chosen: Chosen, scores: Scores, context: Context) -> None:
        """Count the choices, and with an auxiliary loss hand it to the model."""
        load = tally(chosen, scores.shape[-1])
        self.load += load.detach()
        if isinstance(self.balance, config.AuxiliaryLoss):
            share = load / load.sum()
            uneven = len(load) * (share * self.distribution(scores).mean(dim=0)).sum()
            context.penalties.append(self.balance.coefficient * uneven)

    @torch.no_grad()
    def end_step(self) -> Int[Tensor, "E"]:
        """Move the selection bias by the load since the last call, forget that load, and return it."""
        load = self.load.clone()
        if isinstance(self.balance, config.SelectionBias):
            self.selection_bias += self.balance.rate * torch.sign(load.float().mean() - load)
        self.load.zero_()
        return load


class SwitchRouter(Router):
    """A chosen expert's probability is its weight as it is (Fedus et al., 2021).

    Divided by their sum, the weight of a single expert would be 1 whatever the router says, and teach it nothing.
    """

    def weigh(self, scores: Weights) -> Weights:
        """The probabilities, scaled."""
        return scores * self.routed_scale


class SigmoidRouter(Router):
    """Each expert is scored by itself: p = sigmoid(W_r x) (DeepSeek-AI, 2024)."""

    def score(self, logits: Scores) -> Scores:
        """How well each expert suits each token, whatever the others do."""
        return logits.sigmoid()

    def distribution(self, scores: Scores) -> Scores:
        """Each score over their sum."""
        return scores / scores.sum(dim=-1, keepdim=True)

    def weigh(self, scores: Weights) -> Weights:
        """The scores over their sum, which here could be 0."""
        return scores / (scores.sum(dim=-1, keepdim=True) + 1e-20) * self.routed_scale


class GroupLimitedRouter(SigmoidRouter):
    """Chooses within the best groups of neighbouring experts (DeepSeek-AI, 2024): groups live on different machines.

    A group counts for as much as its two best experts together.
    """

    def __init__(self, spec: config.MoE, d_model: int) -> None:
        super().__init__(spec, d_model)
        assert isinstance(spec.router, config.GroupLimitedRouter)
        self.n_groups, self.n_kept = spec.router.n_groups, spec.router.n_kept

    def choose(self, choice: Scores) -> Chosen:
        """Each token's experts, best first, none outside its best groups."""
        groups = choice.unflatten(-1, (self.n_groups, -1))
        worth = groups.topk(2, dim=-1).values.sum(dim=-1)
        self.record(groups=worth)
        is_out = torch.ones_like(worth, dtype=torch.bool).scatter(-1, best(worth, self.n_kept), False)
        return best(groups.masked_fill(is_out[..., None], float("-inf")).flatten(1), self.top_k)


ROUTERS: dict[type[config.Router], type[Router]] = {
    config.SoftmaxRouter: Router,
    config.SwitchRouter: SwitchRouter,
    config.SigmoidRouter: SigmoidRouter,
    config.GroupLimitedRouter: GroupLimitedRouter,
}


def build_router(spec: config.MoE, d_model: int) -> Router:
    """The module for a mixture's router record."""
    return ROUTERS[type(spec.router)](spec, d_model)
