"""The browser's half as text: one ES module and one style sheet, put together from the files in `static/`.

There is no bundler. The parts import nothing, so the module is the parts one after the other, and a widget, a
page and a test all read the same files. The colours come from `morph.story.palette`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from morph.story.palette import THEMES

SHARED_PARTS = ("host.js",)
MODULE_PARTS = {
    "stepper": ("player.js", "drawing.js", "stepper.js"),
    "attention": ("explorer.js", "map.js", "attention.js"),
    "token": ("explorer.js", "token.js"),
    "monitor": ("monitor.js",),
    "router": ("explorer.js", "map.js", "router.js"),
}
"""Widget -> its own files after the shared ones; the last exports the widget's factory."""


@cache
def part(name: str) -> str:
    """The text of one file in `static/`."""
    return (files("morph.widgets") / "static" / name).read_text(encoding="utf-8")


@cache
def module(widget: str) -> str:
    """A widget as one ES module, its factory exported as default."""
    return "\n".join(part(name) for name in (*SHARED_PARTS, *MODULE_PARTS[widget]))


@cache
def bundle() -> str:
    """Every widget as one classic script, for pages with several: a page opened from disk may load no ES module.

    It defines `morphWidgets`, a widget's name -> its factory, and `showOnPage(factory, mount, state)`.
    """
    factories = []
    for widget in MODULE_PARTS:
        body = "\n".join(part(name) for name in MODULE_PARTS[widget])
        body = re.sub(r"^export default (\w+);$", r"return \1;", body, flags=re.MULTILINE)
        body = re.sub(r"^export (?=const|function)", "", body, flags=re.MULTILINE)
        factories.append(f'morphWidgets["{widget}"] = (() => {{\n{body}\n}})();')
    return "\n".join([*map(part, SHARED_PARTS), "const morphWidgets = {};", *factories, part("page.js")])


def variables(theme: str) -> str:
    """A theme's palette as CSS: `--lm-norm: #B98610; …`."""
    return " ".join(f"--lm-{role.replace('_', '-')}: {colour};" for role, colour in THEMES[theme].items())


@cache
def style() -> str:
    """The style sheet, led by the palette as CSS variables (`--lm-norm` and so on) for both themes."""
    rules = [f'.lm-figure[data-theme="{theme}"] {{ color-scheme: {theme}; {variables(theme)} }}' for theme in THEMES]
    return "\n".join([*rules, part("morph.css")])


PAGE_STYLE = """
html { color-scheme: light dark; background: Canvas; }
body { margin: 0 auto; padding: 8px; max-width: 916px; font: 16px/1.5 system-ui, sans-serif; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(widget: str, title: str, state: Mapping[str, Any], transcript: Sequence[str]) -> str:
    """A self-contained page with one widget.

    Args:
        widget: a name in `MODULE_PARTS`.
        title: of the document.
        state: the widget's synchronized values, as JSON.
        transcript: one line a frame, for a reader whose browser runs no script.
    """
    data = json.dumps(state, ensure_ascii=False).replace("<", "\\u003c")  # "</script>" cannot end the block
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in transcript)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title>
<style>{PAGE_STYLE}{style()}</style>
</head>
<body>
<div id="figure"></div>
<noscript><h1>{html.escape(title)}</h1><ol>{lines}</ol></noscript>
<script type="application/json" id="state">{data}</script>
<script type="module">
{module(widget)}
{part("page.js")}{part("alone.js")}</script>
</body>
</html>
"""
