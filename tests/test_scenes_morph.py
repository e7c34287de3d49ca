"""Figure 1 drawn: what each transition changes, and that sizes are numbers."""

from __future__ import annotations

import numpy as np
import pytest

from morph.steps import STEPS, Step
from morph.story.block import touched
from tests.scene_boards import board, fresh_board, story
from tests.tools import need

need("typst"), need("manim")

from manim import Camera, tempconfig  # noqa: E402

from scenes.board import covered, difference  # noqa: E402
from scenes.camera import QuickCamera, mobject  # noqa: E402
from scenes.chrome import is_chrome  # noqa: E402
from scenes.shape import Shape, outlines  # noqa: E402
from scenes.theme import theme  # noqa: E402


def _thing(key: str) -> str:
    return key.removeprefix("gone:").split(":")[0]


def _only_the_light_goes_out(old: Shape, new: Shape) -> bool:
    """Whether two parts differ in colour alone."""
    text = getattr(old, "text", None) == getattr(new, "text", None)
    return text and old.points.shape == new.points.shape and np.allclose(old.points, new.points)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.slug)
def test_a_transition_changes_only_the_keys_of_its_step(step: Step) -> None:
    k = step.number
    old, new = fresh_board(k - 1), fresh_board(k)
    drawn = dict(new)
    change = difference(old, new)
    diagram = {key for key in change.changed if not is_chrome(key) and not key.startswith(("config", "ledger"))}
    own = touched(step.paths)
    lit_before = set(story().frames[k - 2].facts["changed"]) if k > 1 else set()
    shown = set()
    for key in diagram:
        if _thing(key) in own:
            shown.add(_thing(key))
        elif key in old and key in new:
            assert _thing(key) in lit_before, f"{key} changes, but step {k} does not touch it"
            assert _only_the_light_goes_out(old[key], drawn[key]), key
        else:
            assert key in old and key.startswith("gone:"), f"{key} comes or goes, but step {k} does not touch it"
    assert shown == set(story().frames[k - 1].facts["changed"])


@pytest.mark.parametrize("k", range(1, 15))
def test_ledger_numbers_change_where_the_value_did(k: int) -> None:
    old, new = fresh_board(k - 1), fresh_board(k)
    change = difference(old, new)
    for row in story().frames[k - 1].facts["ledger"]:
        key = f"ledger.{row['key']}"
        assert f"{key}:label" in change.keep
        assert (f"{key}:value" in change.swap) == (old[f"{key}:value"].text != row["value"])
        assert f"{key}:now" in change.move  # the history's bar for this stage


def test_what_two_stills_share_is_one_object() -> None:
    old, new = fresh_board(4), fresh_board(5)
    change = difference(old, new)
    assert len(change.keep) > 40
    for key in ("stream", "block", "attention:box", "attention:queries", "feed_forward.in", "source:1"):
        assert new[key] is old[key], key
    assert new["feed_forward:activation.curve"] is not old["feed_forward:activation.curve"]


def test_what_lies_over_a_moving_part_is_drawn_again() -> None:
    old, new = fresh_board(0), fresh_board(1)
    change = difference(old, new)
    again = covered(old, new, change)
    assert "attention.norm:box" in change.move
    assert "attention.add" not in change.changed and "stream" not in again
    assert all(key in change.keep for key in again)


def test_the_norms_leave_the_stream() -> None:
    """Their centres move from the stream's x to the branch; nothing else stands on the stream but the additions."""
    before, after = board(0), board(1)
    x = float(before["stream"].points[0, 0])
    for key in ("attention.norm:box", "feed_forward.norm:box"):
        assert (before[key].box[0] + before[key].box[2]) / 2 == pytest.approx(x)
        assert after[key].box[0] > x + 0.3
    assert "final_norm:box" in after and "final_norm:box" not in before


def test_areas_of_the_matrices_are_their_parameters() -> None:
    def area(index: int) -> float:
        parts = (board(index).get(f"feed_forward:{part}") for part in ("first", "value", "last"))
        return sum((b[2] - b[0]) * (b[3] - b[1]) for m in parts if m is not None for b in [m.box])

    assert area(6) == pytest.approx(area(5), rel=1e-6)


def test_history_bars_are_to_scale() -> None:
    """The bar of a stage is as high as its number on the scale of all stages."""
    totals = story().frames[-1].arrays["parameters_total"].values
    heights = []
    for k in (6, 10, 14):
        low, high = board(k)["ledger.parameters:now"].box[1::2]
        heights.append(high - low)
    np.testing.assert_allclose(np.array(heights) / heights[-1], totals[[6, 10, 14]] / totals[14], rtol=1e-3)


def test_masks_show_the_window_they_have() -> None:
    """A local layer's rows are a window's share of the side wide, but where the text is shorter."""
    full, local = board(9)["attention.mask:layer4"], board(9)["attention.mask:layer1"]
    side = full.box[2] - full.box[0]
    rows = local.points.reshape(8, -1, 3)
    widths = rows[:, :, 0].max(axis=1) - rows[:, :, 0].min(axis=1)
    np.testing.assert_allclose(widths / side, [1 / 8] + [2 / 8] * 7, atol=1e-6)


def test_experts_are_as_many_as_there_are() -> None:
    for k, experts, chosen in ((10, 8, 2), (11, 32, 8), (12, 32, 7)):
        made = board(k)
        pieces = {part: len(outlines(made[f"feed_forward:{part}"].points)) for part in ("experts", "chosen")}
        assert pieces == {"experts": experts - chosen, "chosen": chosen}


def test_the_quick_camera_draws_what_manims_draws() -> None:
    background, shapes = theme("dark").colour("background"), board(12).values()
    with tempconfig({"pixel_width": 427, "pixel_height": 240}):
        plain, quick = (kind(background_color=background) for kind in (Camera, QuickCamera))
        plain.capture_mobjects([mobject(shape) for shape in shapes])
        pictures = [quick.picture(shapes), quick.picture(shapes)]  # the second time from remembered outlines
    off = np.abs(plain.pixel_array.astype(int) - pictures[0])
    assert off.max() <= 12 and (off > 4).mean() < 1e-3  # edges of what is handed over as lines are rounded once less
    assert np.array_equal(pictures[0], pictures[1])
