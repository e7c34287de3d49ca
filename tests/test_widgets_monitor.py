"""The monitor without a browser: what it accepts, tells and keeps; its page, picture and words."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morph
from morph.errors import MorphError
from morph.train.background import Curve, end_training
from morph.train.data import Corpus, load_corpus
from morph.train.loop import StepReport
from morph.train.recipe import default_recipe
from morph.widgets import TrainingMonitor
from tests.test_train_data import folder
from tests.test_train_runs import RECIPE
from tests.tools import need

need("anywidget"), need("typst")

from morph.story.training import POINTS, training  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.theme import theme  # noqa: E402


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return load_corpus(folder(tmp_path_factory.mktemp("corpus") / "text"))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    end_training()


@pytest.fixture(scope="module")
def done(corpus: Corpus) -> TrainingMonitor:
    """Two stages and a config of one's own, trained to the end."""
    mine = morph.compose("rope", "mqa", size="nano")
    monitor = TrainingMonitor({"rope": 4, "gated-ffn": 6, "mine": mine}, recipe=RECIPE, corpus=corpus)
    monitor.start()
    assert monitor.wait()
    return monitor


def report(step: int, bits: float, held_out: float | None = None) -> StepReport:
    return StepReport(step, bits, bits, 0.0, 1e-3, 1.0, 1.0, held_out)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- what it is asked for ----


def test_by_itself_it_takes_every_stage_small(corpus: Corpus) -> None:
    monitor = TrainingMonitor(corpus=corpus)
    assert list(monitor.history) == list(morph.SLUGS)
    assert monitor.training.recipe == default_recipe("nano").with_(checkpoint_every=60)
    assert monitor.history["hybrid"].config == morph.stage(14, "nano")
    assert monitor.state["at"] == "ready" and monitor.state["words"] == "Not started: 15 models, 60 steps each."
    assert monitor.wait() is False and monitor.runs == {}


def test_few_steps_still_look_at_the_held_out_text(corpus: Corpus) -> None:
    recipe = TrainingMonitor(0, steps=9, seed=3, corpus=corpus).training.recipe
    assert (recipe.steps, recipe.seed, recipe.evaluate_every, recipe.checkpoint_every) == (9, 3, 3, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "ropes"}, "unknown stage 'ropes'.*did you mean 'rope'"),
        ({"models": []}, "nothing to train"),
        ({"models": 0, "size": "huge"}, "unknown size 'huge'"),
        ({"models": 0, "steps": 0}, "steps is 0: give a whole number of at least 1"),
        ({"models": 0, "seed": -1}, "seed is -1"),
        ({"models": 0, "device": "abacus"}, "no device 'abacus'"),
        ({"models": {f"m{i}": 0 for i in range(17)}}, "17 models and 16 can be shown"),
    ],
)
def test_bad_input_is_refused_and_nothing_starts(options: dict[str, Any], message: str, corpus: Corpus) -> None:
    working = TrainingMonitor(0, recipe=RECIPE.with_(steps=10_000), corpus=corpus)
    working.start()
    with pytest.raises(MorphError, match=message):
        TrainingMonitor(**{"corpus": corpus} | options)
    assert working.training.is_alive, "and what trains goes on"


# ---- what it tells ----


def test_history_is_what_the_runs_recorded(done: TrainingMonitor) -> None:
    for name, run in done.runs.items():
        records, curve = run.metrics(), done.history[name]
        assert curve.bits_per_byte == [record["bits_per_byte"] for record in records]
        assert curve.held_out == {
            r["step"]: r["validation_bits_per_byte"] for r in records if "validation_bits_per_byte" in r
        }
    assert list(done.history) == ["rope", "gated-ffn", "mine"]
    assert done.model("mine").config == done.history["mine"].config
    with pytest.raises(MorphError, match="'hybrid' has not been trained; there is rope, gated-ffn, mine"):
        done.model("hybrid")


def test_the_browser_gets_the_curves_and_how_they_are_marked(done: TrainingMonitor) -> None:
    marks = [(m["name"], m["mark"], m["role"], m["shown"]) for m in done.data["models"]]
    assert marks == [
        ("rope", "4", "position", "4 rope"), ("gated-ffn", "6", "ffn", "6 gated-ffn"), ("mine", "a", "ink", "mine"),
    ]  # fmt: skip
    for sent, curve in zip(done.curves, done.history.values()):
        assert sent["points"] == [[i, round(b, 4)] for i, b in enumerate(curve.bits_per_byte, start=1)]
        assert sent["held"] == [[step, round(b, 4)] for step, b in curve.held_out.items()]
        assert sent["taken"] == RECIPE.steps
    assert done.state["at"] == "finished"
    assert re.fullmatch(
        r"mine done: \d\.\d\d bits per byte held out\. Done: 3 models, 4 steps each\.", done.state["said"]
    )
    json.dumps([done.data, done.curves, done.state])


