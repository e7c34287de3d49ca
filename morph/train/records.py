"""What is read back from a run's files, checked entry by entry: a record is whole and sound, or refused in one line."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from morph.errors import MorphError


@dataclass(frozen=True)
class Kind:
    """What an entry must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


TEXT = Kind("text", lambda v: isinstance(v, str))
TEXT_OR_NONE = Kind("text or null", lambda v: v is None or isinstance(v, str))
COUNT = Kind("a whole number of at least 0", _whole)
POSITIVE = Kind("a whole number of at least 1", lambda v: _whole(v) and v > 0)
NUMBER = Kind("a finite number", _number)
SHARE = Kind("a finite number of at least 0", lambda v: _number(v) and v >= 0)
DIGEST = Kind("a SHA-256", lambda v: isinstance(v, str) and re.fullmatch("[0-9a-f]{64}", v) is not None)
TABLE = Kind("a table", lambda v: isinstance(v, dict))
LIST = Kind("a list with at least one entry", lambda v: isinstance(v, list) and len(v) > 0)


def require_fields(values: Any, fields: Mapping[str, Kind], where: str, remedy: str) -> dict[str, Any]:
    """Return `values` when it is a table in which every one of `fields` is there and of its kind.

    Raises MorphError naming the first entry that is not, as `where: entry is ..., not ...: remedy`.
    """
    if not isinstance(values, dict):
        raise MorphError(f"{where} holds {_short(values)}, not a table: {remedy}")
    for name, kind in fields.items():
        if name not in values:
            raise MorphError(f"{where} lacks {name!r}: {remedy}")
        if not kind.holds(values[name]):
            raise MorphError(f"{where}: {name} is {_short(values[name])}, not {kind.words}: {remedy}")
    return values


def _short(value: Any) -> str:
    """`repr`, cut to what a line can hold, of any depth."""
    if isinstance(value, dict | list) and value:
        return f"a {'table' if isinstance(value, dict) else 'list'} of {len(value)}"
    return repr(value) if len(repr(value)) <= 40 else repr(value)[:40] + "..."
