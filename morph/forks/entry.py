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