def test_lines_of_one_colour_differ_in_dash_and_mark(corpus: Corpus) -> None:
    models = TrainingMonitor(corpus=corpus).data["models"]
    assert len({m["mark"] for m in models}) == 15
    for role in {m["role"] for m in models}:
        dashes = [m["dash"] for m in models if m["role"] == role]
        assert len(set(dashes)) == min(len(dashes), 4)


def test_it_is_stopped_and_gone_on_by_its_buttons(corpus: Corpus) -> None:
    monitor = TrainingMonitor(9, recipe=RECIPE.with_(steps=5_000), corpus=corpus)

    def press(name: str) -> None:
        monitor._handle_custom_msg({"do": name}, [])

    press("hello"), monitor._handle_custom_msg("garbage", [])
    assert monitor.state["at"] == "ready"
    press("start")
    until(lambda: len(monitor.history["sliding-window"].reports) > 3)
    press("stop")
    assert monitor.state["at"] in ("stopping", "stopped")
    assert monitor.wait() is False
    taken = len(monitor.history["sliding-window"].reports)
    assert monitor.state["words"] == f"Stopped at 9 sliding-window, step {taken} of 5000; Go on takes it up from there."
    assert monitor.state["said"] == monitor.state["words"] and monitor.curves[0]["taken"] == taken
    press("start")
    until(lambda: len(monitor.history["sliding-window"].reports) > taken)
    monitor.close()
    assert monitor.wait() is False


