"""One figure to be rendered: its data from the store, its pictures only when something in them would differ."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from morph.errors import MorphError, nearest
from morph.story import Figure
from morph.story.store import code_digest, stored, versions
from morph.train.files import remove_leftovers
from morph.widgets import pages

OnStep = Callable[[int, int], None]
"""Called with the pictures drawn so far and their number in all."""
PAGE = "html"
"""The format that is not drawn: a page that draws itself."""
_DRAWN_WITH = ("manim", "typst", "fontpkg-inter", "pillow", "av", "numpy")


@dataclass(frozen=True)
class Job:
    """What to render, and where to.

    Attributes:
        figure: its name.
        out: folder to write to.
        options: for `morph.story.figure` (`model`, `seed`, `sweep`); None where the figure has a default.
        quality, theme, frames, formats, film: as `scenes.render.render` takes them; None is its default.
    """

    figure: str
    out: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    quality: str = "480p"
    theme: str = "dark"
    frames: tuple[int, ...] | None = None
    formats: tuple[str, ...] | None = None
    film: tuple[str, ...] = ()


def run(job: Job, on_step: OnStep | None = None) -> list[Path]:
    """Render, or find rendered, and list the files, the film first.

    Raises:
        MorphError: when what the scenes need is not installed, and for whatever the story or the scenes refuse.
    """
    scenes = scenes_room("scenes.render")
    formats = (*scenes.DEFAULT, PAGE) if job.formats is None else job.formats
    known = (*scenes.FORMATS, PAGE)
    if unknown := [kind for kind in formats if kind not in known]:
        raise MorphError(f"format {unknown[0]!r} is not one of {', '.join(known)}{nearest(unknown[0], known)}")
    drawn = tuple(kind for kind in formats if kind != PAGE)
    request: dict[str, Any] = {"quality": job.quality, "theme": job.theme, "frames": job.frames, "formats": drawn}
    scenes.check(job.figure, **request)
    scenes.require_folder(job.out)
    figure = stored(job.figure, **job.options)
    key = _key(figure, {**request, "page": PAGE in formats, "film": job.film})
    if found := _already(job.out, scenes.manifest_name(job.figure, job.theme), key):
        remove_leftovers(job.out, scenes.PARTS)
        return found
    page = pages.page(figure) if PAGE in formats else ""
    written: list[Path] = scenes.render(figure, job.out, **request, page=page, key=key, film=job.film, on_step=on_step)
    return written


def scenes_room(module: str) -> Any:
    """The room that draws, which is not part of every installation."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MorphError(
            f"rendering needs {error.name}, which is missing: run in Morph's folder with the extra 'scenes' "
            f"(pip install -e '.[scenes]'); morph doctor says more"
        ) from None


def _key(figure: Figure, request: Mapping[str, Any]) -> str:
    """A hash of the numbers, the code that draws them, its packages and the request."""
    scenes = Path(importlib.import_module("scenes").__file__ or "").parent
    widgets = Path(pages.__file__).parent
    parts = [
        json.dumps(figure.to_dict(), sort_keys=True), code_digest(scenes), code_digest(widgets),
        json.dumps(request, sort_keys=True, default=str), *versions(*_DRAWN_WITH),
    ]  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _already(out: Path, manifest: str, key: str) -> list[Path] | None:
    """The files of an earlier rendering of the very same thing, if all are there and whole."""
    try:
        render = json.loads((out / manifest).read_text(encoding="utf-8"))["render"]
        if render["key"] != key:
            return None
        files = {out / name: size for name, size in render["files"].items()}
        whole = all(path.stat().st_size == size for path, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return [*files, out / manifest] if whole else None
