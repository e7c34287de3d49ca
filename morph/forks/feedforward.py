"""Forks: What a token computes by itself, in a dense network."""

from __future__ import annotations

from morph.forks.entry import Fork

FEED_FORWARD: tuple[Fork, ...] = ()
