"""What `morph render` does with its words: jobs, a bar for each, and a line for each that failed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morph.errors import BAD_INPUT, MorphError, nearest
from morph.rendering.job import Job
from morph.rendering.pool import Result, run_all, workers_for
from morph.story import OPTIONS, Figure, names
from morph.story.store import stored

ALL = "all"
MOST_FRAMES = 1000


@dataclass(frozen=True)
class Request:
    """The words of the command line; "" and None stand for a default."""

    figures: tuple[str, ...]
    quality: str = "480p"
    theme: str = "dark"
    frames: str = ""
    formats: tuple[str, ...] = ()
    model: str = ""
    seed: int | None = None
    sweep: Path | None = None
    out: Path | None = None


def render_all(request: Request, explain: bool = False) -> int:
    """Render what is asked and print the files, or explain it; the exit code tells whether all of it worked.

    Raises:
        MorphError: when the only figure fails; with several, each failure is a line and the others go on.
    """
    figures = _figures(request.figures)
    if explain:
        print("\n\n".join(explained(name, _options(request, name)) for name in figures))
        return 0
    jobs = [_job(request, name, several=len(figures) > 1) for name in figures]
    results = with_bars(jobs)
    for result in results:
        for path in result.files:
            print(path)
    failed = [result for result in results if result.error]
    if len(results) == 1 and failed:
        raise MorphError(failed[0].error)
    for result in failed:
        print(f"morph: {result.job.figure}: {result.error}", file=sys.stderr)
    return BAD_INPUT if failed else 0


def chosen_frames(text: str) -> tuple[int, ...]:
    """The numbers that `3-5,8` names: 3, 4, 5 and 8. Raises `MorphError` for anything else."""
    chosen: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", part)
        if not found:
            raise MorphError(f"--frames {text[:40]!r} is no list of frames; write it like 3, 3-5 or 1,4-6")
        low, high = int(found[1]), int(found[2] or found[1])
        if low > high:
            raise MorphError(f"--frames {part.strip()[:40]!r} runs backwards; write the smaller number first")
        if high > MOST_FRAMES:
            raise MorphError(
                f"--frames {part.strip()[:40]!r}: no figure has {high} frames; morph render FIGURE --explain lists them"
            )
        chosen |= set(range(low, high + 1))
    return tuple(sorted(chosen))


def explained(name: str, options: Mapping[str, Any]) -> str:
    """What each frame is made of, as text: its claim, and its arrays with axes, shapes and sources."""
    made = stored(name, **options)
    lines = [f"Figure {made.number}, {made.name}: {made.title}"]
    for number, frame in enumerate(made.frames, start=1):
        lines += ["", f"{number:2}  {frame.title}"]
        verdict = "claim" if frame.check() else "claim, which does not hold of this model"
        lines += [f"    {frame.absent}"] if frame.absent else [f"    {verdict}: {frame.claim.text}"]
        lines += [f"    {line}" for line in _arrays(made, number)]
        lines += [f"    source: {frame.source}"] if frame.source else []
    return "\n".join(lines)


def _arrays(figure: Figure, number: int) -> Sequence[str]:
    rows = [
        (name, " × ".join(f"{axis} {n}" for axis, n in zip(a.axes, a.values.shape)) or "one number", a.source)
        for name, a in figure.frames[number - 1].arrays.items()
    ]
    wide, long = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    return [f"{name:<{wide}}  {shape:<{long}}  {source}".rstrip() for name, shape, source in rows]


def _figures(words: Sequence[str]) -> list[str]:
    for word in words:
        if word != ALL and word not in names():
            known = (*names(), ALL)
            raise MorphError(f"no figure is called {word[:40]!r}; there is {', '.join(known)}{nearest(word, known)}")
    return list(names()) if ALL in words else list(dict.fromkeys(words))


def _options(request: Request, name: str) -> dict[str, Any]:
    """The options that the figure is made with: of several figures, each gets those that it takes."""
    given = {"model": request.model or None, "seed": request.seed, "sweep": request.sweep}
    several = len(_figures(request.figures)) > 1
    return {key: v for key, v in given.items() if v is not None and (key in OPTIONS[name] or not several)}


def _job(request: Request, name: str, several: bool) -> Job:
    folder = name
    if request.model and "model" in OPTIONS[name]:  # not in the place of the recorded one's
        folder += "-" + (re.sub(r"[^A-Za-z0-9._-]+", "-", Path(request.model).name).strip("-.") or "model")
    out = request.out or Path("out")
    return Job(
        name,
        out / folder if several or request.out is None else out,
        _options(request, name),
        quality=request.quality,
        theme=request.theme,
        frames=chosen_frames(request.frames) if request.frames else None,
        formats=tuple(dict.fromkeys(request.formats)) or None,
    )


def with_bars(jobs: Sequence[Job]) -> list[Result]:
    """Run the jobs with a progress bar for each on a terminal, and none elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("pictures"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks = {job.figure: bar.add_task(job.figure, total=None) for job in jobs}
        return run_all(
            jobs,
            workers_for(len(jobs)),
            lambda job, done, total: bar.update(tasks[job.figure], completed=done, total=total),
        )
