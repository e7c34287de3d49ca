"""`morph render`: a figure as stills, a film with chapters, subtitles, a contact sheet and a manifest.

Everything is made in a hidden folder beside the target and moved into place file by file when all of it is done, the
manifest last: whatever stops a rendering, no file is half written, and the files of the one before stay.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph.errors import MorphError, nearest
from morph.story import Figure, Frame
from morph.train.files import scratch_folder
from scenes.boards import BOARDS
from scenes.theme import hold
from scenes.theme import theme as make_theme

if TYPE_CHECKING:
    from scenes.board import Still

QUALITIES = {"480p": (854, 480, 15), "720p": (1280, 720, 30), "1080p": (1920, 1080, 30), "4k": (3840, 2160, 30)}
"""Name -> width and height in pixels, pictures a second."""
FORMATS = ("mp4", "png")
NEEDED = 200e6
"""Bytes that must be free; a figure takes a few million, its parts while it is made some more."""
ENCODER = {"crf": "23", "preset": "veryfast"}
DRAWN_WITH = ("manim", "typst", "fontpkg_inter", "av", "PIL")
REMEDY = "run pip install -e '.[scenes]' with Cairo and Pango on the system (morph doctor gives the line)"
SHEET_COLUMNS, SHEET_WIDTH = 3, 1800


def check(
    figure: str,
    *,
    quality: str = "480p",
    theme: str = "dark",
    frames: Collection[int] | None = None,
    formats: Collection[str] = FORMATS,
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
    if not formats:
        raise MorphError(f"no format is chosen; give some of {', '.join(FORMATS)}")
    if frames is not None and not frames:
        raise MorphError("no frame is chosen; give some, or none at all for every frame")
    for package in DRAWN_WITH:
        if find_spec(package) is None:
            raise MorphError(f"drawing needs {package}, which is missing; {REMEDY}")


def manifest_name(figure: str, theme: str) -> str:
    """Name of the JSON file that lists what was rendered."""
    return f"{figure}{_suffix(theme)}.json"


def render(
    figure: Figure,
    out: Path,
    *,
    quality: str = "480p",
    theme: str = "dark",
    frames: Collection[int] | None = None,
    formats: Collection[str] = FORMATS,
    key: str = "",
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
        key: noted in the manifest, so that a caller can tell whether the files are still what it wants.
        on_step: called with the pictures drawn so far and their number in all.

    Raises:
        MorphError: as `check` does; for a frame that is not there, an `out` that cannot be a folder, or a full disk.
    """
    check(figure.name, quality=quality, theme=theme, frames=frames, formats=formats)
    look = make_theme(theme)
    chosen = _chosen(figure, frames)
    out = Path(out)
    _room(out)
    _tools()
    from scenes.board import Still
    from scenes.boards import board

    stills = [
        Still(_stem(figure, i), board(figure, i, look), hold(_frame(figure, i).caption), _subtitle(_frame(figure, i)))
        for i in chosen
    ]
    total = len(stills) * (2 if "mp4" in formats else 1)
    counter = iter(range(1, total + 1))
    step = (lambda: on_step(next(counter), total)) if on_step else lambda: None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(out) as folder:
            made = _make(folder, figure, stills, look.name, quality, formats, key, step)
            out.mkdir(exist_ok=True)
            return [_move(folder / name, out / name) for name in made]
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise MorphError(f"the disk of {out} is full; free {NEEDED / 1e6:.0f} MB or give another --out") from None
        raise MorphError(f"cannot write to {out} ({error.strerror}); give another --out") from None


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


