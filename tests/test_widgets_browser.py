"""The self-contained page in a real browser, its clock in our hands: keys, autoplay, focus, words, themes, widths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from morph.story import Figure, figure
from morph.widgets import Stepper, assets
from morph.widgets.pages import sent
from tests.browser import chromium, pages

pytestmark = pytest.mark.browser

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def story() -> Figure:
    return figure("morph")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def open_page(browser: Any, story: Figure, tmp_path: Path) -> Iterator[Open]:
    """Open a stepper's page with a stopped clock."""
    with pages(browser, tmp_path) as show:

        def open_it(width: int = 940, height: int = 900, text: str | None = None, **options: Any) -> Any:
            style = {name: options.pop(name) for name in ("color_scheme", "reduced_motion") if name in options}
            text = text or Stepper(story, **options).to_html()
            return show(text, width, height, has_clock=False, **style)

        yield open_it


def counter(page: Any) -> str:
    return str(page.locator(".lm-counter").first.text_content())


def state(page: Any) -> str:
    return str(page.locator(".lm-figure").first.get_attribute("data-state"))


def test_keys_step_jump_and_wrap(open_page: Open, story: Figure) -> None:
    page = open_page()
    page.locator(".lm-figure").focus()
    assert counter(page) == "01 / 14"
    for key, expected in [
        ("ArrowRight", 2), ("ArrowDown", 3), ("ArrowLeft", 2), ("ArrowUp", 1), ("ArrowLeft", 14),
        ("ArrowRight", 1), ("End", 14), ("Home", 1), ("b", 1), ("Control+ArrowRight", 1),
    ]:  # fmt: skip
        page.keyboard.press(key)
        assert counter(page) == f"{expected:02} / 14", key
        assert page.locator(".lm-title").text_content() == story.frames[expected - 1].title
        assert page.locator(".lm-caption").text_content() == story.frames[expected - 1].caption


def test_the_clock_stands_still_by_itself(open_page: Open) -> None:
    page = open_page(autoplay=True)
    before = page.evaluate("Date.now()")
    page.wait_for_timeout(200)
    assert page.evaluate("Date.now()") == before
    page.clock.run_for(100)
    assert page.evaluate("Date.now()") == before + 100


def test_autoplay_pauses_on_input_and_resumes_after_twelve_seconds(open_page: Open) -> None:
    page = open_page(autoplay=True)
    page.locator(".lm-figure").focus()
    assert (state(page), counter(page)) == ("playing", "01 / 14")
    page.clock.run_for(1500)
    assert counter(page) == "02 / 14"
    page.keyboard.press("ArrowRight")
    assert (state(page), counter(page)) == ("paused", "03 / 14")
    page.clock.run_for(11_900)
    page.keyboard.press("ArrowRight")  # the twelve seconds count from the last input
    page.clock.run_for(11_900)
    assert (state(page), counter(page)) == ("paused", "04 / 14")
    page.clock.run_for(200)
    assert state(page) == "playing"
    page.clock.run_for(1500)
    assert counter(page) == "05 / 14"


def test_space_stops_for_good_and_starts_again(open_page: Open) -> None:
    page = open_page(autoplay=True)
    page.locator(".lm-figure").focus()
    page.keyboard.press(" ")
    page.keyboard.press("ArrowRight")
    page.clock.run_for(60_000)
    assert (state(page), counter(page)) == ("stopped", "02 / 14")
    page.keyboard.press(" ")
    page.clock.run_for(1500)
    assert (state(page), counter(page)) == ("playing", "03 / 14")


