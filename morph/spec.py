"""What a record of a config is: frozen, checked when made, comparable field by field, and readable from a file."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, TypeVar, Union

from morph.errors import MorphError, nearest, short

MOST = {"n_layers": 1_000, "any": 100_000_000}
"""Upper limits of whole numbers, far above any model, so that a slip of the keyboard is caught before memory is."""


def require(condition: bool, message: str) -> None:
    """Raise `MorphError(message)` unless `condition` holds."""
    if not condition:
        raise MorphError(message)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A record whose `kind` names it in files.

    Whole numbers lie between 1 (0 where `may_be_zero` lists them) and `MOST`, other numbers are finite and positive.
    """

    kind: ClassVar[str]
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    added: ClassVar[tuple[str, ...]] = ()
    """Fields that came after the first files: a file leaves them out at their default, so that old files stay true."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, name = getattr(self, field.name), f"{self.kind}.{field.name}"
            is_number, hint = isinstance(value, int | float) and not isinstance(value, bool), _hint(field)
            if hint in ("int", "int | None") and not (value is None and "None" in hint):
                low, high = 0 if field.name in self.may_be_zero else 1, MOST.get(field.name, MOST["any"])
                require(
                    is_number and isinstance(value, int), f"{name} = {short(value)} is not a whole number; give one"
                )
                require(value >= low, f"{name} = {short(value)} is below {low}; give an integer >= {low}")
                require(value <= high, f"{name} = {short(value)} is above {high:,}; give less")
            elif hint in ("float", "float | None") and not (value is None and "None" in hint):
                fine = is_number and 0 < value < 1e30
                require(fine, f"{name} = {short(value)} must be a finite number above 0")
            elif hint == "tuple[int, ...]":
                whole = isinstance(value, tuple) and all(type(n) is int and n >= 0 for n in value)
                require(whole, f"{name} = {short(value)} must be a list of whole numbers from 0")
                require(
                    list(value) == sorted(set(value)) and bool(value),
                    f"{name} = {short(list(value))} must name at least one, each once, in order",
                )
            elif hint == "bool":
                require(isinstance(value, bool), f"{name} = {short(value)} must be true or false")
            elif kinds := _record_types(type(self), field.name):
                allowed = ", ".join(kind.kind for kind in kinds if issubclass(kind, Spec))
                require(isinstance(value, kinds), f"{name} = {short(value)} is not one of: {allowed}")

    def describe(self) -> str:
        """A short form for one line of text, such as `RMSNorm(eps=1e-05)`."""
        inner = ", ".join(f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self))
        return f"{type(self).__name__}({inner})"


def _hint(field: dataclasses.Field[Any]) -> str:
    """A field's type as it is written, whether its module keeps hints as text or not."""
    kind: Any = field.type
    return kind if isinstance(kind, str) else kind.__name__ if type(kind) is type else str(kind)


S = TypeVar("S", bound=Spec)

_extensions: dict[str, type[Spec]] = {}


def extend(record: type[Spec]) -> None:
    """Let files name a record that extends another: it may stand wherever that one may.

    A second record of the same kind takes the place of the first.

    Raises:
        MorphError: when it is no frozen dataclass with a `kind` of its own, or its kind is taken.
    """
    name = getattr(record, "__name__", short(record))
    own = {"kind", "__dataclass_fields__"} <= vars(record).keys()
    require(own, f"{name} needs @dataclass(frozen=True, kw_only=True) and a kind: ClassVar[str] of its own")
    taken = {kind.kind for kind in _descendants(Spec) if kind.__module__.startswith("morph.")}
    require(record.kind not in taken, f"{name}.kind = {short(record.kind)} is a record of the project; choose another")
    _extensions[record.kind] = record


def _descendants(record: type[Spec]) -> list[type[Spec]]:
    return [d for child in record.__subclasses__() for d in (child, *_descendants(child)) if "kind" in vars(d)]


def as_kind(value: Spec, kind: type[S], field: str) -> S:
    """`value` itself, which a change of `field` needs to be of this kind.

    Raises:
        MorphError: when it is another record, saying which one is needed.
    """
    if not isinstance(value, kind):
        raise MorphError(
            f"{field} is {value.kind!r}, and this change is one of {kind.kind!r}; start from a config with it"
        )
    return value


