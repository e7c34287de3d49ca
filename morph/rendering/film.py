"""`morph film`: all figures one after another in one video, with a card before each, chapters and subtitles.

Each figure is a part of its own, drawn in a process of its own and kept beside the film: a second call draws only what
would differ, and joining copies the parts without encoding them again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morph.errors import MorphError
from morph.rendering.command import with_bars
from morph.rendering.job import Job, scenes_room
from morph.rendering.pool import Result
from morph.story import OPTIONS, names, require_known
from morph.story.film import CHAPTERS, TITLE
from morph.train.files import replace_bytes, scratch_folder

PARTS = "parts"
"""Folder of the parts, beside the film."""


@dataclass(frozen=True)
class Wanted:
    """The words of the command line."""

    figures: tuple[str, ...] = ()
    quality: str = "1080p"
    theme: str = "dark"
    model: str = ""
    seed: int | None = None
    out: Path = Path("out/film")


def make_film(wanted: Wanted) -> list[Path]:
    """Render the parts, join them, and list the files: the film, then its subtitles.

    Raises:
        MorphError: for a figure that is not there or fails, a value that `morph render` refuses, a full disk.
    """
    chosen = _chosen(wanted.figures)
    scenes = scenes_room("scenes.render")
    for name in chosen:
        scenes.check(name, quality=wanted.quality, theme=wanted.theme, formats=("mp4",))
    scenes.require_folder(wanted.out)
    jobs = [_job(wanted, name, chosen) for name in chosen]
    failed: list[Result] = [result for result in with_bars(jobs) if result.error]
    if failed:
        raise MorphError("; ".join(f"{result.job.figure}: {result.error}" for result in failed))
    try:
        return _join([job.out / scenes.manifest_name(job.figure, wanted.theme) for job in jobs], wanted)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise MorphError(f"the disk of {wanted.out} is full; free some of it or give another --out") from None
        raise MorphError(f"cannot write to {wanted.out} ({error.strerror}); give another --out") from None


def _chosen(words: Sequence[str]) -> tuple[str, ...]:
    """The figures in the film's order, whatever the order they were named in."""
    for word in words:
        require_known(word)
    return tuple(name for name in CHAPTERS if name in (words or names()))


def _job(wanted: Wanted, name: str, film: tuple[str, ...]) -> Job:
    given: dict[str, Any] = {"model": wanted.model or None, "seed": wanted.seed}
    return Job(
        name,
        wanted.out / PARTS / name,
        {key: value for key, value in given.items() if value is not None and key in OPTIONS[name]},
        quality=wanted.quality,
        theme=wanted.theme,
        formats=("mp4",),
        film=film,
    )


def _join(manifests: Sequence[Path], wanted: Wanted) -> list[Path]:
    film = scenes_room("scenes.film")
    parts, cues, chapters, now = [], [], [], 0.0
    for manifest in manifests:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        own = [film.Cue(**cue) for cue in data["render"]["cues"]]
        parts.append(film.Part(manifest.parent / data["render"]["film"], own))
        own = film.later(own, now)
        cues += own
        now += parts[-1].seconds
        chapters += _chapters(own, f"Figure {data['number']} · {data['title']}")
    name = "morph-film" if wanted.theme == "dark" else f"morph-film-{wanted.theme}"
    target, words = wanted.out / f"{name}.mp4", wanted.out / f"{name}.srt"
    with scratch_folder(wanted.out / "joining") as folder:
        film.joined(parts, folder / target.name, TITLE, chapters)
        os.replace(folder / target.name, target)
    replace_bytes(words, film.subtitles(cues).encode())
    return [target, words]


def _chapters(cues: Sequence[Any], title: str) -> list[tuple[str, float, float]]:
    """A part's own chapter, from its card to its end; the cards around all figures are chapters too."""
    found, start = [], cues[0].start
    if cues[0].key == "opening":
        found.append(("Opening", start, cues[0].end))
        start = cues[0].end
    end = cues[-1].start if cues[-1].key == "closing" else cues[-1].end
    found.append((title, start, end))
    if cues[-1].key == "closing":
        found.append(("Closing", end, cues[-1].end))
    return found
