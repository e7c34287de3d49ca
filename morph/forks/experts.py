"""Forks: How experts are chosen and balanced."""

from __future__ import annotations

from morph.forks.entry import Fork

EXPERTS: tuple[Fork, ...] = ()
