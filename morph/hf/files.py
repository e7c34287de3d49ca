"""A checkpoint folder on the disk: config.json, and weights in one safetensors file or in several with an index.

Only these are read. Pickled weights could run any program when opened, so they are refused; Python files are not
looked at. A folder is written under a hidden name and gets its own when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from morph.errors import MorphError, short, spelled
from morph.train.files import disk_error, new_folder, reason, special_kind

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
AT_ONCE = 64_000_000
"""Bytes that are read before files are let go of."""


def safetensors(part: str = "safetensors") -> Any:
    """The package, or its part for torch. Raises MorphError naming the extra without it."""
    try:
        return importlib.import_module(part)
    except ModuleNotFoundError:
        raise MorphError(
            "Hugging Face checkpoints need safetensors: pip install -e '.[hf]' in Morph's folder"
        ) from None


def as_path(folder: str | Path) -> Path:
    """A folder's path. Raises MorphError for what is none."""
    try:
        fine = isinstance(folder, str | os.PathLike) and b"\0" not in os.fsencode(folder)
    except UnicodeEncodeError:
        fine = False
    if not fine:
        raise MorphError(f"folder = {short(folder)} is no path; give the name of a folder")
    return Path(folder)


class Folder:
    """A folder that is read: its config, the names of its tensors, and the tensors one at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path)
        try:
            is_folder, is_there = self.path.is_dir(), self.path.exists()
        except OSError as error:
            raise MorphError(f"{spelled(str(path))} cannot be read ({reason(error)}); give another folder") from None
        if not is_folder:
            what = "a file" if is_there else "not there"
            raise MorphError(
                f"{spelled(str(path))} is {what}; give the folder that holds config.json and *.safetensors"
            )
        self.config = self._json(CONFIG)
        self._open: dict[str, Any] = {}
        self._read = 0

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            if kind := special_kind(path.stat().st_mode):  # reading a pipe may never end
                raise MorphError(f"{path} is a {kind}, not a file; fetch or save the folder again")
            data = json.loads(path.read_text(encoding="utf-8"))
        except MorphError:
            raise
        except FileNotFoundError:
            raise MorphError(f"{self.path} has no {name}; give a checkpoint folder as transformers saves it") from None
        except (OSError, ValueError, RecursionError) as error:
            raise MorphError(f"{path} cannot be read ({reason(error)}); fetch or save the folder again") from None
        if not isinstance(data, dict):
            raise MorphError(f"{path} holds {short(data)}, and must be a table of keys; fetch or save the folder again")
        return data

    def shard_of(self) -> dict[str, str]:
        """Name of every tensor -> name of the file that holds it.

        Raises:
            MorphError: for a folder with pickled weights only or none, a missing shard, or a damaged index or file.
        """
        if (self.path / SINGLE).is_file():  # as in transformers, whatever an index says
            return dict.fromkeys(self._file(SINGLE).keys(), SINGLE)
        if (self.path / INDEX).exists():
            return self._indexed()
        if pickled := sorted(file.name for pattern in PICKLED for file in self.path.glob(pattern)):
            raise MorphError(
                f"{self.path} has its weights in {pickled[0]}, a format that can run programs when opened, so Morph "
                f"does not; fetch the safetensors files, or let transformers, where you trust the source, load and "
                f"save_pretrained the folder"
            )
        raise MorphError(f"{self.path} has neither {SINGLE} nor {INDEX}; fetch the weights too")

    def _indexed(self) -> dict[str, str]:
        """The same by the index, which must agree with every file that it names."""
        index = self.path / INDEX
        table = self._json(INDEX).get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(shard, str) for shard in table.values()):
            raise MorphError(f"{index} has no weight_map of names and files; fetch the folder again")
        names_in: dict[str, list[str]] = {}
        for name, shard in table.items():
            names_in.setdefault(shard, []).append(name)
        for shard, names in sorted(names_in.items()):
            if Path(shard).name != shard or shard == "..":
                raise MorphError(
                    f"{index}: {spelled(names[0])} is said to be in {short(shard)}, which is no name of a file in this "
                    f"folder; fetch the index again"
                )
            if not _is_file(self.path / shard):
                raise MorphError(f"{index} names {spelled(shard)}, which is not there; fetch that file too")
            held = set(self._file(shard).keys())
            if lost := [name for name in names if name not in held]:
                raise MorphError(
                    f"{self.path / shard} lacks {spelled(lost[0])}, which the index says it holds; fetch both"
                )
            if extra := sorted(held - set(names)):
                elsewhere = f"says is in {spelled(table[extra[0]])}" if extra[0] in table else "lacks"
                raise MorphError(
                    f"{self.path / shard} holds {spelled(extra[0])}, which the index {elsewhere}; fetch both again"
                )
        return dict(table)

    def _file(self, shard: str) -> Any:
        """An open file, kept until `close`."""
        if shard not in self._open:
            package = safetensors()
            try:
                self._open[shard] = package.safe_open(self.path / shard, framework="pt")
            except (package.SafetensorError, OSError) as error:
                raise MorphError(
                    f"{self.path / shard} is damaged or incomplete ({reason(error)}); fetch that file again"
                ) from None
        return self._open[shard]

    def close(self) -> None:
        """Let go of all files, and of what was read of them."""
        self._open.clear()

    def shape(self, shard: str, name: str) -> tuple[int, ...]:
        """The shape of a tensor, read from the file's head. Raises MorphError for a type that Morph does not read."""
        view = self._file(shard).get_slice(name)
        if view.get_dtype() not in DTYPES:
            raise MorphError(
                f"{self.path / shard}: {spelled(name)} is stored as {view.get_dtype()}; Morph reads "
                f"{', '.join(DTYPES)}, so fetch or make a folder in one of these"
            )
        return tuple(view.get_shape())

    def tensor(self, shard: str, name: str) -> Tensor:
        """A tensor, whose numbers lie in the file itself: copy what is to be kept.

        What was read of an open file stays in memory, so files are let go of now and then.
        """
        if self._read > AT_ONCE:
            self.close()
            self._read = 0
        tensor: Tensor = self._file(shard).get_tensor(name)
        self._read += tensor.numel() * tensor.element_size()
        return tensor


