"""Charts put numbers where they belong, and heat maps turn them into colours that keep their order."""

from __future__ import annotations

import numpy as np
import pytest

from morph.errors import MorphError
from morph.story.frame import Claim, Frame
from morph.story.palette import ORGAN_ROLES
from tests.tools import need

need("typst")

from scenes.board import Board  # noqa: E402
from scenes.charts import LEVELS, Axes, Levels, arrow, axes, bars, dots, heat, line, number, scale, token_row  # noqa: E402
from scenes.chrome import chrome  # noqa: E402
from scenes.lint import Seen, lint  # noqa: E402
from scenes.theme import lightness, theme  # noqa: E402

DARK, LIGHT = theme("dark"), theme("light")
PLOT = Axes((0.0, 0.0, 4.0, 2.0), (0, 8), (-1, 1))


def _pieces(board: Board, key: str) -> np.ndarray:
    return Seen(key, board[key], 0).cells


def test_axes_map_data_to_units() -> None:
    assert PLOT.point(0, -1) == (0, 0)
    assert PLOT.point(2, 0.5) == (1, 1.5)
    log = Axes((0, 0, 4, 2), (1, 10_000), (0.1, 10), log_x=True, log_y=True)
    assert log.point(100, 1) == pytest.approx((2, 1))


def test_axes_have_their_ticks_where_the_data_are() -> None:
    made = Board()
    axes(made, "plot", DARK, PLOT, x_label="layer", y_label="RMS", x_ticks=(0, (4, "half")), y_ticks=(-1, 0.25))
    texts = {key: shape.text for key, shape in made.items() if hasattr(shape, "text")}
    assert texts == {
        "plot:x0": "0", "plot:x1": "half", "plot:y0": "−1", "plot:y1": "0.25",
        "plot:x.label": "layer", "plot:y.label": "RMS",
    }  # fmt: skip
    assert made["plot:x1"].centre[0] == pytest.approx(2)
    assert made["plot:y1"].centre[1] == pytest.approx(1.25, abs=0.01)
    assert [number(v) for v in (1234567, 1000, 0.25, -3)] == ["1,234,567", "1,000", "0.25", "−3"]
    assert [str(fault) for fault in lint(made, DARK)] == []


def test_a_line_goes_through_its_data_and_stops_at_a_gap() -> None:
    made = Board()
    line(made, "a", DARK, PLOT, [0, 2, 4, 6, 8], [0, 1, np.nan, 0, -1], "norm", name="loss")
    np.testing.assert_allclose(made["a:line"].points[[0, 3, 4, 7], :2], [[0, 1], [1, 2], [3, 1], [4, 0]])
    assert made["a:name"].box[0] == pytest.approx(4.14)


def test_dashes_lie_on_the_line_and_end_where_it_ends() -> None:
    made = Board()
    xs = np.linspace(0, 8, 40)
    line(made, "a", DARK, PLOT, xs, xs / 4 - 1, "norm", dash=True)
    points = made["a:line"].points
    np.testing.assert_allclose(points[:, 1], points[:, 0] / 2, atol=1e-9)
    np.testing.assert_allclose(points[[0, -1], :2], [[0, 0], [4, 2]], atol=1e-9)
    drawn = np.hypot(*(points[3::4] - points[::4]).T[:2]).sum()
    assert 0.55 < drawn / np.hypot(4, 2) < 0.7


def test_bars_are_to_scale_and_lit_ones_stand_apart() -> None:
    made, area = Board(), Axes((0, 0, 4, 2), (-0.5, 3.5), (-1, 3))
    bars(made, "b", DARK, area, [1, 3, -1, 0.5], "ffn", lit={1}, gap=0.5)
    assert made["b:lit"].box == pytest.approx((1.25, 0.5, 1.75, 2.0))
    np.testing.assert_allclose(
        _pieces(made, "b:bars"), [[0.25, 0.5, 0.75, 1], [2.25, 0, 2.75, 0.5], [3.25, 0.5, 3.75, 0.75]]
    )
    assert made["b:lit"].fill == DARK.colour("ffn") != made["b:bars"].fill


def test_dots_leave_out_what_is_not_there() -> None:
    made = Board()
    dots(made, "d", DARK, PLOT, [0, 4, 8], [0, np.nan, 1], "norm", size=0.1)
    np.testing.assert_allclose(_pieces(made, "d:dots"), [[-0.1, 0.9, 0.1, 1.1], [3.9, 1.9, 4.1, 2.1]], atol=1e-3)


# ---- heat maps ----


