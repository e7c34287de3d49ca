"""Which pages there are, in which order, what is beside each, and where a link of a source goes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["home", "figures", "notebooks", "docs"]
FOLDERS = {"home": "", "figures": "figures/", "notebooks": "notebooks/", "docs": "docs/"}
PARTS = (("figures", "Figures"), ("notebooks", "Notebooks"), ("docs", "Measured"))
"""The sections of the front page that every page links to, and what they are called there."""
_OUTSIDE = re.compile(r"^(https?:|mailto:)")


@dataclass(frozen=True)
class Page:
    """One page: its `title` in words, and a `summary` for lists and for those who find it by search."""

    kind: Kind
    name: str
    title: str
    summary: str = ""

    @property
    def path(self) -> str:
        """Where it lies in the site."""
        return f"{FOLDERS[self.kind]}{self.name}.html"

    @property
    def root(self) -> str:
        """From the page to the site's own folder."""
        return "../" * self.path.count("/")

    @property
    def full_title(self) -> str:
        """For the browser's title bar."""
        return self.title if self.kind == "home" else f"{self.title} · Morph"


def around(pages: Sequence[Page], page: Page) -> tuple[Page | None, Page | None]:
    """The page before and the page after, of the same kind."""
    row = [other for other in pages if other.kind == page.kind]
    place = row.index(page)
    return (row[place - 1] if place else None), (row[place + 1] if place + 1 < len(row) else None)


def resolve(href: str, page: Page, pages: Sequence[Page]) -> str | None:
    """Where a link in the source of `page` goes on the site; None where it leads to a file that has no page."""
    if _OUTSIDE.match(href) or href.startswith("#"):
        return href
    path, _, anchor = href.partition("#")
    place = posixpath.normpath(posixpath.join(FOLDERS[page.kind], path))
    stem, ending = posixpath.splitext(place)
    for other in pages:
        if ending in (".md", ".ipynb", ".html") and other.path == f"{stem}.html":
            return page.root + other.path + (f"#{anchor}" if anchor else "")
    return None
