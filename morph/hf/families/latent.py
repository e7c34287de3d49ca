"""What families with latent attention share: its keys in config.json, and its weights by DeepSeek's names."""

from __future__ import annotations

from typing import Any

from morph.config import MLA, ModelConfig, Rotation, YarnRope, as_kind
from morph.hf.families.rotation import write_rotation
from morph.hf.settings import Settings
from morph.hf.weights import Rule, copied
from morph.nn.position import yarn_scale
from morph.records.mixing import yarn_softmax_scale

LATENT_EPS = 1e-6
"""Of the norms of both latents, whatever `rms_norm_eps` is."""

KEYS = {
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
    "nope_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "v_dim": "v_head_dim",
}
INDEXER = {"q_proj": "wq_b", "k_proj": "wk", "k_norm": "k_norm", "weights_proj": "weights_proj"}


def read_latents(s: Settings, heads: int, q_rank: int | None, sizes: tuple[int, int, int, int]) -> MLA:
    """Latent attention; the values are what is assumed where keys are missing, `sizes` from `kv_rank` to `v_dim`."""
    s.only("attention_bias", False)
    n_heads = s.whole("num_attention_heads", heads)
    s.only("num_key_value_heads", n_heads)
    s.ignore("qk_head_dim", "head_dim")  # the sum of two keys, and one of them
    rest: dict[str, Any] = {
        field: s.whole(KEYS[field], size) for field, size in zip(list(KEYS)[1:], sizes, strict=True)
    }
    return MLA(n_heads=n_heads, q_rank=s.whole_or_none("q_lora_rank", q_rank), eps=LATENT_EPS, **rest)


def write_latents(config: ModelConfig) -> dict[str, Any]:
    """The same, the other way."""
    spec = as_kind(config.attention, MLA, "attention")
    return {
        "num_attention_heads": spec.n_heads,
        "num_key_value_heads": spec.n_heads,
        **{key: getattr(spec, field) for field, key in KEYS.items()},
    }


def sharpened(s: Settings, width: int, rotation: Rotation) -> float | None:
    """The scale of scores that DeepSeek's `mscale_all_dim` asks for; None for 1/√width.

    YaRN's factor on cosines and sines is then 1, and the softmax of all features is sharper instead.
    """
    for name in ("rope_parameters", "rope_scaling"):
        strength = s.values[name].get("mscale_all_dim") if name in s else None
        if strength and isinstance(rotation, YarnRope):
            return yarn_softmax_scale(width, rotation.factor, strength)
    return None


def write_turns(config: ModelConfig) -> dict[str, Any]:
    """`rope_parameters` of a rotation, and with them the scale of scores as DeepSeek writes it."""
    table = write_rotation(config.position)
    scale = config.attention.scale
    if scale is not None:
        rotation = as_kind(config.position, YarnRope, "position")
        ratio = (scale * config.attention.width**0.5) ** 0.5  # 0.1 strength ln(factor) + 1
        table["mscale_all_dim"] = round((ratio - 1) / (yarn_scale(rotation.factor) - 1), 10)
    return {"rope_parameters": table}


def latent_rules(config: ModelConfig, layer: int) -> list[Rule]:
    """Latent attention, and its indexer if it has one."""
    spec = as_kind(config.attention, MLA, "attention")
    ours, theirs = f"blocks.{layer}.attention", f"model.layers.{layer}.self_attn"
    names = {
        "kv_down": "kv_a_proj_with_mqa",
        "kv_latent_norm": "kv_a_layernorm",
        "kv_up": "kv_b_proj",
        "o_proj": "o_proj",
    }
    if spec.q_rank is None:
        names["q_proj"] = "q_proj"
    else:
        names |= {"q_down": "q_a_proj", "q_latent_norm": "q_a_layernorm", "q_up": "q_b_proj"}
    if spec.indexer is not None:
        names |= {f"indexer.{a}": f"indexer.{b}" for a, b in INDEXER.items()}
    rules = [copied(f"{ours}.{a}.weight", f"{theirs}.{b}.weight") for a, b in names.items()]
    if spec.indexer is not None:
        rules.append(copied(f"{ours}.indexer.k_norm.bias", f"{theirs}.indexer.k_norm.bias"))
    return rules
