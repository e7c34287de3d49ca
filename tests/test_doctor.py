"""The doctor names what is missing, and the line that mends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from morph import doctor
from morph.doctor import Check, Tool


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """hide("manim") makes the package metadata of manim disappear."""
    version = metadata.version

    def pretend(name: str) -> None:
        def missing(asked: str) -> str:
            if asked == name:
                raise metadata.PackageNotFoundError(asked)
            return version(asked)

        monkeypatch.setattr(metadata, "version", missing)

    return pretend


def named(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


def test_it_checks_every_dependency_and_every_extra() -> None:
    names = [check.name for check in doctor.report()]
    extras = [f"[{extra}]" for extra in doctor.EXTRAS]
    packages = ["python", "morph", "torch", "numpy", "jaxtyping"]
    assert names == [*packages, *extras, "cairo, pango", "chromium", "node", "device", "disk"]


def test_a_missing_package_is_mended_by_its_extra(hide: Callable[[str], None]) -> None:
    hide("manim")
    checks = doctor.report()
    check = named(checks, "[scenes]")
    assert check.state == "missing"
    assert check.detail == "for stills and videos: manim is not installed"
    assert check.remedy.endswith("-m pip install -e '.[scenes]'")
    assert doctor.usable(checks)
    assert "→ " + check.remedy in doctor.render(checks)
    assert doctor.render(checks).endswith("missing for some uses: [scenes].")


def test_a_missing_core_package_makes_morph_unusable(
    hide: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    hide("jaxtyping")
    assert named(doctor.report(), "jaxtyping").state == "missing"
    assert doctor.main() == 1
    assert capsys.readouterr().out.endswith("Morph cannot run yet. Missing: jaxtyping.\n")


def test_a_project_that_is_not_installed(hide: Callable[[str], None]) -> None:
    hide(doctor.DISTRIBUTION)
    check = named(doctor.report(), "morph")
    assert (check.state, check.core) == ("missing", True)
    assert check.remedy.endswith("-m pip install -e '.'")


def test_a_release_outside_its_range_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "13.0.0")
    assert doctor._fault("pillow<13,>=11") == "pillow is 13.0.0, needs <13,>=11"
    assert doctor._fault("manim[typst]>=0.22") == ""


def test_exit_code_is_zero_when_only_an_extra_lacks(hide: Callable[[str], None]) -> None:
    hide("transformers")
    assert doctor.main() == 0


def test_the_device_is_the_one_training_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morph.train.device.pick_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert doctor._device() == Check("device", "ok", "cpu, 3 threads", core=True)
    monkeypatch.setattr("morph.train.device.pick_device", lambda name: torch.device("cuda"))
    card = SimpleNamespace(name="Some Card", total_memory=24 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert doctor._device().detail == "cuda: Some Card, 24 GiB"


def test_a_torch_that_does_not_import_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    check = doctor._device()
    assert (check.state, check.core) == ("missing", True)
    assert check.detail.startswith("torch cannot be imported: ")


def test_little_disk_is_a_note_and_not_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0.4e9))
    check = doctor._disk(tmp_path)
    assert check.state == "note"
    assert check.detail == f"0.4 GB free in {tmp_path}"
    assert "2 GB" in check.remedy


def test_a_tool_is_found_on_the_path_or_in_its_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "browser-12" / "chrome"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    common = {"name": "b", "purpose": "p", "commands": ("chrome",), "apt": "a", "brew": "b"}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Tool(**common).find() is None
    assert Tool(**common, places=(f"{tmp_path}/browser-*/chrome",)).find() == program
    monkeypatch.setenv("PATH", str(program.parent))
    assert Tool(**common).find() == program


@pytest.mark.parametrize(
    ("platform", "manager", "root", "remedy"),
    [
        ("linux", "/usr/bin/apt-get", True, "apt-get install -y nodejs"),
        ("linux", "/usr/bin/apt-get", False, "sudo apt-get install -y nodejs"),
        ("linux", None, False, "install nodejs with your system's package manager"),
        ("darwin", None, False, "brew install node"),
    ],
)
def test_remedies_fit_the_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, manager: str | None, root: bool, remedy: str
) -> None:
    monkeypatch.setattr(doctor.sys, "platform", platform)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: manager if name == "apt-get" else None)
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0 if root else 1000, raising=False)
    assert doctor.NODE.remedy == remedy


def test_libraries_without_headers_matter_only_until_manim_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.Tool, "find", lambda self: None)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    missing = doctor._libraries()
    assert (missing.state, missing.core) == ("missing", False)
    assert "libcairo2-dev" in missing.remedy or "brew install cairo" in missing.remedy
    monkeypatch.setattr(doctor, "find_spec", lambda name: object())
    assert doctor._libraries().state == "note"


def test_importing_the_doctor_imports_nothing_heavy() -> None:
    code = "import sys, morph.doctor; print({'torch', 'numpy', 'manim', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
