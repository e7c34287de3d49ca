"""The one error a user is meant to read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

BAD_INPUT, INTERRUPTED = 2, 130
"""Exit codes of the command line: refused input, and a run that Ctrl-C ended in good order."""


class MorphError(ValueError):
    """Bad input, refused before any work starts: one line with the value, the limit and the remedy.

    The command line prints it and exits with status 2; from Python it is an ordinary `ValueError`.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'gqa'?"` for the known word closest to `word`, or `""` when none is close."""
    match = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""
