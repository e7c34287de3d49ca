"""OLMo Hybrid (Allen Institute for AI, 2026): Gated DeltaNet with writes up to 2, norms placed by the kind of layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from morph.config import Attention, FullWidthRMSNorm, GatedDeltaNet, GatedMLP, ModelConfig, NoPosition, RMSNorm
from morph.hf.families.family import Family
from morph.hf.families.frame import read_frame
from morph.hf.families.linear import conv_rules, full_every, read_layers, write_layers
from morph.hf.families.parts import attention_rules, decoder_rules, read_heads, write_common
from morph.hf.families.rotation import read_rotation, write_position
from morph.hf.settings import Settings
from morph.hf.weights import Rule, copied

OUTPUT_EPS = 1e-5
"""Of the norm on a delta layer's output, whatever `rms_norm_eps` is."""


def read(s: Settings) -> ModelConfig:
    frame, eps = read_frame(s, 65_536), s.number("rms_norm_eps", 1e-6)
    s.only("attention_bias", False)
    s.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    heads, layers = read_heads(s), frame["n_layers"]
    n_keys = s.whole("linear_num_key_heads", heads["n_heads"], least=1)
    key_dim = s.whole("linear_key_head_dim", int(0.75 * frame["d_model"] / n_keys))
    delta = GatedDeltaNet(
        n_key_heads=n_keys,
        n_value_heads=s.whole("linear_num_value_heads", heads["n_heads"]),
        key_head_dim=key_dim,
        value_head_dim=s.whole("linear_value_head_dim", 2 * key_dim),
        conv_size=s.whole("linear_conv_kernel_dim", 4),
        beta_max=2.0 if s.flag("linear_allow_neg_eigval", True) else 1.0,
        eps=OUTPUT_EPS,
    )
    width = s.whole("intermediate_size", 11_008)
    is_placed = "rope_parameters" in s or "rope_scaling" in s or "rope_theta" in s
    rotation = read_rotation(s, 10_000.0, frame["context_length"])
    return ModelConfig(
        **frame,
        placement="by-mixer",
        norm=RMSNorm(eps=eps),
        position=rotation if is_placed else NoPosition(),
        attention=Attention(**heads, qk_norm=FullWidthRMSNorm(eps=eps)),
        layout=read_layers(s, layers, delta, full_every(4, layers)),
        feed_forward=GatedMLP(width=width, activation=s.activation("hidden_act", "silu")),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    types, delta = write_layers(config, GatedDeltaNet)
    position = {"rope_parameters": None} if isinstance(config.position, NoPosition) else write_position(config.position)
    return {
        **write_common(config),
        **position,
        "layer_types": types,
        "linear_num_key_heads": delta.n_key_heads,
        "linear_num_value_heads": delta.n_value_heads,
        "linear_key_head_dim": delta.key_head_dim,
        "linear_value_head_dim": delta.value_head_dim,
        "linear_conv_kernel_dim": delta.conv_size,
        "linear_allow_neg_eigval": delta.beta_max == 2,
    }


# ---- weights -------------------------------------------------------------------------------------------------


def _norms(config: ModelConfig, layer: int, is_saved: bool) -> list[Rule]:
    """In full layers transformers saves the first norm under the name that delta layers have for their second."""
    if config.placement_in(layer) == "pre":
        names = ("attention_layer_norm", "feedforward_layer_norm")
    else:
        names = ("feedforward_layer_norm" if is_saved else "post_attention_layernorm", "post_feedforward_layernorm")
    ours = ("attention_norm", "feed_forward_norm")
    return [
        copied(f"blocks.{layer}.{a}.weight", f"model.layers.{layer}.{b}.weight")
        for a, b in zip(ours, names, strict=True)
    ]


def _mixer(config: ModelConfig, layer: int, is_cut: bool) -> list[Rule]:
    """One mixer. With `is_cut`, its convolution is in three almost equal parts, whatever belongs to q, k and v.

    That is how transformers saves it; when it loads, it joins the three, whatever their sizes.
    """
    spec = config.mixer(layer)
    if not isinstance(spec, GatedDeltaNet):
        return attention_rules(config, layer)
    ours, theirs = f"blocks.{layer}.attention", f"model.layers.{layer}.linear_attn"
    keys, values = spec.n_key_heads * spec.key_head_dim, spec.n_value_heads * spec.value_head_dim
    sizes = [keys, keys, values]
    if is_cut:
        sizes = [len(part) for part in torch.empty(sum(sizes), device="meta").chunk(3)]
    maps = zip(("q", "k", "v", "z", "beta", "decay", "o"), "qkvgbao", strict=True)
    return [
        *(copied(f"{ours}.{a}_proj.weight", f"{theirs}.{b}_proj.weight") for a, b in maps),
        conv_rules(f"{ours}.conv.weight", theirs, sizes),
        copied(f"{ours}.log_A", f"{theirs}.A_log"),
        copied(f"{ours}.dt_bias", f"{theirs}.dt_bias"),
        copied(f"{ours}.out_norm.weight", f"{theirs}.o_norm.weight"),
    ]


def _form(is_saved: bool, is_cut: bool) -> partial[list[Rule]]:
    return partial(decoder_rules, norms=partial(_norms, is_saved=is_saved), mixer=partial(_mixer, is_cut=is_cut))


OLMO_HYBRID = Family(
    "olmo_hybrid",
    "OlmoHybridForCausalLM",
    read,
    write,
    _form(is_saved=True, is_cut=False),
    other_rules=(_form(True, True), _form(False, False), _form(False, True)),
)
