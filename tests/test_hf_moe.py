"""Families with experts against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from morph import hf
from morph.errors import MorphError
from tests.hf import assert_parity, edit_config, make_theirs, their_states
from tests.models import relative_error

TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
BASE = {"vocab_size": 99, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4} | {
    "num_key_value_heads": 2, "max_position_embeddings": 512, **TOKENS,
}  # fmt: skip
ODD = {"vocab_size": 131, "hidden_size": 40, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 6}


def rope(theta: float, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


MIXTRAL = BASE | rope(1e6) | {"intermediate_size": 56, "num_local_experts": 6, "num_experts_per_tok": 2}
QWEN3 = BASE | rope(1e6) | {"head_dim": 16, "intermediate_size": 72, "moe_intermediate_size": 24} | {
    "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": True,
}  # fmt: skip
GPT_OSS = BASE | {"num_hidden_layers": 4, "head_dim": 16, "intermediate_size": 40, "num_local_experts": 5} | {
    "num_experts_per_tok": 3, "sliding_window": 8, "swiglu_limit": 1.5,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 150_000.0, "factor": 4.0, "original_max_position_embeddings": 256,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    },
}  # fmt: skip
GLM = BASE | rope(1e6, partial_rotary_factor=0.5) | {"intermediate_size": 80, "moe_intermediate_size": 24} | {
    "head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5, "use_qk_norm": True, "attention_bias": True, "num_mtp_layers": 0,
}  # fmt: skip
AFMOE = BASE | rope(10_000.0) | {"num_hidden_layers": 4, "head_dim": 16, "intermediate_size": 80} | {
    "moe_intermediate_size": 24, "num_dense_layers": 1, "num_experts": 8, "num_experts_per_tok": 3,
    "num_shared_experts": 1, "route_scale": 2.448, "sliding_window": 8, "mup_enabled": True,
}  # fmt: skip

STEP = BASE | {"num_hidden_layers": 4, "intermediate_size": 80, "num_sliding_attention_heads": 6, "head_dim": 16} | {
    "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 3, "share_expert_dim": 20,
    "sliding_window": 8, "moe_router_scaling_factor": 3.0,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}  # fmt: skip
TOWER = {"width": 16, "layers": 1, "heads": 1, "image_size": 14, "patch_size": 14}


def step(**changes: Any) -> dict[str, Any]:
    return {"text_config": STEP | {"pad_token_id": 0} | changes, "vision_config": TOWER, "image_token_id": 0}


SKIPS = {"step3p7": ("vision_model.*", "vit_large_projector.*")}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("mixtral", MIXTRAL),
    "mixtral-odd": ("mixtral", MIXTRAL | ODD | {"sliding_window": 7, "num_local_experts": 5, "num_experts_per_tok": 3}),
    "qwen3_moe": ("qwen3_moe", QWEN3),
    "qwen3_moe-odd": ("qwen3_moe", QWEN3 | ODD | {"norm_topk_prob": False, "mlp_only_layers": [0]}),
    "gpt_oss": ("gpt_oss", GPT_OSS),
    "gpt_oss-odd": (
        "gpt_oss",
        GPT_OSS | ODD | {
            "num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "swiglu_alpha": 1.5, "sliding_window": 5, "head_dim": 10,
        },
    ),
    "glm4_moe": ("glm4_moe", GLM),
    "glm4_moe-odd": (
        "glm4_moe",
        GLM | ODD | {
            "head_dim": 8, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 0, "use_qk_norm": False,
            "attention_bias": False, "n_shared_experts": 1,
        },
    ),
    "afmoe": ("afmoe", AFMOE),
    "afmoe-odd": (
        "afmoe",
        AFMOE | ODD | {
            "num_hidden_layers": 5, "global_attn_every_n_layers": 2, "num_shared_experts": 2, "mup_enabled": False,
            "num_dense_layers": 2, "sliding_window": 5,
        },
    ),
    "step3p7": ("step3p7", step()),
    "step3p7-odd": (
        "step3p7",
        step(**ODD | {
            "head_dim": 12, "num_sliding_attention_heads": 3, "share_expert_dim": 24, "query_pre_attn_scalar": 9,
        }),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_layer_and_the_cache_agree_with_transformers(name: str, seed: int, tmp_path: Path) -> None:
    family, kwargs = CASES[name]
    assert_parity(make_theirs(family, kwargs, seed), tmp_path, seed=seed, skip=SKIPS.get(family, ()))


OLDER: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("mixtral", {"rope_parameters": ..., "rope_theta": 1e6}),
    "qwen3_moe": (
        "qwen3_moe",
        {"rope_parameters": ..., "rope_theta": 1e6, "num_local_experts": ..., "num_experts": 7, "max_window_layers": 3},
    ),
    "gpt_oss": (
        "gpt_oss",
        {
            "rope_parameters": ..., "rope_theta": 150_000, "experts_per_token": 3, "initial_context_length": 4096,
            "rope_scaling": {name: x for name, x in GPT_OSS["rope_parameters"].items() if name != "rope_theta"},
        },
    ),
    "glm4_moe": ("glm4_moe", {"rope_parameters": ..., "rope_theta": 1e6, "partial_rotary_factor": 0.5}),
    "glm4_moe, half a head unsaid": ("glm4_moe", {"rope_parameters": ..., "rope_theta": 1e6}),
    "afmoe": (
        "afmoe",
        {"layer_types": ..., "rope_parameters": ..., "rope_theta": 10_000, "score_func": "sigmoid", "n_group": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER)
def test_keys_of_the_releases_say_the_same(name: str, tmp_path: Path) -> None:
    family, changes = OLDER[name]
    make_theirs(family, CASES[family][1]).config.save_pretrained(tmp_path)
    now = hf.read_config(tmp_path)
    edit_config(tmp_path, **changes)
    assert hf.read_config(tmp_path) == now


PACKED = ("qwen3_moe", "glm4_moe")


@pytest.mark.parametrize("family", PACKED)
def test_experts_may_be_packed_on_disk(family: str, tmp_path: Path) -> None:
    theirs = make_theirs(family, CASES[family][1])
    theirs.save_pretrained(tmp_path)
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")  # as they are in memory
    assert any("gate_up_proj" in name for name in load_file(tmp_path / "model.safetensors"))
    ids = torch.arange(20)[None]
    logits, _ = their_states(theirs, ids)
    assert relative_error(hf.load(tmp_path)(ids), logits) < 1e-5


def more_layers(folder: Path) -> None:
    """A layer after the last, as releases keep the one that predicts the token after the next."""
    path = folder / "model.safetensors"
    held = load_file(path)
    extra = {n.replace("layers.2.", "layers.3."): t.clone() for n, t in held.items() if ".layers.2." in n}
    save_file(held | extra | {"model.layers.3.eh_proj.weight": torch.ones(4, 8)}, path)


def test_weights_of_other_parts_are_named_unless_they_are_skipped(tmp_path: Path) -> None:
    theirs = make_theirs("glm4_moe", GLM)
    theirs.save_pretrained(tmp_path)
    more_layers(tmp_path)
    edit_config(tmp_path, num_nextn_predict_layers=1)
    with pytest.raises(MorphError, match=r"model\.layers\.3\..*skip=\['model\.layers\.3\.\*'\]"):
        hf.load(tmp_path)
    with pytest.raises(MorphError, match=r"'model\.layers\.\*' leaves out model\.layers\.0"):
        hf.load(tmp_path, skip=["model.layers.*"])
    with pytest.raises(MorphError, match=r"no weight of .* is called 'mtp\.\*'"):
        hf.load(tmp_path, skip=["mtp.*"])
    ids = torch.arange(20)[None]
    model = hf.load(tmp_path, skip=["model.layers.3.*"])
    assert relative_error(model(ids), their_states(theirs, ids)[0]) < 1e-5


def test_a_tower_for_images_is_named(tmp_path: Path) -> None:
    make_theirs("step3p7", step()).save_pretrained(tmp_path)
    with pytest.raises(MorphError, match=r"vi.*skip=\['vi"):
        hf.load(tmp_path)


def test_the_bias_on_the_choice_stays_precise(tmp_path: Path) -> None:
    theirs = make_theirs("afmoe", AFMOE)
    theirs.save_pretrained(tmp_path)
    model = hf.load(tmp_path, dtype=torch.bfloat16)
    held = load_file(tmp_path / "model.safetensors")["model.layers.2.mlp.expert_bias"]
    bias = dict(model.named_buffers())["blocks.2.feed_forward.router.selection_bias"]
    assert bias.dtype == torch.float32 and torch.equal(bias, held) and not torch.equal(bias, held.bfloat16().float())
    assert model.embedding.weight.dtype == torch.bfloat16
    hf.save(model, tmp_path / "again")
    assert torch.equal(load_file(tmp_path / "again" / "model.safetensors")["model.layers.2.mlp.expert_bias"], held)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "unnormed sigmoids": ("glm4_moe", {"norm_topk_prob": False}, "norm_topk_prob = False"),
    "experts in every other layer": ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step = 2"),
    "a dense layer in between": ("qwen3_moe", {"mlp_only_layers": [1]}, r"mlp_only_layers = \[1\]"),
    "half of each head, stretched": (
        "glm4_moe",
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor = 0.5 is unsupported; with yarn",
    ),
    "two counts": ("qwen3_moe", {"num_experts": 9}, "num_experts = 9"),
    "biases on q, k, v, o alone": ("qwen3_moe", {"attention_bias": True}, "attention_bias = True"),
    "windows": ("qwen3_moe", {"use_sliding_window": True}, "use_sliding_window = True"),
    "no biases": ("gpt_oss", {"attention_bias": False}, "attention_bias = False"),
    "softmax": ("afmoe", {"score_func": "softmax"}, "score_func = 'softmax'"),
    "packed to 4 bits": ("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}}, "quantization_config"),
    "an option of tomorrow": ("mixtral", {"router_temperature": 2.0}, "router_temperature = 2.0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_morph_has_not_is_refused_by_name(name: str, tmp_path: Path) -> None:
    family, changes, message = REFUSED[name]
    make_theirs(family, CASES[family][1]).config.save_pretrained(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(MorphError, match=message):
        hf.read_config(tmp_path)


def test_clamped_experts_of_step_are_refused(tmp_path: Path) -> None:
    make_theirs("step3p7", step(swiglu_limits=[None, 0.0, 7.0, None])).config.save_pretrained(tmp_path)
    with pytest.raises(MorphError, match=r"text_config\.swiglu_limits = \[None, 0\.0, 7\.0, None\]"):
        hf.read_config(tmp_path)
