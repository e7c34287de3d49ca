"""An executed notebook as the blocks of a page."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from morph.site.markdown import Writer, code, terminal
from morph.widgets.base import PARTS

EXERCISE = "# Exercise"
_CELL = re.compile(r"^# %%.*$", re.MULTILINE)
Save = Callable[[bytes, str], str]
"""Keeps a file's bytes, given with its ending, and answers with its address from the page."""
_PICTURES = {"image/png": "png", "image/jpeg": "jpg"}


def blocks(book: Mapping[str, Any], write: Writer, save: Save, solutions: str = "") -> list[str]:
    """HTML for each cell. A stub of an exercise has its solution folded below it."""
    answers = solutions_of(solutions)
    made: list[str] = []
    for number, cell in enumerate(book["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            made.append(f'<div class="text">\n{write(source)}</div>')
            continue
        shown = outputs(cell["outputs"], write, save, f"w{number}", _last_heading(write))
        parts = [code(source), f'<div class="outputs">\n{shown}</div>' if shown else ""]
        if answer := answers.get(source.split("\n")[0]):
            parts.append(f"<details><summary>A solution</summary>\n{code(answer)}</details>")
        made.append('<div class="cell">\n' + "\n".join(filter(None, parts)) + "</div>")
    return made


def solutions_of(text: str) -> dict[str, str]:
    """First line of an exercise -> the cell that solves it."""
    cells = (cell.strip("\n") for cell in _CELL.split(text))
    return {cell.split("\n")[0]: cell for cell in cells if cell.startswith(EXERCISE)}


def outputs(entries: Sequence[Mapping[str, Any]], write: Writer, save: Save, name: str, about: str) -> str:
    """What a cell printed, showed and returned; `about` names a picture that has no name of its own."""
    made: list[str] = []
    printed: list[str] = []

    def flush() -> None:
        if printed:
            made.append(terminal("".join(printed)))
            printed.clear()

    for place, entry in enumerate(entries):
        if entry["output_type"] == "stream":
            printed.append("".join(entry["text"]))
            continue
        flush()
        if entry["output_type"] == "error":
            made.append(terminal("\n".join(entry["traceback"])))
        else:
            made.append(_shown(entry["data"], write, save, f"{name}-{place}", about))
    flush()
    return "".join(made)


def widget(parts: Mapping[str, Any], name: str) -> str:
    """A place for a widget and the values it starts from; where no script runs, its words stay in the place."""
    state = json.dumps(parts["state"], ensure_ascii=False).replace("<", "\\u003c")
    heading = html.escape(parts["heading"])
    lines = "".join(f"<li>{html.escape(line.strip())}</li>" for line in parts["transcript"])
    return (
        f'<div class="widget" id="{name}" data-widget="{parts["script"]}">'
        f"<p><strong>{heading}</strong></p><ol>{lines}</ol></div>\n"
        f'<script type="application/json" id="{name}-state">{state}</script>\n'
    )


def _shown(data: Mapping[str, Any], write: Writer, save: Save, name: str, about: str) -> str:
    """The richest form of an output that a page can show."""
    if PARTS in data:
        return widget(data[PARTS], name)
    for kind, ending in _PICTURES.items():
        if kind in data:
            address = save(base64.b64decode("".join(data[kind])), ending)
            alt = html.escape(f"Plot: {about}", quote=True)
            return f'<img class="plot" loading="lazy" alt="{alt}" src="{address}">\n'
    if "text/markdown" in data:
        return f'<div class="text">\n{write("".join(data["text/markdown"]))}</div>\n'
    if "text/html" in data:
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="Output">{"".join(data["text/html"])}</div>\n'
        )
    if "text/latex" in data:
        return f'<div class="text">\n{write("".join(data["text/latex"]))}</div>\n'
    return terminal("".join(data.get("text/plain", "")))


def _last_heading(write: Writer) -> str:
    from morph.site.markdown import plain

    return plain(write.headings[-1].words) if write.headings else "what the cell above computed"
