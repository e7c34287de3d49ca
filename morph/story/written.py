"""Numbers as figures write them in captions and labels, the same in all of them."""

from __future__ import annotations

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def percent(share: float) -> str:
    """0.073 as `7%`."""
    return f"{share:.0%}".replace("-", "−")


def small(value: float) -> str:
    """A tiny number by one digit and its power, `4 × 10⁻⁶`, in spaces that do not break; zero as `0`."""
    if value == 0:
        return "0"
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}\u00a0×\u00a0{ten(int(exponent))}"


def ten(exponent: int) -> str:
    """A power of ten, `10⁻⁶`."""
    return "10" + str(exponent).translate(_RAISED)


def many(count: int, total: int) -> str:
    """How many of some that were just counted: `none`, `3`, `all`."""
    return "none" if count == 0 else "all" if count == total else str(count)
