"""The stepper without a browser: its values, its page as text, its words for readers who see no picture."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import subprocess
from pathlib import Path

import pytest

from morph.errors import MorphError
from morph.story import Figure, figure
from morph.widgets import Stepper, assets, show_table
from morph.widgets.base import PARTS, PartsNow
from tests.tools import need

JS = Path(__file__).parent / "js"


@pytest.fixture(scope="module")
def story() -> Figure:
    return figure("morph")


def test_player_state_machine_under_node() -> None:
    run = subprocess.run(
        [need("node"), "--test", str(JS / "player.test.mjs")], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# pass 10" in run.stdout


def test_a_name_and_a_figure_give_the_same_widget(story: Figure) -> None:
    assert Stepper("morph").figure == Stepper(story).figure
    assert len(Stepper(story).figure["frames"]) == 14


def test_the_browser_gets_words_and_a_drawing_but_no_numbers(story: Figure) -> None:
    sent = Stepper(story).figure
    assert set(sent["frames"][6]) == {"key", "title", "caption", "alt", "aside", "note"}
    assert sent["frames"][6]["note"] == story.frames[6].facts["pressure"]
    drawing = sent["drawing"]
    assert [frame["key"] for frame in drawing["frames"]] == [frame.key for frame in story.frames]
    assert len(json.dumps(sent)) < 500_000


def test_index_moves_the_frame_and_refuses_what_is_no_frame(story: Figure) -> None:
    stepper = Stepper(story, index=3)
    assert stepper.frame is story.frames[3]
    stepper.index = 13
    assert stepper.frame.key == story.frames[13].key
    for wrong in (14, -1):
        with pytest.raises(MorphError, match=f"index = {wrong} .* 0 to 13"):
            stepper.index = wrong
    assert stepper.index == 13


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index": 14}, "index = 14 .* 0 to 13"),
        ({"interval": 0}, "interval = 0 must be above 0 and at most 86,400,000 milliseconds"),
        ({"interval": 2**31}, "interval = 2147483648 must be"),  # a browser would not wait at all
        ({"idle": -1.0}, r"idle = -1\.0 must be above 0 and at most 86,400 seconds"),
        ({"idle": float("inf")}, "idle = inf must be"),
    ],
)
def test_values_out_of_range_are_refused(story: Figure, options: dict[str, float], message: str) -> None:
    with pytest.raises(MorphError, match=message):
        Stepper(story, **options)  # type: ignore[arg-type]


def test_unknown_figures_and_options_are_refused(story: Figure) -> None:
    with pytest.raises(MorphError, match="'morp'"):
        Stepper("morp")
    with pytest.raises(MorphError, match="sweep: for a figure given by name"):
        Stepper(story, sweep=object())


def test_page_is_self_contained(story: Figure, tmp_path: Path) -> None:
    stepper = Stepper(story, index=4)
    text = stepper.to_html(tmp_path / "figure.html")
    assert (tmp_path / "figure.html").read_text(encoding="utf-8") == text
    markup = text.replace("http://www.w3.org/2000/svg", "")  # a namespace, never fetched
    assert not re.findall(r"https?:|//cdn|<link|@import|url\(|src=|fetch\(|import\(|^import ", markup, re.MULTILINE)
    assert "default-src 'none'" in text
    state = re.search(r'id="state">(.*?)</script>', text, re.DOTALL)
    assert state is not None
    assert json.loads(state[1]) == {
        "figure": json.loads(json.dumps(stepper.figure)), "index": 4, "autoplay": False, "interval": 1500, "idle": 12.0
    }  # fmt: skip


def test_page_survives_markup_in_words(story: Figure) -> None:
    hostile = Figure(name="morph", number=1, title="</script><b>", frames=story.frames)
    text = Stepper(hostile).to_html()
    assert "</script><b>" not in text
    assert "&lt;/script&gt;&lt;b&gt;" in text


def test_to_html_names_a_path_that_cannot_be_written(story: Figure, tmp_path: Path) -> None:
    with pytest.raises(MorphError, match=r"cannot write .*missing.*No such file"):
        Stepper(story).to_html(tmp_path / "missing" / "figure.html")


def test_a_picture_of_the_frame_on_screen(story: Figure, tmp_path: Path) -> None:
    from PIL import Image

    stepper = Stepper(story, index=3)
    data = stepper.to_png(tmp_path / "still.png")
    assert (tmp_path / "still.png").read_bytes() == data
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    assert picture.size == (1280, 720)
    assert picture.getpixel((640, 80)) == (0xFB, 0xFA, 0xF7)  # the light background
    stepper.index = 4
    assert stepper.to_png() != data


def test_plain_text_tells_all_frames(story: Figure) -> None:
    text = repr(Stepper(story))
    assert text.splitlines()[0] == f"Figure 1 · {story.title}"
    for frame in story.frames:
        assert f"{frame.title}: {frame.caption}" in text


def test_live_and_static_representations(story: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    stepper = Stepper(story)
    live, _ = stepper._repr_mimebundle_()
    assert live["text/plain"] == repr(stepper)
    assert base64.b64decode(live["image/png"]) == stepper.to_png()
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == stepper.model_id
    monkeypatch.setenv("MORPH_STATIC", "1")
    static = stepper._repr_mimebundle_()
    assert set(static) == {"text/plain", "text/html"}
    page = re.search(r'srcdoc="(.*?)"', static["text/html"], re.DOTALL)
    assert page is not None
    assert html.unescape(page[1]) == stepper.to_html()


def test_parts_for_a_page_with_several(story: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    stepper = Stepper(story, index=3)
    monkeypatch.setenv("MORPH_STATIC", "parts")
    shown = stepper._repr_mimebundle_()
    assert set(shown) == {"text/plain", PARTS}
    parts = shown[PARTS]
    assert (parts["script"], parts["heading"], parts["state"]["index"]) == ("stepper", stepper.heading, 3)
    assert parts["transcript"] == list(stepper.transcript())
    json.dumps(parts)
    stepper.index = 5
    now = PartsNow()._repr_mimebundle_()[PARTS]
    assert now[parts["id"]]["state"]["index"] == 5


def test_all_widgets_fit_in_one_script() -> None:
    text = assets.bundle()
    assert not re.search(r"^(export|import) ", text, flags=re.MULTILINE)
    for name in assets.MODULE_PARTS:
        assert f'morphWidgets["{name}"] = ' in text
    assert text.count("function showOnPage") == text.count("function followHostTheme") == 1


def test_style_gives_every_role_in_both_themes() -> None:
    used = set(re.findall(r"var\(--lm-([a-z]+)\)", assets.part("morph.css")))
    for theme in ("dark", "light"):
        block = re.search(rf'data-theme="{theme}"\] \{{(.*?)\}}', assets.style())
        assert block is not None
        assert used | {"norm", "attention", "position", "ffn", "cache"} <= set(re.findall(r"--lm-([a-z]+):", block[1]))


def test_a_table_is_markdown_that_a_notebook_renders() -> None:
    made = show_table(["a", "b"], [["1", "**2**"]])
    assert made.data == "| a | b |\n| --- | --- |\n| 1 | **2** |"
