"""Text as outlines: baseline, placing, escaping, breaking lines."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools import need

need("typst")

from scenes.shape import outlines  # noqa: E402
from scenes.theme import SIZES, UNITS_PER_POINT  # noqa: E402
from scenes.type import CAP_HEIGHT, _path, label, literal  # noqa: E402


def _bottom(text: str, **options) -> float:
    return float(label(text, "body", **options).points[:, 1].min())


def _contours(text: str, **options) -> int:
    return len(outlines(label("H" + text, "body", **options).points)) - 1


def test_capitals_stand_on_the_baseline_and_are_as_high_as_stated() -> None:
    points = label("H", "title").points
    assert points[:, 1].min() == pytest.approx(0, abs=1e-3)
    assert points[:, 1].max() == pytest.approx(CAP_HEIGHT * SIZES["title"] * UNITS_PER_POINT, abs=3e-3)
    assert _bottom("Hg") < -0.04


def test_descenders_do_not_move_a_label() -> None:
    plain, deep = label("Hnh", "body").at(1, 2), label("Hgh", "body").at(1, 2)
    first = [m.points[:28] for m in (plain, deep)]  # the H of both
    np.testing.assert_allclose(first[0], first[1], atol=1e-6)


def test_placing() -> None:
    for anchor, pick in (("left", np.min), ("right", np.max)):
        assert pick(label("Text", "body").at(-1.5, 0, anchor).points[:, 0]) == pytest.approx(-1.5)
    centred = label("Text", "body").at(0.5, 1, "centre").points[:, 0]
    assert (centred.min() + centred.max()) / 2 == pytest.approx(0.5)
    high = label("H", "body").at(0, 1).points[:, 1]
    assert (high.min() + high.max()) / 2 == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("text", ["= d", "- b", "// c", "#x", "$5", "@k", "*a*", "_a_", "<l>", "~", '"q"', "a\\b"])
def test_plain_text_is_never_markup(text: str) -> None:
    """Each character leaves its outline, none more and none less."""
    apart = sum(_contours(c) for c in text)
    assert _contours(text) == apart


def test_literal_escapes_only_what_it_must() -> None:
    assert literal('a"b\\c#') == '#"a\\"b\\\\c#"'


def test_lines_break_at_the_width_and_hang_from_the_first() -> None:
    one, many = label("down, several words", "body"), label("down, several words", "body", width=1.2)
    assert many.width <= 1.2 < one.width
    assert many.points[:, 1].min() < -0.3
    assert many.points[:, 1].max() == pytest.approx(one.points[:, 1].max(), abs=1e-6)  # the d of the first line


def test_formulas_have_their_bar() -> None:
    assert _contours(" $a / b$", markup=True) == _contours(" $a b$", markup=True) + 1


def test_outlines_close_as_svg_closes_them() -> None:
    triangle = _path("M 0 0 l 2 0 L 0 2 Z")
    assert triangle.shape == (12, 2)
    np.testing.assert_allclose(triangle[-1], [0, 0])
    curve = _path("m 1 1 q 1 2 2 0 h 1 V 5")
    np.testing.assert_allclose(curve[:4], [[1, 1], [1 + 2 / 3, 1 + 4 / 3], [3 - 2 / 3, 1 + 4 / 3], [3, 1]])
    np.testing.assert_allclose(curve[-1], [4, 5])


def test_lines_are_counted() -> None:
    assert [label(text, "body").lines for text in ("H", "go", "ace")] == [1, 1, 1]
    wrapped = [label("down, several words " * n, "body", width=2.6) for n in (1, 2, 3)]
    assert [words.lines for words in wrapped] == [1, 2, 3]


def test_the_baseline_turns_with_its_label() -> None:
    words = label("stream", "floor").at(1, 2)
    x, y = words.origin
    assert (x + words.advance, y) == pytest.approx((words.box[2], words.box[1]), abs=5e-3)
    words.rotate(np.pi / 2).move_to((0, 0))
    left, bottom, right, _ = words.box
    assert (words.origin[0], words.origin[1]) == pytest.approx((right, bottom), abs=2e-2)
    assert words.lines == 1 and right - left < words.height
