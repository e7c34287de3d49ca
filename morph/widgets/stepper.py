"""A figure stepped by hand or by itself: arrow keys, Home and End, space, a slider, buttons."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from morph.errors import MorphError
from morph.story import Figure, Frame, figure
from morph.widgets import assets

STATIC = "MORPH_STATIC"
"""Environment variable: "1" makes a widget show itself as a page of its own, for readers without a kernel."""


class Stepper(anywidget.AnyWidget):
    """Show a figure's frames one at a time.

    Args:
        figure_or_name: a `Figure`, or the name of one (`"morph"`).
        index: the frame shown first, from 0.
        autoplay: start by itself, unless the reader's system asks for reduced motion. Input pauses it.
        interval: milliseconds that a frame stays on screen in autoplay.
        idle: seconds without input after which a paused autoplay resumes.
        sweep: where figure `morph` takes its measured numbers from (a `Sweep`); the recorded one by default.

    Raises:
        MorphError: for an unknown figure, one without a browser drawing, or a value out of range.
    """

    _esm = assets.module()
    _css = assets.style()

    figure = traitlets.Dict(read_only=True).tag(sync=True)
    index = traitlets.Int(0).tag(sync=True)
    autoplay = traitlets.Bool(False).tag(sync=True)
    interval = traitlets.Int(1500).tag(sync=True)
    idle = traitlets.Float(12.0).tag(sync=True)

    def __init__(
        self,
        figure_or_name: Figure | str = "morph",
        index: int = 0,
        autoplay: bool = False,
        interval: int = 1500,
        idle: float = 12.0,
        sweep: Any = None,
    ) -> None:
        self.story = _story(figure_or_name, sweep)
        self.set_trait("figure", _drawable(self.story))
        super().__init__(index=index, autoplay=autoplay, interval=interval, idle=idle)

    @traitlets.validate("index")
    def _index_in_range(self, proposal: dict[str, Any]) -> int:
        index, frames = int(proposal["value"]), len(self.story)
        if not 0 <= index < frames:
            raise MorphError(f"index = {index} is no frame of figure {self.story.name!r}; give 0 to {frames - 1}")
        return index

    @traitlets.validate("interval", "idle")
    def _above_zero(self, proposal: dict[str, Any]) -> float:
        name, value = proposal["trait"].name, proposal["value"]
        if not value > 0:
            unit = "milliseconds" if name == "interval" else "seconds"
            raise MorphError(f"{name} = {value} must be above 0 {unit}")
        return value

    @property
    def frame(self) -> Frame:
        """The frame on screen."""
        return self.story.frames[self.index]

    def to_html(self, path: Path | str | None = None) -> str:
        """The figure as one self-contained page, opened at the frame on screen, and written to `path`."""
        state = {name: getattr(self, name) for name in ("figure", "index", "autoplay", "interval", "idle")}
        text = assets.page(self._heading(), state, self._transcript())
        if path is not None:
            target = Path(path)
            try:
                target.write_text(text, encoding="utf-8")
            except OSError as error:
                raise MorphError(
                    f"cannot write {target} ({error.strerror}); give a path in a writable folder"
                ) from None
        return text

    def __repr__(self) -> str:
        lines = (f"{n:3}  {line}" for n, line in enumerate(self._transcript(), start=1))
        return "\n".join([f"{self._heading()} ({len(self.story)} frames)", *lines])

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        if os.environ.get(STATIC) != "1":
            return super()._repr_mimebundle_(**kwargs)  # the live widget, with `repr` as its plain text
        page = html.escape(self.to_html(), quote=True)
        frame = (
            f'<iframe title="{html.escape(self._heading(), quote=True)}" srcdoc="{page}" '
            f'style="width:100%;height:760px;border:0"></iframe>'
        )
        return {"text/plain": repr(self), "text/html": frame}

    def _heading(self) -> str:
        return f"Figure {self.story.number} · {self.story.title}"

    def _transcript(self) -> list[str]:
        return [f"{frame.title}: {frame.caption}" for frame in self.story.frames]


def _story(figure_or_name: Figure | str, sweep: Any) -> Figure:
    if isinstance(figure_or_name, Figure):
        if sweep is not None:
            raise MorphError("sweep is for a figure given by name; this Figure already holds its numbers")
        story = figure_or_name
    else:
        story = figure(figure_or_name, **({} if sweep is None else {"sweep": sweep}))
    if story.name not in assets.DRAWN:
        drawn = ", ".join(assets.DRAWN)
        raise MorphError(f"no notebook drawing for figure {story.name!r}; those that have one: {drawn}")
    return story


def _drawable(story: Figure) -> dict[str, Any]:
    """What the browser needs: words and facts, no arrays, no claims."""

    def words(frame: Frame) -> dict[str, Any]:
        return {
            "key": frame.key,
            "title": frame.title,
            "caption": frame.caption,
            "alt": frame.alt,
            "facts": dict(frame.facts),
            "source": frame.source,
        }

    return {
        "name": story.name,
        "number": story.number,
        "title": story.title,
        "opening": words(story.opening) if story.opening else None,
        "frames": [words(frame) for frame in story.frames],
    }
