"""The site: what stands on its pages, that links and files hold together, and what an interrupted build leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tinyhtml5.parser import HTMLParser as Html5Parser

from morph import shipped
from morph.errors import MorphError
from morph.site import build as building
from morph.site import execute, style
from morph.site.build import MARK, Wanted, build_site
from morph.site.cells import solutions_of
from morph.site.markdown import Writer, plain, slug, summary, terminal
from morph.site.mathml import mathml
from morph.site.pages import Page, resolve
from morph.story.palette import THEMES
from scenes.theme import contrast
from tests.sites import FIGURES, Links, notebook, pages_of, small_site, weight

PAGES = {
    "index.html", "docs/found.html", "figures/morph.html", "figures/norm.html", "notebooks/00_first.html",
    "notebooks/01_second.html",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_site(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    return pages_of(site)


def state_of(text: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<script type="application/json" id="{name}-state">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


# ---- the pages ----


def test_a_page_for_each_notebook_figure_and_document(pages: dict[str, str]) -> None:
    assert set(pages) == PAGES


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_is_valid_and_says_what_it_is(pages: dict[str, str], page: str) -> None:
    parser = Html5Parser()
    parser.parse(pages[page])
    assert parser.errors == []
    found = Links(pages[page])
    assert len(set(found.ids)) == len(found.ids)
    assert [element.get("lang") for element in found.of("html")] == ["en"]
    (title,) = re.findall(r"<title>(.*?)</title>", pages[page])
    assert len(title) > 8
    (description,) = [m["content"] for m in found.of("meta") if m.get("name") == "description"]
    assert len(str(description)) > 5
    assert len(found.of("h1")) == 1
    assert all("alt" in picture for picture in found.of("img"))
    assert all(element.get("type") and element.get("aria-label") for element in found.of("button"))
    assert found.of("a")[0].get("href") == "#main"
    assert "main" in found.ids


def test_titles_are_the_sources_own_and_no_two_alike(pages: dict[str, str]) -> None:
    titles = {page: re.findall(r"<title>(.*?)</title>", text)[0] for page, text in pages.items()}
    assert titles["notebooks/00_first.html"] == "00 · The first · Morph"
    assert titles["docs/found.html"] == "What was found · Morph"
    assert len(set(titles.values())) == len(titles)


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, str]) -> None:
    anchors = {page: set(Links(text).ids) for page, text in pages.items()}
    for page, text in pages.items():
        found = Links(text)
        for address in [*found.links, *found.loaded]:
            if address.startswith("data:"):
                continue
            assert not re.match(r"(\w+:)?//|\w+:", address), f"{page} leads outside: {address}"
            path, _, anchor = address.partition("#")
            target = ((site / page).parent / path).resolve() if path else site / page
            assert target.is_file(), f"{page}: {address}"
            if anchor and target.suffix == ".html":
                assert anchor in anchors[target.relative_to(site).as_posix()], f"{page}: {address}"
    for file in (site / "assets").iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|url\((?!data:)|@import|fetch\(|XMLHttp", text), file.name


def test_a_page_with_all_it_loads_is_light(site: Path) -> None:
    assert {page: weight(site, page) for page in PAGES if weight(site, page) > 1_000_000} == {}


def test_a_notebooks_page_has_its_outputs(pages: dict[str, str]) -> None:
    text = pages["notebooks/00_first.html"]
    assert "seen 42\nwhole &lt;b&gt;</pre>" in text
    assert '<math display="block" alttext="\\sum_{i=1}^k x_i = 1.">' in text
    assert re.search(r"<td><code>one</code></td>\s*<td><strong>two</strong></td>", text)
    assert '<span class="kn">from</span>' in text
    stepper, router = state_of(text, "w3-0"), state_of(text, "w4-0")
    assert (stepper["index"], len(stepper["figure"]["frames"])) == (2, 11)
    assert (router["text"], router["live"]) == ("def f(x):", False)
    assert 'data-widget="router"' in text
    folded = re.search(r"<details><summary>A solution</summary>(.*?)</details>", text, re.DOTALL)
    assert folded is not None
    assert plain(folded[1]) == "# Exercise 1 · three three = 3"


def test_links_between_sources_become_links_between_pages(pages: dict[str, str]) -> None:
    text = pages["notebooks/00_first.html"]
    assert '<a href="../notebooks/01_second.html#one">the second</a>' in text
    assert '<a href="../docs/found.html">what was found</a>' in text
    assert "and code." in text
    assert '<a class="screen" href="../figures/norm.html">' in text
    assert '<a class="next" rel="next" href="../notebooks/01_second.html">' in text
    assert '<a class="screen" href="../notebooks/00_first.html">' in pages["figures/norm.html"]


def test_a_figures_page_tells_every_frame_in_words(pages: dict[str, str]) -> None:
    from morph.story.store import stored

    for name in FIGURES:
        figure, text = stored(name), pages[f"figures/{name}.html"]
        words = plain(text.partition('<ol class="frames">')[2])
        for frame in figure.frames:
            assert " ".join(f"{frame.title} {frame.caption}".split()) in words
        assert text.count("Checked on these numbers") == len(figure)
        assert len(state_of(text, "figure")["figure"]["frames"]) == len(figure)
    assert state_of(pages["index.html"], "figure")["autoplay"] is True


def test_a_document_has_its_plot_with_words_and_size(site: Path, pages: dict[str, str]) -> None:
    (picture,) = Links(pages["docs/found.html"]).of("img")
    assert (picture["alt"], picture["width"], picture["height"]) == ("A plot of it", "40", "20")
    assert (site / "docs" / str(picture["src"])).read_bytes()[:4] == b"RIFF"
    assert '<th class="is-right">a</th>' in pages["docs/found.html"]


# ---- building again, and not to the end ----


def build(site: Path, **options: Any) -> None:
    build_site(Wanted(site, quick=True, workers=1, **options))


def everything(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the notebooks that are run, each in place of a run."""
    seen: list[str] = []

    async def note(book: shipped.Notebook, quick: bool, on_cell: Any) -> dict[str, Any]:
        seen.append(book.name)
        return json.loads(book.text)

    monkeypatch.setattr(execute, "_run", note)
    return seen


