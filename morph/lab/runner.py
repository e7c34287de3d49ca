"""Running experiments: their cells go to a few worker processes, and each result is on disk as soon as it is there.

    OUT/NAME/cells/KEY.json     one cell; its name says what it is a cell of, so that none is ever computed twice
    OUT/NAME/result.json        all of them with summaries and verdicts, when the last is done; plot.png beside it
    OUT/worker-0.log            what a worker had to say

A lab that was stopped, or killed, goes on where it was. A cell whose spec has changed since has another key.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from morph.errors import MorphError
from morph.lab.catalogue import load
from morph.lab.result import MEASURED, Result, collect, require_readings
from morph.lab.spec import Cell, Experiment
from morph.train.files import disk_error, lock, read_json, remove_leftovers, replace_json
from morph.train.records import require_fields
from morph.train.sweeper import require_workers

ANEW = "remove it, and it is computed again"
_POLL = 0.2  # seconds between looks at whether to stop


@dataclass(frozen=True)
class Progress:
    """What `on_progress` is told: steps and cells done and to do over all experiments, and whose cell came last."""

    steps_done: int
    steps_total: int
    cells_done: int
    cells_total: int
    name: str


@dataclass
class _Plan:
    """One experiment on its way: its distinct cells and what is known of them."""

    module: str
    experiment: Experiment
    folder: Path
    cells: dict[str, Cell]
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_told: bool = False

    def path(self, key: str) -> Path:
        return self.folder / "cells" / f"{key}.json"


@dataclass
class _Job:
    plan: _Plan
    key: str
    steps: int = 0


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    log: Path
    job: _Job | None = None


def run(
    modules: Sequence[str],
    out: Path,
    *,
    quick: bool = False,
    workers: int = 2,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_result: Callable[[Result, Path], None] = lambda result, folder: None,
    stop: threading.Event | None = None,
) -> list[Result] | None:
    """Compute what is not there yet of the experiments that `modules` declare; None when `stop` was set before the end.

    `on_result` is called with each result, and its folder, when its last cell is done. Raises MorphError naming the
    first cell that failed; what is done stays done.
    """
    require_workers(workers)
    stop = stop or threading.Event()
    results = []
    with contextlib.ExitStack() as held:
        with _writing(out):
            out.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock(out / ".lock"))
            plans = [_open(module, out, quick) for module in modules]
        states = held.enter_context(contextlib.closing(_compute(plans, out, quick, workers, stop)))
        for progress in states:
            on_progress(progress)
            for plan in plans:
                if not plan.is_told and len(plan.found) == len(plan.cells):
                    plan.is_told = True
                    results.append(_finish(plan, quick))
                    on_result(results[-1], plan.folder)
        return results if all(plan.is_told for plan in plans) else None


@contextlib.contextmanager
def _writing(out: Path) -> Generator[None]:
    """What the disk refuses is told as such; what goes wrong in the caller's functions is the caller's to tell."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, out, "the same command then goes on") from None


def _open(module: str, out: Path, quick: bool) -> _Plan:
    """An experiment with the cells of it that are in `out` already."""
    experiment = load(module)
    plan = _Plan(module, experiment, out / experiment.name, {cell.key: cell for cell in experiment.cells(quick)})
    (plan.folder / "cells").mkdir(parents=True, exist_ok=True)
    remove_leftovers(plan.folder / "cells")
    for key in plan.cells:
        if (path := plan.path(key)).exists():
            plan.found[key] = require_fields(read_json(path, ANEW), MEASURED, str(path), ANEW)
            require_readings(plan.found[key]["readings"], str(path), ANEW)
    return plan


def _finish(plan: _Plan, quick: bool) -> Result:
    """Write result.json and the plot."""
    from morph.lab.plot import plot

    result = collect(plan.experiment, quick, plan.found)
    with _writing(plan.folder):
        result.save(plan.folder / "result.json")
        plot(result, plan.folder / "plot.png", plan.experiment.draw)
    return result


