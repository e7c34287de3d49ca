"""From the words of `morph render` to files: frames, jobs, the second call, figures that fail beside others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from morph.errors import BAD_INPUT, MorphError
from morph.rendering import command, job, pool
from morph.rendering.command import Request, chosen_frames, explained, render_all
from morph.rendering.job import Job, run
from morph.rendering.pool import Result, run_all
from morph.story import Claim, Figure, Frame
from tests.scene_boards import SWEEP, story
from tests.tools import need

need("typst"), need("manim"), need("av")

PICTURE = {"frames": (2,), "formats": ("png",)}


def a_job(out: Path, **given: Any) -> Job:
    return Job("morph", out, {"sweep": SWEEP}, **{**PICTURE, **given})


@pytest.mark.parametrize(
    ("text", "frames"), [("3", (3,)), ("3-5", (3, 4, 5)), (" 1, 4 - 6 ,2", (1, 2, 4, 5, 6)), ("2,2", (2,)), ("0", (0,))]
)
def test_lists_of_frames(text: str, frames: tuple[int, ...]) -> None:
    assert chosen_frames(text) == frames


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "'x' is no list of frames; write it like"), ("", "is no list"), ("3-", "is no list"),
        ("-2", "is no list"), ("1,,2", "is no list"), ("²", "is no list"), ("5-3", "'5-3' runs backwards"),
        ("1-9999999", "no figure has"), ("9" * 5000, "is no list"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_frames(text: str, message: str) -> None:
    with pytest.raises(MorphError, match=message):
        chosen_frames(text)


def test_a_second_call_draws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(a_job(tmp_path / "f"))
    before = {path: path.stat().st_mtime_ns for path in first}

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("drawn again")

    import scenes.render

    with monkeypatch.context() as patch:
        patch.setattr(scenes.render, "render", never)
        assert run(a_job(tmp_path / "f")) == first
        for other in ({"theme": "light"}, {"frames": (3,)}, {"quality": "720p"}):
            with pytest.raises(AssertionError, match="drawn again"):
                run(a_job(tmp_path / "f", **other))
    assert {path: path.stat().st_mtime_ns for path in first} == before
    (tmp_path / "f" / ".parts.999999999.tmp").mkdir()
    assert run(a_job(tmp_path / "f")) == first == sorted((tmp_path / "f").iterdir(), key=first.index)
    first[0].write_bytes(b"cut short")
    assert run(a_job(tmp_path / "f")) == first
    assert first[0].stat().st_size > 1000


def test_a_page_is_one_of_the_formats(tmp_path: Path) -> None:
    files = run(a_job(tmp_path / "f", formats=("html",)))
    assert [path.name for path in files] == ["morph.html", "morph.json"]
    assert "Content-Security-Policy" in files[0].read_text()
    with pytest.raises(MorphError, match=r"format 'htm' is not one of mp4, webm, png, svg, html.*did you mean 'html'"):
        run(a_job(tmp_path / "f", formats=("png", "htm")))


def test_a_new_line_of_code_draws_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(a_job(tmp_path / "f"))
    monkeypatch.setattr(job, "code_digest", lambda *_: "another")
    drawn: list[tuple[int, int]] = []
    run(a_job(tmp_path / "f"), lambda n, of: drawn.append((n, of)))
    assert drawn == [(1, 1)]


def test_a_figure_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    bad, good = a_job(tmp_path / "a", frames=(99,)), a_job(tmp_path / "b")
    steps: list[tuple[Path, int, int]] = []
    results = run_all([bad, good], 2, lambda j, n, of: steps.append((j.out, n, of)))
    assert results[0] == Result(bad, error="figure 'morph' has no frame 99; give some of 0 to 14")
    assert [path.name for path in results[1].files] == ["morph-sheet.png", "02-rms-norm.png", "morph.json"]
    assert steps == [(tmp_path / "b", 1, 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def _dies(job: Job, pipe: Any) -> None:
    os._exit(9)


def test_a_process_that_dies_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_work", _dies)
    results = run_all([a_job(tmp_path / "a"), a_job(tmp_path / "b")], 2)
    assert [result.error for result in results] == ["its process ended with code 9"] * 2


def _started(program: str, cwd: Path) -> subprocess.Popen[str]:
    """A program that starts processes, all of them in a group of their own."""
    (cwd / "main.py").write_text(textwrap.dedent(program))
    return subprocess.Popen(
        [sys.executable, "main.py"], cwd=cwd, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """What they print to is closed when the last of them is gone: before the minute for which they would sleep."""
    parent = _started(
        """
        import time
        from pathlib import Path
        from morph.rendering import pool

        def run(job, on_step):
            on_step(1, 2)
            time.sleep(60)

        pool.run = run  # in the workers too, which read this file
        if __name__ == "__main__":
            jobs = [pool.Job("morph", Path(name)) for name in "ab"]
            pool.run_all(jobs, 2, lambda *_: print("drawing", flush=True))
        """,
        tmp_path,
    )
    assert parent.stdout is not None
    assert [parent.stdout.readline() for _ in range(2)] == ["drawing\n"] * 2
    parent.kill()
    assert parent.communicate(timeout=50) == ("", "")


def test_workers_do_not_tell_of_an_interruption(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group, processes included that have not read their first line yet."""
    parent = _started(
        """
        import multiprocessing, os, signal
        from morph.rendering.pool import _interruptions_held

        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=print, args=("done",))
            with _interruptions_held():
                child.start()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.killpg(0, signal.SIGINT)
            child.join()
        """,
        tmp_path,
    )
    assert parent.communicate(timeout=60) == ("done\n", "")


