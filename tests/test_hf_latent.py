"""Families with latent attention against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hf import assert_parity, make_theirs
from tests.test_hf_moe import BASE

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
    errors = assert_parity(make_theirs(family, kwargs, seed), tmp_path, seed=seed)
    print(name, max(errors.values()), errors["cached"])
