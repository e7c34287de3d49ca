"""`morph notebook`: the reader's copies are never written over, names are found, JupyterLab asks for a token."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

from morph import cli, notebook, shipped
from morph.errors import MorphError
from morph.notebook import RECORD, bring, compare, listed
from tests.tools import need

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two notebooks, one of them with solutions."""
    home = tmp_path / "project"
    (home / "notebooks" / "solutions").mkdir(parents=True)
    (home / "docs").mkdir()
    for name, title, figure in (("00_the_morph", "The morph", "morph"), ("02_position", "Position", "rope")):
        cells = [
            {"cell_type": "markdown", "source": [f"# {name[:2]} · {title}\n", "\n", "Text."]},
            {"cell_type": "code", "source": [f'Stepper("{figure}")']},
        ]
        (home / "notebooks" / f"{name}.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (home / "notebooks" / "solutions" / "02_position.py").write_text("# %%\n", encoding="utf-8")
    monkeypatch.setattr(shipped, "home", lambda: home)
    return home


def states(folder: Path) -> dict[str, str]:
    return {copy.target.relative_to(folder).as_posix(): copy.state for copy in compare(folder)}


def test_everything_is_copied_once(project: Path, tmp_path: Path) -> None:
    mine = tmp_path / "deep" / "mine"
    assert set(states(mine).values()) == {"new"}
    assert bring(mine) == [f"3 files copied to {mine}"]
    assert states(mine) == {
        "00_the_morph.ipynb": "same",
        "02_position.ipynb": "same",
        "solutions/02_position.py": "same",
    }
    assert (mine / "02_position.ipynb").read_bytes() == (project / "notebooks" / "02_position.ipynb").read_bytes()
    assert bring(mine) == []


def test_an_edited_copy_stays_and_what_was_removed_comes_back(project: Path, tmp_path: Path) -> None:
    bring(tmp_path / "mine")
    (tmp_path / "mine" / "02_position.ipynb").write_text("my own", encoding="utf-8")
    (tmp_path / "mine" / "00_the_morph.ipynb").unlink()
    assert states(tmp_path / "mine")["02_position.ipynb"] == "edited"
    assert bring(tmp_path / "mine") == [f"1 file copied to {tmp_path / 'mine'}"]
    assert (tmp_path / "mine" / "02_position.ipynb").read_text(encoding="utf-8") == "my own"


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_newer_version_is_told_and_put_beside_only_when_asked(project: Path, tmp_path: Path, is_edited: bool) -> None:
    mine = tmp_path / "mine"
    bring(mine)
    copy, source = mine / "02_position.ipynb", project / "notebooks" / "02_position.ipynb"
    if is_edited:
        copy.write_text("my own", encoding="utf-8")
    before = copy.read_bytes()
    newer = source.read_bytes() + b"\n"
    source.write_bytes(newer)
    for _ in range(2):
        (line,) = bring(mine)
        assert line.startswith("02_position.ipynb is of an earlier Morph and stays as it is: --newer")
    assert "in " + str(mine) + ", outdated" in listed(mine)[1]
    assert bring(mine, newer=True) == [
        "the newer version of 02_position.ipynb is beside yours: 02_position-newer.ipynb"
    ]
    assert (mine / "02_position-newer.ipynb").read_bytes() == newer
    assert copy.read_bytes() == before
    assert bring(mine, newer=True) == bring(mine) == []  # told once it was asked
    (mine / "02_position-newer.ipynb").write_text("edited too", encoding="utf-8")
    source.write_bytes(newer + b"\n")
    assert bring(mine, newer=True)[0].endswith("02_position-newer-2.ipynb")
    assert (mine / "02_position-newer.ipynb").read_text(encoding="utf-8") == "edited too"


def test_a_damaged_record_overwrites_nothing(project: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    bring(mine)
    (mine / "02_position.ipynb").write_text("my own", encoding="utf-8")
    for text in ("{", "[]", '{"a": 1}'):
        (mine / RECORD).write_text(text, encoding="utf-8")
        assert states(mine)["02_position.ipynb"] == "outdated"  # nobody knows; a question too many
        bring(mine)
        assert (mine / "02_position.ipynb").read_text(encoding="utf-8") == "my own"


def test_places_that_cannot_be_used(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(MorphError, match="is not a folder: give another --folder"):
            bring(place)
    (tmp_path / "mine" / "02_position.ipynb").mkdir(parents=True)
    with pytest.raises(MorphError, match="is not a file: move it"):
        bring(tmp_path / "mine")
    assert "nothing is copied" in bring(project / "notebooks")[0]
    assert not (project / "notebooks" / RECORD).exists()


@pytest.mark.parametrize("word", ["02_position", "02", "2", "position", "rope", "02_position.ipynb", "Position"])
def test_a_notebook_has_many_names(project: Path, word: str) -> None:
    assert shipped.notebook(word).name == "02_position"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_command_lists_opens_and_refuses(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[Any] = []
    monkeypatch.setattr(notebook, "open_lab", lambda *args, **options: opened.append((args, options)) or 0)
    assert run("notebook", "--list") == 0
    assert capsys.readouterr().out == "00_the_morph  00 · The morph\n02_position   02 · Position\n"
    assert not (tmp_path / "morph-notebooks").exists()
    assert run("notebook", "rope", "--no-browser", "--port", "9000") == 0
    assert capsys.readouterr().out == "3 files copied to morph-notebooks\n"
    assert opened == [((Path("morph-notebooks"), "02_position"), {"browser": False, "port": 9000})]
    assert run("notebook", "--list") == 0
    assert "02 · Position   in morph-notebooks\n" in capsys.readouterr().out
    assert run("notebook", "possition", "--folder", "other") == 2
    assert "no notebook is called 'possition'; there is 00_the_morph, 02_position; did you mean 'position'?" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "other").exists()


def test_without_jupyterlab_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)
    with pytest.raises(MorphError, match=r"needs JupyterLab: pip install -e '\.\[notebook\]'"):
        notebook.open_lab(tmp_path)


@pytest.mark.timeout(200)
def test_the_server_listens_here_alone_and_wants_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("jupyterlab")
    for name in (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "IPYTHONDIR",
        "JUPYTERLAB_SETTINGS_DIR",
    ):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    config = "c.ServerApp.ip = '0.0.0.0'\nc.IdentityProvider.token = ''\n"  # a reader's, which is not followed here
    (tmp_path / "JUPYTER_CONFIG_DIR" / "jupyter_server_config.py").write_text(config, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", "morph", "notebook", "rope", "--no-browser", "--folder", "mine"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "http" in line)
        found = re.search(r"(http://127\.0\.0\.1:\d+)/lab/tree/02_position\.ipynb\?token=(\w{48})", line)
        assert found is not None, line
        base, token = found.groups()
        with urllib.request.urlopen(f"{base}/api/contents/02_position.ipynb?token={token}", timeout=30) as reply:
            assert json.load(reply)["type"] == "notebook"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{base}/api/contents", timeout=30)
        (told,) = (tmp_path / "JUPYTER_RUNTIME_DIR").glob("jpserver-*.json")
        assert json.loads(told.read_text())["hostname"] == "127.0.0.1"
        if Path("/proc/self/cmdline").exists():
            assert token not in Path(f"/proc/{server.pid}/cmdline").read_text()  # others may read that
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
    finally:
        if server.poll() is None:
            os.kill(server.pid, signal.SIGKILL)
            server.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_wheel_holds_the_notebooks_and_is_enough(tmp_path: Path) -> None:
    """Built from the source archive's own files, unpacked anywhere: the command finds its notebooks inside."""
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    code = "import sys; from morph import cli; cli.main(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", code, "notebook", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [book.name for book in shipped.notebooks()]
    code = "from morph import shipped as s; print(len(s.docs()), s.is_clone(), s.notebook('0').solutions.is_file())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    assert done.stdout.split() == [str(len(shipped.docs())), "False", "True"]
