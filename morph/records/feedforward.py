"""Records of what a token computes by itself; the modules are `morph.nn.feedforward`, `moe` and `router`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from morph.spec import Spec, divisors, one_of, require

Activation = Literal["relu", "silu", "gelu", "gelu-tanh", "relu-squared"]


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
class ClampedGatedMLP(Spec):
    """A gated network, g σ(alpha g) (u + 1), with g at most `limit` and u within ± `limit` (gpt-oss, 2025)."""

    kind: ClassVar[str] = "clamped-gated-mlp"
    width: int
    limit: float = 7.0
    alpha: float = 1.702


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


@dataclass(frozen=True, kw_only=True)
class ExpertBiases(Spec):
    """A bias on the router and on every map of the routed experts (gpt-oss, 2025)."""

    kind: ClassVar[str] = "expert-biases"


Router = SoftmaxRouter | SwitchRouter | SigmoidRouter | GroupLimitedRouter


@dataclass(frozen=True, kw_only=True)
class MoE(Spec):
    """`top_k` of `n_experts` feed-forward experts a token, and `n_shared` that every token uses.

    The chosen experts' weights come from the router and are multiplied by `routed_scale`. Shared experts are as wide
    as the routed ones unless `shared_width` says otherwise.
    """

    kind: ClassVar[str] = "moe"
    may_be_zero: ClassVar[tuple[str, ...]] = ("n_shared",)
    added: ClassVar[tuple[str, ...]] = ("router",)
    expert: GatedMLP | ClampedGatedMLP
    n_experts: int
    n_shared: int = 0
    top_k: int
    routed_scale: float
    balance: AuxiliaryLoss | SelectionBias | NoBalance
    router: Router = SoftmaxRouter()
    shared_gate: SharedGate | None = None
    shared_width: int | None = None
    biases: ExpertBiases | None = None

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
        require(
            self.shared_width is None or self.n_shared > 0,
            f"moe.shared_width = {self.shared_width} has no shared expert to give it; give n_shared >= 1 or leave it "
            f"out",
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
        return self.expert.width * self.top_k + self.width_of_shared * self.n_shared

    @property
    def width_of_shared(self) -> int:
        """Hidden features of one shared expert."""
        return self.expert.width if self.shared_width is None else self.shared_width


@dataclass(frozen=True, kw_only=True)
class DenseFirst(Spec):
    """The first `n_dense` layers keep one dense network, all others have experts (DeepSeekMoE, 2024)."""

    kind: ClassVar[str] = "dense-first"
    n_dense: int
    dense: GatedMLP | ClampedGatedMLP
    experts: MoE


FeedForward = MLP | GatedMLP | ClampedGatedMLP | MoE | DenseFirst
