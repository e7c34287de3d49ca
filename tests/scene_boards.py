"""What the tests of stories and scenes share: a sweep made up for tests, figures kept as data, boards drawn of them."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph.story import Figure, figure
from morph.train.sweep import Sweep

if TYPE_CHECKING:
    from scenes.board import Board

GOLDEN = Path(__file__).with_name("golden")
SWEEP = GOLDEN / "sweep.json"
"""Exact costs of the tiny stages, and losses that no training gave."""
WRITE = os.environ.get("MORPH_GOLDEN", "")
"""`write` records digests and stills anew (after a look at them), `data` the figures' data too."""


@cache
def sweep() -> Sweep:
    return Sweep.load(SWEEP)


@cache
def story() -> Figure:
    return figure("morph", sweep=SWEEP)


@cache
def kept(name: str) -> Figure:
    """A figure as data in the repository, so that what is drawn of it does not hang on this machine's arithmetic."""
    path = GOLDEN / f"{name}.figure.json"
    if WRITE == "data" or (WRITE and not path.exists()):
        made = story() if name == "morph" else figure(name)
        text = json.dumps(_short(made.to_dict()), ensure_ascii=False, separators=(",", ":"))
        path.write_text(text + "\n", encoding="utf-8")
    return Figure.load(path)


def _short(value: Any) -> Any:
    """JSON values with four digits to a fraction."""
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_short(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) and not value.is_integer() else value


def fresh_board(index: int, theme: str = "dark", name: str = "morph") -> Board:
    """A still of a figure, built for the caller alone."""
    from scenes.boards import board
    from scenes.theme import theme as make_theme

    return board(kept(name), index, make_theme(theme))


@cache
def board(index: int, theme: str = "dark", name: str = "morph") -> Board:
    """The same, built once: only to be read."""
    return fresh_board(index, theme, name)
