"""Families with recurrent layers against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hf import assert_parity, make_theirs
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
    errors = assert_parity(make_theirs(family, kwargs, seed), tmp_path, seed=seed)
    print(name, max(errors.values()), errors["cached"])
