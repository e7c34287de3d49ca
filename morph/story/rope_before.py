"""Figure 3, frames 1 to 4: what attention knows of order by itself, and position added to the input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from morph.config import LearnedPosition, ModelConfig, Rope, Rotation, Sinusoid
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn.position import sinusoid_table
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.rope_layer import EXACT, Layer
from morph.story.subject import Subject, siblings
from morph.story.written import percent, small

WORDS = 8
"""Tokens that frame 1 shuffles."""
SEEN = 0.01
"""The least change, of an output's length, that can be seen."""
PLACES = 64
"""Rows of the sinusoid that frame 2 shows."""
GRID = 16
"""Places that frame 4 moves its two tokens over."""


# ---- 1: order without position ----


def shuffle(subject: Subject, layer: Layer) -> Frame:
    """What a shuffle of the tokens does to the outputs of one layer that is told nothing of places."""
    start = _distinct(subject, layer.ids, WORDS)
    rows = slice(start, start + WORDS)
    order = _shuffled(WORDS, subject.seed)
    x = layer.x[rows]
    before, after = layer.attend(x, None), layer.attend(x[torch.tensor(order)], None)
    open_before, open_after = layer.unmasked(before), layer.unmasked(after)
    change = {
        "open": relative(open_after[1], open_before[1][:, order]),
        "causal": relative(after["heads"], before["heads"][:, order]),
    }
    followed = int(change["causal"].argmax())
    token = int(order[followed])  # its place before the shuffle
    weights = {
        "open_before": open_before[0][0, token], "open_after": open_after[0][0, followed],
        "causal_before": before["weights"][0, token], "causal_after": after["weights"][0, followed],
    }  # fmt: skip
    words = [subject.shown(token) for token in layer.ids[rows]]
    where = f"blocks.{layer.index}.attention"
    least, most = float(change["open"].max()), float(change["causal"].max())
    title = "Shuffle the tokens"
    if not most > SEEN:
        why = "it sees too little of the past, or the tokens are too much alike."
        return absent("shuffle", title, f"A shuffle changes the outputs of layer {layer.index} by less than 1 %: {why}")
    return Frame(
        key="shuffle",
        title=title,
        caption=(
            "Without a mask the outputs only trade places. With the causal mask they change, by up to "
            f"{percent(most)} of their length: the mask alone makes order matter."
        ),
        alt=(
            f"Eight tokens, {' '.join(words)}, and the same tokens shuffled, lines joining each to itself. Below, how "
            f"much each token's attention output changed. Left, without a mask: nothing, at most {small(least)}. "
            f"Right, with the causal mask: up to {most:.2f} of its length. Attention weights of token {words[token]} "
            "are shown as a strip above and below: without a mask they move along with the tokens, with it they differ."
        ),
        claim=Claim(
            text="Unmasked outputs are shuffled along exactly, causal ones change.",
            holds=lambda f: bool(
                f.values("open_change").max() < EXACT < SEEN < f.values("causal_change").max()
            ),
        ),
        arrays={
            "order": Array(values=np.array(order), axes=("place",), source="a permutation drawn from the seed"),
            **{
                name: Array(
                    values=values, axes=("place",),
                    source=f"{where}.{'weights' if 'causal' in name else 'queries and .keys, no mask'}, head 0",
                )
                for name, values in weights.items()
            },
            "open_change": Array(
                values=change["open"], axes=("place",), source=f"{where}.heads without mask and rotation, recomputed"
            ),
            "causal_change": Array(values=change["causal"], axes=("place",), source=f"{where}.heads, rotation off"),
        },
        facts={"words": words, "token": token, "layer": layer.index, "least": small(least)},
        source=(
            f"Layer {layer.index} of {subject.name}, its rotation off; strips: weights of the bold token, head 0."
        ),
    )  # fmt: skip


