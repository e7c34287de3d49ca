"""A run on disk: nothing half-written, nothing overwritten, and every damage told in one line."""

import errno
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import morph
from morph.errors import MorphError
from morph.train import files, load_model
from morph.train.data import Corpus, load_corpus
from morph.train.loop import train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.test_train_data import folder

RECIPE = Recipe(steps=4, batch_size=2, evaluate_every=2, evaluation_windows=4, checkpoint_every=2)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return load_corpus(folder(tmp_path / "text"))


@pytest.fixture
def run(tmp_path: Path, corpus: Corpus) -> Run:
    return Run.create(tmp_path / "run", morph.stage(0, size="nano"), RECIPE, corpus, "cpu", "2017")


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_a_run_records_what_it_needs(run: Run, corpus: Corpus) -> None:
    again = Run.load(run.path)
    assert (again.config, again.recipe) == (run.config, RECIPE)
    assert again.facts["corpus"]["sha256"] == corpus.sha256
    assert again.facts["versions"].keys() == {"morph", "torch", "python"}
    assert again.facts["device"] == "cpu"
    assert sorted(p.name for p in run.path.iterdir()) == ["checkpoints", "config.json", "recipe.json"]
    assert again.corpus().sha256 == corpus.sha256
    assert (again.summary, again.latest(), again.metrics()) == (None, None, [])


def test_an_existing_folder_is_refused_untouched(tmp_path: Path, run: Run, corpus: Corpus) -> None:
    before = tree(run.path)
    with pytest.raises(MorphError, match="exists already and is never overwritten"):
        Run.create(run.path, run.config, RECIPE, corpus, "cpu")
    assert tree(run.path) == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MorphError, match="exists already"):
        Run.create(tmp_path / "file", run.config, RECIPE, corpus, "cpu")
    (tmp_path / "bare").mkdir()
    assert Run.create(tmp_path / "bare", run.config, RECIPE, corpus, "cpu").path.is_dir()


