"""The set-up files agree: ranges, pinned releases, the conda environment, the make targets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import morph
from morph import doctor

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
CORE = [Requirement(text) for text in PROJECT["dependencies"]]
DIRECT = {canonicalize_name(r.name): r for group in (CORE, *EXTRAS.values()) for r in group}
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib", "typst-py": "typst"}
CONDA_TOOLS = {"python", "pip", "cairo", "pango", "pkg-config", "nodejs"}


def pinned() -> dict[str, Version]:
    """constraints.txt as name → version; a line that is not one exact release fails."""
    pins: dict[str, Version] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([\w.-]+)==([^\s+]+)", line)
            assert match, f"not one exact public release: {line!r}"
            name = canonicalize_name(match[1])
            assert name not in pins, f"pinned twice: {name}"
            pins[name] = Version(match[2])
    return pins


def conda() -> dict[str, str]:
    """environment.yml as PyPI name → version, "" where none is asked for; the pip section included."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    lines = [line for entry in entries for line in (entry["pip"] if isinstance(entry, dict) else [entry])]
    versions = {}
    for line in lines:
        if not line.startswith("-e"):
            name, _, version = line.partition("=")
            versions[canonicalize_name(CONDA_NAMES.get(name, name))] = version.lstrip("=")
    return versions


def test_the_core_needs_three_packages_and_the_extras_have_their_names() -> None:
    assert sorted(r.name for r in CORE) == ["jaxtyping", "numpy", "torch"]
    assert list(EXTRAS) == ["train", "hf", "notebook", "scenes", "site", "dev"] == list(doctor.EXTRAS)


@pytest.mark.parametrize("name", sorted(DIRECT))
def test_every_dependency_is_pinned_within_its_range(name: str) -> None:
    pins = pinned()
    assert name in pins
    assert DIRECT[name].specifier.contains(pins[name])


@pytest.mark.parametrize("name", sorted(DIRECT))
def test_conda_installs_the_pinned_release(name: str) -> None:
    assert conda()[name] == str(pinned()[name])


def test_conda_asks_for_nothing_else() -> None:
    assert set(conda()) - set(DIRECT) == CONDA_TOOLS
    assert SpecifierSet(PROJECT["requires-python"]).contains(conda()["python"])


def test_what_shows_figures_reads_recorded_models() -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in REFUSED:
            raise ModuleNotFoundError(name)
REFUSED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Refuse())
from morph.errors import MorphError
from morph.widgets import RouterView
try:
    widget = RouterView()
    print(len(widget.to_html()) > 50_000, len(widget.to_png()) > 10_000)
except MorphError as error:
    print(error)
"""
    imported = {"pillow": "PIL", "fontpkg-inter": "fontpkg_inter"}
    brought = {name: {canonicalize_name(r.name) for r in group} for name, group in EXTRAS.items()}
    for extra in ("notebook", "scenes"):
        assert "safetensors" in brought[extra]
    others = (brought["train"] | brought["scenes"] | brought["hf"]) - brought["notebook"]
    for refused, told in (
        (others, "True True"),
        ({"safetensors"}, "recorded models need safetensors: pip install -e '.[notebook]' in Morph's folder"),
    ):
        names = ",".join(imported.get(name, name) for name in refused)
        done = subprocess.run([sys.executable, "-c", code, names], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == told


def test_ranges_that_guard_against_a_known_fault() -> None:
    assert "13.0.0" not in DIRECT["pillow"].specifier  # Manim 0.22 cannot draw images with it
    assert DIRECT["manim"].extras == {"typst"}
    assert "2.10.0" not in DIRECT["torch"].specifier
    assert "2.11.0" in DIRECT["torch"].specifier


def test_python_311_is_the_oldest_everywhere() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py311"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == "3.11"


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert metadata.version(doctor.DISTRIBUTION) == morph.__version__


def test_the_licence_is_mit() -> None:
    assert PROJECT["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License\n")
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["license"] == "MIT"


def test_every_data_file_of_the_packages_is_shipped() -> None:
    listed = subprocess.run(["git", "ls-files", "morph", "scenes"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: git lists the files that belong to the packages")
    data = [Path(line) for line in listed.stdout.splitlines() if not line.endswith(".py")]
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["*"]
    unshipped = [
        str(path)
        for path in data
        if not any(fnmatch(str(path), f"*/{pattern.replace('**/', '')}") for pattern in patterns)
    ]
    assert data
    assert unshipped == []


def test_make_alone_lists_every_target() -> None:
    command = ["make", "--no-print-directory"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    targets = re.findall(r"^  make ([\w-]+) +\S", listed.stdout, flags=re.MULTILINE)
    assert targets == [
        "help",
        "setup",
        "tour",
        "test",
        "test-full",
        "lint",
        "types",
        "checkpoint",
        "record",
        "lab",
        "site",
        "clean",
    ]


def run_setup(folder: Path, python: Path | str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the set-up script in an empty folder: its refusals come before any installation."""
    (folder / "tools").mkdir()
    script = folder / "tools" / "setup.sh"
    script.write_text((ROOT / "tools" / "setup.sh").read_text())
    return subprocess.run(["sh", str(script), str(python)], capture_output=True, text=True)


