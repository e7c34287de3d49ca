"""The film of all figures: its cards, and parts joined without a gap, with chapters and subtitles."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from morph.errors import MorphError
from morph.story import names
from morph.story.film import CHAPTERS, TITLE
from tests.scene_boards import kept
from tests.tools import need

need("typst"), need("manim"), need("av")

import av  # noqa: E402

from morph.rendering import film  # noqa: E402
from morph.rendering.film import Wanted, make_film  # noqa: E402
from morph.rendering.job import Job  # noqa: E402
from scenes.cards import after, before  # noqa: E402
from scenes.film import Cue, Part, joined  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.theme import theme  # noqa: E402

ALL = tuple(CHAPTERS)


def test_the_film_has_every_figure_under_its_own_title() -> None:
    assert names() == ALL
    told = {name: (kept(name).number, kept(name).title) for name in ALL}
    assert {name: (chapter.number, chapter.title) for name, chapter in CHAPTERS.items()} == told


@pytest.mark.parametrize("look", ["dark", "light"])
def test_every_card_is_clean(look: str) -> None:
    stills = [s for n in ALL for s in (*before(n, ALL, theme(look)), *after(n, ALL, "morph 0.1.0", theme(look)))]
    assert [s.key for s in stills] == ["opening", *(f"card-{name}" for name in ALL), "closing"]
    assert {s.key: faults for s in stills if (faults := lint(s.board, theme(look)))} == {}
    tiles = {key for key in stills[0].board if key.startswith("tile-")}
    assert len(tiles) == 2 * len(ALL) and all(tiles <= set(s.board) for s in stills)


def test_a_card_lights_the_tile_of_its_figure() -> None:
    (_, first), (second,) = (before(n, ("rope", "moe"), theme("dark")) for n in ("rope", "moe"))
    fills = [[s.board[f"tile-{n}:box"].fill for n in ("rope", "moe")] for s in (first, second)]
    assert fills[0] == fills[1][::-1] and fills[0][0] == theme("dark").colour("focus") != fills[0][1]
    assert second.subtitle.startswith("Figure 8. Mixture of experts. Many networks")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Wanted:
    """A film of two figures, of two frames each."""
    whole = film._job

    def few(wanted: Wanted, name: str, chosen: tuple[str, ...]) -> Job:
        return replace(whole(wanted, name, chosen), frames=(1, 2))

    monkeypatch.setattr(film, "_job", few)
    return Wanted(("moe", "rope"), quality="480p", out=tmp_path / "f")


def test_parts_are_joined_and_a_second_call_draws_nothing(short: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    target, words = make_film(short)
    assert (target.name, words.name) == ("morph-film.mp4", "morph-film.srt")
    assert sorted(path.name for path in short.out.iterdir()) == ["morph-film.mp4", "morph-film.srt", "parts"]
    cues = [
        json.loads((short.out / "parts" / name / f"{name}.json").read_text())["render"]["cues"]
        for name in ("rope", "moe")  # the film's order, not the one asked in
    ]
    lengths = [part[-1]["end"] for part in cues]
    with av.open(str(target)) as made:
        stream = made.streams.video[0]
        assert made.metadata["title"] == TITLE and stream.time_base is not None
        assert made.duration is not None and made.duration / 1e6 == pytest.approx(sum(lengths), abs=0.1)
        chapters = made.chapters()
        times = [float(f.pts * stream.time_base) for f in made.decode(stream) if f.pts is not None]
    assert [c["metadata"]["title"] for c in chapters] == [
        "Opening", "Figure 3 · Rotary position", "Figure 8 · Mixture of experts", "Closing",
    ]  # fmt: skip
    starts = [0, cues[0][1]["start"], lengths[0], lengths[0] + cues[1][-1]["start"]]
    assert [c["start"] / 1000 for c in chapters] == pytest.approx(starts, abs=0.01)
    assert all(a < b for a, b in pairwise(times))
    assert all(min(abs(t - start) for t in times) < 0.02 for start in starts)  # a picture stands where a chapter begins
    text = words.read_text(encoding="utf-8")
    assert text.count(" --> ") == 1 + 3 + 3 + 1
    assert text.index("Figure 3. Rotary") < text.index(kept("rope").frames[1].title) < text.index("Figure 8. Mix")

    import scenes.render

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("drawn again")

    monkeypatch.setattr(scenes.render, "render", never)
    before = target.read_bytes()
    make_film(short)
    assert target.read_bytes() == before


def test_a_figure_that_fails_leaves_the_former_film(short: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    short.out.mkdir()
    (short.out / "morph-film.mp4").write_bytes(b"former")
    monkeypatch.setattr(film, "with_bars", lambda jobs: [film.Result(jobs[0], error="no room")])
    with pytest.raises(MorphError, match="rope: no room"):
        make_film(short)
    assert (short.out / "morph-film.mp4").read_bytes() == b"former"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"figures": ("rop",)}, "no figure is called 'rop'.*did you mean 'rope'"),
        ({"quality": "479p"}, "quality '479p' is not one of"),
        ({"theme": "drak"}, "no theme is called"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(MorphError, match=message):
        make_film(Wanted(**{"out": tmp_path / "f", **given}))
    assert list(tmp_path.iterdir()) == []


def test_films_encoded_in_different_ways_are_not_joined(tmp_path: Path) -> None:
    parts = []
    for name, size in (("a", 64), ("b", 32)):
        with av.open(str(tmp_path / f"{name}.mp4"), "w") as made:
            stream = made.add_stream("libx264", rate=15)
            stream.width = stream.height = size
            stream.pix_fmt = "yuv420p"
            made.mux(stream.encode(av.VideoFrame(size, size, "yuv420p")))
            made.mux(stream.encode(None))
        parts.append(Part(tmp_path / f"{name}.mp4", [Cue(name, "", 0, 0, 1)]))
    with pytest.raises(ValueError, match=r"b\.mp4 is encoded in another way than .*a\.mp4"):
        joined(parts, tmp_path / "c.mp4", "both", [])
