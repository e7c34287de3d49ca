"""Checkpoint folders on the disk: what is refused and how, what is written, and in which precision and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import morph
from morph import hf
from morph.config import (
    MLP,
    AllGlobal,
    Attention,
    Dropout,
    GatedMLP,
    Interleaved,
    LayerNorm,
    LearnedPosition,
    Listed,
    ModelConfig,
    RMSNorm,
    Rope,
    SlidingWindow,
)
from morph.errors import MorphError
from morph.model import Decoder
from tests.hf import edit_config, transformers
from tests.models import random_ids, stage_model

LLAMA = ModelConfig(
    vocab_size=61,
    d_model=24,
    n_layers=3,
    context_length=128,
    placement="pre",
    norm=RMSNorm(eps=1e-6),
    bias=False,
    position=Rope(),
    attention=Attention(n_heads=4, n_kv_heads=2),
    layout=AllGlobal(),
    feed_forward=GatedMLP(width=40, activation="silu"),
    tied=False,
    embedding_scale=1.0,
)
GPT2 = replace(
    LLAMA,
    norm=LayerNorm(),
    bias=True,
    position=LearnedPosition(length=128),
    attention=Attention(n_heads=4, n_kv_heads=4),
    feed_forward=MLP(width=96, activation="gelu-tanh"),
    tied=True,
)
WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound Llama."""
    return hf.save(stage_model(LLAMA), tmp_path / "llama", family="llama")


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(MorphError) as error:
        hf.load(folder)
    told = str(error.value)
    assert all(word in told for word in words) and "\n" not in told, told


def same_tensors(a: Decoder, b: Decoder) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[n], theirs[n]) and ours[n].dtype == theirs[n].dtype for n in ours
    )


# ---- what comes back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [LLAMA, GPT2, replace(LLAMA, tied=True)], ids=["llama", "gpt2", "tied"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_model_comes_back_bit_for_bit_in_its_precision(
    config: ModelConfig, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = stage_model(config, dtype=dtype)
    back = hf.load(hf.save(model, tmp_path / "copy"))
    assert back.config == config and not back.training
    assert same_tensors(model, back)
    ids = random_ids(model, 2, 9)
    with torch.no_grad():
        assert torch.equal(model(ids), back(ids))
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in back.parameters())


