"""Families with recurrent layers against transformers."""

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
from tests.test_hf_moe import BASE, rope

GDN = {"linear_conv_kernel_dim": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 16} | {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 20, "num_experts": 8} | {
    "num_experts_per_tok": 3,
}  # fmt: skip
QWEN = BASE | GDN | {"num_hidden_layers": 4, "head_dim": 16}
NEXT = QWEN | EXPERTS | rope(1e7, partial_rotary_factor=0.25) | {"intermediate_size": 72, "norm_topk_prob": True}
IMAGES = {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
ODD = {"vocab_size": 131, "hidden_size": 40, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 8} | {
    "linear_key_head_dim": 10, "linear_value_head_dim": 6, "linear_num_key_heads": 3, "linear_num_value_heads": 9,
    "linear_conv_kernel_dim": 3, "num_hidden_layers": 3,
    "layer_types": ["full_attention", "linear_attention", "linear_attention"],
}  # fmt: skip

OLMO = QWEN | rope(5e5) | {"intermediate_size": 72, "linear_allow_neg_eigval": True}
OLMO.pop("head_dim")
MINIMAX = BASE | rope(1e6) | {"num_hidden_layers": 4, "intermediate_size": 40, "num_local_experts": 6} | {
    "num_experts_per_tok": 2, "block_size": 8,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "full_attn_alpha_factor": 1.2, "full_attn_beta_factor": 0.9, "linear_attn_alpha_factor": 1.1,
    "linear_attn_beta_factor": 0.8, "mlp_alpha_factor": 1.05, "mlp_beta_factor": 0.95,
}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_next": ("qwen3_next", NEXT),
    "qwen3_next-odd": (
        "qwen3_next",
        NEXT | ODD | rope(1e4, partial_rotary_factor=1.0) | {
            "mlp_only_layers": [0], "norm_topk_prob": False, "shared_expert_intermediate_size": 24,
        },
    ),
    "qwen3_5": ("qwen3_5_text", QWEN | rope(1e7, **IMAGES) | {"intermediate_size": 72}),
    "qwen3_5-odd": ("qwen3_5_text", QWEN | rope(1e4) | ODD | {"intermediate_size": 56, "tie_word_embeddings": True}),
    "qwen3_5_moe": ("qwen3_5_moe_text", QWEN | EXPERTS | rope(1e7, **IMAGES)),
    "qwen3_5_moe-odd": ("qwen3_5_moe_text", QWEN | EXPERTS | ODD | rope(1e6)),
    "olmo_hybrid": ("olmo_hybrid", OLMO),
    "olmo_hybrid-odd": (
        "olmo_hybrid",
        OLMO | ODD | {"rope_parameters": None, "linear_allow_neg_eigval": False, "hidden_size": 40},
    ),
    "minimax": ("minimax", MINIMAX),
    "minimax-odd": (
        "minimax",
        MINIMAX | {
            "vocab_size": 131, "hidden_size": 40, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 6,
            "num_hidden_layers": 3, "layer_types": ["full_attention", "linear_attention", "linear_attention"],
            "mlp_alpha_factor": 1, "block_size": 256,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_layer_and_the_cache_agree_with_transformers(name: str, seed: int, tmp_path: Path) -> None:
    family, kwargs = CASES[name]
    assert_parity(make_theirs(family, kwargs, seed), tmp_path, seed=seed)


TOWER = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 48} | {
    "num_position_embeddings": 4, "patch_size": 2,
}  # fmt: skip


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_the_language_model_of_one_that_sees_images(family: str, is_packed: bool, tmp_path: Path) -> None:
    theirs = make_theirs(family, {"text_config": CASES[family][1], "vision_config": TOWER})
    theirs.save_pretrained(tmp_path / "theirs")
    if is_packed:
        save_file(theirs.state_dict(), tmp_path / "theirs" / "model.safetensors")
    with pytest.raises(MorphError, match=r"model\.visual\..*skip="):
        hf.load(tmp_path / "theirs")
    model = hf.load(tmp_path / "theirs", skip=["model.visual.*"])
    ids = torch.arange(30)[None]
    logits, _ = their_states(theirs, ids)
    assert relative_error(model(ids), logits) < 1e-5
    assert is_packed or hf.check(tmp_path / "theirs", skip=["model.visual.*"]).passed
    with pytest.raises(MorphError, match=f"save it as {family}_text"):
        hf.save(model, tmp_path / "ours", family=family)
    hf.save(model, tmp_path / "ours")
    assert torch.equal(hf.load(tmp_path / "ours")(ids), model(ids))


def test_olmo_hybrid_by_the_names_of_its_class(tmp_path: Path) -> None:
    """The first norm of a full layer under either name, the convolutions cut where q, k and v end or in thirds."""
    theirs = make_theirs(*CASES["olmo_hybrid"])
    theirs.save_pretrained(tmp_path)
    path, ids = tmp_path / "model.safetensors", torch.arange(30)[None]
    logits, held = their_states(theirs, ids)[0], load_file(path)
    renamed = {
        name.replace("3.feedforward_layer_norm", "3.post_attention_layernorm"): tensor for name, tensor in held.items()
    }
    assert renamed.keys() != held.keys()
    save_file(renamed, path)
    assert relative_error(hf.load(tmp_path)(ids), logits) < 1e-5
    for layer in range(3):
        parts = [f"model.layers.{layer}.linear_attn.{part}_conv1d.weight" for part in "qkv"]
        whole = torch.cat([held[part] for part in parts])
        renamed |= dict(zip(parts, (t.clone() for t in whole.split([24, 24, 64])), strict=True))
    save_file(renamed, path)
    assert relative_error(hf.load(tmp_path)(ids), logits) < 1e-5


def test_minimax_may_leave_out_its_tables(tmp_path: Path) -> None:
    theirs = make_theirs(*CASES["minimax"])
    theirs.save_pretrained(tmp_path)
    path, ids = tmp_path / "model.safetensors", torch.arange(30)[None]
    held = load_file(path)
    kept = {name: tensor for name, tensor in held.items() if not name.endswith(("slope_rate", "_decay"))}
    assert len(kept) == len(held) - 12
    save_file(kept, path)
    assert relative_error(hf.load(tmp_path)(ids), their_states(theirs, ids)[0]) < 1e-5


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no gate": ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate = False"),
    "biases": ("olmo_hybrid", {"attention_bias": True}, "attention_bias = True"),
    "windows": ("qwen3_next", {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
    "part of a head": ("olmo_hybrid", {"partial_rotary_factor": 0.5}, r"partial_rotary_factor = 0\.5"),
    "another activation": ("minimax", {"hidden_act": "gelu_10"}, "hidden_act = 'gelu_10'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_morph_has_not_is_refused_by_name(name: str, tmp_path: Path) -> None:
    family, changes, message = REFUSED[name]
    make_theirs(*CASES[family]).config.save_pretrained(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(MorphError, match=message):
        hf.read_config(tmp_path)
