"""Forks: Where the norms stand and what they are."""

from __future__ import annotations

from morph.forks.entry import Fork

NORMS: tuple[Fork, ...] = ()
