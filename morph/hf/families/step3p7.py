"""Step 3.5 and 3.7 Flash (StepFun, 2026), the language model in it: the first layer is full, windows have more heads.

One gate for each head, zero-centred norms, DeepSeek-V3's way to choose experts. transformers has it within a model that
also sees images; Morph has no tower for those, so its weights (`vision_model.*`, `vit_large_projector.*`) are told by
name unless they are in `skip`, and what Morph writes says the smallest tower and holds no weights for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from morph.config import (
    AllGlobal,
    Attention,
    HeadGate,
    Layout,
    ModelConfig,
    Position,
    SigmoidRouter,
    SlidingWindow,
    ZeroCentredRMSNorm,
    as_kind,
)
from morph.hf.families.experts import (
    LLAMA_NAMES,
    PARTS,
    count_dense,
    dense_first,
    experts_in,
    gated,
    sigmoid_experts,
    write_dense,
)
from morph.hf.families.family import Family
from morph.hf.families.frame import read_frame, write_frame
from morph.hf.families.parts import (
    FULL,
    SLIDING,
    attention_rules,
    decoder_rules,
    layout_of,
    mlp_rules,
    read_heads,
    softmax_attention,
    windows_differ,
    write_both,
    write_heads,
    write_windows,
)
from morph.hf.families.rotation import read_table
from morph.hf.families.tower import text_table
from morph.hf.settings import Settings, activation_there
from morph.hf.weights import Rule, copied

TOWER = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 14, "patch_size": 14}
"""The smallest tower for images that transformers builds; without one named it would build the released one."""


def read(s: Settings) -> ModelConfig:
    s.ignore("projector_bias")
    t = text_table(s)
    frame = read_frame(t, 128_000)
    s.only("tie_word_embeddings", frame["tied"])
    t.only("attention_bias", False)
    t.only("mlp_bias", False)
    for name in ("swiglu_limits", "swiglu_limits_shared"):
        limits = t.raw(name, [])
        if not isinstance(limits, list) or any(limits):
            t.refuse(name, "Morph's experts are not clamped in this family; choose another checkpoint")
    t.ignore("num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types")
    t.ignore("per_layer_config")  # says again what num_sliding_attention_heads says
    norm = ZeroCentredRMSNorm(eps=t.number("rms_norm_eps", 1e-5))
    heads = read_heads(t, 8, 128)
    scale = t.positive("query_pre_attn_scalar", heads["head_dim"]) ** -0.5
    width = t.whole("moe_intermediate_size", 1280)
    shared = t.whole("share_expert_dim", 1280)
    experts = sigmoid_experts(
        t,
        width=width,
        n_experts=t.whole("n_routed_experts", 288),
        n_shared=1,
        shared_width=None if shared == width else shared,
        top_k=t.whole("num_experts_per_tok", 8),
        routed_scale=t.number("moe_router_scaling_factor", 1.0),
        router=SigmoidRouter(),
    )
    layout = _read_layout(t, frame["n_layers"], heads["n_heads"])
    is_usual = abs(scale * heads["head_dim"] ** 0.5 - 1) < 1e-12
    n_dense = count_dense(t, frame["n_layers"], 3)
    return ModelConfig(
        **frame,
        placement="pre",
        norm=norm,
        position=_read_position(t, layout),
        attention=Attention(**heads, qk_norm=norm, gate=HeadGate(), scale=None if is_usual else scale),
        layout=layout,
        feed_forward=dense_first(n_dense, t.whole("intermediate_size", 11_264), experts),
    )


def _read_layout(t: Settings, layers: int, n_heads: int) -> Layout:
    types = t.words("layer_types", layers, (FULL, SLIDING))
    local_heads = t.whole("num_sliding_attention_heads", n_heads)
    window = t.whole_or_none("sliding_window", None)
    if window is None:
        return AllGlobal()
    local = SlidingWindow(window=window, n_heads=None if local_heads == n_heads else local_heads)
    return layout_of([layer for layer, name in enumerate(types) if name == FULL], layers, local)


def _read_position(t: Settings, layout: Layout) -> Position:
    """A rotation for each kind of layer that there is."""
    tables = t.table("rope_parameters")
    kinds = [None if tables is None else tables.table(name) for name in (SLIDING, FULL)]
    local, full = (None if kind is None else read_table(kind, 10_000.0, 128_000, "half-split", 1.0) for kind in kinds)
    either = local or full
    if either is None:
        t.refuse("rope_parameters", f"give tables for {FULL} and {SLIDING}")
    assert either is not None
    return windows_differ(layout, local or either, full or either)


def write(config: ModelConfig) -> dict[str, Any]:
    experts, attention = experts_in(config), softmax_attention(config)
    as_kind(experts.router, SigmoidRouter, "feed_forward.router")
    n_dense, width = write_dense(config)
    windows = {mixer for mixer in map(config.mixer, range(config.n_layers)) if isinstance(mixer, SlidingWindow)}
    local_heads = next((mixer.n_heads for mixer in windows if mixer.n_heads), attention.n_heads)
    sparse = config.n_layers - n_dense
    text = {
        "model_type": "step3p5",
        **write_frame(config),
        **write_heads(config),
        **write_windows(config),
        "num_sliding_attention_heads": local_heads,
        "query_pre_attn_scalar": attention.width if attention.scale is None else attention.scale**-2,
        **write_both(config.position),
        "hidden_act": activation_there(gated(experts).activation),
        "mlp_layer_types": ["dense"] * n_dense + ["sparse"] * sparse,
        "intermediate_size": width,
        "moe_intermediate_size": experts.expert.width,
        "share_expert_dim": experts.n_shared * experts.width_of_shared,
        "n_routed_experts": experts.n_experts,
        "num_experts_per_tok": experts.top_k,
        "moe_router_scaling_factor": experts.routed_scale,
        "pad_token_id": 0,  # transformers wants one here
    }
    return {"text_config": text, "vision_config": dict(TOWER), "tie_word_embeddings": config.tied}


def _attention(config: ModelConfig, layer: int) -> list[Rule]:
    gate = copied(f"blocks.{layer}.attention.gate_proj.weight", f"model.layers.{layer}.self_attn.g_proj.weight")
    return [*attention_rules(config, layer), gate]


def _experts(config: ModelConfig, layer: int) -> list[Rule]:
    if layer < write_dense(config)[0]:
        return mlp_rules(config, layer)
    ours, theirs = f"blocks.{layer}.feed_forward", f"model.layers.{layer}"
    rules = [
        copied(f"{ours}.router.logits.weight", f"{theirs}.moe.gate.weight"),
        copied(f"{ours}.router.selection_bias", f"{theirs}.moe.router_bias"),
    ]
    for part, name in zip(PARTS, LLAMA_NAMES, strict=True):
        rules.append(copied(f"{ours}.experts.{part}", f"{theirs}.moe.{name}.weight"))
        rules.append(copied(f"{ours}.shared.0.{part}.weight", f"{theirs}.share_expert.{name}.weight"))
    return rules


STEP3P7 = Family(
    "step3p7",
    "Step3p7ForConditionalGeneration",
    read,
    write,
    partial(decoder_rules, mixer=_attention, feed_forward=_experts),
)
