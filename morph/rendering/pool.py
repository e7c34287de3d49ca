"""Several figures at once, each in a process of its own: one that fails, or is killed, does not stop the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from morph.errors import told
from morph.rendering.job import Job, run

OnProgress = Callable[[Job, int, int], None]
"""Called with a job, the pictures it has drawn, and their number."""


@dataclass(frozen=True)
class Result:
    """How a job ended: its files, or what went wrong in one line."""

    job: Job
    files: tuple[Path, ...] = ()
    error: str = ""


def workers_for(jobs: int) -> int:
    """Processes to use: one a core, no more than there are jobs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, jobs))


def run_all(jobs: Iterable[Job], workers: int, on_progress: OnProgress | None = None) -> list[Result]:
    """Run all jobs, at most `workers` at a time; the results are in the order of the jobs."""
    order = list(jobs)
    if len(order) == 1:
        return [_run_here(order[0], on_progress)]
    waiting = deque(order)
    running: dict[Connection, tuple[Job, Any]] = {}
    results: dict[int, Result] = {}
    context = multiprocessing.get_context("spawn")  # a fork would copy whatever threads are in
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.popleft()
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(job, there), daemon=True)
                with _interruptions_held():
                    process.start()
                there.close()
                running[here] = (job, process)
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                job, process = running[pipe]
                try:
                    kind, content = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    results[id(job)] = Result(job, error=f"its process ended with code {process.exitcode}")
                    del running[pipe]
                    continue
                if kind == "step":
                    if on_progress is not None:
                        on_progress(job, *content)
                    continue
                results[id(job)] = Result(job, content) if kind == "files" else Result(job, error=content)
                process.join()
                del running[pipe]
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()
    return [results[id(job)] for job in order]


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Ctrl-C reaches this process a moment later, and a process started inside never: it would tell of its own end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # lets Ctrl-C in again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_here(job: Job, on_progress: OnProgress | None) -> Result:
    try:
        return Result(job, files=tuple(run(job, lambda n, of: on_progress(job, n, of) if on_progress else None)))
    except Exception as error:
        if (line := told(error)) is None:
            raise
        return Result(job, error=line)


def _work(job: Job, pipe: Any) -> None:
    """The life of one process. Ctrl-C is the parent's business, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unwinds, so that folders of parts are removed
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        files = run(job, lambda n, of: pipe.send(("step", (n, of))))
        pipe.send(("files", tuple(files)))
    except Exception as error:
        if (line := told(error)) is None:
            raise
        pipe.send(("error", line))


def _end_with_parent() -> None:
    """A parent that was killed could not end its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
