"""`morph site build`: from notebooks, figures and documents to a folder of pages, moved into place when it is whole."""

from __future__ import annotations

import hashlib
import html
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from morph import __version__, shipped
from morph.errors import MorphError, nearest
from morph.shipped import Notebook
from morph.site import pictures, style
from morph.site.pages import FOLDERS, PARTS, Page, around, resolve
from morph.story import OPTIONS, Figure, names
from morph.story.store import stored
from morph.train.files import new_folder

MARK = "morph-site.json"
"""File that tells a site of ours from a folder of something else: only a site makes way for a site."""
HOME = Page(
    "home",
    "index",
    "Morph: from the 2017 Transformer to a language model of today",
    "Fourteen named changes, one at a time. Each stage is a small PyTorch model that builds, trains, generates and is "
    "counted; figures, notebooks and measurements come from those models.",
)


@dataclass(frozen=True)
class Wanted:
    """The words of the command line; `only` names notebooks and figures, and none means all, and the documents."""

    out: Path
    only: tuple[str, ...] = ()
    quick: bool = False
    workers: int | None = None


@dataclass
class Site:
    """A site in the making: where it is written, its pages, and the sources of each kind."""

    folder: Path
    books: Sequence[Notebook]
    figures: Sequence[str]
    docs: Sequence[Path]
    pages: list[Page] = field(default_factory=list)

    def write(self, path: str, data: str | bytes) -> None:
        """A file of the site."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)

    def media(self, page: Page, data: bytes, ending: str) -> str:
        """Keep a picture under a name that its bytes give it; answers with its address from the page."""
        path = f"media/{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        self.write(path, data)
        return page.root + path

    def render(self, page: Page, **values: Any) -> None:
        """Fill the page's template and write it."""
        before, after = around(self.pages, page)
        text = _template(page.kind).render(
            page=page, root=page.root, before=before, after=after, parts=PARTS, version=__version__, **values
        )
        self.write(page.path, text)


def build_site(wanted: Wanted) -> Path:
    """Make the site; answers with its front page.

    It is written into a hidden folder beside `out` and takes its place at the end: interrupted, or stopped by an error,
    the former site stays as it was.

    Raises:
        MorphError: for a name that is neither notebook nor figure, a folder that holds something else, a notebook that
            fails, a package that is missing.
    """
    books, figures, docs = _chosen(wanted.only)
    _require_site_or_nothing(wanted.out)
    _require_packages()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    )  # fmt: skip
    with bar, new_folder(wanted.out, replace=True) as folder:
        site = Site(folder, books, figures, docs)
        _fill(site, wanted, _reporter(bar, console.is_terminal))
    return wanted.out / "index.html"


Report = Callable[[str, int, int], None]
"""Called with what is at work, the pieces done, and their number."""


def _reporter(bar: Any, is_terminal: bool) -> Report:
    """A bar for each on a terminal; elsewhere a line for each that is done."""
    tasks: dict[str, Any] = {}

    def report(what: str, done: int, total: int) -> None:
        if is_terminal:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)
        elif done == total:
            print(what, file=sys.stderr, flush=True)

    return report


def _fill(site: Site, wanted: Wanted, report: Report) -> None:
    from morph.rendering.pool import workers_for
    from morph.site.execute import executed

    workers = wanted.workers or workers_for(max(1, len(site.books)))
    run = executed(site.books, quick=wanted.quick, workers=workers, on_cell=report)
    made: dict[str, Figure] = {}
    drawn: dict[str, dict[str, Any]] = {}
    wants_morph = ["morph"] if "morph" not in site.figures else []  # the front page shows it
    for done, name in enumerate([*site.figures, *wants_morph]):
        report("figures", done, len(site.figures) + len(wants_morph))
        made[name] = stored(name)
        drawn[name] = pictures.drawn(made[name])
    report("figures", 1, 1)
    site.pages = [
        HOME,
        *(_figure_page(made[name]) for name in site.figures),
        *(_notebook_page(book) for book in site.books),
        *(_doc_page(path) for path in site.docs),
    ]
    for page in site.pages:
        if page.kind == "figures":
            _write_figure(site, page, made[page.name], drawn[page.name])
        elif page.kind == "notebooks":
            _write_notebook(site, page, run[page.name])
        elif page.kind == "docs":
            _write_doc(site, page)
    _write_home(site, made, drawn)
    site.write("assets/site.css", style.sheet())
    site.write("assets/site.js", style.script())
    mark = {"version": __version__, "quick": wanted.quick, "pages": [page.path for page in site.pages]}
    site.write(MARK, json.dumps(mark, indent=1) + "\n")


# ---- the pages ----


def _figure_page(figure: Figure) -> Page:
    titles = ", ".join(frame.title.lower() for frame in figure.frames)
    words = f"Figure {figure.number} in {len(figure)} frames: {titles}"
    return Page("figures", figure.name, f"Figure {figure.number} · {figure.title}", _cut(words))


def _notebook_page(book: Notebook) -> Page:
    return Page("notebooks", book.name, book.title, _first_words("".join(json.loads(book.text)["cells"][0]["source"])))


def _doc_page(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    title = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), path.stem)
    return Page("docs", path.stem, title, _first_words(text))


def _write_figure(site: Site, page: Page, figure: Figure, parts: dict[str, Any]) -> None:
    from morph.site.cells import widget

    told = figure.provenance.get("name", "")
    if not told and "origin" in figure.provenance:
        p = figure.provenance
        told = f"{p['origin']}, size {p['size']}, {p['steps']} steps, {len(p['seeds'])} seeds"
    books = [p for p in site.pages for b in site.books if p.name == b.name and figure.name in b.figures]
    site.render(
        page,
        widget=widget(parts, "figure"),
        frames=figure.frames,
        shown=told,
        notebooks=books,
        option="--model runs/mine" if "model" in OPTIONS[figure.name] else "--sweep runs/sweep-tiny",
    )


