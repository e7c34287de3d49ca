"""Writing files so that a reader sees the old one or the new one, never half of one."""

import contextlib
import errno
import glob
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from morph.errors import MorphError

RESTORE = "restore it or start again in a new --out"
_TEMPORARY = re.compile(r"\..*\.(\d+)\.tmp")  # hidden, and with the number of the process that writes it


def write_bytes(path: Path, data: bytes) -> None:
    """Write and fsync one file (its folder entry is synced by the caller)."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one move: temporary file, fsync, rename, fsync of the folder."""
    temporary = _temporary(path)
    try:
        write_bytes(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace_json(path: Path, value: Any) -> None:
    """Write JSON in ASCII, which holds file names that are not UTF-8 too."""
    replace_bytes(path, (json.dumps(value, indent=2) + "\n").encode())


def read_text(path: Path, remedy: str = RESTORE) -> str:
    """The text of a file of a run or sweep. Raises MorphError, with the remedy, when it is missing or damaged."""
    try:
        if kind := special_kind(path.stat().st_mode):
            raise MorphError(f"{path} is a {kind}, not a file: {remedy}")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MorphError(f"{path} is missing: {path.parent} is not a complete run or sweep") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MorphError(f"{path} cannot be read ({reason(error)}): {remedy}") from None


def read_json(path: Path, remedy: str = RESTORE) -> Any:
    """Parse a JSON file. Raises MorphError, with the remedy, when it is missing or damaged."""
    try:
        return json.loads(read_text(path, remedy))
    except MorphError:
        raise
    except (ValueError, RecursionError) as error:
        raise MorphError(f"{path} cannot be read ({reason(error)}): {remedy}") from None


def special_kind(mode: int) -> str | None:
    """What `stat` calls neither file nor folder, in a word; None for files and folders."""
    tests = {"pipe": stat.S_ISFIFO, "socket": stat.S_ISSOCK, "device": lambda m: stat.S_ISCHR(m) or stat.S_ISBLK(m)}
    return next((word for word, holds in tests.items() if holds(mode)), None)


def reason(error: BaseException) -> str:
    """Why reading failed, in a few words."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable. Windows cannot open folders, and there renames need no sync."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def new_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Fill a hidden folder beside `path`; it gets its name only when the block ends without an error.

    An empty folder at `path` makes way; a full one only when `replace` is set (else OSError). It is moved aside until
    the new one has its name, so that a process that is killed loses neither.
    """
    remove_leftovers(path.parent, path.name)
    temporary = _temporary(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        sync_folder(temporary)
        if path.exists() and not replace:
            path.rmdir()
        with _moved_aside(path):
            os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def _moved_aside(path: Path) -> Iterator[None]:
    """A folder has another, hidden name in the block; it gets its own back after an error, and is gone without one."""
    aside = _temporary(path).with_suffix(".old")
    is_there = path.exists()
    if is_there:
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(path, aside)
    try:
        yield
    except BaseException:
        if is_there:
            os.rename(aside, path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path` for parts of it, gone when the block ends; what killed processes left goes too."""
    remove_leftovers(path.parent, path.name)
    folder = _temporary(path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove what killed processes left half-written in `folder` (only of the file `name`, if given)."""
    for path in folder.glob(f".{glob.escape(name) if name != '*' else name}.*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and not _is_alive(int(found[1])):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if process == os.getpid() or os.name == "nt":  # Windows has no signal 0: there leftovers stay
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def require_free(path: Path, what: str, remedy: str) -> None:
    """Raise MorphError when `path` exists already (an empty folder does not count) or names no new folder."""
    if path.name in ("", ".."):
        raise MorphError(f"{what} is {str(path)!r}, a folder that is there already: give the name of a new one")
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise MorphError(f"{path} exists already and is never overwritten: {remedy}, or choose another {what}")


def disk_error(error: OSError, path: Path, remedy: str) -> MorphError:
    """One clear line for a write that failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MorphError(f"no space left on the disk while writing {path}: free some space; {remedy}")
    return MorphError(
        f"cannot write {path} ({error.strerror or error}): check the folder and its permissions; {remedy}"
    )


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold `path` for this process; the system lets go of it when the process ends, however it ends."""
    if path.exists() and not path.is_file():
        raise MorphError(f"{path} is not a file: remove it, {path.parent} needs a lock there")
    file: IO[bytes] = open(path, "ab")  # noqa: SIM115 - held for the whole block
    try:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass  # Windows: no advisory lock; two writers are then the user's business
        except OSError:
            raise MorphError(
                f"another process is training in {path.parent}: wait for it or choose another --out"
            ) from None
        yield
    finally:
        file.close()
