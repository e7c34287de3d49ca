"""The site's one style sheet and one script, put together from the files in `static/` and from what widgets use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from morph.story.palette import THEMES
from morph.widgets import assets

LETTERS = {
    "attention": ".k, .kc, .kd, .kn, .kr, .kt, .ow",  # keywords
    "ffn": ".s, .s1, .s2, .sa, .sd, .se, .si, .sh",  # texts
    "cache": ".m, .mi, .mf, .mh, .mb, .mo",  # numbers
    "muted": ".c, .c1, .ch, .cm, .cs",  # comments
}
"""Role of the palette -> the Pygments classes that take its colour in code."""


def mark(colours: Mapping[str, str]) -> str:
    """The project's sign, two organs on a stream, in colours for `wire`, `attention` and `ffn`."""
    organs = ((3.5, "attention"), (13.5, "ffn"))
    boxes = (f'<rect x="3" y="{y}" width="16" height="5" rx="2" fill="{colours[role]}"/>' for y, role in organs)
    wire = f'<path d="M11 1v20" stroke="{colours["wire"]}" stroke-width="2"/>'
    drawn = wire + "".join(boxes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 22 22" aria-hidden="true">{drawn}</svg>'


def icon() -> str:
    """The sign as a data URI, for the browser's tab."""
    return "data:image/svg+xml," + quote(mark(THEMES["dark"]))


@cache
def part(name: str) -> str:
    """The text of one file in `static/`."""
    return (files("morph.site") / "static" / name).read_text(encoding="utf-8")


@cache
def sheet() -> str:
    """CSS: the palette for both themes, the widgets, the pages."""
    light, dark = assets.variables("light"), assets.variables("dark")
    return "\n".join([
        f":root {{ color-scheme: light; {light} }}",
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme]) {{ color-scheme: dark; {dark} }} }}",
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}',
        f"@media print {{ :root:root {{ color-scheme: light; {light} }} }}",
        assets.style(),
        part("site.css"),
        *(f".code :is({classes}) {{ color: var(--lm-{role}); }}" for role, classes in LETTERS.items()),
        part("print.css"),
    ])  # fmt: skip


@cache
def script() -> str:
    """JavaScript: every widget, and what starts them on a page."""
    return "\n".join([assets.bundle(), part("site.js")])
