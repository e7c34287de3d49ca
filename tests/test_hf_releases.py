"""Folders as they were released: keys of older transformers, keys left out, names and weights of the first files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import morph
from morph import hf
from morph.config import (
    AllGlobal,
    AllLocal,
    Interleaved,
    LinearRope,
    Llama3Rope,
    LogitScale,
    NoPosition,
    PerLayer,
    Rope,
    SlidingWindow,
    Softcap,
    SomeLayers,
    YarnRope,
)
from morph.errors import MorphError
from tests.hf import edit_config, make_theirs, our_states, redraw, their_states, transformers
from tests.models import random_ids, relative_error
from tests.test_hf_dense import CASES, TOKENS

L, F = "sliding_attention", "full_attention"

GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}  # fmt: skip
LLAMA3 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0", "use_cache": True, "vocab_size": 128256,
}  # fmt: skip
LLAMA32 = LLAMA3 | {
    "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
    "num_hidden_layers": 16, "tie_word_embeddings": True,
    "rope_scaling": {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}  # fmt: skip
LLAMA2 = {  # says neither theta nor biases
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None, "tie_word_embeddings": False,
    "torch_dtype": "float16", "transformers_version": "4.31.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
GEMMA2 = {  # says neither layer_types nor tie_word_embeddings
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 107],
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "bfloat16",
    "transformers_version": "4.42.4", "use_cache": True, "vocab_size": 256000,
}  # fmt: skip
GEMMA3_270M = {
    "_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "attn_logit_softcapping": None, "bos_token_id": 2, "eos_token_id": 106,
    "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640,
    "initializer_range": 0.02, "intermediate_size": 2048, "layer_types": [L, L, L, L, L, F] * 3,
    "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 18,
    "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000.0, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 512,
    "torch_dtype": "bfloat16", "transformers_version": "4.55.2", "use_bidirectional_attention": False,
    "use_cache": True, "vocab_size": 262144,
}  # fmt: skip
GEMMA3_27B = {  # a pattern in the place of layer_types; linear scaling on full layers
    "attention_bias": False, "attention_dropout": 0.0, "attn_logit_softcapping": None, "cache_implementation": "hybrid",
    "final_logit_softcapping": None, "head_dim": 128, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 5376,
    "initializer_range": 0.02, "intermediate_size": 21504, "max_position_embeddings": 131072,
    "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
    "query_pre_attn_scalar": 168, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1000000.0, "sliding_window": 1024,
    "sliding_window_pattern": 6, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 262208,
}  # fmt: skip
GEMMA3_IMAGES = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
    "model_type": "gemma3", "text_config": GEMMA3_27B, "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {
        "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
    },
}  # fmt: skip
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
OLMO2 = {
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "eos_token_id": 100257,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 500000, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.47.0.dev0", "use_cache": False, "vocab_size": 100352,
}  # fmt: skip
OLMO3 = OLMO2 | {
    "architectures": ["Olmo3ForCausalLM"], "layer_types": [L, L, L, F] * 8, "max_position_embeddings": 65536,
    "model_type": "olmo3", "sliding_window": 4096, "vocab_size": 100278,
    "rope_scaling": {
        "attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
        "original_max_position_embeddings": 8192, "rope_type": "yarn",
    },
}  # fmt: skip
SMOLLM3 = {
    "architectures": ["SmolLM3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None,
    "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 11008, "layer_types": [F] * 36, "max_position_embeddings": 65536, "max_window_layers": 28,
    "mlp_bias": False, "model_type": "smollm3", "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 9,
    "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "pad_token_id": 128004,
    "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 5000000.0, "sliding_window": None,
    "torch_dtype": "bfloat16", "use_cache": False, "use_sliding_window": False, "vocab_size": 128256,
}  # fmt: skip
TINY_AYA = {
    "_sliding_window_pattern": 4, "architectures": ["Cohere2ForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 2, "dtype": "bfloat16", "eos_token_id": 3, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 11008,
    "layer_norm_eps": 1e-05, "layer_switch": 4, "layer_types": [L, L, L, F] * 9, "logit_scale": 1.0,
    "max_position_embeddings": 500000, "model_type": "cohere2", "norm_type": "layer_norm", "num_attention_heads": 16,
    "num_hidden_layers": 36, "num_key_value_heads": 4, "order_of_interleaved_layers": "local_attn_first",
    "pad_token_id": 0, "position_embedding_type": "rope_gptj", "rms_norm_eps": None, "rope_scaling": None,
    "rope_style": "interleave", "rope_theta": 50000, "rotary_pct": 1.0, "sliding_window": 4096,
    "transformer_block_type": "parallel", "transformers_version": "4.56.2.4", "use_cache": True,
    "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_embedding": False,
    "use_qk_norm": False, "vocab_size": 262144,
}  # fmt: skip

PARAMETERS = {  # of the released models
    "gpt2": (GPT2, 124_439_808),
    "llama-2-7b": (LLAMA2, 6_738_415_616),
    "llama-3-8b": (LLAMA3, 8_030_261_248),
    "llama-3.2-1b": (LLAMA32, 1_235_814_400),
    "mistral-7b": (MISTRAL, 7_241_732_096),
    "gemma-2-2b": (GEMMA2, 2_614_341_888),
    "gemma-3-270m": (GEMMA3_270M, 268_098_176),
    "gemma-3-27b": (GEMMA3_27B, 27_009_346_304),
    "gemma-3-27b-images": (GEMMA3_IMAGES, 27_009_346_304),
    "qwen3-0.6b": (QWEN3, 596_049_920),
    "olmo-2-7b": (OLMO2, 7_298_617_344),
    "olmo-3-7b": (OLMO3, 7_298_011_136),
    "smollm3-3b": (SMOLLM3, 3_075_098_624),
    "tiny-aya": (TINY_AYA, 3_349_227_520),
}
SMALL = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 144, "num_attention_heads": 4, "num_key_value_heads": 2,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip


def write(folder: Path, settings: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def theirs_of(folder: Path, device: str = "cpu") -> Any:
    """transformers' model, without weights of any folder, of the config in this one."""
    package = transformers()
    config = package.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    with torch.device(device):
        return getattr(package, hf.FAMILIES[config.model_type].architecture)(config).eval()


