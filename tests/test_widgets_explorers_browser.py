"""The explorers' pages in a real browser: keys, pointer, words, themes, widths; and no request leaves the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from morph.widgets import AttentionExplorer, RouterView, TokenTrace
from tests.browser import chromium, pages

pytestmark = pytest.mark.browser
TEXT = "for key in keys: n += counts[key]"

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def widgets() -> dict[str, Any]:
    """Stage 13 has all three organs; its windows (16) are shorter than the text."""
    from morph.story.subject import subject

    model = subject(13, size="nano").model
    return {
        "attention": AttentionExplorer(model, TEXT),
        "token": TokenTrace(model, TEXT),
        "router": RouterView(model, TEXT),
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def open_page(browser: Any, widgets: dict[str, Any], tmp_path: Path) -> Iterator[Open]:
    """Open an explorer's page with the figure in focus."""
    with pages(browser, tmp_path) as show:

        def open_it(name: str, width: int = 940, edit: Callable[[str], str] = str, **style: Any) -> Any:
            page = show(edit(widgets[name].to_html()), width, **style)
            page.locator(".lm-figure").focus()
            return page

        yield open_it


def reading(page: Any) -> str:
    return str(page.locator(".lm-reading").text_content())


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_attention_is_read_by_keys(open_page: Open, widgets: dict[str, Any]) -> None:
    page, weights = open_page("attention"), widgets["attention"].frame.arrays["weights"].values
    last = len(TEXT) - 1
    press(page, "ArrowUp", "End", "ArrowLeft")
    query, key = last - 1, last - 2
    expected = f"layer 0, head 0: “y” ({query}) looks at “e” ({key}) with weight {weights[0, 0, query, key]:.3f}"
    assert reading(page) == expected == page.get_by_role("status").last.text_content()
    press(page, "PageDown")
    assert reading(page).startswith("layer 0, head 1:") and f"{weights[0, 1, query, key]:.3f}" in reading(page)
    press(page, "Home")  # the farthest that a window of 16 lets it see
    assert f"({query}) looks at" in reading(page) and f"({query - 15})" in reading(page)
    press(page, "ArrowLeft")
    assert f"({query - 15})" in reading(page)
    press(page, *["PageUp"] * 2, "Home")  # wraps to the last layer, which sees everything
    assert reading(page).startswith("layer 3, head 3:") and "(0)" in reading(page)
    press(page, "b", "x", "Enter")
    assert page.locator(".lm-figure").count() == 1


def test_attention_is_read_by_pointer(open_page: Open, widgets: dict[str, Any]) -> None:
    page, weights = open_page("attention"), widgets["attention"].frame.arrays["weights"].values
    page.get_by_role("button", name="layer 3, head 2").click()
    assert page.get_by_role("button", name="layer 3, head 2").get_attribute("aria-pressed") == "true"
    box = page.locator(".lm-map").bounding_box()
    cell = box["width"] / len(TEXT)
    spoken = page.get_by_role("status").last.text_content()
    page.mouse.move(box["x"] + 4.5 * cell, box["y"] + 20.5 * cell)
    assert reading(page).endswith(f"(20) looks at “k” (4) with weight {weights[3, 2, 20, 4]:.3f}")
    assert page.get_by_role("status").last.text_content() == spoken  # a passing pointer does not talk
    page.mouse.move(box["x"] + 20.5 * cell, box["y"] + 4.5 * cell)  # the future: nothing to read
    assert "(20) looks at “k” (4)" in reading(page)


def test_the_map_shows_the_weights(open_page: Open, widgets: dict[str, Any]) -> None:
    page = open_page("attention", color_scheme="light")
    pixels = page.evaluate(
        "() => { const c = document.querySelector('.lm-map');"
        " return [c.width, c.height, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]; }"
    )
    side = len(TEXT)
    assert pixels[:2] == [side, side]
    lightness = np.array(pixels[2:]).reshape(side, side, 4)[..., :3].sum(-1)
    weights = widgets["attention"].frame.arrays["weights"].values[0, 0]
    seen = ~np.isnan(widgets["attention"].frame.arrays["scores"].values[0, 0])
    order = np.argsort(weights[seen])
    assert np.all(np.diff(lightness[seen][order]) <= 3)  # the darker, the heavier (to the rounding of three colours)
    assert np.ptp(lightness[seen]) > 150, "and something is drawn"
    hidden = np.array(pixels[2:]).reshape(side, side, 4)[~seen]
    assert len(np.unique(hidden, axis=0)) == 1 and hidden[0, 3] == 255


