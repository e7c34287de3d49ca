"""Fourteen named changes that turn the 2017 block into a hybrid mixture of experts.

Stage 0 is the 2017 block, decoder only. Stage k is stage k-1 with step k applied. A step touches one organ (the
config paths in `Step.paths`) and leaves everything else as it was: embedding, initialization and recipe included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from morph.config import (
    MLP,
    AllGlobal,
    Attention,
    AuxiliaryLoss,
    DenseFirst,
    GatedDeltaNet,
    GatedMLP,
    Interleaved,
    LayerNorm,
    ModelConfig,
    MoE,
    RMSNorm,
    Rope,
    SelectionBias,
    Sinusoid,
    SlidingWindow,
    as_kind,
)
from morph.errors import MorphError, nearest, short
from morph.spec import require

Role = Literal["norm", "position", "attention", "ffn", "cache"]


@dataclass(frozen=True)
class Size:
    """Widths and depth of a stage. `d_model` is a multiple of 48, so that 8/3 of it is whole and so are its eighths."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    context_length: int
    window: int


SIZES = {
    "nano": Size(vocab_size=256, d_model=48, n_layers=4, n_heads=4, n_kv_heads=2, context_length=64, window=16),
    "tiny": Size(vocab_size=256, d_model=96, n_layers=4, n_heads=4, n_kv_heads=2, context_length=128, window=32),
    # GPT-2's shape and its vocabulary rounded up to a multiple of 64: 124M parameters at stage 0.
    "small": Size(
        vocab_size=50304, d_model=768, n_layers=12, n_heads=12, n_kv_heads=4, context_length=1024, window=256
    ),
}

Apply = Callable[[ModelConfig, Size], ModelConfig]


@dataclass(frozen=True)
class Step:
    """One named change.

    Attributes:
        number: 1 to 14.
        slug: the name used on the command line and in Python.
        title: a short heading.
        year, origin: the paper or model that the field took it from, and when; roots can be older.
        role: the kind of organ it touches; figures colour by it.
        paths: the config fields it may change, and no others.
        before, after: the change in words.
        pressure: what drove the field to it.
        relation: how stage k relates to stage k-1, exactly; the tests assert it.
        source: paper.
    """

    number: int
    slug: str
    title: str
    year: int
    origin: str
    role: Role
    paths: tuple[str, ...]
    before: str
    after: str
    pressure: str
    relation: str
    source: str
    apply: Apply


def experts_of(config: ModelConfig) -> MoE:
    """The mixture that a change touches. Raises MorphError when the config has none."""
    ffn = config.feed_forward
    return ffn.experts if isinstance(ffn, DenseFirst) else as_kind(ffn, MoE, "feed_forward")


def with_experts(config: ModelConfig, moe: MoE) -> ModelConfig:
    """The config with another mixture in the layers that have one; layers that stay dense stay as they are."""
    ffn = config.feed_forward
    return replace(config, feed_forward=replace(ffn, experts=moe) if isinstance(ffn, DenseFirst) else moe)


def attention_of(config: ModelConfig) -> Attention:
    """The softmax attention that a change touches. Raises MorphError when it is of another kind."""
    return as_kind(config.attention, Attention, "attention")


def _pre_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, placement="pre")


def _rms_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, norm=RMSNorm(eps=config.norm.eps))


def _no_bias(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, bias=False)


def _rope(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, position=Rope())


def _silu(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, feed_forward=replace(as_kind(config.feed_forward, MLP, "feed_forward"), activation="silu"))


def _gated_ffn(config: ModelConfig, size: Size) -> ModelConfig:
    mlp = as_kind(config.feed_forward, MLP, "feed_forward")
    width = 2 * mlp.width // 3  # three matrices of 8d/3 hold as much as two of 4d
    return replace(config, feed_forward=GatedMLP(width=width, activation=mlp.activation))


def _gqa(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), n_kv_heads=size.n_kv_heads))


def _qk_norm(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, attention=replace(attention_of(config), qk_norm=RMSNorm(eps=config.norm.eps)))


def _sliding_window(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, layout=Interleaved(n_local=3, local=SlidingWindow(window=size.window)))


