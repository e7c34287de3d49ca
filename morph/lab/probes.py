"""Measures that several experiments use: each takes a `Trial` and gives a number or a list.

Those that look inside watch one pass over a few held-out sequences (`morph.trace`); those with parameters are made by a
function, as `loss_between(0, 64)`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

import morph
from morph.errors import MorphError
from morph.lab.tasks import Text
from morph.lab.trial import CPU, Trial
from morph.measure.size import rms
from morph.measure.trace import Trace
from morph.train.loop import LN2, to_device

GUESSING = 8.0  # bits per byte of a model that holds all 256 bytes for equally likely
ROWS = 8  # held-out sequences that probes of the inside look at

# ---- how well it learned ---------------------------------------------------------------------------------------------


def bits_per_byte(trial: Trial) -> float:
    """Of held-out text, after the last step."""
    return _last(trial)["bits per byte"]


def bits_at_most(trial: Trial) -> float:
    """The same, for any learning rate: a run that diverged, or ended worse than guessing, counts as guessing."""
    return GUESSING if trial.diverged_at is not None else min(bits_per_byte(trial), GUESSING)


def accuracy(trial: Trial) -> float:
    """Share of right answers on held-out sequences, after the last step."""
    return _last(trial)["accuracy"]


def late_gain(name: str, share: float = 0.25) -> Callable[[Trial], float]:
    """How much the evaluation `name` rose in the last `share` of all steps: near 0 where learning has ended.

    It tells an end of learning from an end of time only under a learning rate that stays (`final_rate=1`). A task that
    was solved has nothing left to gain: 0.
    """

    def read(trial: Trial) -> float:
        found = _last(trial)
        if trial.task.is_solved(found):
            return 0.0
        since = trial.recipe.steps * (1 - share)
        earlier = [values[name] for step, values in trial.evaluations[:-1] if step <= since]
        if not earlier:
            raise MorphError(
                f"no evaluation in the first {1 - share:.0%} of {trial.recipe.steps} steps: lower evaluate_every"
            )
        return found[name] - earlier[-1]

    return read


def steps_taken(trial: Trial) -> float:
    """Optimizer steps until the task was solved, or all of them."""
    return float(len(trial.steps))


def training_loss(share: float = 0.25) -> Callable[[Trial], float]:
    """Mean training loss in bits over the last `share` of the steps."""

    def read(trial: Trial) -> float:
        last = trial.steps[-max(1, round(share * len(trial.steps))) :]
        return statistics.fmean(step.loss for step in last) / LN2

    return read


def loss_curve(points: int = 20) -> Callable[[Trial], list[float]]:
    """The training loss in bits, as means over `points` equal stretches of the steps."""

    def read(trial: Trial) -> list[float]:
        losses, n = [step.loss / LN2 for step in trial.steps], min(points, len(trial.steps))
        cuts = [round(i * len(losses) / n) for i in range(n + 1)]
        return [statistics.fmean(losses[a:b]) for a, b in pairwise(cuts)]

    return read


@torch.no_grad()
def position_losses(trial: Trial, length: int, rows: int = 32) -> Tensor:
    """Mean loss in bits at each of `length` positions of held-out text, (S,); it may be longer than the training's."""
    if not isinstance(trial.task, Text):
        raise MorphError(f"positions of {type(trial.task).__name__} say nothing of length: use it with Text")
    ids, targets = to_device(trial.task.held_out(trial.config, rows, length), CPU)
    losses = [
        F.cross_entropy(trial.model(some).flatten(0, 1).float(), wanted.flatten(), reduction="none").view_as(wanted)
        for some, wanted in zip(ids.split(8), targets.split(8), strict=True)
    ]
    return torch.cat(losses).mean(dim=0) / LN2


def loss_between(first: int, end: int, length: int | None = None, rows: int = 32) -> Callable[[Trial], float]:
    """Mean loss in bits at positions `first` to `end` - 1 of texts of `length` (None: `end`) tokens."""
    return lambda trial: float(position_losses(trial, length or end, rows)[first:end].mean())


# ---- inside ----------------------------------------------------------------------------------------------------------


