"""`morph notebook`: JupyterLab on a copy of the notebooks in the reader's own folder.

Nothing that lies there is ever written over. A small file beside the copies, `.morph-notebooks.json`, holds a hash of
each shipped file as it was when it was copied, which tells an edited copy from one that a newer Morph has outdated.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from morph import shipped
from morph.errors import MorphError
from morph.train.files import replace_bytes

RECORD = ".morph-notebooks.json"
State = Literal["new", "same", "edited", "outdated"]


@dataclass(frozen=True)
class Copy:
    """One shipped file and its place in the reader's folder.

    `state`: "new", nothing lies there; "same", what ships; "edited", the reader's own version of what ships;
    "outdated", made from an earlier version than what ships now, edited or not.
    """

    source: Path
    target: Path
    state: State


def compare(folder: Path) -> list[Copy]:
    """Every shipped notebook and solution against what lies in `folder`."""
    record = _record(folder)
    return [Copy(source, folder / name, _state(name, source, folder / name, record)) for name, source in _shipped()]


def bring(folder: Path, newer: bool = False) -> list[str]:
    """Copy what is not in `folder` yet, and say what a reader should know of the rest.

    Args:
        folder: the reader's; made when it is missing.
        newer: put the shipped version of what is outdated beside it, under a name of its own.

    Returns:
        Lines of text: what was put there, and which copies a newer version exists of.
    """
    if _is_home(folder):
        return [f"{folder} is where the notebooks come from: nothing is copied"]
    _require_folder(folder)
    record, lines, copied = _record(folder), [], 0
    for copy in compare(folder):
        name, data = copy.target.relative_to(folder).as_posix(), copy.source.read_bytes()
        if copy.state == "new":
            copy.target.parent.mkdir(parents=True, exist_ok=True)
            _write_new(copy.target, data)
            record[name] = _digest(data)
            copied += 1
        elif copy.state == "same":
            record[name] = _digest(data)
        elif copy.state == "outdated" and newer:
            beside = _beside(copy.target, data)
            record[name] = _digest(data)
            lines.append(f"the newer version of {name} is beside yours: {beside.name}")
        elif copy.state == "outdated":
            lines.append(f"{name} is of an earlier Morph and stays as it is: --newer puts today's version beside it")
    replace_bytes(folder / RECORD, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
    said = f"{copied} file{'s' if copied > 1 else ''} copied to {folder}"
    return [*([said] if copied else []), *lines]


def listed(folder: Path) -> list[str]:
    """A line for each notebook: its name, its title, and what became of the copy, if there is one."""
    states = {copy.target.stem: copy.state for copy in compare(folder) if copy.target.suffix == ".ipynb"}
    said = {"new": "", "same": f"in {folder}", "edited": f"in {folder}, edited", "outdated": f"in {folder}, outdated"}
    books = shipped.notebooks()
    name_width, title_width = (max(len(text) for text in column) for column in zip(*((b.name, b.title) for b in books)))
    return [f"{b.name:<{name_width}}  {b.title:<{title_width}}  {said[states[b.name]]}".rstrip() for b in books]


def open_lab(folder: Path, name: str | None = None, *, browser: bool = True, port: int = 8888) -> int:
    """Run JupyterLab on `folder` until Ctrl-C; answers with the exit code.

    It listens on this machine alone and asks for a token, which no other user can read off the list of processes, since
    the server runs in this one.

    Raises:
        MorphError: when JupyterLab is not installed.
    """
    if find_spec("jupyterlab") is None:
        raise MorphError("morph notebook needs JupyterLab: pip install -e '.[notebook]' in Morph's folder")
    from jupyterlab.labapp import LabApp

    if shipped.is_clone():  # a clone may be used without having been installed; its kernels must find it too
        paths = [str(shipped.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    server = LabApp.initialize_server(argv=_arguments(folder.resolve(), name, browser, port))
    place = f"/tree/{name}.ipynb" if name else ""
    token = server.identity_provider.token
    address = f"http://127.0.0.1:{server.port}{server.base_url}lab{place}?token={token}"
    said = f"JupyterLab on {folder}: {address}\nCtrl-C ends it."
    server.io_loop.add_callback(lambda: print(said, flush=True))  # once it listens
    server.start()
    return 0


def _arguments(folder: Path, name: str | None, browser: bool, port: int) -> list[str]:
    return [
        *([str(folder / f"{name}.ipynb")] if name else []),
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.allow_remote_access=False",
        f"--ServerApp.port={port}",
        f"--IdentityProvider.token={secrets.token_hex(24)}",
        f"--ServerApp.open_browser={browser}",
        "--Application.log_level=WARN",
        "--ServerApp.answer_yes=True",  # one Ctrl-C ends it
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    ]


def _shipped() -> Iterator[tuple[str, Path]]:
    for book in shipped.notebooks():
        yield book.path.name, book.path
        if book.solutions.is_file():
            yield f"solutions/{book.solutions.name}", book.solutions


def _state(name: str, source: Path, target: Path, record: dict[str, str]) -> State:
    if not (target.exists() or target.is_symlink()):
        return "new"
    if not target.is_file():
        raise MorphError(f"{target} is not a file: move it, or give another --folder")
    now = _digest(source.read_bytes())
    if _digest(target.read_bytes()) == now:
        return "same"
    return "edited" if record.get(name) == now else "outdated"


def _beside(target: Path, data: bytes) -> Path:
    """Put `data` beside `target` as `NAME-newer`, `NAME-newer-2` …; an equal one that is there already will do."""
    count = 1
    while True:
        place = target.with_stem(f"{target.stem}-newer" + (f"-{count}" if count > 1 else ""))
        if not place.exists():
            _write_new(place, data)
            return place
        if place.is_file() and place.read_bytes() == data:
            return place
        count += 1


def _write_new(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:  # never over what is there
        file.write(data)


def _record(folder: Path) -> dict[str, str]:
    """What was copied; a record that is missing or damaged is an empty one, and costs a question too many at most."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_home(folder: Path) -> bool:
    return folder.resolve() == (shipped.home() / "notebooks").resolve()


def _require_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise MorphError(f"{folder} is not a folder: give another --folder") from None
