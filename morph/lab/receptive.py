"""How far back a prediction depends on what was read: measured on gradients, and as far as any path leads.

A stack's theoretical reach says what can be heard. What is heard, its effective receptive field (Luo et al., 2016, of
convolutions), is told by gradients: the squared norm of d log p(next token) / d embedding, token by token.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from morph.lab.trial import Trial
from morph.measure.reach import reach
from morph.train.loop import LN2


def gradient_shares(trial: Trial, rows: int) -> Float[Tensor, "R S"]:
    """Of each held-out text's last prediction: the share of the squared gradient at distance 0, 1 .. S - 1."""
    ids, targets = trial.held_out(rows)
    embedded: list[Tensor] = []

    def start(_: object, __: object, out: Tensor) -> Tensor:
        embedded.append(out.detach().requires_grad_())
        return embedded[-1]

    hook = trial.model.embedding.register_forward_hook(start)
    try:
        logits = trial.model(ids)[:, -1]
    finally:
        hook.remove()
    said = logits.log_softmax(dim=-1).gather(1, targets[:, -1:]).sum()  # rows do not touch each other
    (gradient,) = torch.autograd.grad(said, embedded)
    squares = gradient.double().square().sum(dim=-1).flip(1)
    return squares / squares.sum(dim=1, keepdim=True)


def tokens_within(shares: Float[Tensor, "R S"], part: float = 0.9) -> float:
    """How many tokens back, the last one included, hold `part` of the squared gradient; mean over texts."""
    short = shares.cumsum(dim=1) < part
    return float((short.sum(dim=1) + 1).double().mean())


def in_bins(shares: Float[Tensor, "R S"], edges: Sequence[int]) -> list[float]:
    """The share of one token, mean over texts and over the distances of each bin."""
    mean = shares.mean(dim=0)
    return [float(mean[first:end].mean()) for first, end in pairwise(edges)]


def theoretical_reach(trial: Trial) -> float:
    """Tokens of a text, the last one included, from which any path leads to its last prediction."""
    ids = trial.held_out(1)[0]
    return float((reach(copy.deepcopy(trial.model).double(), ids)[-1] > 0).sum())


@torch.no_grad()
def worth_of_far_tokens(trial: Trial, block: int, rows: int) -> float:
    """Bits that a token saves, on average, by reading more than the last `block`.

    The second half of each held-out text is read in its place, and again in blocks that know of nothing before them.
    Compared are the predictions of each block's second half, which there see `block` / 2 + 1 to `block` tokens.
    """
    ids, targets = trial.held_out(rows)
    half = ids.shape[1] // 2
    in_place = trial.model(ids)[:, half:].unflatten(1, (-1, block)).flatten(0, 1)
    alone = trial.model(ids[:, half:].unflatten(1, (-1, block)).flatten(0, 1))
    wanted = targets[:, half:].unflatten(1, (-1, block)).flatten(0, 1)[:, block // 2 :].flatten()
    near, far = (F.cross_entropy(x[:, block // 2 :].flatten(0, 1), wanted) for x in (alone, in_place))
    return float(near - far) / LN2
