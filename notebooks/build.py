"""Make `notebooks/NAME.ipynb` from `notebooks/src/NAME.py`, the only copy that is edited.

    python notebooks/build.py           write every notebook
    python notebooks/build.py --check   write nothing, exit with status 1 when one is out of date

A source is Python in percent format: `# %%` opens a code cell, `# %% [markdown]` a text cell whose lines are
comments. The notebook holds no outputs, and a cell's id is a hash of its file and place, so equal sources
give equal bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
MARK = "# %%"
EXERCISE = "# Exercise"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Cell:
    """One cell: `kind` is "code" or "markdown"."""

    kind: str
    source: str


def parse(text: str) -> list[Cell]:
    """The cells of a source. Raises ValueError for text outside a cell, or bare text in a text cell."""
    cells: list[Cell] = []
    head, *blocks = ("\n" + text).split("\n" + MARK)
    if head.strip():
        raise ValueError(f"text before the first cell: {head.strip().splitlines()[0]!r}")
    for block in blocks:
        title, _, body = block.partition("\n")
        kind = "markdown" if title.strip() == "[markdown]" else "code"
        lines = body.strip("\n").split("\n")
        if kind == "markdown":
            lines = [_uncomment(line) for line in lines]
        cells.append(Cell(kind, "\n".join(lines)))
    return cells


def _uncomment(line: str) -> str:
    if line == "#":
        return ""
    if not line.startswith("# "):
        raise ValueError(f"a text cell holds the bare line {line!r}; start it with '# '")
    return line[2:]


def notebook(name: str, cells: list[Cell]) -> str:
    """The notebook as text: nbformat 4.5, no outputs."""
    made = []
    for place, cell in enumerate(cells):
        entry = {
            "cell_type": cell.kind,
            "id": hashlib.sha256(f"{name}:{place}".encode()).hexdigest()[:12],
            "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }
        made.append(entry | ({"execution_count": None, "outputs": []} if cell.kind == "code" else {}))
    whole = {"cells": made, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def with_solutions(cells: list[Cell], solutions: list[Cell]) -> list[Cell]:
    """The cells with each stub replaced by the solution that has the same first line (`# Exercise 1 …`)."""
    answers = {_first_line(cell): cell for cell in solutions if cell.source.startswith(EXERCISE)}
    stubs = [_first_line(cell) for cell in cells if cell.source.startswith(EXERCISE)]
    if sorted(answers) != sorted(stubs):
        raise ValueError(f"exercises {sorted(stubs)} and solutions {sorted(answers)} do not match")
    return [answers.get(_first_line(cell), cell) for cell in cells]


def _first_line(cell: Cell) -> str:
    return cell.source.split("\n")[0]


def names() -> list[str]:
    """Names of all notebooks, in order."""
    return sorted(path.stem for path in SOURCES.glob("*.py"))


def cells_of(name: str, folder: Path = SOURCES) -> list[Cell]:
    """The cells of one source."""
    return parse((folder / f"{name}.py").read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the notebooks from their sources.")
    parser.add_argument("--check", action="store_true", help="only say which notebooks are out of date")
    check = parser.parse_args().check
    stale = []
    for name in names():
        target, text = HERE / f"{name}.ipynb", notebook(name, cells_of(name))
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            stale.append(target.name)
            if not check:
                target.write_text(text, encoding="utf-8", newline="\n")
    for name in stale:
        print(f"{name} is out of date: run python notebooks/build.py" if check else f"wrote {name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