def _moe(config: ModelConfig, size: Size) -> ModelConfig:
    dense = as_kind(config.feed_forward, GatedMLP, "feed_forward")
    half = replace(dense, width=dense.width // 2)
    moe = MoE(expert=half, n_experts=8, top_k=2, routed_scale=2.0, balance=AuxiliaryLoss())
    return replace(config, feed_forward=moe)


def _fine_grained(config: ModelConfig, size: Size) -> ModelConfig:
    moe = experts_of(config)
    quarter = replace(moe.expert, width=moe.expert.width // 4)
    n, k, scale = 4 * moe.n_experts, 4 * moe.top_k, 4 * moe.routed_scale
    return with_experts(config, replace(moe, expert=quarter, n_experts=n, top_k=k, routed_scale=scale))


def _shared_expert(config: ModelConfig, size: Size) -> ModelConfig:
    moe = experts_of(config)
    k, scale = moe.top_k - 1, moe.routed_scale / moe.top_k  # one routed expert less, the others weighed as before
    require(k > 0, "top_k is 1: a shared expert takes the place of one of several routed ones; start from top_k > 1")
    return with_experts(config, replace(moe, n_shared=moe.n_shared + 1, top_k=k, routed_scale=k * scale))


def _loss_free_balance(config: ModelConfig, size: Size) -> ModelConfig:
    return with_experts(config, replace(experts_of(config), balance=SelectionBias()))


def _hybrid(config: ModelConfig, size: Size) -> ModelConfig:
    layout, attention = as_kind(config.layout, Interleaved, "layout"), attention_of(config)
    delta = GatedDeltaNet(
        n_key_heads=attention.n_kv_heads,
        n_value_heads=attention.n_heads,
        key_head_dim=attention.width,
        value_head_dim=attention.width,
    )
    return replace(config, layout=replace(layout, local=delta))


STEPS: tuple[Step, ...] = (
    Step(
        1, "pre-norm", "Norm moves to the branch", 2019, "GPT-2", "norm", ("placement",),
        "a norm on the stream after every addition", "a norm on each branch's input, and one before the head",
        "Depth: gradients must reach layer 1, and training must start without a delicate warm-up.",
        "norms replaced by the identity, both stages compute the same",
        "Xiong et al., On Layer Normalization in the Transformer Architecture, 2020",
        _pre_norm,
    ),
    Step(
        2, "rms-norm", "RMSNorm", 2019, "Zhang & Sennrich; Llama", "norm", ("norm",),
        "LayerNorm: mean and variance, gain and shift", "RMSNorm: mean square and a gain",
        "Speed: one sum over the features instead of two, felt most where the features are sharded.",
        "RMS(x - mean x) equals LN(x) with zero shift",
        "Zhang & Sennrich, Root Mean Square Layer Normalization, 2019",
        _rms_norm,
    ),
    Step(
        3, "no-bias", "No biases", 2022, "PaLM", "ffn", ("bias",),
        "a bias on every linear map", "none",
        "Stability: PaLM reported steadier training of large models without them.",
        "stage 2 with its biases at 0",
        "Chowdhery et al., PaLM, 2022",
        _no_bias,
    ),
    Step(
        4, "rope", "Rotary positions", 2021, "RoFormer; Llama", "position", ("position",),
        "sines and cosines added to the embedding once", "queries and keys rotated in every layer",
        "Length: attention should depend on the distance between tokens, in every layer.",
        "with the sinusoid at 0 and every rotation at position 0, both stages compute the same",
        "Su et al., RoFormer, 2021",
        _rope,
    ),
    Step(
        5, "silu", "SiLU", 2017, "Swish", "ffn", ("feed_forward.activation",),
        "ReLU", "SiLU, z · sigmoid(z)",
        "Optimization: a smooth activation passes some gradient below zero.",
        "SiLU(beta z) / beta approaches ReLU(z), error at most 0.2785 / beta",
        "Ramachandran et al., Searching for Activation Functions, 2017",
        _silu,
    ),
    Step(
        6, "gated-ffn", "Gated feed-forward", 2020, "SwiGLU", "ffn", ("feed_forward",),
        "two matrices of width 4d", "three of width 8d/3: a gate multiplies the value",
        "Parameter use: a product of two projections for the same number of weights.",
        "with the value branch held at 1 it is the ungated network",
        "Shazeer, GLU Variants Improve Transformer, 2020",
        _gated_ffn,
    ),
    Step(
        7, "gqa", "Grouped keys and values", 2023, "Ainslie et al.", "cache", ("attention.n_kv_heads",),
        "one key-value head per query head", "several query heads share one",
        "Decoding: every step re-reads the whole cache, so its bytes set the speed.",
        "stage 6 whose key-value heads are copies within a group",
        "Ainslie et al., GQA, 2023",
        _gqa,
    ),
    Step(
        8, "qk-norm", "QK-norm", 2023, "ViT-22B", "norm", ("attention.qk_norm",),
        "raw queries and keys", "RMSNorm on each head's query and key",
        "Numerical range: without a bound on q and k, logits grow and the softmax saturates.",
        "queries and keys of unit RMS pass unchanged",
        "Henry et al., Query-Key Normalization, 2020; Dehghani et al., Scaling Vision Transformers, 2023",
        _qk_norm,
    ),
    Step(
        9, "sliding-window", "Windows, 3 : 1", 2020, "Longformer; Gemma, Olmo 3", "attention", ("layout",),
        "every layer sees the whole past", "three layers in four see the last w tokens",
        "Context: the cache and the work of attention grow with every token kept in sight.",
        "a window at least as long as the text",
        "Beltagy et al., Longformer, 2020; Olmo Team, Olmo 3, 2025",
        _sliding_window,
    ),
    Step(
        10, "moe", "Mixture of experts", 2023, "Mixtral", "ffn", ("feed_forward",),
        "one dense network for every token", "8 experts of half the width, 2 chosen per token",
        "Capacity: more parameters without more arithmetic per token.",
        "router rows in equal pairs, each pair the two halves of the dense network",
        "Shazeer et al., 2017; Jiang et al., Mixtral of Experts, 2024",
        _moe,
    ),
    Step(
        11, "fine-grained", "Finer experts", 2024, "DeepSeekMoE", "ffn",
        ("feed_forward.expert.width", "feed_forward.n_experts", "feed_forward.top_k", "feed_forward.routed_scale"),
        "8 experts, 2 chosen", "32 experts of a quarter the width, 8 chosen",
        "Specialization: the same budget buys far more combinations of experts.",
        "router rows repeated four times, each expert cut in four",
        "Dai et al., DeepSeekMoE, 2024",
        _fine_grained,
    ),
    Step(
        12, "shared-expert", "A shared expert", 2024, "DeepSeekMoE", "ffn",
        ("feed_forward.n_shared", "feed_forward.top_k", "feed_forward.routed_scale"),
        "8 of 32 routed", "7 of 32 routed and one that every token uses",
        "Specialization: what every token needs should not be learned by every expert.",
        "the shared expert silenced, stage 11 with top-7",
        "Dai et al., DeepSeekMoE, 2024",
        _shared_expert,
    ),
    Step(
        13, "loss-free-balance", "Balance without a loss", 2024, "DeepSeek-V3", "ffn", ("feed_forward.balance",),
        "an auxiliary loss spreads the load", "a bias on the choice, moved by the load it sees",
        "Interference: a balancing gradient pulls against the objective.",
        "the same forward while every bias is 0",
        "Wang et al., Auxiliary-Loss-Free Load Balancing, 2024; DeepSeek-AI, DeepSeek-V3, 2024",
        _loss_free_balance,
    ),
    Step(
        14, "hybrid", "Hybrid, 3 : 1", 2025, "Qwen3-Next", "attention", ("layout.local",),
        "local layers attend to a window", "local layers keep a fixed state: Gated DeltaNet",
        "Reach: a window forgets what lies behind it; a state of fixed size keeps a lossy summary of it all.",
        "none: a change of kind. Its chunked form equals its recurrent form",
        "Yang et al., Gated Delta Networks, 2024; Qwen Team, Qwen3-Next, 2025",
        _hybrid,
    ),
)  # fmt: skip

ORIGINAL = "2017"
SLUGS: tuple[str, ...] = (ORIGINAL, *(step.slug for step in STEPS))


def original(size: Size) -> ModelConfig:
    """The 2017 block as a decoder: post-LN, added sinusoid, full multi-head attention, ReLU network of 4d, biases."""
    return ModelConfig(
        vocab_size=size.vocab_size,
        d_model=size.d_model,
        n_layers=size.n_layers,
        context_length=size.context_length,
        placement="post",
        norm=LayerNorm(),
        bias=True,
        position=Sinusoid(),
        attention=Attention(n_heads=size.n_heads, n_kv_heads=size.n_heads),
        layout=AllGlobal(),
        feed_forward=MLP(width=4 * size.d_model, activation="relu"),
    )


def number_of(stage: int | str) -> int:
    """The number, 0 to 14, of a stage given as number, digits or slug. Raises `MorphError` naming the nearest slug."""
    word = str(stage)
    numbers = [str(number) for number in range(len(SLUGS))]
    if isinstance(stage, bool) or word not in (*SLUGS, *numbers):
        raise MorphError(
            f"unknown stage {word[:40]!r}: give 0 to {len(STEPS)} or one of {', '.join(SLUGS)}{nearest(word, SLUGS)}"
        )
    return SLUGS.index(word) if word in SLUGS else numbers.index(word)


def slug_of(stage: int | str) -> str:
    """The slug of a stage given as number, digits or slug."""
    return SLUGS[number_of(stage)]


def size_of(size: str | Size) -> Size:
    """The widths of a named size, or those given. Raises `MorphError` for an unknown name."""
    if isinstance(size, Size):
        return size
    if not isinstance(size, str) or size not in SIZES:
        raise MorphError(f"unknown size {short(size)}: choose one of {', '.join(SIZES)}{nearest(size, SIZES)}")
    return SIZES[size]


def stage(number: int | str, size: str | Size = "tiny") -> ModelConfig:
    """The config after steps 1 to `number` (0, or "2017", is the original block), at a named size or at widths given.

    Raises:
        MorphError: for an unknown stage or size.
    """
    widths, last = size_of(size), number_of(number)
    config = original(widths)
    for step in STEPS[:last]:
        config = step.apply(config, widths)
    return config
