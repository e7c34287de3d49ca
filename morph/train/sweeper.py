"""Running a sweep: every run is `morph train` in its own process with one thread, a few of them at a time.

A sweep's folder holds `plan.json` (what all runs share), `runs/` and, once all are done, `sweep.json`,
`table.md`, `table.csv` and `plot.png`. Started again with the same plan it repeats nothing that is
done.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import morph
from morph.errors import MorphError
from morph.steps import SIZES, SLUGS
from morph.train.data import Corpus, load_corpus
from morph.train.device import world
from morph.train.files import (
    disk_error,
    new_folder,
    read_json,
    remove_leftovers,
    replace_bytes,
    replace_json,
    require_free,
)
from morph.train.memory import require_memory
from morph.train.recipe import Recipe, default_recipe
from morph.train.records import COUNT, DIGEST, TABLE, TEXT, require_fields
from morph.train.runs import FORMAT, Run, check_fit
from morph.train.sweep import SeedRun, StageResult, Sweep, to_csv, to_markdown

COST_CONTEXT = 1024  # tokens at which cache bytes and FLOPs are counted
_POLL = 0.2  # seconds between looks at the workers


@dataclass(frozen=True)
class Plan:
    """What to train and where. All runs share size, recipe (but for the seed) and text."""

    out: Path
    stages: tuple[int, ...]
    seeds: tuple[int, ...]
    size: str
    recipe: Recipe
    corpus: Corpus

    def jobs(self) -> list[tuple[int, int]]:
        """(stage, seed) pairs: all stages of the first seed first, so that a whole column is there early."""
        return [(stage, seed) for seed in self.seeds for stage in self.stages]

    def run_path(self, stage: int, seed: int) -> Path:
        return self.out / "runs" / f"{stage:02d}-{SLUGS[stage]}-seed{seed}"

    def shared(self) -> dict[str, Any]:
        """What must be the same when the sweep is continued (stages and seeds may be added)."""
        recipe = {k: v for k, v in self.recipe.to_dict().items() if k != "seed"}
        return {"format": FORMAT, "size": self.size, "recipe": recipe, "corpus": self.corpus.sha256}


@dataclass
class Progress:
    """What `on_progress` is told: optimizer steps done and to do over all runs, and runs done."""

    steps_done: int = 0
    steps_total: int = 0
    runs_done: int = 0
    runs_total: int = 0


@dataclass
class _Worker:
    job: tuple[int, int]
    process: "subprocess.Popen[bytes]"
    log: Path
    signalled: bool = field(default=False)


def make_plan(
    out: Path,
    *,
    stages: tuple[int, ...],
    seeds: tuple[int, ...],
    size: str,
    steps: int | None,
    data: str | None,
) -> Plan:
    """Check everything that can be checked before the first run, and open or continue the sweep's folder."""
    if not stages or not seeds:
        raise MorphError("a sweep needs at least one stage and one seed: --stages 0 1 2 --seeds 0 1 2")
    if len(set(seeds)) < len(seeds) or len(set(stages)) < len(stages):
        raise MorphError(f"stages {list(stages)} or seeds {list(seeds)} name one twice: name each once")
    recipe = default_recipe(size).with_(steps=steps)
    for seed in seeds:
        recipe.with_(seed=seed)
    world()
    found = _found(out)
    plan = Plan(out, tuple(sorted(stages)), seeds, size, recipe, load_corpus(data))
    check_fit(morph.stage(plan.stages[0], size=size), plan.corpus)
    for stage in plan.stages:
        require_memory(morph.stage(stage, size=size), recipe, torch.device("cpu"))
    if found is not None:
        for name, value in plan.shared().items():
            if found[name] != value:
                raise MorphError(f"{out} holds a sweep with another {name}: choose another --out to keep both")
        for job in plan.jobs():
            if (run := _own_run(plan, *job)) is not None:
                _ = run.summary  # whether it is sound
    try:
        if found is None:
            out.parent.mkdir(parents=True, exist_ok=True)
            with new_folder(out) as folder:
                (folder / "runs").mkdir()
                replace_json(folder / "plan.json", plan.shared())
        (out / "runs").mkdir(exist_ok=True)
        for place in (out, out / "runs"):
            remove_leftovers(place)
    except OSError as error:
        raise disk_error(error, out, "or choose another --out") from None
    return plan


