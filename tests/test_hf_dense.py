"""Dense families against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hf import assert_parity, make_theirs

TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
LLAMA = {"vocab_size": 99, "hidden_size": 64, "intermediate_size": 144, "num_hidden_layers": 3} | {
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "rope_parameters": PLAIN,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0} | {
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128} | {
    "beta_fast": 16.0, "beta_slow": 2.0,
}  # fmt: skip
ODD = {"vocab_size": 131, "hidden_size": 40, "intermediate_size": 56, "num_attention_heads": 5} | {
    "num_key_value_heads": 1, "num_hidden_layers": 2, "head_dim": 6,
}  # fmt: skip

GEMMA2 = LLAMA | {"num_hidden_layers": 4, "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 8} | {
    "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
}  # fmt: skip
GEMMA3 = LLAMA | {
    "num_hidden_layers": 6,
    "head_dim": 16,
    "query_pre_attn_scalar": 24,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": PLAIN,
    },
}
QWEN3 = LLAMA | {"head_dim": 32, "tie_word_embeddings": True}
OLMO3 = LLAMA | {
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "rope_parameters": {"full_attention": YARN | {"rope_theta": 500_000.0}, "sliding_attention": PLAIN},
}
SMOLLM3 = LLAMA | {"num_hidden_layers": 4, "tie_word_embeddings": True}
COHERE2 = LLAMA | {"num_hidden_layers": 4, "sliding_window": 8, "logit_scale": 0.25}
GPT2 = {"vocab_size": 99, "n_positions": 64, "n_embd": 64, "n_layer": 3, "n_head": 4}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", GPT2),
    "gpt2-odd": (
        "gpt2",
        {"vocab_size": 131, "n_positions": 41, "n_embd": 30, "n_layer": 2, "n_head": 5, "n_inner": 44},
    ),
    "gpt2-untied": ("gpt2", GPT2 | {"tie_word_embeddings": False, "activation_function": "gelu"}),
    "llama-mha": ("llama", LLAMA | {"num_key_value_heads": 4, "rms_norm_eps": 1e-5}),
    "llama-gqa": ("llama", LLAMA),
    "llama-odd": ("llama", LLAMA | ODD),
    "llama-tied": ("llama", LLAMA | {"tie_word_embeddings": True}),
    "llama-biases": ("llama", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama-llama3": ("llama", LLAMA | {"rope_parameters": LLAMA3}),
    "llama-yarn": ("llama", LLAMA | {"rope_parameters": YARN}),
    "llama-yarn-factors": ("llama", LLAMA | {"rope_parameters": YARN | {"attention_factor": 1.3, "truncate": False}}),
    "llama-yarn-mscale": ("llama", LLAMA | {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}}),
    "llama-linear": ("llama", LLAMA | {"rope_parameters": PLAIN | {"rope_type": "linear", "factor": 4.0}}),
    "mistral": ("mistral", LLAMA | {"sliding_window": 8}),
    "mistral-odd": ("mistral", LLAMA | ODD | {"sliding_window": 5}),
    "gemma2": ("gemma2", GEMMA2),
    "gemma2-odd": ("gemma2", GEMMA2 | ODD | {"query_pre_attn_scalar": 6, "sliding_window": 5, "rms_norm_eps": 1e-3}),
    "gemma2-uncapped": (
        "gemma2",
        GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False},
    ),
    "gemma3": ("gemma3_text", GEMMA3),
    "gemma3-odd": ("gemma3_text", GEMMA3 | ODD | {"num_hidden_layers": 6, "layer_types": None, "sliding_window": 5}),
    "gemma3-capped": ("gemma3_text", GEMMA3 | {"final_logit_softcapping": 3.0, "tie_word_embeddings": False}),
    "qwen3": ("qwen3", QWEN3),
    "qwen3-odd": ("qwen3", QWEN3 | ODD),
    "qwen3-untied": ("qwen3", QWEN3 | {"tie_word_embeddings": False}),
    "qwen3-windows": ("qwen3", QWEN3 | {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    "olmo2": ("olmo2", LLAMA),
    "olmo2-odd": ("olmo2", LLAMA | ODD),
    "olmo2-tied": ("olmo2", LLAMA | {"tie_word_embeddings": True, "rms_norm_eps": 1e-3}),
    "olmo3": ("olmo3", OLMO3),
    "olmo3-odd": ("olmo3", OLMO3 | ODD | {"num_hidden_layers": 5, "sliding_window": 5}),
    "olmo3-tied": ("olmo3", OLMO3 | {"tie_word_embeddings": True, "rope_parameters": None}),
    "smollm3": ("smollm3", SMOLLM3),
    "smollm3-odd": ("smollm3", SMOLLM3 | ODD | {"num_hidden_layers": 5, "no_rope_layers": [0, 1, 1, 0, 1]}),
    "smollm3-untied": ("smollm3", SMOLLM3 | {"tie_word_embeddings": False}),
    "cohere2": ("cohere2", COHERE2),
    "cohere2-odd": ("cohere2", COHERE2 | ODD | {"num_hidden_layers": 5, "sliding_window": 5}),
    "cohere2-untied": ("cohere2", COHERE2 | {"tie_word_embeddings": False, "layer_norm_eps": 1e-3}),
    "mistral-full": ("mistral", LLAMA | {"sliding_window": None}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_layer_and_the_cache_agree_with_transformers(name: str, seed: int, tmp_path: Path) -> None:
    family, kwargs = CASES[name]
    assert_parity(make_theirs(family, kwargs | TOKENS, seed), tmp_path, seed=seed)
