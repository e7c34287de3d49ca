"""Stills of the explorers, for readers whose viewer runs no widget: the same numbers, one choice of layer and head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from morph.story import Frame
from scenes.board import Board
from scenes.charts import Axes, axes, heat, line, scale
from scenes.chrome import chrome
from scenes.shape import Box, Point
from scenes.theme import Theme
from scenes.type import fitted, label

MAP: Box = (-2.6, -2.35, 2.4, 2.65)
WIDE: Box = (-5.6, -2.1, 4.2, 2.5)
FEW_ACROSS, FEW_DOWN = 40, 24
"""Tokens that can be written along a map."""


def attention(frame: Frame, place: Mapping[str, Any], theme: Theme) -> Board:
    """The map of one head."""
    weights, facts = frame.values("weights"), frame.facts
    layer, head = divmod(int(place.get("map", 0)), weights.shape[1])
    grid = np.where(np.isnan(frame.values("scores")[layer, head]), np.nan, weights[layer, head])
    board = _board(frame, theme)
    limits = (0.0, float(np.nanmax(grid)))
    heat(board, "map", theme, grid, MAP, limits=limits)
    scale(board, "map.scale", theme, (2.9, -2.35, 3.1, 0.5), limits=limits)
    left, _, right, top = MAP
    cell = (right - left) / len(grid)
    if len(grid) <= FEW_DOWN:
        for i, word in enumerate(facts["tokens"]):
            _word(board, f"query{i}:word", theme, word, (left - 0.15, top - (i + 0.5) * cell), "right")
    _word(board, "what:name", theme, f"layer {facts['layers'][layer]}, head {head}", (2.9, 2.4))
    _word(board, "rows:name", theme, "a row looks,", (2.9, 1.95))
    _word(board, "columns:name", theme, "a column is looked at", (2.9, 1.6))
    return board


def token_trace(frame: Frame, place: Mapping[str, Any], theme: Theme) -> Board:
    """The size of the stream of one token, write by write, and what the head would say at the end."""
    rms, write = frame.values("rms"), frame.values("write")
    token = min(int(place.get("token", 0)), rms.shape[1] - 1)
    board = _board(frame, theme)
    depth = np.arange(len(rms))
    area = Axes(WIDE, (0, len(rms) - 1), (0, 1.1 * float(max(rms[:, token].max(), write[:, token].max()))))
    ticks = sorted({0, len(write) // 2, len(write)})
    half = round(area.y[1] / 2, 1)
    axes(board, "plot", theme, area, x_label="writes", y_label="RMS", x_ticks=ticks, y_ticks=(0, half))
    curves = {
        "stream": (depth, rms[:, token], "ink", "stream"),
        "attention": (depth[1::2], write[::2, token], "attention", "attention adds"),
        "ffn": (depth[2::2], write[1::2, token], "ffn", "feed-forward adds"),
    }
    lowest = area.at[1]
    for key, (xs, ys, role, words) in sorted(curves.items(), key=lambda curve: float(curve[1][1][-1])):
        line(board, key, theme, area, xs, ys, role)
        lowest = max(lowest, area.point(0, float(ys[-1]))[1])
        _word(board, f"{key}:name", theme, words, (WIDE[2] + 0.15, lowest))
        lowest += 0.3  # names one above the other, in the order of the ends of their lines
    said = frame.facts["likely"][-1][token][0]
    chance = float(frame.values("probability")[-1, token, 0])
    words = f"token {token}, “{frame.facts['tokens'][token]}”: at the end, “{said}” with {chance:.2f}"
    _word(board, "token:name", theme, words, (WIDE[2], 2.85), "right")
    return board


def routing(frame: Frame, place: Mapping[str, Any], theme: Theme) -> Board:
    """The experts of one layer against the tokens, filled by the weights."""
    chosen, weights = frame.values("chosen"), frame.values("weights")
    layer = min(int(place.get("layer", 0)), len(chosen) - 1)
    grid = np.full((frame.facts["n_experts"], chosen.shape[1]), np.nan)
    np.put_along_axis(grid, chosen[layer].T, weights[layer].T, axis=0)
    board = _board(frame, theme)
    limits = (0.0, float(weights.max()))
    heat(board, "map", theme, grid, WIDE, role="ffn", limits=limits)
    scale(board, "map.scale", theme, (4.7, -2.1, 4.9, 0.5), role="ffn", limits=limits)
    left, bottom, right, _ = WIDE
    cell = (right - left) / grid.shape[1]
    words = frame.facts["tokens"]
    if max(map(len, words)) > 2:  # written upwards under their columns
        for i, word in enumerate(words if cell > 0.2 else ()):
            up = fitted(word, 0.62, "floor", theme.colour("ink")).rotate(np.pi / 2)
            board.put(f"token{i}:word", up.shift(left + (i + 0.5) * cell - up.centre[0], bottom - 0.06 - up.box[3]))
    elif grid.shape[1] <= FEW_ACROSS:
        for i, word in enumerate(words):
            _word(board, f"token{i}:word", theme, word, (left + (i + 0.5) * cell, bottom - 0.2), "centre")
    number = frame.facts["layers"][layer]
    words = f"layer {number}: experts 0 (top) to {len(grid) - 1} down, tokens across"
    _word(board, "what:name", theme, words, (left, 2.85))
    return board


def _board(frame: Frame, theme: Theme) -> Board:
    made = Board()
    chrome(made, frame, theme, "")
    return made


def _word(board: Board, key: str, theme: Theme, text: str, at: Point, anchor: str = "left") -> None:
    board.put(key, label(text, "floor", theme.colour("ink")).at(*at, anchor))


STILLS = {"attention": attention, "token-trace": token_trace, "routing": routing}
"""A frame's key -> what draws it."""
