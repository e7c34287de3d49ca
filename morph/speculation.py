"""Greedy text in fewer passes: MTP heads draft, the trunk checks, and the text is the one that it would have written.

A pass of the trunk over one token or over five costs about the same, for it is the weights that have to be fetched. So
the heads guess what follows, and one pass tells how many of the guesses the trunk agrees with, and the next token after
those (speculative decoding: Leviathan et al., 2023; by the model's own heads: Stern et al., 2018; DeepSeek-V3, 2024).

A guess that fails must leave no trace. Keys behind a window are gone and a recurrent state cannot be rewound, so the
cache goes back to a snapshot; the tokens that were accepted are read again, together with the next guesses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from morph.decoding import check_request, ids_among, require_numbers, without
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn.mtp import MTPHead

MOST_READ_AGAIN = 16
"""Tokens that may be read again beside new ones; with more it pays to read them once, alone, and keep the cache."""


@dataclass(frozen=True)
class Speculation:
    """What `generate_speculative` wrote, and what it took.

    Attributes:
        ids: (B, S + written): the prompts and what follows.
        written: tokens in each row.
        passes: of the trunk, the one over the prompt included; `generate` would need `written`.
        drafted, accepted: tokens that the heads guessed for each row, and those that all rows could keep.
    """

    ids: Int[Tensor, "B S_new"]
    written: int
    passes: int
    drafted: int
    accepted: int


class _Drafter:
    """The MTP heads of one model at work: what they have read, and what waits to be read.

    Head k (from 1) reads column i once token i + k is known. `waiting[k]` holds what the head before it says of the
    columns that head k has not read yet.
    """

    def __init__(self, model: Decoder, batch_size: int, pads: Tensor | None, never: Sequence[int]) -> None:
        self.model, self.pads, self.never = model, pads, never
        weight = model.embedding.weight
        nothing = torch.empty(batch_size, 0, model.config.d_model, dtype=weight.dtype, device=weight.device)
        self.caches = [head.block.new_cache() for head in model.mtp if isinstance(head, MTPHead)]
        self.read = [0] * len(model.mtp)
        self.waiting = [nothing] * (len(model.mtp) + 1)

    def take(self, x: Float[Tensor, "B n D"]) -> None:
        """Take note of what the trunk says of `n` more columns."""
        self.waiting[0] = torch.cat((self.waiting[0], x), dim=1)

    def draft(self, ids: Int[Tensor, "B N"], n: int) -> Int[Tensor, "B n"]:
        """Guesses for the `n` tokens after `ids`, of which the trunk has read all but the last."""
        guessed = ids
        unsure = self.waiting[0][:, :0]
        for k in range(n):
            known = self.waiting[k][:, : max(0, ids.shape[1] - 1 - k - self.read[k])]  # their token is no guess
            rest = self.waiting[k][:, known.shape[1] :]
            sure = self._run(k, known, ids[:, self.read[k] + k + 1 :][:, : known.shape[1]])
            self.read[k] += known.shape[1]
            self.waiting[k], self.waiting[k + 1] = rest, torch.cat((self.waiting[k + 1], sure), dim=1)
            held, columns = self.caches[k].snapshot(), torch.cat((rest, unsure), dim=1)
            unsure = self._run(k, columns, guessed[:, guessed.shape[1] - columns.shape[1] :])
            self.caches[k].restore(held)
            last = unsure if unsure.shape[1] else sure
            guessed = torch.cat((guessed, greedy(self.model.logits(last[:, -1:]), self.never)), dim=1)
        return guessed[:, ids.shape[1] :]

    def _run(self, k: int, h: Float[Tensor, "B n D"], tokens: Int[Tensor, "B n"]) -> Float[Tensor, "B n D"]:
        """Head k + 1 reads the next columns."""
        if not h.shape[1]:
            return h
        context = self.model.context(self.read[k], h.shape[1], self.pads)
        out: Tensor = self.model.mtp[k](h, self.model.embed(tokens), context, self.caches[k])
        return out


def greedy(logits: Float[Tensor, "B n V"], never: Sequence[int] = ()) -> Int[Tensor, "B n"]:
    """The likeliest token, the lowest id on a tie: what `generate` takes at temperature 0."""
    return require_numbers(without(logits, never).float()).argmax(dim=-1)


@torch.inference_mode()
def generate_speculative(
    model: Decoder,
    ids: Int[Tensor, "B S"],
    max_new_tokens: int,
    *,
    lengths: Int[Tensor, "B"] | None = None,
    stop: Collection[int] = (),
    never: Sequence[int] = (),
) -> Speculation:
    """Continue each row of `ids` by the tokens that `generate(..., temperature=0)` takes, in fewer passes.

    The two read the same tokens in different portions, so where two logits tie to the last digits of the model's
    precision they may take one or the other. Rows of a batch advance together, by as many guesses as all can keep.

    Args:
        ids: prompts, (B, S), padded on the left where their `lengths` differ.
        stop, never: as in `generate`.

    Raises:
        MorphError: for a model without MTP heads, a row of length 0, no token to make, or more tokens than
            `model.config.position_limit`.
    """
    if not len(model.mtp):
        raise MorphError("this model has no heads that draft; give one with mtp, such as the fork 'mtp', or generate")
    check_request(model, ids, max_new_tokens, lengths)
    was_training, S = model.training, ids.shape[1]
    ends, never = ids_among(stop, model, ids), ids_among(never, model, ids).tolist()
    model.eval()
    try:
        cache = model.new_cache(len(ids))
        x = model.read(ids, lengths=lengths, cache=cache)
        drafter = _Drafter(model, len(ids), cache.pads, never)
        drafter.take(x)
        unread = greedy(model.logits(x[:, -1:]), never)  # by the cache
        ids, ended = torch.cat((ids, unread), dim=1), torch.isin(unread, ends)
        passes, drafted, accepted = 1, 0, 0
        while (missing := S + max_new_tokens - ids.shape[1]) > 0 and not bool(ended.all()):
            if unread.shape[1] > MOST_READ_AGAIN:
                model.read(unread[:, :-1], cache=cache)
                unread, passes = unread[:, -1:], passes + 1
            guesses = drafter.draft(ids, min(len(model.mtp), missing - 1))
            held = cache.snapshot()
            x = model.read(torch.cat((unread, guesses), dim=1), cache=cache)[:, unread.shape[1] - 1 :]
            new, ended = _kept(greedy(model.logits(x), never), guesses, ids[:, -1:], ended, ends)
            kept = new.shape[1] - 1
            drafter.take(x[:, : kept + 1])
            if kept == guesses.shape[1]:
                unread = new[:, -1:]
            else:
                cache.restore(held)
                unread = torch.cat((unread, new), dim=1)
            ids, passes = torch.cat((ids, new), dim=1), passes + 1
            drafted, accepted = drafted + guesses.shape[1], accepted + kept
    finally:
        model.train(was_training)
    return Speculation(ids, ids.shape[1] - S, passes, drafted, accepted)


def _kept(
    taken: Int[Tensor, "B n_plus_1"],
    guesses: Int[Tensor, "B n"],
    last: Int[Tensor, "B 1"],
    ended: Bool[Tensor, "B 1"],
    ends: Int[Tensor, "ends"],
) -> tuple[Int[Tensor, "B m"], Bool[Tensor, "B 1"]]:
    """What is written of the tokens that the trunk takes: as long as all rows guessed them, and one more.

    A row that has ended repeats its last token and agrees with any guess, for nothing that it reads matters any more.
    """
    new: list[Tensor] = []
    for column in range(taken.shape[1]):
        last = torch.where(ended, last, taken[:, column : column + 1])
        ended = torch.isin(last, ends)
        new.append(last)
        is_last = column == guesses.shape[1] or bool(ended.all())
        if is_last or not bool(((last == guesses[:, column : column + 1]) | ended).all()):
            break
    return torch.cat(new, dim=1), ended
