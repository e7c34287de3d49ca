"""Forks: what a softmax layer does with queries, keys and scores."""

from __future__ import annotations

from dataclasses import replace

from morph.config import (
    MLA,
    Attention,
    FullWidthRMSNorm,
    HeadGate,
    Indexer,
    ModelConfig,
    OutputGate,
    QKVBias,
    Sink,
    Softcap,
    as_kind,
)
from morph.forks.entry import Fork
from morph.spec import require
from morph.steps import Size, attention_of


def _attention_sink(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), sink=Sink()))


def _no_qk_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), qk_norm=None))


def _qk_norm_full_width(config: ModelConfig, size: Size) -> ModelConfig:
    full = FullWidthRMSNorm(eps=config.norm.eps)
    return replace(config, attention=replace(attention_of(config), qk_norm=full))


def _gated_attention(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), gate=OutputGate()))


def _headwise_gate(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), gate=HeadGate()))


def _logit_softcap(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), softcap=Softcap()))


def _qkv_bias(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), qkv_bias=QKVBias()))


def _mqa(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), n_kv_heads=1))


def latent_like(heads: Attention, d_model: int) -> MLA:
    """Latents in the place of whole keys and values; a QK-norm gives way to the norms of the latents."""
    return MLA(
        n_heads=heads.n_heads,
        q_rank=d_model // 2,
        kv_rank=heads.n_kv_heads * heads.width,  # as wide as the keys alone that it replaces
        nope_dim=heads.width,
        rope_dim=heads.width // 2,
        v_dim=heads.width,
    )


def _mla(config: ModelConfig, size: Size) -> ModelConfig:
    heads = attention_of(config)
    for field in ("sink", "gate", "softcap", "qkv_bias", "scale"):
        require(
            getattr(heads, field) is None,
            f"attention.{field} is {getattr(heads, field)!r}, which latents have no place for; leave it out",
        )
    return replace(config, attention=latent_like(heads, config.d_model))


def _sparse_attention(config: ModelConfig, size: Size) -> ModelConfig:
    latent = as_kind(config.attention, MLA, "attention")
    indexer = Indexer(
        n_heads=16,  # all of which must be silent for a score of exactly 0
        head_dim=latent.nope_dim,
        rope_dim=latent.rope_dim,
        top_k=size.context_length // 4,
        warm_up=100,
    )
    return replace(config, attention=replace(latent, indexer=indexer))


