"""Kimi Linear (Moonshot AI, 2025): KDA and latent attention without positions, about 3 : 1, and DeepSeek-V3's experts.

The release says in one table which layers are which, counted from 1; its last four are not in the usual order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import KimiDelta, Layout, ModelConfig, NoPosition, RMSNorm, as_kind
from morph.hf.families.experts import (
    MIXTRAL_NAMES,
    count_dense,
    dense_first,
    experts_in,
    gated,
    groups_of,
    moe_rules,
    router_of,
    sigmoid_experts,
    write_dense,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import either, read_frame, write_frame
from morph.hf.families.latent import latent_rules, read_latents, write_latents
from morph.hf.families.linear import LINEAR, conv_rules, read_layers, write_layers
from morph.hf.families.parts import FULL, decoder_rules
from morph.hf.settings import Settings, activation_there
from morph.hf.weights import Rule, copied

CONTEXT = "model_max_length"


def read(s: Settings) -> ModelConfig:
    context = either(s, (CONTEXT, "max_position_embeddings"), 1_048_576)
    frame, eps = read_frame(s, context, CONTEXT), s.number("rms_norm_eps", 1e-5)
    # What the release says and the class takes for granted.
    s.only("mla_use_nope", True)
    s.only("moe_router_activation_func", "sigmoid")
    s.only("moe_layer_freq", 1)
    s.only("moe_renormalize", True)
    s.ignore("rope_theta", "rope_scaling", "rope_parameters", "use_grouped_topk", "num_nextn_predict_layers")
    layers = frame["n_layers"]
    n_groups, n_kept = either(s, ("num_expert_group", "n_group"), 1), s.whole("topk_group", 1)
    experts = sigmoid_experts(
        s,
        width=s.whole("moe_intermediate_size", 1024),
        n_experts=either(s, ("num_experts", "num_local_experts"), 256),
        n_shared=either(s, ("num_shared_experts", "n_shared_experts"), 1),
        top_k=either(s, ("num_experts_per_token", "num_experts_per_tok"), 8),
        routed_scale=s.number("routed_scaling_factor", 2.446),
        router=router_of(n_groups, n_kept),
    )
    n_dense = count_dense(s, layers, 1)
    return ModelConfig(
        **frame,
        placement="pre",
        norm=RMSNorm(eps=eps),
        position=NoPosition(),
        attention=read_latents(s, 32, None, (512, 128, 64, 128)),
        layout=_read_layout(s, layers),
        feed_forward=dense_first(n_dense, s.whole("intermediate_size", 9216), experts),
    )


def _read_layout(s: Settings, layers: int) -> Layout:
    default = [FULL if layer and layer % 4 == 0 else LINEAR for layer in range(layers)]
    heads, width = s.whole("linear_num_heads", 32), s.whole("linear_head_dim", 128)
    taps = s.whole("linear_conv_kernel_dim", 4)
    table = s.table("linear_attn_config")
    if table is not None:
        heads, width = table.whole("num_heads", heads), table.whole("head_dim", width)
        taps = table.whole("short_conv_kernel_size", taps)
        full, linear = table.wholes("full_attn_layers"), table.wholes("kda_layers")
        if sorted([*full, *linear]) != list(range(1, layers + 1)):
            table.refuse("full_attn_layers", f"with kda_layers it must name each of the layers 1 to {layers} once")
        default = [FULL if layer + 1 in full else LINEAR for layer in range(layers)]
    return read_layers(s, layers, KimiDelta(n_heads=heads, head_dim=width, conv_size=taps), default)


def write(config: ModelConfig) -> dict[str, Any]:
    experts = experts_in(config)
    types, delta = write_layers(config, KimiDelta)
    n_dense, width = write_dense(config)
    n_groups, n_kept = groups_of(experts)
    return {
        **write_frame(config, CONTEXT),
        **write_latents(config),
        "layer_types": types,
        "linear_num_heads": delta.n_heads,
        "linear_head_dim": delta.head_dim,
        "linear_conv_kernel_dim": delta.conv_size,
        "mlp_layer_types": ["dense"] * n_dense + ["sparse"] * (config.n_layers - n_dense),
        "intermediate_size": width,
        "moe_intermediate_size": experts.expert.width,
        "num_experts": experts.n_experts,
        "num_shared_experts": experts.n_shared,
        "num_experts_per_token": experts.top_k,
        "num_expert_group": n_groups,
        "topk_group": n_kept,
        "moe_renormalize": True,
        "routed_scaling_factor": experts.routed_scale,
        "hidden_act": activation_there(gated(experts).activation),
    }


# ---- weights -------------------------------------------------------------------------------------------------

MAPS = {
    "q_proj": "q_proj",
    "k_proj": "k_proj",
    "v_proj": "v_proj",
    "beta_proj": "b_proj",
    "decay_down": "f_a_proj",
    "decay_up": "f_b_proj",
    "gate_down": "g_a_proj",
    "gate_up": "g_b_proj",
    "out_norm": "o_norm",
    "o_proj": "o_proj",
}


def _mixer(config: ModelConfig, layer: int) -> list[Rule]:
    if config.mixer(layer) is config.attention:
        return latent_rules(config, layer)
    spec = as_kind(config.mixer(layer), KimiDelta, "layout.local")
    ours, theirs, width = f"blocks.{layer}.attention", f"model.layers.{layer}.self_attn", spec.n_heads * spec.head_dim
    rates = Rule(
        (f"{ours}.log_A",),
        (f"{theirs}.A_log",),
        lambda tensors: (tensors[0].flatten(),),
        lambda tensors: (tensors[0].view(1, 1, -1, 1),),
    )
    return [
        *(copied(f"{ours}.{a}.weight", f"{theirs}.{b}.weight") for a, b in MAPS.items()),
        conv_rules(f"{ours}.conv.weight", theirs, (width, width, width)),
        rates,
        copied(f"{ours}.dt_bias", f"{theirs}.dt_bias"),
    ]


def _feed_forward(config: ModelConfig, layer: int, dense: str) -> list[Rule]:
    """Experts as released; a dense layer under `dense`, which is transformers' name for all or the release's own."""
    if layer < write_dense(config)[0]:
        names = zip(("gate", "up", "down"), ("gate_proj", "up_proj", "down_proj"), strict=True)
        ours, theirs = f"blocks.{layer}.feed_forward", f"model.layers.{layer}.{dense}"
        return [copied(f"{ours}.{a}.weight", f"{theirs}.{b}.weight") for a, b in names]
    return moe_rules(
        config,
        layer,
        router=f"{_MOE}.gate",
        bias=f"{_MOE}.gate.e_score_correction_bias",
        experts=f"{_MOE}.experts",
        names=MIXTRAL_NAMES,
        shared=f"{_MOE}.shared_experts",
    )


_MOE = "block_sparse_moe"

KIMI_LINEAR = Family(
    "kimi_linear",
    "KimiLinearForCausalLM",
    read,
    write,
    partial(decoder_rules, mixer=_mixer, feed_forward=partial(_feed_forward, dense="mlp")),
    other_rules=(partial(decoder_rules, mixer=_mixer, feed_forward=partial(_feed_forward, dense=_MOE)),),
)