def test_a_failed_creation_leaves_nothing(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_bytes", full)
    with pytest.raises(MorphError, match="no space left on the disk while writing"):
        Run.create(tmp_path / "deep" / "run", morph.stage(0, size="nano"), RECIPE, corpus, "cpu")
    assert list((tmp_path / "deep").iterdir()) == []


def test_text_and_vocabulary_are_checked_first(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(MorphError, match="needs at least 129"):
        (tmp_path / "short").write_text("too short")
        Run.create(tmp_path / "run", morph.stage(0), RECIPE, load_corpus(tmp_path / "short"), "cpu")
    small = morph.ModelConfig.from_dict(morph.stage(0, size="nano").to_dict() | {"vocab_size": 100})
    with pytest.raises(MorphError, match="vocab_size is 100, but bytes need 256"):
        Run.create(tmp_path / "run", small, RECIPE, corpus, "cpu")
    assert not (tmp_path / "run").exists()


def test_metrics_survive_a_line_cut_short(run: Run) -> None:
    lines = [f'{{"step": {step}, "bits_per_byte": 5.5}}\n' for step in (1, 2, 3)]
    run.metrics_path.write_text("".join(lines) + '{"ste')
    assert [r["step"] for r in run.metrics()] == [1, 2, 3]
    run.truncate_metrics(2)
    assert run.metrics_path.read_text() == "".join(lines[:2])


def test_resuming_with_something_else_is_refused(run: Run, tmp_path: Path) -> None:
    run.require_same(run.config, {"steps": 4, "seed": None})
    with pytest.raises(MorphError, match="was started with steps 4, not 9"):
        run.require_same(None, {"steps": 9})
    with pytest.raises(MorphError, match="was started with another config"):
        run.require_same(morph.stage(12, size="nano"), {})
    sized = Run.create(tmp_path / "sized", run.config, RECIPE, run.corpus(), "cpu", "2017", "nano")
    sized.require_same(None, {}, "nano")
    with pytest.raises(MorphError, match="was started with size nano, not small"):
        sized.require_same(None, {}, "small")
    (tmp_path / "text" / "part0" / "text00.txt").write_text("changed " * 50)
    with pytest.raises(MorphError, match="has changed"):
        run.corpus()


def test_only_the_last_two_checkpoints_are_kept_and_the_model_loads(run: Run, corpus: Corpus) -> None:
    recipe = RECIPE.with_(steps=5, checkpoint_every=1)
    run = Run.create(run.path.with_name("five"), run.config, recipe, corpus, "cpu")
    train(run, corpus=corpus)
    assert [c.name for c in run.checkpoints()] == ["step-000004", "step-000005"]
    assert (run.path / "latest").read_text() == "step-000005\n"
    model = load_model(run)
    assert not model.training
    fresh = morph.build(run.config, seed=0)
    assert not torch.equal(model.embedding.weight, fresh.embedding.weight)
    assert not list(run.path.rglob("*.tmp"))


def test_selection_biases_are_in_the_checkpoint(tmp_path: Path, corpus: Corpus) -> None:
    run = Run.create(tmp_path / "balanced", morph.stage(13, size="nano"), RECIPE, corpus, "cpu")
    train(run, corpus=corpus)
    biases = [b for name, b in load_model(run).named_buffers() if "selection_bias" in name]
    rate = 0.001
    assert len(biases) == 4
    for bias in biases:  # four steps of a fixed size up, down or not at all
        assert bias.abs().max() > 0
        assert torch.allclose(bias / rate, (bias / rate).round(), atol=1e-3)


def damage(run: Run, how: str) -> None:
    newest = run.latest()
    assert newest is not None
    weights = newest / "model.safetensors"
    if how == "truncated":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif how == "one bit":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif how == "missing":
        (newest / "optimizer.safetensors").unlink()
    elif how == "no state":
        (newest / "state.json").write_text("{")
    elif how == "other config":
        (run.path / "config.json").write_text(json.dumps(morph.stage(11, size="nano").to_dict()))
    elif how == "other recipe":
        facts = json.loads((run.path / "recipe.json").read_text())
        facts["recipe"]["learning_rate"] *= 2
        (run.path / "recipe.json").write_text(json.dumps(facts))
    elif how == "other text":
        record = json.loads((newest / "state.json").read_text())
        (newest / "state.json").write_text(json.dumps(record | {"corpus": "0" * 64}))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("truncated", r"model.safetensors is damaged \(1000 bytes"),
        ("one bit", "model.safetensors is damaged"),
        ("missing", "optimizer.safetensors cannot be read"),
        ("no state", "state.json cannot be read"),
        ("other config", "belongs to another config"),
        ("other recipe", "belongs to another recipe"),
        ("other text", "belongs to another corpus"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_told_in_one_line(run: Run, corpus: Corpus, how: str, words: str) -> None:
    stop = threading.Event()
    train(run, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 3 else None)
    damage(run, how)
    before = tree(run.path)
    with pytest.raises(MorphError, match=words) as caught:
        train(Run.load(run.path), corpus=corpus)
    assert "\n" not in str(caught.value)
    assert tree(run.path) == before
    with pytest.raises(MorphError, match=words):
        load_model(Run.load(run.path))


def test_removing_a_damaged_checkpoint_goes_back_to_the_one_before(run: Run, corpus: Corpus) -> None:
    stop = threading.Event()
    train(run, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 3 else None)
    damage(run, "truncated")
    with pytest.raises(MorphError, match="remove that folder to go back to step-000002"):
        train(run, corpus=corpus)
    for file in (run.path / "checkpoints" / "step-000003").iterdir():
        file.unlink()
    (run.path / "checkpoints" / "step-000003").rmdir()
    seen: list[int] = []
    train(run, corpus=corpus, on_step=lambda report: seen.append(report.step))
    assert seen == [3, 4]


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_full_disk_leaves_the_last_checkpoint_whole(
    run: Run, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The disk fills up during the second checkpoint, after `writes` of its files."""
    write, left = files.write_bytes, 100

    def until_full(path: Path, data: bytes) -> None:
        nonlocal left
        if left == 0:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= 1
        write(path, data)

    def fill(report: Any) -> None:
        nonlocal left
        if report.step == 3:
            left = writes

    monkeypatch.setattr(files, "write_bytes", until_full)
    with pytest.raises(MorphError, match="no space left on the disk") as caught:
        train(run, corpus=corpus, on_step=fill)
    assert "the checkpoint step-00000" in str(caught.value)
    assert "--resume" in str(caught.value)
    assert not list(run.path.rglob("*.tmp"))
    monkeypatch.undo()
    unbroken = Run.create(run.path.with_name("unbroken"), run.config, RECIPE, corpus, "cpu")
    train(unbroken, corpus=corpus)
    train(run, corpus=corpus)
    assert_same_weights(run, unbroken)


def assert_same_weights(a: Run, b: Run) -> None:
    ours, theirs = load_model(a).state_dict(), load_model(b).state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


def test_two_processes_cannot_train_one_run(run: Run, corpus: Corpus) -> None:
    with files.lock(run.path / ".lock"), pytest.raises(MorphError, match="another process is training in"):
        train(run, corpus=corpus)


def test_what_is_not_a_run_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(MorphError, match="no run at"):
        Run.load(tmp_path / "nowhere")
    with pytest.raises(MorphError, match=r"recipe.json is missing"):
        Run.load(tmp_path)
