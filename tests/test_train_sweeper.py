"""A sweep of real processes: same text and recipe for all, nothing done twice, a failure named."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import morph
from morph.errors import INTERRUPTED, MorphError
from morph.train.data import load_corpus
from morph.train.files import lock
from morph.train.loop import train
from morph.train.runs import Run
from morph.train.session import train_here
from morph.train.start import Request
from morph.train.sweep import StageResult, Sweep
from morph.train.sweeper import Plan, Progress, collect, make_plan, run_sweep, sweep_of
from tests.test_train_data import folder


def plan_for(root: Path, stages: tuple[int, ...] = (0, 10), seeds: tuple[int, ...] = (0,), steps: int = 3) -> Plan:
    return make_plan(root / "sweep", stages=stages, seeds=seeds, size="nano", steps=steps, data=str(root / "text"))


def finish(plan: Plan, stage: int, seed: int) -> Run:
    """Do one of the sweep's runs here, sparing a process."""
    config, recipe = morph.stage(stage, size=plan.size), plan.recipe.with_(seed=seed)
    run = Run.create(plan.run_path(stage, seed), config, recipe, plan.corpus, "cpu")
    train(run, corpus=plan.corpus)
    return run


def test_a_sweep_trains_every_stage_alike_and_writes_its_files(tmp_path: Path) -> None:
    folder(tmp_path / "text")
    plan = plan_for(tmp_path)
    told: list[StageResult] = []
    progress: list[Progress] = []
    sweep = run_sweep(plan, on_stage=lambda _, result: told.append(result), on_progress=progress.append)
    assert sweep is not None
    assert [result.slug for result in told] == ["2017", "moe"]
    last = progress[-1]
    assert (last.steps_done, last.steps_total, last.runs_done, last.runs_total) == (6, 6, 2, 2)
    runs = [Run.load(plan.run_path(stage, 0)) for stage in (0, 10)]
    assert runs[0].recipe == runs[1].recipe == plan.recipe
    assert runs[0].facts["corpus"] == runs[1].facts["corpus"]
    there = make_plan(tmp_path / "here", stages=(10,), seeds=(0,), size="nano", steps=3, data=str(tmp_path / "text"))
    here = finish(there, 10, 0)
    assert here.summary is not None
    assert sweep[10].runs[0].bits_per_byte == here.summary.validation_bits_per_byte  # one thread: bit for bit
    count = morph.count(morph.stage(10, size="nano"))
    assert (sweep[10].parameters_total, sweep[10].parameters_active) == (count.total, count.active.all)
    assert sweep[10].cache_bytes == count.cache_bytes(1024)
    assert sweep[10].flops_per_token == count.flops(1024).per_token
    assert Sweep.load(plan.out) == sweep
    assert sorted(p.name for p in plan.out.iterdir()) == [
        "plan.json", "plot.png", "runs", "sweep.json", "table.csv", "table.md"
    ]  # fmt: skip


def test_done_runs_are_not_repeated_and_seeds_may_be_added(tmp_path: Path) -> None:
    folder(tmp_path / "text")
    plan = plan_for(tmp_path, stages=(0,))
    run = finish(plan, 0, 0)
    before = (run.path / "metrics.jsonl").stat().st_mtime_ns
    assert run_sweep(plan) is not None
    assert not run.path.with_suffix(".log").exists()  # no process was started for it
    assert (run.path / "metrics.jsonl").stat().st_mtime_ns == before
    more = plan_for(tmp_path, stages=(0,), seeds=(0, 1))
    finish(more, 0, 1)
    sweep = run_sweep(more)
    assert sweep is not None
    assert [r.seed for r in sweep[0].runs] == [0, 1]
    with pytest.raises(MorphError, match="holds a sweep with another recipe: choose another --out"):
        plan_for(tmp_path, stages=(0,), steps=4)


def test_a_folder_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    folder(tmp_path / "text")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.txt").write_text("mine")
    with pytest.raises(MorphError, match="exists already and is never overwritten"):
        plan_for(tmp_path)
    assert [p.name for p in (tmp_path / "sweep").iterdir()] == ["mine.txt"]


def test_a_failed_run_is_named_with_its_reason(tmp_path: Path) -> None:
    folder(tmp_path / "text")
    plan = plan_for(tmp_path, stages=(0,))
    run = Run.create(plan.run_path(0, 0), morph.stage(0, size="nano"), plan.recipe, plan.corpus, "cpu")
    with (
        lock(run.path / ".lock"),
        pytest.raises(MorphError, match="stage 0 with seed 0 failed: another process is training in"),
    ):
        run_sweep(plan)