def _room(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise MorphError(f"{out} is a file, and a figure is a folder of files; give another --out")
    parent = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(parent).free
    if free < NEEDED:
        raise MorphError(
            f"only {free / 1e6:.0f} MB are free at {parent} and rendering needs {NEEDED / 1e6:.0f}; "
            f"free some or give another --out"
        )


def _tools() -> None:
    """Import what draws, so that a missing part is one line before any work."""
    for package in DRAWN_WITH:
        try:
            import_module(package)
        except ImportError as error:
            raise MorphError(f"drawing needs {package}, which does not load ({error}); {REMEDY}") from None


# ---- making ----


def _make(
    folder: Path,
    figure: Figure,
    stills: Sequence[Still],
    theme: str,
    quality: str,
    formats: Collection[str],
    key: str,
    step: Callable[[], object],
) -> list[str]:
    """Write all files into `folder`; return their names, film first and manifest last."""
    from manim import tempconfig
    from PIL import Image

    from scenes.camera import QuickCamera
    from scenes.film import subtitles

    name = figure.name + _suffix(theme)
    width, height, rate = QUALITIES[quality]
    look = make_theme(theme)
    settings: dict[str, Any] = {
        "media_dir": str(folder / "media"), "pixel_width": width, "pixel_height": height, "frame_rate": rate,
        "progress_bar": "none", "verbosity": "ERROR", "disable_caching": True, "max_inflight_encoders": 4,
        "video_encoder_options": ENCODER,
    }  # fmt: skip
    made: list[str] = []
    render: dict[str, Any] = {"key": key, "theme": theme, "width": width, "height": height, "stills": {}}
    with tempconfig(settings):
        camera = QuickCamera(background_color=look.colour("background"))
        pictures = []
        for still in stills:
            pictures.append(Image.fromarray(camera.picture(still.board.values())).convert("RGB"))
            step()
        if "mp4" in formats:
            cues = _film(folder, f"{name}.mp4", stills, theme, figure.title, step)
            (folder / f"{name}.srt").write_text(subtitles(cues), encoding="utf-8")
            render |= {"film": f"{name}.mp4", "frames_per_second": rate, "cues": [asdict(c) for c in cues]}
            made += [f"{name}.mp4", f"{name}.srt"]
    if "png" in formats:
        _sheet(pictures).save(folder / f"{name}-sheet.png", compress_level=4)
        made.append(f"{name}-sheet.png")
        for still, picture in zip(stills, pictures):
            file = f"{still.key}{_suffix(theme)}.png"
            picture.save(folder / file, compress_level=4)
            render["stills"][still.key] = [file]
            made.append(file)
    render["files"] = {file: (folder / file).stat().st_size for file in made}
    manifest = figure.to_dict() | {"render": render}
    text = json.dumps(manifest, ensure_ascii=False, indent=1) + "\n"
    (folder / manifest_name(figure.name, theme)).write_text(text, encoding="utf-8")
    return [*made, manifest_name(figure.name, theme)]


def _film(
    folder: Path, name: str, stills: Sequence[Still], theme: str, title: str, step: Callable[[], object]
) -> list[Any]:
    """Play the stills, then spread them in time. Returns the cues."""
    from scenes.film import timeline, with_pauses
    from scenes.play import Film

    film = Film(stills, make_theme(theme), step)
    film.render()
    moves = [end - start for start, end in zip(film.starts, film.ends)]
    cues = timeline([s.key for s in stills], [s.subtitle for s in stills], moves, [s.hold for s in stills])
    with_pauses(Path(film.renderer.file_writer.movie_file_path), folder / name, film.starts, cues, title)
    return cues


def _sheet(pictures: Sequence[Any]) -> Any:
    """All stills on one page, left to right and down."""
    from PIL import Image

    width = SHEET_WIDTH // min(SHEET_COLUMNS, len(pictures))
    height = round(width * pictures[0].height / pictures[0].width)
    rows = -(-len(pictures) // SHEET_COLUMNS)
    columns = min(SHEET_COLUMNS, len(pictures))
    page = Image.new("RGB", (columns * width + 4 * (columns - 1), rows * height + 4 * (rows - 1)), "#808080")
    for i, picture in enumerate(pictures):
        at = (i % columns * (width + 4), i // columns * (height + 4))
        page.paste(picture.resize((width, height), Image.Resampling.HAMMING), at)
    return page


def _move(made: Path, target: Path) -> Path:
    os.replace(made, target)
    return target


# ---- words ----


def _frame(figure: Figure, index: int) -> Frame:
    frame = figure.frames[index - 1] if index else figure.opening
    assert frame is not None
    return frame


def _suffix(theme: str) -> str:
    return "" if theme == "dark" else f"-{theme}"


def _stem(figure: Figure, index: int) -> str:
    return f"{index:02d}-{_frame(figure, index).key}"


def _subtitle(frame: Frame) -> str:
    return f"{frame.title}. {frame.caption}" if not frame.title.endswith(".") else f"{frame.title} {frame.caption}"
