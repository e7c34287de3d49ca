"""`morph render`: a figure as stills, a film with chapters, subtitles, a contact sheet and a manifest.

Everything is made in a hidden folder beside the target and moved into place file by file when all of it is done, the
manifest last: whatever stops a rendering, no file is half written, and the files of the one before stay.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph.errors import MorphError, nearest
from morph.story import Figure, Frame
from morph.story import figure as make_figure
from scenes.theme import hold
from scenes.theme import theme as make_theme

if TYPE_CHECKING:
    from scenes.board import Still

BOARDS = {"morph": "scenes.fig01_morph"}
"""Figure name -> the module whose `board(figure, index, theme)` draws it."""
QUALITIES = {"480p": (854, 480, 15), "720p": (1280, 720, 30), "1080p": (1920, 1080, 30), "4k": (3840, 2160, 30)}
"""Name -> width and height in pixels, pictures a second."""
FORMATS = ("png", "webp", "mp4")
NEEDED = 200e6
"""Bytes that must be free; a figure takes a few million, its parts while it is made some more."""
ENCODER = {"crf": "23", "preset": "veryfast"}
SHEET_COLUMNS, SHEET_WIDTH = 3, 1800


def render(
    figure: str | Figure,
    out: Path,
    *,
    quality: str = "480p",
    theme: str = "dark",
    sweep: Path | None = None,
    frames: Collection[int] | None = None,
    formats: Collection[str] = FORMATS,
) -> list[Path]:
    """Draw a figure into the folder `out` and return the files written, the film first.

    Args:
        figure: its name, or the figure itself, which needs neither torch nor a sweep.
        out: made when missing; files of these names are replaced, others stay.
        quality: a name in `QUALITIES`.
        theme: "dark" or "light"; the light theme's files end in `-light`.
        sweep: where the numbers come from, for a figure given by name; `None` is the reference sweep.
        frames: numbers of the frames to draw (0 is the opening); `None` is all of them.
        formats: some of `FORMATS`.

    Raises:
        MorphError: for an unknown figure, quality, theme, frame or format, a package or library that is missing, an
            `out` that cannot be a folder, or a full disk.
    """
    look = make_theme(theme)
    if quality not in QUALITIES:
        raise MorphError(f"quality {quality!r} is not one of {', '.join(QUALITIES)}{nearest(quality, QUALITIES)}")
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise MorphError(f"format {unknown[0]!r} is not one of {', '.join(FORMATS)}{nearest(unknown[0], FORMATS)}")
    data = figure if isinstance(figure, Figure) else make_figure(figure, sweep=sweep)
    chosen = _chosen(data, frames)
    out = Path(out)
    _room(out)
    _tools()
    from scenes.board import Still

    board = import_module(BOARDS[data.name]).board
    stills = [
        Still(_stem(data, i), board(data, i, look), hold(_frame(data, i).caption), _subtitle(_frame(data, i)))
        for i in chosen
    ]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
            made = _make(Path(folder), data, stills, look.name, quality, formats)
            out.mkdir(exist_ok=True)
            return [_move(Path(folder) / name, out / name) for name in made]
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
    for package in ("manim", "typst", "fontpkg_inter", "av", "PIL"):
        try:
            import_module(package)
        except ImportError as error:
            raise MorphError(
                f"drawing needs {package}, which does not load ({error}); run pip install -e '.[scenes]' "
                f"with Cairo and Pango on the system (morph doctor gives the line)"
            ) from None


# ---- making ----


def _make(
    folder: Path, figure: Figure, stills: Sequence[Still], theme: str, quality: str, formats: Collection[str]
) -> list[str]:
    """Write all files into `folder`; return their names, film first and manifest last."""
    from manim import tempconfig
    from PIL import Image

    from scenes.camera import QuickCamera
    from scenes.film import subtitles

    name = figure.name + ("" if theme == "dark" else f"-{theme}")
    width, height, rate = QUALITIES[quality]
    look = make_theme(theme)
    settings: dict[str, Any] = {
        "media_dir": str(folder / "media"), "pixel_width": width, "pixel_height": height, "frame_rate": rate,
        "progress_bar": "none", "verbosity": "ERROR", "disable_caching": True, "max_inflight_encoders": 4,
        "video_encoder_options": ENCODER,
    }  # fmt: skip
    made: list[str] = []
    manifest = figure.to_dict() | {"render": {"theme": theme, "width": width, "height": height, "stills": {}}}
    with tempconfig(settings):
        camera = QuickCamera(background_color=look.colour("background"))
        pictures = []
        for still in stills:
            camera.reset()
            camera.capture_mobjects(list(still.board.values()))
            pictures.append(Image.fromarray(camera.pixel_array).convert("RGB"))
        if "mp4" in formats:
            cues = _film(folder, f"{name}.mp4", stills, theme, figure.title)
            (folder / f"{name}.srt").write_text(subtitles(cues), encoding="utf-8")
            manifest["render"] |= {"film": f"{name}.mp4", "frames_per_second": rate, "cues": [asdict(c) for c in cues]}
            made += [f"{name}.mp4", f"{name}.srt"]
    _sheet(pictures).save(folder / f"{name}-sheet.png", compress_level=4)
    made.append(f"{name}-sheet.png")
    suffix = "" if theme == "dark" else f"-{theme}"
    for still, picture in zip(stills, pictures):
        files = []
        for kind, options in (("png", {"compress_level": 4}), ("webp", {"lossless": True, "method": 0})):
            if kind in formats:
                files.append(f"{still.key}{suffix}.{kind}")
                picture.save(folder / files[-1], **options)
        manifest["render"]["stills"][still.key] = files
        made += files
    (folder / f"{name}.json").write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return [*made, f"{name}.json"]


def _film(folder: Path, name: str, stills: Sequence[Still], theme: str, title: str) -> list[Any]:
    """Play the stills, then spread them in time. Returns the cues."""
    from scenes.board import Film
    from scenes.film import timeline, with_pauses

    film = Film(stills, make_theme(theme))
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


def _stem(figure: Figure, index: int) -> str:
    return f"{index:02d}-{_frame(figure, index).key}"


def _subtitle(frame: Frame) -> str:
    return f"{frame.title}. {frame.caption}" if not frame.title.endswith(".") else f"{frame.title} {frame.caption}"
