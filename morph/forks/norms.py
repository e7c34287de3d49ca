"""Forks: where the norms stand and what they are."""

from __future__ import annotations

from dataclasses import replace

from morph.config import Attention, LayerNormNoBias, ModelConfig, RMSNorm, ZeroCentredRMSNorm
from morph.forks.entry import Fork
from morph.steps import Size


def _sandwich_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, placement="sandwich")


def _depth_scaled_gain(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, placement="depth-scaled-sandwich")


def _post_branch_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, placement="post-branch")


def _parallel_block(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, placement="parallel")


def _layer_norm_no_bias(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, norm=LayerNormNoBias(eps=config.norm.eps))


def _zero_centred_norm(config: ModelConfig, size: Size) -> ModelConfig:
    norm = ZeroCentredRMSNorm(eps=config.norm.eps)
    attention = config.attention
    if isinstance(attention, Attention) and isinstance(attention.qk_norm, RMSNorm):
        attention = replace(attention, qk_norm=norm)
    return replace(config, norm=norm, attention=attention)


NORMS: tuple[Fork, ...] = (
    Fork(
        "sandwich-norm", "rms-norm", "A norm at both ends", 2021, "CogView; Gemma 2", "norm",
        ("placement",),
        "a norm on each branch's input", "a second one on its output",
        "The stream of a pre-norm model grows without bound as branches write what they like. Gemma 2 and 3 and "
        "Trinity normalize what is written too; Llama and Qwen do without.",
        "the base, with its second norms replaced by the identity",
        ("Gemma 2", "Gemma 3", "Trinity Large"),
        "Ding et al., CogView, 2021; Gemma Team, Gemma 2, 2024",
        _sandwich_norm,
    ),
    Fork(
        "depth-scaled-gain", "sandwich-norm", "Second norms start at 1/√L", 2025, "Pangu Ultra; Trinity", "norm",
        ("placement",),
        "gains of the second norms start at 1", "at 1/√L: all branches together start as large at any depth",
        "With gains of 1 a deep model's first layers are soon a small share of its stream. Whether training would "
        "find the scale by itself is open: Gemma starts at 1.",
        "the same function of the same weights; only the start of the gains differs",
        ("Pangu Ultra", "Trinity Large"),
        "Yin et al., Pangu Ultra, 2025; Singh et al., Arcee Trinity Large, 2026",
        _depth_scaled_gain,
    ),
    Fork(
        "post-branch-norm", "rms-norm", "Norm on the branch's output alone", 2021, "Swin V2; OLMo 2", "norm",
        ("placement",),
        "a norm on each branch's input", "on its output instead, before the addition",
        "The branch reads the raw stream and writes a bounded vector. OLMo 2 and 3 report fewer loss spikes with it, "
        "together with QK-norm; most others normalize the input.",
        "with the branches' norms replaced by the identity, both compute the same",
        ("OLMo 2", "Olmo 3"),
        "Liu et al., Swin Transformer V2, 2021; OLMo Team, 2 OLMo 2 Furious, 2024",
        _post_branch_norm,
    ),
    Fork(
        "parallel-block", "rms-norm", "Both halves side by side", 2021, "GPT-J; PaLM, Cohere", "norm",
        ("placement",),
        "the feed-forward half reads what attention wrote", "both read one normalized stream",
        "Two halves in one pass are faster, and one norm is saved; the feed-forward half no longer sees this layer's "
        "attention. PaLM and Cohere's models are parallel, most others in series.",
        "the base, while either half writes nothing",
        ("GPT-J", "PaLM", "Command A", "Tiny Aya"),
        "Wang & Komatsuzaki, GPT-J-6B, 2021; Chowdhery et al., PaLM, 2022",
        _parallel_block,
    ),
    Fork(
        "layer-norm-no-bias", "rms-norm", "LayerNorm without its shift", 2022, "PaLM; Cohere", "norm", ("norm",),
        "RMSNorm", "LayerNorm with a gain only: the mean is still taken off",
        "Dropping the shift and dropping the mean are two changes, and RMSNorm makes both. Cohere's models keep the "
        "mean; most others follow Llama.",
        "the base's norm of x - mean x: on vectors whose mean is 0 both are the same",
        ("PaLM", "Command A", "Tiny Aya"),
        "Chowdhery et al., PaLM, 2022; Cohere, Command R, 2024",
        _layer_norm_no_bias,
    ),
    Fork(
        "zero-centred-norm", "qk-norm", "Gains stored around zero", 2024, "Gemma; Qwen3-Next", "norm",
        ("norm", "attention.qk_norm"),
        "the stored weight is the gain", "it is the gain's distance from 1",
        "The same functions and the same start. Weight decay pulls a gain to 0 in one form and to 1 in the other, and "
        "small weights round finer in bf16. Gemma and Qwen3-Next store distances, most others gains.",
        "the same functions: 1 + weight is the base's gain",
        ("Gemma 2", "Gemma 3", "Qwen3-Next", "Qwen3.5"),
        "Gemma Team, Gemma, 2024; Qwen Team, Qwen3-Next, 2025",
        _zero_centred_norm,
    ),
)  # fmt: skip