def test_the_first_reading_is_of_a_key_in_sight(open_page: Open, widgets: dict[str, Any]) -> None:
    page, last = open_page("attention"), len(TEXT) - 1
    weight = widgets["attention"].frame.arrays["weights"].values[0, 0, last, last - 15]
    assert reading(page).endswith(f"({last - 15}) with weight {weight:.3f}")  # a window of 16


@pytest.mark.parametrize("name", ["attention", "router"])
def test_what_is_drawn_before_it_is_on_the_page_gets_its_colours(open_page: Open, name: str) -> None:
    start = 'showOnPage(widget, document.getElementById("figure"), document.getElementById("state"));'
    late = """
    const el = document.createElement("div");
    widget().render({ model: pageModel(JSON.parse(document.getElementById("state").textContent)), el });
    setTimeout(() => document.getElementById("figure").append(el), 50);
    """
    count = (
        "() => { const c = document.querySelector('.lm-map'); if (!c) return 0;"
        " const bytes = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " return new Set(new Uint32Array(bytes.buffer)).size; }"
    )
    colours = open_page(name).evaluate(count)
    assert colours > 10

    def shown_late(text: str) -> str:
        assert start in text
        return text.replace(start, late)

    page = open_page(name, edit=shown_late)
    page.wait_for_function(f"expected => ({count})() === expected", arg=colours, timeout=5000)


def test_a_token_is_followed_by_keys(open_page: Open, widgets: dict[str, Any]) -> None:
    page, frame = open_page("token"), widgets["token"].frame
    press(page, "Home", "ArrowRight", "ArrowDown", "ArrowDown")
    rms, likely = frame.arrays["rms"].values, frame.facts["likely"]
    assert reading(page).startswith(f"After feed-forward 0, token 1 “o”: RMS {rms[2, 1]:.2f}; next “{likely[2][1][0]}”")
    bits = frame.arrays["surprise"].values[1]
    assert f"What came, “r”, cost the model {bits:.2f} bits." in reading(page)
    assert page.get_by_role("row").count() == 1 + len(rms)
    row = page.get_by_role("row", name="attention 2")
    assert f"{frame.arrays['write'].values[4, 1]:.2f}" in row.text_content()
    press(page, "PageDown", "End")
    assert reading(page).startswith(f"After feed-forward 3, token {len(TEXT) - 1}") and "What came" not in reading(page)


def test_routes_are_read_by_keys(open_page: Open, widgets: dict[str, Any]) -> None:
    page, frame = open_page("router"), widgets["router"].frame
    chosen, weights = frame.arrays["chosen"].values, frame.arrays["weights"].values
    expert = int(chosen[2, 1, 0])
    press(page, "PageDown", "PageDown", "ArrowRight", *["ArrowDown"] * expert)
    assert reading(page).startswith(f"Layer 2, token 1 “o”, expert {expert}: chosen, weight {weights[2, 1, 0]:.2f}")
    listed = ", ".join(f"{e} ({w:.2f})" for e, w in zip(chosen[2, 1], weights[2, 1]))
    assert reading(page).endswith(f"Its 7: {listed}.")
    pressed = page.locator(".lm-tabs button[aria-pressed=true]")
    assert pressed.text_content() == "layer 2"
    loads = page.locator(".lm-load").evaluate_all("bars => bars.map(bar => bar.title)")
    assert loads == [f"expert {e}: {n}" for e, n in enumerate(frame.arrays["load"].values[2])]


@pytest.mark.parametrize("name", ["attention", "token", "router"])
@pytest.mark.parametrize(("width", "scheme"), [(940, "dark"), (375, "light")])
def test_every_page_fits_speaks_and_follows_the_theme(open_page: Open, name: str, width: int, scheme: str) -> None:
    page = open_page(name, width=width, color_scheme=scheme, reduced_motion="reduce")
    assert page.locator(".lm-figure").get_attribute("data-theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    group = page.get_by_role("group").first
    assert "your model" in group.get_attribute("aria-label") and group.get_attribute("data-lm-suppress-shortcuts")
    assert page.get_by_label("Text to read").is_disabled()
    outline = page.evaluate("() => { const s = getComputedStyle(document.activeElement); return s.outlineOffset; }")
    assert outline == "-3px"
    nameless = "n => !(n.ariaLabel || n.textContent.trim())"
    unnamed = page.evaluate(f"() => [...document.querySelectorAll('button, input')].filter({nameless}).length")
    assert unnamed == 0
