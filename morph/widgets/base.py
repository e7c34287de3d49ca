"""What every widget can do: show itself in a notebook, as a page of its own, as a picture, and as text."""

from __future__ import annotations

import base64
import html
import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import anywidget

from morph.errors import MorphError
from morph.story import Frame
from morph.widgets import assets

if TYPE_CHECKING:
    from scenes.board import Board
    from scenes.theme import Theme

STATIC = "MORPH_STATIC"
"""Environment variable, for readers without a kernel: "1" makes a widget show itself as a page of its own, "parts" as
what a page with several is made of."""
PARTS = "application/vnd.morph.widget+json"
"""Type of those parts: the widget's `id` in this kernel, its `script`, `heading`, `state` and `transcript`."""
_in_parts: dict[str, Widget] = {}
"""The widgets that were shown so, by their id."""
STATIC_HEIGHT = 620
"""Pixels of such a page before it has measured itself."""


class Widget(anywidget.AnyWidget):
    """A figure or an explorer. A subclass names its script, its heading, its state and its words."""

    script: ClassVar[str]
    """Name in `assets.MODULE_PARTS`."""
    shared: ClassVar[tuple[str, ...]]
    """Traits that a page of its own starts from."""

    _css = assets.style()

    @property
    @abstractmethod
    def heading(self) -> str:
        """One line that names it."""

    @abstractmethod
    def transcript(self) -> Sequence[str]:
        """What it shows, in lines of words."""

    @abstractmethod
    def still(self, theme: Theme) -> tuple[Board, Frame]:
        """What it shows now, as the scenes draw it, and the frame that this is of."""

    def to_png(self, path: Path | str | None = None) -> bytes:
        """A picture of what it shows now, in the light theme; written to `path` if one is given."""
        from scenes.svg import to_png
        from scenes.theme import theme

        light = theme("light")
        board, frame = self.still(light)
        data = to_png(board, light, frame)
        if path is not None:
            write(Path(path), data)
        return data

    def to_html(self, path: Path | str | None = None) -> str:
        """A self-contained page that opens as the widget stands now; written to `path` if one is given."""
        text = assets.page(self.script, self.heading, self.page_state(), self.transcript())
        if path is not None:
            write(Path(path), text.encode())
        return text

    def page_state(self) -> dict[str, Any]:
        """What a page of its own starts from, as JSON values."""
        return {name: _plain(getattr(self, name)) for name in self.shared}

    def parts(self) -> dict[str, Any]:
        """What a page with several widgets is made of (`PARTS`)."""
        known = {"id": self.model_id, "script": self.script, "heading": self.heading}
        return known | {"state": self.page_state(), "transcript": list(self.transcript())}

    def __repr__(self) -> str:
        return "\n".join([self.heading, *self.transcript()])

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        way = os.environ.get(STATIC)
        if way == "parts":
            _in_parts[self.model_id] = self
            return {"text/plain": repr(self), PARTS: self.parts()}
        if way != "1":
            live, metadata = super()._repr_mimebundle_(**kwargs)  # the widget, with `repr` as its plain text
            return {**live, "image/png": base64.b64encode(self.to_png()).decode()}, metadata
        page = html.escape(self.to_html(), quote=True)
        frame = (
            f'<iframe title="{html.escape(self.heading, quote=True)}" srcdoc="{page}" '
            f'style="width:100%;height:{STATIC_HEIGHT}px;border:0"></iframe>'
        )
        return {"text/plain": repr(self), "text/html": frame}


class PartsNow:
    """The parts of every widget that was shown so, as they are now: all views of a widget show what it has become."""

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return {"text/plain": "", PARTS: {name: widget.parts() for name, widget in _in_parts.items()}}


def _plain(value: Any) -> Any:
    """A trait as JSON: bytes as base64 text, which a page's model turns back."""
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def write(path: Path, data: bytes) -> None:
    """Write a file. Raises `MorphError` when its place cannot be written."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise MorphError(f"cannot write {path} ({error.strerror}); give a path in a writable folder") from None
