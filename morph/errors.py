"""The one error a user is meant to read."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from typing import Any

_NO_MEMORY = re.compile(r"out of memory|can't allocate|not enough memory|invalid buffer size|Storage size", re.I)
BAD_INPUT, INTERRUPTED = 2, 130
"""Exit codes of the command line: refused input, and a run that Ctrl-C ended in good order."""


class MorphError(ValueError):
    """Bad input, refused before any work starts: one line with the value, the limit and the remedy.

    The command line prints it and exits with status 2; from Python it is an ordinary `ValueError`.
    """


def nearest(word: object, known: Iterable[str]) -> str:
    """Return `"; did you mean 'gqa'?"` for the known word closest to `word`, or `""` when none is close."""
    text = word[:100] if isinstance(word, str) else ""
    match = difflib.get_close_matches(text, list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def short(value: Any) -> str:
    """A value for one line of text: cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return "a list of lists without end"
    return text if len(text) <= 80 else text[:77] + "..."


def spelled(name: str) -> str:
    """A name from a file for one line of text: as it is where a terminal shows it, else as Python writes it."""
    fine = name.isprintable() and name.strip() == name != ""
    return (name if fine else repr(name))[:200]


def told(error: Exception) -> str | None:
    """What a user is told of an error; None when it is a defect of Morph, which shows its traceback."""
    if isinstance(error, MorphError):
        return str(error)
    if isinstance(error, RecursionError):
        return "the input is nested too deeply: give a flatter file"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return f"not enough memory ({str(error)[:80] or 'allocation failed'}): choose a smaller size or batch"
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        if error.filename is None:
            return f"cannot write the output or read the input ({what}): free some space or send it elsewhere"
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
        return f"cannot use {name[:200]} ({what}): check the name, its folder and the permissions"
    return None
