"""`morph render`: a figure as stills, a film with chapters, subtitles, a contact sheet and a manifest.

Everything is made in a hidden folder inside the target and moved into place file by file when all of it is done, the
manifest last: whatever stops a rendering, no file is half written, and the files of the one before stay.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from morph.errors import MorphError, nearest
from morph.story import Figure, Frame
from morph.story.store import versions
from morph.train.files import scratch_folder
from scenes.boards import BOARDS, frame_of
from scenes.output import FILMS, PICTURES, QUALITIES, Output, pictures_in
from scenes.theme import Theme, hold
from scenes.theme import theme as make_theme

if TYPE_CHECKING:
    from scenes.board import Still

FORMATS = ("mp4", "webm", "png", "svg")
DEFAULT = ("mp4", "png")
NEEDED = 200e6
"""Bytes that must be free; a figure takes a few million, its parts while it is made some more."""
PARTS = "parts"
"""Of the name of the hidden folder."""
SET_WITH, DRAWN_WITH = ("typst", "fontpkg_inter"), ("manim", "av", "PIL")
REMEDY = "run pip install -e '.[scenes]' with Cairo and Pango on the system (morph doctor gives the line)"


def check(
    figure: str,
    *,
    quality: str = "480p",
    theme: str = "dark",
    frames: Collection[int] | None = None,
    formats: Collection[str] = DEFAULT,
) -> None:
    """Raise `MorphError` for a request that `render` would refuse, before any of its data are made.

    Frame numbers are held against the figure when it is there.
    """
    if figure not in BOARDS:
        raise MorphError(f"no figure is called {figure!r}; there is {', '.join(BOARDS)}{nearest(figure, BOARDS)}")
    make_theme(theme)
    if quality not in QUALITIES:
        raise MorphError(f"quality {quality!r} is not one of {', '.join(QUALITIES)}{nearest(quality, QUALITIES)}")
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise MorphError(f"format {unknown[0]!r} is not one of {', '.join(FORMATS)}{nearest(unknown[0], FORMATS)}")
    if frames is not None and not frames:
        raise MorphError("no frame is chosen; give some, or none at all for every frame")
    for package in _packages(formats):
        if find_spec(package) is None:
            raise MorphError(f"drawing needs {package}, which is missing; {REMEDY}")


def manifest_name(figure: str, theme: str) -> str:
    """Name of the JSON file that lists what was rendered."""
    return f"{figure}.json" if theme == "dark" else f"{figure}-{theme}.json"


def render(
    figure: Figure,
    out: Path,
    *,
    quality: str = "480p",
    theme: str = "dark",
    frames: Collection[int] | None = None,
    formats: Collection[str] = DEFAULT,
    page: str = "",
    key: str = "",
    film: tuple[str, ...] = (),
    on_step: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Draw a figure into the folder `out` and return the files written, the film first.

    Args:
        figure: its data; neither torch nor a model is needed.
        out: made when missing; files of these names are replaced, others stay.
        quality: a name in `QUALITIES`.
        theme: "dark" or "light"; the light theme's files end in `-light`.
        frames: numbers of the frames to draw (0 is the opening); `None` is all of them.
        formats: some of `FORMATS`.
        page: text of a page to write beside the pictures, as `FIGURE.html`.
        key: noted in the manifest, so that a caller can tell whether the files are still what it wants.
        film: the figures of the film of which this is a part: it gets its cards (`scenes.cards`).
        on_step: called with the pictures drawn so far and their number in all.

    Raises:
        MorphError: as `check` does; for a frame that is not there, an `out` that cannot be a folder, or a full disk.
    """
    check(figure.name, quality=quality, theme=theme, frames=frames, formats=formats)
    look = make_theme(theme)
    chosen = _chosen(figure, frames)
    out = Path(out)
    require_folder(out)
    _room(out)
    _tools(formats)
    from scenes.board import Still
    from scenes.boards import board

    shown = [frame_of(figure, i) for i in chosen]
    stills = [
        Still(f"{i:02d}-{frame.key}", board(figure, i, look), hold(frame.caption), _subtitle(frame))
        for i, frame in zip(chosen, shown)
    ]
    if film:
        stills = _with_cards(stills, figure.name, film, look)
    counter, total = count(1), pictures_in(len(stills), formats)
    step = (lambda: on_step(next(counter), total)) if on_step else lambda: None
    try:
        with _parts(out) as folder:
            made = Output(folder, figure, look, quality, step)
            made.write(stills, shown, formats, page)
            manifest = manifest_name(figure.name, theme)
            data = figure.to_dict() | {"render": made.facts | {"key": key}}
            (folder / manifest).write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            return [_move(folder / name, out / name) for name in (*made.files, manifest)]
    except Exception as error:
        if (cause := _of_the_system(error)) is None:
            raise
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise MorphError(f"the disk of {out} is full; free {NEEDED / 1e6:.0f} MB or give another --out") from None
        raise MorphError(f"cannot write to {out} ({cause.strerror}); give another --out") from None


