"""A small project of two notebooks, two figures and a document, and the site of it, for the tests of sites."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from morph import shipped
from morph.site import build
from morph.site.build import Wanted, build_site

FIGURES = ("morph", "norm")
FIRST = [
    ("markdown", r"""# 00 · The first

What it is about. More words.

## A formula

For $k$, then $$\sum_{i=1}^k x_i = 1.$$"""),
    ("code", 'print("seen", 6 * 7)\nprint("\\rhalf", end="\\rwhole <b>\\n")'),
    ("markdown", """## A figure

See [the second](01_second.ipynb#one), [what was found](../docs/found.md) and [code](../morph/x.py)."""),
    ("code", 'from morph.widgets import RouterView, Stepper, show_table\n\nfigure = Stepper("norm", index=1)\nfigure'),
    ("code", 'RouterView("experts", text="def f(x):")'),
    ("code", 'figure.index = 2\nshow_table(["a", "b"], [["`one`", "**two**"]])'),
    ("markdown", "## Exercises"),
    ("code", "# Exercise 1 · three\nthree = ..."),
]  # fmt: skip
SECOND = [("markdown", "# 01 · The second\n\nShort.\n\n## One\n\nText."), ("code", "1 + 1")]
SOLUTIONS = "# %%\n# Exercise 1 · three\nthree = 3\n"
FOUND = """# What was found

In words.

## 1. A plot

| a | b |
|--:|:--|
| 1 | x |

![A plot of it](lab/plot.png)
"""


def notebook(cells: list[tuple[str, str]]) -> str:
    """A notebook's text."""
    made = []
    for place, (kind, source) in enumerate(cells):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"c{place}", "metadata": {}, "source": source}
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@contextmanager
def small_project(folder: Path) -> Iterator[Path]:
    """Its files in `folder`, and `morph.shipped` and the site pointed at them."""
    (folder / "notebooks" / "solutions").mkdir(parents=True)
    (folder / "docs" / "lab").mkdir(parents=True)
    (folder / "notebooks" / "00_first.ipynb").write_text(notebook(FIRST), encoding="utf-8")
    (folder / "notebooks" / "01_second.ipynb").write_text(notebook(SECOND), encoding="utf-8")
    (folder / "notebooks" / "solutions" / "00_first.py").write_text(SOLUTIONS, encoding="utf-8")
    (folder / "docs" / "found.md").write_text(FOUND, encoding="utf-8")
    Image.new("RGB", (40, 20), "white").save(folder / "docs" / "lab" / "plot.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "home", lambda: folder)
        patch.setattr(build, "names", lambda: FIGURES)
        yield folder


@contextmanager
def small_site(folder: Path) -> Iterator[Path]:
    """The site of the small project."""
    with small_project(folder / "project"):
        assert build_site(Wanted(folder / "site", quick=True, workers=1)) == folder / "site" / "index.html"
        yield folder / "site"


class Links(HTMLParser):
    """What a page names: its ids, its links, what it loads, and each element's attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if name := found.get("id"):
            self.ids.append(name)
        for key in ("href", "src", "srcset", "poster", "data"):
            if key in found:
                (self.links if tag == "a" else self.loaded).append(found[key] or "")

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


def pages_of(site: Path) -> dict[str, str]:
    """Path within the site -> text, of every page."""
    return {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))
    }


def weight(site: Path, page: str) -> int:
    """Bytes of a page and of all that it loads."""
    text = (site / page).read_text(encoding="utf-8")
    loaded = {address for address in Links(text).loaded if not re.match(r"data:|.*\.html", address)}
    return len(text.encode()) + sum(((site / page).parent / address).stat().st_size for address in loaded)
