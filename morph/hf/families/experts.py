"""What families with experts share: routers, shared experts and dense first layers in config.json, and their weights.

Transformers keeps the experts of a layer in packed tensors while it computes; folders hold them apart, as they were
released, or packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morph.config import (
    DenseFirst,
    FeedForward,
    GatedMLP,
    GroupLimitedRouter,
    ModelConfig,
    MoE,
    NoBalance,
    SelectionBias,
    SharedGate,
    SigmoidRouter,
    SoftmaxRouter,
    SwitchRouter,
    as_kind,
)
from morph.hf.families.frame import either
from morph.hf.families.parts import mlp_rules
from morph.hf.settings import Settings, activation_there
from morph.hf.weights import Rule, copied, fused, stacked

PARTS = ("gate", "up", "down")
LLAMA_NAMES = ("gate_proj", "up_proj", "down_proj")
MIXTRAL_NAMES = ("w1", "w3", "w2")

# ---- config.json ---------------------------------------------------------------------------------------------


def read_softmax_experts(s: Settings, width: int, n_experts: int, top_k: int, is_normed: bool, **rest: Any) -> MoE:
    """Experts chosen by a softmax over all of them. What balances them while training is not looked at."""
    s.ignore("router_aux_loss_coef", "router_jitter_noise")
    return MoE(
        expert=GatedMLP(width=width, activation=s.activation("hidden_act", "silu")),
        n_experts=n_experts,
        top_k=top_k,
        routed_scale=1.0,
        balance=NoBalance(),
        router=SoftmaxRouter() if is_normed else SwitchRouter(),
        **rest,
    )


def read_gated_shared(s: Settings, expert_width: int, default: int) -> dict[str, Any]:
    """Qwen's one shared expert: a width of its own and a gate."""
    width = s.whole("shared_expert_intermediate_size", default)
    own = None if width == expert_width else width
    return {"n_shared": 1, "shared_width": own, "shared_gate": SharedGate()}


def write_softmax_experts(experts: MoE, count: str) -> dict[str, Any]:
    """The same, the other way, with the number of experts under the name `count`."""
    written = {
        count: experts.n_experts,
        "num_experts_per_tok": experts.top_k,
        "hidden_act": activation_there(gated(experts).activation),
    }
    if experts.n_shared:
        written["shared_expert_intermediate_size"] = experts.n_shared * experts.width_of_shared
    return written


def read_deepseek_experts(
    s: Settings, width: int, n_experts: int, scale: float, n_groups: int, n_kept: int, n_shared: int = 1
) -> MoE:
    """DeepSeek-V3's: a sigmoid for each expert, groups, a bias on the choice that the folder holds, shared experts.

    The values are what is assumed where keys are missing. The shared experts are one network in the folder.
    """
    s.only("norm_topk_prob", True)
    n_groups, n_kept = s.whole("n_group", n_groups), s.whole("topk_group", n_kept)
    return sigmoid_experts(
        s,
        width=s.whole("moe_intermediate_size", width),
        n_experts=either(s, ("n_routed_experts", "num_local_experts", "num_experts"), n_experts),
        n_shared=s.whole("n_shared_experts", n_shared),
        top_k=s.whole("num_experts_per_tok", 8),
        routed_scale=s.number("routed_scaling_factor", scale),
        router=router_of(n_groups, n_kept),
    )


def sigmoid_experts(s: Settings, width: int, **rest: Any) -> MoE:
    """Experts with a bias on the choice; how fast training moves it is not in the folder."""
    expert = GatedMLP(width=width, activation=s.activation("hidden_act", "silu"))
    return MoE(expert=expert, balance=SelectionBias(), **rest)


def router_of(n_groups: int, n_kept: int) -> SigmoidRouter | GroupLimitedRouter:
    """The router of `n_group` and `topk_group`: one group limits nothing."""
    return SigmoidRouter() if n_groups == 1 else GroupLimitedRouter(n_groups=n_groups, n_kept=n_kept)


def groups_of(experts: MoE) -> tuple[int, int]:
    """The same, the other way. Raises MorphError for a router of another kind."""
    if isinstance(experts.router, GroupLimitedRouter):
        return experts.router.n_groups, experts.router.n_kept
    as_kind(experts.router, SigmoidRouter, "feed_forward.router")
    return 1, 1


def write_deepseek_experts(config: ModelConfig) -> dict[str, Any]:
    """`read_deepseek_experts` the other way, with the first layers that have none."""
    experts = experts_in(config)
    n_dense, width = write_dense(config)
    n_groups, n_kept = groups_of(experts)
    return {
        "first_k_dense_replace": n_dense,
        "intermediate_size": width,
        "moe_intermediate_size": experts.expert.width,
        "n_routed_experts": experts.n_experts,
        "n_shared_experts": experts.n_shared,
        "num_experts_per_tok": experts.top_k,
        "n_group": n_groups,
        "topk_group": n_kept,
        "routed_scaling_factor": experts.routed_scale,
        "norm_topk_prob": True,
        "hidden_act": activation_there(gated(experts).activation),
    }


