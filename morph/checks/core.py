"""What the checks of all notebooks share: a check answers with PASS, or with a hint while the answer is open.

An answer left at `...` and an answer that raises are both "not yet": a check never ends in a traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


@dataclass(frozen=True)
class Report:
    """The verdict on one answer."""

    passed: bool
    message: str

    def __repr__(self) -> str:
        return f"{'PASS' if self.passed else 'Not yet'} · {self.message}"


class Open(Exception):
    """Carries the hint for an answer that is not right yet."""


def expect(condition: bool, hint: str) -> None:
    """Go on when `condition` holds; otherwise the check answers with `hint`."""
    if not condition:
        raise Open(hint)


def check(examine: Callable[P, str]) -> Callable[P, Report]:
    """Turn a function that raises hints and returns praise into one that always reports."""

    @wraps(examine)
    def report(*args: P.args, **kwargs: P.kwargs) -> Report:
        try:
            return Report(True, examine(*args, **kwargs))
        except Open as hint:
            return Report(False, str(hint))
        except Exception as error:  # the reader's own code: whatever it raises is feedback, not a crash
            return Report(False, f"your answer raised {type(error).__name__}: {error}")

    return report
