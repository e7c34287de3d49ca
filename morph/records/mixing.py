"""Records of what mixes tokens and of which layers do it how; the modules are in `morph.nn`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from morph.records.norm import QKNorm
from morph.records.position import Pairing
from morph.spec import Spec, divisors, one_of, require


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

    `head_dim=None` stands for `d_model / n_heads` and is filled in by the `ModelConfig` that holds it; `scale=None`
    multiplies scores by 1/√head_dim.
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
    scale: float | None = None

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


@dataclass(frozen=True, kw_only=True)
class Indexer(Spec):
    """Cheap scores choose the `top_k` tokens that each query attends to (DeepSeek-V3.2, 2025).

    Attributes:
        n_heads, head_dim: of the indexer's own queries; they share one key a token, which is cached as well.
        rope_dim: the first features of those, which rotate as the model's position says.
        top_k: tokens attended to.
        pairing: of the indexer's rotation; the released models differ.
        warm_up: first training steps in which attention stays dense while the indexer learns from it.
    """

    kind: ClassVar[str] = "indexer"
    may_be_zero: ClassVar[tuple[str, ...]] = ("warm_up",)
    n_heads: int
    head_dim: int
    rope_dim: int
    top_k: int
    pairing: Pairing = "half-split"
    warm_up: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("indexer.pairing", self.pairing, Pairing)
        require(
            self.rope_dim <= self.head_dim and self.rope_dim % 2 == 0,
            f"indexer.rope_dim = {self.rope_dim} must be even and at most head_dim = {self.head_dim}",
        )


@dataclass(frozen=True, kw_only=True)
class MLA(Spec):
    """Multi-head latent attention: keys and values of all heads unfold from one short vector (DeepSeek-V2, 2024).

    Attributes:
        n_heads: query heads; each unfolds keys and values of its own.
        q_rank: width of the normed vector that queries unfold from; None for one matrix.
        kv_rank: width of the normed latent that is cached.
        nope_dim, rope_dim: features of a query or key that do not rotate, and those that do (one such key for all
            heads, cached beside the latent).
        v_dim: features of a value head.
        scale: what multiplies scores; None for 1/√(nope_dim + rope_dim).
        eps: of the norms of both latents.
        indexer: what chooses the tokens attended to; None for all.
    """

    kind: ClassVar[str] = "mla"
    n_heads: int
    q_rank: int | None = None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    scale: float | None = None
    eps: float = 1e-6
    indexer: Indexer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.indexer is None or self.q_rank is not None,
            "mla.indexer reads the latent of the queries; give q_rank, or leave the indexer out",
        )

    @property
    def width(self) -> int:
        """Features of one query (or key) head."""
        return self.nope_dim + self.rope_dim


def yarn_softmax_scale(width: int, factor: float, strength: float = 1.0) -> float:
    """`MLA.scale` of DeepSeek's models for texts `factor` times longer: (0.1 strength ln(factor) + 1)² / √width.

    YaRN would have cosines and sines enlarged instead, which reach the rotated features alone; so their
    `YarnRope.attention_scale` is 1. `width` is that of a query, `MLA.width`; `strength` is called mscale_all_dim there.
    """
    return float((0.1 * strength * math.log(max(factor, 1.0)) + 1) ** 2 * width**-0.5)


@dataclass(frozen=True, kw_only=True)
class SlidingWindow(Spec):
    """Softmax attention over the last `window` tokens, the query's own included (Beltagy et al., 2020).

    `n_heads` is the number of query heads where it differs from the global layers' (Step 3.5, 2026).
    """

    kind: ClassVar[str] = "sliding-window"
    window: int
    n_heads: int | None = None


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(Spec):
    """A fixed-size state written by the gated delta rule (Yang et al., 2024).

    Write strengths lie between 0 and `beta_max`: above 1 a write can turn what was held into its opposite (Grazzi et
    al., 2024). `eps` is that of the output's norm; None for the model's.
    """

    kind: ClassVar[str] = "gated-delta-net"
    added: ClassVar[tuple[str, ...]] = ("beta_max",)
    n_key_heads: int
    n_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_size: int = 4
    beta_max: float = 1.0
    eps: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.n_value_heads % self.n_key_heads == 0,
            f"gated-delta-net.n_key_heads = {self.n_key_heads} does not divide n_value_heads = "
            f"{self.n_value_heads}; choose one of {divisors(self.n_value_heads)}",
        )


@dataclass(frozen=True, kw_only=True)
class KimiDelta(Spec):
    """The delta rule with a decay of its own for every key feature (Kimi Linear, 2025).

    Decay and output gate are maps through `gate_rank` features (None: `head_dim`, as released). `eps` is that of the
    output's norm; None for the model's.
    """

    kind: ClassVar[str] = "kda"
    n_heads: int
    head_dim: int
    conv_size: int = 4
    gate_rank: int | None = None
    eps: float | None = None


@dataclass(frozen=True, kw_only=True)
class Lightning(Spec):
    """A state that decays at a fixed speed for each head, and is added to (Qin et al., 2024; MiniMax-01, 2025)."""

    kind: ClassVar[str] = "lightning"
    n_heads: int
    head_dim: int
    eps: float | None = None


Local = SlidingWindow | GatedDeltaNet | KimiDelta | Lightning
State = GatedDeltaNet | KimiDelta | Lightning


@dataclass(frozen=True, kw_only=True)
class AllGlobal(Spec):
    """Every layer attends to the whole past."""

    kind: ClassVar[str] = "all-global"


@dataclass(frozen=True, kw_only=True)
class Interleaved(Spec):
    """`n_local` layers with the local mixer, then one global layer, repeated."""

    kind: ClassVar[str] = "interleaved"
    n_local: int
    local: Local

    def is_global(self, layer: int) -> bool:
        """Whether layer `layer` (from 0) attends to the whole past."""
        return (layer + 1) % (self.n_local + 1) == 0


@dataclass(frozen=True, kw_only=True)
class AllLocal(Spec):
    """Every layer uses the local mixer: L windows of w reach the last L (w - 1) + 1 tokens, and no others."""

    kind: ClassVar[str] = "all-local"
    local: SlidingWindow


@dataclass(frozen=True, kw_only=True)
class Listed(Spec):
    """The layers listed (from 0) attend to the whole past, all others use the local mixer."""

    kind: ClassVar[str] = "listed"
    local: Local
    global_layers: tuple[int, ...]

    def is_global(self, layer: int) -> bool:
        """Whether layer `layer` (from 0) attends to the whole past."""
        return layer in self.global_layers


Layout = AllGlobal | Interleaved | AllLocal | Listed
