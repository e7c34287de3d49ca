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
from morph.records.feedforward import MLP as MLP
from morph.records.feedforward import Activation as Activation
from morph.records.feedforward import AuxiliaryLoss as AuxiliaryLoss
from morph.records.feedforward import ClampedGatedMLP as ClampedGatedMLP
from morph.records.feedforward import DenseFirst as DenseFirst
from morph.records.feedforward import ExpertBiases as ExpertBiases
from morph.records.feedforward import FeedForward as FeedForward
from morph.records.feedforward import GatedMLP as GatedMLP
from morph.records.feedforward import GroupLimitedRouter as GroupLimitedRouter
from morph.records.feedforward import MoE as MoE
from morph.records.feedforward import NoBalance as NoBalance
from morph.records.feedforward import Router as Router
from morph.records.feedforward import SelectionBias as SelectionBias
from morph.records.feedforward import SharedGate as SharedGate
from morph.records.feedforward import SigmoidRouter as SigmoidRouter
from morph.records.feedforward import SoftmaxRouter as SoftmaxRouter
from morph.records.feedforward import SwitchRouter as SwitchRouter
from morph.records.mixing import MLA as MLA
from morph.records.mixing import AllGlobal as AllGlobal
from morph.records.mixing import AllLocal as AllLocal
from morph.records.mixing import Attention as Attention
from morph.records.mixing import GatedDeltaNet as GatedDeltaNet
from morph.records.mixing import HeadGate as HeadGate
from morph.records.mixing import Indexer as Indexer
from morph.records.mixing import Interleaved as Interleaved
from morph.records.mixing import KimiDelta as KimiDelta
from morph.records.mixing import Layout as Layout
from morph.records.mixing import Lightning as Lightning
from morph.records.mixing import Listed as Listed
from morph.records.mixing import Local as Local
from morph.records.mixing import OutputGate as OutputGate
from morph.records.mixing import QKVBias as QKVBias
from morph.records.mixing import Sink as Sink
from morph.records.mixing import SlidingWindow as SlidingWindow
from morph.records.mixing import Softcap as Softcap
from morph.records.mixing import State as State
from morph.records.mixing import yarn_softmax_scale as yarn_softmax_scale
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
from morph.records.position import Pairing as Pairing
from morph.records.position import PartialRope as PartialRope
from morph.records.position import PerLayer as PerLayer
from morph.records.position import Position as Position
from morph.records.position import Rope as Rope
from morph.records.position import Rotary as Rotary
from morph.records.position import Rotation as Rotation
from morph.records.position import Sinusoid as Sinusoid
from morph.records.position import SomeLayers as SomeLayers
from morph.records.position import YarnRope as YarnRope
from morph.records.stream import MTP as MTP
from morph.records.stream import Dropout as Dropout
from morph.records.stream import LogitCap as LogitCap
from morph.records.stream import LogitRule as LogitRule
from morph.records.stream import LogitScale as LogitScale
from morph.records.stream import ResidualWeights as ResidualWeights
from morph.spec import Change as Change
from morph.spec import Spec as Spec
from morph.spec import as_kind as as_kind
from morph.spec import diff as diff
from morph.spec import from_dict, one_of, require, to_dict, toml_lines

Placement = Literal[
    "post", "pre", "sandwich", "depth-scaled-sandwich", "post-branch", "parallel", "by-mixer", "on-normed-stream"
]

