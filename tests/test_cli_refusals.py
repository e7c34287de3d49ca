"""Attacks on the command line: every one ends in one line and leaves nothing behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import morph
from morph import cli
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.measure.memory import available_memory
from morph.train import memory
from morph.train.data import load_corpus
from morph.train.loop import train
from morph.train.memory import require_memory
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.test_train_data import folder
from tests.test_train_runs import tree

ROOT = Path(__file__).parents[1]


class Ended:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run_morph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Call the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        return Ended(ended.value.code, *capsys.readouterr())  # type: ignore[arg-type]

    return call


def one_line(ended: Ended, words: str, code: int = 2) -> None:
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert ended.err.startswith("morph: ") and ended.err.count("\n") == 1 and ended.err.endswith("\n")
    assert words in ended.err


def wide(**changes: Any) -> str:
    return json.dumps(morph.stage(0, "nano").to_dict() | changes)


LONG = "n" * 300
ATTACKS = [
    (["train", "--stage", "0", "--batch-size", "1000000000"], "GB for batch_size 1000000000"),
    (["train", "--stage", "0", "--batch-size", str(10**30)], "batch_size is 1000000000"),
    (["train", "--stage", "0", "--steps", str(10**30)], "at most 1,000,000,000"),
    (["train", "--stage", "0", "--threads", "100000"], "threads is 100000: give 1 to "),
    (["train", "--config", "deep.json"], "n_layers = 1000000000 is above 1,000"),
    (["train", "--config", "wide.json"], "d_model = 1000000000000 is above 100,000,000"),
    (["train", "--config", "large.json"], "choose a smaller --size"),
    (["train", "--config", "nested.json"], "nested.json is not valid JSON or TOML (nested too deeply)"),
    (["train", "--config", "nested.toml"], "nested.toml is not valid JSON or TOML (nested too deeply)"),
    (["train", "--config", "list.json"], "must be a table of fields"),
    (["train", "--config", "tube"], "the config tube is a pipe"),
    (["train", "--config", "text"], "cannot read the config text (Is a directory)"),
    (["train", "--config", LONG], "File name too long"),
    (["train", "--stage", "0", "--data", ""], "--data is empty"),
    (["train", "--stage", "0", "--data", "~nouser/x"], "no data at ~nouser/x"),
    (["train", "--stage", "0", "--data", "tube"], "tube is a pipe"),
    (["train", "--stage", "0", "--data", "/dev/null"], "/dev/null is a device"),
    (["train", "--stage", "0", "--data", LONG], "File name too long"),
    (["train", "--stage", "0", "--data", os.fsdecode(b"\xff\xfe")], "no data at "),
    (["train", "--stage", "0", "--out", LONG], "File name too long"),
    (["train", "--stage", "0", "--out", ""], "--out is '.', a folder that is there already"),
    (["train", "--stage", "0", "--out", "tube/x"], "tube/x"),
    (["train", "--out", LONG, "--resume"], "File name too long"),
    (["sweep", "--workers", "100000", "--out", "s"], "workers is 100000: give 1 to "),
    (["sweep", "--out", LONG], "File name too long"),
    (["sweep", "--data", "", "--out", "s"], "--data is empty"),
    (["tour", "--workers", "100000"], "workers is 100000"),
    (["tour", "--out", "taken"], "taken/figure exists already and is never overwritten"),
    (["render", "morph", "--sweep", LONG], "File name too long"),
    (["generate", LONG, "--prompt", "x"], "File name too long"),
    (["generate", "text", "--prompt", "x", "--seed", "-1"], "seed is -1: give a whole number from 0 to 4294967295"),
    (["generate", "text", "--prompt", "x", "--seed", str(2**64)], "seed is 18446744073709551616"),
    (["generate", "text", "--prompt", "\ud800"], "the prompt has a character that is no text, at 0"),
    (["count", "0", "--context", str(10**29)], "give 1 to 1,000,000,000,000 tokens"),
    (["render", "rope", "--frames", "9" * 5000], "is no list of frames"),
    (["render", "rope", "--model", LONG], "is no folder of a run or checkpoint, no stage and no fork"),
    (["render", "rope", "--model", "9", "--seed", str(2**32)], "seed is 4294967296: give a whole number from 0 to"),
    (["render", "morph", "--out", "tube/x"], "tube is a file"),
    (["show", "alibi", "--size", "huge"], "unknown size 'huge'"),
    (["show", "9", "--size", "huge"], "unknown size 'huge'"),
    (["count", "0", "--context", "1e29"], "Invalid value for '--context'"),
]


@pytest.mark.parametrize(("arguments", "words"), ATTACKS, ids=[" ".join(a)[:60] for a, _ in ATTACKS])
def test_attacks_are_one_line_and_nothing_is_written(
    run_morph: Any, tmp_path: Path, arguments: list[str], words: str
) -> None:
    folder(tmp_path / "text")
    (tmp_path / "taken" / "figure").mkdir(parents=True)
    (tmp_path / "taken" / "figure" / "mine.txt").write_text("mine")
    os.mkfifo(tmp_path / "tube")
    contents = {
        "deep.json": wide(n_layers=10**9), "wide.json": wide(d_model=10**12), "large.json": wide(vocab_size=10**7,
        d_model=10**6), "nested.json": "[" * 100_000, "nested.toml": "a = " + "[" * 100_000, "list.json": "[1]",
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    if arguments[0] == "train" and "--data" not in arguments and "--resume" not in arguments:
        arguments = [*arguments, "--data", "text", "--size", "nano"]
    before, names = tree(tmp_path), sorted(tmp_path.rglob("*"))
    one_line(run_morph(*arguments), words)
    assert tree(tmp_path) == before
    assert sorted(tmp_path.rglob("*")) == names


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "2"), ("WORLD_SIZE", "x"), ("RANK", "one")])
@pytest.mark.parametrize("command", ["train --stage 0", "sweep"])
def test_torchrun_is_refused_before_any_folder(
    run_morph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    one_line(run_morph(*command.split(), "--size", "nano"), f"{name} is '{value}' and training uses one process")
    assert list(tmp_path.iterdir()) == []


def test_memory_is_counted_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    config, cpu = morph.stage(0, "nano"), torch.device("cpu")
    weights, logits = 16 * morph.count(config).total, 8 * 4 * 64 * 256
    assert (available_memory(cpu) or 1e12) > 1e7
    monkeypatch.setattr(memory, "available_memory", lambda device: weights + logits)
    require_memory(config, Recipe(batch_size=4), cpu)
    with pytest.raises(MorphError, match=r"needs at least 0\.0 GB: .*: lower --batch-size"):
        require_memory(config, Recipe(batch_size=5), cpu)
    monkeypatch.setattr(memory, "available_memory", lambda device: None)  # a system that does not tell
    require_memory(config, Recipe(batch_size=10**9), cpu)
    overflowing = ModelConfig.from_dict(config.to_dict() | {"d_model": 10**7, "vocab_size": 10**7, "n_layers": 1})
    monkeypatch.setattr(morph, "count", lambda config: torch.empty(10**18, 10**18, device="meta"))
    with pytest.raises(MorphError, match="too large for any machine"):
        require_memory(overflowing, Recipe(), cpu)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory (allocation failed)"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
         "not enough memory"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"), "not enough memory"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300), "cannot use xxx"),
        (PermissionError(13, "Permission denied", b"shut/a"), "cannot use shut/a (Permission denied)"),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot write the output"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (MorphError("two\nlines"), "two lines"),
    ],
)  # fmt: skip
def test_what_no_check_foresaw_is_still_one_line(
    run_morph: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("morph.forks.stage", fail)
    one_line(run_morph("count", "0"), words)


def test_a_defect_of_morph_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morph.forks.stage", lambda *_, **__: {}["missing"])
    with pytest.raises(KeyError):
        cli.main(["count", "0"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "turned into another error"])
@pytest.mark.parametrize("command", [["count", "0"], ["generate", "r", "--prompt", "x"], ["render", "morph"]])
def test_an_interrupted_command_says_so(
    run_morph: Any, monkeypatch: pytest.MonkeyPatch, command: list[str], turned: bool, number: signal.Signals
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except KeyboardInterrupt:
            if turned:
                raise ImportError("interrupted while loading") from None
            raise

    for target in ("morph.forks.stage", "morph.writing.continue_text", "morph.rendering.command.render_all"):
        monkeypatch.setattr(target, interrupted)
    before = signal.getsignal(number)
    one_line(run_morph(*command), "morph: interrupted\n", code=130)
    assert signal.getsignal(number) is before


def process(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    return subprocess.run(
        [sys.executable, "-m", "morph", *arguments], stderr=subprocess.PIPE, text=True, check=False, env=environment,
        **options,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_the_command_line_loads_is_one_line(tmp_path: Path, number: signal.Signals) -> None:
    """A `typer` that interrupts the process that imports it."""
    (tmp_path / "typer.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\nimport time\ntime.sleep(5)\n")
    done = process("steps", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert (done.returncode, done.stderr) == (130, "morph: interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["steps", "--help", "show gqa"])
def test_a_full_output_is_told(command: str) -> None:
    with open("/dev/full", "w") as full:
        done = process(*command.split(), stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("morph: cannot write the output or read the input (No space left on device)")
    assert done.stderr.count("\n") == 1


def test_a_terminal_that_knows_ascii_alone_shows_what_it_can() -> None:
    done = process("steps", stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 15 and "?" in done.stdout


@pytest.fixture
def stopped(tmp_path: Path) -> Run:
    """A finished run of one step whose vocabulary is larger than the bytes."""
    corpus = load_corpus(folder(tmp_path / "text"))
    config = ModelConfig.from_dict(morph.stage(0, "nano").to_dict() | {"vocab_size": 5000})
    recipe = Recipe(steps=1, batch_size=2, evaluation_windows=4)
    run = Run.create(tmp_path / "run", config, recipe, corpus, "cpu", "2017", "nano")
    train(run, corpus=corpus)
    return run


def test_text_is_written_in_bytes_whatever_the_vocabulary(run_morph: Any, stopped: Run) -> None:
    hot = ["generate", "run", "--temperature", "50", "--max-new-tokens", "30"]
    for arguments in ([], ["--top-k", str(10**30)], ["--top-k", "5000"]):
        done = run_morph(*hot, "--prompt", "def ", *arguments)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("def ") and len(done.out) > 15
    raw = run_morph(*hot, "--prompt", os.fsdecode(b"na\xefve"))
    assert (raw.code, raw.out[:5]) == (0, "na\ufffdve")


def test_another_size_is_refused_on_resume_and_none_means_the_same(run_morph: Any, stopped: Run) -> None:
    (stopped.path / "summary.json").unlink()
    resume = ["train", "--out", "run", "--resume", "--quiet", "--threads", "1"]
    one_line(run_morph(*resume, "--size", "small"), "run was started with size nano, not small")
    assert run_morph(*resume).code == 0


def test_names_that_are_not_utf8_train_and_sweep(run_morph: Any, tmp_path: Path) -> None:
    name = os.fsdecode(b"na\xefve")
    try:
        folder(tmp_path / name)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    common = ["--size", "nano", "--data", name, "--steps", "1"]
    done = run_morph("train", "--stage", "0", *common, "--out", name + "-run", "--threads", "1", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert run_morph("train", "--out", name + "-run", "--resume").code == 0
    done = run_morph("sweep", "--stages", "0", "--seeds", "0", *common, "--out", name + "-sweep")
    assert (done.code, done.err) == (0, "")
    assert "na\ufffdve" in (tmp_path / (name + "-sweep") / "table.md").read_text()
