"""The way to the scenes, which are not part of every installation."""

from __future__ import annotations

import importlib
from pathlib import Path

from morph.errors import MorphError


def render_figure(figure: str, out: Path, *, quality: str, theme: str, sweep: Path | None) -> list[Path]:
    """Render a figure into `out` and list the files written.

    Raises:
        MorphError: when what the scenes need is not installed, and for what `scenes.render.render` refuses.
    """
    try:
        scenes = importlib.import_module("scenes.render")
    except ModuleNotFoundError as error:
        raise MorphError(
            f"rendering needs {error.name}, which is missing: run in Morph's folder with the extra 'scenes' "
            f"(pip install -e '.[scenes]'); morph doctor says more"
        ) from None
    written: list[Path] = scenes.render(figure, out, quality=quality, theme=theme, sweep=sweep)
    return written