@dataclass(frozen=True)
class Change:
    """One field that differs between two configs; `before` and `after` are values or whole records."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {_short(self.before)} → {_short(self.after)}"


def diff(a: Spec, b: Spec, path: str = "") -> list[Change]:
    """List the fields in which `b` differs from `a`, outermost first.

    Records of the same kind are compared field by field; records of different kinds are one change.

    Raises:
        MorphError: when `a` and `b` are not records of the same kind themselves.
    """
    require(isinstance(a, Spec) and type(a) is type(b), f"cannot compare {short(a)} with {short(b)}; give two configs")
    changes: list[Change] = []
    for field in fields(a):
        before, after, where = getattr(a, field.name), getattr(b, field.name), f"{path}{field.name}"
        if before == after:
            continue
        if isinstance(before, Spec) and type(before) is type(after):
            changes += diff(before, after, where + ".")
        else:
            changes.append(Change(where, before, after))
    return changes


def _short(value: Any) -> str:
    if isinstance(value, Spec):
        return value.describe()
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def divisors(n: int) -> str:
    """The divisors of `n` up to 1024, for a message."""
    return ", ".join(str(k) for k in range(1, min(n, 1024) + 1) if n % k == 0)


def _find_record_types(owner: type[Spec], field: str) -> tuple[type, ...]:
    """The record types that a field takes, and NoneType if it may be absent; () for fields that hold no record."""
    hint = typing.get_type_hints(owner)[field]
    options = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    return options if any(isinstance(t, type) and issubclass(t, Spec) for t in options) else ()


_record_types: Callable[[type[Spec], str], tuple[type, ...]] = cache(_find_record_types)  # type: ignore[assignment]


def one_of(name: str, value: Any, allowed: Any) -> None:
    """Raise `MorphError` unless `value` is one of the strings that the Literal `allowed` lists."""
    options = typing.get_args(allowed)
    hint = nearest(value, options)
    require(value in options, f"{name} = {short(value)} is not one of: {', '.join(options)}{hint}")


def to_dict(spec: Spec) -> dict[str, Any]:
    """Nested dictionaries of plain values, each with its `kind`; None and defaults of `added` fields are left out."""
    data: dict[str, Any] = {"kind": spec.kind}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value is not None and not (field.name in spec.added and value == field.default):
            plain = list(value) if isinstance(value, tuple) else value
            data[field.name] = to_dict(value) if isinstance(value, Spec) else plain
    return data


def from_dict(data: Any, options: tuple[type[Spec], ...], where: str, default: type[Spec] | None = None) -> Spec:
    """Build the record among `options` that `data["kind"]` names (the only option may leave the kind out)."""
    require(isinstance(data, dict), f"{where} = {short(data)} must be a table of fields")
    by_kind = {option.kind: option for option in options}
    by_kind |= {kind: record for kind, record in _extensions.items() if issubclass(record, options)}
    kind = data.get("kind", default.kind if default else next(iter(by_kind)) if len(options) == 1 else None)
    hint = nearest(kind, by_kind)
    require(
        isinstance(kind, str) and kind in by_kind,
        f"{where}.kind = {short(kind)} is not one of: {', '.join(by_kind)}{hint}",
    )
    spec, values = by_kind[str(kind)], {k: v for k, v in data.items() if k != "kind"}
    known = {f.name: f for f in fields(spec)}
    for name in values:
        hint = nearest(name, known)
        require(name in known, f"{where}.{name} is not a field of {kind!r}; it has {', '.join(known)}{hint}")
    missing = [n for n, f in known.items() if f.default is dataclasses.MISSING and n not in values]
    require(not missing, f"{where} lacks {', '.join(missing)}; every {kind!r} needs it")
    for name, value in values.items():
        if isinstance(value, list) and _hint(known[name]) == "tuple[int, ...]":
            values[name] = tuple(value)
        kinds = _record_types(spec, name)
        if kinds and not (value is None and type(None) in kinds):
            inner = tuple(kind for kind in kinds if issubclass(kind, Spec))
            values[name] = from_dict(value, inner, f"{where}.{name}")
    return spec(**values)


def toml_lines(data: dict[str, Any], prefix: str) -> list[str]:
    """The lines of a TOML file that holds `data`; tables get names that begin with `prefix`."""
    lines = [f"{k} = {_toml_value(v)}" for k, v in data.items() if not isinstance(v, dict)]
    for key, value in data.items():
        if isinstance(value, dict):
            lines += ["", f"[{prefix}{key}]", *toml_lines(value, f"{prefix}{key}.")]
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
