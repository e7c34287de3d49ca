"""Choices that the field has not settled: each a named change of one stage, or of another fork.

A fork is written like a step: a slug, what it changes, and a function from config to config. Steps and forks compose:
the base of a fork may be another, and `compose` makes any of them in any order, or says why one does not fit. Each kind
of organ has a file of its own here.
"""

from __future__ import annotations

from morph.config import ModelConfig
from morph.errors import MorphError, nearest, short
from morph.forks.attention import ATTENTION
from morph.forks.entry import Fork as Fork
from morph.forks.experts import EXPERTS
from morph.forks.feedforward import FEED_FORWARD
from morph.forks.layouts import LAYOUTS
from morph.forks.norms import NORMS
from morph.forks.positions import POSITIONS
from morph.forks.states import STATES
from morph.forks.stream import STREAM
from morph.steps import SLUGS, STEPS, Size, Step, size_of, slug_of, stage

FORKS: dict[str, Fork] = {
    entry.slug: entry for entry in (*POSITIONS, *NORMS, *ATTENTION, *LAYOUTS, *STATES, *FEED_FORWARD, *EXPERTS, *STREAM)
}
"""Slug -> fork."""
CHANGES: dict[str, Step | Fork] = {step.slug: step for step in STEPS} | FORKS
"""Slug -> step or fork."""
JOIN = "+"
"""Stands between the parts of a composition's name."""


def fork(slug: str, size: str | Size = "tiny") -> ModelConfig:
    """The config of a fork: its base with its one change.

    Raises:
        MorphError: for an unknown fork or size.
    """
    if str(slug) not in FORKS:
        raise MorphError(f"unknown fork {str(slug)[:40]!r}: give one of {', '.join(FORKS)}{nearest(slug, FORKS)}")
    entry = FORKS[slug]
    return entry.apply(config_of(entry.base, size), size_of(size))


def compose(*words: int | str, size: str | Size = "tiny") -> ModelConfig:
    """A stage or fork, and the changes of further steps and forks made to it one after another.

    `compose("hybrid", "attention-sink", "sandwich-norm")` is stage 14 with two forks; `compose("2017", "rope", "gqa")`
    the original with two steps.

    Args:
        words: what to start from, then steps and forks, each a number or a slug. A slug that comes first stands for
            all that led to it, a later one for its own change alone.
        size: a named size, or widths of your own.

    Raises:
        MorphError: for an unknown name or size, and for a change that does not fit what stands before it, or that
            changes nothing there.
    """
    if not words:
        raise MorphError("nothing to compose: give a stage or fork, and changes to make to it")
    widths, names = size_of(size), [_slug(word) for word in words]
    config = fork(names[0], size) if names[0] in FORKS else stage(names[0], size)
    for place, name in enumerate(names[1:], start=1):
        config = apply(name, config, widths, before=JOIN.join(names[:place]))
    return config


def apply(slug: str, config: ModelConfig, size: Size, before: str = "") -> ModelConfig:
    """A config with the change of one step or fork made to it; `before` names it where the change is refused.

    Raises:
        MorphError: when the change does not fit, or changes nothing.
    """
    if slug not in CHANGES:
        raise MorphError(f"{slug!r} is what all steps start from and no change: let it come first")
    told = repr(before) if before else "this config"
    try:
        after = CHANGES[slug].apply(config, size)
    except MorphError as error:
        raise MorphError(f"{slug!r} does not fit {told}: {error}") from None
    if after == config:
        raise MorphError(f"{slug!r} changes nothing in {told}, which has it already: leave it out")
    return after


def config_of(word: int | str, size: str | Size = "tiny") -> ModelConfig:
    """The config of a stage (0 to 14, or its slug), of a fork, or of several joined by +, as `compose` makes it.

    Raises:
        MorphError: when `word` names none, when a change does not fit, or for an unknown size.
    """
    return compose(*name_of(word).split(JOIN), size=size)


def name_of(word: int | str) -> str:
    """The slug of a stage given as number, digits or slug, or that of a fork; for several joined by +, theirs.

    Raises:
        MorphError: when `word` names none.
    """
    parts = str(word).split(JOIN)
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise MorphError(f"{short(word)} has a {JOIN} with nothing on one side: write it as in hybrid{JOIN}mqa")
    return _slug(word) if len(parts) == 1 else JOIN.join(_slug(part.strip()) for part in parts)


def _slug(word: int | str) -> str:
    """The slug of one stage or fork."""
    text = str(word)
    if text in FORKS:
        return text
    if isinstance(word, bool) or text not in (*SLUGS, *map(str, range(len(SLUGS)))):
        raise MorphError(
            f"unknown stage {text[:40]!r}: give 0 to {len(STEPS)} or one of {', '.join(SLUGS)}, or a fork "
            f"(morph forks lists them){nearest(text, (*SLUGS, *FORKS))}"
        )
    return slug_of(text)
