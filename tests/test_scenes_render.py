"""The files of `morph render`: what they hold, that they agree, and that nothing is ever half written."""

from __future__ import annotations

import builtins
import errno
import json
import re
import shutil
from collections import namedtuple
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from morph.errors import MorphError
from morph.story import Figure
from tests.scene_boards import story
from tests.tools import need

need("typst"), need("manim"), need("av")

import av  # noqa: E402
from PIL import Image  # noqa: E402

import scenes.output as output  # noqa: E402
import scenes.render as rendering  # noqa: E402
from scenes.film import Cue, subtitles, timeline  # noqa: E402
from scenes.render import check, render  # noqa: E402

PICTURE = {"formats": ("png",), "frames": (2,)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    out = tmp_path_factory.mktemp("render") / "morph"
    return out, render(story(), out, frames=(0, 1, 2), key="k")


def test_files(made: tuple[Path, list[Path]]) -> None:
    out, files = made
    assert {path.name for path in files} == {path.name for path in out.iterdir()}
    assert files[0].name == "morph.mp4" and files[-1].name == "morph.json"
    stills = {"00-2017", "01-pre-norm", "02-rms-norm"}
    assert {p.stem for p in files if p.suffix == ".png"} == {*stills, "morph-sheet"}
    assert all(Image.open(out / f"{stem}.png").size == (854, 480) for stem in stills)
    assert [p.name for p in out.parent.iterdir()] == ["morph"]  # no folder of parts is left


def test_the_film_rests_on_every_still(made: tuple[Path, list[Path]]) -> None:
    out, _ = made
    cues = json.loads((out / "morph.json").read_text())["render"]["cues"]
    with av.open(str(out / "morph.mp4")) as film:
        video = film.streams.video[0]
        chapters = film.chapters()
        assert (video.width, video.height) == (854, 480)
        assert film.duration is not None
        assert film.duration / 1e6 == pytest.approx(cues[-1]["end"], abs=0.1)
        times = [float(f.pts * f.time_base) for f in film.decode(video) if f.pts is not None and f.time_base]
    assert times == sorted(times)
    pauses = [b - a for a, b in pairwise(times) if b - a > 0.5]
    assert pauses == pytest.approx([cue["end"] - cue["settled"] + 1 / 15 for cue in cues[:-1]], abs=0.07)
    assert [c["metadata"]["title"] for c in chapters] == [cue["key"] for cue in cues] == [
        "00-2017", "01-pre-norm", "02-rms-norm",
    ]  # fmt: skip
    assert [c["start"] / 1000 for c in chapters] == pytest.approx([cue["start"] for cue in cues], abs=0.002)
    for cue in cues:  # a picture stands exactly where a chapter begins
        assert min(abs(t - cue["start"]) for t in times) < 0.01


def test_subtitles_follow_one_another_in_plain_text(made: tuple[Path, list[Path]]) -> None:
    text = (made[0] / "morph.srt").read_text(encoding="utf-8")
    spans = re.findall(r"(\d+):(\d+):(\d+),(\d+) --> (\d+):(\d+):(\d+),(\d+)", text)
    seconds = [[int(h) * 3600 + int(m) * 60 + int(s) + int(t) / 1000 for h, m, s, t in (x[:4], x[4:])] for x in spans]
    assert len(seconds) == 3
    assert all(start < end for start, end in seconds)
    assert all(a[1] < b[0] for a, b in pairwise(seconds))
    assert "Norm moves to the branch. " + story().frames[0].caption in text
    assert not re.search(r"[#$*_<{]", text)


def test_the_manifest_is_the_figure(made: tuple[Path, list[Path]]) -> None:
    out, _ = made
    assert Figure.load(out / "morph.json").to_dict() == story().to_dict()
    manifest = json.loads((out / "morph.json").read_text())["render"]
    assert manifest["stills"]["01-pre-norm"] == ["01-pre-norm.png"]
    assert all((out / name).exists() for names in manifest["stills"].values() for name in names)
    assert (manifest["width"], manifest["height"], manifest["frames_per_second"]) == (854, 480, 15)
    assert manifest["key"] == "k"
    assert manifest["files"] == {p.name: p.stat().st_size for p in out.iterdir() if p.name != "morph.json"}


def test_the_light_theme_stands_beside_the_dark(tmp_path: Path) -> None:
    for theme in ("dark", "light"):
        render(story(), tmp_path / "f", theme=theme, **PICTURE)
    assert {p.name for p in (tmp_path / "f").iterdir()} == {
        "02-rms-norm.png", "02-rms-norm-light.png", "morph-sheet.png", "morph-light-sheet.png", "morph.json",
        "morph-light.json",
    }  # fmt: skip
    dark, light = (Image.open(tmp_path / "f" / f"02-rms-norm{s}.png").getpixel((427, 60)) for s in ("", "-light"))
    assert (dark, light) == ((0x10, 0x14, 0x1B), (0xFB, 0xFA, 0xF7))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": "479p"}, "quality '479p' is not one of 480p.*did you mean"),
        ({"theme": "drak"}, "no theme is called 'drak'.*did you mean 'dark'"),
        ({"formats": ("gif",)}, "format 'gif' is not one of mp4, webm, png, svg"),
        ({"frames": (15,)}, "has no frame 15; give some of 0 to 14"),
        ({"frames": ()}, "no frame is chosen"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(MorphError, match=message):
        render(story(), tmp_path / "f", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_request_is_checked_without_the_figure() -> None:
    check("morph", quality="720p", theme="light", frames=(3,), formats=("png",))
    with pytest.raises(MorphError, match=r"no figure is called 'mrph'.*did you mean 'morph'"):
        check("mrph")


def test_stills_as_svg_need_neither_manim_nor_a_video_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rendering.import_module

    def load(name: str) -> Any:
        assert name not in ("manim", "av", "PIL")
        return real(name)

    monkeypatch.setattr(rendering, "import_module", load)
    files = render(story(), tmp_path / "f", formats=("svg",), frames=(0, 2), theme="light")
    assert [path.name for path in files] == ["00-2017-light.svg", "02-rms-norm-light.svg", "morph-light.json"]
    drawn = ElementTree.parse(files[1]).getroot()
    assert drawn.find("{http://www.w3.org/2000/svg}title").text == "RMSNorm"  # type: ignore[union-attr]
    texts = {"".join(node.itertext()) for node in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"RMSNorm", "Parameters"} <= texts


def test_a_webm_film_rests_as_long(tmp_path: Path) -> None:
    files = render(story(), tmp_path / "f", formats=("mp4", "webm"), frames=(1, 2))
    assert [path.name for path in files] == ["morph.mp4", "morph.webm", "morph.srt", "morph.json"]
    times = []
    for path in files[:2]:
        with av.open(str(path)) as film:
            video = film.streams.video[0]
            assert [c["metadata"]["title"] for c in film.chapters()] == ["01-pre-norm", "02-rms-norm"]
            times.append([float(f.pts * f.time_base) for f in film.decode(video) if f.pts is not None and f.time_base])
    assert times[0] == pytest.approx(times[1], abs=0.002)


def test_a_page_stands_beside_the_pictures(tmp_path: Path) -> None:
    files = render(story(), tmp_path / "f", formats=(), page="<!doctype html>")
    assert [path.name for path in files] == ["morph.html", "morph.json"]
    assert files[0].read_text() == "<!doctype html>"


def test_steps_are_told(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    render(story(), tmp_path / "f", frames=(1, 2), formats=("png", "mp4"), on_step=lambda n, of: steps.append((n, of)))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_a_killed_rendering_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".parts.999999999.tmp"
    (left / "media").mkdir(parents=True)
    files = render(story(), tmp_path, **PICTURE)
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_the_folder_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {path.resolve() for path in render(story(), Path(), **PICTURE)} == set(tmp_path.iterdir())


def test_parts_lie_on_the_disk_they_are_moved_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target may be a disk of its own, or a link to one, from where nothing is moved to its neighbours."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    real = rendering.os.replace

    def move(made: Path, target: Path) -> None:
        if (tmp_path / "disk") not in made.resolve().parents:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(made, target)

    monkeypatch.setattr(rendering.os, "replace", move)
    assert len(render(story(), tmp_path / "link", **PICTURE)) == 3


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_file_in_the_way(tmp_path: Path, below: str) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(MorphError, match="/f is a file, and a figure is a folder"):
        render(story(), tmp_path / "f" / below, **PICTURE)
    assert (tmp_path / "f").read_text() == "mine"


def test_a_full_disk_is_seen_before_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 5 * 10**6))
    with pytest.raises(MorphError, match="only 5 MB are free"):
        render(story(), tmp_path / "f", **PICTURE)


def _in_words_of_its_own(refusal: OSError) -> Exception:
    error = RuntimeError("Failed to encode video segment")
    error.__cause__ = refusal
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "no"), "is full; free 200 MB"), (OSError(errno.EACCES, "no"), "cannot write to"),
        (_in_words_of_its_own(OSError(errno.ENOSPC, "no")), "is full; free 200 MB"),
    ],
)  # fmt: skip
def test_a_failure_leaves_the_files_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    out = tmp_path / "f"
    render(story(), out, **PICTURE)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fail(pictures: Any) -> Any:
        raise error

    monkeypatch.setattr(output, "sheet", fail)
    with pytest.raises(MorphError, match=message):
        render(story(), out, formats=("png",), frames=(3,))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    with pytest.raises(MorphError, match=message):
        render(story(), tmp_path / "g", formats=("png",), frames=(3,))
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("package", ["manim", "typst", "fontpkg_inter"])
def test_a_missing_package_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    real = rendering.import_module

    def load(name: str) -> Any:
        if name == package:
            raise ImportError("libcairo.so.2: cannot open shared object file")
        return real(name)

    monkeypatch.setattr(rendering, "import_module", load)
    with pytest.raises(MorphError, match=rf"needs {package}, which does not load .*pip install -e '\.\[scenes\]'"):
        render(story(), tmp_path / "f", **PICTURE)
    assert builtins.list(tmp_path.iterdir()) == []


def test_a_timeline_is_moves_and_pauses() -> None:
    cues = timeline(["a", "b"], ["A.", "B."], [0.0, 1.2], [2.0, 3.0])
    assert cues == [Cue("a", "A.", 0.0, 0.0, 2.0), Cue("b", "B.", 2.0, 3.2, 6.2)]
    assert subtitles([Cue("a", "A.", 3599.5, 3600, 3661.25)]) == "1\n00:59:59,500 --> 01:01:01,249\nA.\n"
