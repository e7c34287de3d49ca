"""A figure as the browser gets it: its drawing, made by the scenes, and its words. No notebook is needed for a page."""

from __future__ import annotations

from typing import Any

from morph.story import Figure, Frame
from morph.widgets import assets


def heading(figure: Figure) -> str:
    """One line that names a figure."""
    return f"Figure {figure.number} · {figure.title}"


def transcript(figure: Figure) -> list[str]:
    """A line of words for each frame."""
    return [f"{n:3}  {frame.title}: {frame.caption}" for n, frame in enumerate(figure.frames, start=1)]


def sent(figure: Figure) -> dict[str, Any]:
    """What the stepper's script reads: words and the drawing, no arrays, no claims."""
    from scenes.boards import drawing
    from scenes.chrome import words_around

    def words(frame: Frame) -> dict[str, str]:
        aside, force, note = words_around(frame)
        return {
            "key": frame.key, "title": frame.title, "caption": frame.caption, "alt": frame.alt, "aside": aside,
            "note": f"{force}: {note}" if force else note,
        }  # fmt: skip

    return {
        "name": figure.name,
        "number": figure.number,
        "title": figure.title,
        "frames": [words(frame) for frame in figure.frames],
        "drawing": drawing(figure),
    }


def page(figure: Figure, *, index: int = 0, autoplay: bool = False) -> str:
    """A self-contained page to step through a figure, opened at frame `index` (from 0)."""
    state = {"figure": sent(figure), "index": index, "autoplay": autoplay, "interval": 1500, "idle": 12.0}
    return assets.page("stepper", heading(figure), state, transcript(figure))
