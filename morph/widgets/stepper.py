"""A figure stepped by hand or by itself: arrow keys, Home and End, space, a slider, buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from morph.errors import MorphError
from morph.story import Figure, Frame
from morph.story.store import stored
from morph.widgets import assets
from morph.widgets.base import Widget
from morph.widgets.pages import heading, sent, transcript

if TYPE_CHECKING:
    from scenes.board import Board
    from scenes.theme import Theme

A_DAY = 86_400
"""Seconds. A browser's clock counts 2³¹ milliseconds, and what is longer goes off at once."""


class Stepper(Widget):
    """Show a figure's frames one at a time.

    Args:
        figure_or_name: a `Figure`, or the name of one (`"rope"`).
        index: the frame shown first, from 0.
        autoplay: start by itself, unless the reader's system asks for reduced motion. Input pauses it.
        interval: milliseconds that a frame stays on screen in autoplay.
        idle: seconds without input after which a paused autoplay resumes.
        options: for a figure given by name, what `morph.story.figure` takes: `model` and `seed`, or `sweep`.

    Raises:
        MorphError: for an unknown figure, an option that it does not take, or a value out of range.
    """

    script = "stepper"
    shared = ("figure", "index", "autoplay", "interval", "idle")

    _esm = assets.module("stepper")

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
        **options: Any,
    ) -> None:
        if isinstance(figure_or_name, Figure):
            if options:
                raise MorphError(f"{', '.join(options)}: for a figure given by name; this one already has its numbers")
            self.story = figure_or_name
        else:
            self.story = stored(figure_or_name, **options)
        self.set_trait("figure", sent(self.story))
        super().__init__(index=index, autoplay=autoplay, interval=interval, idle=idle)

    @traitlets.validate("index")
    def _index_in_range(self, proposal: dict[str, Any]) -> int:
        index, frames = int(proposal["value"]), len(self.story)
        if not 0 <= index < frames:
            raise MorphError(f"index = {index} is no frame of figure {self.story.name!r}; give 0 to {frames - 1}")
        return index

    @traitlets.validate("interval", "idle")
    def _time_in_range(self, proposal: dict[str, Any]) -> float:
        name, value = proposal["trait"].name, proposal["value"]
        unit, most = ("milliseconds", 1000 * A_DAY) if name == "interval" else ("seconds", A_DAY)
        if not 0 < value <= most:
            raise MorphError(f"{name} = {value} must be above 0 and at most {most:,} {unit}")
        return value

    @property
    def frame(self) -> Frame:
        """The frame on screen."""
        return self.story.frames[self.index]

    @property
    def heading(self) -> str:
        return heading(self.story)

    def transcript(self) -> list[str]:
        return transcript(self.story)

    def still(self, theme: Theme) -> tuple[Board, Frame]:
        from scenes.boards import board

        return board(self.story, self.index + 1, theme), self.frame
