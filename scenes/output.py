"""The files of a rendered figure, format by format. All are written into a folder of parts, which the caller moves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph.story import Figure, Frame
from scenes.theme import Theme

if TYPE_CHECKING:
    from scenes.board import Still

QUALITIES = {"480p": (854, 480, 15), "720p": (1280, 720, 30), "1080p": (1920, 1080, 30), "4k": (3840, 2160, 30)}
"""Name -> width and height in pixels, pictures a second."""
FILMS, PICTURES = ("mp4", "webm"), ("png",)
"""Formats that Manim draws for; the others need no more than the type setter."""
ENCODER = {"crf": "23", "preset": "veryfast"}
SHEET_COLUMNS, SHEET_WIDTH = 3, 1800
Step = Callable[[], object]


class Output:
    """Writes into `folder`; `files` lists what was written, the film first, and `facts` what a manifest says of it."""

    def __init__(self, folder: Path, figure: Figure, look: Theme, quality: str, step: Step) -> None:
        self.folder, self.figure, self.look, self.step = folder, figure, look, step
        self.suffix = "" if look.name == "dark" else f"-{look.name}"
        self.name = figure.name + self.suffix
        self.size = QUALITIES[quality]
        self.files: list[str] = []
        width, height, _ = self.size
        self.facts: dict[str, Any] = {"theme": look.name, "width": width, "height": height, "stills": {}}

    def write(self, stills: Sequence[Still], frames: Sequence[Frame], formats: Collection[str], page: str) -> None:
        """Write the chosen formats; `page` is the text of the HTML page, "" for none."""
        self.facts["stills"] = {still.key: [] for still in stills}
        if {*FILMS, *PICTURES} & set(formats):
            self._draw(stills, formats)
        if "svg" in formats:
            self._svg(stills, frames)
        if page:
            self._keep(f"{self.figure.name}.html", page.encode())
        self.facts["files"] = {file: (self.folder / file).stat().st_size for file in self.files}

    def _draw(self, stills: Sequence[Still], formats: Collection[str]) -> None:
        """What Manim draws."""
        from manim import tempconfig

        width, height, rate = self.size
        settings: dict[str, Any] = {
            "media_dir": str(self.folder / "media"), "pixel_width": width, "pixel_height": height, "frame_rate": rate,
            "progress_bar": "none", "verbosity": "ERROR", "disable_caching": True, "max_inflight_encoders": 4,
            "video_encoder_options": ENCODER,
        }  # fmt: skip
        with tempconfig(settings):
            if set(FILMS) & set(formats):
                self._film(stills, formats)
            if "png" in formats:
                self._png(stills)

    def _film(self, stills: Sequence[Still], formats: Collection[str]) -> None:
        """Play the stills, spread them in time, and write subtitles and cues."""
        from scenes.film import as_webm, subtitles, timeline, with_pauses
        from scenes.play import Film

        film = Film(stills, self.look, self.step)
        film.render()
        moves = [end - start for start, end in zip(film.starts, film.ends)]
        cues = timeline([s.key for s in stills], [s.subtitle for s in stills], moves, [s.hold for s in stills])
        held = self.folder / f"{self.name}.mp4"
        with_pauses(Path(film.renderer.file_writer.movie_file_path), held, film.starts, cues, self.figure.title)
        if "webm" in formats:
            as_webm(held, held.with_suffix(".webm"))
        self.files += [f"{self.name}.{kind}" for kind in FILMS if kind in formats]
        self.facts |= {"film": self.files[0], "frames_per_second": self.size[2], "cues": [asdict(cue) for cue in cues]}
        self._keep(f"{self.name}.srt", subtitles(cues).encode())

    def _png(self, stills: Sequence[Still]) -> None:
        from PIL import Image

        from scenes.camera import QuickCamera

        camera = QuickCamera(background_color=self.look.colour("background"))
        pictures = []
        for still in stills:
            pictures.append(Image.fromarray(camera.picture(still.board.values())).convert("RGB"))
            self.step()
        self.files.append(f"{self.name}-sheet.png")
        sheet(pictures).save(self.folder / self.files[-1], compress_level=4)
        for still, picture in zip(stills, pictures):
            picture.save(self.folder / self._of(still, "png"), compress_level=4)

    def _svg(self, stills: Sequence[Still], frames: Sequence[Frame]) -> None:
        from scenes.svg import to_svg

        for still, frame in zip(stills, frames):
            (self.folder / self._of(still, "svg")).write_text(to_svg(still.board, self.look, frame), encoding="utf-8")

    def _of(self, still: Still, kind: str) -> str:
        """The name of a still's file, noted."""
        file = f"{still.key}{self.suffix}.{kind}"
        self.facts["stills"][still.key].append(file)
        self.files.append(file)
        return file

    def _keep(self, file: str, data: bytes) -> None:
        (self.folder / file).write_bytes(data)
        self.files.append(file)


def pictures_in(stills: int, formats: Collection[str]) -> int:
    """How often a step is told."""
    return stills * (bool(set(FILMS) & set(formats)) + ("png" in formats))


def sheet(pictures: Sequence[Any]) -> Any:
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
