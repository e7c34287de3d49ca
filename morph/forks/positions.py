"""Forks: How tokens know their place."""

from __future__ import annotations

from morph.forks.entry import Fork

POSITIONS: tuple[Fork, ...] = ()
