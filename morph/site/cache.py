"""What the site is made of and takes long to make, kept between builds: executed notebooks, drawings, pictures.

A thing's name is a hash of everything it depends on, as in `morph.story.store`, so nothing kept can be out of date and
all of it may be deleted.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from morph.shipped import COPIED, PACKAGE
from morph.story.store import code_digest, folder, versions
from morph.train.files import replace_bytes

KEPT = 400
"""Things to keep; the ones unread for longest go first."""
_LEFT_OUT = ("site", "cli.py", "rendering", "tour.py", "doctor.py", "__main__.py", "notebook.py", "shipped.py", COPIED)
_MADE_WITH = ("torch", "numpy", "matplotlib", "anywidget", "typst", "fontpkg-inter", "pillow")


@cache
def code() -> str:
    """A hash of the code that computes and draws, and of the packages it does so with."""
    scenes = Path(importlib.import_module("scenes").__file__ or "").parent
    parts = [code_digest(PACKAGE, _LEFT_OUT), code_digest(scenes), *versions(*_MADE_WITH), platform.python_version()]
    return digest(parts)


def digest(parts: Iterable[str | bytes]) -> str:
    """Of all that a thing depends on, as 24 hexadecimal digits."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:24]


def kept(name: str) -> bytes | None:
    """What was kept under a name."""
    path = _place() / name
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return data


def keep(name: str, data: bytes) -> None:
    """Keep it; a store that cannot be written costs time, never the site."""
    place = _place()
    try:
        place.mkdir(parents=True, exist_ok=True)
        replace_bytes(place / name, data)
        for old in sorted(place.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
            old.unlink(missing_ok=True)
    except OSError:
        pass


def kept_or_made(name: str, make: Callable[[], bytes]) -> bytes:
    """What was kept under a name, or what `make` gives, kept from now on."""
    if (found := kept(name)) is not None:
        return found
    made = make()
    keep(name, made)
    return made


def _place() -> Path:
    return folder() / "site"
