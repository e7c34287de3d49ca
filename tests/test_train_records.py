"""Files of a run that hold valid JSON of the wrong shape, or something else than a file: one line each."""

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import morph
from morph import cli
from morph.train.data import load_corpus
from morph.train.loop import train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.test_train_data import folder
from tests.test_train_runs import tree

STATE = "checkpoints/step-000003/state.json"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with experts that stopped after step 3 of 4."""
    root = tmp_path_factory.mktemp("records")
    corpus = load_corpus(folder(root / "text"))
    recipe = Recipe(steps=4, batch_size=2, evaluate_every=4, evaluation_windows=4, checkpoint_every=2)
    run = Run.create(root / "run", morph.stage(12, size="nano"), recipe, corpus, "cpu", "shared-expert", "nano")
    stop = threading.Event()
    train(run, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 3 else None)
    return run.path


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a refusal."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, ""), err
    assert err.startswith("morph: ") and err.count("\n") == 1
    return err


def resume(run: Path) -> list[str]:
    return ["train", "--out", str(run), "--resume", "--quiet", "--threads", "1"]


@pytest.mark.parametrize("content", ["{}", "[]", "null", "5", '"text"', "[" * 100_000, "\udcff", ""])
@pytest.mark.parametrize("name", ["recipe.json", "config.json", "summary.json", STATE, "metrics.jsonl", "latest"])
def test_wrong_shapes_are_refused_by_name(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    line = f"{content}\n" if content else ""
    (run / name).write_bytes(line.encode("utf-8", "surrogateescape"))
    before = tree(run)
    said = refused(capsys, *resume(run))
    assert (run / name).name in said
    left = tree(run)
    left.pop(".lock", None)
    before.pop(".lock", None)
    assert left == before


def edit(path: Path, place: str, value: Any) -> None:
    """Set the entry at `place` of a JSON file; a value of `...` removes it."""
    values = json.loads(path.read_text())
    *keys, last = place.split("/")
    table = values
    for key in keys:
        table = table[key]
    table[last] = value
    if value is ...:
        del table[last]
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("recipe.json", "device", 5, "device is 5, not text"),
        ("recipe.json", "corpus/sha256", "abc", "corpus: sha256 is 'abc', not a SHA-256"),
        ("recipe.json", "versions/python", ..., "versions lacks 'python'"),
        ("recipe.json", "size", [], "size is [], not text or null"),
        ("recipe.json", "recipe/steps", "4", "recipe.json: steps is '4': give a whole number"),
        ("recipe.json", "recipe/steps", 2, "belongs to another recipe"),
        ("recipe.json", "recipe/warmup", ..., "recipe.json: the recipe lacks 'warmup'"),
        ("config.json", "n_layers", -1, "config.json: model.n_layers = -1"),
        (STATE, "step", -3, "step is -3, not a whole number of at least 0"),
        (STATE, "step", 3.0, "step is 3.0"),
        (STATE, "step", 2, "is of step 2 of 4, in step-000003"),
        (STATE, "step", 10**30, "step is 1000000000"),
        (STATE, "cpu_seconds", "1", "cpu_seconds is '1'"),
        (STATE, "cpu_seconds", float("nan"), "cpu_seconds is nan"),
        (STATE, "load", [[1]], "load is a list of 1, not null or 4 x "),
        (STATE, "load", {"a": 1}, "load is a table of 1"),
        (STATE, "recipe", ..., "lacks 'recipe'"),
        (STATE, "sha256", {}, "sha256 lacks 'model.safetensors'"),
        (STATE, "sha256/model.safetensors", None, "model.safetensors is None, not a SHA-256"),
        (STATE, "random", {"cpu": "AAAA"}, "the random state is damaged"),
        (STATE, "random", {"cpu": "no base64!"}, "the random state is damaged"),
        (STATE, "random", [], "random is [], not a table"),
    ],
)
def test_wrong_entries_are_named(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, place: str, value: Any, words: str
) -> None:
    edit(run / name, place, value)
    assert words in refused(capsys, *resume(run))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [], "has 0 of the 3 steps before the checkpoint"),
        (lambda lines: lines[:2], "has 2 of the 3 steps before the checkpoint"),
        (lambda lines: lines[1:], "line 1 is of step 2, not 1"),
        (lambda lines: [lines[0], "{oops", lines[2]], "line 2 is damaged"),
        (lambda lines: ["[]", *lines[1:]], "line 1 holds [], not a table"),
        (lambda lines: [lines[0].replace("bits", "bytes"), *lines[1:]], "line 1 lacks 'bits_per_byte'"),
    ],
)
def test_a_history_with_holes_is_told(
    run: Path, capsys: pytest.CaptureFixture[str], change: Callable[[list[str]], list[str]], words: str
) -> None:
    path = run / "metrics.jsonl"
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))
    assert words in refused(capsys, *resume(run))
    path.unlink()
    assert "has 0 of the 3 steps" in refused(capsys, *resume(run))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("steps", 3, "summary.json: steps is 3, but the run has 4"),
        ("tokens", "many", "tokens is 'many'"),
        ("validation_bits_per_byte", float("inf"), "validation_bits_per_byte is inf"),
        ("cpu_seconds", ..., "lacks 'cpu_seconds'"),
    ],
)
def test_a_wrong_summary_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], place: str, value: Any, words: str
) -> None:
    whole = {
        "steps": 4, "validation_bits_per_byte": 5.0, "train_bits_per_byte": 5.0, "tokens": 512, "cpu_seconds": 1.0
    }  # fmt: skip
    (run / "summary.json").write_text(json.dumps(whole))
    edit(run / "summary.json", place, value)
    assert words in refused(capsys, *resume(run))


@pytest.mark.parametrize("name", ["recipe.json", STATE, "latest", "metrics.jsonl", ".lock"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_refused_without_waiting(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, make: Callable[[Path], None]
) -> None:
    (run / name).unlink(missing_ok=True)
    make(run / name)
    assert (run / name).name in refused(capsys, *resume(run))


def test_latest_names_a_checkpoint_and_nothing_else(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "latest").write_text("../../elsewhere\n")
    assert "latest holds '../../elsewhere', not a checkpoint's name: remove it" in refused(capsys, *resume(run))
    (run / "checkpoints" / "step-abc").mkdir()  # not ours
    (run / "checkpoints" / "step-1000000").mkdir()  # after step-999999, whatever the alphabet says
    assert [c.name for c in Run.load(run).checkpoints()] == ["step-000002", "step-000003", "step-1000000"]


@pytest.mark.parametrize("content", ["{}", "[]", "null", "5", "{"])
def test_a_plan_of_the_wrong_shape_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "plan.json").write_text(content)
    assert "plan.json" in refused(capsys, "sweep", "--size", "nano", "--out", str(tmp_path / "sweep"))
    assert [p.name for p in (tmp_path / "sweep").iterdir()] == ["plan.json"]