def test_buttons_and_slider(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("button", name="Next frame").click()
    assert counter(page) == "02 / 14"
    page.get_by_role("button", name="Previous frame").click()
    assert counter(page) == "01 / 14"
    page.get_by_role("slider", name="Frame").fill("8")
    assert counter(page) == "09 / 14"
    page.get_by_role("slider", name="Frame").press("ArrowRight")
    assert counter(page) == "10 / 14"  # once, not by the figure and again by the slider
    page.get_by_role("button", name="Start autoplay").focus()
    page.keyboard.press(" ")  # the button's own key: one toggle, not two
    assert state(page) == "playing"
    page.get_by_role("button", name="Next frame").focus()
    page.keyboard.press(" ")  # here too: a step, and no stop
    assert (state(page), counter(page)) == ("paused", "11 / 14")
    page.get_by_role("button", name="Stop autoplay").click()
    assert state(page) == "stopped"


def test_reduced_motion_does_not_start_by_itself_but_plays_on_request(open_page: Open) -> None:
    page = open_page(autoplay=True, reduced_motion="reduce")
    page.clock.run_for(30_000)
    assert (state(page), counter(page)) == ("stopped", "01 / 14")
    page.locator(".lm-figure").focus()
    page.keyboard.press(" ")
    page.clock.run_for(1500)
    assert counter(page) == "02 / 14"


def test_focus_is_visible_inside_the_figure(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    style = page.evaluate(
        "() => { const s = getComputedStyle(document.activeElement);"
        " return [document.activeElement.className, s.outlineStyle, s.outlineWidth, s.outlineOffset]; }"
    )
    assert style == ["lm-figure", "solid", "3px", "-3px"]


def test_names_for_readers_who_cannot_see(open_page: Open, story: Figure) -> None:
    page = open_page()
    group = page.get_by_role("group", name="Figure 1")
    assert group.get_attribute("data-lm-suppress-shortcuts") == "true"
    group.focus()
    live = page.get_by_role("status")
    assert live.text_content() == ""
    page.keyboard.press("ArrowRight")
    frame = story.frames[1]
    assert page.get_by_role("img").get_attribute("aria-label") == frame.alt
    assert live.text_content() == f"2 of 14. {frame.title}. {frame.caption}"
    slider = page.get_by_role("slider", name="Frame")
    assert slider.get_attribute("aria-valuetext") == f"Frame 2 of 14: {frame.title}"
    page.keyboard.press(" ")
    page.clock.run_for(1500)
    assert counter(page) == "03 / 14"
    assert str(live.text_content()).startswith("2 of 14")  # autoplay does not talk


def test_parts_that_two_frames_share_stay_the_same_node(open_page: Open, story: Figure) -> None:
    page = open_page()
    drawn = sent(story)["drawing"]["frames"]
    page.locator(".lm-figure").focus()
    page.evaluate("() => { for (const node of document.querySelectorAll('.lm-pane g')) node.seen = true; }")
    page.keyboard.press("ArrowRight")
    kept = set(page.locator(".lm-pane g").evaluate_all("nodes => nodes.filter(n => n.seen).map(n => n.dataset.key)"))
    new = set(page.locator(".lm-pane g.lm-new").evaluate_all("nodes => nodes.map(n => n.dataset.key)"))
    first, second = (dict(map(tuple, frame["parts"])) for frame in drawn[:2])
    assert kept == {key for key in second if first.get(key) == second[key]}
    assert new == second.keys() - kept and new
    order = page.locator(".lm-pane g").evaluate_all("nodes => nodes.map(n => n.dataset.key)")
    assert order == [key for key, _ in drawn[1]["parts"]]


def test_a_narrow_figure_is_cut_in_two(open_page: Open, story: Figure) -> None:
    page = open_page(width=375)
    frame = sent(story)["drawing"]["frames"][0]
    sides = page.locator(".lm-pane").evaluate_all("panes => panes.map(p => [...p.children].map(n => n.dataset.key))")
    right = [frame["parts"][i][0] for i in frame["right"]]
    assert sides == [[key for key, _ in frame["parts"] if key not in right], right] and all(sides)
    page.set_viewport_size({"width": 940, "height": 900})
    page.wait_for_function("() => document.querySelectorAll('.lm-pane')[1].childElementCount === 0")
    assert page.locator(".lm-pane").nth(0).locator("g").count() == len(frame["parts"])


FAULTS = """() => {
  const faults = [];
  const box = (node) => node.getBoundingClientRect();
  for (const text of document.querySelectorAll(".lm-pane text")) {
    const [a, b] = [box(text), box(text.closest("svg"))];
    if (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1) faults.push(`outside: ${text.textContent}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than the window");
  for (const node of document.querySelectorAll(".lm-figure :is(p, h3, span)")) {
    if (node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== "inline" && !node.matches(".lm-hidden")) {
      faults.push(`cut off: ${node.textContent}`);
    }
  }
  return faults;
}"""  # noqa: E501


@pytest.mark.parametrize("width", [940, 375])
def test_nothing_overflows_in_any_frame(open_page: Open, width: int) -> None:
    page = open_page(width=width)
    page.locator(".lm-figure").focus()
    for number in range(1, 15):
        assert counter(page) == f"{number:02} / 14" and page.locator(".lm-pane text").count() > 3
        assert page.evaluate(FAULTS) == [], f"frame {number}"
        page.keyboard.press("ArrowRight")


def test_the_check_can_fail(open_page: Open) -> None:
    page = open_page()
    page.locator(".lm-pane text").first.evaluate("node => node.setAttribute('transform', 'translate(-9000 0)')")
    assert any(fault.startswith("outside: ") for fault in page.evaluate(FAULTS))


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
  };
  return [...document.querySelectorAll(".lm-figure :is(p, h3, button, span)")]
    .filter(node => node.textContent.trim() && !node.matches(".lm-hidden"))
    .map(node => [node.textContent, ratio(rgb(getComputedStyle(node).color), behind(node))])
    .filter(([, value]) => value < 4.5);
}"""  # noqa: E501


def test_the_picture_is_painted_in_the_host_theme(open_page: Open, story: Figure) -> None:
    page = open_page(color_scheme="dark")
    palette = sent(story)["drawing"]["palette"]
    shown = "() => getComputedStyle(document.querySelector('.lm-picture')).getPropertyValue('--c3')"
    assert page.evaluate(shown) == palette[3][0]
    page.emulate_media(color_scheme="light")
    page.wait_for_selector('.lm-figure[data-theme="light"]')
    assert page.evaluate(shown) == palette[3][1]


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_theme_follows_the_reader_and_all_text_has_contrast(open_page: Open, theme: str) -> None:
    page = open_page(color_scheme=theme, reduced_motion="reduce")
    assert page.locator(".lm-figure").get_attribute("data-theme") == theme
    page.locator(".lm-figure").focus()
    for number in range(1, 15):
        assert counter(page) == f"{number:02} / 14"
        assert page.evaluate(CONTRAST) == [], f"frame {number}"
        page.keyboard.press("ArrowRight")
    pale = "#444" if theme == "dark" else "#ccc"
    caption = page.locator(".lm-caption")
    caption.evaluate("(node, colour) => { node.style.color = colour; }", pale)
    assert [text for text, _ in page.evaluate(CONTRAST)] == [caption.text_content()], "and the measure can fail"


def test_a_host_that_states_its_theme_wins(open_page: Open) -> None:
    page = open_page(color_scheme="light")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")  # JupyterLab
    page.wait_for_selector('.lm-figure[data-theme="dark"]')
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    page.wait_for_selector('.lm-figure[data-theme="light"]')
    page.evaluate("() => { delete document.body.dataset.jpThemeLight; document.body.className = 'vscode-dark'; }")
    page.wait_for_selector('.lm-figure[data-theme="dark"]')
    page.evaluate("() => { document.body.className = ''; }")
    page.wait_for_selector('.lm-figure[data-theme="light"]')  # as the reader likes it again
    page.evaluate("() => document.documentElement.setAttribute('theme', 'dark')")  # Colab
    page.wait_for_selector('.lm-figure[data-theme="dark"]')


def test_one_model_shown_twice_keeps_one_clock_and_rests_when_not_shown(open_page: Open, story: Figure) -> None:
    text = Stepper(story, autoplay=True).to_html()
    start = 'showOnPage(widget, document.getElementById("figure"), document.getElementById("state"));'
    assert start in text
    twice = """
    const model = pageModel(JSON.parse(document.getElementById("state").textContent));
    const { initialize, render } = widget();
    initialize({ model });
    const mounts = [0, 1].map(() => document.body.appendChild(document.createElement("div")));
    const cleanups = mounts.map((el) => render({ model, el }));
    window.dropViews = () => cleanups.forEach((cleanup) => cleanup());
    window.frameShown = () => model.get("index");
    """
    page = open_page(text=text.replace(start, twice))
    page.clock.run_for(4500)
    assert page.locator(".lm-counter").all_text_contents() == ["04 / 14", "04 / 14"]
    page.evaluate("dropViews()")
    page.clock.run_for(30_000)
    assert page.evaluate("frameShown()") == 3


def test_the_module_has_one_default_export_and_no_imports() -> None:
    for name in assets.MODULE_PARTS:
        module = assets.module(name)
        assert module.count("export default") == 1
        assert not [line for line in module.splitlines() if line.startswith("import")]