def _compute(plans: list[_Plan], out: Path, quick: bool, count: int, stop: threading.Event) -> Generator[Progress]:
    """Keep `count` workers busy until nothing is left; yields now and then, and at the end."""
    todo = [_Job(plan, key) for plan in plans for key in plan.cells if key not in plan.found]
    yield _progress(plans, [])
    if not todo:
        return
    messages: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
    pool: list[_Worker] = []
    try:
        for i in range(min(count, len(todo))):
            with _writing(out):
                pool.append(_start(out / f"worker-{i}.log", messages))
        for worker in pool:
            _assign(worker, todo, quick)
        while any(worker.job for worker in pool) and not stop.is_set():
            with contextlib.suppress(queue.Empty):
                worker, message = messages.get(timeout=_POLL)
                _hear(worker, message)
                if worker.job is None:
                    _assign(worker, todo, quick)
            yield _progress(plans, pool)
    finally:
        for worker in pool:
            worker.process.terminate()
            worker.process.wait()


def _start(log: Path, messages: queue.Queue[tuple[_Worker, dict[str, Any] | None]]) -> _Worker:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with open(log, "w", encoding="utf-8") as errors:
        # A session of its own: Ctrl-C in the terminal reaches the lab alone, which ends its workers.
        process = subprocess.Popen(
            [sys.executable, "-m", "morph.lab.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env=environment, text=True, encoding="utf-8", start_new_session=True,
        )  # fmt: skip
    worker = _Worker(process, log)

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            messages.put((worker, json.loads(line)))
        messages.put((worker, None))  # it ended

    threading.Thread(target=listen, daemon=True).start()
    return worker


def _assign(worker: _Worker, todo: list[_Job], quick: bool) -> None:
    """Give a free worker the next cell, if there is one."""
    if not todo:
        return
    worker.job = todo.pop(0)
    job = {"module": worker.job.plan.module, "key": worker.job.key, "quick": quick}
    assert worker.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # that it has ended is heard next
        worker.process.stdin.write(json.dumps(job) + "\n")
        worker.process.stdin.flush()


def _hear(worker: _Worker, message: dict[str, Any] | None) -> None:
    """Take what a worker says: steps, a finished cell (kept at once), or a failure (raised)."""
    job = worker.job
    if job is None:
        return
    if message is None or "failed" in message:
        cell = job.plan.cells[job.key]
        where = "".join(f", {axis} {value}" for axis, value in cell.point.items())
        why = _end(worker.process) if message is None else message["failed"]
        raise MorphError(
            f"{job.plan.experiment.name}: {cell.arm}{where}, seed {cell.seed} failed: {why}; see {worker.log} "
            f"(the finished cells stay; the same command goes on)"
        )
    if "steps" in message:
        job.steps = message["steps"]
        return
    cell = job.plan.cells[job.key]
    facts = {"arm": cell.arm, "point": dict(cell.point), "seed": cell.seed, **message["done"]}
    with _writing(job.plan.folder):
        replace_json(job.plan.path(job.key), facts)
    job.plan.found[job.key] = facts
    worker.job = None


def _end(process: subprocess.Popen[str]) -> str:
    """How a process ended that should not have."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if (code := process.wait(timeout=1)) < 0:
            return f"its process was ended by signal {-code}" + " (killed: too little memory?)" * (code == -9)
    return "its process ended"


def _progress(plans: list[_Plan], pool: list[_Worker]) -> Progress:
    done = [cell.steps for plan in plans for key, cell in plan.cells.items() if key in plan.found]
    every = [cell.steps for plan in plans for cell in plan.cells.values()]
    busy = [worker.job for worker in pool if worker.job]
    name = busy[0].plan.experiment.name if busy else ""
    return Progress(sum(done) + sum(job.steps for job in busy), sum(every), len(done), len(every), name)
