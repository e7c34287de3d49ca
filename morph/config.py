"""What a model is made of: one small frozen record per organ, nested into a `ModelConfig`.

Everything else in the project (modules, counts, traces, figures) follows from these records. They hold no
torch, validate themselves when made, and survive a round trip through JSON or TOML. A variant of an organ is a
record of its own, never a flag on another.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, Union

from morph.errors import MorphError, nearest

Placement = Literal["post", "pre"]
Activation = Literal["relu", "silu"]


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

    def __post_init__(self) -> None:
        for field in fields(self):
            value, name = getattr(self, field.name), f"{self.kind}.{field.name}"
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if field.type in ("int", "int | None") and value is not None:
                low, high = 0 if field.name in self.may_be_zero else 1, MOST.get(field.name, MOST["any"])
                require(is_number and isinstance(value, int), f"{name} = {value!r} is not a whole number; give one")
                require(value >= low, f"{name} = {value} is below {low}; give an integer >= {low}")
                require(value <= high, f"{name} = {value} is above {high:,}; give less")
            elif field.type == "float":
                fine = is_number and 0 < value < 1e30
                require(fine, f"{name} = {value!r} must be a finite number above 0")
            elif field.type == "bool":
                require(isinstance(value, bool), f"{name} = {value!r} must be true or false")
            elif kinds := _record_types(type(self), field.name):
                allowed = ", ".join(kind.kind for kind in kinds if issubclass(kind, Spec))
                require(isinstance(value, kinds), f"{name} = {value!r} is not one of: {allowed}")

    def describe(self) -> str:
        """A short form for one line of text, such as `RMSNorm(eps=1e-05)`."""
        inner = ", ".join(f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self))
        return f"{type(self).__name__}({inner})"


# ---- normalization -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Spec):
    """Subtract the mean, divide by the standard deviation, scale and shift (Ba et al., 2016)."""

    kind: ClassVar[str] = "layer-norm"
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class RMSNorm(Spec):
    """Divide by the root mean square and scale (Zhang & Sennrich, 2019)."""

    kind: ClassVar[str] = "rms-norm"
    eps: float = 1e-5


# ---- position ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sinusoid(Spec):
    """Fixed sines and cosines added to the embedding once (Vaswani et al., 2017)."""

    kind: ClassVar[str] = "sinusoid"
    base: float = 10_000.0


@dataclass(frozen=True, kw_only=True)
class Rope(Spec):
    """Queries and keys rotated by position x frequency in every softmax layer (Su et al., 2021)."""

    kind: ClassVar[str] = "rope"
    base: float = 10_000.0


@dataclass(frozen=True, kw_only=True)
class NoPosition(Spec):
    """Nothing tells tokens apart by place but the causal mask."""

    kind: ClassVar[str] = "no-position"


# ---- mixing across tokens ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attention(Spec):
    """Softmax attention: `n_heads` query heads share `n_kv_heads` pairs of keys and values.

    `head_dim=None` stands for `d_model / n_heads` and is filled in by the `ModelConfig` that holds it.
    """

    kind: ClassVar[str] = "attention"
    n_heads: int
    n_kv_heads: int
    head_dim: int | None = None
    qk_norm: RMSNorm | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.n_heads % self.n_kv_heads == 0,
            f"attention.n_kv_heads = {self.n_kv_heads} does not divide n_heads = {self.n_heads}; "
            f"choose one of {_divisors(self.n_heads)}",
        )

    @property
    def width(self) -> int:
        """Features of one query (or key) head."""
        assert self.head_dim is not None, "an Attention outside a ModelConfig has no head_dim yet"
        return self.head_dim


@dataclass(frozen=True, kw_only=True)
class SlidingWindow(Spec):
    """Softmax attention over the last `window` tokens, the query's own included (Beltagy et al., 2020)."""

    kind: ClassVar[str] = "sliding-window"
    window: int


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(Spec):
    """A fixed-size state written by the gated delta rule (Yang et al., 2024)."""

    kind: ClassVar[str] = "gated-delta-net"
    n_key_heads: int
    n_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_size: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.n_value_heads % self.n_key_heads == 0,
            f"gated-delta-net.n_key_heads = {self.n_key_heads} does not divide n_value_heads = "
            f"{self.n_value_heads}; choose one of {_divisors(self.n_value_heads)}",
        )