# ---- released configs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_released_config_has_the_released_parameters(name: str, tmp_path: Path) -> None:
    settings, expected = PARAMETERS[name]
    config = hf.read_config(write(tmp_path / name, settings))
    assert morph.count(config).total == expected
    if "vision_config" not in settings:
        theirs = theirs_of(tmp_path / name, device="meta")
        assert sum(p.numel() for p in theirs.parameters()) == expected


def test_what_released_configs_mean(tmp_path: Path) -> None:
    def read(settings: dict[str, Any]) -> Any:
        return hf.read_config(write(tmp_path / "folder", settings))

    assert read(LLAMA2).position == Rope(base=10_000.0)
    assert read(LLAMA3).position == Rope(base=500_000.0) and read(LLAMA3).context_length == 8192
    assert read(LLAMA32).position == Llama3Rope(
        base=500_000.0, factor=32.0, original_length=8192, low_factor=1.0, high_factor=4.0
    )
    assert read(MISTRAL).layout == AllLocal(local=SlidingWindow(window=4096))
    assert read(MISTRAL | {"sliding_window": None}).layout == AllGlobal()
    assert read({k: v for k, v in MISTRAL.items() if k != "sliding_window"}).layout == read(MISTRAL).layout
    gemma2 = read(GEMMA2)
    assert gemma2.layout == Interleaved(n_local=1, local=SlidingWindow(window=4096))
    assert gemma2.tied and gemma2.attention.scale is None and gemma2.attention.softcap == Softcap(cap=50.0)
    gemma3 = read(GEMMA3_27B)
    assert gemma3.position == PerLayer(local=Rope(base=1e4), global_=LinearRope(base=1e6, factor=8.0))
    assert [layer for layer in range(62) if gemma3.mixer(layer) is gemma3.attention] == list(range(5, 62, 6))
    assert gemma3.attention.scale == 168**-0.5 and read(GEMMA3_IMAGES) == gemma3
    assert read(GEMMA3_270M).attention.scale is None
    assert read(QWEN3).layout == AllGlobal() and read(QWEN3).attention.head_dim == 128
    assert read(OLMO3).position == PerLayer(
        local=Rope(base=5e5),
        global_=YarnRope(base=5e5, factor=8.0, original_length=8192),  # the attention scale given is YaRN's own
    )
    smollm3 = read(SMOLLM3)
    assert smollm3.position == SomeLayers(
        layers=tuple(range(3, 36, 4)), inside=NoPosition(), outside=Rope(base=5_000_000.0)
    )
    aya = read(TINY_AYA)
    assert aya.position == PerLayer(local=Rope(base=5e4, pairing="interleaved"), global_=NoPosition())
    assert aya.logits == LogitScale(scale=1.0) and aya.tied