def test_news_is_told_and_steps_only_now_and_then(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = TrainingMonitor([0, 1], recipe=RECIPE.with_(steps=9), corpus=corpus)
    monkeypatch.setattr("morph.widgets.monitor.PAUSE", 1e9)
    states: list[str] = []
    monitor.observe(lambda change: states.append(change["new"]["said"]), "state")
    monitor.start()
    assert monitor.wait()
    assert [re.sub(r"\d\.\d\d", "N", said) for said in states] == [
        "Training 0 2017, step 0 of 9.",
        "0 2017 done: N bits per byte held out. Training 1 pre-norm, step 0 of 9.",
        "1 pre-norm done: N bits per byte held out. Done: 2 models, 9 steps each.",
    ]
    assert [curve["taken"] for curve in monitor.curves] == [9, 9]


def test_an_error_is_shown_and_raised(corpus: Corpus) -> None:
    monitor = TrainingMonitor(0, recipe=RECIPE.with_(learning_rate=1e30, clip=1e30), corpus=corpus)
    monitor.start()
    with pytest.raises(MorphError, match="training diverged"):
        monitor.wait()
    assert monitor.state["at"] == "failed"
    assert re.match(r"Failed at 0 2017, step \d of 4: training diverged at step", monitor.state["words"])
    with pytest.raises(MorphError, match="training diverged"):
        asyncio.run(_awaited(monitor))


def test_a_defect_is_shown_with_its_kind(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("morph.train.background.train", broken)
    monitor = TrainingMonitor(0, recipe=RECIPE, corpus=corpus)
    monitor.start()
    with pytest.raises(ZeroDivisionError):
        monitor.wait()
    assert monitor.state["words"] == "Failed at 0 2017, step 0 of 4: ZeroDivisionError: by nothing"


def test_a_new_monitor_ends_the_one_before(corpus: Corpus) -> None:
    """What a cell does that is run again."""
    first = TrainingMonitor(0, recipe=RECIPE.with_(steps=10_000), corpus=corpus)
    first.start()
    until(lambda: bool(first.history["2017"].reports))
    TrainingMonitor(0, recipe=RECIPE, corpus=corpus)
    assert first.state["at"] == "stopped" and not first.training.is_alive


async def _awaited(monitor: TrainingMonitor) -> bool:
    return await monitor


def test_awaiting_lets_others_work(corpus: Corpus) -> None:
    """In a cell: the kernel hears the buttons meanwhile; a cancelled cell stops the training."""
    monitor = TrainingMonitor(0, recipe=RECIPE.with_(steps=10_000), corpus=corpus)

    async def pressed_meanwhile() -> bool:
        waiting = asyncio.create_task(_awaited(monitor))
        await asyncio.sleep(0.2)
        monitor._handle_custom_msg({"do": "stop"}, [])
        return await waiting

    monitor.start()
    assert asyncio.run(pressed_meanwhile()) is False and monitor.state["at"] == "stopped"

    async def cancelled() -> None:
        waiting = asyncio.create_task(_awaited(monitor))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    monitor.start()
    asyncio.run(cancelled())
    assert monitor.wait() is False and monitor.state["at"] == "stopped"


def test_runs_can_be_kept(corpus: Corpus, tmp_path: Path) -> None:
    monitor = TrainingMonitor(0, recipe=RECIPE, corpus=corpus, out=tmp_path / "mine")
    monitor.start()
    assert monitor.wait() and monitor.runs["2017"].path == tmp_path / "mine" / "2017"
    with pytest.raises(MorphError, match="exists already and is never overwritten: give a new folder"):
        TrainingMonitor(0, recipe=RECIPE, corpus=corpus, out=tmp_path / "mine")


# ---- the frame ----


def test_a_long_training_is_drawn_in_few_points() -> None:
    curve = Curve("rope", morph.stage(4), steps=300)
    curve.reports += [report(i, float(i), i / 2 if i % 100 == 0 else None) for i in range(1, 256)]
    frame = training([curve], seed=0)
    points, bits = frame.values("points")[0], frame.values("bits")[0]
    assert len(points) == 26 <= POINTS and points[:2].tolist() == [10, 20] and points[-1] == 255
    assert bits[0] == np.mean(range(1, 11)) and bits[-1] == np.mean(range(251, 256))
    assert frame.values("measured").tolist() == [[100, 200]] and frame.values("held_out").tolist() == [[50, 100]]
    assert frame.facts["taken"] == [255] and frame.check()


@pytest.mark.parametrize("broken", ["order", "beyond", "nothing", "half"])
def test_the_claim_can_be_false(broken: str) -> None:
    curve = Curve("rope", morph.stage(4), steps=4)
    curve.reports += [report(i, 3.0, 3.0) for i in range(1, 5)]
    frame = training([curve], seed=0)
    assert frame.check()
    if broken == "order":
        frame.values("points")[0, 1] = 1
    elif broken == "beyond":
        frame.values("measured")[0, -1] = 5
    elif broken == "nothing":
        frame.values("bits")[0, 0] = 0
    else:
        frame.values("held_out")[0, 0] = np.nan
    assert not frame.check()


# ---- without a browser ----


def test_a_page_of_its_own(done: TrainingMonitor, tmp_path: Path) -> None:
    text = done.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text
    markup = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?:|<link|@import|url\(|src=|fetch\(|^import ", markup, re.MULTILINE)
    found = re.search(r'id="state">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    state = json.loads(found[1])
    assert state["live"] is False and done.live is True and state["curves"] == done.curves


def test_words_for_who_sees_no_picture(done: TrainingMonitor, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = repr(done).splitlines()
    assert lines[:2] == ["Training: 3 models, 4 steps, seed 0", "Done: 3 models, 4 steps each."]
    curve = done.history["rope"]
    assert lines[2] == (
        f"4 rope: step 4 of 4, batch {curve.bits_per_byte[-1]:.3f} bits per byte, "
        f"{curve.held_out[4]:.3f} held out at step 4"
    )
    live, _ = done._repr_mimebundle_()
    assert {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"} <= live.keys()
    monkeypatch.setenv("MORPH_STATIC", "1")
    assert set(done._repr_mimebundle_()) == {"text/plain", "text/html"}


@pytest.mark.parametrize("name", ["dark", "light"])
def test_nothing_in_the_picture_is_at_fault(done: TrainingMonitor, corpus: Corpus, name: str) -> None:
    from PIL import Image

    look = theme(name)
    assert lint(done.still(look)[0], look) == []
    empty = TrainingMonitor(0, recipe=RECIPE, corpus=corpus)
    assert lint(empty.still(look)[0], look) == []
    assert Image.open(io.BytesIO(empty.to_png())).size == (1280, 720)


def test_as_many_names_as_there_may_be_find_room() -> None:
    """All of one height, and all stages that are long words."""
    curves = [Curve(name, morph.stage(0), steps=10) for name in (*morph.SLUGS, "a-name-of-some-length-of-my-own")]
    from scenes.training import training as drawn

    look = theme("light")
    for ends in (np.full(16, 5.0), np.linspace(9.5, 2.0, 16), np.r_[np.full(8, 2.1), np.full(8, 8.9)]):
        for curve, end in zip(curves, ends):
            curve.reports[:] = [report(i, 9.0 + (end - 9.0) * i / 10, float(end)) for i in range(1, 11)]
        look = theme("light")

        assert lint(drawn(training(curves, seed=0), look), look) == []
