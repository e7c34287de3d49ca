"""`need(tool)`: the programs and packages that only some tests use."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from morph.doctor import TOOLS

PACKAGES = {
    "manim": "scenes",
    "typst": "scenes",
    "av": "scenes",
    "anywidget": "notebook",
    "jupyterlab": "notebook",
    "transformers": "hf",
    "playwright": "dev",
    "nbclient": "dev",
}
"""Importable package → the extra that brings it."""


def need(tool: str) -> str:
    """Where the tool is: a program's path ("chromium", "node") or a package's name ("manim").

    Without it the calling test is skipped, naming the line that installs it; under CI=true it fails instead,
    for there a skipped test would be a hole that nobody sees.
    """
    if tool in PACKAGES:
        if find_spec(tool):
            return tool
        remedy = f"pip install -e '.[{PACKAGES[tool]}]'"
    else:
        if path := TOOLS[tool].find():
            return str(path)
        remedy = TOOLS[tool].remedy
    message = f"{tool} is missing: {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