def dense_first(n_dense: int, width: int, experts: MoE) -> FeedForward:
    """Experts in every layer but the first `n_dense`."""
    if n_dense == 0:
        return experts
    dense = GatedMLP(width=width, activation=gated(experts).activation)
    return DenseFirst(n_dense=n_dense, dense=dense, experts=experts)


def count_dense(s: Settings, n_layers: int, default: int) -> int:
    """How many first layers are dense: `mlp_layer_types` where it is given, else `first_k_dense_replace`."""
    n_dense = s.whole("first_k_dense_replace", default)
    if "mlp_layer_types" not in s:
        return min(n_dense, n_layers)
    types = s.words("mlp_layer_types", n_layers, ("dense", "sparse"))
    n_dense = types.index("sparse") if "sparse" in types else n_layers
    if "dense" in types[n_dense:]:
        s.refuse("mlp_layer_types", "Morph has dense layers before those with experts, and none after")
    return n_dense


def write_dense(config: ModelConfig) -> tuple[int, int]:
    """How many first layers are dense, and how wide they are (an expert's width when there are none)."""
    if isinstance(config.feed_forward, DenseFirst):
        dense = as_kind(config.feed_forward.dense, GatedMLP, "feed_forward.dense")
        return config.feed_forward.n_dense, dense.width
    return 0, experts_in(config).expert.width


def experts_in(config: ModelConfig) -> MoE:
    """The config's experts. Raises MorphError when it has none."""
    return as_kind(config.feed_forward_in(config.n_layers - 1), MoE, "feed_forward")


def gated(experts: MoE) -> GatedMLP:
    """One expert's record. Raises MorphError when it is gpt-oss's clamped one."""
    return as_kind(experts.expert, GatedMLP, "feed_forward.expert")


# ---- weights -------------------------------------------------------------------------------------------------


def apart(ours: str, theirs: str, n_experts: int, names: Sequence[str] = LLAMA_NAMES) -> list[Rule]:
    """Three matrices for each expert, under numbers."""
    return [
        stacked(f"{ours}.{part}", [f"{theirs}.{expert}.{name}.weight" for expert in range(n_experts)])
        for part, name in zip(PARTS, names, strict=True)
    ]


def packed(ours: str, theirs: str, width: int) -> list[Rule]:
    """All experts in two tensors: gates above values, and the ways down."""
    return [
        fused((f"{ours}.gate", f"{ours}.up"), f"{theirs}.gate_up_proj", (width, width), dim=1),
        copied(f"{ours}.down", f"{theirs}.down_proj"),
    ]


def shared_rules(ours: str, theirs: str, experts: MoE) -> list[Rule]:
    """Shared experts side by side in one network."""
    rules = []
    for part, name in zip(PARTS, LLAMA_NAMES, strict=True):
        names = [f"{ours}.{i}.{part}.weight" for i in range(experts.n_shared)]
        sizes = [experts.width_of_shared] * experts.n_shared
        rules.append(fused(names, f"{theirs}.{name}.weight", sizes, dim=1 if part == "down" else 0))
    return rules


def moe_rules(
    config: ModelConfig,
    layer: int,
    *,
    router: str = "mlp.gate",
    bias: str | None = None,
    experts: str = "mlp.experts",
    names: Sequence[str] = LLAMA_NAMES,
    shared: str = "mlp.shared_experts",
    is_packed: bool = False,
) -> list[Rule]:
    """One layer's experts where its config has them, its dense network where not.

    Args:
        config, layer: of which model, and where.
        router, experts, shared: what these are called within the layer.
        bias: where the bias on the choice is.
        names: of one expert's three matrices.
        is_packed: whether all experts are in two tensors.
    """
    spec = config.feed_forward_in(layer)
    if not isinstance(spec, MoE):
        return mlp_rules(config, layer)
    ours, theirs = f"blocks.{layer}.feed_forward", f"model.layers.{layer}"
    rules = [copied(f"{ours}.router.logits.weight", f"{theirs}.{router}.weight")]
    if bias is not None:
        rules.append(copied(f"{ours}.router.selection_bias", f"{theirs}.{bias}"))
    if is_packed:
        rules += packed(f"{ours}.experts", f"{theirs}.{experts}", spec.expert.width)
    else:
        rules += apart(f"{ours}.experts", f"{theirs}.{experts}", spec.n_experts, names)
    if spec.n_shared:
        rules += shared_rules(f"{ours}.shared", f"{theirs}.{shared}", spec)
    if spec.shared_gate is not None:
        rules.append(copied(f"{ours}.shared_gate.weight", f"{theirs}.{shared}_gate.weight"))
    return rules
