"""The stages and forks as one tree: a main line of fifteen stages, with each fork hanging from what it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from morph.forks import FORKS
from morph.steps import SLUGS, STEPS

FIRST = "The block of 2017, as a decoder"


@dataclass(frozen=True)
class Branch:
    """One line of the tree.

    Attributes:
        lead: what is drawn before the slug, a stage's number included.
        slug, year, title: of the stage or fork; stage 0 came in the year it is named after.
        is_stage: whether it stands on the main line.
    """

    lead: str
    slug: str
    year: int
    title: str
    is_stage: bool


def tree() -> Iterator[Branch]:
    """The lines from top to bottom."""
    titles = [(int(SLUGS[0]), FIRST), *((step.year, step.title) for step in STEPS)]
    for number, (slug, (year, title)) in enumerate(zip(SLUGS, titles, strict=True)):
        yield Branch(f"{number:>2}  ", slug, year, title, is_stage=True)
        yield from _forks_on(slug, " │  " if number < len(STEPS) else "    ")


def _forks_on(base: str, lead: str) -> Iterator[Branch]:
    here = [fork for fork in FORKS.values() if fork.base == base]
    for fork in here:
        is_last = fork is here[-1]
        yield Branch(lead + ("└─ " if is_last else "├─ "), fork.slug, fork.year, fork.title, is_stage=False)
        yield from _forks_on(fork.slug, lead + ("   " if is_last else "│  "))
