"""What the tests of stories and scenes share: one sweep made up for tests, and the boards drawn from it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from morph.story import Figure, figure
from morph.train.sweep import Sweep

if TYPE_CHECKING:
    from scenes.board import Board

GOLDEN = Path(__file__).with_name("golden")
SWEEP = GOLDEN / "sweep.json"
"""Exact costs of the tiny stages, and losses that no training gave."""


@cache
def sweep() -> Sweep:
    return Sweep.load(SWEEP)


@cache
def story() -> Figure:
    return figure("morph", sweep=SWEEP)


def fresh_board(index: int, theme: str = "dark") -> Board:
    """A still of figure 1, built for the caller alone."""
    from scenes.fig01_morph import board
    from scenes.theme import theme as make_theme

    return board(story(), index, make_theme(theme))


@cache
def board(index: int, theme: str = "dark") -> Board:
    """The same, built once: only to be read."""
    return fresh_board(index, theme)
