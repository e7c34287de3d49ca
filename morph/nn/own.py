"""An organ of your own: a record that extends one of the project's, and what builds its module.

    @dataclass(frozen=True, kw_only=True)
    class PowerNorm(RMSNorm):            # fits wherever a norm does
        kind: ClassVar[str] = "power-norm"
        p: float = 1.0

    add_organ(PowerNorm, PowerNormModule)

Configs with the record are compared, counted, trained, saved and read like any other, in this process; another one that
reads them adds the organ first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morph import config
from morph.errors import short
from morph.nn.organ import Organ
from morph.spec import Spec, extend, require

EXTENDED = (
    config.LayerNorm, config.LayerNormNoBias, config.RMSNorm, config.ZeroCentredRMSNorm, config.MLP, config.GatedMLP,
)  # fmt: skip
"""Records that may be extended: norms, and networks of a token (with as many matrices as the one extended)."""

_made_by: dict[type[Spec], Callable[..., Organ]] = {}


def add_organ(record: type[Spec], build: Callable[..., Organ]) -> None:
    """Tell what a record of your own stands for. The same kind may be added again: a cell may be run again.

    Args:
        record: a frozen dataclass with a `kind` of its own that extends one of `EXTENDED`.
        build: makes the module: `build(spec, width, gain)` for a norm, `build(spec, d_model, bias)` for a network.

    Raises:
        MorphError: for a record that extends none of them, or whose kind is taken.
    """
    names = ", ".join(base.__name__ for base in EXTENDED)
    fits = isinstance(record, type) and issubclass(record, EXTENDED) and record not in EXTENDED
    require(fits, f"{short(record)} extends none of {names}; write class Mine({EXTENDED[2].__name__}): ...")
    require(callable(build), f"{short(build)} builds nothing; give the module's class, or a function")
    extend(record)
    _made_by[record] = build


def own_organ(spec: Spec, *args: Any) -> Organ | None:
    """The module of a record that `add_organ` knows; None for all others.

    Raises:
        MorphError: for a record that extends another and was never added, and for what is no organ.
    """
    name = type(spec).__name__
    if type(spec) not in _made_by:
        is_own = isinstance(spec, EXTENDED) and type(spec) not in EXTENDED
        require(not is_own, f"{name} has no module; tell which: morph.nn.own.add_organ({name}, ...)")
        return None
    made = _made_by[type(spec)](spec, *args)
    require(isinstance(made, Organ), f"{name} is built as {short(made)}; give a morph.nn.organ.Organ")
    return made