def watch(trial: Trial, rows: int = ROWS) -> Trace:
    """All that one pass over held-out sequences records."""
    with torch.no_grad(), morph.trace(trial.model) as seen:
        trial.model(trial.held_out(rows)[0])
    return seen


def each_layer(trial: Trial, seen: Trace, name: str) -> list[Tensor]:
    """What was recorded as `blocks.LAYER.name`, in the layers that have it."""
    keys = (f"blocks.{layer}.{name}" for layer in range(trial.config.n_layers))
    return [seen[key] for key in keys if key in seen]


def largest_logit(trial: Trial) -> float:
    """The largest magnitude among all visible attention scores of all layers."""
    scores = each_layer(trial, watch(trial), "attention.scores")
    return max(float(s[s.isfinite()].abs().max()) for s in scores)


def attention_entropies(trial: Trial) -> list[float]:
    """Mean entropy of the attention weights in nats, layer by layer."""
    weights = each_layer(trial, watch(trial), "attention.weights")
    return [float(-torch.xlogy(w, w).sum(-1).mean()) for w in weights]


def attention_entropy(trial: Trial) -> float:
    """The same, over all softmax layers."""
    return statistics.fmean(attention_entropies(trial))


def weight_on_first(trial: Trial) -> float:
    """Mean attention weight on the first token, over layers, heads and the second half of the queries."""
    weights = each_layer(trial, watch(trial), "attention.weights")
    return statistics.fmean(float(w[..., w.shape[-2] // 2 :, 0].mean()) for w in weights)


def stream_sizes(trial: Trial) -> list[float]:
    """RMS of the residual stream before the first block and after each."""
    seen = watch(trial)
    return [rms(seen["stream"]), *map(rms, each_layer(trial, seen, "stream"))]


def gradient_sizes(trial: Trial) -> list[float]:
    """Norm of the loss's gradient by each block's parameters, on held-out sequences."""
    model = trial.model
    model.zero_grad(set_to_none=True)
    model.loss(*trial.held_out(ROWS)).total.backward()
    return [
        math.sqrt(sum(float(p.grad.square().sum()) for p in block.parameters() if p.grad is not None))
        for block in model.blocks
    ]


def first_gradient(trial: Trial) -> float:
    """The gradient's norm in the first block over that in the last."""
    sizes = gradient_sizes(trial)
    return sizes[0] / sizes[-1]


# ---- experts ---------------------------------------------------------------------------------------------------------


def expert_loads(trial: Trial, share: float = 0.5) -> Tensor:
    """How often each expert was chosen, (steps, layers, E), in the last `share` of the steps."""
    loads = [step.load for step in trial.steps if step.load is not None]
    if not loads:
        raise MorphError("this model has no routed experts, or was not trained: measure loads of a trained MoE")
    return torch.stack(loads[-max(1, round(share * len(loads))) :]).double()


def expert_shares(trial: Trial) -> Tensor:
    """Each expert's share of the choices over an even share, (layers, E), over the last half of the steps."""
    total = expert_loads(trial).sum(dim=0)
    return total / total.mean(dim=-1, keepdim=True)


def fullest_in_a_step(trial: Trial) -> float:
    """The fullest expert of each step over an even one, mean over steps and layers: what swings does not average out.

    Above 1 even where choices are drawn at random: some 1.2 for 1024 choices over 16 experts.
    """
    loads = expert_loads(trial)
    return float((loads.amax(dim=-1) / loads.mean(dim=-1)).mean())


def fullest_expert(trial: Trial) -> float:
    """The fullest expert's load over an even one, mean over layers."""
    return float(expert_shares(trial).amax(dim=-1).mean())


def dead_experts(trial: Trial) -> float:
    """Experts with less than a tenth of an even share, mean over layers."""
    return float((expert_shares(trial) < 0.1).double().sum(dim=-1).mean())


def _last(trial: Trial) -> dict[str, float]:
    if not trial.evaluations:
        raise MorphError("nothing was evaluated: this measure is of a trained model (at='end', a trained arm)")
    return trial.evaluations[-1][1]
