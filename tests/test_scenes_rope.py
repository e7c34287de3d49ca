"""Figure 3 drawn: hands that turn, a number that stays, dials filled as far as they were seen."""

from __future__ import annotations

import numpy as np
import pytest

from morph.story.rope_pairs import SLIDE
from tests.scene_boards import board, fresh_board, kept
from tests.tools import need

need("typst"), need("manim")

from scenes.board import difference  # noqa: E402
from scenes.camera import mobject  # noqa: E402
from scenes.dials import sector  # noqa: E402
from scenes.fig03_rope import CENTRE, RADIUS  # noqa: E402
from scenes.play import Film, animations  # noqa: E402
from scenes.shape import Shape  # noqa: E402
from scenes.theme import theme  # noqa: E402


def _area(shape: Shape) -> float:
    """By the shoelace formula, for an outline of straight curves."""
    x, y = shape.points[0::4, 0], shape.points[0::4, 1]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def _reach(points: np.ndarray) -> float:
    return float(np.hypot(*(points[:, :2] - CENTRE).T).max())


def _frame(index: int) -> dict[str, np.ndarray]:
    return {name: array.values for name, array in kept("rope").frames[index - 1].arrays.items()}


def test_hands_stand_where_the_data_say() -> None:
    facts = kept("rope").frames[6].facts
    for name in ("query", "key"):
        walk = _frame(7)[name]
        points = board(7, name="rope")[f"hands:{name}"].points[:, :2] - CENTRE
        tip = points[np.hypot(*points.T).argmax()]
        np.testing.assert_allclose(tip * facts["reach"] / (0.94 * RADIUS), walk[-1], atol=2e-3)


def test_a_slide_turns_the_hands_and_does_not_shrink_them() -> None:
    """Half way through the film's transition a hand is as long as before, at half of the angle."""
    old, new = fresh_board(6, name="rope"), fresh_board(7, name="rope")
    change = difference(old, new)
    assert {"hands:query", "hands:key", "gap:arc"} <= set(change.move)
    speed = kept("rope").frames[6].facts["speed"]
    assert new["hands:query"].heading - old["hands:query"].heading == pytest.approx(SLIDE * speed)
    objects = {id(made["hands:query"]): mobject(made["hands:query"]) for made in (old, new)}
    change.move, change.leave, change.swap, change.enter = ["hands:query"], [], [], []
    (turn,) = animations(old, new, change, lambda shape: objects[id(shape)])
    turn.begin()
    turn.interpolate(0.5)
    half = turn.mobject.points
    assert _reach(half) == pytest.approx(_reach(old["hands:query"].points), rel=1e-4)
    tip = half[np.hypot(*(half[:, :2] - CENTRE).T).argmax(), :2] - CENTRE
    middle = (new["hands:query"].heading + old["hands:query"].heading) / 2
    assert np.exp(1j * np.arctan2(tip[1], tip[0])) == pytest.approx(np.exp(1j * middle), abs=1e-3)


def test_hands_that_leave_are_not_hidden_by_their_moving_dial() -> None:
    """From frame 7 to 8 the dial shrinks into its place among twelve; the hands fade on top of it."""
    old, new = fresh_board(7, name="rope"), fresh_board(8, name="rope")
    film = Film([], theme("dark"))
    film._arrange(old, new, difference(old, new))
    order = [film.mobjects.index(film.cast(old[key])) for key in ("pair2:ring", "hands:key", "hands:query")]
    assert order == sorted(order)


def test_the_score_stays_the_same_object_while_both_slide() -> None:
    old, new = fresh_board(6, name="rope"), fresh_board(7, name="rope")
    change = difference(old, new)
    assert {"score:value", "gap:value", "formula", "pair2:ring"} <= set(change.keep)
    assert new["score:value"] is old["score:value"]


def test_dials_are_filled_as_far_as_they_turned() -> None:
    turns, drawn = _frame(8)["turns"], board(8, name="rope")
    whole = _area(sector(theme("dark"), (0, 0), 0.83, 0, 7, "position"))
    for i, turned in enumerate(turns):
        assert _area(drawn[f"pair{i}:swept"]) / whole == pytest.approx(min(1, turned), abs=0.02)


def test_dials_stand_at_their_wavelengths() -> None:
    waves, drawn = _frame(9)["wavelengths"], board(9, name="rope")
    x = np.array([drawn[f"pair{i}:ring"].centre[0] for i in range(len(waves))])
    slope = np.diff(x) / np.diff(np.log(waves))
    np.testing.assert_allclose(slope, slope[0], rtol=1e-3)
    line = drawn["trained:line"].points[0, 0]
    assert (x < line).sum() == kept("rope").frames[8].facts["full"]


@pytest.mark.parametrize("look", ["dark", "light"])
def test_new_angles_are_marked_and_no_others(look: str) -> None:
    frame, drawn = kept("rope").frames[11], board(12, look, name="rope")
    colour = theme(look).colour("position")
    for row, new in enumerate(frame.facts["new"]):
        rings = {key: shape for key, shape in drawn.items() if key.startswith(f"scheme{row}.") and key.endswith("ring")}
        assert len(rings) == 12
        assert sum(shape.stroke == colour for shape in rings.values()) == new
        hands = [key for key in drawn if key.startswith(f"scheme{row}.") and key.endswith("hand")]
        assert len(hands) == frame.facts["turned"][row]


def test_a_masked_weight_is_not_drawn_as_a_small_one() -> None:
    """Behind the causal mask there is no cell; without a mask there are all eight."""
    drawn, frame = board(1, name="rope"), kept("rope").frames[0]
    place = frame.arrays["order"].values.tolist().index(frame.facts["token"])

    def cells(strip: str) -> int:
        return sum(len(s.points) // 16 for key, s in drawn.items() if key.startswith(f"{strip}.weights:"))

    assert cells("open.after") == 8
    assert cells("causal.after") == place + 1
