"""Numbers as figures write them in captions and labels, the same in all of them."""

from __future__ import annotations

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def percent(share: float) -> str:
    """0.073 as `7%`."""
    return f"{share:.0%}".replace("-", "−")


def signed(value: float) -> str:
    """Two digits behind the point, with a minus as it is set: `−0.26`."""
    return f"{value:.2f}".replace("-", "−")


def small(value: float) -> str:
    """A tiny number by one digit and its power, `4 × 10⁻⁶`, in spaces that do not break; zero as `0`."""
    if value == 0:
        return "0"
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}\u00a0×\u00a0{ten(int(exponent))}"


def ten(exponent: int) -> str:
    """A power of ten, `10⁻⁶`."""
    return "10" + str(exponent).translate(_RAISED)


def times(value: float) -> str:
    """How many times as much: `3.4`, from ten on `12`."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def many(count: int, total: int) -> str:
    """How many of some that were just counted: `none`, `3`, `all`."""
    return "none" if count == 0 else "all" if count == total else str(count)


def in_bytes(n: int) -> str:
    """Bytes with a binary prefix, three digits or so: `96 KiB`, `1.5 MiB`."""
    value, unit = float(n), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.1f} {unit}"


def in_millions(n: int) -> str:
    """A count of operations in millions: `1.21 M`."""
    return f"{n / 1e6:,.2f} M" if n < 1e8 else f"{n / 1e6:,.0f} M"


def relative(before: int, after: int) -> str:
    """How a count changed: "" when it did not, a factor from 2 up, a percentage, or a plain difference when small."""
    if before == after:
        return ""
    if after >= 2 * before:
        return f"× {after / before:.2g}"
    if abs(after - before) >= 0.01 * before:
        return f"{(after - before) / before:+.0%}".replace("-", "−")
    return f"{after - before:+,}".replace("-", "−")
