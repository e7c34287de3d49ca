"""A fork of your own: declared like those of the project, checked, and known by its slug until the process ends.

    register(Fork("one-kv-head", "gqa", ...))

From then on `morph.fork`, `morph.compose`, every figure's `model=` and a notebook's monitor take the slug.
"""

from __future__ import annotations

import re
from typing import get_args

from morph.config import ModelConfig, diff
from morph.errors import MorphError, short
from morph.forks import CHANGES, FORKS, config_of
from morph.forks.entry import Fork
from morph.spec import require
from morph.steps import SIZES, SLUGS, Role

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_own: set[str] = set()


def register(entry: Fork) -> Fork:
    """Make a fork known. One of the same slug that was registered before is replaced: a cell may run again.

    Raises:
        MorphError: for a slug that is taken, an unknown base or role, and a change that is not what the entry says:
            at every named size it must change all of its `paths`, and nothing else.
    """
    require(isinstance(entry, Fork), f"{short(entry)} is no fork; give a morph.forks.Fork(...)")
    _check_words(entry)
    require(entry.base != entry.slug, f"{entry.slug!r} is its own base; name a stage or another fork")
    for size in SIZES:
        _check_change(entry, size)
    FORKS[entry.slug] = CHANGES[entry.slug] = entry
    _own.add(entry.slug)
    return entry


def unregister(slug: str) -> None:
    """Forget a fork that `register` made known. Raises `MorphError` for any other, and while another stands on it."""
    require(slug in _own, f"{short(slug)} was not registered; there is {', '.join(sorted(_own)) or 'none'}")
    above = [entry.slug for entry in FORKS.values() if entry.base == slug]
    require(not above, f"{slug!r} is the base of {', '.join(above)}; unregister that first")
    _own.remove(slug)
    del FORKS[slug], CHANGES[slug]


def _check_words(entry: Fork) -> None:
    slug = entry.slug
    require(
        isinstance(slug, str) and _SLUG.fullmatch(slug) is not None and not slug.isdigit(),
        f"slug = {short(slug)} must be words of small letters and digits joined by -, and no number",
    )
    taken = slug in SLUGS or (slug in FORKS and slug not in _own)
    require(not taken, f"{slug!r} is a stage or fork of the project; choose another slug")
    require(
        entry.base in SLUGS or entry.base in FORKS,
        f"base = {short(entry.base)} is no stage and no fork; give a slug (morph steps, morph forks)",
    )
    require(entry.role in get_args(Role), f"role = {short(entry.role)} is not one of: {', '.join(get_args(Role))}")
    require(
        isinstance(entry.paths, tuple) and bool(entry.paths),
        f"paths = {short(entry.paths)} must be a tuple of the config fields that change, such as ('norm',)",
    )
    for name in ("title", "before", "after", "relation"):
        value = getattr(entry, name)
        require(isinstance(value, str) and bool(value), f"{name} = {short(value)} must say something")


def _check_change(entry: Fork, size: str) -> None:
    """That the change is the one declared, at one size."""
    base = config_of(entry.base, size)
    after = entry.apply(base, SIZES[size])
    require(isinstance(after, ModelConfig), f"{entry.slug!r} gives {short(after)}, not a config; return replace(...)")
    changed = [change.path for change in diff(base, after)]
    require(bool(changed), f"{entry.slug!r} changes nothing in {entry.base!r} at size {size}")
    for path in changed:
        if not any(f"{path}.".startswith(f"{declared}.") for declared in entry.paths):
            raise MorphError(f"{entry.slug!r} changes {path} too, which its paths do not name; name it, or leave it")
    for declared in entry.paths:
        if not any(f"{path}.".startswith(f"{declared}.") for path in changed):
            raise MorphError(f"{entry.slug!r} names {declared} in its paths and does not change it; leave it out")