def program(path: Path, body: str) -> Path:
    """Write a shell script that stands in for a program."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def bare_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, with a compiler and what the script itself calls."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "cut"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    program(programs / "cc", "exit 0")
    monkeypatch.setenv("PATH", str(programs))
    return programs


def test_setup_refuses_an_old_python_in_one_line(tmp_path: Path) -> None:
    old = program(tmp_path / "python3.9", 'case "$1" in -V) echo "Python 3.9.2" ;; *) exit 1 ;; esac')
    done = run_setup(tmp_path, old)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "3.9.2" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_setup_refuses_a_missing_python_in_one_line(tmp_path: Path) -> None:
    done = run_setup(tmp_path, "python-that-is-not-there")
    assert done.returncode == 1
    assert done.stderr == (
        "setup: python-that-is-not-there not found: install Python 3.11 or newer, "
        "or name one: make setup PYTHON=/path/to/python3.11\n"
    )


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("apt-get", "sudo apt-get update && sudo apt-get install -y libcairo2-dev libpango1.0-dev"),
        ("dnf", "sudo dnf install -y cairo-devel pango-devel"),
        ("brew", "brew install cairo pango pkg-config"),
        ("none", "conda env create -f environment.yml && conda activate morph"),
    ],
)
def test_setup_without_headers_names_the_line_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, line: str
) -> None:
    programs = bare_machine(tmp_path, monkeypatch)
    program(programs / "id", "echo 1000")  # not root
    program(programs / "pkg-config", "exit 1")
    program(programs / manager, f"echo > {tmp_path}/ran")
    done = run_setup(tmp_path, sys.executable)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "missing: cairo." in done.stderr
    assert line in done.stderr
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / ".venv").exists()


def test_setup_as_root_on_debian_installs_the_headers_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = bare_machine(tmp_path, monkeypatch)
    calls = tmp_path / "calls"
    program(programs / "id", "echo 0")
    program(programs / "apt-get", f'echo "$@" >> {calls}')
    program(programs / "pkg-config", f'read -r line < {calls} && test "$line" = "update -qq"')
    python = program(tmp_path / "python3", 'case "$*" in *"-m venv"*) exit 7 ;; esac')  # the end of this test
    done = run_setup(tmp_path, python)
    update, install = calls.read_text().splitlines()
    assert update == "update -qq"
    assert install.startswith("install -y ")
    assert {"libcairo2-dev", "libpango1.0-dev", "pkg-config"} <= set(install.split())
    assert "installing system packages for: cairo" in done.stdout
    assert done.returncode == 7


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in a folder that holds only what a set-up depends on."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/setup.sh"):
        copy = folder / name
        copy.parent.mkdir(exist_ok=True)
        if not copy.exists():
            copy.write_text((ROOT / name).read_text())
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True)


def test_a_set_up_that_failed_is_not_taken_for_done(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    for _ in range(2):
        done = make(tmp_path, "setup", "PYTHON=python-that-is-not-there")
        assert done.returncode == 2
        assert "python-that-is-not-there not found" in done.stderr
    assert not (tmp_path / ".venv" / ".ready").exists()


def test_a_set_up_that_is_done_is_not_done_again_until_its_files_change(tmp_path: Path) -> None:
    make(tmp_path, "help")
    stamp = tmp_path / ".venv" / ".ready"
    stamp.parent.mkdir()
    stamp.touch()
    done = make(tmp_path, "setup", "PYTHON=python-that-is-not-there")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout
    later = stamp.stat().st_mtime + 10
    os.utime(tmp_path / "constraints.txt", (later, later))
    assert make(tmp_path, "setup", "PYTHON=python-that-is-not-there").returncode == 2
