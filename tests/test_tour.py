"""The tour: what it says at its end, and that nothing is rendered twice or hidden when it fails."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from morph import tour
from morph.errors import MorphError
from morph.steps import SLUGS
from morph.tour import take_tour
from morph.train import session, sweeper


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The tour with its long parts replaced by notes of how they were called."""
    made: list[Any] = []

    def plan(out: Path, **given: Any) -> Any:
        made.append(given)
        return SimpleNamespace(run_path=lambda stage, seed: out / "runs" / f"{stage}-{seed}")

    def render(figure: str, out: Path, **given: Any) -> list[Path]:
        made.append((figure, given["sweep"]))
        out.mkdir()
        (out / "morph.mp4").touch()
        return [out / "morph.mp4"]

    monkeypatch.setattr(sweeper, "make_plan", plan)
    monkeypatch.setattr(session, "sweep_here", lambda plan, workers: "a sweep")
    monkeypatch.setattr(tour, "render_figure", render)
    return made


def test_the_tour_trains_all_stages_with_one_seed_renders_and_tells_where(
    calls: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take_tour(tmp_path) == 0
    assert calls[0] == {"stages": tuple(range(len(SLUGS))), "seeds": (0,), "size": "tiny", "steps": None, "data": None}
    assert calls[1] == ("morph", tmp_path / "sweep.json")
    told = capsys.readouterr().out
    for place in ("table.md", "plot.png", "figure/morph.mp4"):
        assert str(tmp_path / place) in told
    assert "notebooks/00_the_morph.ipynb" in told
    assert take_tour(tmp_path) == 0
    assert len(calls) == 3  # planned again, not rendered again


def test_a_figure_that_cannot_be_rendered_is_told_and_tried_again(
    calls: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> list[Path]:
        raise MorphError("rendering needs manim, which is missing")

    with monkeypatch.context() as patch:
        patch.setattr(tour, "render_figure", refuse)
        assert take_tour(tmp_path) == 1
    told = capsys.readouterr().out
    assert "morph: rendering needs manim, which is missing\n" in told
    assert "morph.mp4" not in told
    assert take_tour(tmp_path) == 0
    assert "figure/morph.mp4" in capsys.readouterr().out


def test_a_figure_folder_of_someone_else_is_left_alone_and_refused_first(
    calls: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figure").mkdir()
    (tmp_path / "figure" / "mine.txt").write_text("mine")
    with pytest.raises(MorphError, match=r"figure exists already and is never overwritten: .*move it away"):
        take_tour(tmp_path)
    with pytest.raises(MorphError, match="workers is 10000: give 1 to"):
        take_tour(tmp_path / "new", workers=10_000)
    assert (tmp_path / "figure" / "mine.txt").read_text() == "mine"
    assert capsys.readouterr().out == ""
    assert calls == []


def test_a_rendering_that_is_interrupted_leaves_no_figure(
    calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(figure: str, out: Path, **_: Any) -> list[Path]:
        out.mkdir()
        (out / "half.png").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tour, "render_figure", interrupt)
        take_tour(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert take_tour(tmp_path) == 0
    assert sorted(p.name for p in (tmp_path / "figure").iterdir()) == [".done", "morph.mp4"]


def test_a_tour_broken_off_ends_with_130(calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "sweep_here", lambda plan, workers: None)
    assert take_tour(tmp_path) == 130
    assert len(calls) == 1
