"""The explorers without a browser: numbers, texts, refusals, pages, pictures, words."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from morph.errors import MorphError
from morph.widgets import AttentionExplorer, RouterView, TokenTrace
from morph.widgets.explorers import HIDDEN
from tests.tools import need

need("anywidget"), need("typst")

from scenes import explorers  # noqa: E402
from scenes.lint import lint  # noqa: E402
from scenes.theme import theme  # noqa: E402

KINDS = [(AttentionExplorer, "windows"), (TokenTrace, "windows"), (RouterView, "experts")]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind[0].__name__)
def shown(request: pytest.FixtureRequest) -> Any:
    """Each explorer with what it shows when it is only asked to show itself."""
    return request.param[0]()


def test_a_page_of_its_own(shown: Any, tmp_path: Path) -> None:
    text = shown.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text
    assert not re.findall(r"https?:|<link|@import|url\(|src=|fetch\(|^import ", text, re.MULTILINE)
    found = re.search(r'id="state">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    state = json.loads(found[1])
    assert state["live"] is False and shown.live is True
    assert base64.b64decode(state["numbers"]["base64"]) == shown.numbers
    assert len(text) < 300_000


def test_a_picture_and_words(shown: Any) -> None:
    from PIL import Image

    assert Image.open(io.BytesIO(shown.to_png())).size == (1280, 720)
    lines = repr(shown).splitlines()
    assert lines[0] == f"{shown.frame.title} · {shown.source.name}" and len(lines) > 3
    live, _ = shown._repr_mimebundle_()
    assert {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"} <= live.keys()


@pytest.mark.parametrize("name", ["dark", "light"])
def test_nothing_in_the_picture_is_at_fault(shown: Any, name: str) -> None:
    look, draw = theme(name), explorers.STILLS[shown.frame.key]
    for place in ({}, {"map": 5, "token": 3, "layer": 2}, {"map": 15, "token": 35}):
        assert lint(draw(shown.frame, place, look), look) == []


@pytest.mark.parametrize("kind", [AttentionExplorer, TokenTrace, RouterView])
def test_another_text_is_read_and_a_bad_one_is_told(kind: Any) -> None:
    widget = kind(13, text="a + b")
    before = widget.numbers
    widget.text = "b + a"
    assert widget.data["tokens"] == ["b", "␣", "+", "␣", "a"] and widget.numbers != before and widget.problem == ""
    widget.text = "x" * 97
    assert widget.problem == "the text has 97 bytes and 96 can be shown; cut it"
    assert widget.data["tokens"][0] == "b"  # what was shown stays
    widget.text = ""
    assert widget.problem == "the text is empty; write 1 to 96 bytes"
    widget.text = "c"
    assert widget.problem == "" and widget.data["tokens"] == ["c"]


def test_every_text_is_answered() -> None:
    """A text with the very problem of the one before is told again: the browser waits for a word."""
    widget = AttentionExplorer(9, text="a")
    told: list[str] = []
    widget.observe(lambda change: told.append(change["new"]), "problem")
    widget.text = "x" * 97
    widget.text = "y" * 97
    long = "the text has 97 bytes and 96 can be shown; cut it"
    assert [text for text in told if text] == [long, long]


def test_words_and_numbers_of_a_text_travel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    widget = RouterView(13, text="a")
    sent: list[tuple[list[str], list[list[str]]]] = []
    note = lambda message, **_: sent.append((sorted(message["state"]), message["buffer_paths"]))  # noqa: E731
    monkeypatch.setattr(widget, "_send", note)
    widget.text = "bc"
    assert sent == [(["text"], []), (["data"], [["numbers"]])]


@pytest.mark.parametrize("kind", [AttentionExplorer, TokenTrace, RouterView])
def test_a_place_outside_a_shorter_text_is_its_end(kind: Any) -> None:
    widget = kind(13, text="abc")
    widget.place = {"map": 999, "token": 2, "layer": 999, "expert": -3}
    widget.text = "c"
    ends = {"map": 15, "query": 0, "key": 0} if kind is AttentionExplorer else {}
    ends = {"token": 0, "depth": 0} if kind is TokenTrace else ends or {"layer": 3, "token": 0, "expert": 0}
    assert widget.spot == ends
    assert repr(widget) and len(widget.to_png()) > 1000
    with pytest.raises(MorphError, match=r"place\['token'\] = 'x' is not a whole number"):
        widget.place = {"token": "x"}


def test_the_browser_gets_the_weights_of_the_pass() -> None:
    widget = AttentionExplorer(9, text="for key in counts: print(key)")
    weights, hidden = widget.frame.arrays["weights"].values, np.isnan(widget.frame.arrays["scores"].values)
    sent = np.frombuffer(widget.numbers, "<u2").reshape(weights.shape)
    assert (sent == HIDDEN).sum() == hidden.sum() > 0
    np.testing.assert_allclose(sent[~hidden] / (HIDDEN - 1), weights[~hidden], atol=1e-5)


def test_the_browser_gets_the_choices_of_the_pass() -> None:
    widget = RouterView(13, text="for key")
    arrays, shape = widget.frame.arrays, widget.frame.arrays["probabilities"].values.shape
    weights, probabilities = np.frombuffer(widget.numbers, "<f4").reshape(2, *shape)
    chosen = weights.nonzero()[-1].reshape(*shape[:2], -1)
    np.testing.assert_array_equal(chosen, np.sort(arrays["chosen"].values))
    np.testing.assert_array_equal(probabilities, arrays["probabilities"].values)


def test_a_token_of_the_text_is_chosen() -> None:
    assert TokenTrace(0, text="abc").place["token"] == 1
    assert TokenTrace(0, text="a").place["token"] == 0
    widget = TokenTrace(0, text="abc", token=2)
    assert widget.place["token"] == 2 and widget.transcript()[0] == "token 2, 'c'"
    for wrong in (3, -1, "b", 1.5):
        with pytest.raises(MorphError, match=f"token = {wrong!r} is not in the text; give 0 to 2"):
            TokenTrace(0, text="abc", token=wrong)  # type: ignore[arg-type]


def test_models_without_the_organ_are_refused() -> None:
    with pytest.raises(MorphError, match="has no router"):
        RouterView(9)
    with pytest.raises(MorphError, match="'mask' is no folder of a run or checkpoint, no stage and no fork"):
        AttentionExplorer("mask")