def test_another_precision_is_given_when_asked_for(folder: Path) -> None:
    whole, half = hf.load(folder), hf.load(folder, dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    assert same_tensors(whole.to(torch.bfloat16), half)
    for wrong in (torch.int64, "float32"):
        with pytest.raises(MorphError, match=r"dtype = .*give a floating-point type"):
            hf.load(folder, dtype=wrong)  # type: ignore[arg-type]


def test_tensors_of_several_precisions_keep_their_own(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.norm.weight": t["model.norm.weight"].double()}))
    model = hf.load(folder)
    assert model.norm.weight.dtype == torch.float64 and model.embedding.weight.dtype == torch.float32


def test_a_loaded_model_does_not_hang_on_its_files(folder: Path) -> None:
    model, before = hf.load(folder), load_file(folder / WEIGHTS)["lm_head.weight"].clone()
    (folder / WEIGHTS).write_bytes(b"\0" * (folder / WEIGHTS).stat().st_size)
    assert model.head is not None and torch.equal(model.head.weight, before)


def test_a_loaded_model_trains_and_counts_like_any_other(folder: Path) -> None:
    model = hf.load(folder)
    assert sum(p.numel() for p in model.parameters()) == morph.count(model.config).total
    ids = random_ids(model, 2, 9)
    model.loss(ids, ids).total.backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


# ---- several files -------------------------------------------------------------------------------------------


def test_weights_are_cut_into_files_with_an_index(folder: Path, tmp_path: Path) -> None:
    model = hf.load(folder)
    shards = hf.save(model, tmp_path / "shards", max_shard_bytes=8_000)
    files = sorted(file.name for file in shards.glob("*.safetensors"))
    count = len(files)
    assert count > 2 and files == [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]
    index = json.loads((shards / "model.safetensors.index.json").read_text())
    held = {name: file for file in files for name in load_file(shards / file)}
    assert index["weight_map"] == held
    assert index["metadata"]["total_size"] == sum(p.numel() * 4 for p in model.parameters())
    sizes = [sum(t.numel() * 4 for t in load_file(shards / file).values()) for file in files]
    assert max(sizes) <= 8_000 or all(len(load_file(shards / f)) == 1 for f, s in zip(files, sizes) if s > 8_000)
    assert same_tensors(model, hf.load(shards))
    assert not (shards / WEIGHTS).exists()


@pytest.mark.parametrize("size", [1, 10**9])
def test_the_smallest_and_the_largest_files(size: int, folder: Path, tmp_path: Path) -> None:
    model = hf.load(folder)
    out = hf.save(model, tmp_path / "out", max_shard_bytes=size)
    assert len(list(out.glob("*.safetensors"))) == (1 if size > 1 else len(list(model.parameters())))
    assert same_tensors(model, hf.load(out))


def test_a_damaged_set_of_files_is_told(folder: Path, tmp_path: Path) -> None:
    shards = hf.save(hf.load(folder), tmp_path / "shards", max_shard_bytes=8_000)
    index = shards / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    first = sorted(shards.glob("*.safetensors"))[0]

    table["weight_map"]["model.norm.weight"], right = first.name, table["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(table))
    refused(shards, str(first), "lacks model.norm.weight")
    table["weight_map"]["model.norm.weight"] = "../elsewhere.safetensors"
    index.write_text(json.dumps(table))
    refused(shards, "'../elsewhere.safetensors'", "no name of a file in this folder")
    table["weight_map"]["model.norm.weight"] = right
    index.write_text(json.dumps(table | {"weight_map": [1]}))
    refused(shards, "no weight_map")
    lost = {name: file for name, file in table["weight_map"].items() if name != "model.norm.weight"}
    index.write_text(json.dumps(table | {"weight_map": lost}))
    refused(shards, "holds model.norm.weight, which the index lacks")
    index.write_text(json.dumps(table))
    first.unlink()
    refused(shards, f"names {first.name}, which is not there")


# ---- folders that are refused --------------------------------------------------------------------------------


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


# ---- saving --------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_unasked(folder: Path, tmp_path: Path) -> None:
    model, before = hf.load(folder), sorted(folder.iterdir())
    with pytest.raises(MorphError, match="is there already; choose another folder, or say overwrite=True"):
        hf.save(model, folder)
    assert sorted(folder.iterdir()) == before
    (folder / "notes.txt").write_text("old")
    with torch.no_grad():
        model.norm.weight.add_(1)
    hf.save(model, folder, overwrite=True)
    assert sorted(folder.iterdir()) == before  # replaced whole
    assert same_tensors(model, hf.load(folder))
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(MorphError, match="precious"):
            hf.save(model, other, overwrite=overwrite)
    assert [file.name for file in other.iterdir()] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    hf.save(model, tmp_path / "empty")
    with pytest.raises(MorphError, match="give the name of a new one"):
        hf.save(model, "..")


def test_a_save_that_fails_leaves_nothing_and_keeps_the_old(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, before = hf.load(folder), (folder / WEIGHTS).read_bytes()
    files, moves = sorted(tmp_path.iterdir()), os.replace

    def full(source: Any, target: Any) -> None:
        if str(target).endswith(".safetensors") and "00002" in str(target):
            raise OSError(28, "No space left on device")
        moves(source, target)

    monkeypatch.setattr(os, "replace", full)
    for target, overwrite in ((tmp_path / "new", False), (folder, True)):
        with pytest.raises(MorphError, match="no space left on the disk"):
            hf.save(model, target, max_shard_bytes=8_000, overwrite=overwrite)
    assert sorted(tmp_path.iterdir()) == files and (folder / WEIGHTS).read_bytes() == before


def test_a_config_that_no_family_holds_is_told_by_field(folder: Path, tmp_path: Path) -> None:
    for change, field in (
        ({"embedding_scale": 2.0}, "embedding_scale"),
        ({"placement": "post-branch"}, "placement"),
        ({"layout": Listed(local=SlidingWindow(window=4), global_layers=(0,))}, "layout"),
        ({"feed_forward": MLP(width=8, activation="relu")}, "feed_forward"),
        ({"bias": True, "placement": "parallel"}, "placement"),
        ({"norm": LayerNorm()}, "norm"),
    ):
        model = stage_model(replace(LLAMA, **change))
        with pytest.raises(MorphError, match=rf"llama cannot hold this model: .*{field}"):
            hf.save(model, tmp_path / "no", family="llama")
    with pytest.raises(
        MorphError, match=r"no family .* can hold this model; the nearest is qwen3_next: norm: RMSNorm.* → Zero"
    ):
        hf.save(stage_model(14), tmp_path / "no")
    with pytest.raises(MorphError, match=r"model_type = 'lama' is unknown.*did you mean 'llama'"):
        hf.save(stage_model(LLAMA), tmp_path / "no", family="lama")
    with pytest.raises(MorphError, match="a model with numbers"):
        hf.save(morph.build(LLAMA, device="meta"), tmp_path / "no")
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(MorphError, match=r"max_shard_bytes = .*a whole number"):
            hf.save(stage_model(LLAMA), tmp_path / "no", max_shard_bytes=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "no").exists()


def test_equal_models_are_held_however_their_config_says_it(tmp_path: Path) -> None:
    every = replace(LLAMA, dropout=Dropout(), attention=replace(LLAMA.attention, scale=6**-0.5))
    assert hf.load(hf.save(stage_model(every), tmp_path / "a", family="llama")).config == LLAMA
    windows = SlidingWindow(window=4)
    config = replace(
        LLAMA,
        layout=Listed(local=windows, global_layers=(1,)),  # every second one, said the long way
        attention=replace(LLAMA.attention, qk_norm=LLAMA.norm),
    )
    back = hf.load(hf.save(stage_model(config), tmp_path / "b", family="qwen3")).config
    assert back == replace(config, layout=Interleaved(n_local=1, local=windows))


def test_what_a_class_of_transformers_refuses_is_not_written(tmp_path: Path) -> None:
    """Llama's wants heads that divide the width, whatever their own; Mistral's does not."""
    config = replace(LLAMA, attention=Attention(n_heads=5, n_kv_heads=5, head_dim=8))
    with pytest.raises(MorphError, match=r"llama cannot hold this model: attention.n_heads = 5 does not divide"):
        hf.save(stage_model(config), tmp_path / "llama", family="llama")
    out = hf.save(stage_model(config), tmp_path / "any")
    assert json.loads((out / "config.json").read_text())["model_type"] == "mistral"
    transformers().AutoModelForCausalLM.from_pretrained(out)


def test_the_first_family_that_holds_a_config_is_taken(tmp_path: Path) -> None:
    for config, name in ((LLAMA, "llama"), (GPT2, "gpt2")):
        out = hf.save(stage_model(config), tmp_path / name)
        assert json.loads((out / "config.json").read_text())["model_type"] == name


# ---- memory, extras ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of memory")
@pytest.mark.parametrize("size", [10**10, 20_000_000])
def test_loading_holds_the_weights_once(size: int, folder: Path, tmp_path: Path) -> None:
    wide = replace(LLAMA, d_model=1024, n_layers=5, feed_forward=GatedMLP(width=2048, activation="silu"))
    model = morph.build(wide)
    bytes_held = sum(p.numel() * 4 for p in model.parameters())
    hf.save(model, tmp_path / "wide", max_shard_bytes=size)
    code = """
import sys
from morph.hf import checkpoint, files
files.AT_ONCE = 8_000_000
checkpoint.load(sys.argv[2])  # what is imported on first use is no weight
def status(key):
    return 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
before = status("VmRSS")
model = checkpoint.load(sys.argv[1])
print(status("VmHWM") - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "wide"), str(folder)], capture_output=True, text=True, check=True
    )
    assert bytes_held > 120e6
    assert int(done.stdout) < 1.4 * bytes_held


def test_without_safetensors_the_extra_is_named(folder: Path) -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("safetensors", "transformers"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import morph
print("torch" in sys.modules, morph.hf.read_config(sys.argv[1]).n_layers)
try:
    morph.hf.load(sys.argv[1])
except morph.MorphError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "False 3"
    assert second == "Hugging Face checkpoints need safetensors: pip install -e '.[hf]' in Morph's folder"
