"""Checkpoint folders as an attacker or a slip of the hand leaves them: refused in one line, or read right."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import morph
from morph import hf
from morph.errors import MorphError
from morph.model import Decoder
from tests.hf import edit_config
from tests.hf_folders import LLAMA
from tests.models import random_ids

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound Llama, in a folder whose name is no plain word."""
    return hf.save(morph.build(LLAMA), tmp_path / "lláma 漢 x", family="llama")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """The same in many files."""
    return hf.save(morph.build(LLAMA), tmp_path / "many", family="llama", max_shard_bytes=3_000)


def refused(folder: Path, *words: str, **options: Any) -> None:
    with pytest.raises(MorphError) as error:
        hf.load(folder, **options)
    told = str(error.value)
    assert all(word in told for word in words) and told.isprintable() and len(told) < 700, told


# ---- config.json ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [[], {}, [["silu"]], 10**400, -1, float("nan"), float("inf"), "x", True, 0])
@pytest.mark.parametrize("key", ["hidden_act", "num_hidden_layers", "rms_norm_eps"])
def test_a_value_of_another_kind_is_told_by_its_key(folder: Path, key: str, value: Any) -> None:
    edit_config(folder, **{key: value})
    refused(folder, *key.split("_")[-1:])


@pytest.mark.parametrize(
    "family, key, value",
    [
        ("gemma3_text", "query_pre_attn_scalar", 0),
        ("gemma3_text", "query_pre_attn_scalar", -4.0),
        ("gemma3_text", "sliding_window_pattern", 0),
        ("afmoe", "global_attn_every_n_layers", 0),
        ("smollm3", "no_rope_layer_interval", 0),
        ("qwen3_next", "full_attention_interval", 0),
        ("qwen3_moe", "mlp_only_layers", 3),
        ("llama", "num_hidden_layers", 10**9),
        ("olmo3", "rope_parameters", {"sliding_attention": 3}),
        ("llama", "rope_parameters", {"rope_type": "yarn", "factor": 0, "mscale": 1, "mscale_all_dim": 1}),
        ("llama", "rope_parameters", {"rope_type": [1]}),
        ("llama", "rope_parameters", {"rope_type": "llama3", "factor": "8"}),
    ],
)
def test_what_would_divide_by_zero_or_fill_the_memory(folder: Path, family: str, key: str, value: Any) -> None:
    layers = {} if key == "num_hidden_layers" else {"num_hidden_layers": 4}
    edit_config(folder, model_type=family, **layers, **{key: value})
    begun = time.monotonic()
    with pytest.raises(MorphError):
        hf.read_config(folder)
    assert time.monotonic() - begun < 30


def test_names_that_no_terminal_shows_are_written_as_python_writes_them(folder: Path) -> None:
    edit_config(folder, **{"a\n\x1b[31m": 1})
    refused(folder, r"'a\n\x1b[31m' = 1")


def test_pipes_are_not_waited_for(folder: Path, shards: Path) -> None:
    for file in (folder / "config.json", shards / INDEX):
        file.unlink()
        os.mkfifo(file)
    refused(folder, "config.json is a pipe")
    refused(shards, f"{INDEX} is a pipe")


# ---- weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "sub/a.safetensors", "/etc/passwd", ".", "..", "", "a\0b", "x" * 999]
)
def test_an_index_names_files_of_its_folder_only(shards: Path, name: str) -> None:
    (shards.parent / "a.safetensors").write_bytes(b"never opened")
    table = json.loads((shards / INDEX).read_text())
    table["weight_map"] = dict.fromkeys(table["weight_map"], name)
    (shards / INDEX).write_text(json.dumps(table))
    refused(shards, INDEX)


def test_a_weight_in_two_shards_is_told(shards: Path) -> None:
    first, second = sorted(shards.glob("*-of-*"))[:2]
    save_file(load_file(second) | {name: 2 * tensor for name, tensor in load_file(first).items()}, second)
    refused(shards, f"{second.name} holds model.embed_tokens.weight, which the index says is in {first.name}")


def test_one_file_counts_beside_an_index_as_in_transformers(folder: Path, shards: Path) -> None:
    save_file({n: 2 * t for n, t in load_file(folder / WEIGHTS).items()}, shards / WEIGHTS, metadata={"format": "pt"})
    held = hf.load(folder).embedding.weight
    assert torch.equal(hf.load(shards).embedding.weight, 2 * held)


def _head(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def edit(folder: Path) -> None:
        data = (folder / WEIGHTS).read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8 : 8 + size])
        change(head)
        text = json.dumps(head).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])

    return edit


