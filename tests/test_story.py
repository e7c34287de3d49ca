"""Frames, figures and their files."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch

import morph
from morph.errors import MorphError
from morph.story import MODULES, OPTIONS, Array, Claim, Figure, Frame, figure, names
from tests.scene_boards import SWEEP, story


def _frame(key: str = "a", title: str = "Two words", caption: str = "A caption.", mean: float = 2.0) -> Frame:
    return Frame(
        key=key,
        title=title,
        caption=caption,
        alt="A picture.",
        claim=Claim(text="The mean is 2.", holds=lambda f: f.arrays["x"].values.mean() == mean),
        arrays={"x": Array(values=np.array([[1, 2], [2, 3]]), axes=("layer", "token"))},
        facts={"list": [1, "two"]},
        source="a test",
    )


def _figure(*frames: Frame) -> Figure:
    return Figure(name="f", number=3, title="A figure", frames=frames, provenance={"seed": 0})


def test_a_figure_survives_its_file(tmp_path: Path) -> None:
    made = _figure(_frame("a"), _frame("b", mean=5.0))
    made.save(tmp_path / "f.json")
    read = Figure.load(tmp_path / "f.json")
    assert read.to_dict() == made.to_dict()
    assert read.frames[0].arrays["x"].axes == ("layer", "token")
    np.testing.assert_array_equal(read.frames[0].arrays["x"].values, [[1, 2], [2, 3]])
    assert read.frames[0].arrays["x"].values.dtype == made.frames[0].arrays["x"].values.dtype
    assert [frame.check() for frame in read.frames] == [True, False]  # the verdicts recorded when it was made


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "not a readable"), ("[]", "found 'list'"), ('{"format": 9}', "found 9"), ('{"format": 2}', "'name'")],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(MorphError, match=message):
        Figure.load(tmp_path / "f.json")
    with pytest.raises(MorphError, match="not a readable"):
        Figure.load(tmp_path / "none.json")


def test_words_are_limited() -> None:
    with pytest.raises(MorphError, match="title has 7 words; write 1 to 6"):
        _frame(title="a b c d e f g")
    with pytest.raises(MorphError, match="caption has 31 words; write 1 to 30"):
        _frame(caption="word " * 31)
    with pytest.raises(MorphError, match="caption has 0 words"):
        _frame(caption="")


def test_axes_are_named_one_by_one() -> None:
    with pytest.raises(MorphError, match=r"shape \(2, 3\) has 1 axis names"):
        Array(values=np.zeros((2, 3)), axes=("layer",))


def test_keys_are_unique() -> None:
    with pytest.raises(MorphError, match="two frames of one key"):
        _figure(_frame("a"), _frame("a"))


def test_an_unknown_figure_names_the_nearest() -> None:
    assert "morph" in names()
    with pytest.raises(MorphError, match=r"'mroph'.*did you mean 'morph'"):
        figure("mroph")


@pytest.mark.parametrize("name", [name for name in names() if name != "morph"])
def test_a_figure_computes_on_one_thread(name: str) -> None:
    model, threads = morph.build(morph.stage(13, "nano")), set()
    model.register_forward_hook(lambda *_: threads.add(torch.get_num_threads()))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        figure(name, model=model)
        assert threads == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_stories_need_no_torch(tmp_path: Path) -> None:
    story().save(tmp_path / "morph.json")
    code = (
        "import sys; from pathlib import Path; from morph.story import Figure, figure;"
        f"figure('morph', sweep=Path({str(SWEEP)!r}));"
        f"assert len(Figure.load(Path({str(tmp_path / 'morph.json')!r}))) == 14;"
        "print('torch' in sys.modules, 'manim' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_facts_are_json() -> None:
    for frame in story().frames:
        assert json.loads(json.dumps(frame.to_dict())) == frame.to_dict()


def test_options_are_those_that_the_modules_take() -> None:
    assert MODULES.keys() == OPTIONS.keys()
    for name, module in MODULES.items():
        assert tuple(signature(import_module(module).figure).parameters) == OPTIONS[name]
