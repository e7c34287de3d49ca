"""From a figure's name to files; what is there already (numbers in the store, pictures in place) is not made again."""

from __future__ import annotations

from pathlib import Path

from morph.rendering.job import Job, run


def render_figure(figure: str, out: Path, *, quality: str, theme: str, sweep: Path | None = None) -> list[Path]:
    """Render one figure into `out` and list the files. Raises `MorphError` as `morph.rendering.job.run` does."""
    return run(Job(figure, out, {"sweep": sweep}, quality=quality, theme=theme))