def _of_the_system(error: BaseException | None) -> OSError | None:
    """The system's refusal behind an error: Manim tells of one in an error of its own."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error


@contextmanager
def _parts(out: Path) -> Iterator[Path]:
    """A hidden folder inside `out`, and so on its disk; an `out` that was not there goes again after a failure."""
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder(out / PARTS) as folder:
            yield folder
    except BaseException:
        if is_new:
            with suppress(OSError):
                out.rmdir()
        raise


def _move(made: Path, target: Path) -> Path:
    os.replace(made, target)
    return target


def _with_cards(stills: list[Still], name: str, film: tuple[str, ...], look: Theme) -> list[Still]:
    from scenes.cards import after, before

    drawn_with = " · ".join(versions("morph-tutorial", "torch", "numpy", "manim", "typst"))
    return [*before(name, film, look), *stills, *after(name, film, drawn_with, look)]


# ---- checks ----


def _chosen(figure: Figure, frames: Collection[int] | None) -> list[int]:
    first = 0 if figure.opening else 1
    if frames is None:
        return list(range(first, len(figure) + 1))
    if not frames:
        raise MorphError(f"no frame is chosen; give some of {first} to {len(figure)}")
    for number in sorted(frames):
        if not first <= number <= len(figure):
            raise MorphError(f"figure {figure.name!r} has no frame {number}; give some of {first} to {len(figure)}")
    return sorted(set(frames))


def require_folder(out: Path) -> None:
    """Raise `MorphError` for an `out` that is no folder and cannot become one."""
    if not (place := _nearest(out)).is_dir():
        raise MorphError(f"{place} is a file, and a figure is a folder of files; give another --out")


def _nearest(out: Path) -> Path:
    """`out`, or the first folder above it that is there."""
    return next(place for place in (out, *out.absolute().parents) if place.exists())


def _room(out: Path) -> None:
    parent = _nearest(out)
    free = shutil.disk_usage(parent).free
    if free < NEEDED:
        raise MorphError(
            f"only {free / 1e6:.0f} MB are free at {parent} and rendering needs {NEEDED / 1e6:.0f}; "
            f"free some or give another --out"
        )


def _packages(formats: Collection[str]) -> tuple[str, ...]:
    return (*SET_WITH, *(DRAWN_WITH if {*FILMS, *PICTURES} & set(formats) else ()))


def _tools(formats: Collection[str]) -> None:
    """Import what draws, so that a missing part is one line before any work."""
    for package in _packages(formats):
        try:
            import_module(package)
        except ImportError as error:
            raise MorphError(f"drawing needs {package}, which does not load ({error}); {REMEDY}") from None


def _subtitle(frame: Frame) -> str:
    return f"{frame.title}. {frame.caption}" if not frame.title.endswith(".") else f"{frame.title} {frame.caption}"
