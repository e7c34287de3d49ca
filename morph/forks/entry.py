"""What a fork is: one named change of a stage, or of another fork, where the field has not settled."""

from __future__ import annotations

from dataclasses import dataclass

from morph.steps import Apply, Role


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
        relation: where it equals its base exactly, or how far apart they are; `tests/test_fork_relations.py` asserts
            it. "none: ..." where nothing of the kind holds.
        shipped_by: released models that have it, with what differs there in brackets; empty where we know of none.
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
    relation: str
    shipped_by: tuple[str, ...]
    source: str
    apply: Apply
