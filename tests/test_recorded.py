"""The models that the package ships, and the tool that made them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import morph
from morph.errors import MorphError
from morph.story.subject import RECORDED, read_recording, recorded, subject
from morph.train import Recipe, Run, load_model, train
from morph.train.data import load_corpus
from tests.models import random_ids
from tests.test_train_data import folder

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "morph" / "story" / "recorded"
FILES = sorted(FOLDER.glob("*.safetensors"))


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """tools/record.py, imported."""
    spec = importlib.util.spec_from_file_location("record", ROOT / "tools" / "record.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["record"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_name_is_there_with_both_seeds() -> None:
    assert {path.stem for path in FILES} == {f"{name}-{seed}" for name in RECORDED for seed in (0, 1)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@torch.no_grad()
def test_a_recorded_model_is_whole_and_has_learned(path: Path, tool: ModuleType) -> None:
    name, _, seed = path.stem.rpartition("-")
    shown, recipe = recorded(name, int(seed)), tool.RECIPES[name]
    assert path.stat().st_size < tool.LARGEST
    assert shown.is_trained and shown.seed == int(seed)
    assert shown.config == recipe.config(), "the file is of another config: record it again"
    facts = shown.provenance
    assert facts["recipe"] == recipe.recipe.with_(seed=int(seed)).to_dict()
    steps = recipe.recipe.steps
    assert shown.name == facts["name"] == f"{recipe.what}, trained for {steps:,} steps, seed {seed}"
    assert len(facts["corpus"]["sha256"]) == 64 and facts["versions"].keys() == {"morph", "torch", "python"}
    assert facts["corpus"]["name"] == "python standard library" and facts["date"] >= "2025"
    assert [r["step"] for r in shown.metrics] == list(range(every := recipe.recipe.evaluate_every, steps + 1, every))
    assert shown.metrics[-1]["validation_bits_per_byte"] == pytest.approx(facts["validation_bits_per_byte"], rel=1e-5)

    length = shown.config.context_length + 1
    ids = shown.ids(length, batch=8)
    assert shown.model(ids).isfinite().all()
    loss = shown.model.loss(ids[:, :-1], ids[:, 1:]).cross_entropy.item()
    assert loss / torch.log(torch.tensor(2.0)) < 4.5, "bits per byte on a passage it did not train on; chance is 8"


@pytest.mark.parametrize("path", [p for p in FILES if p.stem.startswith("experts")], ids=lambda path: path.stem)
def test_a_recorded_history_of_experts_is_complete(path: Path) -> None:
    shown = read_recording(path)
    assert len(shown.metrics) == 24
    for step in shown.metrics:
        shares = torch.tensor(step["expert_load"])
        assert shares.shape == (4, 32) and torch.allclose(shares.sum(-1), torch.ones(4), atol=32 * 5e-5)
        assert ("selection_bias" in step) == (path.stem[:-2] == "experts")
    if path.stem[:-2] == "experts":
        held = torch.stack([b.feed_forward.router.selection_bias for b in shown.model.blocks])  # type: ignore[union-attr]
        assert torch.allclose(held, torch.tensor(shown.metrics[-1]["selection_bias"]), atol=1e-6), "kept in fp32"


@pytest.mark.parametrize("stage", [0, 13])
def test_what_is_recorded_is_read_back(stage: int, tmp_path: Path, tool: ModuleType) -> None:
    """Two steps of a nano model: its weights to bf16, its biases to the bit, its records at validation."""
    recipe = Recipe(steps=2, batch_size=2, evaluate_every=1, evaluation_windows=4, checkpoint_every=2)
    recording = tool.Recording("a test", lambda: morph.stage(stage, "nano"), recipe, "Nothing to see.")
    corpus = load_corpus(folder(tmp_path / "text"))
    reports: list[object] = []
    size = tool.record(recording, 5, tmp_path / "new" / "it-5.safetensors", corpus, reports.append)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["it-5.safetensors"]
    assert size == (tmp_path / "new" / "it-5.safetensors").stat().st_size and len(reports) == 2
    read = read_recording(tmp_path / "new" / "it-5.safetensors")
    assert (read.name, read.seed) == ("a test, trained for 2 steps, seed 5", 5)
    assert read.config == morph.stage(stage, "nano")
    assert [r["step"] for r in read.metrics] == [1, 2]
    assert "tokens_per_second" not in read.metrics[0]
    json.dumps(read.provenance)

    run = Run.create(tmp_path / "run", read.config, recipe.with_(seed=5), corpus, "cpu")
    train(run, corpus=corpus)
    trained = load_model(run).state_dict()
    for name, tensor in read.model.state_dict().items():
        kept = trained[name] if name.endswith("selection_bias") else trained[name].bfloat16().float()
        assert torch.equal(tensor, kept), name
    assert read.metrics[-1]["validation_bits_per_byte"] == pytest.approx(run.summary.validation_bits_per_byte, rel=1e-5)  # type: ignore[union-attr]
    assert read.model(random_ids(read.model, 1, 8)).isfinite().all()


def test_a_model_that_is_too_large_is_refused(
    tmp_path: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "LARGEST", 1000)
    recipe = Recipe(steps=1, batch_size=1, evaluate_every=1, evaluation_windows=1, checkpoint_every=1)
    recording = tool.Recording("a test", lambda: morph.stage(0, "nano"), recipe, "")
    with pytest.raises(MorphError, match=r"x\.safetensors would take [\d,]+ bytes; choose a config that fits in 1,000"):
        tool.record(recording, 0, tmp_path / "x.safetensors", load_corpus(folder(tmp_path / "text")))
    assert not (tmp_path / "x.safetensors").exists()


def test_the_tools_table_has_every_recorded_name(tool: ModuleType) -> None:
    assert tuple(tool.RECIPES) == RECORDED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["expert"], "nothing is recorded as 'expert': give deep, relu, windows"),
        (["windows", "mask"], "nothing is recorded as 'mask'"),
        (["windows", "--seeds", "-1"], "seed is -1: give a whole number from 0"),
    ],
)
def test_what_the_tool_refuses_is_refused_before_any_work(
    arguments: list[str],
    words: str,
    tool: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool, "load_corpus", lambda: pytest.fail("read the text"))
    assert tool.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("record: ") and words in err and err.count("\n") == 1


def test_what_is_no_recording_is_told(tmp_path: Path) -> None:
    with pytest.raises(MorphError, match="no model was recorded as 'deep' with seed 7"):
        recorded("deep", 7)
    with pytest.raises(MorphError, match="no model was recorded as 'shallow'"):
        recorded("shallow")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(MorphError, match="is no recorded model"):
        read_recording(tmp_path / "text")
    with pytest.raises(MorphError, match="is no recorded model"):
        read_recording(tmp_path / "nothing")


def test_a_recorded_name_is_a_subject() -> None:
    shown = subject("windows")
    assert shown.name == recorded("windows").name and shown.is_trained
    with pytest.raises(MorphError, match="did you mean 'windows'"):
        subject("window")
