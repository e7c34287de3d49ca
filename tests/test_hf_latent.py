"""Families with latent attention against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from morph import hf
from morph.config import Listed
from morph.errors import MorphError
from tests.hf import assert_parity, edit_config, make_theirs, their_states
from tests.models import relative_error
from tests.test_hf_moe import BASE, rope

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 256} | {
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip
MLA = BASE | {"num_key_value_heads": 4, "intermediate_size": 80, "kv_lora_rank": 20, "qk_nope_head_dim": 12} | {
    "qk_rope_head_dim": 8, "v_head_dim": 10,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 24, "num_experts_per_tok": 3, "routed_scaling_factor": 2.5}
DEEPSEEK = MLA | EXPERTS | {"q_lora_rank": 24, "n_routed_experts": 8, "n_shared_experts": 1} | {
    "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "num_mtp_layers": 0, "rope_parameters": YARN,
}  # fmt: skip
V32 = {name: value for name, value in DEEPSEEK.items() if name != "num_mtp_layers"} | {
    "index_topk": 6, "index_head_dim": 16, "index_n_heads": 16,  # with few heads, scores of 0 would tie
}  # fmt: skip
GLM = V32 | rope(1e6) | {"n_group": 1, "topk_group": 1}
ODD = {"vocab_size": 131, "hidden_size": 40, "num_attention_heads": 5, "num_key_value_heads": 5} | {
    "kv_lora_rank": 14, "qk_nope_head_dim": 6, "qk_rope_head_dim": 6, "v_head_dim": 9,
}  # fmt: skip
KIMI = MLA | EXPERTS | {"num_hidden_layers": 4, "q_lora_rank": None, "num_local_experts": 8, "n_group": 1} | {
    "topk_group": 1, "n_shared_experts": 1, "linear_head_dim": 12, "linear_num_heads": 3, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek_v3": ("deepseek_v3", DEEPSEEK),
    "deepseek_v3-odd": (
        "deepseek_v3",
        DEEPSEEK | ODD | {
            "q_lora_rank": None, "rope_interleave": False, "n_shared_experts": 2, "first_k_dense_replace": 2,
            "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3},
        },
    ),
    "kimi_k2": ("deepseek_v3", DEEPSEEK | {"n_group": 1, "topk_group": 1, "rms_norm_eps": 1e-5}),
    "deepseek_v32": ("deepseek_v32", V32),
    "deepseek_v32-odd": (
        "deepseek_v32",
        V32 | ODD | {"index_head_dim": 10, "index_n_heads": 17, "index_topk": 5, "n_group": 1, "topk_group": 1},
    ),
    "glm_moe_dsa": ("glm_moe_dsa", GLM),
    "glm_moe_dsa-odd": ("glm_moe_dsa", GLM | ODD | {"index_head_dim": 8, "index_n_heads": 19, "index_topk": 9}),
    "kimi_linear": ("kimi_linear", KIMI),
    "kimi_linear-odd": (
        "kimi_linear",
        KIMI | ODD | {
            "q_lora_rank": 10, "linear_conv_kernel_dim": 3, "num_hidden_layers": 5, "n_group": 2,
            "linear_num_heads": 2, "linear_head_dim": 7, "n_shared_experts": 2,
            "layer_types": ["linear_attention", *["full_attention", "linear_attention"] * 2],
            "mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse"],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_layer_and_the_cache_agree_with_transformers(name: str, seed: int, tmp_path: Path) -> None:
    family, kwargs = CASES[name]
    assert_parity(make_theirs(family, kwargs, seed), tmp_path, seed=seed)


def test_deepseek_as_released(tmp_path: Path) -> None:
    """With the keys of its own config.json, a layer that predicts further tokens, and nothing for rotations."""
    theirs = make_theirs("deepseek_v3", DEEPSEEK)
    theirs.save_pretrained(tmp_path)
    older = {"type" if name == "rope_type" else name: value for name, value in YARN.items() if name != "rope_theta"}
    edit_config(
        tmp_path,
        rope_parameters=..., rope_scaling=older, rope_theta=10_000.0, rope_interleave=..., num_nextn_predict_layers=1,
        scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1, ep_size=1, aux_loss_alpha=0.001, seq_aux=True,
    )  # fmt: skip
    path, ids = tmp_path / "model.safetensors", torch.arange(30)[None]
    held = load_file(path)
    extra = {n.replace("layers.2.", "layers.3."): t.clone() for n, t in held.items() if ".layers.2." in n}
    save_file(held | extra, path)
    with pytest.raises(MorphError, match=r"model\.layers\.3\."):
        hf.load(tmp_path)
    model = hf.load(tmp_path, skip=["model.layers.3.*"])
    logits, _ = their_states(theirs, ids)
    assert relative_error(model(ids), logits) < 1e-5
    assert hf.check(tmp_path, skip=["model.layers.3.*"]).passed

    edit_config(tmp_path, model_type="kimi_k2")
    kimi = hf.load(tmp_path, skip=["model.layers.3.*"])
    assert torch.equal(kimi(ids), model(ids))
    with pytest.raises(MorphError, match="save it as deepseek_v3"):
        hf.save(kimi, tmp_path / "again", family="kimi_k2")
    with pytest.raises(MorphError, match=r"finds no .*experts.* and draws it at random"):
        hf.check(tmp_path, skip=["model.layers.3.*"])


def test_kimi_linear_as_released(tmp_path: Path) -> None:
    """Layers listed from 1, full ones where no pattern puts them; a dense layer called mlp."""
    kinds = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
    theirs = make_theirs("kimi_linear", KIMI | {"layer_types": kinds})
    theirs.save_pretrained(tmp_path)
    listed = {"full_attn_layers": [2, 4], "kda_layers": [1, 3], "num_heads": 3, "head_dim": 12}
    edit_config(
        tmp_path,
        layer_types=..., mlp_layer_types=..., linear_num_heads=..., linear_head_dim=..., linear_conv_kernel_dim=...,
        linear_attn_config=listed | {"short_conv_kernel_size": 4}, first_k_dense_replace=1, mla_use_nope=True,
        moe_router_activation_func="sigmoid", use_grouped_topk=True, moe_layer_freq=1, rope_theta=10_000.0, head_dim=72,
    )  # fmt: skip
    path, ids = tmp_path / "model.safetensors", torch.arange(30)[None]
    held = load_file(path)
    renamed = {name.replace("layers.0.block_sparse_moe", "layers.0.mlp"): t for name, t in held.items()}
    assert renamed.keys() != held.keys()
    save_file(renamed, path)
    assert relative_error(hf.load(tmp_path)(ids), their_states(theirs, ids)[0]) < 1e-5
    edit_config(tmp_path, linear_attn_config=listed | {"kda_layers": [1]})
    with pytest.raises(MorphError, match=r"linear_attn_config\.full_attn_layers = \[2, 4\]"):
        hf.read_config(tmp_path)


def test_kimi_linear_has_any_list_of_layers(tmp_path: Path) -> None:
    kinds = ["linear_attention"] * 3 + ["full_attention"] * 2
    make_theirs("kimi_linear", KIMI | {"num_hidden_layers": 5, "layer_types": kinds}).config.save_pretrained(tmp_path)
    layout = hf.read_config(tmp_path).layout
    assert isinstance(layout, Listed) and layout.global_layers == (3, 4)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "unnormed sigmoids": ("deepseek_v3", {"norm_topk_prob": False}, "norm_topk_prob = False"),
    "another score": ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func = 'softmax'"),
    "another choice": ("deepseek_v3", {"topk_method": "greedy"}, "topk_method = 'greedy'"),
    "biases": ("deepseek_v3", {"attention_bias": True}, "attention_bias = True"),
    "fewer keys than queries": ("deepseek_v3", {"num_key_value_heads": 2}, "num_key_value_heads = 2"),
    "8 bits": ("deepseek_v3", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    "a choice made before": ("glm_moe_dsa", {"indexer_types": ["full", "shared", "full"]}, "'shared' is not supported"),
    "rotated latents": ("kimi_linear", {"mla_use_nope": False}, "mla_use_nope = False"),
    "dense behind experts": (
        "kimi_linear", {"mlp_layer_types": ["dense", "sparse", "dense", "sparse"]}, "mlp_layer_types"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_morph_has_not_is_refused_by_name(name: str, tmp_path: Path) -> None:
    family, changes, message = REFUSED[name]
    make_theirs(*CASES[family]).config.save_pretrained(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(MorphError, match=message):
        hf.read_config(tmp_path)
