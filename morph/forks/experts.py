"""Forks: how experts are chosen and balanced."""

from __future__ import annotations

from dataclasses import replace

from morph.config import (
    DenseFirst,
    GroupLimitedRouter,
    ModelConfig,
    MoE,
    NoBalance,
    SharedGate,
    SigmoidRouter,
    SwitchRouter,
    as_kind,
)
from morph.forks.entry import Fork
from morph.steps import Size, experts_of, with_experts


def _unbalanced(config: ModelConfig, size: Size) -> ModelConfig:
    return with_experts(config, replace(experts_of(config), balance=NoBalance()))


def _switch_top_1(config: ModelConfig, size: Size) -> ModelConfig:
    moe = experts_of(config)
    whole = replace(moe.expert, width=moe.expert.width * moe.top_k)  # as many weights stored, and as many met
    fewer = moe.n_experts // moe.top_k
    switch = replace(moe, expert=whole, n_experts=fewer, top_k=1, routed_scale=1.0, router=SwitchRouter())
    return with_experts(config, switch)


def _shared_expert_gate(config: ModelConfig, size: Size) -> ModelConfig:
    return with_experts(config, replace(experts_of(config), shared_gate=SharedGate()))


def _sigmoid_router(config: ModelConfig, size: Size) -> ModelConfig:
    return with_experts(config, replace(experts_of(config), router=SigmoidRouter()))


def _group_limited_router(config: ModelConfig, size: Size) -> ModelConfig:
    router = GroupLimitedRouter(n_groups=8, n_kept=4)
    return with_experts(config, replace(experts_of(config), router=router))


def _dense_first(config: ModelConfig, size: Size) -> ModelConfig:
    moe = as_kind(config.feed_forward, MoE, "feed_forward")
    dense = replace(moe.expert, width=moe.active_width)  # what a token meets in the other layers
    return replace(config, feed_forward=DenseFirst(n_dense=1, dense=dense, experts=moe))


EXPERTS: tuple[Fork, ...] = (
    Fork(
        "unbalanced", "shared-expert", "No balancing", 2017, "what Shazeer et al. warn of", "ffn",
        ("feed_forward.balance",),
        "an auxiliary loss spreads the load", "nothing does",
        "How unevenly does a router spread its tokens when nothing asks it to? We know of no released model that "
        "does without: it is here to be compared with.",
        "the same forward; the loss lacks its balancing term",
        (),
        "Shazeer et al., Outrageously Large Neural Networks, 2017",
        _unbalanced,
    ),
    Fork(
        "switch-top-1", "moe", "One expert a token", 2021, "Switch Transformer", "ffn",
        (
            "feed_forward.expert.width", "feed_forward.n_experts", "feed_forward.top_k", "feed_forward.routed_scale",
            "feed_forward.router",
        ),
        "2 of 8 half-width experts, their weights made to add to 2", "1 of 4 full-width experts, times its probability",
        "Is one expert enough? It saves moving a token twice, and leaves the router a single choice to learn from. "
        "Mixtral and most that followed it take two or more; Llama 4 takes one beside a shared expert. (Switch drops "
        "what overflows an expert's capacity; here nothing is dropped.)",
        "where the base's router rows are equal in pairs, each pair the halves of one expert, its output times the "
        "chosen expert's probability",
        ("Switch Transformer",),
        "Fedus et al., Switch Transformers, 2021",
        _switch_top_1,
    ),
    Fork(
        "shared-expert-gate", "shared-expert", "A gate on the shared expert", 2024, "Qwen1.5-MoE; Qwen3-Next", "ffn",
        ("feed_forward.shared_gate",),
        "the shared expert always counts in full", "a sigmoid of the token says how much it counts",
        "Does every token need the shared expert alike? Qwen1.5, Qwen3-Next and Qwen3.5 let each decide; DeepSeek-V3, "
        "Kimi K2 and GLM-5 add it as it is; Qwen3 has none.",
        "with its matrix at 0 the gate is 1/2: the base, once the shared expert's output matrix is doubled",
        ("Qwen1.5-MoE", "Qwen3-Next", "Qwen3.5"),
        "Qwen Team, Qwen1.5-MoE, 2024",
        _shared_expert_gate,
    ),
    Fork(
        "sigmoid-router", "loss-free-balance", "Experts scored one by one", 2024, "DeepSeek-V3", "ffn",
        ("feed_forward.router",),
        "softmax: experts compete for one unit of probability", "a sigmoid for each, whatever the others have",
        "Should a good expert lower the score of another? DeepSeek-V3, Kimi K2, GLM-4.5 and Trinity use sigmoids; "
        "Mixtral, Qwen3 and gpt-oss a softmax.",
        "while every bias is 0 both choose the same experts, and weigh them alike as all logits fall together: "
        "sigmoid(z) nears exp z",
        ("DeepSeek-V3", "Kimi K2.5", "GLM-4.5", "GLM-5", "Trinity Large"),
        "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024",
        _sigmoid_router,
    ),
    Fork(
        "group-limited-router", "sigmoid-router", "Experts from few groups", 2024, "DeepSeek-V3", "ffn",
        ("feed_forward.router",),
        "7 of all 32 experts", "7 from the best 4 of 8 groups",
        "Experts live on many devices, and each one that a token visits costs a message. Fewer groups mean fewer "
        "messages and less choice. DeepSeek-V3 keeps 4 of 8; Kimi K2 and GLM-5 have one group, which limits nothing.",
        "the base, with every group kept",
        ("DeepSeek-V3", "Ling 2.5"),
        "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024",
        _group_limited_router,
    ),
    Fork(
        "dense-first", "loss-free-balance", "The first layer stays dense", 2024, "DeepSeekMoE; DeepSeek-V3", "ffn",
        ("feed_forward",),
        "experts in every layer", "a dense network of the same active width in layer 0, experts above",
        "Early routers balance slowly, and early layers do what every token needs. DeepSeek-V3 and GLM-5 keep 3 layers "
        "dense, Trinity Large 6, Kimi K2 one; Mixtral, Qwen3 and gpt-oss none.",
        "the base, where layer 0 has a router of zeros: every token takes the same experts, each with weight 1",
        ("DeepSeek-V3", "Kimi K2.5", "Kimi Linear", "GLM-5", "Trinity Large", "Ling 2.5"),
        "Dai et al., DeepSeekMoE, 2024",
        _dense_first,
    ),
)  # fmt: skip