def _found(out: Path) -> dict[str, Any] | None:
    """The record of the sweep that is in `out` already, None where a new one can be made."""
    path = out / "plan.json"
    if not path.exists():
        require_free(out, "--out", "it is not a sweep's folder")
        return None
    fields = {"format": COUNT, "size": TEXT, "recipe": TABLE, "corpus": DIGEST}
    return require_fields(read_json(path), fields, str(path), "restore it or choose another --out")


def _own_run(plan: Plan, stage: int, seed: int) -> Run | None:
    """A run of the sweep that is there already; None where there is none. Raises MorphError for a foreign one."""
    path = plan.run_path(stage, seed)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    run = Run.load(path)
    for name, same in (
        ("config", run.config == morph.stage(stage, size=plan.size)),
        ("recipe", run.recipe == plan.recipe.with_(seed=seed)),
        ("text", run.facts["corpus"]["sha256"] == plan.corpus.sha256),
    ):
        if not same:
            raise MorphError(f"{path} has another {name} than this sweep: move it away and run the sweep again")
    return run


def require_workers(workers: int) -> None:
    """Raise MorphError for a number of processes that this machine has no use for."""
    most = max(2, os.cpu_count() or 1)
    if not 1 <= workers <= most:
        raise MorphError(f"workers is {workers}: give 1 to {most}, one for each processor")


