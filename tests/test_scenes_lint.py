"""The lint finds each fault when one is planted, and none where there is none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from morph.story import figure
from tests.scene_boards import sweep
from tests.tools import need

need("typst")

from scenes.board import Board  # noqa: E402
from scenes.charts import heat, scale  # noqa: E402
from scenes.fig01_morph import board as draw  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.parts import organ, panel, polygons, rectangles, wire  # noqa: E402
from scenes.theme import Theme, theme  # noqa: E402
from scenes.type import Label, label  # noqa: E402

DARK, LIGHT = theme("dark"), theme("light")


def _rules(look: Theme = DARK, cut: float | None = None, **parts) -> set[tuple[str, tuple[str, ...]]]:
    made = Board()
    made.cut = cut
    for key, shape in parts.items():
        made.put(key, shape)
    return {(fault.rule, fault.keys) for fault in lint(made, look)}


def _text(x: float = 0, y: float = 0, colour: str = "ink", look: Theme = DARK) -> Label:
    return label("some text", "floor", look.colour(colour)).at(x, y, "centre")


def test_a_clean_board_has_no_fault() -> None:
    at = (-1, -0.5, 1, 0.5)
    assert _rules(box=organ(DARK, "ffn", at), text=_text(), line=wire(DARK, [(-3, -1), (3, -1)])) == set()


def test_off_the_frame_and_in_the_margin() -> None:
    assert _rules(text=_text(x=7)) == {("off the frame", ("text",))}
    assert _rules(text=_text(x=-6.5)) == {("in the margin", ("text",))}
    assert _rules(box=panel(DARK, (5, 0, 7.3, 1))) == {("off the frame", ("box",))}


def test_text_under_the_floor() -> None:
    small = _text()
    small.size = 9
    assert _rules(text=small) == {("under the floor", ("text",))}
    formula = {size: label("$x_i$", size, DARK.colour("ink"), markup=True) for size in ("floor", "label")}
    assert _rules(text=formula["floor"]) == {("under the floor", ("text",))}
    assert _rules(text=formula["label"]) == set()


def test_low_contrast_counts_what_lies_under_the_text() -> None:
    assert _rules(text=_text(colour="#3A4048")) == {("low contrast", ("text",))}
    at = (-1, -0.5, 1, 0.5)
    lit = organ(DARK, "norm", at, lit=True)
    assert _rules(box=lit, text=_text(colour="ink")) == {("low contrast", ("text",))}
    assert _rules(box=lit, text=_text(colour="background")) == set()
    assert _rules(LIGHT, text=_text(colour="norm", look=LIGHT)) == {("low contrast", ("text",))}


def test_two_texts_on_one_spot() -> None:
    assert _rules(a=_text(), b=_text(x=0.3)) == {("texts overlap", ("a", "b"))}


def test_text_across_an_edge() -> None:
    assert _rules(box=organ(DARK, "ffn", (0, -0.5, 2, 0.5)), text=_text()) == {("text across an edge", ("text", "box"))}


def test_a_line_through_text_unless_something_opaque_lies_between() -> None:
    line, at = wire(DARK, [(-3, 0), (3, 0)]), (-1, -0.5, 1, 0.5)
    assert _rules(line=line, text=_text()) == {("line through text", ("text", "line"))}
    assert _rules(text=_text(), line=line) == {("line through text", ("text", "line"))}
    assert _rules(line=line, box=organ(DARK, "ffn", at), text=_text()) == set()


def test_shapes_that_half_cover_each_other() -> None:
    a, b = organ(DARK, "ffn", (0, 0, 2, 1)), organ(DARK, "norm", (1, 0.5, 3, 2))
    assert _rules(a=a, b=b) == {("shapes overlap", ("a", "b"))}
    assert _rules(a=a, b=organ(DARK, "norm", (0.5, 0.2, 1.5, 0.8))) == set()


def test_what_only_the_bounding_boxes_share_is_no_fault() -> None:
    """A slanted shape beside text, and two that stand corner to corner."""
    slope = polygons(DARK.tint("ffn", 0.1), [[(-2, -1), (2, 1), (2, 0.8), (-2, -1.2)]])
    assert _rules(slope=slope, text=_text(x=-1.2, y=0.5)) == set()
    assert _rules(slope=slope, text=_text(x=0.2, y=0)) == {("text across an edge", ("text", "slope"))}
    corner = polygons(DARK.colour("norm"), [[(-2, 1), (0, 1), (-2, 0)]])
    assert _rules(slope=slope, corner=corner) == set()


def test_an_empty_bar_is_not_seen() -> None:
    assert _rules(bar=rectangles(DARK.colour("ffn"), [(-2, 0, 2, 0)]), text=_text()) == set()


def test_off_the_stage() -> None:
    assert _rules(box=panel(DARK, (0, -2.9, 1, 0))) == {("off the stage", ("box",))}
    assert _rules(line=wire(DARK, [(0, 0), (0, 3.4)])) == {("off the stage", ("line",))}
    assert _rules(title=_text(y=3.5)) == set()


def test_something_across_the_cut() -> None:
    cut = 1.0
    assert _rules(cut=cut, left=panel(DARK, (0, 0, 1, 1)), right=panel(DARK, (1, 0, 2, 1))) == set()
    assert _rules(cut=cut, box=panel(DARK, (0, 0, 1.1, 1))) == {("across the cut", ("box",))}
    assert _rules(cut=cut, line=wire(DARK, [(0, 0), (2, 0)])) == {("across the cut", ("line",))}
    assert _rules(cut=cut, title=_text(x=1, y=3.5)) == set()


def _map(key: str = "map", **options) -> Board:
    """Four cells, the two at the right on the highest level."""
    made = Board()
    heat(made, key, DARK, np.array([[0.0, 1.0], [0.0, 1.0]]), (-2, -1, 2, 1), **options)
    return made


def test_a_heat_map_needs_a_scale_of_the_same_meaning() -> None:
    def found(**options) -> list[str]:
        made = _map()
        if options:
            scale(made, "scale", DARK, (3, -1, 3.2, 1), **options)
        return [str(fault) for fault in lint(made, DARK)]

    assert found() == ["heat map without scale: map:level0 attention from 0 to 1"]
    assert found(limits=(0, 1)) == []
    assert len(found(limits=(0, 2))) == len(found(limits=(0, 1), role="cache")) == 1


def test_text_on_a_heat_map_must_read_on_every_level_under_it() -> None:
    def found(x: float, colour: str) -> set[str]:
        made = _map()
        scale(made, "scale", DARK, (3, -1, 3.2, 1), limits=(0, 1))
        made.put("text", _text(x=x, colour=colour))
        return {fault.rule for fault in lint(made, DARK)}

    assert found(-1, "ink") == found(1, "background") == set()
    assert found(-1, "background") == found(1, "ink") == {"low contrast"}
    assert found(0, "ink") == found(0, "background") == {"low contrast"}
    assert found(2, "ink") >= {"text across an edge"}


@pytest.mark.parametrize("index", [0, 7, 10, 12, 14])
def test_figure_1_has_room_for_a_larger_model(index: int) -> None:
    """Size small, with costs hundreds of times the tiny ones and a long context."""
    costs = ("parameters_total", "parameters_active", "kv_bytes_per_token", "cache_bytes", "flops_per_token")
    stages = tuple(
        dataclasses.replace(r, cache_context=131_072, **{name: 260 * getattr(r, name) for name in costs})
        for r in sweep().stages
    )
    large = dataclasses.replace(sweep(), size="small", steps=20_000, stages=stages)
    assert [str(f) for f in lint(draw(figure("morph", sweep=large), index, DARK), DARK)] == []
