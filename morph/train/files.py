"""Writing files so that a reader sees the old one or the new one, never half of one."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from morph.errors import MorphError


def write_bytes(path: Path, data: bytes) -> None:
    """Write and fsync one file (its folder entry is synced by the caller)."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one move: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_bytes(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace_json(path: Path, value: Any) -> None:
    replace_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Parse a JSON file. Raises MorphError when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MorphError(f"{path} is missing: {path.parent} is not a complete run or sweep") from None
    except (OSError, ValueError) as error:
        raise MorphError(f"{path} cannot be read ({error}): restore it or start again in a new --out") from None


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

    An empty folder at `path` makes way; a full one only when `replace` is set (else OSError).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        sync_folder(temporary)
        if path.exists():
            shutil.rmtree(path) if replace else path.rmdir()
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


def require_free(path: Path, what: str, remedy: str) -> None:
    """Raise MorphError when `path` exists already (an empty folder does not count)."""
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