def _write_notebook(site: Site, page: Page, book: dict[str, Any]) -> None:
    from morph.site.cells import blocks

    source = next(b for b in site.books if b.name == page.name)
    write = _writer(site, page, source.path.parent)
    solutions = source.solutions.read_text(encoding="utf-8") if source.solutions.is_file() else ""
    made = blocks(book, write, lambda data, ending: site.media(page, *pictures.smaller(data, ending)), solutions)
    site.write(f"{FOLDERS['notebooks']}{page.name}.ipynb", source.text)
    site.render(
        page,
        blocks=made,
        headings=[heading for heading in write.headings if heading.level == 2],
        figures=[p for p in site.pages if p.kind == "figures" and p.name in source.figures],
        number=page.name.partition("_")[0],
    )


def _write_doc(site: Site, page: Page) -> None:
    path = next(path for path in site.docs if path.stem == page.name)
    write = _writer(site, page, path.parent)
    text = write(path.read_text(encoding="utf-8"))
    site.render(page, text=text, headings=[heading for heading in write.headings if heading.level == 2])


def _write_home(site: Site, made: dict[str, Figure], drawn: dict[str, dict[str, Any]]) -> None:
    from morph.site.cells import widget

    kinds = {kind: [page for page in site.pages if page.kind == kind] for kind, _ in PARTS}
    cards = []
    for page in kinds["figures"]:
        figure = made[page.name]
        stills = {theme: site.media(HOME, pictures.thumbnail(figure, theme), "webp") for theme in ("light", "dark")}
        words = f"{len(figure)} frames, from “{figure.frames[0].title}” to “{figure.frames[-1].title}”"
        width, height = pictures.THUMBNAIL
        size = {"width": width, "height": height}
        cards.append({"page": page, "words": words, **stills, **size})
    live = drawn["morph"] | {"state": drawn["morph"]["state"] | {"autoplay": True, "interval": 3000}}
    first = next(iter((*kinds["notebooks"], *kinds["figures"])), None)
    lists = {"notebooks": kinds["notebooks"], "docs": kinds["docs"]}
    site.render(HOME, widget=widget(live, "figure"), first=first, figures=cards, **lists)


# ---- what pages are made of ----


def _writer(site: Site, page: Page, folder: Path) -> Any:
    from morph.site.markdown import Writer

    def picture(source: str) -> str:
        path = folder / source
        if not path.is_file():
            raise MorphError(f"{page.name} shows {source}, which is not there: morph lab report --out docs draws plots")
        data, ending = pictures.smaller(path.read_bytes(), path.suffix.lstrip("."))
        width, height = pictures.size(data)
        return f'src="{html.escape(site.media(page, data, ending))}" width="{width}" height="{height}"'

    return Writer(link=lambda href: resolve(href, page, site.pages), image=picture)


def _first_words(text: str) -> str:
    """The first paragraph of a Markdown text that is no heading, shortened."""
    from morph.site.markdown import Writer, summary

    paragraphs = (part.strip() for part in text.split("\n\n"))
    first = next((part for part in paragraphs if part and not part.startswith(("#", "|", ">"))), "")
    return summary(Writer()(first))


def _cut(words: str, most: int = 170) -> str:
    return words if len(words) <= most else words[:most].rsplit(",", 1)[0] + " …"


def _template(kind: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("morph.site"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    light = {role: f"var(--lm-{role})" for role in ("wire", "attention", "ffn")}
    environment.globals |= {"mark": Markup(style.mark(light)), "icon": style.icon()}
    return environment.get_template(f"{kind.removesuffix('s')}.html")


# ---- what is refused before any work ----


def _chosen(only: Sequence[str]) -> tuple[list[Notebook], list[str], list[Path]]:
    """Notebooks, figures and documents; a name may be a notebook's or a figure's."""
    books = list(shipped.notebooks())
    if not only:
        return books, list(names()), list(shipped.docs())
    known = [*(book.name for book in books), *names()]
    for word in only:
        if word not in known:
            raise MorphError(
                f"no notebook or figure is called {word[:40]!r}; there is {', '.join(known)}{nearest(word, known)}"
            )
    return [book for book in books if book.name in only], [name for name in names() if name in only], []


def _require_site_or_nothing(out: Path) -> None:
    if out.resolve() == Path(out.resolve().anchor) or out.name in ("", ".."):
        raise MorphError(
            f"--out {str(out)!r} is a folder that is there already: give the name of one for the site alone"
        )
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise MorphError(f"{out} is not a folder: give another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise MorphError(f"{out} holds something else than a site, and is not overwritten: give another --out")
    if out.is_dir() and not os.access(out.parent, os.W_OK):
        raise MorphError(f"{out.parent} cannot be written: give another --out")


def _require_packages() -> None:
    """Raise `MorphError` for what the site is made with and what is not installed."""
    from importlib.util import find_spec

    extra_of = {
        "jinja2": "site", "markdown_it": "site", "mdit_py_plugins": "site", "pygments": "site", "latex2mathml": "site",
        "nbclient": "site", "nbformat": "site", "PIL": "site", "anywidget": "notebook", "ipykernel": "notebook",
        "typst": "notebook",
    }  # fmt: skip
    for package, extra in extra_of.items():
        if find_spec(package) is None:
            raise MorphError(f"morph site build needs {package}: pip install -e '.[{extra}]' in Morph's folder")
