"""A table in a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.display import Markdown


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markdown:
    """Cells of text (Markdown is allowed in them) under a row of headings, as the notebook renders a table."""
    return Markdown("\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]))