def run_sweep(
    plan: Plan,
    *,
    workers: int = 2,
    on_stage: Callable[[Sweep, StageResult], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Sweep | None:
    """Train what is not done yet and write the sweep's files; None when `stop` was set before the end.

    `on_stage` is called once a stage, in stage order, when all its seeds (and all stages before it) are
    done. Raises MorphError naming the first run that failed; what is done stays done.
    """
    require_workers(workers)
    stop = stop or threading.Event()
    told: set[int] = set()
    for progress in _train_all(plan, workers, stop):
        if on_progress is not None:
            on_progress(progress)
        for stage in plan.stages:
            if stage in told or not all(_done(plan, stage, seed) for seed in plan.seeds):
                if stage not in told:
                    break
                continue
            told.add(stage)
            if on_stage is not None:
                sweep = collect(plan, tuple(sorted(told)))
                on_stage(sweep, sweep[stage])
    if stop.is_set() and len(told) < len(plan.stages):
        return None
    sweep = collect(plan, plan.stages)
    write_sweep(sweep, plan.out)
    return sweep


def _done(plan: Plan, stage: int, seed: int) -> bool:
    return (plan.run_path(stage, seed) / "summary.json").exists()


def _train_all(plan: Plan, workers: int, stop: threading.Event) -> Iterator[Progress]:
    """Keep `workers` processes busy; yields now and then, and a last time at the end."""
    todo = [job for job in plan.jobs() if not _done(plan, *job)]
    busy: list[_Worker] = []
    failures: list[str] = []
    try:
        while (todo and not stop.is_set() and not failures) or busy:
            while todo and len(busy) < workers and not stop.is_set() and not failures:
                busy.append(_start(plan, *todo.pop(0)))
            for worker in [w for w in busy if w.process.poll() is not None]:
                busy.remove(worker)
                if worker.process.returncode and not stop.is_set():
                    failures.append(_last_line(worker))
            if stop.is_set():
                _interrupt(busy)
            yield _progress(plan)
            time.sleep(_POLL)
    finally:
        _interrupt(busy)
        for worker in busy:
            worker.process.wait()
    if failures:
        raise MorphError(f"{failures[0]} (the finished runs stay; the same command continues the sweep)")
    yield _progress(plan)


def _start(plan: Plan, stage: int, seed: int) -> _Worker:
    path = plan.run_path(stage, seed)
    command = [sys.executable, "-m", "morph", "train", "--out", str(path), "--stage", str(stage), "--size", plan.size]
    command += ["--seed", str(seed), "--steps", str(plan.recipe.steps), "--device", "cpu"]
    command += ["--threads", "1", "--quiet", "--attached", str(os.getpid())]
    command += ["--resume"] if _own_run(plan, stage, seed) is not None else []
    command += ["--data", plan.corpus.path] if plan.corpus.path else []
    log = path.with_suffix(".log")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with open(log, "wb") as out:
        # A session of its own: Ctrl-C in the terminal reaches the sweep alone, which passes it on once.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )
    return _Worker((stage, seed), process, log)


def _interrupt(busy: list[_Worker]) -> None:
    """Ask the workers to stop after their current step, once each."""
    for worker in busy:
        if not worker.signalled and worker.process.poll() is None:
            worker.signalled = True
            worker.process.send_signal(signal.SIGINT)


def _last_line(worker: _Worker) -> str:
    lines = worker.log.read_text(errors="replace").strip().splitlines()
    reason = lines[-1].removeprefix("morph: ") if lines else f"exit code {worker.process.returncode}"
    return f"stage {worker.job[0]} with seed {worker.job[1]} failed: {reason}; see {worker.log}"


def _progress(plan: Plan) -> Progress:
    jobs = plan.jobs()
    done = [job for job in jobs if _done(plan, *job)]
    progress = Progress(len(done) * plan.recipe.steps, len(jobs) * plan.recipe.steps, len(done), len(jobs))
    for job in set(jobs) - set(done):
        with contextlib.suppress(OSError):  # not started yet
            progress.steps_done += (plan.run_path(*job) / "metrics.jsonl").read_bytes().count(b"\n")
    return progress


def collect(plan: Plan, stages: tuple[int, ...]) -> Sweep:
    """Put the finished runs of `stages` together with their exact costs."""
    runs = []
    for stage in stages:
        for seed in plan.seeds:
            run = _own_run(plan, stage, seed)
            if run is None or run.summary is None:
                raise MorphError(f"{plan.run_path(stage, seed)} is not finished: run the sweep again")
            runs.append(run)
    return sweep_of(runs)


def sweep_of(runs: Iterable[Run]) -> Sweep:
    """Finished runs of stages as a sweep, with their exact costs: one size, recipe (but for the seed) and text.

    Raises:
        MorphError: for no runs, for one that is not finished or of no stage, and for runs that cannot be compared.
    """
    runs = list(runs)
    if not runs:
        raise MorphError("no runs: give at least one that is finished")
    places = [_place(run) for run in runs]
    shared = _shared(runs[0], places[0][1])
    by_stage: dict[int, list[SeedRun]] = {}
    for run, (stage, size) in zip(runs, places, strict=True):
        summary = run.summary
        if summary is None:
            raise MorphError(f"{run.path} is not finished: continue it with: morph train --out {run.path} --resume")
        if (differs := [name for name, value in _shared(run, size).items() if value != shared[name]]) != []:
            raise MorphError(f"{run.path} has another {differs[0]} than {runs[0].path}: they cannot be compared")
        scores = summary.validation_bits_per_byte, summary.cpu_seconds, summary.train_bits_per_byte
        by_stage.setdefault(stage, []).append(SeedRun(run.seed, *scores))
    facts, recipe = runs[-1].facts, runs[-1].recipe
    return Sweep(
        size=shared["size"],
        steps=recipe.steps,
        seeds=tuple(dict.fromkeys(run.seed for run in runs)),
        recipe=shared["recipe"],
        corpus={name: facts["corpus"][name] for name in ("name", "sha256", "train_bytes", "validation_bytes")},
        versions=facts["versions"],
        date=facts["date"],
        stages=tuple(_costed(stage, shared["size"], tuple(found)) for stage, found in sorted(by_stage.items())),
    )


def _place(run: Run) -> tuple[int, str]:
    """The stage and the size that a run's config is."""
    for size in SIZES:
        for stage in range(len(SLUGS)):
            if run.config == morph.stage(stage, size=size):
                return stage, size
    raise MorphError(f"{run.path} is of no stage: a sweep compares stages (morph train --stage)")


def _shared(run: Run, size: str) -> dict[str, Any]:
    """What runs must have in common to be compared."""
    recipe = {name: value for name, value in run.recipe.to_dict().items() if name != "seed"}
    return {"size": size, "recipe": recipe, "text": run.facts["corpus"]["sha256"]}


def _costed(stage: int, size: str, runs: tuple[SeedRun, ...]) -> StageResult:
    count = morph.count(morph.stage(stage, size=size))
    return StageResult(
        stage=stage,
        slug=SLUGS[stage],
        parameters_total=count.total,
        parameters_active=count.active.all,
        kv_bytes_per_token=count.kv_bytes_per_token,
        cache_context=COST_CONTEXT,
        cache_bytes=count.cache_bytes(COST_CONTEXT),
        flops_per_token=count.flops(COST_CONTEXT).per_token,
        runs=runs,
    )


def write_sweep(sweep: Sweep, out: Path) -> None:
    """Write sweep.json, table.md, table.csv and plot.png (each in one move)."""
    from morph.train.plot import plot

    try:
        sweep.save(out / "sweep.json")
        replace_bytes(out / "table.md", to_markdown(sweep).encode(errors="replace"))
        replace_bytes(out / "table.csv", to_csv(sweep).encode())
        plot(sweep, out / "plot.png")
    except OSError as error:
        raise disk_error(error, out, "then run the same command again") from None
