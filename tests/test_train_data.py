"""The corpus and its batches: no text in both splits, the same text every time, clear words for bad text."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from morph.errors import MorphError
from morph.train import data
from morph.train.data import load_corpus


def folder(root: Path, files: int = 45, size: int = 400) -> Path:
    """A folder of `files` text files, each with its own text of about `size` bytes."""
    for i in range(files):
        line = f"file {i} says {hashlib.sha256(str(i).encode()).hexdigest()}\n"
        path = root / f"part{i % 3}" / f"text{i:02d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line * (size // len(line)))
    return root


def test_no_file_is_in_both_splits_and_every_twentieth_is_held_out(tmp_path: Path) -> None:
    corpus = load_corpus(folder(tmp_path))
    assert len(corpus.train_files) == 42
    assert len(corpus.validation_files) == 3  # files 0, 20 and 40 in the order of their hashes
    assert not set(corpus.train_files) & set(corpus.validation_files)
    held_out = corpus.validation.tobytes()
    for name in corpus.validation_files:
        text = (tmp_path / name).read_bytes()
        assert text in held_out
        assert text not in corpus.train.tobytes()


def test_identical_files_count_once_so_a_copy_cannot_leak(tmp_path: Path) -> None:
    folder(tmp_path)
    plain = load_corpus(tmp_path)
    for name in plain.validation_files:
        (tmp_path / f"zz-{Path(name).name}").write_bytes((tmp_path / name).read_bytes())
    copied = load_corpus(tmp_path)
    texts = [(tmp_path / n).read_bytes() for n in (*copied.train_files, *copied.validation_files)]
    assert len(texts) == len(set(texts)) == 45


def test_a_single_file_is_split_by_place(tmp_path: Path) -> None:
    text = bytes(range(32, 127)) * 20
    (tmp_path / "one.txt").write_bytes(text)
    corpus = load_corpus(tmp_path / "one.txt")
    assert corpus.train.tobytes() == text[:1805]
    assert corpus.validation.tobytes() == text[1805:]
    assert load_corpus(corpus.path).sha256 == corpus.sha256


def test_the_hash_tells_texts_and_splits_apart(tmp_path: Path) -> None:
    corpus = load_corpus(folder(tmp_path))
    assert load_corpus(tmp_path).sha256 == corpus.sha256
    changed = tmp_path / corpus.train_files[0]
    changed.write_text(changed.read_text().replace("says", "said", 1))
    assert load_corpus(tmp_path).sha256 != corpus.sha256


def test_the_standard_library_is_there_within_its_cap_without_tests_or_packages() -> None:
    corpus = load_corpus()
    files = (*corpus.train_files, *corpus.validation_files)
    assert 2_000_000 < corpus.train.size + corpus.validation.size <= data.STDLIB_CAP
    assert 0.02 < corpus.validation.size / corpus.train.size < 0.15
    assert "argparse.py" in files
    assert not any(part in data._LEFT_OUT for name in files for part in name.split("/")[:-1])
    assert not set(corpus.train_files) & set(corpus.validation_files)
    assert corpus.describe()["train_bytes"] == corpus.train.size


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.txt", b"", "is empty"),
        ("nul.txt", b"some text\0more", "byte 9 is NUL"),
        ("latin.txt", "naïve".encode("latin-1"), "bad byte at 2"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MorphError, match=words) as caught:
        load_corpus(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_empty_and_unreadable_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MorphError, match="no data at"):
        load_corpus(tmp_path / "nowhere")
    with pytest.raises(MorphError, match="is empty: no file"):
        load_corpus(tmp_path)
    (tmp_path / "shut.txt").write_text("text")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # file modes do not stop an administrator
    with pytest.raises(MorphError, match=r"cannot read .*shut\.txt: Permission denied"):
        load_corpus(tmp_path / "shut.txt")


def test_what_is_neither_file_nor_folder_is_called_by_its_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tube")
    (tmp_path / "dangling").symlink_to("nowhere")
    cases = {
        tmp_path / "tube": "tube is a pipe: --data takes files and folders of UTF-8 text only",
        tmp_path: "dangling, which is a link to nothing",
        Path("/dev/zero"): "/dev/zero is a device",
        Path("~nouser/x"): "no data at ~nouser/x, which is not there",
        tmp_path / "tube" / "x": "which is not there",
        tmp_path / ("n" * 300): "File name too long",
        Path("a\0b"): "embedded null byte",
    }
    for path, words in cases.items():
        with pytest.raises(MorphError) as caught:
            load_corpus(path)
        assert words in str(caught.value)
    with pytest.raises(MorphError, match="--data is empty: give a file or folder"):
        load_corpus("")


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path)
    listed = os.scandir

    def shut(path: str) -> object:
        if str(path).endswith("part1"):  # file modes do not stop an administrator
            raise PermissionError(13, os.strerror(13), str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", shut)
    with pytest.raises(MorphError, match=r"cannot read .*part1: Permission denied"):
        load_corpus(tmp_path)


def test_names_need_not_be_utf8(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"na\xefve")
    try:
        folder(root)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (root / os.fsdecode(b"\xff.txt")).write_text("more text " * 20)
    corpus = load_corpus(root)
    assert len(corpus.train_files) + len(corpus.validation_files) == 46
    assert corpus.name.endswith("na\ufffdve")
    assert load_corpus(corpus.path).sha256 == corpus.sha256
    json.dumps(corpus.describe()["name"], ensure_ascii=False).encode()


def test_too_short_names_both_numbers(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("x" * 400)
    corpus = load_corpus(tmp_path / "short.txt")
    corpus.require(19)
    with pytest.raises(MorphError, match="its validation part has 20 bytes and a context of 20 needs at least 21"):
        corpus.require(20)
    with pytest.raises(MorphError, match=r"give more text \(--data\)$"):  # no smaller size helps
        corpus.require(64)
    with pytest.raises(MorphError, match=r"or a smaller size \(--size nano\)$"):
        corpus.require(65)


def test_batches_depend_on_their_numbers_alone() -> None:
    def offsets(seed: int, step: int, index: int) -> list[int]:
        return data.training_offsets(10_000, 64, 8, seed, step, index).tolist()

    assert offsets(0, 5, 1) == offsets(0, 5, 1)
    assert len({tuple(offsets(*key)) for key in [(0, 5, 1), (1, 5, 1), (0, 6, 1), (0, 5, 0)]}) == 4
    # Written down once: these may never change, or old runs could not be resumed.
    assert offsets(0, 0, 0)[:3] == [6265, 3973, 580]


def test_windows_reach_the_last_byte_and_no_further() -> None:
    tokens = np.arange(70, dtype=np.uint8)
    drawn = np.concatenate([data.training_offsets(70, 64, 8, 0, step, 0) for step in range(50)])
    assert (drawn.min(), drawn.max()) == (0, 5)
    ids, targets = data.windows(tokens, np.array([5]), 64)
    assert ids[0].tolist() == list(range(5, 69))
    assert targets[0].tolist() == list(range(6, 70))


def test_validation_windows_are_fixed_and_do_not_overlap() -> None:
    offsets = data.validation_offsets(1000, 64, 256)
    assert len(offsets) == 15
    assert (offsets[0], offsets[-1]) == (0, 935)
    assert (np.diff(offsets) >= 64).all()
    assert data.validation_offsets(65, 64, 256).tolist() == [0]
    assert len(data.validation_offsets(10**6, 64, 256)) == 256
