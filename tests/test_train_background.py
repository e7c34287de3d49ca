"""Training in a thread: the loop of `morph train`; it stops, goes on, fails aloud, and never outlives its process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import morph
from morph.errors import MorphError
from morph.steps import SLUGS
from morph.train import background
from morph.train.background import FAILED, FINISHED, READY, STOPPED, TRAINING, Background, Curve, end_training, to_train
from morph.train.checkpoint import load_model
from morph.train.data import Corpus, load_corpus
from morph.train.loop import train
from morph.train.runs import Run
from tests.test_train_data import folder
from tests.test_train_runs import RECIPE, assert_same_weights


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return load_corpus(folder(tmp_path_factory.mktemp("corpus") / "text"))


def stopping_at(step: int) -> tuple[dict[str, Background], Callable[[], None]]:
    """A callback that stops the training it is told of when that has taken `step` steps of its first model."""
    held: dict[str, Background] = {}

    def changed() -> None:
        first = next(iter(held["it"].curves.values()))
        if len(first.reports) == step:
            held["it"].stop()

    return held, changed


# ---- what is asked for ----


def test_what_a_reader_may_ask_for() -> None:
    assert list(to_train(None, "nano")) == list(SLUGS)
    assert to_train(9, "tiny") == {"sliding-window": morph.stage(9)}
    assert to_train(["rope", "7", "mla", "2017+rope"], "nano") == {
        "rope": morph.stage(4, "nano"), "gqa": morph.stage(7, "nano"), "mla": morph.fork("mla", "nano"),
        "2017+rope": morph.compose("2017", "rope", size="nano"),
    }  # fmt: skip
    mine = morph.stage(3, "nano")
    assert to_train({"base": 9, "mine": mine}, "nano") == {"base": morph.stage(9, "nano"), "mine": mine}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (15, "unknown stage '15': give 0 to 14"),
        (["rope", 4], "'rope' is there twice"),
        (["rope", 1.5], r"1\.5 names no model: give stages and forks"),
        ({"a/b": 1}, "'a/b' cannot name a run"),
        ({"..": 1}, r"'\.\.' cannot name a run"),
        ({"": 1}, "'' cannot name a run"),
        ({"mine": 99}, "unknown stage '99'"),
        (morph.stage(0), r"a config has no name: give \{'mine': config\}"),
    ],
)
def test_what_names_no_model_is_refused(what: object, message: str) -> None:
    with pytest.raises(MorphError, match=message):
        to_train(what, "nano")  # type: ignore[arg-type]


def test_bad_input_is_refused_before_anything_starts(corpus: Corpus, tmp_path: Path) -> None:
    good = to_train(0, "nano")
    with pytest.raises(MorphError, match="nothing to train"):
        Background({}, RECIPE, corpus=corpus)
    with pytest.raises(MorphError, match="no device 'abacus'"):
        Background(good, RECIPE, corpus=corpus, device="abacus")
    with pytest.raises(MorphError, match="is too short: its training part"):
        Background({"long": replace(morph.stage(0, "nano"), context_length=10**6)}, RECIPE, corpus=corpus)
    (tmp_path / "2017").mkdir()
    (tmp_path / "2017" / "file").touch()
    with pytest.raises(MorphError, match="exists already"):
        Background(good, RECIPE, corpus=corpus, out=tmp_path)
    assert not background._at_work


# ---- it trains ----


def test_it_is_the_loop_of_every_training(corpus: Corpus, tmp_path: Path) -> None:
    """Same weights, same losses as a run that `train` took in the main thread."""
    made = Background(to_train([0, 13], "nano"), RECIPE, corpus=corpus, out=tmp_path / "here")
    assert made.state == READY and not (tmp_path / "here").exists()
    made.start()
    assert made.wait() and made.state == FINISHED
    for stage in (0, 13):
        alone = Run.create(tmp_path / f"alone{stage}", morph.stage(stage, "nano"), RECIPE, corpus, "cpu")
        train(alone, corpus=corpus)
        run, curve = made.runs[SLUGS[stage]], made.curves[SLUGS[stage]]
        assert_same_weights(run, alone)
        assert run.facts["stage"] == SLUGS[stage] and run.facts["size"] == "nano"
        assert curve.bits_per_byte == [record["bits_per_byte"] for record in alone.metrics()]
        assert curve.held_out[RECIPE.steps] == alone.summary.validation_bits_per_byte  # type: ignore[union-attr]
        assert curve.is_done and Run.load(run.path).summary == run.summary
    made.start()  # all is trained: nothing happens
    assert made.state == FINISHED


def test_stopped_and_gone_on_is_never_stopped(corpus: Corpus) -> None:
    held, changed = stopping_at(2)
    made = held["it"] = Background(to_train([6, 7], "nano"), RECIPE, corpus=corpus, changed=changed)
    made.start()
    assert made.wait() is False
    assert (made.state, made.current, len(made.curves["gated-ffn"].reports)) == (STOPPED, "gated-ffn", 2)
    assert not made.curves["gqa"].reports
    held["it"] = Background({"other": morph.stage(0, "nano")}, RECIPE, corpus=corpus)  # nobody stops it again
    made.start()
    assert made.wait() and made.state == FINISHED
    straight = Background(to_train(6, "nano"), RECIPE, corpus=corpus)
    straight.start()
    assert straight.wait()
    assert made.curves["gated-ffn"].bits_per_byte == straight.curves["gated-ffn"].bits_per_byte
    assert_same_weights(made.runs["gated-ffn"], straight.runs["gated-ffn"])


def test_steps_after_the_last_checkpoint_are_counted_once(corpus: Corpus) -> None:
    """What watches may fail in the middle; going on starts at the checkpoint, and so does the curve."""

    def changed() -> None:
        if len(made.curves["2017"].reports) == 3 and not broken:
            broken.append(True)
            raise RuntimeError("the screen broke")

    broken: list[bool] = []
    made = Background(to_train(0, "nano"), RECIPE.with_(checkpoint_every=2), corpus=corpus, changed=changed)
    made.start()
    with pytest.raises(RuntimeError, match="the screen broke"):
        made.wait()
    assert made.state == FAILED
    made.start()
    assert made.wait()
    assert [report.step for report in made.curves["2017"].reports] == list(range(1, RECIPE.steps + 1))


def test_an_error_is_kept_and_raised_again(corpus: Corpus) -> None:
    made = Background(to_train(0, "nano"), RECIPE.with_(learning_rate=1e30, clip=1e30), corpus=corpus)
    made.start()
    with pytest.raises(MorphError, match="training diverged at step"):
        made.wait()
    assert made.state == FAILED and isinstance(made.error, MorphError) and made.current == "2017"


def test_a_second_training_ends_the_first(corpus: Corpus) -> None:
    first = Background(to_train(0, "nano"), RECIPE.with_(steps=10_000), corpus=corpus)
    first.start()
    while not first.curves["2017"].reports:
        time.sleep(0.01)
    assert first.wait(0.01) is False and first.state == TRAINING
    second = Background(to_train(1, "nano"), RECIPE, corpus=corpus)  # made, not started
    assert first.state == STOPPED
    first.start()
    second.start()
    assert first.state == STOPPED and second.wait()


def test_a_stop_before_the_start_means_nothing(corpus: Corpus) -> None:
    made = Background(to_train(0, "nano"), RECIPE, corpus=corpus)
    made.stop()
    assert made.state == READY and made.wait() is False
    made.start()
    assert made.wait()


def test_an_interrupt_stops_the_training_too(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Background(to_train(0, "nano"), RECIPE.with_(steps=10_000), corpus=corpus)
    made.start()

    def interrupted(self: threading.Thread, timeout: float | None = None) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.wait()
    assert made.wait() is False and made.state == STOPPED


def test_a_model_can_be_read_meanwhile_and_threads_stay_as_they_were(corpus: Corpus) -> None:
    before = torch.get_num_threads()
    held, changed = stopping_at(2)
    made = held["it"] = Background(to_train(4, "nano"), RECIPE, corpus=corpus, changed=changed)
    made.start()
    made.wait()
    model = load_model(made.runs["rope"])
    assert torch.isfinite(model(torch.tensor([[1, 2, 3]]))).all()
    assert torch.get_num_threads() == before
    end_training()


def test_a_process_that_ends_takes_its_training_along(tmp_path: Path) -> None:
    """No thread keeps it, nothing is printed, and its temporary folder is gone."""
    code = """
import sys, time
from morph.train.background import Background, to_train
from morph.train.recipe import Recipe
from morph.train.data import load_corpus
made = Background(to_train(0, "nano"), Recipe(steps=100_000), corpus=load_corpus(sys.argv[1]))
made.start()
while not made.curves["2017"].reports:
    time.sleep(0.01)
print(made.runs["2017"].path.parent)
"""
    started = time.monotonic()
    text = str(folder(tmp_path / "text"))
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert time.monotonic() - started < 90
    assert not Path(done.stdout.strip()).exists()


def test_a_curve_reads_its_reports() -> None:
    curve = Curve("rope", morph.stage(4, "nano"), steps=3)
    assert curve.bits_per_byte == [] and curve.held_out == {} and not curve.is_done
