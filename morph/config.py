"""What a model is made of: one small frozen record per organ, nested into a `ModelConfig`.

Everything else in the project (modules, counts, traces, figures) follows from these records. They hold no torch,
validate themselves when made, and survive a round trip through JSON or TOML. A variant of an organ is a record of its
own, never a flag on another.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from morph.errors import MorphError
from morph.records.mixing import AllGlobal as AllGlobal
from morph.records.mixing import AllLocal as AllLocal
from morph.records.mixing import Attention as Attention
from morph.records.mixing import GatedDeltaNet as GatedDeltaNet
from morph.records.mixing import HeadGate as HeadGate
from morph.records.mixing import Interleaved as Interleaved
from morph.records.mixing import Layout as Layout
from morph.records.mixing import OutputGate as OutputGate
from morph.records.mixing import QKVBias as QKVBias
from morph.records.mixing import Sink as Sink
from morph.records.mixing import SlidingWindow as SlidingWindow
from morph.records.mixing import Softcap as Softcap
from morph.records.norm import FullWidthRMSNorm as FullWidthRMSNorm
from morph.records.norm import LayerNorm as LayerNorm
from morph.records.norm import LayerNormNoBias as LayerNormNoBias
from morph.records.norm import Norm as Norm
from morph.records.norm import QKNorm as QKNorm
from morph.records.norm import RMSNorm as RMSNorm
from morph.records.norm import ZeroCentredRMSNorm as ZeroCentredRMSNorm
from morph.records.position import Alibi as Alibi
from morph.records.position import InLayer as InLayer
from morph.records.position import LearnedPosition as LearnedPosition
from morph.records.position import LinearRope as LinearRope
from morph.records.position import Llama3Rope as Llama3Rope
from morph.records.position import NoPosition as NoPosition
from morph.records.position import NtkRope as NtkRope
from morph.records.position import PartialRope as PartialRope
from morph.records.position import PerLayer as PerLayer
from morph.records.position import Position as Position
from morph.records.position import Rope as Rope
from morph.records.position import Rotary as Rotary
from morph.records.position import Rotation as Rotation
from morph.records.position import Sinusoid as Sinusoid
from morph.records.position import YarnRope as YarnRope
from morph.spec import Change as Change
from morph.spec import Spec as Spec
from morph.spec import diff as diff
from morph.spec import divisors, from_dict, one_of, require, to_dict, toml_lines

Placement = Literal["post", "pre", "sandwich", "depth-scaled-sandwich", "post-branch", "parallel"]
Activation = Literal["relu", "silu", "gelu", "relu-squared"]

# ---- computing within a token --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MLP(Spec):
    """Two matrices, d -> width -> d, with an activation between (Vaswani et al., 2017)."""

    kind: ClassVar[str] = "mlp"
    width: int
    activation: Activation

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("mlp.activation", self.activation, Activation)


@dataclass(frozen=True, kw_only=True)
class GatedMLP(Spec):
    """Three matrices: an activated gate multiplies a value before the way down (Shazeer, 2020)."""

    kind: ClassVar[str] = "gated-mlp"
    width: int
    activation: Activation

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("gated-mlp.activation", self.activation, Activation)


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
class NoBalance(Spec):
    """Nothing spreads the load; the router learns from the objective alone."""

    kind: ClassVar[str] = "no-balance"


@dataclass(frozen=True, kw_only=True)
class SoftmaxRouter(Spec):
    """Softmax over all experts; the chosen ones' probabilities are divided by their sum (Mixtral, 2024)."""

    kind: ClassVar[str] = "softmax-router"


@dataclass(frozen=True, kw_only=True)
class SwitchRouter(Spec):
    """Softmax over all experts; the chosen ones' probabilities are their weights as they are (Fedus et al., 2021)."""

    kind: ClassVar[str] = "switch-router"


@dataclass(frozen=True, kw_only=True)
class SigmoidRouter(Spec):
    """A sigmoid for each expert; the chosen ones' values are divided by their sum (DeepSeek-V3, 2024)."""

    kind: ClassVar[str] = "sigmoid-router"


@dataclass(frozen=True, kw_only=True)
class GroupLimitedRouter(Spec):
    """A sigmoid router that stays within `n_kept` of `n_groups` groups of neighbouring experts (DeepSeek-V3, 2024)."""

    kind: ClassVar[str] = "group-limited-router"
    n_groups: int
    n_kept: int


@dataclass(frozen=True, kw_only=True)
class SharedGate(Spec):
    """A sigmoid for each token multiplies what the shared experts answer (Qwen1.5-MoE, 2024)."""

    kind: ClassVar[str] = "shared-gate"


Router = SoftmaxRouter | SwitchRouter | SigmoidRouter | GroupLimitedRouter


