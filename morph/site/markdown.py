"""Markdown, code and terminal text as HTML, with the project's own links turned into the site's."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from morph.site.mathml import mathml

Link = Callable[[str], str | None]
"""Where a link of a source goes on the site; None where it has no page there, and its words stand alone."""
Image = Callable[[str], str]
"""The attributes of the picture that a source names."""
_SCROLL = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
WIDE = 5
"""Columns from which a table does not shrink to the width of a phone, but scrolls."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HELD = re.compile(r"(<math[ >](?:(?!</math>).)*</math>[.,;:!?)’”]+)", re.DOTALL)
"""A formula and what follows it without a blank: a line does not break there."""
_TAGS = re.compile(r"<[^>]+>")


@dataclass(frozen=True)
class Heading:
    """A heading of a page: its level, its anchor and its words (HTML)."""

    level: int
    anchor: str
    words: str


@dataclass
class Writer:
    """Turns the texts of one page into HTML and collects the headings."""

    link: Link = lambda href: href
    image: Image = lambda source: f'src="{html.escape(source)}"'
    headings: list[Heading] = field(default_factory=list)
    _anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._parser = MarkdownIt("commonmark", {"html": True, "typographer": False}).enable(["table", "strikethrough"])
        self._parser.use(dollarmath_plugin, allow_labels=False, allow_space=False, double_inline=True)
        rules: dict[str, Any] = {
            "math_inline": lambda tokens, i, *_: mathml(tokens[i].content),
            "math_inline_double": lambda tokens, i, *_: mathml(tokens[i].content, True),
            "math_block": lambda tokens, i, *_: f'<div class="formula">{mathml(tokens[i].content, True)}</div>\n',
            "table_open": lambda tokens, i, *_: (
                _SCROLL + ('<table class="is-wide">\n' if _is_wide(tokens[i:]) else "<table>\n")
            ),
            "table_close": lambda *_: "</table></div>\n",
            "fence": lambda tokens, i, *_: code(tokens[i].content, tokens[i].info.strip() or "text"),
            "code_block": lambda tokens, i, *_: code(tokens[i].content, "text"),
            "image": self._picture,
        }
        self._parser.renderer.rules.update(rules)  # type: ignore[attr-defined]

    def __call__(self, text: str) -> str:
        """A text as HTML."""
        tokens = self._parser.parse(text)
        for place, token in enumerate(tokens):
            if token.type == "heading_open":
                token.attrSet("id", self._note_heading(token, tokens[place + 1]))
            elif token.type == "inline":
                token.children = self._relinked(token.children or [])
            elif token.type in ("th_open", "td_open") and (style := token.attrGet("style")):
                token.attrSet("class", str(style).replace("text-align:", "is-"))
                token.attrs.pop("style")
        return _HELD.sub(
            r'<span class="held">\1</span>', str(self._parser.renderer.render(tokens, self._parser.options, {}))
        )

    def _note_heading(self, opening: Token, inline: Token) -> str:
        words = self._parser.renderer.render([inline], self._parser.options, {})
        anchor = base = slug(plain(words)) or "part"
        count = 2
        while anchor in self._anchors:
            anchor, count = f"{base}-{count}", count + 1
        self._anchors.add(anchor)
        self.headings.append(Heading(int(opening.tag[1]), anchor, words))
        return anchor

    def _relinked(self, tokens: list[Token]) -> list[Token]:
        """Links with their addresses on the site; those without one lose the link and keep the words."""
        kept: list[Token] = []
        is_open: list[bool] = []
        for token in tokens:
            if token.type == "link_open":
                address = self.link(str(token.attrGet("href")))
                is_open.append(address is not None)
                if address is not None:
                    token.attrSet("href", address)
                    kept.append(token)
            elif token.type == "link_close":
                if is_open.pop():
                    kept.append(token)
            else:
                kept.append(token)
        return kept

    def _picture(self, tokens: list[Token], place: int, *_: Any) -> str:
        token = tokens[place]
        alt = html.escape(token.content, quote=True)
        return f'<img class="plot" loading="lazy" alt="{alt}" {self.image(str(token.attrGet("src")))}>'


def _is_wide(tokens: list[Token]) -> bool:
    kinds = [token.type for token in tokens]
    return kinds[: kinds.index("tr_close")].count("th_open") >= WIDE


def code(text: str, language: str = "python") -> str:
    """Source text with its words marked for the style sheet; it scrolls by itself, and can be reached by keys."""
    from pygments import highlight
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    marked = highlight(text.rstrip("\n"), lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    return f'<pre class="code" tabindex="0" role="region" aria-label="Code"><code>{marked}</code></pre>\n'


def terminal(text: str) -> str:
    """What a program printed: colours dropped, and of a line that was written over, the last state."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in _ANSI.sub("", text).rstrip("\n").split("\n")]
    words = html.escape("\n".join(lines), quote=False)
    return f'<pre class="printed" tabindex="0" role="region" aria-label="Output">{words}</pre>\n'


def plain(words: str) -> str:
    """HTML without its marks."""
    return " ".join(html.unescape(_TAGS.sub("", words)).split())


def summary(words: str, most: int = 170) -> str:
    """The first sentences of an HTML text that fit, or as many words."""
    text = plain(words)
    if len(text) <= most:
        return text
    ends = [m.end() for m in re.finditer(r"[.!?](?= )", text[:most])]
    return text[: ends[-1]] if ends and ends[-1] > most // 3 else text[:most].rsplit(" ", 1)[0] + " …"


def slug(text: str) -> str:
    """Words as an anchor, made as GitHub makes it, for links that are written for there."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
