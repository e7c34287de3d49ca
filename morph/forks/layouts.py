"""Forks: Which layers see the whole past."""

from __future__ import annotations

from morph.forks.entry import Fork

LAYOUTS: tuple[Fork, ...] = ()
