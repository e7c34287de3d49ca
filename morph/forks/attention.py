"""Forks: What a softmax layer does with queries, keys and scores."""

from __future__ import annotations

from morph.forks.entry import Fork

ATTENTION: tuple[Fork, ...] = ()
