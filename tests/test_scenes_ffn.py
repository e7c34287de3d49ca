"""Figure 5 drawn of models that are not the recorded ones: no fault, whatever their widths."""

from __future__ import annotations

from functools import cache

import pytest

from morph.story import Figure, figure
from tests.tools import need

need("typst")

from scenes.boards import board  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.theme import theme  # noqa: E402


@cache
def story(model: int | str) -> Figure:
    return figure("ffn", model=model)


@pytest.mark.parametrize("model", [4, 14, "clamped-swiglu"], ids=["two matrices", "narrow shared expert", "clamped"])
@pytest.mark.parametrize("look", ["dark", "light"])
def test_no_frame_has_a_fault(look: str, model: int | str) -> None:
    for index, frame in enumerate(story(model).frames, 1):
        assert lint(board(story(model), index, theme(look)), theme(look)) == [], frame.key


def test_open_gates_are_filled_in_all_three_rows() -> None:
    frame = story(14).frames[4]
    made, passes = board(story(14), 5, theme("dark")), frame.facts["passes"]
    for name in ("gate", "value", "product"):
        assert (f"{name}:lit" in made) == bool(passes)
