"""Boards as SVG: the same outlines, text that stays text, and one drawing for both themes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.scene_boards import GOLDEN, board, kept
from tests.tools import need

need("typst")

import scenes  # noqa: E402
from scenes.board import Board  # noqa: E402
from scenes.parts import panel, polylines, rectangles, rounded  # noqa: E402
from scenes.shape import Shape  # noqa: E402
from scenes.svg import Atlas, element, to_svg  # noqa: E402
from scenes.theme import theme  # noqa: E402
from scenes.type import label  # noqa: E402

DARK, LIGHT = theme("dark"), theme("light")
SVG = "{http://www.w3.org/2000/svg}"


def _corners(data: str) -> list[list[tuple[int, int]]]:
    """The points that path data go through, outline by outline."""
    paths: list[list[tuple[int, int]]] = []
    for command, tail in re.findall(r"([Mlhvcz])([^Mlhvcz]*)", data):
        numbers = [int(n) for n in re.findall(r"-?\d+", tail)]
        if command == "M":
            paths.append([(numbers[0], numbers[1])])
            continue
        if command == "z":
            paths[-1].append(paths[-1][0])
            continue
        width = {"l": 2, "h": 1, "v": 1, "c": 6}[command]
        assert len(numbers) % width == 0
        for i in range(0, len(numbers), width):
            step = numbers[i : i + width]
            dx, dy = {"h": (step[0], 0), "v": (0, step[0])}.get(command, (step[-2] if width > 1 else 0, step[-1]))
            x, y = paths[-1][-1]
            paths[-1].append((x + dx, y + dy))
    return paths


def _data(drawn: str) -> str:
    return ElementTree.fromstring(drawn).get("d", "")


def test_rectangles_are_short_and_exact() -> None:
    boxes = [(0, 0, 1, 0.5), (2, 0, 2, 1), (-1, -1, -0.5, 0)]  # the second has no width, so nothing is drawn of it
    drawn = element(rectangles("#112233", boxes), "#112233", "none")
    assert drawn == '<path d="M0 0h1000v-500h-1000zM-1000 1000h500v-1000h-500z" fill="#112233"/>'


def test_paths_go_through_the_points_of_the_shape() -> None:
    bent = Shape(rounded((-1, -1, 2, 1), 0.3), fill="#000000", fill_opacity=1)
    (path,) = _corners(_data(element(bent, "#000000", "none")))
    expected = np.rint(bent.points[3::4, :2] * [1000, -1000]).astype(int)
    assert path[1:] == [(x, y) for x, y in expected.tolist()]
    lines = polylines(DARK, [[(0, 0), (1, 1), (2, 0)], [(3, 0.5), (3, 1)]], "ink", 4)
    drawn = element(lines, "x", "#FFFFFF")
    assert _corners(_data(drawn)) == [[(0, 0), (1000, -1000), (2000, 0)], [(3000, -500), (3000, -1000)]]
    assert 'fill="none" stroke="#FFFFFF" stroke-width="40"' in drawn


def test_a_line_of_text_is_text_of_the_measured_width() -> None:
    words = label("a < b & c", "body", "#ABCDEF", "bold").at(1, 2)
    drawn = ElementTree.fromstring(element(words, words.fill, "none"))
    assert drawn.tag == "text" and drawn.text == "a < b & c"
    assert drawn.get("font-weight") == "600" and float(drawn.get("font-size", 0)) == 250
    assert int(drawn.get("x", 0)) == pytest.approx(1000, abs=40)
    left, _, right, _ = words.box
    assert int(drawn.get("textLength", 0)) == pytest.approx(1000 * (right - left), abs=40)
    turned = label("upwards", "floor").at(0, 0).rotate(np.pi / 2)
    assert "rotate(-90 " in element(turned, "#000000", "none")


def test_spaces_that_do_not_break_stay_text() -> None:
    node = ElementTree.fromstring(element(label("4\u00a0×\u00a010⁻⁶", "body"), "#000000", "#000000"))
    assert (node.tag, node.text) == ("text", "4\u00a0×\u00a010⁻⁶")


def test_a_short_text_keeps_its_own_width_about_its_middle() -> None:
    for words in (label("1", "floor").at(3, 0, "centre"), label("24", "floor").at(3, 0).rotate(np.pi / 2)):
        drawn = ElementTree.fromstring(element(words, words.fill, "none"))
        assert drawn.get("text-anchor") == "middle" and drawn.get("textLength") is None
        assert int(drawn.get("x", 0)) == pytest.approx(1000 * words.centre[0], abs=70)


@pytest.mark.parametrize("words", [label("two lines of text", width=1), label("$x_i$", markup=True), label("a  b")])
def test_other_text_is_drawn(words) -> None:
    assert element(words, "#000000", "none").startswith("<path")


@pytest.mark.parametrize("look", [DARK, LIGHT], ids=["dark", "light"])
def test_a_file_names_its_picture_and_asks_for_nothing(look) -> None:
    frame = kept("morph").frames[0]
    text = to_svg(board(1, look.name), look, frame)
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}title").text == frame.title and root.find(f"{SVG}desc").text == frame.alt
    assert frame.title in {node.text for node in root.iter(f"{SVG}text")}
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', text)) - {"none"}
    assert all(re.fullmatch("#[0-9A-F]{6}", colour) for colour in colours)
    assert look.colour("background") in colours
    assert not re.search(r"href|url\(|@import|<script|<style", text)


def test_an_atlas_stores_what_is_alike_once() -> None:
    def made(look, colour: str) -> Board:
        return Board(a=panel(look, (0, 0, 1, 1)), b=panel(look, (0, 0, 1, 1)), c=panel(look, (0, 0, 1, 1), colour))

    atlas = Atlas()
    first, second = (atlas.parts(made(DARK, c), made(LIGHT, c)) for c in ("norm", "ffn"))
    assert first == [("a", 0), ("b", 0), ("c", 1)] and second == [("a", 0), ("b", 0), ("c", 2)]
    assert atlas.palette == [(look_a, look_b) for look_a, look_b in (
        (DARK.colour(c), LIGHT.colour(c)) for c in ("panel", "norm", "ffn")
    )]  # fmt: skip
    assert atlas.fragments[1].endswith('fill="var(--c1)"/>')


def test_themes_may_differ_in_colours_only() -> None:
    with pytest.raises(ValueError, match="other keys"):
        Atlas().parts(Board(a=panel(DARK, (0, 0, 1, 1))), Board())
    with pytest.raises(ValueError, match="'a' has another outline"):
        Atlas().parts(Board(a=panel(DARK, (0, 0, 1, 1))), Board(a=panel(LIGHT, (0, 0, 2, 1))))


def test_pages_are_drawn_without_manim_and_without_torch() -> None:
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("manim", "torch", "cairo", "av"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
from pathlib import Path
from morph.story import Figure
from scenes.boards import drawing
made = drawing(Figure.load(Path({str(GOLDEN / "morph.figure.json")!r})))
print(len(made["frames"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "14\n", done.stderr


MOVING = {"camera", "film", "output", "play", "render"}
"""The only files that know Manim or the encoder."""


@pytest.mark.parametrize("path", sorted(Path(scenes.__path__[0]).glob("*.py")), ids=lambda p: p.stem)
def test_boards_are_free_of_manim(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert path.stem in MOVING or not names & {"manim", "cairo", "av", "torch"}
