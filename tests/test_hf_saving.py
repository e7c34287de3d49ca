"""Checkpoint folders written and read back: numbers, files, precision and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import morph
from morph import hf
from morph.config import (
    MLP,
    Attention,
    Dropout,
    GatedMLP,
    Interleaved,
    LayerNorm,
    Listed,
    ModelConfig,
    SlidingWindow,
)
from morph.errors import MorphError
from tests.hf import transformers
from tests.hf_folders import GPT2, LLAMA, WEIGHTS, edit_weights, refused, same_tensors, sound_folder  # noqa: F401
from tests.models import random_ids, stage_model

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