@dataclass(frozen=True, kw_only=True)
class AllGlobal(Spec):
    """Every layer attends to the whole past."""

    kind: ClassVar[str] = "all-global"


@dataclass(frozen=True, kw_only=True)
class Interleaved(Spec):
    """`n_local` layers with the local mixer, then one global layer, repeated."""

    kind: ClassVar[str] = "interleaved"
    n_local: int
    local: SlidingWindow | GatedDeltaNet

    def is_global(self, layer: int) -> bool:
        """Whether layer `layer` (from 0) attends to the whole past."""
        return (layer + 1) % (self.n_local + 1) == 0


# ---- computing within a token --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MLP(Spec):
    """Two matrices, d -> width -> d, with an activation between (Vaswani et al., 2017)."""

    kind: ClassVar[str] = "mlp"
    width: int
    activation: Activation

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("mlp.activation", self.activation, Activation)


@dataclass(frozen=True, kw_only=True)
class GatedMLP(Spec):
    """Three matrices: an activated gate multiplies a value before the way down (Shazeer, 2020)."""

    kind: ClassVar[str] = "gated-mlp"
    width: int
    activation: Activation

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("gated-mlp.activation", self.activation, Activation)


@dataclass(frozen=True, kw_only=True)
class AuxiliaryLoss(Spec):
    """Add `coefficient` x (experts x sum of load share x mean probability) to the loss (Fedus et al., 2021)."""

    kind: ClassVar[str] = "auxiliary-loss"
    coefficient: float = 0.01


@dataclass(frozen=True, kw_only=True)
class SelectionBias(Spec):
    """Move a bias that only the choice of experts sees by `rate` against the observed load (Wang et al., 2024)."""

    kind: ClassVar[str] = "selection-bias"
    rate: float = 0.001


@dataclass(frozen=True, kw_only=True)
class MoE(Spec):
    """`top_k` of `n_experts` feed-forward experts a token, and `n_shared` that every token uses.

    The chosen experts' probabilities are divided by their sum and multiplied by `routed_scale`.
    """

    kind: ClassVar[str] = "moe"
    may_be_zero: ClassVar[tuple[str, ...]] = ("n_shared",)
    expert: GatedMLP
    n_experts: int
    n_shared: int = 0
    top_k: int
    routed_scale: float
    balance: AuxiliaryLoss | SelectionBias

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.top_k <= self.n_experts,
            f"moe.top_k = {self.top_k} is more than n_experts = {self.n_experts}; choose top_k <= {self.n_experts}",
        )

    @property
    def active_width(self) -> int:
        """Hidden features a token passes through: its routed experts and the shared ones."""
        return self.expert.width * (self.top_k + self.n_shared)


# ---- the whole -----------------------------------------------------------------------------------------------

