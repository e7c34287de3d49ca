"""What holds of every figure: a clean look, transitions that leave alone what stays, digests, stills, data for pages.

Figures are drawn from data in the repository (`golden/NAME.figure.json`). `MORPH_GOLDEN=write` records digests and
stills anew, `MORPH_GOLDEN=data` the figures' data too.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from morph.story import Figure, names
from morph.story.frame import absent
from tests.scene_boards import GOLDEN, WRITE, board, fresh_board, kept
from tests.tools import need

need("typst"), need("manim")

from manim import tempconfig  # noqa: E402
from PIL import Image  # noqa: E402

from scenes.absent import MIDDLE  # noqa: E402
from scenes.board import Board, Still, difference, same  # noqa: E402
from scenes.boards import BOARDS, drawing, indices  # noqa: E402
from scenes.boards import board as draw  # noqa: E402
from scenes.camera import QuickCamera  # noqa: E402
from scenes.chrome import is_chrome  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.play import Film  # noqa: E402
from scenes.shape import Shape  # noqa: E402
from scenes.theme import theme  # noqa: E402
from scenes.type import Label  # noqa: E402

LOOKS = ("dark", "light")
SIZE = (427, 240)

every_figure = pytest.mark.parametrize("name", BOARDS)
both_themes = pytest.mark.parametrize("look", LOOKS)


def test_every_figure_is_drawn() -> None:
    assert set(BOARDS) == set(names())


@every_figure
@both_themes
def test_every_still_is_clean(name: str, look: str) -> None:
    faults = {k: [str(fault) for fault in lint(board(k, look, name), theme(look))] for k in indices(kept(name))}
    assert {k: found for k, found in faults.items() if found} == {}


@every_figure
def test_what_does_not_change_is_one_object(name: str) -> None:
    for k in indices(kept(name))[1:]:
        old, new = fresh_board(k - 1, name=name), fresh_board(k, name=name)
        alike = {key for key in new if key in old and same(old[key], new[key])}
        change = difference(old, new)
        assert set(change.keep) == alike
        assert all(new[key] is old[key] for key in alike)
        assert "caption:band" in alike, f"frame {k} keeps nothing of the one before"


@every_figure
def test_all_transitions_play(name: str) -> None:
    """A dry run: every animation begins, moves and ends, and the last picture is the last board."""
    stills = [Still(str(k), fresh_board(k, name=name), 1.0, "words") for k in indices(kept(name))]
    settings = {"dry_run": True, "progress_bar": "none", "disable_caching": True, "frame_rate": 2, "verbosity": "ERROR"}
    with tempconfig({**settings, "pixel_width": 64, "pixel_height": 36}):
        film = Film(stills, theme("dark"))
        film.render()
    assert len(film.starts) == len(stills)
    assert film.starts == sorted(film.starts) and film.starts[0] == 0
    shown = [m for m in film.mobjects if len(m.points)]  # Manim's wait leaves an empty one
    drawn = [shape for shape in stills[-1].board.values() if len(shape.points)]
    assert [m.points.shape for m in shown] == [shape.points.shape for shape in drawn]
    for mobject in shown:
        assert mobject.get_fill_opacity() + mobject.get_stroke_opacity() > 0, "a part was left faded"


@both_themes
def test_a_frame_with_nothing_to_show_says_so(look: str) -> None:
    why = "Stage 3 has no router, so no token is sent anywhere. " * 3
    figure = Figure(name="morph", number=1, title="Any", frames=(absent("none", "Nothing to route", why),))
    made = draw(figure, 1, theme(look))
    assert made["absent"].text == why
    assert made["absent"].centre == pytest.approx((0, MIDDLE), abs=0.15)
    assert [str(fault) for fault in lint(made, theme(look))] == []


@every_figure
def test_a_page_gets_all_stills_of_a_figure_in_both_themes(name: str) -> None:
    made = drawing(kept(name))
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    assert len(text.encode()) < 500_000
    stills = ([made["opening"]] if made["opening"] else []) + made["frames"]
    for k, still in zip(indices(kept(name)), stills, strict=True):
        seen = board(k, name=name)
        keys = [key for key, _ in still["parts"]]
        assert set(keys) <= set(seen) and len(set(keys)) == len(keys)
        left_out = {key for key in seen if isinstance(seen[key], Label)} - set(keys)
        assert left_out == {key for key in seen if is_chrome(key) and key != "caption:band"}
        assert all(0 <= i < len(made["fragments"]) for _, i in still["parts"])
    assert len(set(made["fragments"])) == len(made["fragments"])
    assert len({tuple(pair) for pair in made["palette"]}) == len(made["palette"])


# ---- goldens ----


def _digest(made: Board) -> dict[str, Any]:
    """Keys, texts, colours and boxes rounded to 0.05: what a still says, the same on every machine."""

    def of(shape: Shape) -> list[Any]:
        at = [round(round(v / 0.05) * 0.05, 2) for v in shape.box]
        fill = shape.fill if shape.fill_opacity else "none"
        stroke = shape.stroke if shape.stroke_width else "none"
        return [shape.text if isinstance(shape, Label) else "", fill, stroke, *at]

    return {key: of(shape) for key, shape in made.items()}


def _story_of(name: str, look: str) -> list[dict[str, Any]]:
    """The first still's digest, then what each frame changes in it (None: gone)."""
    digests = [_digest(board(k, look, name)) for k in indices(kept(name))]
    told: list[dict[str, Any]] = [digests[0]]
    for old, new in pairwise(digests):
        gone = {key: None for key in old if key not in new}
        told.append({key: value for key, value in new.items() if old.get(key) != value} | gone)
    return told


def _close(a: Any, b: Any) -> bool:
    """Alike, with room for one rounding step in a box."""
    if a is None or b is None:
        return a is b
    return a[:3] == b[:3] and np.allclose(a[3:], b[3:], atol=0.051)


@every_figure
@both_themes
def test_digest(name: str, look: str) -> None:
    path, told = GOLDEN / f"{name}-{look}.json", _story_of(name, look)
    if WRITE:
        lines = [
            "{\n"
            + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in part.items())
            + "\n}"
            for part in told
        ]
        path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    golden = json.loads(path.read_text(encoding="utf-8"))
    assert len(golden) == len(told)
    for k, (old, new) in enumerate(zip(golden, told)):
        assert list(new) == list(old), f"still {k}: other keys (MORPH_GOLDEN=write records them after a look)"
        wrong = {key: (old[key], new[key]) for key in new if not _close(old[key], new[key])}
        assert not wrong, f"still {k}"


@every_figure
@both_themes
def test_stills_look_as_they_did(name: str, look: str) -> None:
    """Small stills against recorded ones, with room for another Cairo's anti-aliasing."""
    k = len(kept(name)) if look == "dark" else (len(kept(name)) + 1) // 2
    path = GOLDEN / f"{name}-{look}-{k:02d}.png"
    with tempconfig({"pixel_width": SIZE[0], "pixel_height": SIZE[1]}):
        camera = QuickCamera(background_color=theme(look).colour("background"))
        picture = Image.fromarray(camera.picture(board(k, look, name).values())).convert("RGB")
    if WRITE:
        picture.save(path)
    off = np.abs(np.asarray(picture, dtype=int) - np.asarray(Image.open(path).convert("RGB"), dtype=int))
    assert off.mean() < 2
    assert np.percentile(off, 99) < 40
    blocks = off[:, :424].reshape(30, 8, 53, 8, 3).mean((1, 3))  # edges come out a little otherwise, a word does not go
    assert blocks.max() < 15
