"""What is installed, which device training will use, what is missing, and the line that mends it.

Presence is read from package metadata and from the search path; only the device check imports torch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

DISTRIBUTION = "morph-tutorial"
EXTRAS = {
    "train": "training, sweeps and the command line",
    "hf": "Hugging Face checkpoints",
    "notebook": "the notebooks",
    "scenes": "stills and videos",
    "site": "the web pages of all notebooks and figures",
    "dev": "the tests",
}
COMFORTABLE_DISK = 2e9  # bytes; a tour with its runs and its video takes far less
LIBRARIES = ("cairo", "pango", "pangocairo")  # as pkg-config calls them


@dataclass(frozen=True)
class Check:
    """One line of the report.

    state: "ok"; "missing": something cannot be used until `remedy` is run; "note": works, but worth knowing.
    core: whether building and running models depends on it, and not only an extra.
    """

    name: str
    state: Literal["ok", "missing", "note"]
    detail: str
    remedy: str = ""
    core: bool = False


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program that pip does not install. `places` are paths outside PATH to look at; * is any name."""

    name: str
    purpose: str
    commands: tuple[str, ...]
    apt: str
    brew: str
    places: tuple[str, ...] = ()

    def find(self) -> Path | None:
        """The program's path, or None."""
        for command in self.commands:
            if found := shutil.which(command):
                return Path(found)
        for place in self.places:
            path = Path(place).expanduser()
            if matches := sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))):
                return matches[-1]
        return None

    @property
    def remedy(self) -> str:
        """The line that installs it on this system."""
        if sys.platform == "darwin":
            return f"brew install {self.brew}"
        if shutil.which("apt-get"):
            root = hasattr(os, "geteuid") and os.geteuid() == 0
            return f"{'' if root else 'sudo '}apt-get install -y {self.apt}"
        return f"install {self.apt} with your system's package manager"


CHROMIUM = Tool(
    name="chromium",
    purpose="tests of the notebook figures in a browser",
    commands=("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    apt="chromium",
    brew="--cask chromium",
    places=(
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "~/.cache/ms-playwright/chromium-*/chrome-linux*/chrome",
    ),
)
NODE = Tool(name="node", purpose="tests of the figures' JavaScript", commands=("node",), apt="nodejs", brew="node")
PKG_CONFIG = Tool(
    name="pkg-config",
    purpose="building Manim",
    commands=("pkg-config", "pkgconf"),
    apt="libcairo2-dev libpango1.0-dev pkg-config",
    brew="cairo pango pkg-config",
)
TOOLS = {tool.name: tool for tool in (CHROMIUM, NODE)}


def report() -> list[Check]:
    """Every check, in reading order. Trains nothing, writes nothing, asks no network."""
    return [
        Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}", core=True),
        *_packages(),
        _libraries(),
        *(_tool(tool) for tool in TOOLS.values()),
        _device(),
        _disk(Path.cwd()),
    ]


def usable(checks: Sequence[Check]) -> bool:
    """Whether the core works: models can be built and run, whatever the extras lack."""
    return not any(check.core and check.state == "missing" for check in checks)