@pytest.mark.parametrize("look", [DARK, LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize("role", [*ORGAN_ROLES, "ink"])
def test_lightness_rises_or_falls_all_the_way(look, role: str) -> None:
    steps = [lightness(c) for c in (look.colour("background"), *Levels(role, 0, 1, False).colours(look))]
    away = np.sign(steps[-1] - steps[0])
    assert (np.diff(steps) * away > 0.012).all()
    signed = [lightness(c) for c in Levels(role, -1, 1, True).colours(look)]
    middle = len(signed) // 2
    assert signed[middle] == lightness(look.colour("panel"))
    assert (np.diff(signed[middle:]) * away > 0.02).all() and (np.diff(signed[: middle + 1]) * away < -0.02).all()


def test_levels_of_numbers() -> None:
    plain = Levels("attention", 0.0, 1.2, False)
    assert plain.of(np.array([-5, 0, 0.09, 0.11, 1.19, 1.2, 7, np.nan])).tolist() == [0, 0, 0, 1, 11, 11, 11, -1]
    signed = Levels("attention", -1.1, 1.1, True)
    assert signed.of(np.array([-1.1, -0.05, 0, 0.05, 0.11, 1.1])).tolist() == [0, 5, 5, 5, 6, 10]
    assert len(plain.colours(DARK)) == LEVELS == 12 and len(signed.colours(DARK)) == 11


def test_cells_stand_where_their_numbers_do() -> None:
    """Seen at the middle of each cell, a map's colours are those of its numbers; what is NaN is bare."""
    values = np.random.default_rng(0).uniform(size=(6, 9))
    values[np.arange(6)[:, None] < np.arange(9)[None, :] - 3] = np.nan
    for gap in (0.0, 0.2):
        made, at = Board(), (-1.0, -1.0, 3.5, 2.0)
        heat(made, "m", DARK, values, at, limits=(0, 1), gap=gap)
        y, x = np.mgrid[0:6, 0:9]
        middles = np.stack([-1 + (x + 0.5) * 0.5, 2 - (y + 0.5) * 0.5], axis=-1).reshape(-1, 2)
        seen = np.full(54, -1)
        for key, shape in made.items():
            seen[Seen(key, shape, 0).holds(middles)] = int(key.removeprefix("m:level"))
        assert np.array_equal(seen.reshape(6, 9), Levels("attention", 0, 1, False).of(values))


def test_equal_neighbours_are_one_piece() -> None:
    made = Board()
    heat(made, "m", DARK, np.array([[0, 0, 1, 0], [1, 1, 1, 1]], dtype=float), (0, 0, 4, 2), limits=(0, 1))
    assert {key: len(_pieces(made, key)) for key in made} == {"m:level0": 2, "m:level11": 2}
    assert all(shape.extent == (0, 0, 4, 2) for shape in made.values())
    np.testing.assert_allclose(_pieces(made, "m:level11"), [[1.99, 0.99, 3.01, 2], [0, 0, 4, 1.01]])


def test_a_signed_map_has_symmetric_limits() -> None:
    made = Board()
    heat(made, "m", DARK, np.array([[-1.0, 3.0]]), (0, 0, 2, 1), signed=True)
    assert made["m:level10"].levels == Levels("attention", -3, 3, True)
    with pytest.raises(ValueError, match="symmetric"):
        heat(made, "n", DARK, np.array([[1.0]]), (0, 0, 1, 1), signed=True, limits=(0, 1))


def test_a_scale_shows_every_level_and_prints_its_limits() -> None:
    made = Board()
    scale(made, "s", DARK, (0, 0, 0.2, 2.4), limits=(0, 0.5))
    scale(made, "t", DARK, (1, 0, 3, 0.2), limits=(-2, 2), signed=True, text="{:+.1f}")
    assert [made[f"s:level{i}"].fill for i in range(12)] == Levels("attention", 0, 0.5, False).colours(DARK)
    texts = {key: shape.text for key, shape in made.items() if hasattr(shape, "text")}
    assert texts == {"s:low": "0", "s:high": "0.5", "t:low": "−2.0", "t:zero": "+0.0", "t:high": "+2.0"}
    assert [str(fault) for fault in lint(made, DARK)] == []


# ---- words and arrows, chrome ----


def test_tokens_are_centred_and_a_blank_has_no_outline() -> None:
    made = Board()
    token_row(made, "t", DARK, ["def", " ", "f"], [0, 1, 2], 0.5, lit={2})
    assert list(made) == ["t:0", "t:2"]
    assert [made[key].centre[0] for key in made] == pytest.approx([0, 2])
    assert made["t:2"].fill == DARK.colour("ink") != made["t:0"].fill


def test_an_arrow_points_at_its_end() -> None:
    made = Board()
    arrow(made, "a", DARK, (0, 0), (3, 4))
    np.testing.assert_allclose(made["a:tip"].points[0, :2], [3, 4])
    end = made["a:line"].points[-1, :2]
    assert 0.05 < np.hypot(*(end - [3, 4])) < 0.3
    assert end[1] / end[0] == pytest.approx(4 / 3)


def _framed(caption: str, **rest) -> Board:
    made, claim = Board(), Claim(text="", holds=lambda frame: True)
    frame = Frame(key="k", title="A title", caption=caption, alt="", claim=claim, **rest)
    chrome(made, frame, DARK, "03 / 12")
    return made


@pytest.mark.parametrize("caption", ["Short.", "a rather long caption " * 7])
def test_the_caption_band_holds_caption_and_source(caption: str) -> None:
    made = _framed(caption, source="Stage 9, tiny, seed 0, blocks.3.attention.weights", facts={"aside": "stage 9"})
    assert {"title", "aside", "caption:text", "caption:note", "caption:count"} < set(made)
    assert [str(fault) for fault in lint(made, DARK)] == []
    assert {"aside", "caption:note", "caption:force"}.isdisjoint(_framed(caption))


def test_a_long_source_wraps_under_a_short_caption_and_is_refused_under_a_long_one() -> None:
    long = "where the numbers come from, said at length " * 4
    made = _framed("Short.", source=long)
    assert made["caption:note"].lines == 2
    assert [str(fault) for fault in lint(made, DARK)] == []
    with pytest.raises(MorphError, match=r"frame 'k': caption and source take 2 and 2 lines .*shorten its source"):
        _framed("a rather long caption " * 7, source=long)
