"""The film of all figures: its order, and the words on the cards between them."""

from __future__ import annotations

from dataclasses import dataclass

from morph.story.frame import Claim, Frame

TITLE = "What changed inside the Transformer"
"""Of the whole film."""


@dataclass(frozen=True)
class Chapter:
    """One figure in the film: its number and title, which are the figure's own, and what it asks."""

    number: int
    title: str
    lead: str


CHAPTERS = {
    "morph": Chapter(
        1,
        "Fourteen changes, 2017 to 2026",
        "From the decoder of 2017 to a hybrid with experts: fourteen changes, one at a time, each with what it costs.",
    ),
    "residual": Chapter(
        2,
        "The residual stream",
        "Every layer adds to one stream. How large does it grow, and what do norms do to it?",
    ),
    "rope": Chapter(
        3,
        "Rotary position",
        "Attention by itself knows no order. How is it told, and does that hold beyond the trained length?",
    ),
    "norm": Chapter(
        4,
        "Normalization and its place",
        "Before or behind, with the mean or without: what does a norm cost, what does it hold, what does training say?",
    ),
    "ffn": Chapter(
        5,
        "The gated feed-forward network",
        "Two matrices became three at the same size. What does the gate do, and how wide are such networks?",
    ),
    "kv-cache": Chapter(
        6,
        "The KV cache",
        "Every new token reads all that is kept of the old ones. Who keeps how little of it, and what does that cost?",
    ),
    "masks": Chapter(
        7,
        "Holes in the mask",
        "Who may look at whom, how far does a token hear through many layers, and what does looking cost?",
    ),
    "moe": Chapter(
        8,
        "Mixture of experts",
        "Many networks are stored, a few work for each token. Who chooses, and does the choice stay even?",
    ),
    "beyond-softmax": Chapter(
        9,
        "Beyond softmax",
        "A memory of fixed size in the place of a growing one: what it costs, what it holds, what it loses.",
    ),
}
"""Figure name -> its chapter, in the order of the film."""


def opening(names: tuple[str, ...]) -> Frame:
    """What stands before the first figure of a film of these."""
    return _card(
        "opening",
        "From 2017 to 2026",
        f"{'One figure' if len(names) == 1 else f'{len(names)} figures'}, drawn of numbers that models gave: the ones "
        "on screen, or those of recorded trainings.",
        f"A card with the film's title, {TITLE}, and the names of its figures.",
    )


def card(name: str) -> Frame:
    """What stands before a figure: its number, its title and what it asks."""
    chapter = CHAPTERS[name]
    return _card(
        f"card-{name}", f"Figure {chapter.number}", chapter.lead, f"A card with the figure's title, {chapter.title}."
    )


def closing(versions: str) -> Frame:
    """What stands after the last figure: how all of it is made again."""
    return _card(
        "closing",
        "Made of live tensors",
        "One code trained these models, drew them and fills the notebooks. Seeds and versions are recorded.",
        "A card that names the commands which make the film and its models again.",
        versions,
    )


def _card(key: str, title: str, caption: str, alt: str, source: str = "") -> Frame:
    claim = Claim(text="Nothing is claimed.", holds=lambda frame: not frame.arrays)
    return Frame(key=key, title=title, caption=caption, alt=alt, claim=claim, source=source)
