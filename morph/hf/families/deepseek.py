"""DeepSeek-V3 and V3.2 (DeepSeek-AI, 2024 and 2025), Kimi K2 (Moonshot AI, 2025) and GLM-5 (Zhipu AI, 2026).

All have latent attention and experts that a sigmoid chooses; Kimi K2 is a V3 without groups, under a name of its own
that transformers does not know: it is read, and written as a V3.
V3.2 and GLM-5 attend to what an indexer chooses; they differ in which features of it are pairs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from morph.config import MLA, AllGlobal, Indexer, ModelConfig, Pairing, RMSNorm, Rotary, as_kind
from morph.errors import MorphError
from morph.hf.families.experts import (
    count_dense,
    dense_first,
    moe_rules,
    read_deepseek_experts,
    write_deepseek_experts,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import read_frame, write_frame
from morph.hf.families.latent import latent_rules, read_latents, sharpened, write_latents, write_turns
from morph.hf.families.parts import decoder_rules
from morph.hf.families.rotation import read_rotation
from morph.hf.settings import Settings

V3_SIZES, GLM_SIZES = (512, 128, 64, 128), (512, 192, 64, 256)


def _ignore_training(s: Settings) -> None:
    """Keys of the releases on what training does, and on what the class does in any case."""
    s.ignore("aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers")
    s.only("scoring_func", "sigmoid")
    s.only("topk_method", "noaux_tc")
    s.only("moe_layer_freq", 1)


def _read(s: Settings, attention: MLA, eps: float, context: int, pairing: Pairing, feed_forward: Any) -> ModelConfig:
    _ignore_training(s)
    frame = read_frame(s, context)
    rotation = read_rotation(s, 10_000.0, frame["context_length"], pairing)
    return ModelConfig(
        **frame,
        placement="pre",
        norm=RMSNorm(eps=s.number("rms_norm_eps", eps)),
        position=rotation,
        attention=replace(attention, scale=sharpened(s, attention.width, rotation)),
        layout=AllGlobal(),
        feed_forward=feed_forward,
    )


def read_v3(s: Settings) -> ModelConfig:
    n_dense = count_dense(s, s.whole("num_hidden_layers"), 3)
    experts = read_deepseek_experts(s, width=2048, n_experts=256, scale=2.5, n_groups=8, n_kept=4)
    feed_forward = dense_first(n_dense, s.whole("intermediate_size", 18_432), experts)
    pairing: Pairing = "interleaved" if s.flag("rope_interleave", True) else "half-split"
    return _read(s, read_latents(s, 128, 1536, V3_SIZES), 1e-6, 4096, pairing, feed_forward)


def write_v3(config: ModelConfig) -> dict[str, Any]:
    position = as_kind(config.position, Rotary, "position")
    return {
        **write_frame(config),
        **write_latents(config),
        **write_turns(config),
        **write_deepseek_experts(config),
        "rope_interleave": position.pairing == "interleaved",
        "num_nextn_predict_layers": 0,
    }


def write_k2(config: ModelConfig) -> dict[str, Any]:
    raise MorphError("transformers has no class of this name; save it as deepseek_v3")


def _read_indexed(s: Settings, attention: MLA, n_heads: int, pairing: Pairing) -> MLA:
    """Attention with its indexer, all layers alike."""
    layers = s.whole("num_hidden_layers")
    for name, word in (("layer_types", "indexed_attention"), ("indexer_types", "full")):
        if name in s:
            s.words(name, layers, (word,))
    s.only("index_topk_freq", 1)
    s.only("mlp_bias", False)
    indexer = Indexer(
        n_heads=s.whole("index_n_heads", n_heads),
        head_dim=s.whole("index_head_dim", 128),
        rope_dim=attention.rope_dim,
        top_k=s.whole("index_topk", 2048),
        pairing=pairing,
    )
    return replace(attention, indexer=indexer)


def read_v32(s: Settings) -> ModelConfig:
    n_dense = count_dense(s, s.whole("num_hidden_layers"), 3)
    experts = read_deepseek_experts(s, width=2048, n_experts=256, scale=2.5, n_groups=8, n_kept=4)
    feed_forward = dense_first(n_dense, s.whole("intermediate_size", 18_432), experts)
    attention = _read_indexed(s, read_latents(s, 128, 1536, V3_SIZES), 64, "half-split")
    return _read(s, attention, 1e-6, 163_840, "interleaved", feed_forward)


def read_glm(s: Settings) -> ModelConfig:
    n_dense = count_dense(s, s.whole("num_hidden_layers"), 3)
    experts = read_deepseek_experts(s, width=2048, n_experts=256, scale=2.5, n_groups=1, n_kept=1)
    feed_forward = dense_first(n_dense, s.whole("intermediate_size", 12_288), experts)
    attention = _read_indexed(s, read_latents(s, 64, 2048, GLM_SIZES), 32, "interleaved")
    return _read(s, attention, 1e-5, 202_752, "interleaved", feed_forward)


def write_indexed(config: ModelConfig) -> dict[str, Any]:
    indexer = as_kind(config.attention, MLA, "attention").indexer
    if indexer is None:
        raise MorphError("attention.indexer is missing, and every layer of this family has one")
    experts = write_deepseek_experts(config)
    n_dense = experts["first_k_dense_replace"]
    return {
        **write_frame(config),
        **write_latents(config),
        **write_turns(config),
        **experts,
        "mlp_layer_types": ["dense"] * n_dense + ["sparse"] * (config.n_layers - n_dense),
        "index_n_heads": indexer.n_heads,
        "index_head_dim": indexer.head_dim,
        "index_topk": indexer.top_k,
    }


_experts = partial(moe_rules, bias="mlp.gate.e_score_correction_bias")
_rules = partial(decoder_rules, mixer=latent_rules, feed_forward=_experts)
_packed = (partial(_rules, feed_forward=partial(_experts, is_packed=True)),)

DEEPSEEK_V3 = Family("deepseek_v3", "DeepseekV3ForCausalLM", read_v3, write_v3, _rules, _packed)
KIMI_K2 = Family("kimi_k2", "DeepseekV3ForCausalLM", read_v3, write_k2, _rules, _packed)
DEEPSEEK_V32 = Family("deepseek_v32", "DeepseekV32ForCausalLM", read_v32, write_indexed, _rules, _packed)
GLM_MOE_DSA = Family("glm_moe_dsa", "GlmMoeDsaForCausalLM", read_glm, write_indexed, _rules, _packed)