Norm = LayerNorm | RMSNorm
Position = Sinusoid | Rope | NoPosition
Layout = AllGlobal | Interleaved
FeedForward = MLP | GatedMLP | MoE


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Spec):
    """A decoder-only language model.

    Attributes:
        vocab_size: V, number of token ids.
        d_model: D, width of the residual stream.
        n_layers: number of blocks.
        context_length: tokens in a training sequence (no limit on what the model reads).
        placement: where the norms stand: "post" on the stream after each addition, "pre" on each branch.
        norm: the kind of normalization on the stream.
        bias: whether linear maps have a bias (head, router, experts and delta mixers never have).
        position: how tokens know their place.
        attention: the softmax attention used by every softmax layer.
        layout: which layers are local and what they use.
        feed_forward: what a token computes by itself.
        tied: whether the head is the embedding's transpose.
    """

    kind: ClassVar[str] = "model"
    vocab_size: int
    d_model: int
    n_layers: int
    context_length: int
    placement: Placement
    norm: Norm
    bias: bool
    position: Position
    attention: Attention
    layout: Layout
    feed_forward: FeedForward
    tied: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("placement", self.placement, Placement)
        attention = self.attention
        if attention.head_dim is None:
            require(
                self.d_model % attention.n_heads == 0,
                f"attention.n_heads = {attention.n_heads} does not divide d_model = {self.d_model}; "
                f"choose a divisor or give attention.head_dim",
            )
            object.__setattr__(self, "attention", replace(attention, head_dim=self.d_model // attention.n_heads))
        if isinstance(self.position, Rope):
            require(
                self.attention.width % 2 == 0,
                f"attention.head_dim = {self.attention.width} is odd, but rope rotates pairs; choose an even head_dim",
            )
        if isinstance(self.position, Sinusoid):
            require(
                self.d_model % 2 == 0,
                f"d_model = {self.d_model} is odd, but a sinusoid comes in pairs; choose an even d_model",
            )

    def mixer(self, layer: int) -> Attention | SlidingWindow | GatedDeltaNet:
        """What mixes tokens in layer `layer` (from 0): `Attention` when the layer is global."""
        if isinstance(self.layout, Interleaved) and not self.layout.is_global(layer):
            return self.layout.local
        return self.attention

    # ---- files ----

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries of plain values; every organ carries its `kind`, absent options are left out."""
        return _to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`. Raises `MorphError` naming any unknown, missing or impossible entry."""
        made = _from_dict(data, (cls,), "config", default=cls)
        assert isinstance(made, cls)
        return made

    def to_toml(self) -> str:
        """The same as `to_dict`, as TOML text."""
        return "\n".join(_toml_lines(self.to_dict(), "")) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> ModelConfig:
        """The inverse of `to_toml`."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise MorphError(f"the config is not valid TOML ({error}); mend that line") from None


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
    require(isinstance(a, Spec) and type(a) is type(b), f"cannot compare {a!r} with {b!r}; give two configs")
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


# ---- helpers -------------------------------------------------------------------------------------------------


def _short(value: Any) -> str:
    if isinstance(value, Spec):
        return value.describe()
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _divisors(n: int) -> str:
    return ", ".join(str(k) for k in range(1, min(n, 1024) + 1) if n % k == 0)


def _find_record_types(owner: type[Spec], field: str) -> tuple[type, ...]:
    """The record types that a field takes, and NoneType if it may be absent; () for fields that hold no record."""
    hint = typing.get_type_hints(owner)[field]
    options = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    return options if any(isinstance(t, type) and issubclass(t, Spec) for t in options) else ()


_record_types: Callable[[type[Spec], str], tuple[type, ...]] = cache(_find_record_types)  # type: ignore[assignment]


def _one_of(name: str, value: Any, allowed: Any) -> None:
    options = typing.get_args(allowed)
    hint = nearest(str(value), options)
    require(value in options, f"{name} = {value!r} is not one of: {', '.join(options)}{hint}")


def _to_dict(spec: Spec) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": spec.kind}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value is not None:
            data[field.name] = _to_dict(value) if isinstance(value, Spec) else value
    return data


def _from_dict(data: Any, options: tuple[type[Spec], ...], where: str, default: type[Spec] | None = None) -> Spec:
    """Build the record among `options` that `data["kind"]` names (the only option may leave the kind out)."""
    require(isinstance(data, dict), f"{where} = {data!r} must be a table of fields")
    by_kind = {option.kind: option for option in options}
    kind = data.get("kind", default.kind if default else next(iter(by_kind)) if len(by_kind) == 1 else None)
    hint = nearest(str(kind), by_kind)
    require(
        isinstance(kind, str) and kind in by_kind, f"{where}.kind = {kind!r} is not one of: {', '.join(by_kind)}{hint}"
    )
    spec, values = by_kind[str(kind)], {k: v for k, v in data.items() if k != "kind"}
    known = {f.name: f for f in fields(spec)}
    for name in values:
        hint = nearest(name, known)
        require(name in known, f"{where}.{name} is not a field of {kind!r}; it has {', '.join(known)}{hint}")
    missing = [n for n, f in known.items() if f.default is dataclasses.MISSING and n not in values]
    require(not missing, f"{where} lacks {', '.join(missing)}; every {kind!r} needs it")
    for name, value in values.items():
        kinds = _record_types(spec, name)
        if kinds and not (value is None and type(None) in kinds):
            inner = tuple(kind for kind in kinds if issubclass(kind, Spec))
            values[name] = _from_dict(value, inner, f"{where}.{name}")
    return spec(**values)


def _toml_lines(data: dict[str, Any], prefix: str) -> list[str]:
    lines = [f"{k} = {_toml_value(v)}" for k, v in data.items() if not isinstance(v, dict)]
    for key, value in data.items():
        if isinstance(value, dict):
            lines += ["", f"[{prefix}{key}]", *_toml_lines(value, f"{prefix}{key}.")]
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
