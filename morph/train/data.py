"""The text a model learns from: bytes as tokens, split by file, with batches that depend on nothing but their
number.

The default corpus needs no download: it is the `.py` text of the Python standard library on this machine,
in a fixed order, up to `STDLIB_CAP` bytes. It differs between Python versions, so its SHA-256 is recorded
in every run.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from morph.errors import MorphError
from morph.steps import SIZES
from morph.train.files import reason, special_kind

STDLIB_NAME = "python standard library"
STDLIB_CAP = 8_000_000  # bytes; whole files are taken in order while they fit
VOCABULARY = 256  # one token per byte value
VALIDATION_SHARE = 20  # every 20th file (by hash of its path) is held out
# Folders left out of the default corpus: tests, installed packages, and tables written as Python.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}


@dataclass(frozen=True)
class Corpus:
    """Two byte strings that share no file.

    `train` and `validation` are uint8 arrays, one token a byte; the files of each split are joined as
    they are. `sha256` covers both splits in order. `path` is what to give `load_corpus` to read the
    same text again, empty for the default corpus; `name` is the same for people to read.
    """

    name: str
    path: str
    sha256: str
    train: np.ndarray
    validation: np.ndarray
    train_files: tuple[str, ...]
    validation_files: tuple[str, ...]

    def describe(self) -> dict[str, str | int]:
        """The facts a run records about its text."""
        return {
            "name": self.name,
            "path": self.path,
            "sha256": self.sha256,
            "train_bytes": int(self.train.size),
            "validation_bytes": int(self.validation.size),
            "train_files": len(self.train_files),
            "validation_files": len(self.validation_files),
        }

    def require(self, context: int) -> None:
        """Raise MorphError unless both splits hold a window of `context` tokens and its last target."""
        needed, nano = context + 1, SIZES["nano"].context_length
        smaller = " or a smaller size (--size nano)" if context > nano else ""
        for split, tokens in (("training", self.train), ("validation", self.validation)):
            if tokens.size < needed:
                raise MorphError(
                    f"{self.name} is too short: its {split} part has {tokens.size} bytes and a "
                    f"context of {context} needs at least {needed}; "
                    f"give more text (--data){smaller}"
                )


def load_corpus(path: str | Path | None = None) -> Corpus:
    """Read the default corpus (None), or one file or folder of UTF-8 text.

    A folder is read recursively in sorted order and split by file; hidden names are skipped, links to folders are
    not followed, and identical files count once, so that no text is in both splits. A single file is split by
    place: its last twentieth is held out.

    Raises MorphError when any of the text is missing, unreadable, empty, or not UTF-8 text.
    """
    if path is None:
        return _split_files(STDLIB_NAME, "", _stdlib_files())
    if str(path) == "":
        raise MorphError("--data is empty: give a file or folder of UTF-8 text, or leave --data out")
    root = Path(os.path.expanduser(path))
    name = _readable(root)
    if _is_file(root):
        return _split_one(name, root)
    files = [(str(p.relative_to(root)), _read(p)) for p in _walk(root)]
    return _split_files(name, os.path.abspath(root), files)


def _readable(path: Path) -> str:
    """A path as text, with what is not UTF-8 in it replaced."""
    return os.fsencode(path).decode(errors="replace")


def _is_file(path: Path) -> bool:
    """Whether `path` is a file; False for a folder. Raises MorphError for anything else."""
    try:
        kind = special_kind(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        why = "is a link to nothing" if path.is_symlink() else "is not there"
        raise MorphError(
            f"no data at {_readable(path)}, which {why}: give a file or folder of UTF-8 text, or leave --data out"
        ) from None
    except (OSError, ValueError) as error:
        _refuse(path, error)
    if kind is not None:
        raise MorphError(f"{_readable(path)} is a {kind}: --data takes files and folders of UTF-8 text only")
    return path.is_file()


def _refuse(path: str | Path, error: Exception) -> NoReturn:
    raise MorphError(f"cannot read {_readable(Path(path))}: {reason(error)}; check the name and its permissions")


def _walk(root: Path) -> list[Path]:
    """Every visible file under `root`, sorted by its relative path; a folder that cannot be read is refused."""

    def refuse(error: OSError) -> None:
        _refuse(error.filename, error)

    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        found += [Path(folder, name) for name in names if not name.startswith((".", "__pycache__"))]
    return sorted((p for p in found if _is_file(p)), key=lambda p: p.relative_to(root).as_posix())


def _read(path: Path) -> bytes:
    """The bytes of one text file. Raises MorphError when it cannot be read or is not UTF-8 text."""
    name = _readable(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        _refuse(path, error)
    if b"\0" in text:
        raise MorphError(f"{name} is binary: byte {text.index(0)} is NUL; --data takes UTF-8 text only")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MorphError(f"{name} is not UTF-8 text: bad byte at {error.start}; convert it or leave it out") from None
    return text


def _stdlib_files() -> list[tuple[str, bytes]]:
    """The standard library's sources: top-level modules, then packages, each sorted, until the cap."""
    root = Path(sysconfig.get_paths()["stdlib"])
    sources = [p for p in root.rglob("*.py") if not _LEFT_OUT & set(p.relative_to(root).parts[:-1])]
    # _sysconfigdata_* is written when Python is built and differs from machine to machine.
    sources = [p for p in sources if not p.name.startswith("_sysconfigdata")]
    sources.sort(key=lambda p: (len(p.relative_to(root).parts) > 1, p.relative_to(root).as_posix()))
    files, size = [], 0
    for source in sources:
        try:
            text = _read(source)
        except MorphError:
            continue  # a few sources are deliberately not UTF-8
        if size + len(text) > STDLIB_CAP:
            break
        files.append((source.relative_to(root).as_posix(), text))
        size += len(text)
    if not files:
        raise MorphError(f"no Python sources under {root}: this Python has no readable library; use --data FILE")
    return files