def test_what_is_unchanged_is_not_run_again_and_gives_the_same_bytes(site: Path, runs: list[str]) -> None:
    before = everything(site)
    build(site)
    assert runs == []
    assert everything(site) == before
    changed = shipped.home() / "notebooks" / "01_second.ipynb"
    text = changed.read_text(encoding="utf-8")
    try:
        changed.write_text(
            notebook([("markdown", "# 01 · The second\n\nLonger."), ("code", "1 + 2")]), encoding="utf-8"
        )
        build(site)
        assert runs == ["01_second"]
        assert "Longer." in (site / "notebooks" / "01_second.html").read_text(encoding="utf-8")
    finally:
        changed.write_text(text, encoding="utf-8")
        build(site)
    assert everything(site) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, MorphError("no"), OSError(28, "No space left on device")])
def test_a_build_that_does_not_end_leaves_the_former_site(
    site: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    before = everything(site)

    def stop(*_: Any) -> None:
        raise error

    monkeypatch.setattr(building, "_write_home", stop)  # nearly at the end
    with pytest.raises(error if isinstance(error, type) else type(error)):
        build(site)
    assert everything(site) == before
    assert [path.name for path in site.parent.iterdir() if path.name.startswith(".")] == []


def test_a_notebook_that_fails_is_named_with_its_error(site: Path) -> None:
    before = everything(site)
    path = shipped.home() / "notebooks" / "02_broken.ipynb"
    path.write_text(notebook([("markdown", "# Broken"), ("code", "[1][3]")]), encoding="utf-8")
    try:
        with pytest.raises(MorphError, match="notebook 02_broken fails in a cell with IndexError: list index"):
            build(site)
    finally:
        path.unlink()
    assert everything(site) == before


def test_ctrl_c_ends_the_kernels(site: Path) -> None:
    """The interruption comes while a kernel works; it is gone when the call ends."""
    mark = site.parent / "kernel"
    path = shipped.home() / "notebooks" / "02_endless.ipynb"
    code = f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\ntime.sleep(100)"
    path.write_text(notebook([("code", code)]), encoding="utf-8")

    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.wait(0.05):
            if mark.exists() and mark.read_text():
                os.kill(os.getpid(), signal.SIGINT)
                return

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            execute.executed(shipped.notebooks()[2:], quick=True, workers=1, on_cell=lambda *_: None)
    finally:
        is_over.set()
        path.unlink()
    kernel = Path(f"/proc/{mark.read_text()}")
    deadline = time.monotonic() + 10
    while kernel.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not kernel.exists()


# ---- what is refused ----


def test_names_and_folders_are_refused_before_any_work(site: Path, tmp_path: Path, runs: list[str]) -> None:
    with pytest.raises(MorphError, match=r"no notebook or figure is called 'mroph'; .*; did you mean 'morph'\?"):
        build(tmp_path / "new", only=("mroph",))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(MorphError, match="mine holds something else than a site"):
        build(tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    with pytest.raises(MorphError, match="is not a folder: give another --out"):
        build(tmp_path / "mine" / "letter.txt")
    for place in (Path("/"), Path(".."), Path(".")):
        with pytest.raises(MorphError, match=r"there already|something else"):
            build(place)
    assert runs == []


def test_a_selection_is_a_site_of_its_own(tmp_path: Path, site: Path, runs: list[str]) -> None:
    build(tmp_path / "one", only=("norm",))
    assert set(pages_of(tmp_path / "one")) == {"index.html", "figures/norm.html"}
    assert "Notebooks</h2>" not in (tmp_path / "one" / "index.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "one" / MARK).read_text())["pages"] == ["index.html", "figures/norm.html"]


def test_a_package_that_is_missing_is_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jinja2" else object())
    with pytest.raises(MorphError, match=r"needs jinja2: pip install -e '\.\[site\]'"):
        build(site)


# ---- text, formulas, colours ----


def test_markdown_keeps_its_promises() -> None:
    write = Writer(link=lambda href: None if href == "gone" else f"to/{href}")
    made = write(
        "## A b\n\n## A b\n\n[x](y) [z](gone) costs `$a$`, 5 $ and 6 $.\n\n```python\nx = 1\n```\n\n![w](p.png)"
    )
    assert [heading.anchor for heading in write.headings] == ["a-b", "a-b-2"]
    assert '<a href="to/y">x</a> z costs <code>$a$</code>, 5 $ and 6 $.' in made
    assert 'src="p.png"' in made
    assert '<span class="mi">1</span>' in made
    assert '<span class="held"><math alttext="N"><mrow><mi>N</mi></mrow></math>,</span>' in write("the $N$, and")
    assert "is-wide" in write("|a|b|c|d|e|\n|-|-|-|-|-|\n|1|2|3|4|5|")
    assert "is-wide" not in write("|a|b|\n|-|-|\n|1|2|")


def test_small_words() -> None:
    assert slug("8. Windows: how many, how wide") == "8-windows-how-many-how-wide"
    assert summary("<p>One two. Three four. Five six seven.</p>", 22) == "One two. Three four."
    assert summary("<p>One two three four five</p>", 12) == "One two …"
    assert terminal("\x1b[31mred\x1b[0m\n50%\r100%\n").count("red\n100%") == 1
    assert solutions_of("# %%\n# Exercise 2 · b\ny = 1\n\n# %%\nz") == {"# Exercise 2 · b": "# Exercise 2 · b\ny = 1"}


def test_where_links_go() -> None:
    pages = [Page("docs", "lab", "Lab"), Page("notebooks", "00_a", "A")]
    lab, book = pages
    assert resolve("../docs/lab.md#x", book, pages) == "../docs/lab.html#x"
    assert resolve("../notebooks/00_a.ipynb", lab, pages) == "../notebooks/00_a.html"
    assert resolve("#here", lab, pages) == "#here"
    assert resolve("https://arxiv.org", lab, pages) == "https://arxiv.org"
    assert resolve("../morph/nn/norm.py", lab, pages) is None


@pytest.mark.parametrize(
    ("latex", "found"),
    [
        (r"\mathrm{softmax}(x)", "<mi>softmax</mi>"),
        (r"\operatorname{rank}", "<mi>rank</mi>"),
        (r"\mathcal T", "<mi>\U0001d4af</mi>"),
        (r"\mathcal L", "<mi>ℒ</mi>"),
        (r"\mathbb R", "<mi>ℝ</mi>"),
        (r"\log M", '<mi>log</mi><mspace width="0.1667em" /><mi>M</mi>'),
        (r"a \sin(b)", '<mi>a</mi><mspace width="0.1667em" /><mi>sin</mi><mo stretchy="false">(</mo>'),
        (r"a\!b", '<mspace width="-0.1667em" />'),
        (r"= -\infty", '<mo>=</mo><mo form="prefix">−</mo><mi>∞</mi>'),
        (r"a - b", "<mi>a</mi><mo>−</mo><mi>b</mi>"),
        (r"1/n", '<mo lspace="0" rspace="0">/</mo>'),
        (r"\langle a", '<mo form="prefix" stretchy="false">⟨</mo>'),
        (r"\Delta", '<mi mathvariant="normal">Δ</mi>'),
        (r"a \iff b", "<mo>⟺</mo>"),
    ],
)
def test_formulas_in_what_browsers_know(latex: str, found: str) -> None:
    assert found in mathml(latex)
    assert 'mathvariant="script"' not in mathml(latex)
    assert "negative" not in mathml(latex)


def test_a_formula_that_cannot_be_shown_is_refused() -> None:
    with pytest.raises(MorphError, match=r"the formula .*notacommand"):
        mathml(r"\notacommand x")


def test_every_text_that_ships_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """All formulas, tables and links of the real notebooks and documents; nothing is run."""
    monkeypatch.setattr(shipped, "home", lambda: shipped.PACKAGE.parent)
    headings = 0
    for book in shipped.notebooks():
        write = Writer()
        for cell in json.loads(book.text)["cells"]:
            if cell["cell_type"] == "markdown":
                made = write("".join(cell["source"]))
                assert "$" not in plain(made), book.name  # none is left unread
        headings += len(write.headings)
    for path in shipped.docs():
        write = Writer()
        made = write(path.read_text(encoding="utf-8"))
        anchors = {heading.anchor for heading in write.headings}
        assert set(re.findall(r'href="#([^"]+)"', made)) <= anchors, path.name
    assert headings > 20


@pytest.mark.parametrize("theme", THEMES)
def test_code_can_be_read_in_both_themes(theme: str) -> None:
    colours = THEMES[theme]
    low = {role: contrast(colours[role], colours["panel"]) for role in style.LETTERS}
    assert {role: value for role, value in low.items() if value < 4.5} == {}
    assert contrast(colours["focus"], colours["background"]) >= 4.5  # links