def test_a_system_error_in_a_worker_is_a_line(tmp_path: Path) -> None:
    """A name too long for the disk, in processes of their own and in this one."""
    jobs = [a_job(tmp_path / ("n" * 300)), a_job(tmp_path / ("m" * 300))]
    for some in (jobs, jobs[:1]):
        for result in run_all(some, 2):
            assert "(File name too long): check the name" in result.error


def test_the_command_prints_files_and_names_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def some(jobs: list[Job], *_: Any) -> list[Result]:
        return [Result(jobs[0], (tmp_path / "film.mp4",)), *(Result(j, error="no") for j in jobs[1:])]

    monkeypatch.setattr(command, "names", lambda: ("morph", "rope"))
    monkeypatch.setattr(command, "run_all", some)
    assert render_all(Request(("all",), out=tmp_path)) == BAD_INPUT
    told = capsys.readouterr()
    assert told.out == f"{tmp_path / 'film.mp4'}\n" and told.err == "morph: rope: no\n"
    with pytest.raises(MorphError, match=r"no figure is called 'mrope'.*did you mean 'rope'"):
        render_all(Request(("mrope",)))


def test_each_figure_gets_the_options_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "names", lambda: ("morph", "rope"))
    asked: list[Job] = []

    def note(jobs: list[Job], *_: Any) -> list[Result]:
        asked.extend(jobs)
        return [Result(j) for j in jobs]

    monkeypatch.setattr(command, "run_all", note)
    render_all(Request(("all",), model="runs/my run", seed=1, sweep=SWEEP, frames="2"))
    assert [(j.figure, j.out, dict(j.options)) for j in asked] == [
        ("morph", Path("out/morph"), {"sweep": SWEEP}),
        ("rope", Path("out/rope-my-run"), {"model": "runs/my run", "seed": 1}),
    ]
    assert all(j.frames == (2,) for j in asked)
    render_all(Request(("rope",), out=Path("here")))
    assert asked[-1].out == Path("here")


def test_an_explanation_lists_every_array(tmp_path: Path) -> None:
    text = explained("morph", {"sweep": SWEEP})
    assert text.startswith("Figure 1, morph: ")
    assert text.count("\n    claim: ") == 14
    parts = re.split(r"\n\n *\d+  ", text)[1:]
    for frame, part in zip(story().frames, parts, strict=True):
        listed = [line.split()[0] for line in part.splitlines()[1:]]
        assert frame.arrays and set(frame.arrays) <= set(listed), frame.key
    assert "bits_per_byte" in text and "stage 15 × seed 3" in text


def test_an_explanation_says_which_claims_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Claim(text="Two is odd.", holds=lambda frame: False)
    made = Figure(
        name="rope", number=3, title="t", frames=(Frame(key="k", title="t", caption="c", alt="a", claim=said),)
    )
    monkeypatch.setattr(command, "stored", lambda name, **_: made)
    assert explained("rope", {}).endswith("    claim, which does not hold of this model: Two is odd.")
