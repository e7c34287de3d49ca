"""Checkpoint folders that are refused: each in one line that names what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from morph import hf
from tests.hf import edit_config
from tests.hf_folders import GPT2, LLAMA, WEIGHTS, edit_weights, refused, same_tensors, sound_folder  # noqa: F401
from tests.models import stage_model


def test_no_folder_no_config_no_weights(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "nowhere is not there", "config.json and *.safetensors")
    refused(folder / "config.json", "config.json is a file")
    refused(tmp_path, "has no config.json")
    (folder / WEIGHTS).unlink()
    refused(folder, "neither model.safetensors nor model.safetensors.index.json")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth"])
def test_pickled_weights_are_not_opened(name: str, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / name).write_bytes(b"cos\nsystem\n(S'touch run'\ntR.")
    refused(folder, name, "can run programs", "safetensors", "save_pretrained")


@pytest.mark.parametrize("text", ["", "{", "[1]", '"llama"', "\xff\xfe", "[" * 100_000])
def test_a_config_that_is_no_table(text: str, folder: Path) -> None:
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    refused(folder, "config.json", "again")


@pytest.mark.parametrize("kept", [0, 4, 100, -1, -5000])
def test_truncated_weights(kept: int, folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:kept])
    refused(folder, WEIGHTS, "is damaged or incomplete", "fetch that file again")


def test_an_unknown_family_is_told_with_the_known_ones(folder: Path) -> None:
    edit_config(folder, model_type="lama")
    refused(folder, "model_type = 'lama' is unknown", "gpt2", "mistral", "did you mean 'llama'?")
    for wrong in (..., None, 3, ["llama"]):
        edit_config(folder, model_type=wrong)
        refused(folder, "model_type = ", "is unknown")


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    (folder / "modeling.py").write_text(f"open({str(trap)!r}, 'w')")
    code = {"AutoModelForCausalLM": "modeling.Model", "AutoConfig": "modeling.Config"}
    edit_config(folder, auto_map=code)
    hf.load(folder)  # a family that Morph knows needs none of it
    edit_config(folder, auto_map=code, model_type="strange")
    refused(folder, "model_type = 'strange' is unknown", "code that a folder brings is never run")
    assert not trap.exists()


def test_a_missing_weight_is_named(folder: Path) -> None:
    edit_weights(folder, lambda t: t.pop("model.layers.1.self_attn.k_proj.weight"))
    refused(folder, "lacks the weight model.layers.1.self_attn.k_proj.weight of shape (12, 24)")


def test_an_unknown_weight_is_named(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.layers.1.mlp.up_proj.bias": torch.zeros(40)}))
    refused(folder, "weight model.layers.1.mlp.up_proj.bias has no place")
    edit_weights(folder, lambda t: t.update({"other": torch.zeros(1)}))
    refused(folder, "(and 1 more) has no place in a llama model")


def test_a_renamed_weight_suggests_itself(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"lm_heads.weight": t.pop("lm_head.weight")}))
    refused(folder, "lacks the weight lm_head.weight", "did you mean 'lm_heads.weight'?")


def test_a_weight_of_another_shape_is_named_with_both(folder: Path) -> None:
    edit_config(folder, num_key_value_heads=4)
    refused(folder, "model.layers.0.self_attn.k_proj.weight has shape (12, 24)", "asks for (24, 24)")


def test_whole_numbers_and_eights_of_floats_are_refused(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.norm.weight": t["model.norm.weight"].to(torch.float8_e4m3fn)}))
    refused(folder, "model.norm.weight is stored as F8_E4M3", "BF16")
    edit_weights(folder, lambda t: t.update({"model.norm.weight": torch.zeros(24, dtype=torch.int8)}))
    refused(folder, "model.norm.weight is stored as I8")


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("hidden_act", "mish", ("hidden_act = 'mish' is unsupported", "silu")),
        ("hidden_size", "24", ("hidden_size = '24' is unsupported", "a whole number")),
        ("hidden_size", 24.0, ("hidden_size = 24.0 is unsupported",)),
        ("hidden_size", ..., ("lacks hidden_size",)),
        ("vocab_size", None, ("lacks vocab_size",)),
        ("rms_norm_eps", "tiny", ("rms_norm_eps = 'tiny'", "a number")),
        ("tie_word_embeddings", 1, ("tie_word_embeddings = 1", "true or false")),
        ("attention_bias", True, ("attention_bias = True is unsupported", "mlp_bias")),
        ("num_attention_heads", 5, ("n_kv_heads = 2 does not divide",)),
        ("is_encoder_decoder", True, ("is_encoder_decoder = True is unsupported",)),
        ("rope_parameters", [1], ("rope_parameters = [1]", "a table")),
        ("rope_parameters", {"rope_type": "longrope", "rope_theta": 1e4}, ("rope_type = 'longrope'", "yarn")),
        ("rope_parameters", {"type": "dynamic", "factor": 2.0}, ("rope_parameters.type = 'dynamic'", "linear")),
        ("rope_parameters", {"rope_type": "linear"}, ("lacks rope_parameters.factor",)),
        ("rope_parameters", {"rope_type": "default", "curl": 1}, ("rope_parameters.curl = 1 is an option",)),
        (
            "rope_parameters",
            {"rope_type": "yarn", "factor": 2.0, "partial_rotary_factor": 0.5},
            ("rope_parameters.partial_rotary_factor = 0.5", "whole heads"),
        ),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0}, ("rope_scaling = ", "remove one of the two")),
        ("quantization_config", {"quant_method": "fp8"}, ("quantization_config", "fp32, fp16 and bf16")),
        ("sliding_window", 8, ("sliding_window = 8 is an option that Morph does not know",)),
        ("logit_scale", 0.5, ("logit_scale = 0.5 is an option that Morph does not know",)),
    ],
)
def test_what_a_config_cannot_say(key: str, value: Any, words: tuple[str, ...], folder: Path) -> None:
    edit_config(folder, **{key: value})
    refused(folder, *words)


@pytest.mark.parametrize(
    "keys",
    [
        {
            "bos_token_id": 7,
            "eos_token_id": [1, 2],
            "attention_dropout": 0.1,
            "use_cache": False,
            "torch_dtype": "half",
        },
        {
            "_name_or_path": "x",
            "transformers_version": "4.1",
            "initializer_range": 3,
            "pretraining_tp": 2,
            "top_p": 0.9,
        },
        {"sliding_window": None, "logit_scale": None, "quantization_config": None, "id2label": {"0": "A"}},
    ],
)
def test_keys_without_effect_are_passed_over(keys: dict[str, Any], folder: Path) -> None:
    before = hf.read_config(folder)
    edit_config(folder, **keys)
    assert hf.read_config(folder) == before


def test_a_stored_copy_of_a_tied_table_must_be_one(tmp_path: Path) -> None:
    model = stage_model(replace(LLAMA, tied=True))
    folder = hf.save(model, tmp_path / "tied")
    assert "lm_head.weight" not in load_file(folder / WEIGHTS)
    table = model.embedding.weight.detach().clone()
    edit_weights(folder, lambda t: t.update({"lm_head.weight": table}))
    assert same_tensors(model, hf.load(folder))
    edit_weights(folder, lambda t: t["lm_head.weight"].mul_(1.01))
    refused(folder, "lm_head.weight differs from model.embed_tokens.weight", "tie_word_embeddings to false")
    edit_weights(folder, lambda t: t.update({"lm_head.weight": table[:-1].clone()}))
    refused(folder, "lm_head.weight differs")
