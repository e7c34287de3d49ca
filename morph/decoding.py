"""Writing text with a cache: one prefill, then one token at a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from types import UnionType

import torch
from jaxtyping import Float, Int
from torch import Tensor

from morph.errors import MorphError, short
from morph.model import Decoder

LEAST_TEMPERATURE = 1e-3  # below, dividing logits by it overflows


def next_token_probabilities(
    logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, "B V"]:
    """The distribution that sampling draws from.

    `top_k` keeps the k most probable tokens; `top_p` then keeps the smallest set whose probability reaches p
    (Holtzman et al., 2019). Temperature 0 puts everything on the most probable token, the lowest id on a tie.
    """
    if temperature == 0:
        best = logits.argmax(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1.0)
    logits = logits / temperature
    ranked, ids = logits.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked[..., top_k:] = float("-inf")
    probabilities = ranked.softmax(dim=-1)
    if top_p is not None:
        before = probabilities.cumsum(dim=-1) - probabilities
        beyond = before >= top_p
        beyond[..., 0] = False  # the most probable token stays, however small p is
        probabilities = probabilities.masked_fill(beyond, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, ids, probabilities)


def without(logits: Float[Tensor, "*B V"], never: Sequence[int]) -> Float[Tensor, "*B V"]:
    """The logits with those of some ids at -inf."""
    if not never:
        return logits
    return logits.index_fill(-1, torch.tensor(never, device=logits.device), float("-inf"))


def _is_number(value: object, kind: type | UnionType = int | float) -> bool:
    """Whether it is a number, and no truth value, which Python counts as one."""
    return isinstance(value, kind) and not isinstance(value, bool)


def ids_among(stop: Collection[int], model: Decoder, ids: Tensor) -> Int[Tensor, "n"]:
    """Those of some ids that the model can write, as a tensor beside `ids`. Raises MorphError for what are no ids."""
    if not isinstance(stop, Collection) or not all(isinstance(each, int) for each in stop):
        raise MorphError(f"{short(stop)} is no list of ids; give whole numbers, such as (2,)")
    found = sorted(each for each in stop if 0 <= each < model.config.vocab_size)
    return torch.tensor(found, dtype=ids.dtype, device=ids.device)


def require_numbers(logits: Tensor) -> Tensor:
    """The logits, each row of which must single out some token. Raises MorphError where none can be taken."""
    best = logits.amax(dim=-1)
    if not bool(best.isfinite().all()):
        what = "no token is left to choose" if bool((best == float("-inf")).any()) else "they are not numbers"
        raise MorphError(
            f"the model's logits give no next token, {what}: its weights are damaged, or training diverged"
        )
    return logits


def check_request(model: Decoder, ids: Tensor, max_new_tokens: int, lengths: Tensor | None) -> None:
    """Raise MorphError for a row of length 0, no token to make, or more than the model can place."""
    if not _is_number(max_new_tokens, int) or max_new_tokens < 1:
        raise MorphError(f"max_new_tokens = {short(max_new_tokens)} is below 1; ask for at least one token")
    if lengths is not None and bool((lengths < 1).any()):
        raise MorphError(
            f"lengths = {lengths.tolist()}: a row without a token cannot be continued; give at least one each"
        )
    longest = ids.shape[-1] if lengths is None else int(lengths.max())
    model.check_length(longest + max_new_tokens - 1)  # the last token is written and never read


@torch.inference_mode()
def generate(
    model: Decoder,
    ids: Int[Tensor, "B S"],
    max_new_tokens: int,
    *,
    lengths: Int[Tensor, "B"] | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Collection[int] = (),
    never: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B S_new"]:
    """Continue each row of `ids` by `max_new_tokens` tokens.

    Args:
        ids: prompts, (B, S), padded on the left where their `lengths` differ.
        temperature: 0 for greedy; below 1 sharper, above 1 flatter.
        top_k, top_p: see `next_token_probabilities`.
        stop: ids that end a text. A row that has written one repeats it; when all have, nothing more is written.
        never: ids that are not drawn, such as those that stand for no text.
        generator: source of randomness, on the CPU; a fresh one seeded 0 if None, so that a call can be repeated.

    Returns:
        (B, S + max_new_tokens), or fewer columns where all rows ended earlier: the prompts and what follows.

    Raises:
        MorphError: for an impossible temperature, top_k or top_p, a row of length 0, no token to make, or more
            tokens than `model.config.position_limit`.
    """
    warm = _is_number(temperature) and (temperature == 0 or LEAST_TEMPERATURE <= temperature < math.inf)
    if not warm:
        raise MorphError(
            f"temperature = {short(temperature)}; give 0 for greedy, or a finite number from {LEAST_TEMPERATURE}"
        )
    if top_k is not None and (not _is_number(top_k, int) or top_k < 1):
        raise MorphError(f"top_k = {short(top_k)} is below 1; give at least 1, or leave it out")
    if top_p is not None and not (_is_number(top_p) and 0 < top_p <= 1):
        raise MorphError(f"top_p = {short(top_p)} is outside (0, 1]; give a share such as 0.9, or leave it out")
    check_request(model, ids, max_new_tokens, lengths)
    generator = generator or torch.Generator().manual_seed(0)
    ends, never = ids_among(stop, model, ids), ids_among(never, model, ids).tolist()
    was_training = model.training
    model.eval()
    try:
        cache = model.new_cache(len(ids))
        logits = model(ids, lengths=lengths, cache=cache)[:, -1]
        ended = torch.zeros(len(ids), 1, dtype=torch.bool, device=ids.device)
        for made in range(max_new_tokens):
            possible = require_numbers(without(logits, never).float().cpu())
            chances = next_token_probabilities(possible, temperature, top_k, top_p)
            new = torch.multinomial(chances, 1, generator=generator).to(ids.device)
            new = torch.where(ended, ids[:, -1:], new)
            ids, ended = torch.cat((ids, new), dim=1), torch.isin(new, ends)
            if bool(ended.all()):
                break
            if made + 1 < max_new_tokens:
                logits = model(new, cache=cache)[:, -1]
    finally:
        model.train(was_training)
    return ids
