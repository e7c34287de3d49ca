"""Previous-token heads and induction heads: how much of its weight a head gives where, and what is lost without it.

Both were found in trained transformers by Olsson et al. (2022): in a run that is read twice, a previous-token head
looks one token back, and an induction head looks at the token after the last occurrence of the present one. Only layers
of softmax attention have weights to look at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from morph.errors import MorphError
from morph.lab import probes
from morph.lab.made import answers
from morph.lab.tasks import IGNORED
from morph.lab.trial import Trial
from morph.model import Decoder

ROWS = 64  # held-out sequences looked at

Head = tuple[int, int]
"""Layer and head."""


def _weights(trial: Trial) -> dict[int, Tensor]:
    """Attention weights of each softmax layer over held-out sequences, (B, H, S, S)."""
    seen = probes.watch(trial, ROWS)
    names = {layer: f"blocks.{layer}.attention.weights" for layer in range(trial.config.n_layers)}
    found = {layer: seen[name] for layer, name in names.items() if name in seen}
    if not found:
        raise MorphError("no layer of this model has attention weights: give one with softmax attention")
    return found


def previous_token_scores(trial: Trial) -> dict[Head, float]:
    """Mean weight on the token before, of all tokens from the third on."""
    return _each(trial, lambda weights: weights.diagonal(-1, dim1=-2, dim2=-1)[..., 1:])


def induction_scores(trial: Trial) -> dict[Head, float]:
    """Mean weight on the token after the present one's last occurrence, where the next token is asked for."""
    ids, targets = trial.held_out(ROWS)
    after, is_repeated = after_last_occurrence(ids)
    asked = is_repeated & (targets != IGNORED)
    if not asked.any():
        raise MorphError("no token that was read before is asked about: look for these heads on Induction")

    def read(weights: Tensor) -> Tensor:
        there = weights.gather(-1, after[:, None, :, None].expand(-1, weights.shape[1], -1, 1))[..., 0]
        return there.transpose(0, 1)[:, asked][None]

    return _each(trial, read)


def _each(trial: Trial, read: Callable[[Tensor], Tensor]) -> dict[Head, float]:
    """The mean over sequences and places of what `read` (B, H, S, S) -> (B, H, places) gives, for each head."""
    means = {layer: read(weights).mean(dim=(0, 2)) for layer, weights in _weights(trial).items()}
    return {(layer, head): float(mean) for layer, heads in means.items() for head, mean in enumerate(heads)}


def after_last_occurrence(ids: Tensor) -> tuple[Tensor, Tensor]:
    """For each token (B, S) the place after the same token's last occurrence before it, and whether there is one."""
    places = torch.arange(1, ids.shape[1] + 1)
    same = (ids[:, :, None] == ids[:, None, :]).tril(-1)
    after = (same * places).amax(dim=-1)
    return after, after > 0


def best(scores: dict[Head, float]) -> Head:
    """The head that scores highest, the lowest layer's among equals."""
    return max(scores, key=lambda head: scores[head])


def by_layer(scores: dict[Head, float], n_layers: int) -> list[float]:
    """The best head's score in each layer, 0 where a layer has no weights."""
    return [max((s for (at, _), s in scores.items() if at == layer), default=0.0) for layer in range(n_layers)]


@contextmanager
def without(model: Decoder, head: Head) -> Iterator[None]:
    """What this head writes is 0 inside."""
    layer, number = head
    mixer: Any = model.blocks[layer].attention
    width = mixer.o_proj.in_features // mixer.n_heads

    def silence(_: object, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        kept = inputs[0].clone()
        kept[..., number * width : (number + 1) * width] = 0
        return (kept, *inputs[1:])

    handle = mixer.o_proj.register_forward_pre_hook(silence)
    try:
        yield
    finally:
        handle.remove()


def _added(trial: Trial, head: Head) -> float:
    """Loss added by silencing a head, in bits a token asked for."""
    arrays = trial.task.held_out(trial.config, 4 * ROWS)
    whole = answers(trial.model, arrays)[1]
    with torch.no_grad(), without(trial.model, head):
        return (answers(trial.model, arrays)[1] - whole) / math.log(2)


# ---- readings --------------------------------------------------------------------------------------------------------


def previous_token(trial: Trial) -> float:
    """The best previous-token head's score."""
    return max(previous_token_scores(trial).values())


def induction(trial: Trial) -> float:
    """The best induction head's score."""
    return max(induction_scores(trial).values())


def previous_token_by_layer(trial: Trial) -> list[float]:
    """The best previous-token score of each layer."""
    return by_layer(previous_token_scores(trial), trial.config.n_layers)


def induction_by_layer(trial: Trial) -> list[float]:
    """The best induction score of each layer."""
    return by_layer(induction_scores(trial), trial.config.n_layers)


def layers_between(trial: Trial) -> float | None:
    """Layers from the best previous-token head up to the best induction head; None where one layer alone has heads."""
    scores = induction_scores(trial)
    if len({layer for layer, _ in scores}) < 2:
        return None
    return float(best(scores)[0] - best(previous_token_scores(trial))[0])


def added_without_induction_head(trial: Trial) -> float:
    """Loss added by silencing the best induction head, in bits a token asked for."""
    return _added(trial, best(induction_scores(trial)))


def added_without_other_head(trial: Trial) -> float:
    """The same for the head of that layer which scores lowest."""
    scores = induction_scores(trial)
    layer, _ = best(scores)
    others = {head: -score for head, score in scores.items() if head[0] == layer}
    if len(others) < 2:
        raise MorphError(f"layer {layer} has one head: without another there is nothing to compare it with")
    return _added(trial, best(others))


def added_beyond_other_head(trial: Trial) -> float:
    """How much more the induction head is missed than the other."""
    return added_without_induction_head(trial) - added_without_other_head(trial)
