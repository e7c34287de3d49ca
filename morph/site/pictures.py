"""The pictures of a site: figures as their drawings, small stills of them, and plots in fewer bytes.

What takes long is kept between builds (`morph.site.cache`).
"""

from __future__ import annotations

import io
import json
from typing import Any

from morph.site import cache
from morph.story import Figure
from morph.story.store import digest as figure_digest

THUMBNAIL = (540, 270)
"""Width and height of a figure's picture on the front page, in pixels."""


def drawn(figure: Figure) -> dict[str, Any]:
    """A figure's stepper as the parts of a page, from the store where its numbers and the code are unchanged."""
    from morph.widgets import pages

    def make() -> bytes:
        state = {"figure": pages.sent(figure), "index": 0, "autoplay": False, "interval": 1500, "idle": 12.0}
        parts = {"script": "stepper", "heading": pages.heading(figure), "state": state}
        return json.dumps(parts | {"transcript": pages.transcript(figure)}, ensure_ascii=False).encode()

    name = f"figure-{cache.digest([figure_digest(figure.name, {}), cache.code()])}.json"
    found: dict[str, Any] = json.loads(cache.kept_or_made(name, make))
    return found


def thumbnail(figure: Figure, theme: str) -> bytes:
    """The still in the middle of a figure, small: its stage, without title and caption."""

    def make() -> bytes:
        from PIL import Image

        from scenes.boards import board
        from scenes.chrome import STAGE
        from scenes.svg import FULL, to_png, view_box
        from scenes.theme import theme as theme_called

        index, chosen = (len(figure) + 1) // 2, theme_called(theme)
        picture = to_png(board(figure, index, chosen), chosen, figure.frames[index - 1])
        image = Image.open(io.BytesIO(picture)).convert("RGB")
        (left, top, width, _), (x, y, w, h) = view_box(FULL), view_box(STAGE)
        scale = image.width / width
        stage = image.crop(tuple(round(scale * n) for n in (x - left, y - top, x - left + w, y - top + h)))
        ground = Image.new("RGB", THUMBNAIL, chosen.colour("background"))
        stage.thumbnail(THUMBNAIL)
        ground.paste(stage, ((ground.width - stage.width) // 2, (ground.height - stage.height) // 2))
        return _encoded(ground, lossless=False)

    return cache.kept_or_made(
        f"thumbnail-{cache.digest([figure_digest(figure.name, {}), cache.code(), theme, str(THUMBNAIL)])}.webp", make
    )


def smaller(data: bytes, ending: str) -> tuple[bytes, str]:
    """A PNG as lossless WebP, which is a third of the size; other pictures as they are."""
    if ending != "png":
        return data, ending

    def make() -> bytes:
        from PIL import Image

        return _encoded(Image.open(io.BytesIO(data)), lossless=True)

    return cache.kept_or_made(f"picture-{cache.digest([data])}.webp", make), "webp"


def _encoded(image: Any, lossless: bool) -> bytes:
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=lossless, quality=60 if lossless else 86, method=4)
    return file.getvalue()


def size(data: bytes) -> tuple[int, int]:
    from PIL import Image

    width, height = Image.open(io.BytesIO(data)).size
    return width, height