def write_folder(path: Path, config: dict[str, Any], shards: Iterable[dict[str, Tensor]], overwrite: bool) -> None:
    """Write config and weights, a file for each of `shards`, which are made one at a time.

    Raises:
        MorphError: when something is there already (a checkpoint folder makes way with `overwrite`), or the disk fails.
    """
    save_file = safetensors("safetensors.torch").save_file
    try:
        path = path.resolve() if path.is_symlink() else path  # the link stays, and leads to the new folder
        _require_place(path, overwrite)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, MorphError):
            raise
        raise MorphError(
            f"{spelled(str(path))} is no name for a folder ({reason(error)}); choose another, nothing was written"
        ) from None
    try:
        with new_folder(path, replace=overwrite) as folder:
            (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            table: dict[str, int] = {}
            total = 0
            for number, tensors in enumerate(shards):
                save_file(tensors, folder / f"{number}.part", metadata={"format": "pt"})
                table |= dict.fromkeys(tensors, number)
                total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
            _name_shards(folder, table, total)
            readers = (folder / CONFIG).stat().st_mode
            for file in folder.iterdir():
                file.chmod(readers)  # weights are made for the owner alone
                _sync(file)
    except OSError as error:
        raise disk_error(error, path, "nothing was written") from None
    except safetensors().SafetensorError as error:  # it tells of the disk in words
        full = "No space" in str(error)
        problem = OSError(errno.ENOSPC, "No space left on device") if full else OSError(str(error))
        raise disk_error(problem, path, "nothing was written") from None


def _require_place(path: Path, overwrite: bool) -> None:
    if path.name in ("", ".."):
        raise MorphError(f"{path} is a folder that is there already; give the name of a new one")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise MorphError(f"{path} is there already; choose another folder, or say overwrite=True to replace it whole")
    if not (path / CONFIG).is_file() or (path / "recipe.json").exists() or "model_type" not in Folder(path).config:
        raise MorphError(f"{path} holds something else than a checkpoint and is not overwritten; choose another folder")


def _name_shards(folder: Path, table: dict[str, int], total: int) -> None:
    """One file gets the single name; several are numbered, with an index."""
    count = max(table.values(), default=0) + 1
    names = [SINGLE] if count == 1 else [f"model-{n + 1:05d}-of-{count:05d}.safetensors" for n in range(count)]
    for number, name in enumerate(names):
        os.replace(folder / f"{number}.part", folder / name)
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": {key: names[n] for key, n in sorted(table.items())}}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have is one that none has."""
    try:
        return path.is_file()
    except OSError:
        return False


def _sync(file: Path) -> None:
    with open(file, "rb+") as handle:
        os.fsync(handle.fileno())


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[Folder]:
    """A folder whose files are let go of when the block ends."""
    folder = Folder(path)
    try:
        yield folder
    finally:
        folder.close()
