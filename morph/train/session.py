"""Training at a terminal: progress on the screen, Ctrl-C as a clean end, and what to do next."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from morph.errors import INTERRUPTED
from morph.train import ledger
from morph.train.device import FEW_FEATURES, use_threads
from morph.train.start import Request, start
from morph.train.sweep import StageResult, Sweep
from morph.train.sweeper import COST_CONTEXT, Plan, Progress, run_sweep


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Ctrl-C, or a request to terminate, sets the event; a second one interrupts at once."""
    stop = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def progress_bar(unit: str, quiet: bool) -> Any:
    """A rich progress bar on stderr, silent when quiet or without a terminal; tasks have a field `note`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    note = TextColumn(unit + "  {task.fields[note]}")
    columns = (BarColumn(), MofNCompleteColumn(), note, TimeRemainingColumn(), TextColumn("left"))
    silent = quiet or sys.stderr is None or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), disable=silent, transient=True)


def train_here(
    request: Request, *, threads: int | None = None, quiet: bool = False, attached: int | None = None
) -> int:
    """Train or resume as asked; returns the exit code (130 after Ctrl-C).

    `attached` is the number of the process that started this one: when it is gone, training stops, resumable.
    """
    if threads is not None:
        use_threads(threads)
    if attached is not None and os.getppid() != attached:
        return INTERRUPTED
    with stop_on_interrupt() as stop:
        run, corpus = start(request)
        if threads is None and run.config.d_model < FEW_FEATURES:
            use_threads(1)
        from morph.train.loop import StepReport, train

        if run.summary is not None:
            print(f"{run.path} is finished already: {run.summary.steps} steps")
            return 0
        with progress_bar("steps", quiet) as bar:
            task = bar.add_task("", total=run.recipe.steps, note="")

            def on_step(report: StepReport) -> None:
                if attached is not None and os.getppid() != attached:
                    stop.set()
                note = f"{report.bits_per_byte:.3f} bits/byte  {report.tokens_per_second:,.0f} tokens/s "
                bar.update(task, completed=report.step, note=note)
                if report.validation_bits_per_byte is not None and not quiet:
                    load = f", fullest expert {report.load:.2f} x even" if report.load is not None else ""
                    line = (
                        f"step {report.step}: batch {report.bits_per_byte:.3f} bits per byte, held out "
                        f"{report.validation_bits_per_byte:.3f}, {report.tokens_per_second:,.0f} tokens/s{load}"
                    )
                    bar.console.print(line, highlight=False, soft_wrap=True)

            outcome = train(run, device=request.device, on_step=on_step, stop=stop, corpus=corpus)
    if outcome.summary is None:
        print(
            f"Stopped after step {outcome.step} of {run.recipe.steps}. "
            f"Continue with: morph train --out {run.path} --resume"
        )
        return INTERRUPTED
    done = outcome.summary
    print(
        f"{run.path}: {done.validation_bits_per_byte:.3f} bits per byte on held-out text after "
        f"{done.steps} steps ({done.cpu_seconds:.0f} CPU seconds). "
        f"Try: morph generate {run.path} --prompt 'def '"
    )
    return 0


def sweep_here(plan: Plan, workers: int) -> Sweep | None:
    """Run a sweep with the ledger on the screen; None after Ctrl-C."""
    print(
        f"{len(plan.stages)} stages, seeds {', '.join(map(str, plan.seeds))}: "
        f"{plan.recipe.steps} steps each, {workers} at a time, in {plan.out}"
    )
    print(ledger.head(COST_CONTEXT), flush=True)
    with stop_on_interrupt() as stop, progress_bar("steps", quiet=False) as bar:
        task = bar.add_task("", total=None, note="")

        def on_stage(sweep: Sweep, result: StageResult) -> None:
            bar.console.file.flush()
            print(ledger.row(sweep, result), flush=True)

        def on_progress(progress: Progress) -> None:
            note = f"{progress.runs_done} of {progress.runs_total} runs "
            bar.update(task, completed=progress.steps_done, total=progress.steps_total, note=note)

        sweep = run_sweep(plan, workers=workers, on_stage=on_stage, on_progress=on_progress, stop=stop)
    print("Stopped. The same command continues the sweep." if sweep is None else ledger.foot(sweep), flush=True)
    return sweep
