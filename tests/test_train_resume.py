"""A killed run goes on as if nothing had happened: SIGKILL at chosen places, and a real process killed from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from morph.train.loop import train
from morph.train.runs import Run
from tests.test_train_data import folder
from tests.test_train_runs import assert_same_weights

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and fork are POSIX")

# A process that imports torch once and forks one child a place to die, then one that resumes.
KILLS = """
import json, multiprocessing, os, signal, sys, torch
from pathlib import Path
import morph
from morph.train import checkpoint, files
from morph.train.data import load_corpus
from morph.train.loop import train
from morph.train.recipe import Recipe
from morph.train.runs import Run

torch.set_num_threads(1)
torch.optim.AdamW([torch.zeros(1)])  # what its first use imports, the children then have
root = Path(sys.argv[1])
corpus = load_corpus(root / "text")
recipe = Recipe(steps=7, batch_size=2, evaluate_every=4, evaluation_windows=4, checkpoint_every=3)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying(module, name, call):
    original, calls = getattr(module, name), [0]
    def wrapped(*args, **kwargs):
        calls[0] += 1
        if calls[0] == call:
            die()
        return original(*args, **kwargs)
    setattr(module, name, wrapped)

PLACES = {
    "unbroken": lambda: None,
    "before the first checkpoint": lambda: dying(morph.Decoder, "end_step", 2),
    "between gradient and update of step 5": lambda: dying(torch.optim.AdamW, "step", 5),
    "while the second checkpoint is filled": lambda: dying(files, "write_bytes", 8),
    "before the second checkpoint gets its name": lambda: dying(files, "sync_folder", 7),
    "before latest points to it": lambda: dying(files, "replace_bytes", 4),
    "while latest is replaced": lambda: dying(os, "replace", 6),
    "before the summary": lambda: dying(Run, "write_summary", 1),
}

def work(place, resume):
    path = root / place
    run = Run.load(path) if resume else Run.create(path, morph.stage(14, size="nano"), recipe, corpus, "cpu")
    if not resume:
        PLACES[place]()
    train(run, corpus=corpus)

fork = multiprocessing.get_context("fork")
result = {}
for place in PLACES:
    codes = []
    for resume in ([False] if place == "unbroken" else [False, True]):
        child = fork.Process(target=work, args=(place, resume))
        child.start()
        child.join()
        codes.append(child.exitcode)
        if not resume:
            latest = Run.load(root / place).latest()
    result[place] = {"codes": codes, "latest": latest.name if latest else None}
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, object]]]:
    root = tmp_path_factory.mktemp("kills")
    folder(root / "text")
    done = subprocess.run([sys.executable, "-c", KILLS, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("place", "latest"),
    [
        ("before the first checkpoint", None),
        ("between gradient and update of step 5", "step-000003"),
        ("while the second checkpoint is filled", "step-000003"),
        ("before the second checkpoint gets its name", "step-000003"),
        ("before latest points to it", "step-000003"),
        ("while latest is replaced", "step-000003"),
        ("before the summary", "step-000007"),
    ],
)
def test_a_run_killed_anywhere_ends_with_the_weights_of_an_unbroken_one(
    killed: tuple[Path, dict[str, dict[str, object]]], place: str, latest: str | None
) -> None:
    root, result = killed
    assert result["unbroken"]["codes"] == [0]
    assert result[place] == {"codes": [-signal.SIGKILL, 0], "latest": latest}
    whole, broken = Run.load(root / "unbroken"), Run.load(root / place)
    assert_same_weights(broken, whole)
    assert not list(broken.path.rglob("*.tmp"))
    keys = ("step", "loss", "gradient_norm", "learning_rate", "validation_bits_per_byte")
    keys += ("load", "expert_load", "selection_bias")
    assert [[r.get(k) for k in keys] for r in broken.metrics()] == [[r.get(k) for k in keys] for r in whole.metrics()]
    assert broken.summary is not None and whole.summary is not None
    assert broken.summary.validation_bits_per_byte == whole.summary.validation_bits_per_byte
    assert broken.summary.train_bits_per_byte == whole.summary.train_bits_per_byte


def morph_train(cwd: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "morph.cli", "train", *arguments, "--quiet", "--threads", "1"]
    root = Path(__file__).parents[1]
    return subprocess.Popen(
        command, cwd=cwd, env=os.environ | {"PYTHONPATH": str(root)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_step(process: "subprocess.Popen[str]", run: Path, step: int) -> None:
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").read_text().count("\n") < step:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def test_kill_and_interrupt_from_outside_on_the_command_line(tmp_path: Path) -> None:
    """SIGKILL, then resume; SIGINT, then resume: the same weights as a run that nobody touched."""
    folder(tmp_path / "text")
    what = ("--stage", "13", "--size", "nano", "--data", "text", "--steps", "24", "--checkpoint-every", "4")
    broken = morph_train(tmp_path, *what, "--out", "broken")
    wait_for_step(broken, tmp_path / "broken", 6)
    broken.send_signal(signal.SIGKILL)
    assert broken.wait() == -signal.SIGKILL
    broken.communicate()

    broken = morph_train(tmp_path, "--out", "broken", "--resume")
    wait_for_step(broken, tmp_path / "broken", 13)
    broken.send_signal(signal.SIGINT)
    out, err = broken.communicate()
    assert (broken.returncode, err) == (130, "")
    assert out.startswith("Stopped after step ")
    assert out.endswith("of 24. Continue with: morph train --out broken --resume\n")

    broken = morph_train(tmp_path, *what, "--out", "broken", "--resume")
    assert broken.communicate()[1] == ""
    assert broken.returncode == 0
    run = Run.load(tmp_path / "broken")
    whole = Run.create(tmp_path / "whole", run.config, run.recipe, run.corpus(tmp_path / "text"), "cpu")
    train(whole)
    assert_same_weights(run, whole)
