"""Choices that the field has not settled: each a named change of one stage, or of another fork.

A fork is written like a step: a slug, what it changes, and a function from config to config. Forks compose: the base of
one may be another.
"""

from __future__ import annotations

from dataclasses import dataclass

from morph.config import ModelConfig
from morph.errors import MorphError, nearest
from morph.steps import SLUGS, Apply, Role, size_of, stage


@dataclass(frozen=True)
class Fork:
    """One change away from its base.

    Attributes:
        slug: the name used on the command line and in Python.
        base: slug of the stage or fork that it changes.
        title: a short heading.
        year, origin: the paper or model that the field took it from, and when.
        role: the kind of organ it touches; figures colour by it.
        paths: the config fields it may change, and no others.
        before, after: the change in words.
        question: what is unsettled, and who chose what.
        source: paper.
    """

    slug: str
    base: str
    title: str
    year: int
    origin: str
    role: Role
    paths: tuple[str, ...]
    before: str
    after: str
    question: str
    source: str
    apply: Apply


_ALL: tuple[Fork, ...] = ()

FORKS: dict[str, Fork] = {entry.slug: entry for entry in _ALL}
"""Slug -> fork."""


def fork(slug: str, size: str = "tiny") -> ModelConfig:
    """The config of a fork: its base with its one change.

    Raises:
        MorphError: for an unknown fork or size.
    """
    if slug not in FORKS:
        raise MorphError(f"unknown fork {slug[:40]!r}: give one of {', '.join(FORKS)}{nearest(slug, FORKS)}")
    entry = FORKS[slug]
    base = stage(entry.base, size) if entry.base in SLUGS else fork(entry.base, size)
    return entry.apply(base, size_of(size))
