"""Records of what mixes tokens and of which layers do it how; the modules are in `morph.nn`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from morph.records.norm import QKNorm
from morph.spec import Spec, divisors, require


@dataclass(frozen=True, kw_only=True)
class Sink(Spec):
    """One learned logit per query head takes part in the softmax and carries no value (gpt-oss, 2025)."""

    kind: ClassVar[str] = "sink"


@dataclass(frozen=True, kw_only=True)
class OutputGate(Spec):
    """A sigmoid of the layer's input for every feature multiplies the heads' output (Qwen3-Next, Trinity, 2025)."""

    kind: ClassVar[str] = "output-gate"


@dataclass(frozen=True, kw_only=True)
class HeadGate(Spec):
    """The same with one number for each head (Step 3.5, 2026)."""

    kind: ClassVar[str] = "head-gate"


@dataclass(frozen=True, kw_only=True)
class Softcap(Spec):
    """Scaled scores s become cap · tanh(s / cap) before they are masked (Gemma 2, 2024)."""

    kind: ClassVar[str] = "softcap"
    cap: float = 50.0


@dataclass(frozen=True, kw_only=True)
class QKVBias(Spec):
    """A bias on the maps to queries, keys and values, whatever the other maps have (Qwen, 2023)."""

    kind: ClassVar[str] = "qkv-bias"


@dataclass(frozen=True, kw_only=True)
class Attention(Spec):
    """Softmax attention: `n_heads` query heads share `n_kv_heads` pairs of keys and values.

    `head_dim=None` stands for `d_model / n_heads` and is filled in by the `ModelConfig` that holds it.
    """

    kind: ClassVar[str] = "attention"
    n_heads: int
    n_kv_heads: int
    head_dim: int | None = None
    qk_norm: QKNorm | None = None
    sink: Sink | None = None
    gate: OutputGate | HeadGate | None = None
    softcap: Softcap | None = None
    qkv_bias: QKVBias | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.n_heads % self.n_kv_heads == 0,
            f"attention.n_kv_heads = {self.n_kv_heads} does not divide n_heads = {self.n_heads}; "
            f"choose one of {divisors(self.n_heads)}",
        )

    @property
    def width(self) -> int:
        """Features of one query (or key) head."""
        assert self.head_dim is not None, "an Attention outside a ModelConfig has no head_dim yet"
        return self.head_dim

    @property
    def gate_width(self) -> int:
        """Numbers that the gate on the heads' output has for one token; 0 without one."""
        return 0 if self.gate is None else self.n_heads * (self.width if isinstance(self.gate, OutputGate) else 1)


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
            f"{self.n_value_heads}; choose one of {divisors(self.n_value_heads)}",
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


@dataclass(frozen=True, kw_only=True)
class AllLocal(Spec):
    """Every layer uses the local mixer: L windows of w reach the last L (w - 1) + 1 tokens, and no others."""

    kind: ClassVar[str] = "all-local"
    local: SlidingWindow


Layout = AllGlobal | Interleaved | AllLocal
