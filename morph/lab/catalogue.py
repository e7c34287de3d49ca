"""Which experiments there are: one module each in `morph/lab/experiments`, named eNN_name.py."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from morph.errors import MorphError, nearest
from morph.lab.spec import Experiment

_FILE = re.compile(r"e\d\d_(\w+)")
FOLDER = Path(__file__).with_name("experiments")


def modules() -> dict[str, str]:
    """Name -> module, in the order of their numbers; nothing is imported."""
    found = {}
    for path in sorted(FOLDER.glob("e*.py")):
        if named := _FILE.fullmatch(path.stem):
            found[named[1].replace("_", "-")] = f"morph.lab.experiments.{path.stem}"
    return found


def module_of(name: str) -> str:
    """The module of the experiment called `name`. Raises MorphError for another name."""
    known = modules()
    if name not in known:
        raise MorphError(
            f"unknown experiment {name[:40]!r}: give one of {', '.join(known)}, or all{nearest(name, known)}"
        )
    return known[name]


def load(module: str) -> Experiment:
    """The experiment that a module declares."""
    found = import_module(module).EXPERIMENT
    assert isinstance(found, Experiment), f"{module}.EXPERIMENT is no Experiment"
    return found


def find(name: str) -> Experiment:
    """The experiment called `name`. Raises MorphError for another name."""
    return load(module_of(name))
