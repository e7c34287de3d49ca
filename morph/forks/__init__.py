"""Choices that the field has not settled: each a named change of one stage, or of another fork.

A fork is written like a step: a slug, what it changes, and a function from config to config. Forks compose: the base of
one may be another. Each kind of organ has a file of its own here.
"""

from __future__ import annotations

from morph.config import ModelConfig
from morph.errors import MorphError, nearest
from morph.forks.attention import ATTENTION
from morph.forks.entry import Fork as Fork
from morph.forks.experts import EXPERTS
from morph.forks.feedforward import FEED_FORWARD
from morph.forks.layouts import LAYOUTS
from morph.forks.norms import NORMS
from morph.forks.positions import POSITIONS
from morph.forks.stream import STREAM
from morph.steps import SLUGS, STEPS, size_of, slug_of, stage

FORKS: dict[str, Fork] = {
    entry.slug: entry for entry in (*POSITIONS, *NORMS, *ATTENTION, *LAYOUTS, *FEED_FORWARD, *EXPERTS, *STREAM)
}
"""Slug -> fork."""


def fork(slug: str, size: str = "tiny") -> ModelConfig:
    """The config of a fork: its base with its one change.

    Raises:
        MorphError: for an unknown fork or size.
    """
    if str(slug) not in FORKS:
        raise MorphError(f"unknown fork {str(slug)[:40]!r}: give one of {', '.join(FORKS)}{nearest(slug, FORKS)}")
    entry = FORKS[slug]
    return entry.apply(config_of(entry.base, size), size_of(size))


def config_of(word: int | str, size: str = "tiny") -> ModelConfig:
    """The config of a stage (0 to 14, or its slug) or of a fork.

    Raises:
        MorphError: when `word` names neither, or for an unknown size.
    """
    slug = name_of(word)
    return fork(slug, size) if slug in FORKS else stage(slug, size)


def name_of(word: int | str) -> str:
    """The slug of a stage given as number, digits or slug, or that of a fork.

    Raises:
        MorphError: when `word` names neither.
    """
    text = str(word)
    if text in FORKS:
        return text
    if isinstance(word, bool) or text not in (*SLUGS, *map(str, range(len(SLUGS)))):
        raise MorphError(
            f"unknown stage {text[:40]!r}: give 0 to {len(STEPS)} or one of {', '.join(SLUGS)}, or a fork "
            f"(morph forks lists them){nearest(text, (*SLUGS, *FORKS))}"
        )
    return slug_of(text)
