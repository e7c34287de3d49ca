"""The cards of the film: one before each figure, one before the first and one after the last.

All have a row of tiles at the foot of the stage, one a figure, which stays in its place from card to card: the lit one
is the figure that follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from morph.story import Frame
from morph.story.film import CHAPTERS, TITLE, card, closing, opening
from scenes.board import Board, Still
from scenes.chrome import LEFT, RIGHT, chrome
from scenes.parts import organ
from scenes.theme import Theme, hold
from scenes.type import label

MIDDLE = 1.1
"""Height of the first line of what is written large."""
ROW_Y, TILE_HEIGHT, GAP = -1.75, 0.3, 0.14
AGAIN = ("morph film", "draws this again", "morph render NAME --model RUN", "draws a figure of a model of yours",
         "make record", "trains the models shown")  # fmt: skip
"""Commands and what they do, in turn."""


def before(name: str, film: tuple[str, ...], theme: Theme) -> list[Still]:
    """The cards before figure `name` in a film of these figures."""
    first = [_still(opening(film), TITLE, film, None, theme)] if name == film[0] else []
    return [*first, _still(card(name), CHAPTERS[name].title, film, name, theme)]


def after(name: str, film: tuple[str, ...], versions: str, theme: Theme) -> list[Still]:
    """The cards after figure `name`."""
    if name != film[-1]:
        return []
    board, frame = Board(), closing(versions)
    chrome(board, frame, theme, "")
    for i, (command, what) in enumerate(zip(AGAIN[::2], AGAIN[1::2])):
        y = MIDDLE + 0.6 - 0.75 * i
        board.put(f"again{i}:command", label(command, "body", theme.colour("ink"), mono=True).at(LEFT, y))
        board.put(f"again{i}:what", label(what, "body", theme.colour("muted")).at(LEFT + 6.6, y))
    _row(board, film, None, theme)
    return [Still(frame.key, board, hold(frame.caption), f"{frame.title}. {frame.caption}")]


def _still(frame: Frame, large: str, film: tuple[str, ...], lit: str | None, theme: Theme) -> Still:
    board = Board()
    chrome(board, frame, theme, "")
    board.put("card:title", label(large, "display", theme.colour("ink"), "bold", width=RIGHT - LEFT).at(LEFT, MIDDLE))
    _row(board, film, lit, theme)
    subtitle = f"{frame.title}. {large}. {frame.caption}"
    return Still(frame.key, board, hold(f"{large} {frame.caption}"), subtitle)


def _row(board: Board, film: Sequence[str], lit: str | None, theme: Theme) -> None:
    """A tile for each figure with its number, and the name it is rendered by below."""
    pitch = (RIGHT - LEFT + GAP) / len(film)
    for i, name in enumerate(film):
        left = LEFT + i * pitch
        at = (left, ROW_Y, left + pitch - GAP, ROW_Y + TILE_HEIGHT)
        board.put(f"tile-{name}:box", organ(theme, "focus", at, lit=name == lit, radius=0.06))
        colour = theme.colour("ink" if name == lit else "muted")
        board.put(f"tile-{name}:name", label(name, "floor", colour).at(left, ROW_Y - 0.28))
