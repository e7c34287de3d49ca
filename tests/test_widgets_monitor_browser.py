"""The monitor in a real browser: keys, buttons, words, themes, widths; the test plays the part of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import morph
from morph.train.background import Curve
from morph.train.data import load_corpus
from morph.train.loop import StepReport
from morph.widgets import TrainingMonitor
from tests.browser import chromium, pages
from tests.test_train_data import folder
from tests.test_train_runs import RECIPE

pytestmark = pytest.mark.browser
Open = Callable[..., Any]
STEPS = 8


def report(step: int, bits: float) -> StepReport:
    return StepReport(step, bits, bits, 0.0, 1e-3, 1.0, 1.0, bits + 0.25 if step % 4 == 0 else None)


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> TrainingMonitor:
    """Three curves, the last one half way; nothing was trained for them."""
    corpus = load_corpus(folder(tmp_path_factory.mktemp("corpus") / "text"))
    made = TrainingMonitor(
        {"gqa": 7, "gated-ffn": 6, "mine": morph.compose("gqa", "mqa", size="nano")},
        recipe=RECIPE.with_(steps=STEPS), corpus=corpus,
    )  # fmt: skip
    curves: list[Curve] = list(made.history.values())
    for curve, count in zip(curves, (STEPS, STEPS, 5)):
        curve.reports += [report(i, 8.0 - 0.5 * i - 0.1 * len(curve.name)) for i in range(1, count + 1)]
    made.training.state, made.training.current = "stopped", "mine"
    made._draw()
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


LIVE = """
window.sent = [];
const model = pageModel(JSON.parse(document.getElementById("state").textContent));
model.send = (message) => window.sent.push(message.do);
model.set("live", true);
window.model = model;
const made = widget();
made.initialize({ model });
made.render({ model, el: document.getElementById("figure") });
"""


@pytest.fixture
def open_page(browser: Any, monitor: TrainingMonitor, tmp_path: Path) -> Iterator[Open]:
    """Open its page with the figure in focus; `live` lets the test be its kernel."""
    with pages(browser, tmp_path) as show:

        def open_it(width: int = 940, live: bool = False, **style: Any) -> Any:
            text = monitor.to_html()
            start = 'showOnPage(widget, document.getElementById("figure"), document.getElementById("state"));'
            assert start in text
            page = show(text.replace(start, LIVE) if live else text, width, **style)
            page.locator(".lm-figure").focus()
            return page

        yield open_it


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def spoken(page: Any) -> str:
    return str(page.get_by_role("status").text_content())


def state(page: Any, **changes: Any) -> None:
    """What the kernel says next."""
    page.evaluate("changes => model.set('state', { ...model.get('state'), ...changes })", changes)


def test_curves_are_read_by_keys(open_page: Open) -> None:
    page = open_page()
    press(page, "PageUp")
    assert spoken(page) == "7 gqa, step 8: batch 3.70 bits per byte, held out 3.95 at step 8"
    press(page, "Home")
    assert spoken(page) == "7 gqa, step 1: batch 7.20 bits per byte"
    press(page, *["ArrowRight"] * 4, "ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert spoken(page) == "6 gated-ffn, step 5: batch 4.60 bits per byte, held out 5.35 at step 4"
    press(page, "PageDown", "ArrowDown", "ArrowRight")
    assert spoken(page) == "mine, step 5: batch 5.10 bits per byte, held out 5.85 at step 4"
    rows = page.locator(".lm-models tbody tr")
    assert [r.split() for r in rows.all_inner_texts()] == [
        ["7", "gqa", "8", "3.70", "3.95"], ["6", "gated-ffn", "8", "3.10", "3.35"], ["a", "mine", "5", "5.10", "5.85"],
    ]  # fmt: skip
    assert page.locator("tr.lm-chosen").inner_text().split()[1] == "mine"
    rows.first.click()
    assert spoken(page).startswith("7 gqa, step 8")


def test_curves_are_where_their_numbers_are(open_page: Open) -> None:
    """Told apart without colour too: a mark at each end, no two of them over each other, and another dash."""
    page = open_page()
    lines = page.locator(".lm-curve polyline").evaluate_all(
        "lines => lines.map(l => [l.getAttribute('points').split(' ').map(p => p.split(',').map(Number)),"
        " l.getAttribute('stroke-dasharray'), l.parentElement.getAttribute('class')])"
    )
    assert sorted(len(points) for points, _, _ in lines) == [5, 8, 8]
    heights = sorted(points[-1][1] for points, _, _ in lines)
    assert heights[0] < heights[1] < heights[2], "the lower the loss, the lower the line"
    for points, _, _ in lines:
        assert [x for x, _ in points] == sorted(x for x, _ in points)
    marks = page.locator(".lm-mark")
    assert sorted(marks.all_text_contents()) == ["6", "7", "a"]
    boxes = sorted((box["y"], box["y"] + box["height"]) for box in (m.bounding_box() for m in marks.all()))
    assert all(a[1] <= b[0] + 3 for a, b in pairwise(boxes))


def test_buttons_ask_the_kernel_once_and_keep_the_focus(open_page: Open) -> None:
    page = open_page(live=True)
    start, stop = page.get_by_role("button", name="Go on"), page.get_by_role("button", name="Stop")
    assert page.evaluate("sent") == ["hello"]
    assert stop.get_attribute("aria-disabled") == "true"
    stop.click(force=True), start.click(), start.click(force=True)
    assert page.evaluate("sent") == ["hello", "start"]
    assert page.locator(".lm-reading").text_content() == "The kernel is asked to start …"
    state(page, at="training", words="Training mine, step 6 of 8.", said="Training mine, step 6 of 8.")
    assert page.evaluate("document.activeElement.textContent") == "Start", "it is off, and still under the finger"
    assert spoken(page) == page.locator(".lm-reading").text_content() == "Training mine, step 6 of 8."
    press(page, "Tab", "Enter")
    assert page.evaluate("sent") == ["hello", "start", "stop"]
    state(page, at="stopping", words="Stopping after this step.")
    press(page, "Enter")
    state(page, at="stopped", words="Stopped.", said="Stopped.")
    page.locator(".lm-figure").focus()
    press(page, " ")
    assert page.evaluate("sent") == ["hello", "start", "stop", "start"]
    state(page, at="training")
    press(page, " ", "b", "x")
    assert page.evaluate("sent") == ["hello", "start", "stop", "start", "stop"]
    state(page, at="finished", words="Done.")
    press(page, " ")
    start, stop = page.get_by_role("button", name="Start"), page.get_by_role("button", name="Stop")
    start.click(force=True), stop.click(force=True)
    assert page.evaluate("sent.length") == 5


def test_it_follows_what_grows_until_the_reader_chooses_and_steps_are_not_spoken(open_page: Open) -> None:
    page = open_page(live=True)
    state(page, at="training", current="gqa")
    assert page.locator("tr.lm-chosen").inner_text().split()[1] == "gqa"
    assert spoken(page) == ""
    press(page, "ArrowDown")
    before = spoken(page)
    state(page, current="mine", words="Training mine, step 7 of 8.")
    assert page.locator("tr.lm-chosen").inner_text().split()[1] == "gated-ffn" and spoken(page) == before
    longer = "model.get('curves').map((c, i) => i < 2 ? c : { ...c, points: [...c.points, [6, 3]], taken: 6 })"
    page.evaluate(f"() => model.set('curves', {longer})")
    assert page.locator(".lm-models tr").last.inner_text().split()[2:4] == ["6", "3.00"]


def test_an_error_is_shown_and_spoken(open_page: Open) -> None:
    page = open_page(live=True)
    words = "Failed at mine, step 5 of 8: training diverged at step 5 <b>of</b> it"
    state(page, at="failed", words=words, said=words)
    assert spoken(page) == page.locator(".lm-reading").text_content() == words
    assert page.get_by_role("button", name="Start").get_attribute("aria-disabled") == "false"


@pytest.mark.parametrize(("width", "scheme"), [(940, "dark"), (375, "light")])
def test_every_page_fits_speaks_and_follows_the_theme(open_page: Open, width: int, scheme: str) -> None:
    page = open_page(width=width, color_scheme=scheme)
    assert page.locator(".lm-figure").get_attribute("data-theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    group = page.get_by_role("group").first
    assert "Arrow keys choose a model" in group.get_attribute("aria-label")
    assert group.get_attribute("data-lm-suppress-shortcuts") == "true"
    assert "a line a model" in page.get_by_role("img").first.get_attribute("aria-label")
    assert page.get_by_role("table").get_attribute("aria-label") or page.locator("caption").text_content()
    assert "No kernel here" in page.locator(".lm-reading").text_content()
    sizes = page.locator(".lm-chart text").evaluate_all("t => t.map(x => x.getBoundingClientRect().height)")
    assert min(sizes) > 11, "letters keep their size on a narrow page"
