"""Figure 2, drawn: clean for models of other shapes too, the stream in one place and thicker than any other line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import morph
from morph.config import ModelConfig
from morph.story import Figure, figure
from tests.scene_boards import board, kept
from tests.tools import need

need("typst")

from scenes.boards import board as draw  # noqa: E402
from scenes.fig02_parts import BELOW, THICK, greatest, layer_ticks, spread  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.theme import theme  # noqa: E402
from scenes.type import Label  # noqa: E402

EIGHT = morph.stage(8, "nano")


@pytest.mark.parametrize(
    "config",
    [morph.stage(0, "nano"), dataclasses.replace(EIGHT, n_layers=1), morph.stage(13, "tiny")],
    ids=["2017", "one layer", "wide, with experts"],
)
def test_other_models_are_drawn_cleanly(config: ModelConfig) -> None:
    made = Figure.from_dict(figure("residual", model=config).to_dict())
    faults = {k: [str(f) for f in lint(draw(made, k, theme("light")), theme("light"))] for k in range(1, 14)}
    assert {k: found for k, found in faults.items() if found} == {}


def test_the_stream_stays_where_it_is_and_is_the_thickest_line() -> None:
    drawn = []
    for index in range(1, 14):
        lines = {k: s.stroke_width for k, s in board(index, name="residual").items() if not isinstance(s, Label)}
        assert max(lines.values()) <= THICK
        if "stream" in lines:
            drawn.append(index)
            assert lines["stream"] == THICK
            assert [k for k, width in lines.items() if width == THICK and k not in ("stream", "rms:line")] == []
            assert {round(float(y), 6) for y in board(index, name="residual")["stream"].points[:, 1]} == {1.5}
    assert drawn == [1, 2, 3, 4, 5, 9, 10]


def test_what_a_reader_sees_says_how_the_sum_is_made() -> None:
    feature = kept("residual").frames[1].facts["feature"]
    words = {key: shape.text for key, shape in board(2, name="residual").items() if isinstance(shape, Label)}
    for key in ("before", "delta", "after"):
        assert words[f"feature:{key}.value"] == f"{feature[key]:.2f}".replace("-", "−")


def test_names_move_apart_only_where_they_collide() -> None:
    placed = spread({"a": 0.0, "b": 0.1, "c": 0.05, "d": 3.0})
    assert placed["d"] == 3.0
    assert [key for key, _ in sorted(placed.items(), key=lambda item: item[1])] == ["a", "c", "b", "d"]
    gaps = np.diff(sorted(placed.values()))
    assert gaps.min() >= BELOW - 1e-5
    assert placed["c"] == pytest.approx(0.05, abs=1e-3)


def test_limits_and_ticks() -> None:
    assert greatest(np.array([0.1, -3.14])) == pytest.approx(3.2)
    assert greatest(np.array([32.0])) == 32
    assert layer_ticks(24) == [0, 6, 12, 18, 24]
    assert layer_ticks(4) == [0, 1, 2, 3, 4]
    assert layer_ticks(1) == [0, 1]