def _split_files(name: str, path: str, files: Iterable[tuple[str, bytes]]) -> Corpus:
    """Hold out every 20th file, counted in the order of the SHA-256 of its relative path."""
    seen: set[bytes] = set()
    kept: dict[str, bytes] = {}
    for relative, text in files:
        digest = hashlib.sha256(text).digest()
        if text and digest not in seen:
            seen.add(digest)
            kept[relative] = text
    if not kept:
        raise MorphError(f"{name} is empty: no file with text in it; --data takes a file or folder of UTF-8 text")
    if len(kept) == 1:
        (relative, text), *_ = kept.items()
        return _split_bytes(name, path, relative, text)
    shuffled = sorted(kept, key=lambda relative: hashlib.sha256(os.fsencode(relative)).hexdigest())
    held_out = set(shuffled[::VALIDATION_SHARE])
    train = [f for f in kept if f not in held_out]
    validation = [f for f in kept if f in held_out]
    return _corpus(
        name, path, b"".join(kept[f] for f in train), b"".join(kept[f] for f in validation), train, validation
    )


def _split_one(name: str, path: Path) -> Corpus:
    text = _read(path)
    if not text:
        raise MorphError(f"{name} is empty: 0 bytes; --data takes a file or folder of UTF-8 text")
    return _split_bytes(name, os.path.abspath(path), path.name, text)


def _split_bytes(name: str, path: str, file: str, text: bytes) -> Corpus:
    cut = len(text) - len(text) // VALIDATION_SHARE
    return _corpus(name, path, text[:cut], text[cut:], [f"{file}[:{cut}]"], [f"{file}[{cut}:]"])


def _corpus(name: str, path: str, train: bytes, validation: bytes, train_files: list[str], held: list[str]) -> Corpus:
    digest = hashlib.sha256(len(train).to_bytes(8, "little") + train + validation).hexdigest()
    arrays = (np.frombuffer(train, dtype=np.uint8), np.frombuffer(validation, dtype=np.uint8))
    return Corpus(name, path, digest, *arrays, tuple(train_files), tuple(held))


def training_offsets(size: int, context: int, batch_size: int, seed: int, step: int, index: int) -> np.ndarray:
    """Where the windows of one micro-batch start, shape (batch_size,).

    They depend on (seed, step, index) alone, so a resumed run sees the same text as an unbroken one.
    `index` counts the micro-batches of a step over accumulation and processes. Philox's raw stream is fixed
    across NumPy versions.
    """
    stream = np.random.Philox(np.random.SeedSequence([seed, step, index])).random_raw(batch_size)
    return (stream % np.uint64(size - context)).astype(np.int64)


def noise_seed(seed: int, step: int, index: int) -> int:
    """The seed of what dropout drops in that micro-batch; another stream than its offsets."""
    return int(np.random.SeedSequence([seed, step, index, 1]).generate_state(1, np.uint64)[0])


def validation_offsets(size: int, context: int, windows: int) -> np.ndarray:
    """Evenly spaced windows that do not overlap, at most `windows` of them: the same for every run."""
    fitting = max(1, (size - 1) // context)
    return np.linspace(0, size - context - 1, min(windows, fitting)).astype(np.int64)


def windows(tokens: np.ndarray, offsets: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, both (B, S) int64: targets are the inputs moved one byte on."""
    cut = tokens[offsets[:, None] + np.arange(context + 1)].astype(np.int64)
    return cut[:, :-1], cut[:, 1:]
