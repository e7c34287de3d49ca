"""`morph upcycle`: folders carried over whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import morph
from morph import cli
from morph.carrying import REPORT, carry_over, size_like
from morph.config import Attention, LayerNorm, ModelConfig
from morph.errors import MorphError
from morph.forks import config_of
from morph.steps import SIZES, stage
from morph.train.loop import train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.models import random_ids, relative_error, stage_model
from tests.test_train_data import folder
from tests.test_upcycle import logits

RECIPE = Recipe(steps=4, batch_size=2, evaluate_every=2, evaluation_windows=4, checkpoint_every=2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A finished run of stage 9."""
    corpus = morph.train.load_corpus(folder(tmp_path / "text"))
    run = Run.create(tmp_path / "run", stage(9, "nano"), RECIPE, corpus, "cpu", "sliding-window", "nano")
    train(run, corpus=corpus)
    return run


def test_a_run_becomes_a_run_that_can_be_trained_on(run: Run, tmp_path: Path) -> None:
    report, out = carry_over(run.path, "13")
    assert out == tmp_path / "run-loss-free-balance" and (out / REPORT).read_text() == f"{report}\n"
    again = Run.load(out)
    assert again.config == stage(13, "nano") and again.recipe == RECIPE and again.facts["stage"] == "loss-free-balance"
    ids = random_ids(morph.train.load_model(run), 2, 16)
    assert relative_error(logits(morph.train.load_model(again), ids), logits(morph.train.load_model(run), ids)) < 1e-5
    done = train(again)
    assert done.step == 4 and again.summary is not None
    assert [path.name for path in again.checkpoints()] == ["step-000000", "step-000002", "step-000004"]
    assert not list(tmp_path.glob(".*"))


def test_folders_that_are_there_and_changes_without_recipe_leave_nothing_behind(run: Run, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(MorphError, match="exists already and is never overwritten"):
        carry_over(run.path, "13", taken)
    with pytest.raises(MorphError, match=r"lies in .*run, which is left as it is"):
        carry_over(run.path, "13", run.path / "checkpoints" / "step-000009")
    with pytest.raises(MorphError, match="no recipe carries"):
        carry_over(run.path, "lightning")
    with pytest.raises(MorphError, match="unknown stage 'hybird'"):
        carry_over(run.path, "hybird")
    with pytest.raises(MorphError, match="no run at"):
        carry_over(tmp_path / "nothing", "13")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failing_disk_leaves_nothing_half_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("morph.carrying.write_bytes", fail)
    with pytest.raises(MorphError, match="no space left"):
        carry_over(run.path, "13")
    assert sorted(tmp_path.rglob("*")) == before


def one_head(config: ModelConfig) -> Attention:
    """Its attention with one key-value head."""
    assert isinstance(config.attention, Attention)
    return replace(config.attention, n_kv_heads=1)


def test_a_checkpoint_becomes_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from morph import hf

    config = replace(config_of("qk-norm+untied", "nano"), embedding_scale=1.0)
    hf.save(stage_model(config), tmp_path / "qwen", "qwen3")
    (tmp_path / "qwen" / "tokenizer.json").write_text("{}")
    report, out = carry_over(tmp_path / "qwen", "qk-norm+untied+embedding-scale+mqa", tmp_path / "one")
    assert (out / "tokenizer.json").read_text() == "{}" and [move.name for move in report.moves] == ["gqa"]
    new, again = hf.load(out), morph.upcycle(hf.load(tmp_path / "qwen"), replace(config, attention=one_head(config)))[0]
    ids = random_ids(new, 2, 16)
    assert relative_error(logits(new, ids), logits(again, ids)) < 1e-5
    with pytest.raises(MorphError, match="no family that Morph writes can hold this model"):
        carry_over(tmp_path / "qwen", "qk-norm+untied+embedding-scale+moe", tmp_path / "moe")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "qwen"]


@pytest.mark.parametrize("size", ["nano", "tiny", "small"])
def test_widths_are_read_off_any_stage(size: str) -> None:
    for number in (0, 6, 7, 9, 13):
        assert size_like(stage(number, size)) == SIZES[size]
    own = replace(stage(0, "nano"), attention=Attention(n_heads=3, n_kv_heads=3), norm=LayerNorm())
    assert size_like(own).n_kv_heads == 1


def test_the_command_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["upcycle", str(run.path), "--to", "moe"])
    told = capsys.readouterr().out
    assert ended.value.code == 0 and "moe: function-preserving" in told and f"written to {run.path}-moe. Try: " in told
    with pytest.raises(SystemExit) as ended:
        cli.main(told.rpartition("Try: morph ")[2].split())
    assert ended.value.code == 0 and "after 4 steps" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["upcycle", str(run.path), "--to", "mla"])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1
