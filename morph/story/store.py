"""Figures kept on disk: what was computed once for the same code, model and text is read back, without torch.

A figure's name in the store is a hash of everything that it depends on: the package's files (recorded models among
them), the options, the files of a reader's run, checkpoint or sweep, and the versions that do the arithmetic. Nothing
in the store can therefore be out of date, and all of it may be deleted. It lies in the user's cache folder;
`MORPH_CACHE` names another.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import platformdirs

from morph.errors import MorphError
from morph.story import figure, require_known
from morph.story.frame import Figure
from morph.train.files import replace_bytes

PLACE = "MORPH_CACHE"
KEPT = 60
"""Figures to keep; the ones unread for longest go first."""
_PACKAGE = Path(__file__).resolve().parent.parent
_LEFT_OUT = (
    "widgets", "checks", "cli.py", "rendering", "tour.py", "doctor.py", "__main__.py",
    "site", "notebook.py", "shipped.py",
)  # fmt: skip
_KINDS = (".py", ".json", ".safetensors")
_READ = (
    "config.json", "recipe.json", "metrics.jsonl", "latest",
    "tokenizer.json", "tokenizer_config.json", "generation_config.json",
)  # fmt: skip
"""Files of a model's folder that its figures depend on, beside its weights."""


def folder() -> Path:
    """Where figures are kept."""
    if place := os.environ.get(PLACE):
        return Path(place)
    return platformdirs.user_cache_path("morph", appauthor=False)


def stored(name: str, **options: Any) -> Figure:
    """The figure `name`, read from the store, or made by `morph.story.figure` and put there.

    A store that cannot be read or written costs time, never the figure. Raises `MorphError` as `figure` does.
    """
    require_known(name)
    options = {key: value for key, value in options.items() if value is not None}
    path = folder() / f"{name}-{digest(name, options)}.json"
    try:
        found = Figure.load(path)
        os.utime(path)
    except (MorphError, OSError):
        made = figure(name, **options)
        text = json.dumps(made.to_dict(), ensure_ascii=False) + "\n"
        found = Figure.from_dict(json.loads(text))  # a figure is drawn from the same numbers, read or made
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(path, text.encode())
            _forget_old(path.parent)
        except OSError:
            pass
    return found


def digest(name: str, options: Mapping[str, Any]) -> str:
    """What the figure depends on, as 24 hexadecimal digits."""
    parts = [code_digest(_PACKAGE, _LEFT_OUT), name, *versions("torch", "numpy"), platform.python_version()]
    for key in sorted(options):
        parts += [key, *_identity(options[key])]
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()[:24]


@cache
def code_digest(package: Path, left_out: tuple[str, ...] = ()) -> str:
    """A hash of a package's source and data files, those under the names `left_out` excepted."""
    total = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package)
        if path.suffix in _KINDS and inside.parts[0] not in left_out:
            total.update(f"{inside.as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _identity(value: Any) -> Iterator[str]:
    """What tells an option's value from others; a file, a run's folder or a model is what it holds."""
    path = Path(value) if isinstance(value, str | Path) else None
    if path is not None and os.path.isfile(path):
        yield hashlib.sha256(path.read_bytes()).hexdigest()
    elif path is not None and os.path.isdir(path):
        held = [path / name for name in _READ]
        yield str(path.resolve())
        for file in (*held, *sorted(path.glob("checkpoints/*/state.json"))):
            yield hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "absent"
        for file in sorted(path.glob("*.safetensors")):  # gigabytes: known by their size and date
            yield f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}"
    elif hasattr(value, "state_dict"):
        yield repr(value.config)
        for name, tensor in value.state_dict().items():
            yield f"{name} {tensor.dtype} {hashlib.sha256(tensor.cpu().double().numpy().tobytes()).hexdigest()}"
    else:
        yield repr(value)


def versions(*packages: str) -> Iterator[str]:
    """Each package with its installed version, or absent."""
    for package in packages:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package} absent"


def _forget_old(place: Path) -> None:
    figures = sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in figures[KEPT:]:
        path.unlink(missing_ok=True)