HEAD = "lm_head.weight"
DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda f: (f / WEIGHTS).write_bytes(b""), "damaged or incomplete"),
    "cut": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-9]), "damaged or incomplete"),
    "longer": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes() + b"x"), "damaged or incomplete"),
    "pickle": (lambda f: torch.save({}, f / WEIGHTS), "damaged or incomplete"),
    "huge head": (lambda f: (f / WEIGHTS).write_bytes(b"\xff" * 99), "damaged or incomplete"),
    "negative": (_head(lambda h: h[HEAD].update(shape=[-1, 24])), "damaged or incomplete"),
    "huge": (_head(lambda h: h[HEAD].update(shape=[2**62, 24])), "damaged or incomplete"),
    "overlap": (_head(lambda h: h[HEAD].update(data_offsets=h["model.norm.weight"]["data_offsets"])), "damaged"),
    "whole numbers": (_head(lambda h: h[HEAD].update(dtype="I32")), "is stored as I32"),
    "folder": (lambda f: ((f / WEIGHTS).unlink(), (f / WEIGHTS).mkdir()), "has neither"),
    "pipe": (lambda f: ((f / WEIGHTS).unlink(), os.mkfifo(f / WEIGHTS)), "has neither"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_weights_are_told(folder: Path, name: str) -> None:
    damage, words = DAMAGE[name]
    damage(folder)
    refused(folder, words)


def test_maps_of_several_types_take_the_widest(folder: Path) -> None:
    whole = load_file(folder / WEIGHTS)
    mixed = {n: t.bfloat16() if "mlp" in n else t.double() if n == HEAD else t for n, t in whole.items()}
    save_file(mixed, folder / WEIGHTS)
    model = hf.load(folder)
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert torch.equal(model.blocks[1].feed_forward.up.weight, mixed["model.layers.1.mlp.up_proj.weight"].double())
    ids = random_ids(model, 1, 7)
    expected = hf.load(folder, dtype=torch.float64)(ids)
    assert torch.equal(model(ids), expected)


@pytest.mark.parametrize("skip", ["lm_head.weight", [3], None, 3])
def test_skip_is_a_list_of_names(folder: Path, skip: Any) -> None:
    refused(folder, "skip = ", "give a list", skip=skip)


@pytest.mark.parametrize("given", [None, 3, "a\0b", "\ud800"])
def test_what_is_no_path(given: Any) -> None:
    for call in (hf.load, hf.read_config, lambda folder: hf.save(morph.build(LLAMA), folder, family="llama")):
        with pytest.raises(MorphError, match="is no path"):
            call(given)


# ---- saving --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [{"recipe.json": "{}", "config.json": '{"model_type": "x"}'}, {"config.json": "{}"}])
def test_runs_and_what_else_has_a_config_are_never_overwritten(tmp_path: Path, inside: dict[str, str]) -> None:
    (tmp_path / "taken").mkdir()
    for name, text in inside.items():
        (tmp_path / "taken" / name).write_text(text)
    with pytest.raises(MorphError, match="something else than a checkpoint"):
        hf.save(morph.build(LLAMA), tmp_path / "taken", family="llama", overwrite=True)
    assert {file.name: file.read_text() for file in (tmp_path / "taken").iterdir()} == inside


def test_a_link_stays_and_leads_to_the_new_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    hf.save(morph.build(LLAMA, seed=5), tmp_path / "link", family="llama", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert torch.equal(hf.load(folder).embedding.weight, morph.build(LLAMA, seed=5).embedding.weight)


SAVING = """
import os, signal, sys
from pathlib import Path
import morph
from morph import hf
from morph.train import files
from tests.hf_folders import LLAMA
at = sys.argv[2]
kill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if at == "aside":
    real = os.rename
    os.rename = lambda *names: (real(*names), kill())
elif at == "removing":
    files.shutil.rmtree = lambda path, **how: kill() if str(path).endswith(".old") and os.path.exists(path) else None
else:
    files.sync_folder = kill
hf.save(morph.build(LLAMA, seed=5), Path(sys.argv[1]), family="llama", overwrite=True)
"""


@pytest.mark.parametrize("at", ["writing", "aside", "removing"])
def test_a_killed_save_loses_no_folder(folder: Path, at: str) -> None:
    """Wherever it is killed, a whole folder is there, the old one or the new; at worst under a hidden name."""
    before = morph.build(LLAMA).embedding.weight
    subprocess.run([sys.executable, "-c", SAVING, str(folder), at], check=False)
    if at == "aside":
        [hidden] = folder.parent.glob(".*.old")
        assert not folder.exists()
        assert torch.equal(hf.load(hidden).embedding.weight, before)
        return
    found = hf.load(folder).embedding.weight
    assert torch.equal(found, before if at == "writing" else morph.build(LLAMA, seed=5).embedding.weight)
    shutil.rmtree(folder)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("safetensors.torch")

    def full(*_: Any, **__: Any) -> None:
        raise hf_error("Error while serializing: I/O error: No space left on device (os error 28)")

    from safetensors import SafetensorError as hf_error

    monkeypatch.setattr(package, "save_file", full)
    with pytest.raises(MorphError, match="no space left on the disk"):
        hf.save(morph.build(LLAMA), tmp_path / "new", family="llama")
    assert list(tmp_path.iterdir()) == []


def test_modules_that_share_a_weight_are_written_twice(tmp_path: Path) -> None:
    model: Decoder = morph.build(LLAMA)
    model.blocks[0].feed_forward.up = model.blocks[0].feed_forward.gate
    back = hf.load(hf.save(model, tmp_path / "new", family="llama"))
    assert torch.equal(back.blocks[0].feed_forward.up.weight, model.blocks[0].feed_forward.gate.weight)


def test_types_that_it_could_not_read_again_are_not_written(tmp_path: Path) -> None:
    model = morph.build(LLAMA)
    model.norm.weight.data = model.norm.weight.data.to(torch.float8_e4m3fn)
    with pytest.raises(MorphError, match=r"norm\.weight is torch\.float8_e4m3fn"):
        hf.save(model, tmp_path / "new", family="llama")


# ---- check ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"tokens": "x"}, {"tokens": 1.5}, {"tokens": 10**9}, {"batch": 10**9}, {"batch": 2.0}, {"seed": 10**30},
     {"seed": -1}, {"seed": None}, {"tolerance": "x"}, {"tolerance": float("inf")}, {"tolerance": None}],
)  # fmt: skip
def test_check_refuses_texts_that_are_none(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(MorphError, match=next(iter(options))):
        hf.check(folder, **options)