def render(checks: Sequence[Check]) -> str:
    """The report as plain text: a line for each check, its remedy below it, and a closing sentence."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.state:<8} {check.name:<{width}}  {check.detail}")
        if check.remedy:
            lines.append(f"{'':<8} {'':<{width}}  → {check.remedy}")
    missing = ", ".join(check.name for check in checks if check.state == "missing")
    if not missing:
        closing = "Everything is here."
    elif usable(checks):
        closing = f"Morph works; missing for some uses: {missing}."
    else:
        closing = f"Morph cannot run yet. Missing: {missing}."
    return "\n".join([*lines, "", closing])


def main() -> int:
    """Print the report. Returns the exit code: 0 if the core is usable, else 1."""
    checks = report()
    print(render(checks))
    return 0 if usable(checks) else 1


def _packages() -> Iterator[Check]:
    """One check for each core dependency and one for each extra, from the project's own metadata."""
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield Check("morph", "missing", "is not installed", _pip_install(), core=True)
        return
    yield Check("morph", "ok", version, core=True)

    core: list[str] = []
    extras: dict[str, list[str]] = {extra: [] for extra in EXTRAS}
    for line in requirements:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"""extra\s*==\s*["']([\w-]+)""", marker)
        group = extras.setdefault(extra[1], []) if extra else core
        group.append(requirement.strip())

    for requirement in core:
        name, fault = _name(requirement), _fault(requirement)
        if fault:
            yield Check(name, "missing", fault, _pip_install(), core=True)
        else:
            yield Check(name, "ok", metadata.version(name), core=True)
    for key, group in extras.items():
        purpose = f"for {EXTRAS.get(key, key)}"
        faults = [fault for requirement in group if (fault := _fault(requirement))]
        if faults:
            yield Check(f"[{key}]", "missing", f"{purpose}: {'; '.join(faults)}", _pip_install(key))
        else:
            versions = ", ".join(f"{name} {metadata.version(name)}" for name in map(_name, group))
            yield Check(f"[{key}]", "ok", f"{purpose}: {versions}")


def _name(requirement: str) -> str:
    """The distribution that a requirement names: "manim[typst]>=0.22" names manim."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _fault(requirement: str) -> str:
    """Why the installed packages do not meet a requirement; "" if they do."""
    name = _name(requirement)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    try:
        from packaging.requirements import Requirement
    except ImportError:  # it comes with matplotlib and pytest; without it only presence is checked
        return ""
    wanted = Requirement(requirement).specifier
    return "" if wanted.contains(version, prereleases=True) else f"{name} is {version}, needs {wanted}"


def _pip_install(extra: str = "") -> str:
    """The line that installs Morph, with an extra, into the environment of the Python that runs this."""
    source = Path(__file__).resolve().parents[1]
    choice = f"[{extra}]" if extra else ""
    if (source / "pyproject.toml").exists():
        target = f"-e '{'.' if source == Path.cwd() else source}{choice}'"
    else:
        target = f"'{DISTRIBUTION}{choice}'"
    return f"{_short(Path(sys.executable))} -m pip install {target}"


def _short(path: Path) -> str:
    """The path as one would type it here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _libraries() -> Check:
    """Cairo and Pango with their headers. Once Manim is built they matter only for building it anew."""
    name = "cairo, pango"
    program = PKG_CONFIG.find()
    if program:
        question = [str(program), "--modversion", *LIBRARIES]
        asked = subprocess.run(question, capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            return Check(name, "ok", ", ".join(map(" ".join, zip(LIBRARIES, asked.stdout.split()))))
    if find_spec("manimpango") and find_spec("cairo"):
        return Check(name, "note", "no headers, but Manim is built already")
    return Check(name, "missing", f"for {PKG_CONFIG.purpose}: no headers", PKG_CONFIG.remedy)


def _tool(tool: Tool) -> Check:
    if path := tool.find():
        return Check(tool.name, "ok", str(path))
    return Check(tool.name, "missing", f"for {tool.purpose}", tool.remedy)


def _device() -> Check:
    """The device that `morph train --device auto` takes."""
    try:
        import torch

        from morph.train.device import pick_device
    except ImportError as error:
        return Check("device", "missing", f"torch cannot be imported: {error}", _pip_install(), core=True)
    device = pick_device("auto")
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        detail = f"{device}: {card.name}, {card.total_memory / 2**30:.0f} GiB"
    elif device.type == "mps":
        detail = f"{device}: the graphics processor of this Mac"
    else:
        threads = torch.get_num_threads()
        detail = f"{device}, {threads} thread{'' if threads == 1 else 's'}"
    return Check("device", "ok", detail, core=True)


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1e9:.1f} GB free in {folder}"
    if free >= COMFORTABLE_DISK:
        return Check("disk", "ok", detail)
    return Check("disk", "note", detail, f"free some space: {COMFORTABLE_DISK / 1e9:.0f} GB is comfortable")


if __name__ == "__main__":
    sys.exit(main())