# The same keys at small sizes, with weights: transformers reads the very same file.
SHRUNK: dict[str, dict[str, Any]] = {
    "gpt2": GPT2 | {"vocab_size": 99, "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 64, "n_ctx": 64},
    "llama-2": LLAMA2 | SMALL | {"num_hidden_layers": 2},
    "llama-3.2": LLAMA32
    | SMALL
    | {"num_hidden_layers": 2, "head_dim": 16, "rope_scaling": LLAMA32["rope_scaling"] | {
        "original_max_position_embeddings": 64}},
    "linear": LLAMA2 | SMALL | {"num_hidden_layers": 2, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "mistral": MISTRAL | SMALL | {"num_hidden_layers": 2, "sliding_window": 8},
    "gemma-2": GEMMA2 | SMALL | {"num_hidden_layers": 4, "head_dim": 16, "sliding_window": 8},
    "gemma-3-270m": GEMMA3_270M | SMALL | {"num_hidden_layers": 6, "layer_types": [L, L, F, L, L, F]}
    | {"head_dim": 16, "sliding_window": 8},
    "gemma-3-27b": GEMMA3_27B | SMALL | {"num_hidden_layers": 7, "head_dim": 8, "sliding_window": 8},
    "qwen3": QWEN3 | SMALL | {"num_hidden_layers": 3, "head_dim": 32},
    "olmo-2": OLMO2 | SMALL | {"num_hidden_layers": 2},
    "olmo-3": OLMO3 | SMALL | {"num_hidden_layers": 4, "layer_types": [L, L, L, F], "sliding_window": 8},
    "smollm3": SMOLLM3
    | SMALL
    | {"num_hidden_layers": 4, "layer_types": [F] * 4, "no_rope_layers": [1, 1, 1, 0], "tie_word_embeddings": True},
    "tiny-aya": TINY_AYA | SMALL | {"num_hidden_layers": 4, "layer_types": [L, L, L, F], "head_dim": 16}
    | {"sliding_window": 8},
}  # fmt: skip


@pytest.mark.parametrize("name", SHRUNK)
def test_older_keys_mean_what_they_mean_to_transformers(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / name, SHRUNK[name])
    theirs = theirs_of(folder).float()
    redraw(theirs, seed=0)
    save_file({n: t.contiguous() for n, t in theirs.state_dict().items() if n != "lm_head.weight" or not
               SHRUNK[name].get("tie_word_embeddings", True)}, folder / "model.safetensors")  # fmt: skip
    ours = hf.load(folder)
    ids = random_ids(ours, 2, 40)
    expected, states = their_states(theirs, ids)
    logits, seen = our_states(ours, ids)
    assert relative_error(logits, expected) < 1e-5
    assert max(relative_error(b, a) for a, b in zip(states, seen, strict=True)) < 1e-5


@pytest.mark.parametrize("name", [name for name in CASES if "-" not in name or name.endswith(("mha", "gqa"))])
def test_keys_left_out_mean_what_they_mean_to_transformers(name: str, tmp_path: Path) -> None:
    """Every key that equals its class's default is taken away; both sides read the rest as before."""
    package, (family, kwargs) = transformers(), CASES[name]
    config_class = getattr(package, hf.FAMILIES[family].architecture).config_class
    config = config_class(**kwargs, **TOKENS)
    config.save_pretrained(tmp_path)
    before, held = hf.read_config(tmp_path), json.loads((tmp_path / "config.json").read_text())
    default = json.loads(json.dumps(config_class().to_dict(), default=str))
    needed = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    kept = {key: value for key, value in held.items() if key in needed or value != default.get(key)}
    assert len(kept) < len(held) - 3
    write(tmp_path, kept)
    assert config_class(**kept).to_dict() == config_class(**held).to_dict()
    assert hf.read_config(tmp_path) == before


# ---- weights as they were released ---------------------------------------------------------------------------


def test_gpt2_without_its_prefix_and_with_its_masks(tmp_path: Path) -> None:
    """The first files hold the inner model's names and each layer's causal mask."""
    theirs = make_theirs("gpt2", CASES["gpt2"][1] | TOKENS)
    theirs.save_pretrained(tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    inner = {name.removeprefix("transformer."): tensor for name, tensor in held.items() if name != "lm_head.weight"}
    for layer in range(3):
        inner[f"h.{layer}.attn.bias"] = torch.ones(64, 64).tril()[None, None]
        inner[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(inner, tmp_path / "model.safetensors")
    model = hf.load(tmp_path)
    ids = random_ids(model, 2, 40)
    assert relative_error(model(ids), their_states(theirs, ids)[0]) < 1e-5


def test_llama_with_its_table_of_frequencies(tmp_path: Path) -> None:
    theirs = make_theirs("llama", CASES["llama-gqa"][1] | TOKENS)
    theirs.save_pretrained(tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    held |= {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(8) for layer in range(3)}
    save_file(held, tmp_path / "model.safetensors")
    model = hf.load(tmp_path)
    ids = random_ids(model, 2, 40)
    assert relative_error(model(ids), their_states(theirs, ids)[0]) < 1e-5


@pytest.mark.parametrize("is_released", [False, True])
def test_gemma3_beside_a_tower_for_images(is_released: bool, tmp_path: Path) -> None:
    """As transformers writes it now, and with the whole language model under one name."""
    tower = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2} | {
        "image_size": 28, "patch_size": 14, "vision_use_head": False, "model_type": "siglip_vision_model",
    }  # fmt: skip
    text = CASES["gemma3"][1] | TOKENS
    theirs = make_theirs("gemma3", {"text_config": text, "vision_config": tower, "mm_tokens_per_image": 4})
    theirs.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    held = {name: tensor.contiguous() for name, tensor in theirs.state_dict().items() if name != "lm_head.weight"}
    if is_released:
        held = {name.replace("model.language_model.", "language_model.model."): t for name, t in held.items()}
    held = {name.replace("model.vision_tower.", "vision_tower."): tensor for name, tensor in held.items()}
    held = {name.replace("model.multi_modal", "multi_modal"): tensor for name, tensor in held.items()}
    save_file(held, path)
    with pytest.raises(MorphError, match="has no place in a gemma3 model"):
        hf.load(tmp_path / "theirs")
    model = hf.load(tmp_path / "theirs", skip=["vision_tower.*", "multi_modal_projector.*"])
    ids = random_ids(model, 2, 40)
    assert relative_error(model(ids), their_states(theirs, ids)[0]) < 1e-5
    hf.save(model, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "gemma3_text"


# ---- bf16 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama-yarn", "mistral-odd", "gemma2-odd", "gemma3", "qwen3", "olmo3-odd",
                                  "smollm3", "cohere2"])  # fmt: skip
def test_in_bf16_both_err_alike(name: str, tmp_path: Path) -> None:
    """Saved in bf16, loaded in bf16: ours is no further from the exact logits than theirs, give or take."""
    theirs = make_theirs(CASES[name][0], CASES[name][1] | TOKENS).bfloat16()
    theirs.save_pretrained(tmp_path)
    ours = hf.load(tmp_path)
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16}
    ids = random_ids(ours, 2, 40)
    exact = hf.load(tmp_path, dtype=torch.float64)(ids)
    expected, states = their_states(theirs, ids)
    logits, seen = our_states(ours, ids)
    assert torch.equal(seen[0], states[0].float())  # the embedding, its factor rounded alike
    error, reference = relative_error(logits.double(), exact), relative_error(expected.double(), exact)
    assert error < 1.5 * reference < 0.15


def test_a_window_of_olmo3_turned_at_another_base_is_refused(tmp_path: Path) -> None:
    """Releases of transformers read one base for two kinds of layers in different ways."""
    folder = write(tmp_path / "folder", OLMO3 | {"rope_theta": 10_000.0})
    with pytest.raises(MorphError, match=r"rope_theta = 10000.0 is unsupported; .*rope_parameters for both"):
        hf.read_config(folder)
    edit_config(folder, rope_theta=500_000)
    hf.read_config(folder)
