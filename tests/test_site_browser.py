"""Every page of a site in Chromium, opened as a file: quiet, offline, stepped by keys, in both themes, on paper."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from morph import shipped
from morph.site.build import MARK, Wanted, build_site
from morph.site.mathml import mathml
from morph.site.style import sheet
from morph.story import names
from tests.browser import chromium
from tests.sites import Links, pages_of, small_site, weight

pytestmark = pytest.mark.browser
DESK, PHONE = (1280, 800), (390, 844)
MOST = 3_000_000
"""Bytes of a page with all that it loads."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_site(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a file; at the end nothing may have been said on the console or asked of a network."""
    seen: list[str] = []
    contexts = []

    def open_it(path: Path, size: tuple[int, int] = DESK, anchor: str = "", context: Any = None, **style: Any) -> Any:
        if context is None:
            viewport = {"width": size[0], "height": size[1]}
            context = browser.new_context(viewport=viewport, **{"reduced_motion": "reduce"} | style)
            contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(f"{path.name}: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"{path.name}: {error}"))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else seen.append(r.url))
        page.goto(path.as_uri() + anchor)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert seen == []


FAULTS = """() => {
  const width = document.documentElement.clientWidth;
  const inside = ".scroll, pre, .formula, .lm-scroll, .lm-wayscroll, .lm-hidden, .lm-thumbs, .skip, svg *, math *";
  const faults = [...document.querySelectorAll("body *")]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !node.closest(inside))
    .map((node) => `too wide: ${node.tagName} ${node.textContent.slice(0, 40)}`);
  if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways");
  for (const mount of document.querySelectorAll(".widget")) {
    if (!mount.querySelector(".lm-figure")) faults.push(`no widget in ${mount.id}`);
  }
  for (const picture of document.images) picture.loading = "eager";
  return faults.slice(0, 5);
}"""


FOLLOWED = """theme =>
  [...document.querySelectorAll(".lm-figure")].every((figure) => figure.dataset.theme === theme)"""


def check_every_page(site: Path, open_page: Open) -> None:
    for name in pages_of(site):
        page = None
        for size in (DESK, PHONE):
            for theme in ("dark", "light"):
                if page is None:
                    page = open_page(site / name)
                page.set_viewport_size({"width": size[0], "height": size[1]})
                page.emulate_media(color_scheme=theme)
                assert page.evaluate(FAULTS) == [], f"{name}, {size[0]} px, {theme}"
                ground = page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == (theme == "dark")
                page.wait_for_function(FOLLOWED, arg=theme)  # they hear of it with the next picture
        assert page is not None
        page.wait_for_function("() => [...document.images].every((i) => i.complete)")
        hidden = "getComputedStyle(i).display === 'none'"
        broken = f"() => [...document.images].filter((i) => !i.naturalWidth && !({hidden})).map((i) => i.src)"
        assert page.evaluate(broken) == [], name
        page.close()


def test_every_page_is_quiet_offline_and_fits(site: Path, open_page: Open) -> None:
    check_every_page(site, open_page)


def counter(page: Any) -> str:
    return str(page.locator(".lm-counter").first.text_content())


def test_keys_step_a_figure_with_and_without_focus(site: Path, open_page: Open) -> None:
    page = open_page(site / "figures" / "norm.html")
    assert counter(page) == "01 / 11"
    page.keyboard.press("ArrowRight")  # nothing has the focus
    assert counter(page) == "02 / 11"
    page.locator(".lm-figure").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert counter(page) == "11 / 11"
    assert page.locator(".frames > .is-shown").get_attribute("id") == "frame-11"
    page.locator("#frame-4 a").click()
    assert counter(page) == "04 / 11"
    assert page.url.endswith("#frame-4")
    assert page.evaluate("() => document.querySelector('.lm-figure').getBoundingClientRect().top") >= 0
    assert counter(open_page(site / "figures" / "norm.html", anchor="#frame-7")) == "07 / 11"


def test_a_notebooks_widgets_live(site: Path, open_page: Open) -> None:
    page = open_page(site / "notebooks" / "00_first.html")
    stepper, router = page.locator(".lm-figure").nth(0), page.locator(".lm-figure").nth(1)
    assert counter(page) == "03 / 11"  # as the cell asked
    page.keyboard.press("ArrowRight")
    assert counter(page) == "03 / 11"  # a page of text keeps its own keys
    stepper.focus()
    page.keyboard.press("ArrowRight")
    assert counter(page) == "04 / 11"
    assert "another text needs the notebook" in str(router.locator(".lm-state").text_content())
    assert router.locator(".lm-text").is_disabled()
    before = router.locator(".lm-reading").text_content()
    router.focus()
    page.keyboard.press("PageDown")
    assert router.locator(".lm-reading").text_content() != before


def test_the_front_page_shows_the_morph_above_the_fold(site: Path, open_page: Open) -> None:
    box = "(node) => { const b = node.getBoundingClientRect(); return [b.top, b.bottom]; }"
    for size in (DESK, PHONE):
        page = open_page(site / "index.html", size)
        figure = page.locator(".lm-figure")
        _, title_end = page.locator("h1").evaluate(box)
        picture_start, picture_end = figure.locator(".lm-pane").first.evaluate(box)
        assert 0 < title_end < size[1] and picture_start > 0
        assert picture_end <= size[1], f"the picture ends at {picture_end} of {size[1]}"
        assert counter(page) == "01 / 14"
    page = open_page(site / "index.html", DESK, reduced_motion="no-preference")
    assert page.locator(".lm-figure").get_attribute("data-state") == "playing"
    _, controls_end = page.locator(".lm-controls").evaluate(box)
    assert controls_end <= DESK[1]


def test_the_switch_changes_the_theme_and_other_pages_remember(site: Path, open_page: Open) -> None:
    page = open_page(site / "index.html", color_scheme="light")
    theme = "() => [document.documentElement.dataset.theme ?? '', document.querySelector('.lm-figure').dataset.theme]"
    assert page.evaluate(theme) == ["", "light"]
    page.get_by_role("button", name="Show the dark theme").click()
    page.wait_for_selector('.lm-figure[data-theme="dark"]')
    assert page.evaluate(theme) == ["dark", "dark"]
    other = open_page(site / "figures" / "norm.html", context=page.context)
    assert other.evaluate(theme) == ["dark", "dark"]
    other.get_by_role("button", name="Show the light theme").click()
    other.wait_for_selector('.lm-figure[data-theme="light"]')
    assert other.evaluate(theme) == ["", "light"]  # as the system has it: nothing to remember
    assert open_page(site / "index.html", context=page.context).evaluate(theme) == ["", "light"]


def test_paper_gets_every_frame_as_a_still_and_no_chrome(site: Path, open_page: Open) -> None:
    page = open_page(site / "figures" / "norm.html", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_selector(".still svg", state="visible")
    assert page.locator(".still svg").count() == 11
    for chrome in (".top", ".foot", ".turn", ".lm-controls", ".switch"):
        assert not page.locator(chrome).first.is_visible(), chrome
    ground = "() => getComputedStyle(document.documentElement).getPropertyValue('--lm-background')"
    assert page.evaluate(ground) == "#FBFAF7"
    page.emulate_media(media="screen", color_scheme="dark")
    page.wait_for_selector(".still", state="detached")
    assert page.evaluate(ground) == "#10141B"
    book = open_page(site / "notebooks" / "00_first.html")
    book.emulate_media(media="print")
    assert book.locator(".lm-picture").first.is_visible()
    assert not book.locator(".lm-form").first.is_visible()


def test_without_scripts_the_words_are_there(site: Path, open_page: Open) -> None:
    page = open_page(site / "notebooks" / "00_first.html", java_script_enabled=False)
    assert page.get_by_text("LayerNorm: two sums").first.is_visible()
    assert page.locator(".printed").first.is_visible()


def formulas() -> list[str]:
    """Every formula of the notebooks and documents that ship, as MathML."""
    sources = [path.read_text(encoding="utf-8") for path in (shipped.PACKAGE.parent / "docs").glob("*.md")]
    for path in sorted((shipped.PACKAGE.parent / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    found: dict[str, None] = {}
    for text in sources:
        text = re.sub(r"`[^`]*`", "", text)
        for display, inline in re.findall(r"\$\$(.+?)\$\$|\$(?! )([^$\n]+?)\$", text, re.DOTALL):
            found[mathml(display or inline, bool(display))] = None
    return list(found)


def test_every_formula_is_set(open_page: Open, tmp_path: Path) -> None:
    shown = formulas()
    assert len(shown) > 80
    path = tmp_path / "formulas.html"
    body = "".join(f"<p>{formula}</p>\n" for formula in shown)
    path.write_text(f'<!doctype html><meta charset="utf-8"><title>x</title><style>{sheet()}</style>{body}')
    page = open_page(path)
    faults = page.evaluate("""() => [...document.querySelectorAll("math")].flatMap((math) => {
      const { width, height } = math.getBoundingClientRect();
      const bad = [];
      if (math.namespaceURI !== "http://www.w3.org/1998/Math/MathML" || width < 4 || height < 4) bad.push("nothing to see");
      if (math.querySelector("merror, semantics") || /[\\\\{}]|&/.test(math.textContent)) bad.push("raw");
      const known = "mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mstyle mpadded mphantom".split(" ");
      for (const node of math.querySelectorAll("*")) {
        if (!known.includes(node.localName)) bad.push(`unknown ${node.localName}`);
        const variant = node.getAttribute("mathvariant");
        if (variant && variant !== "normal") bad.push(`variant ${variant}`);
      }
      return bad.map((fault) => `${math.getAttribute("alttext")}: ${fault}`);
    })""")  # noqa: E501
    assert faults == []


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_whole_site_as_it_ships(open_page: Open, tmp_path: Path) -> None:
    """All notebooks, with their short trainings, all figures, all documents."""
    from tinyhtml5.parser import HTMLParser

    site = tmp_path / "site"
    build_site(Wanted(site, quick=True))
    pages = pages_of(site)
    assert set(pages) == set(json.loads((site / MARK).read_text())["pages"])
    assert len(pages) == 1 + len(shipped.notebooks()) + len(shipped.docs()) + len(names())
    for name, text in pages.items():
        parser = HTMLParser()
        parser.parse(text)
        assert parser.errors == [], name
        found = Links(text)
        assert len(set(found.ids)) == len(found.ids), name
        assert weight(site, name) < MOST, name
        for address in (*found.links, *found.loaded):
            if not re.match(r"https?:|mailto:|data:|#", address):
                assert ((site / name).parent / address.partition("#")[0]).is_file(), f"{name}: {address}"
        assert not [address for address in found.loaded if re.match(r"(https?:)?//", address)], name
    check_every_page(site, open_page)
