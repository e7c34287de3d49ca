"""Figure 8 drawn: no fault in any frame, of the recorded models and of readers'; the experts stay where they are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from morph.story import Figure, figure
from tests.tools import need

need("typst")

from scenes.board import Board  # noqa: E402
from scenes.boards import board  # noqa: E402
from scenes.fig08_stage import SHARED, TILES, Stage, cell  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.theme import theme  # noqa: E402

FRAMES = range(1, 13)
WITH_EXPERTS = (2, 3, 4, 5, 8, 9, 10, 11, 12)


@cache
def story(model: Any = None) -> Figure:
    return figure("moe", model=model)


@cache
def drawn(index: int, model: Any = None) -> Board:
    return board(story(model), index, theme("dark"))


@pytest.mark.parametrize(
    "model", [None, "moe", "shared-expert", 5], ids=["recorded", "8 experts", "untrained", "dense"]
)
@pytest.mark.parametrize("look", ["dark", "light"])
def test_no_frame_has_a_fault(look: str, model: Any) -> None:
    for index in FRAMES:
        made = board(story(model), index, theme(look))
        assert lint(made, theme(look)) == [], story(model).frames[index - 1].key


def test_experts_stay_in_their_places() -> None:
    places = drawn(2)["experts:tiles"].points
    for index in WITH_EXPERTS:
        np.testing.assert_allclose(drawn(index)["experts:tiles"].points, places)
    left, _, right, _ = TILES
    assert places[:, 0].min() == pytest.approx(left) and places[:, 0].max() < right < SHARED[0]


def test_the_dense_network_is_as_wide_as_what_a_token_uses() -> None:
    """It comes apart into the experts: as many pieces, and the width of eight of them."""
    whole, tiles = drawn(1)["experts:tiles"].points, drawn(2)["experts:tiles"].points
    assert whole.shape == tiles.shape
    assert np.ptp(whole[:, 0]) == pytest.approx(8 / 32 * (TILES[2] - TILES[0]), abs=0.05)


def test_chosen_experts_are_full_and_only_they() -> None:
    chosen = set(story().frames[2].arrays["chosen"].values.tolist())
    assert len(chosen) == 7
    for index in (2, 3, 5):
        tall = np.ptp(drawn(index)["experts:chosen"].points.reshape(32, -1, 3)[..., 1], axis=1)
        assert {e for e in range(32) if tall[e] > 0} == chosen


def test_the_grid_is_the_table() -> None:
    table = story().frames[3].arrays["table"].values
    centres = drawn(4)["grid:chosen"].points.reshape(table.sum(), -1, 3).mean(axis=1)
    stage = Stage(Board(), theme("dark"), story().frames[3])
    found = np.zeros_like(table)
    rows = np.unique(drawn(4)["grid:rest"].points.reshape((table == 0).sum(), -1, 3).mean(axis=1)[:, 1].round(3))[::-1]
    for x, y, _ in centres:
        expert = int(np.argmin([abs(x - stage.x(e)) for e in range(32)]))
        found[int(np.argmin(abs(rows - y))), expert] = 1
    np.testing.assert_array_equal(found, table)


def test_full_weights_are_drawn_in_proportion() -> None:
    """Frame 7: the full part of a strip is the share of the weights that is used."""
    frame = story().frames[6]
    for key, used, stored in zip(
        ("strip8", "experts", "strip256"), frame.arrays["used"].values, frame.arrays["stored"].values
    ):
        n = {"strip8": 8, "experts": 32, "strip256": 256}[key]
        tiles = drawn(7)[f"{key}:chosen"].points.reshape(n, -1, 3)
        full = sum(np.ptp(t[:, 0]) for t in tiles if np.ptp(t[:, 1]) > 0)
        assert full / (n * (cell(0, n, 0, 1)[2] - cell(0, n, 0, 1)[0])) == pytest.approx(used / stored)
