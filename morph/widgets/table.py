"""Tables in a notebook: of cells, and of what the lab found."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.display import Markdown

from morph.lab.report import findings, how_made
from morph.lab.result import recorded


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markdown:
    """Cells of text (Markdown is allowed in them) under a row of headings, as the notebook renders a table."""
    return Markdown("\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]))


def show_findings(experiment: str) -> Markdown:
    """What an experiment of the lab claimed beforehand and what came of it, every claim, as it was recorded.

    Raises:
        MorphError: when no experiment of this name was recorded.
    """
    result = recorded(experiment)
    limits = " ".join(result.declared["not_shown"].split())
    lines = [*findings(result), "", how_made(result), "", f"What it does not show: {limits}"]
    return Markdown("\n".join(lines))
