"""What drawing a figure costs, in CPU seconds of one process and as a ratio to Figure 1, measured in one run.

    python benchmarks/render_figures.py [FIGURE ...]

Columns: the figure's data computed anew; its stills; its film; the page's drawing (all at 480p, without writing a
cache). What is imported once (torch, Manim) is imported before the clock starts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import manim  # noqa: F401
import torch

from morph.story import figure, names
from morph.widgets.pages import page
from scenes.render import render


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds that `work` takes, and what it gives."""
    start = time.process_time()
    made = work()
    return time.process_time() - start, made


def main() -> None:
    """Print a row for each figure."""
    torch.set_num_threads(1)
    chosen = sys.argv[1:] or list(names())
    first: list[float] = []
    print(f"{'figure':10} {'data':>12} {'stills':>12} {'film':>12} {'page':>12}   CPU s (ratio to the first row)")
    with tempfile.TemporaryDirectory() as folder:
        render(figure("morph"), Path(folder) / "warm", frames=(1, 2))  # fonts and encoder, once
        for name in chosen:
            out = Path(folder) / name
            data, made = seconds(lambda name=name: figure(name))
            stills, _ = seconds(lambda made=made, out=out: render(made, out, formats=("png",)))
            film, _ = seconds(lambda made=made, out=out: render(made, out, formats=("mp4",)))
            paged, _ = seconds(lambda made=made: page(made))
            row = [data, stills, film, paged]
            first = first or row
            cells = " ".join(f"{value:5.1f} ({value / base:4.2f})" for value, base in zip(row, first))
            print(f"{name:10} {cells}", flush=True)


if __name__ == "__main__":
    main()