ATTENTION: tuple[Fork, ...] = (
    Fork(
        "attention-sink", "qk-norm", "A sink in the softmax", 2025, "gpt-oss", "attention", ("attention.sink",),
        "all weight goes to keys", "a learned logit per head takes what no key deserves",
        "A head with nothing to say parks its weight on the first token. gpt-oss gives it a place of its own; gates on "
        "the output (Qwen3-Next) serve the same end; most models leave it to the first token.",
        "the base, with every sink at minus infinity",
        ("gpt-oss",),
        "Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2023; OpenAI, gpt-oss, 2025",
        _attention_sink,
    ),
    Fork(
        "no-qk-norm", "qk-norm", "Raw queries and keys", 2017, "Vaswani et al.; Llama", "norm", ("attention.qk_norm",),
        "RMSNorm on each head's query and key", "none",
        "QK-norm bounds the logits, at the price of two norms a layer and of heads that can no longer weigh tokens by "
        "the length of their vectors. Llama, Mistral and gpt-oss do without.",
        "stage gqa itself: the base's own step undone",
        ("Llama 3", "Mistral 7B", "Mixtral", "Gemma 2", "SmolLM3", "Command A", "gpt-oss"),
        "Vaswani et al., Attention Is All You Need, 2017; Touvron et al., Llama, 2023",
        _no_qk_norm,
    ),
    Fork(
        "qk-norm-full-width", "qk-norm", "QK-norm across heads", 2024, "OLMo 2", "norm", ("attention.qk_norm",),
        "one mean square for each head", "one for all heads of a token",
        "Across heads, a loud head stays louder than a quiet one and the bound is on all together; the mean needs all "
        "heads at hand, also where devices share them. OLMo 2 and 3 norm across, Qwen3 and Gemma 3 each head.",
        "the base, where there is one query head and one key-value head",
        ("OLMo 2", "Olmo 3"),
        "OLMo Team, 2 OLMo 2 Furious, 2024",
        _qk_norm_full_width,
    ),
    Fork(
        "gated-attention", "qk-norm", "A gate on every feature", 2025, "Qwen3-Next; Trinity", "attention",
        ("attention.gate",),
        "heads write what they gathered", "times a sigmoid of the token that asked, feature by feature",
        "A head can now say nothing without a place to park its weight, for one more matrix a layer. Qwen3-Next, "
        "Qwen3.5 and Trinity gate; gpt-oss has sinks instead; most models neither.",
        "with its matrix at 0 every gate is 1/2: the base, once the output matrix is doubled",
        ("Qwen3-Next", "Qwen3.5", "Trinity Large"),
        "Qiu et al., Gated Attention for Large Language Models, 2025",
        _gated_attention,
    ),
    Fork(
        "headwise-gate", "qk-norm", "A gate on every head", 2026, "Step 3.5", "attention", ("attention.gate",),
        "heads write what they gathered", "times one sigmoid for each head, of the token that asked",
        "How fine must a gate be? One number a head costs next to nothing and can silence it as well.",
        "with its matrix at 0 every gate is 1/2: the base, once the output matrix is doubled",
        ("Step 3.5 Flash",),
        "Qiu et al., Gated Attention for Large Language Models, 2025; StepFun, Step 3.5 Flash, 2026",
        _headwise_gate,
    ),
    Fork(
        "logit-softcap", "qk-norm", "Scores within a soft cap", 2024, "Gemma 2", "attention", ("attention.softcap",),
        "scores of any size", "cap · tanh(score / cap), with a cap of 50",
        "A bound on the scores, as QK-norm is, but fused kernels must know of it (torch's does not, so this fork runs "
        "in its plain form). Gemma 2 capped the output's logits too, at 30; Gemma 3 gave both up for QK-norm.",
        "the base as the cap grows: a score s moves by at most |s|³ / (3 cap²)",
        ("Gemma 2",),
        "Gemma Team, Gemma 2, 2024",
        _logit_softcap,
    ),
    Fork(
        "qkv-bias", "qk-norm", "Biases on q, k, v", 2023, "Qwen; GLM-4.5", "attention", ("attention.qkv_bias",),
        "no biases anywhere", "on the maps to queries, keys and values, and no others",
        "Qwen kept these through Qwen2.5 for longer contexts, and Qwen3 dropped them for QK-norm; GLM-4.5 keeps them. "
        "Under rotation a key's bias is not redundant: it turns with the key.",
        "the base, while every bias is 0",
        ("Qwen2.5", "GLM-4.5"),
        "Bai et al., Qwen, 2023; GLM-4.5 Team, GLM-4.5, 2025",
        _qkv_bias,
    ),
    Fork(
        "mqa", "gqa", "One key-value head", 2019, "Shazeer; PaLM", "cache", ("attention.n_kv_heads",),
        "several query heads share a key-value head", "all of them share one",
        "The smallest cache that whole keys and values allow. PaLM and Falcon 7B went this far; groups of a few cost "
        "little more memory and were measured to lose less.",
        "the base whose key-value heads are copies of one",
        ("PaLM", "Falcon 7B"),
        "Shazeer, Fast Transformer Decoding, 2019; Ainslie et al., GQA, 2023",
        _mqa,
    ),
    Fork(
        "mla", "gqa", "Keys and values from a latent", 2024, "DeepSeek-V2, V3; Kimi K2", "cache", ("attention",),
        "query heads share cached keys and values", "each unfolds its own from one short vector, which alone is cached",
        "GQA shrinks the cache by keeping fewer heads, MLA by keeping a rank: here the latent is as wide as the base's "
        "keys alone, and with one rotary key of half a head for all heads the cache is 5/8 of the base's (9/16 at size "
        "small). It pays with more matrices, and with scores against the latent when decoding.",
        "where nothing rotates and no latent is normed: the base whose map to queries, and whose maps to keys and "
        "values together, have no more rank than the latents",
        ("DeepSeek-V2", "DeepSeek-V3", "Kimi K2", "GLM-5 (with an indexer)", "Sarvam 105B (without q_rank)"),
        "DeepSeek-AI, DeepSeek-V2, 2024",
        _mla,
    ),
    Fork(
        "hybrid-mla", "hybrid", "Latents in the global layers", 2025, "Kimi Linear; Ling 2.5", "cache", ("attention",),
        "every fourth layer caches keys and values", "it caches a latent and one rotary key",
        "In a hybrid only the global layers' caches grow, so halving those nearly halves the whole. The latent's norm "
        "stands where QK-norm stood. Kimi Linear and Ling 2.5 cache latents there, Qwen3-Next keys and values.",
        "that of mla to gqa in the global layers, once the base's have no QK-norm",
        ("Kimi Linear 48B (KDA in the others, no rotation)", "Ling 2.5 1T (lightning attention in the others, 7 : 1)"),
        "Kimi Team, Kimi Linear, 2025; DeepSeek-AI, DeepSeek-V2, 2024",
        _mla,
    ),
    Fork(
        "sparse-attention", "mla", "An indexer chooses the tokens", 2025, "DeepSeek-V3.2; GLM-5", "attention",
        ("attention.indexer",),
        "every query attends to all tokens in sight", "to the quarter of a context that a cheap indexer scores highest",
        "A window forgets by distance, an indexer by content, and the work of attention stops growing with the text; "
        "that of the indexer still grows, and its key a token joins the cache. It learns to imitate attention, dense "
        "for the first steps. Whether choices of tokens or of blocks (NSA, MoBA) serve better is open.",
        "the base, bit for bit, where no more tokens are in sight than it chooses",
        ("DeepSeek-V3.2", "GLM-5"),
        "DeepSeek-AI, DeepSeek-V3.2, 2025",
        _sparse_attention,
    ),
)  # fmt: skip