def relative(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Length of each token's change over that of its output, all heads together: (H, S, Dh) twice -> (S,)."""
    change, size = (np.sqrt(np.square(x).sum((0, 2))) for x in (new - old, old))
    return np.asarray(change / size)


def _distinct(subject: Subject, ids: list[int], length: int) -> int:
    """Where `length` tokens start that are all different and end no line: the shortest written, the first of those."""
    best, shortest = 0, float("inf")
    for start in range(len(ids) - length + 1):
        few = ids[start : start + length]
        words = [subject.shown(token) for token in few]
        longest = max(map(len, words))
        if len(set(few)) == length and not any("⏎" in word for word in words) and longest < shortest:
            best, shortest = start, longest
    return best


def _shuffled(length: int, seed: int) -> list[int]:
    """A permutation that leaves no token in its place."""
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(length)
        if (order != np.arange(length)).all():
            return [int(i) for i in order]


# ---- 2: the sinusoid ----


def sinusoid(config: ModelConfig) -> Frame:
    """The rows that the 2017 model adds to its embeddings, and their dot products."""
    spec = config.position if isinstance(config.position, Sinusoid) else Sinusoid()
    table = sinusoid_table(PLACES, config.d_model, spec.base).numpy()
    meeting = table @ table.T / (config.d_model / 2)
    near, far = meeting[-1, -2], meeting[-1, 0]
    return Frame(
        key="sinusoid",
        title="2017: a wave, added once",
        caption=(
            f"Row m is added to the embedding at place m. The dot product of two rows depends on distance alone: "
            f"{near:.2f} one place apart, {far:.2f} at {PLACES - 1}."
        ),
        alt=(
            f"A heat map of {PLACES} places by {config.d_model // 2} waves, the sines of a fixed table: fast waves at "
            "the left, ever slower ones to the right, limits minus one and one. Beside it a curve, the dot product of "
            f"two rows against their distance, falling from 1 to {far:.2f}."
        ),
        claim=Claim(
            text="The dot product of two rows depends on their distance alone.",
            holds=lambda f: bool(spread_along_diagonals(f.values("meeting")).max() < EXACT),
        ),
        arrays={
            "table": Array(
                values=table[:, 0::2].round(4), axes=("place", "wave"),
                source=f"sin(m b^(-2i/d)), b = {spec.base:g}, d = {config.d_model}; the cosines are left out",
            ),
            "meeting": Array(
                values=meeting, axes=("place", "place"), source="dot products of the table's rows, over d/2",
            ),
        },
        facts={"base": spec.base, "width": config.d_model},
        source=f"The table of a model {config.d_model} wide; its cosines, a quarter turn ahead, are not shown.",
    )  # fmt: skip


def spread_along_diagonals(square: np.ndarray) -> np.ndarray:
    """Greatest less least value of each diagonal of an (n, n) matrix, (2n - 1,)."""
    n = len(square)
    return np.array([np.ptp(np.diagonal(square, offset)) for offset in range(1 - n, n)])


# ---- 3: the learned table ----


def table(subject: Subject) -> Frame:
    """The end of a table of trained rows, and what the model says one token later."""
    position = subject.config.position
    if isinstance(position, LearnedPosition):
        owner, mine = subject, True
    else:
        config = replace(subject.config, position=LearnedPosition(length=subject.config.context_length))
        owner, mine = siblings(subject, [config])[0], False
    assert owner.model.positions is not None
    rows = owner.model.positions.weight.detach().double().numpy()
    length = len(rows)
    refusal = _refusal(owner.model, owner.ids(length + 1))
    last = range(max(length - 6, 0), length)
    shown_rows, shown_features = rows[last.start :, :24], 24
    return Frame(
        key="learned",
        title="2018: learn every row",
        caption=(
            f"{length} rows to train, {rows.size:,} parameters. Token {length + 1} needs row {length}, "
            "and there is none."
        ),
        alt=(
            f"A heat map of the last rows of a learned table, places {last[0]} to {last[-1]}, "
            f"{shown_features} features of {rows.shape[1]}. Under it a dashed empty row, place {length}, "
            f"and what the model answers: {refusal}"
        ),
        claim=Claim(
            text="The rows end where the model refuses the next token.",
            holds=lambda f: bool(
                f.facts["refusal"] != "" and f.values("places")[-1] + 1 == f.facts["length"]
            ),
        ),
        arrays={
            "rows": Array(values=shown_rows.round(4), axes=("place", "feature"), source="positions.weight"),
            "places": Array(values=np.array(last), axes=("place",), source="positions.weight"),
        },
        facts={"length": length, "refusal": refusal, "parameters": int(rows.size)},
        source=f"{owner.name if mine else f'Fork learned-position, as initialized, seed {subject.seed}'}.",
    )  # fmt: skip


def _refusal(model: Decoder, ids: torch.Tensor) -> str:
    """What the model says to these tokens; "" when it reads them."""
    try:
        with torch.no_grad():
            model(ids)
    except MorphError as error:
        return str(error)
    return ""


# ---- 4: the requirement ----


def requirement(subject: Subject, layer: Layer) -> Frame:
    """One query and one key at all pairs of places: position added to what the layer reads, and rotation."""
    first, second = _two(subject, layer.ids)
    a, b = (layer.x[i].expand(GRID, -1) for i in (first, second))
    wave = sinusoid_table(GRID, layer.x.shape[1], Sinusoid().base)

    def meet(rope: Rotation | None, added: torch.Tensor | float) -> np.ndarray:
        q, k = layer.attend(a + added, rope)["queries"][0], layer.attend(b + added, rope)["keys"][0]
        return np.asarray(layer.capped(q @ k.T * layer.scale))

    maps = {"added": meet(None, wave), "turned": meet(layer.rope or Rope(), 0.0)}
    spread = {name: float(spread_along_diagonals(values).max()) for name, values in maps.items()}
    words = subject.shown(layer.ids[first]), subject.shown(layer.ids[second])
    return Frame(
        key="requirement",
        title="The requirement",
        caption=(
            f"Wanted: a score of contents and offset alone, so one value along each diagonal. With added waves it "
            f"varies by {spread['added']:.2f} along one; with rotation, not at all."
        ),
        alt=(
            f"Two heat maps of {GRID} by {GRID} places: the score of query {words[0]} at place m with key {words[1]} "
            f"at place n. Left, with a sinusoid added, the diagonals are not even: they vary by up to "
            f"{spread['added']:.2f}. Right, with rotation, every diagonal has one colour. Above them the requirement: "
            "the product of f of q, m and f of k, n is g of q, k and m minus n."
        ),
        claim=Claim(
            text="Diagonals are constant under rotation and not under addition.",
            holds=lambda f: _even_when_turned(f.values("turned"), f.values("added")),
        ),
        arrays={
            name: Array(values=values, axes=("query place", "key place"), source=source)
            for (name, values), source in zip(
                maps.items(),
                (
                    f"blocks.{layer.index}.attention.queries and .keys, head 0, a sinusoid added to their input",
                    f"blocks.{layer.index}.attention.queries and .keys, head 0",
                ),
            )
        },
        facts={"words": list(words), "spread": spread, "layer": layer.index},
        source=(
            f"Layer {layer.index}, head 0 of {subject.name}; query of “{words[0]}”, key of “{words[1]}” at every place."
        ),
    )  # fmt: skip


def _even_when_turned(turned: np.ndarray, added: np.ndarray) -> bool:
    exact = EXACT * max(1.0, np.abs(turned).max())
    return bool(spread_along_diagonals(turned).max() < exact and spread_along_diagonals(added).max() > 0.01)


def _two(subject: Subject, ids: list[int]) -> tuple[int, int]:
    """Indices of two different tokens that read well: the first two of letters that differ."""
    letters = [i for i, token in enumerate(ids) if subject.shown(token).removeprefix("␣").isalpha()] or [0]
    other = next((i for i in letters if ids[i] != ids[letters[0]]), len(ids) - 1)
    return letters[0], other
