"""Rotations as config.json writes them.

Up to transformers 4: `rope_theta`, and `rope_scaling` for anything but the plain rotation. Since 5: both in
`rope_parameters`, for all layers or for each kind of layer. Folders of either age are read, the newer form is written.
"""

from __future__ import annotations

from typing import Any

from morph.config import (
    LinearRope,
    Llama3Rope,
    Pairing,
    PartialRope,
    Position,
    Rope,
    Rotary,
    Rotation,
    YarnRope,
)
from morph.errors import MorphError
from morph.hf.settings import Settings
from morph.nn.position import yarn_scale


def read_rotation(
    settings: Settings,
    base: float,
    context: int,
    pairing: Pairing = "half-split",
    fraction: float | None = None,
    ignored: tuple[str, ...] = (),
) -> Rotation:
    """The one rotation of a model; `base` and `fraction` are what transformers assumes where the keys are missing.

    `fraction=None` is a family that rotates whole heads and would pass over a `partial_rotary_factor`; `ignored` are
    keys of the table that mean nothing for text.
    """
    base = settings.number("rope_theta", base)
    fraction = _read_fraction(settings, fraction)
    newer, older = settings.table("rope_parameters"), settings.table("rope_scaling")
    if newer is not None and older is not None:
        settings.refuse("rope_scaling", "rope_parameters says how to rotate as well; remove one of the two")
    table = newer or older
    if table is None:
        return _plain(base, 1.0 if fraction is None else fraction, pairing)
    table.ignore(*ignored)
    return read_table(table, base, context, pairing, fraction)


def _read_fraction(settings: Settings, fraction: float | None) -> float | None:
    if fraction is None:
        if settings.number("partial_rotary_factor", 1.0) != 1:
            settings.refuse("partial_rotary_factor", "in this family whole heads rotate; remove the key")
        return None
    return settings.number("partial_rotary_factor", fraction)


def read_table(table: Settings, base: float, context: int, pairing: Pairing, fraction: float | None = None) -> Rotation:
    """One table of `rope_parameters`."""
    name = table.raw("rope_type", None) or table.raw("type", "default")
    table.ignore("type")
    base = table.number("rope_theta", base)
    fraction = _read_fraction(table, fraction) or 1.0
    if name == "default":
        return _plain(base, fraction, pairing)
    if name not in ("linear", "yarn", "llama3"):
        table.refuse("rope_type" if "rope_type" in table else "type", "Morph reads default, linear, yarn and llama3")
    if fraction != 1:
        table.refuse("partial_rotary_factor", f"with {name} Morph rotates whole heads only")
    shared: dict[str, Any] = {"base": base, "pairing": pairing, "factor": table.positive("factor")}
    if name == "linear":
        return LinearRope(**shared)
    length = table.whole("original_max_position_embeddings", context)
    if name == "llama3":
        return Llama3Rope(
            **shared,
            original_length=length,
            low_factor=table.number("low_freq_factor"),
            high_factor=table.number("high_freq_factor"),
        )
    truncate = table.flag("truncate", True)
    return YarnRope(
        **shared,
        original_length=length,
        beta_fast=table.number("beta_fast", 32.0),
        beta_slow=table.number("beta_slow", 1.0),
        truncate=truncate,
        attention_scale=_yarn_attention_scale(table, shared["factor"]),
    )


def _yarn_attention_scale(table: Settings, factor: float) -> float | None:
    """`attention_factor`, or with DeepSeek's two keys the ratio of two scales; None for YaRN's own."""
    given = table.number_or_none("attention_factor", None)
    one, all_ = table.number_or_none("mscale", None), table.number_or_none("mscale_all_dim", None)
    if given is None and one and all_:
        given = (1 + one * (yarn_scale(factor) - 1)) / (1 + all_ * (yarn_scale(factor) - 1))
    return None if given is None or abs(given / yarn_scale(factor) - 1) < 1e-12 else given


def _plain(base: float, fraction: float, pairing: Pairing) -> Rotation:
    if fraction == 1:
        return Rope(base=base, pairing=pairing)
    return PartialRope(base=base, pairing=pairing, fraction=fraction)


def write_rotation(rotation: Any) -> dict[str, Any]:
    """A table of `rope_parameters`. Raises MorphError for what transformers has no name for."""
    if not isinstance(rotation, Rotary) or not isinstance(
        rotation, Rope | PartialRope | LinearRope | YarnRope | Llama3Rope
    ):
        raise MorphError(f"position is {rotation.kind!r}, and this family rotates in a way that transformers knows")
    table: dict[str, Any] = {"rope_type": "default", "rope_theta": rotation.base}
    if isinstance(rotation, PartialRope):
        table["partial_rotary_factor"] = rotation.fraction
    elif isinstance(rotation, LinearRope):
        table |= {"rope_type": "linear", "factor": rotation.factor}
    elif isinstance(rotation, Llama3Rope):
        table |= {
            "rope_type": "llama3",
            "factor": rotation.factor,
            "original_max_position_embeddings": rotation.original_length,
            "low_freq_factor": rotation.low_factor,
            "high_freq_factor": rotation.high_factor,
        }
    elif isinstance(rotation, YarnRope):
        table |= {
            "rope_type": "yarn",
            "factor": rotation.factor,
            "original_max_position_embeddings": rotation.original_length,
            "beta_fast": rotation.beta_fast,
            "beta_slow": rotation.beta_slow,
            "truncate": rotation.truncate,
        }
        if rotation.attention_scale is not None:
            table["attention_factor"] = rotation.attention_scale
    return table


def write_position(position: Position) -> dict[str, Any]:
    """The keys of a model with one rotation."""
    return {"rope_parameters": write_rotation(position)}
