"""Forks: what a softmax layer does with queries, keys and scores."""

from __future__ import annotations

from dataclasses import replace

from morph.config import FullWidthRMSNorm, ModelConfig, Sink
from morph.forks.entry import Fork
from morph.steps import Size


def _attention_sink(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(config.attention, sink=Sink()))


def _no_qk_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(config.attention, qk_norm=None))


def _qk_norm_full_width(config: ModelConfig, size: Size) -> ModelConfig:
    full = FullWidthRMSNorm(eps=config.norm.eps)
    return replace(config, attention=replace(config.attention, qk_norm=full))


ATTENTION: tuple[Fork, ...] = (
    Fork(
        "attention-sink", "qk-norm", "A sink in the softmax", 2025, "gpt-oss", "attention", ("attention.sink",),
        "all weight goes to keys", "a learned logit per head takes what no key deserves",
        "A head with nothing to say parks its weight on the first token. gpt-oss gives it a place of its own; gates on "
        "the output (Qwen3-Next) serve the same end; most models leave it to the first token.",
        "Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2023; OpenAI, gpt-oss, 2025",
        _attention_sink,
    ),
    Fork(
        "no-qk-norm", "qk-norm", "Raw queries and keys", 2017, "Llama; DeepSeek", "norm", ("attention.qk_norm",),
        "RMSNorm on each head's query and key", "none",
        "QK-norm bounds the logits, at the price of two norms a layer and of heads that can no longer weigh tokens by "
        "the length of their vectors. Llama, Mistral and gpt-oss do without.",
        "Touvron et al., Llama, 2023; OpenAI, gpt-oss, 2025",
        _no_qk_norm,
    ),
    Fork(
        "qk-norm-full-width", "qk-norm", "QK-norm across heads", 2024, "OLMo 2", "norm", ("attention.qk_norm",),
        "one mean square for each head", "one for all heads of a token",
        "Across heads, a loud head stays louder than a quiet one and the bound is on all together; the mean needs all "
        "heads at hand, also where devices share them. OLMo 2 and 3 norm across, Qwen3 and Gemma 3 each head.",
        "OLMo Team, 2 OLMo 2 Furious, 2024",
        _qk_norm_full_width,
    ),
)  # fmt: skip
