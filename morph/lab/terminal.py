"""What `morph lab list`, `run` and `report` do, with their words for the terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from morph.errors import INTERRUPTED, MorphError
from morph.lab import catalogue
from morph.train.files import disk_error, replace_bytes

if TYPE_CHECKING:
    from morph.lab.result import Result

ALL = "all"


def list_experiments() -> None:
    """A line for each experiment: what it costs and what it found."""
    from morph.lab.result import RECORDED, recorded

    total = 0.0
    for name in catalogue.modules():
        experiment = catalogue.find(name)
        total += experiment.minutes
        found = recorded(name).verdict if (RECORDED / f"{name}.json").exists() else "not run yet"
        print(f"{experiment.number:>3}  {name:<20} {experiment.minutes:>4.0f} min  {experiment.title}: {found}")
    print(f"About {total:.0f} CPU minutes in all.")
    print("Read one: morph lab report NAME. Run one: morph lab run NAME; --quick only shows that it runs, in seconds.")


def chosen(names: Sequence[str]) -> list[str]:
    """The names meant, `all` spelled out. Raises MorphError for an unknown one, one given twice, and for none."""
    if not names:
        raise MorphError(f"no experiment is named: give one of {', '.join(catalogue.modules())}, or all")
    meant = [name for word in names for name in (catalogue.modules() if word == ALL else [word])]
    for name in meant:
        catalogue.module_of(name)
    if twice := [name for name in meant if meant.count(name) > 1]:
        raise MorphError(f"experiment {twice[0]!r} is named twice: name it once")
    return meant


def run_experiments(names: Sequence[str], *, quick: bool, workers: int, out: Path | None, record: bool) -> int:
    """Run, show progress, write results; returns the exit code (130 after Ctrl-C)."""
    from morph.lab.report import at, bound, measured
    from morph.lab.result import RECORDED
    from morph.lab.runner import Progress, run
    from morph.train.session import progress_bar, stop_on_interrupt
    from morph.train.sweeper import require_workers

    if quick and record:
        raise MorphError("a quick run is no evidence and is never recorded: leave out --quick or --record")
    if record and not (RECORDED.is_dir() and os.access(RECORDED, os.W_OK)):
        raise MorphError(f"results cannot be recorded in {RECORDED}, which cannot be written to: leave out --record")
    meant = chosen(names)
    folder = out or Path("runs/lab-quick" if quick else "runs/lab")
    require_workers(workers)
    print(f"{', '.join(meant)}: {workers} process{'' if workers == 1 else 'es'}, in {folder}", flush=True)
    with stop_on_interrupt() as stop, progress_bar("steps", quiet=False) as bar:
        task = bar.add_task("", total=None, note="")

        def on_progress(progress: Progress) -> None:
            note = f"{progress.cells_done} of {progress.cells_total} cells  {progress.name} "
            bar.update(task, completed=progress.steps_done, total=progress.steps_total, note=note)

        def on_result(result: Result, place: Path) -> None:
            if record:
                _record(result)
            bar.console.file.flush()
            print(f"\n{result.declared['number']}. {result.declared['title']}: {result.verdict}")
            for finding in result.findings:
                told = f"{measured(finding.found)}, {bound(finding.claim)} would count: {finding.verdict}"
                where = f" ({at(finding.point)})" if finding.point else ""
                print(f"   {finding.claim.text}{where}\n      {told}", flush=True)

        modules = [catalogue.module_of(name) for name in meant]
        results = run(
            modules, folder, quick=quick, workers=workers, on_progress=on_progress, on_result=on_result, stop=stop
        )
    if results is None:
        print("Stopped. The same command goes on; the cells that are done stay.", flush=True)
        return INTERRUPTED
    where = f" and {RECORDED}" if record else ""
    print(f"\n{sum(result.cpu_seconds for result in results):.0f} CPU seconds in all.")
    print(f"Results and plots: {folder}/NAME/result.json, plot.png{where}.")
    print(f"In words: morph lab report --results {folder}")
    return 0


def _record(result: Result) -> None:
    """Put a result among those that come with Morph."""
    from morph.lab.result import RECORDED

    try:
        result.save(RECORDED / f"{result.name}.json")
    except OSError as error:
        raise disk_error(error, RECORDED, "the same command then records it, and computes nothing again") from None


def report(names: Sequence[str], *, results: Path | None, out: Path | None) -> None:
    """Print sections of results, recorded or of a run; or write them all as a page with plots to `out`."""
    from morph.lab.plot import plot
    from morph.lab.report import page, section
    from morph.lab.result import RECORDED, Result, recorded

    if results is not None and not results.is_dir():
        raise MorphError(f"no results at {results}: give the folder of a run (--out of morph lab run)")
    there = RECORDED.glob("*.json") if results is None else results.glob("*/result.json")
    known = {path.stem if results is None else path.parent.name for path in there}
    wanted = chosen(names) if names else [name for name in catalogue.modules() if name in known]
    if missing := [name for name in wanted if name not in known] or ([] if wanted else ["any experiment"]):
        raise MorphError(f"there is no result of {missing[0]} yet: make it with morph lab run")
    found = [recorded(name) if results is None else Result.load(results / name / "result.json") for name in wanted]
    if out is None:
        for result in found:
            print(section(result))
        return
    if quick := [result.name for result in found if result.is_quick]:
        raise MorphError(f"{quick[0]} is a quick run, which is no evidence: report it without --out")
    (out / "lab").mkdir(parents=True, exist_ok=True)
    for result in found:
        plot(result, out / "lab" / f"{result.name}.png", catalogue.find(result.name).draw)
    replace_bytes(out / "lab.md", page(found).encode())
    print(f"Written: {out / 'lab.md'}, plots in {out / 'lab'}")
