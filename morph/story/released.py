"""Released models as Morph's own configs: the one place from which figures and notebooks read published sizes.

Sizes are those of the published config files. `parameters` is what Hugging Face's transformers 5.23 counts of the same
model built without storage, tied tables once and MTP heads left out: a test holds `morph.count` of every config to it,
so that a size mistyped here does not pass. What weighs nothing (bases, scales, clamps) is as published where figures
read it, and else Morph's usual value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from morph.config import (
    MLA,
    MLP,
    AllGlobal,
    AllLocal,
    Attention,
    ClampedGatedMLP,
    DenseFirst,
    ExpertBiases,
    FullWidthRMSNorm,
    GatedDeltaNet,
    GatedMLP,
    Indexer,
    Interleaved,
    KimiDelta,
    LayerNorm,
    LearnedPosition,
    LinearRope,
    Listed,
    ModelConfig,
    MoE,
    NoBalance,
    NoPosition,
    OutputGate,
    PartialRope,
    PerLayer,
    RMSNorm,
    Rope,
    SelectionBias,
    SharedGate,
    SigmoidRouter,
    Sink,
    SlidingWindow,
    Softcap,
    SomeLayers,
    YarnRope,
    ZeroCentredRMSNorm,
)

LITGPT = "Lightning-AI/litgpt, litgpt/config.py"


@dataclass(frozen=True, kw_only=True)
class Released:
    """A model that anyone can read about or download.

    Attributes:
        year: of its release.
        config: the model in Morph's terms.
        parameters: what transformers counts of it.
        source: where its sizes are published.
    """

    year: int
    config: ModelConfig
    parameters: int
    source: str


_LLAMA_2 = ModelConfig(
    vocab_size=32_000, d_model=4096, n_layers=32, context_length=4096, placement="pre", norm=RMSNorm(), bias=False,
    position=Rope(), attention=Attention(n_heads=32, n_kv_heads=32, head_dim=128), layout=AllGlobal(),
    feed_forward=GatedMLP(width=11_008, activation="silu"), tied=False, embedding_scale=1.0,
)  # fmt: skip
_QWEN_3 = replace(_LLAMA_2, vocab_size=151_936, context_length=40_960, norm=RMSNorm(eps=1e-6), position=Rope(base=1e6))
_QK = RMSNorm(eps=1e-6)


def _mixtral_experts(width: int, n_experts: int, top_k: int) -> MoE:
    return MoE(
        expert=GatedMLP(width=width, activation="silu"), n_experts=n_experts, top_k=top_k, routed_scale=1.0,
        balance=NoBalance(),
    )  # fmt: skip


def _gpt_oss(layers: int, n_experts: int) -> ModelConfig:
    return replace(
        _LLAMA_2, vocab_size=201_088, d_model=2880, n_layers=layers, context_length=131_072, bias=True,
        position=YarnRope(base=150_000.0, factor=32.0, original_length=4096, truncate=False),
        attention=Attention(n_heads=64, n_kv_heads=8, head_dim=64, sink=Sink()),
        layout=Interleaved(n_local=1, local=SlidingWindow(window=128)),
        feed_forward=MoE(
            expert=ClampedGatedMLP(width=2880), n_experts=n_experts, top_k=4, routed_scale=1.0, balance=NoBalance(),
            biases=ExpertBiases(),
        ),
    )  # fmt: skip


def _deepseek(
    n_heads: int, n_experts: int, n_dense: int, scale: float, *, width: int = 18_432, expert: int = 2048
) -> ModelConfig:
    return replace(
        _LLAMA_2, vocab_size=129_280, d_model=7168, n_layers=61, context_length=163_840, norm=RMSNorm(eps=1e-6),
        position=YarnRope(factor=40.0, original_length=4096, attention_scale=1.0, pairing="interleaved"),
        attention=MLA(n_heads=n_heads, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
        feed_forward=DenseFirst(
            n_dense=n_dense,
            dense=GatedMLP(width=width, activation="silu"),
            experts=MoE(
                expert=GatedMLP(width=expert, activation="silu"), n_experts=n_experts, n_shared=1, top_k=8,
                routed_scale=scale, balance=SelectionBias(), router=SigmoidRouter(),
            ),
        ),
    )  # fmt: skip


def _with_indexer(config: ModelConfig, indexer: Indexer) -> ModelConfig:
    assert isinstance(config.attention, MLA)
    return replace(config, attention=replace(config.attention, indexer=indexer))


def _olmo(vocab: int, d_model: int, layers: int, width: int, heads: int, pairs: int) -> ModelConfig:
    """Windows rotate as trained first, global layers with YaRN; QK-norm spans the whole projection."""
    return replace(
        _LLAMA_2, vocab_size=vocab, d_model=d_model, n_layers=layers, context_length=65_536, placement="post-branch",
        norm=RMSNorm(eps=1e-6),
        position=PerLayer(
            local=Rope(base=500_000.0), global_=YarnRope(base=500_000.0, factor=8.0, original_length=8192)
        ),
        attention=Attention(n_heads=heads, n_kv_heads=pairs, head_dim=128, qk_norm=FullWidthRMSNorm(eps=1e-6)),
        layout=Interleaved(n_local=3, local=SlidingWindow(window=4096)),
        feed_forward=GatedMLP(width=width, activation="silu"),
    )  # fmt: skip


_GEMMA_3 = replace(
    _LLAMA_2, vocab_size=262_208, d_model=5376, n_layers=62, context_length=131_072, placement="sandwich",
    norm=ZeroCentredRMSNorm(eps=1e-6),
    position=PerLayer(local=Rope(), global_=LinearRope(base=1e6, factor=8.0)),
    attention=Attention(
        n_heads=32, n_kv_heads=16, head_dim=128, qk_norm=ZeroCentredRMSNorm(eps=1e-6), scale=168**-0.5
    ),
    layout=Interleaved(n_local=5, local=SlidingWindow(window=1024)),
    feed_forward=GatedMLP(width=21_504, activation="gelu-tanh"), tied=True, embedding_scale=None,
)  # fmt: skip

RELEASED: dict[str, Released] = {
    "GPT-2 XL": Released(
        year=2019,
        config=ModelConfig(
            vocab_size=50_257, d_model=1600, n_layers=48, context_length=1024, placement="pre", norm=LayerNorm(),
            bias=True, position=LearnedPosition(length=1024), attention=Attention(n_heads=25, n_kv_heads=25),
            layout=AllGlobal(), feed_forward=MLP(width=6400, activation="gelu-tanh"), embedding_scale=1.0,
        ),
        parameters=1_557_611_200,
        source="openai/gpt-2, src/model.py; config.json of openai-community/gpt2-xl",
    ),
    "Llama 2 7B": Released(
        year=2023,
        config=_LLAMA_2,
        parameters=6_738_415_616,
        source=f"transformers, LlamaConfig; {LITGPT}",
    ),
    "Mistral 7B": Released(
        year=2023,
        config=replace(
            _LLAMA_2, context_length=32_768,
            attention=Attention(n_heads=32, n_kv_heads=8, head_dim=128),
            layout=AllLocal(local=SlidingWindow(window=4096)),
            feed_forward=GatedMLP(width=14_336, activation="silu"),
        ),
        parameters=7_241_732_096,
        source=f"transformers, MistralConfig (v0.1); {LITGPT}",
    ),
    "Mixtral 8×7B": Released(
        year=2023,
        config=replace(
            _LLAMA_2, context_length=32_768, position=Rope(base=1e6),
            attention=Attention(n_heads=32, n_kv_heads=8, head_dim=128),
            feed_forward=_mixtral_experts(14_336, 8, 2),
        ),
        parameters=46_702_792_704,
        source="transformers, MixtralConfig",
    ),
    "Llama 3 8B": Released(
        year=2024,
        config=replace(
            _LLAMA_2, vocab_size=128_256, context_length=8192, position=Rope(base=500_000.0),
            attention=Attention(n_heads=32, n_kv_heads=8, head_dim=128),
            feed_forward=GatedMLP(width=14_336, activation="silu"),
        ),
        parameters=8_030_261_248,
        source=LITGPT,
    ),
    "Gemma 2 9B": Released(
        year=2024,
        config=replace(
            _GEMMA_3, vocab_size=256_000, d_model=3584, n_layers=42, context_length=8192, position=Rope(),
            attention=Attention(n_heads=16, n_kv_heads=8, head_dim=256, softcap=Softcap()),
            layout=Interleaved(n_local=1, local=SlidingWindow(window=4096)),
            feed_forward=GatedMLP(width=14_336, activation="gelu-tanh"),
        ),
        parameters=9_241_705_984,
        source=f"transformers, Gemma2Config; {LITGPT}",
    ),
    "DeepSeek-V3": Released(
        year=2024,
        config=_deepseek(128, 256, 3, 2.5),
        parameters=671_026_404_352,
        source="deepseek-ai/DeepSeek-V3, inference/configs/config_671B.json; transformers, DeepseekV3Config",
    ),
    "Gemma 3 27B": Released(
        year=2025,
        config=_GEMMA_3,
        parameters=27_009_346_304,
        source=f"config.json of google/gemma-3-27b-it, text part; {LITGPT}",
    ),
    "Qwen3-0.6B": Released(
        year=2025,
        config=replace(
            _QWEN_3, d_model=1024, n_layers=28, tied=True,
            attention=Attention(n_heads=16, n_kv_heads=8, head_dim=128, qk_norm=_QK),
            feed_forward=GatedMLP(width=3072, activation="silu"),
        ),
        parameters=596_049_920,
        source=LITGPT,
    ),
    "Qwen3-30B-A3B": Released(
        year=2025,
        config=replace(
            _QWEN_3, d_model=2048, n_layers=48,
            attention=Attention(n_heads=32, n_kv_heads=4, head_dim=128, qk_norm=_QK),
            feed_forward=_mixtral_experts(768, 128, 8),
        ),
        parameters=30_532_122_624,
        source=LITGPT,
    ),
    "Qwen3-235B-A22B": Released(
        year=2025,
        config=replace(
            _QWEN_3, d_model=4096, n_layers=94,
            attention=Attention(n_heads=64, n_kv_heads=4, head_dim=128, qk_norm=_QK),
            feed_forward=_mixtral_experts(1536, 128, 8),
        ),
        parameters=235_093_634_560,
        source=LITGPT,
    ),
    "SmolLM3 3B": Released(
        year=2025,
        config=replace(
            _LLAMA_2, vocab_size=128_256, d_model=2048, n_layers=36, context_length=65_536, norm=RMSNorm(eps=1e-6),
            position=SomeLayers(layers=tuple(range(3, 36, 4)), inside=NoPosition(), outside=Rope(base=5e6)),
            attention=Attention(n_heads=16, n_kv_heads=4, head_dim=128), tied=True,
        ),
        parameters=3_075_098_624,
        source="config.json of HuggingFaceTB/SmolLM3-3B-Base",
    ),
    "gpt-oss-20b": Released(
        year=2025,
        config=_gpt_oss(24, 32),
        parameters=20_914_757_184,
        source="openai/gpt-oss, gpt_oss/torch/model.py; transformers, GptOssConfig",
    ),
    "gpt-oss-120b": Released(
        year=2025,
        config=_gpt_oss(36, 128),
        parameters=116_829_156_672,
        source="openai/gpt-oss, gpt_oss/torch/model.py; transformers, GptOssConfig",
    ),
    "Olmo 3 7B": Released(
        year=2025,
        config=_olmo(100_278, 4096, 32, 11_008, 32, 32),
        parameters=7_298_011_136,
        source="config.json of allenai/Olmo-3-1025-7B; allenai/OLMo-core, src/olmo_core/nn/transformer/config.py",
    ),
    "Olmo 3 32B": Released(
        year=2025,
        config=_olmo(100_278, 5120, 64, 27_648, 40, 8),
        parameters=32_233_522_176,
        source="config.json of allenai/Olmo-3-1125-32B; allenai/OLMo-core, src/olmo_core/nn/transformer/config.py",
    ),
    "Qwen3-Next 80B-A3B": Released(
        year=2025,
        config=replace(
            _QWEN_3, d_model=2048, n_layers=48, context_length=262_144, norm=ZeroCentredRMSNorm(eps=1e-6),
            position=PartialRope(base=1e7, fraction=0.25),
            attention=Attention(
                n_heads=16, n_kv_heads=2, head_dim=256, qk_norm=ZeroCentredRMSNorm(eps=1e-6), gate=OutputGate()
            ),
            layout=Interleaved(
                n_local=3,
                local=GatedDeltaNet(n_key_heads=16, n_value_heads=32, key_head_dim=128, value_head_dim=128),
            ),
            feed_forward=replace(_mixtral_experts(512, 512, 10), n_shared=1, shared_gate=SharedGate()),
        ),
        parameters=79_674_391_296,
        source="config.json of Qwen/Qwen3-Next-80B-A3B-Instruct; transformers, Qwen3NextConfig",
    ),
    "DeepSeek-V3.2": Released(
        year=2025,
        config=_with_indexer(_deepseek(128, 256, 3, 2.5), Indexer(n_heads=64, head_dim=128, rope_dim=64, top_k=2048)),
        parameters=671_877_929_216,
        source="deepseek-ai/DeepSeek-V3.2-Exp, inference/config_671B_v3.2.json",
    ),
    "Kimi Linear 48B-A3B": Released(
        year=2025,
        config=replace(
            _deepseek(32, 256, 1, 2.446, width=9216, expert=1024), vocab_size=163_840, d_model=2304, n_layers=27,
            context_length=1_048_576, norm=RMSNorm(), position=NoPosition(),
            attention=MLA(n_heads=32, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
            layout=Listed(
                local=KimiDelta(n_heads=32, head_dim=128), global_layers=(3, 7, 11, 15, 19, 23, 26),
            ),
        ),
        parameters=49_122_675_072,
        source="config.json of moonshotai/Kimi-Linear-48B-A3B-Instruct; transformers, KimiLinearConfig",
    ),
    "Trinity Large": Released(
        year=2026,
        config=replace(
            _LLAMA_2, vocab_size=200_192, d_model=3072, n_layers=60, context_length=262_144, placement="sandwich",
            position=PerLayer(local=Rope(), global_=NoPosition()),
            attention=Attention(n_heads=48, n_kv_heads=8, head_dim=128, qk_norm=RMSNorm(), gate=OutputGate()),
            layout=Interleaved(n_local=3, local=SlidingWindow(window=4096)),
            feed_forward=DenseFirst(
                n_dense=6,
                dense=GatedMLP(width=12_288, activation="silu"),
                experts=MoE(
                    expert=GatedMLP(width=3072, activation="silu"), n_experts=256, n_shared=1, top_k=4,
                    routed_scale=2.448, balance=SelectionBias(), router=SigmoidRouter(),
                ),
            ),
            embedding_scale=None,
        ),
        parameters=398_635_272_192,
        source="config.json of arcee-ai/Trinity-Large-Preview; without its 54 × 256 frozen selection biases",
    ),
    "Kimi K2.5": Released(
        year=2026,
        config=replace(
            _deepseek(64, 384, 1, 2.827), vocab_size=163_840, context_length=262_144, norm=RMSNorm(),
            position=YarnRope(
                base=50_000.0, factor=64.0, original_length=4096, attention_scale=1.0, pairing="interleaved"
            ),
        ),
        parameters=1_026_408_209_408,
        source="moonshotai/Kimi-K2.5, README and config.json, text part",
    ),
    "GLM-5": Released(
        year=2026,
        config=_with_indexer(
            replace(
                _deepseek(64, 256, 3, 2.5, width=12_288), vocab_size=154_880, d_model=6144, n_layers=78,
                context_length=202_752, norm=RMSNorm(), position=Rope(base=1e6, pairing="interleaved"),
                attention=MLA(n_heads=64, q_rank=2048, kv_rank=512, nope_dim=192, rope_dim=64, v_dim=256),
            ),
            Indexer(n_heads=32, head_dim=128, rope_dim=64, top_k=2048, pairing="interleaved"),
        ),
        parameters=743_911_199_232,
        source="zai-org/GLM-5, README; transformers, GlmMoeDsaConfig",
    ),
}  # fmt: skip
"""Name -> model, in order of the years."""