# ---- the whole -----------------------------------------------------------------------------------------------


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
            with gains of 1/√n_layers); "parallel" lets both branches read one norm of the same stream; "by-mixer" is
            "post-branch" in layers of softmax attention and "pre" in all others; "on-normed-stream" adds each branch
            to the normed stream that it read (see `residual`).
        norm: the kind of normalization on the stream.
        bias: whether linear maps have a bias (never the head, gates, layers with a state and what unfolds a latent;
            router and experts by a record of their own, `MoE.biases`).
        position: how tokens know their place.
        attention: the softmax attention used by every softmax layer.
        layout: which layers are local and what they use.
        feed_forward: what a token computes by itself (see `feed_forward_in` for one layer).
        tied: whether the head is the embedding's transpose.
        embedding_scale: what multiplies the rows of the embedding (and of a table of places); None for √d_model.
        residual: factors of stream and branches, for "on-normed-stream" only; None for 1.
        logits: what happens to the logits; None for nothing.
        dropout: what is dropped while training; None for nothing.
        mtp: heads for later tokens, which training and speculative decoding use; None for none.
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
    attention: Attention | MLA
    layout: Layout
    feed_forward: FeedForward
    tied: bool = True
    embedding_scale: float | None = None
    residual: ResidualWeights | None = None
    logits: LogitRule | None = None
    dropout: Dropout | None = None
    mtp: MTP | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("placement", self.placement, Placement)
        if isinstance(self.attention, Attention) and self.attention.head_dim is None:
            heads = self.attention.n_heads
            require(
                self.d_model % heads == 0,
                f"attention.n_heads = {heads} does not divide d_model = {self.d_model}; "
                f"choose a divisor or give attention.head_dim",
            )
            object.__setattr__(self, "attention", replace(self.attention, head_dim=self.d_model // heads))
        self._check_layers()
        self._check_position()
        require(
            self.residual is None or self.placement == "on-normed-stream",
            f"residual weighs the branches of placement 'on-normed-stream', and this one is {self.placement!r}; "
            f"leave residual out",
        )

    def _check_layers(self) -> None:
        """What is said of single layers must fit `n_layers` and the attention."""
        for name, listed in (
            ("layout.global_layers", self.layout.global_layers if isinstance(self.layout, Listed) else ()),
            ("position.layers", self.position.layers if isinstance(self.position, SomeLayers) else ()),
        ):
            require(
                not listed or (listed[-1] < self.n_layers and len(listed) < self.n_layers),
                f"{name} = {list(listed)} must name some of the layers 0 to {self.n_layers - 1}, and not all",
            )
        local = None if isinstance(self.layout, AllGlobal) else self.layout.local
        if isinstance(local, SlidingWindow) and local.n_heads is not None:
            require(
                isinstance(self.attention, Attention) and local.n_heads % self.attention.n_kv_heads == 0,
                f"layout.local.n_heads = {local.n_heads} must share the attention's KV heads evenly; leave it out",
            )
        require(
            self.mtp is None or self.mtp.depth < self.context_length,
            f"mtp.depth = {self.mtp and self.mtp.depth} looks beyond context_length = {self.context_length}; choose "
            f"less",
        )
        if isinstance(self.feed_forward, DenseFirst):
            require(
                self.feed_forward.n_dense < self.n_layers,
                f"feed_forward.n_dense = {self.feed_forward.n_dense} leaves none of n_layers = {self.n_layers} for "
                f"experts; choose less, or a dense feed_forward",
            )

    def _check_position(self) -> None:
        """Rotations need pairs of features, and tables enough rows."""
        position, attention = self.position, self.attention
        for spec in self._positions():
            if isinstance(spec, Rotary):
                spec.rotated(attention.rope_dim if isinstance(attention, MLA) else attention.width)
            require(
                not (isinstance(spec, Alibi) and isinstance(attention, MLA)),
                "position = alibi lowers scores by a slope for each head, which mla has not; choose a rotation or none",
            )
        if isinstance(position, LearnedPosition):
            require(
                position.length >= self.context_length,
                f"position.length = {position.length} is less than context_length = {self.context_length}; "
                f"give at least {self.context_length}",
            )
        if isinstance(position, Sinusoid):
            require(
                self.d_model % 2 == 0,
                f"d_model = {self.d_model} is odd, but a sinusoid comes in pairs; choose an even d_model",
            )

    def mixer(self, layer: int) -> Attention | MLA | Local:
        """What mixes tokens in layer `layer` (from 0): the `attention` when the layer is global."""
        layout = self.layout
        if isinstance(layout, AllLocal) or (isinstance(layout, Interleaved | Listed) and not layout.is_global(layer)):
            return layout.local
        return self.attention

    def feed_forward_in(self, layer: int) -> MLP | GatedMLP | ClampedGatedMLP | MoE:
        """What layer `layer` (from 0) computes within a token."""
        if isinstance(self.feed_forward, DenseFirst):
            return self.feed_forward.dense if layer < self.feed_forward.n_dense else self.feed_forward.experts
        return self.feed_forward

    @property
    def moe(self) -> MoE | None:
        """The mixture of experts of the layers that have one; None when no layer has."""
        last = self.feed_forward_in(self.n_layers - 1)
        return last if isinstance(last, MoE) else None

    def _positions(self) -> tuple[Position, ...]:
        """Every way in which some layer tells places apart."""
        if isinstance(self.position, PerLayer):
            return self.position.local, self.position.global_
        return (
            (self.position.inside, self.position.outside) if isinstance(self.position, SomeLayers) else (self.position,)
        )

    def position_in(self, layer: int) -> Sinusoid | LearnedPosition | InLayer:
        """How layer `layer` (from 0) knows places; what is added to the embedding once, every layer can read."""
        if isinstance(self.position, PerLayer):
            return self.position.global_ if self.mixer(layer) is self.attention else self.position.local
        if isinstance(self.position, SomeLayers):
            return self.position.inside if layer in self.position.layers else self.position.outside
        return self.position

    def placement_in(self, layer: int) -> Placement:
        """Where the norms of layer `layer` (from 0) stand."""
        if self.placement == "by-mixer":
            return "pre" if isinstance(self.mixer(layer), State) else "post-branch"
        return self.placement

    @property
    def embedding_factor(self) -> float:
        """What multiplies the rows of the embedding."""
        return self.d_model**0.5 if self.embedding_scale is None else self.embedding_scale

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