@dataclass(frozen=True, kw_only=True)
class MoE(Spec):
    """`top_k` of `n_experts` feed-forward experts a token, and `n_shared` that every token uses.

    The chosen experts' weights come from the router and are multiplied by `routed_scale`.
    """

    kind: ClassVar[str] = "moe"
    may_be_zero: ClassVar[tuple[str, ...]] = ("n_shared",)
    added: ClassVar[tuple[str, ...]] = ("router",)
    expert: GatedMLP
    n_experts: int
    n_shared: int = 0
    top_k: int
    routed_scale: float
    balance: AuxiliaryLoss | SelectionBias | NoBalance
    router: Router = SoftmaxRouter()
    shared_gate: SharedGate | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.top_k <= self.n_experts,
            f"moe.top_k = {self.top_k} is more than n_experts = {self.n_experts}; choose top_k <= {self.n_experts}",
        )
        require(
            self.shared_gate is None or self.n_shared > 0,
            "moe.shared_gate has no shared expert to multiply; give n_shared >= 1 or leave it out",
        )
        if isinstance(self.router, GroupLimitedRouter):
            groups, kept, size = self.router.n_groups, self.router.n_kept, self.n_experts // self.router.n_groups
            require(
                self.n_experts % groups == 0 and size > 1,
                f"moe.router.n_groups = {groups} does not cut n_experts = {self.n_experts} in equal groups of 2 or "
                f"more; choose one of {divisors(self.n_experts)} below {self.n_experts}",
            )
            require(
                kept <= groups and self.top_k <= kept * size,
                f"moe.router.n_kept = {kept} of {groups} groups of {size} cannot hold top_k = {self.top_k}; "
                f"choose {-(-self.top_k // size)} to {groups}",
            )

    @property
    def active_width(self) -> int:
        """Hidden features a token passes through: its routed experts and the shared ones."""
        return self.expert.width * (self.top_k + self.n_shared)


@dataclass(frozen=True, kw_only=True)
class DenseFirst(Spec):
    """The first `n_dense` layers keep one dense network, all others have experts (DeepSeekMoE, 2024)."""

    kind: ClassVar[str] = "dense-first"
    n_dense: int
    dense: GatedMLP
    experts: MoE


# ---- the whole -----------------------------------------------------------------------------------------------

FeedForward = MLP | GatedMLP | MoE | DenseFirst


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Spec):
    """A decoder-only language model.

    Attributes:
        vocab_size: V, number of token ids.
        d_model: D, width of the residual stream.
        n_layers: number of blocks.
        context_length: tokens in a training sequence (see `position_limit` for what the model can read).
        placement: where the norms stand: "post" on the stream after each addition, "pre" before each branch,
            "post-branch" after it, "sandwich" on both sides (and "depth-scaled-sandwich", whose second norms start
            with gains of 1/√n_layers); "parallel" lets both branches read one norm of the same stream.
        norm: the kind of normalization on the stream.
        bias: whether linear maps have a bias (head, router, experts and delta mixers never have).
        position: how tokens know their place.
        attention: the softmax attention used by every softmax layer.
        layout: which layers are local and what they use.
        feed_forward: what a token computes by itself (see `feed_forward_in` for one layer).
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
        one_of("placement", self.placement, Placement)
        attention = self.attention
        if attention.head_dim is None:
            require(
                self.d_model % attention.n_heads == 0,
                f"attention.n_heads = {attention.n_heads} does not divide d_model = {self.d_model}; "
                f"choose a divisor or give attention.head_dim",
            )
            object.__setattr__(self, "attention", replace(attention, head_dim=self.d_model // attention.n_heads))
        position = self.position
        for spec in (position.local, position.global_) if isinstance(position, PerLayer) else (position,):
            if isinstance(spec, Rotary):
                spec.rotated(self.attention.width)
        if isinstance(position, LearnedPosition):
            require(
                position.length >= self.context_length,
                f"position.length = {position.length} is less than context_length = {self.context_length}; "
                f"give at least {self.context_length}",
            )
        if isinstance(self.feed_forward, DenseFirst):
            require(
                self.feed_forward.n_dense < self.n_layers,
                f"feed_forward.n_dense = {self.feed_forward.n_dense} leaves none of n_layers = {self.n_layers} for "
                f"experts; choose less, or a dense feed_forward",
            )
        if isinstance(position, Sinusoid):
            require(
                self.d_model % 2 == 0,
                f"d_model = {self.d_model} is odd, but a sinusoid comes in pairs; choose an even d_model",
            )

    def mixer(self, layer: int) -> Attention | SlidingWindow | GatedDeltaNet:
        """What mixes tokens in layer `layer` (from 0): `Attention` when the layer is global."""
        layout = self.layout
        if isinstance(layout, AllLocal) or (isinstance(layout, Interleaved) and not layout.is_global(layer)):
            return layout.local
        return self.attention

    def feed_forward_in(self, layer: int) -> MLP | GatedMLP | MoE:
        """What layer `layer` (from 0) computes within a token."""
        if isinstance(self.feed_forward, DenseFirst):
            return self.feed_forward.dense if layer < self.feed_forward.n_dense else self.feed_forward.experts
        return self.feed_forward

    @property
    def moe(self) -> MoE | None:
        """The mixture of experts of the layers that have one; None when no layer has."""
        last = self.feed_forward_in(self.n_layers - 1)
        return last if isinstance(last, MoE) else None

    def position_in(self, layer: int) -> Sinusoid | LearnedPosition | InLayer:
        """How layer `layer` (from 0) knows places; what is added to the embedding once, every layer can read."""
        if isinstance(self.position, PerLayer):
            return self.position.global_ if self.mixer(layer) is self.attention else self.position.local
        return self.position

    @property
    def position_limit(self) -> int | None:
        """How many tokens of one text the model can place; None when there is no limit."""
        return self.position.length if isinstance(self.position, LearnedPosition) else None

    # ---- files ----

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries of plain values; every organ carries its `kind`, absent options are left out."""
        return to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`. Raises `MorphError` naming any unknown, missing or impossible entry."""
        made = from_dict(data, (cls,), "config", default=cls)
        assert isinstance(made, cls)
        return made

    def to_toml(self) -> str:
        """The same as `to_dict`, as TOML text."""
        return "\n".join(toml_lines(self.to_dict(), "")) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> ModelConfig:
        """The inverse of `to_toml`."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise MorphError(f"the config is not valid TOML ({error}); mend that line") from None
