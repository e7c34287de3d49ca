"""Where the notebooks, their solutions and the docs lie: at the top of a clone, or inside an installed package.

`setup.py` puts a copy into every wheel. In a clone, and in an editable install of one, the files themselves are used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from morph.errors import MorphError, nearest

PACKAGE = Path(__file__).resolve().parent
COPIED = "_shipped"
"""Folder of the package that holds the copies in a wheel."""
_FIRST = ("lab", "reference-sweep")
_STEPPER = re.compile(r"Stepper\(\s*\\?[\"']([\w-]+)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Notebook:
    """A notebook as it ships: `path` of the `.ipynb`, and of its solutions."""

    path: Path
    solutions: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def text(self) -> str:
        """The file."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def title(self) -> str:
        """Its first heading, as in `07 · Mixture of experts`."""
        import json

        cells = json.loads(self.text)["cells"]
        found = _TITLE.search("\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"))
        return found[1] if found else self.name

    @cached_property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that it steps through."""
        return tuple(dict.fromkeys(_STEPPER.findall(self.text)))


def home() -> Path:
    """The folder with `notebooks/` and `docs/` in it. Raises `MorphError` when neither a clone nor a wheel has them."""
    for place in (PACKAGE.parent, PACKAGE / COPIED):
        if (place / "notebooks" / "solutions").is_dir() and (place / "docs").is_dir():
            return place
    raise MorphError(f"the notebooks are not beside {PACKAGE}: install Morph again, or work in a clone of it")


def is_clone() -> bool:
    """Whether this is the project itself, and not an installed package."""
    return (PACKAGE.parent / "pyproject.toml").is_file()


def notebooks() -> tuple[Notebook, ...]:
    """All notebooks, in order."""
    folder = home() / "notebooks"
    return tuple(
        Notebook(path, folder / "solutions" / f"{path.stem}.py") for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    )


def docs() -> tuple[Path, ...]:
    """The documents: what was measured first, then the others in order of their names."""
    found = (home() / "docs").glob("*.md")
    return tuple(sorted(found, key=lambda path: (path.stem not in _FIRST, path.stem)))


def notebook(word: str) -> Notebook:
    """The notebook that a reader means: its name with or without the number, the number, or a figure it shows.

    Raises:
        MorphError: for a word that none answers to, naming the nearest.
    """
    known: dict[str, Notebook] = {}
    for book in notebooks():
        number, _, rest = book.name.partition("_")
        for name in (book.name, number, str(int(number)), rest, rest.replace("_", "-"), *book.figures):
            known.setdefault(name, book)
    wanted = word.removesuffix(".ipynb").lower()
    if wanted not in known:
        names = [book.name for book in notebooks()]
        raise MorphError(f"no notebook is called {word[:40]!r}; there is {', '.join(names)}{nearest(wanted, known)}")
    return known[wanted]