@pytest.mark.parametrize("other", ["config", "recipe", "text"])
def test_a_foreign_run_is_refused_before_any_training(tmp_path: Path, other: str) -> None:
    folder(tmp_path / "text")
    plan = plan_for(tmp_path, stages=(0, 1))
    corpus = load_corpus(folder(tmp_path / "more", files=50)) if other == "text" else plan.corpus
    recipe = plan.recipe.with_(clip=0.5) if other == "recipe" else plan.recipe
    config = morph.stage(5 if other == "config" else 1, size="nano")
    run = Run.create(plan.run_path(1, 0), config, recipe, corpus, "cpu")
    with pytest.raises(MorphError, match=f"01-pre-norm-seed0 has another {other} than this sweep"):
        plan_for(tmp_path, stages=(0, 1))
    train(run, corpus=corpus)
    with pytest.raises(MorphError, match=f"has another {other}"):
        collect(plan, (1,))


def test_what_killed_commands_left_is_removed(tmp_path: Path) -> None:
    folder(tmp_path / "text")
    plan = plan_for(tmp_path, stages=(0,))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    stale = [plan.out / f".sweep.json.{gone.pid}.tmp", plan.out / "runs" / f".00-2017-seed0.{gone.pid}.tmp"]
    living = plan.out / f".plan.json.{os.getpid()}.tmp"
    stale[0].write_text("half")
    stale[1].mkdir()
    living.write_text("in use")
    (plan.out / ".mine.tmp").write_text("mine")
    plan_for(tmp_path, stages=(0,))
    assert sorted(p.name for p in plan.out.iterdir()) == sorted([living.name, ".mine.tmp", "plan.json", "runs"])
    assert list((plan.out / "runs").iterdir()) == []


def test_stopping_ends_the_workers_cleanly_and_the_sweep_goes_on_later(tmp_path: Path) -> None:
    folder(tmp_path / "text")
    plan = plan_for(tmp_path, stages=(0,), steps=400)
    stop = threading.Event()

    def stop_soon(progress: Progress) -> None:
        if progress.steps_done >= 2:
            stop.set()

    assert run_sweep(plan, on_progress=stop_soon, stop=stop) is None
    run = Run.load(plan.run_path(0, 0))
    latest = run.latest()
    assert latest is not None and run.summary is None
    assert len(run.metrics()) == int(latest.name.removeprefix("step-"))
    assert not (plan.out / "sweep.json").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stages": ()}, "at least one stage and one seed"),
        ({"seeds": (1, 1)}, "name one twice"),
        ({"seeds": (-1,)}, "seed is -1"),
        ({"steps": 0}, "steps is 0"),
    ],
)
def test_impossible_plans_are_refused_before_any_folder(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder(tmp_path / "text")
    with pytest.raises(MorphError, match=words):
        plan_for(tmp_path, **changes)
    assert not (tmp_path / "sweep").exists()


def test_a_worker_whose_sweep_is_gone_already_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = Request(stage="0", size="nano", out=tmp_path / "run", changes={})
    assert train_here(request, attached=os.getppid() + 1) == INTERRUPTED
    assert not (tmp_path / "run").exists()


def test_a_killed_sweep_leaves_no_worker_behind(tmp_path: Path) -> None:
    """Its worker notices, ends with a checkpoint and lets go of the run."""
    folder(tmp_path / "text")
    options = ["--stages", "0", "--seeds", "0", "--size", "nano", "--steps", "4000", "--data", "text"]
    sweep = subprocess.Popen(
        [sys.executable, "-m", "morph.cli", "sweep", *options, "--out", "sweep"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    path = tmp_path / "sweep" / "runs" / "00-2017-seed0"
    while not (path / "metrics.jsonl").exists():
        assert sweep.poll() is None
        time.sleep(0.05)
    sweep.kill()
    sweep.wait()
    run = Run.load(path)
    for _ in range(600):
        try:
            with lock(path / ".lock"):
                break
        except MorphError:
            time.sleep(0.05)
    latest = run.latest()
    assert latest is not None and run.summary is None
    assert len(run.metrics()) == int(latest.name.removeprefix("step-"))


def test_runs_that_cannot_be_one_sweep_are_refused(tmp_path: Path) -> None:
    folder(tmp_path / "text")
    plan = plan_for(tmp_path, stages=(0,))
    run = finish(plan, 0, 0)
    assert [r.seed for r in sweep_of([run])[0].runs] == [0]
    with pytest.raises(MorphError, match="no runs: give at least one"):
        sweep_of([])
    recipe = plan.recipe.with_(seed=1)
    other = Run.create(tmp_path / "other", morph.fork("nope", plan.size), recipe, plan.corpus, "cpu")
    with pytest.raises(MorphError, match="other is of no stage: a sweep compares stages"):
        sweep_of([run, other])
    unfinished = Run.create(tmp_path / "more", run.config, recipe, plan.corpus, "cpu")
    with pytest.raises(MorphError, match="more is not finished: continue it with"):
        sweep_of([run, unfinished])
    longer = Run.create(tmp_path / "longer", run.config, recipe.with_(steps=4), plan.corpus, "cpu")
    train(longer, corpus=plan.corpus)
    with pytest.raises(MorphError, match="longer has another recipe than"):
        sweep_of([run, longer])
