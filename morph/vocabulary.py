"""Text and token ids: how a text becomes ids, how ids become text, and how one id is written on a screen.

Runs of ours read bytes (`Bytes`). The folder of a released model brings its tokenizer along, `tokenizer.json`, which
the library `tokenizers` reads (`Pieces`); without one its ids are bare numbers (`Numbers`), and text cannot go in.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from morph.errors import MorphError

SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
"""What is written for signs that leave no mark."""
MOST_SIGNS = 12
"""Of one token on a screen; a longer one is cut."""
_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary(Protocol):
    """What both ends of a model's text have in common.

    Attributes:
        unit: what one id stands for, "byte" or "token".
        start: ids that stand before every text.
        stop: ids after which a text is at its end.
    """

    @property
    def unit(self) -> str: ...
    @property
    def start(self) -> tuple[int, ...]: ...
    @property
    def stop(self) -> frozenset[int]: ...

    def read(self, text: str) -> list[int]:
        """The ids of a text, `start` left out. Raises `MorphError` for a text that has none."""

    def write(self, ids: Sequence[int]) -> str:
        """The text of ids; those that stand for no text leave none."""

    def shown(self, token: int) -> str:
        """How one id is written on a screen: short, and with a visible sign for every sign."""

    def unknown(self, vocab_size: int) -> list[int]:
        """The ids of a model with that many that stand for nothing."""


@dataclass(frozen=True)
class Bytes:
    """Ids are the 256 values of a byte; ids above them, in a larger vocabulary, mean nothing."""

    unit: str = "byte"
    start: tuple[int, ...] = ()
    stop: frozenset[int] = frozenset()

    def read(self, text: str) -> list[int]:
        return list(encoded(text))

    def write(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def shown(self, token: int) -> str:
        return {10: "⏎", 32: "␣"}.get(token, chr(token) if 32 < token < 127 else f"{token:02x}")

    def unknown(self, vocab_size: int) -> list[int]:
        return list(range(256, vocab_size))


@dataclass(frozen=True)
class Numbers:
    """Ids without a tokenizer; `why` says what is missing, and what would mend it."""

    why: str
    stop: frozenset[int] = frozenset()
    unit: str = "token"
    start: tuple[int, ...] = ()

    def read(self, text: str) -> list[int]:
        raise MorphError(self.why)

    def write(self, ids: Sequence[int]) -> str:
        raise MorphError(self.why)

    def shown(self, token: int) -> str:
        return f"#{token}"

    def unknown(self, vocab_size: int) -> list[int]:
        return []


@dataclass(frozen=True)
class Pieces:
    """The tokenizer of a released model.

    Attributes:
        library: a `tokenizers.Tokenizer`.
        spec: what its file says, parsed.
        start, stop: ids before every text, and ids that end one.
        limit: how many ids the model knows.
    """

    library: Any
    spec: dict[str, Any]
    start: tuple[int, ...]
    stop: frozenset[int]
    limit: int
    unit: str = "token"

    def read(self, text: str) -> list[int]:
        ids: list[int] = _encoded_by(self.library, encoded(text).decode(errors="replace")).ids
        self._require(ids)
        return ids

    def write(self, ids: Sequence[int]) -> str:
        return str(self.library.decode(list(ids), skip_special_tokens=True))

    def shown(self, token: int) -> str:
        piece = self.library.id_to_token(token)
        if piece is None:
            return f"#{token}"
        return cut(visible(self.letters(token)))

    def letters(self, token: int) -> str:
        """The letters that a piece puts into a text; a byte that is no whole letter is a lone surrogate."""
        piece = str(self.library.id_to_token(token))
        if token in self._added:
            return piece
        if self._is_byte_level:
            return bytes(_BYTES[sign] for sign in piece if sign in _BYTES).decode("utf-8", "surrogateescape")
        if byte := _BYTE.fullmatch(piece):
            return bytes.fromhex(byte[1]).decode("utf-8", "surrogateescape")
        return piece.replace("▁", " ")

    def unknown(self, vocab_size: int) -> list[int]:
        known = set(self.library.get_vocab(with_added_tokens=True).values())
        return [token for token in range(vocab_size) if token not in known]

    def _require(self, ids: Iterable[int]) -> None:
        if (highest := max(ids, default=0)) >= self.limit:
            raise MorphError(
                f"the tokenizer gives id {highest}, and this model knows 0 to {self.limit - 1}: "
                "the folder's tokenizer.json is that of another model; put its own there"
            )

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self.library.get_added_tokens_decoder())

    @cached_property
    def _is_byte_level(self) -> bool:
        return _holds_kind(self.spec.get("decoder"), "ByteLevel")


# ---- a folder's vocabulary ----


def vocabulary_of(folder: Path, vocab_size: int) -> Vocabulary:
    """The vocabulary of a released model's folder.

    Raises:
        MorphError: when its tokenizer cannot be read, or the library for it is not there.
    """
    config = _table(folder / "config.json")
    nested = config.get("text_config")
    settings = _table(folder / "tokenizer_config.json")
    ends = [_table(folder / "generation_config.json"), config, nested if isinstance(nested, dict) else {}]
    stop = next((s for s in (_ids(table.get("eos_token_id"), vocab_size) for table in ends) if s), frozenset())
    file = folder / "tokenizer.json"
    if not file.is_file():
        return Numbers(_why_numbers(folder), stop)
    library, spec = _open(file)
    if not stop:
        end = library.token_to_id(_content(settings.get("eos_token")) or "")
        stop = frozenset() if end is None else frozenset((end,))
    made = Pieces(library, spec, (), stop, vocab_size)
    start = _start(library, settings)
    made._require(start)
    return Pieces(library, spec, start, stop, vocab_size)


def _open(file: Path) -> tuple[Any, dict[str, Any]]:
    try:
        tokenizers = import_module("tokenizers")
    except ModuleNotFoundError:
        raise MorphError(
            f"{file} needs the library tokenizers: pip install -e '.[hf]' in Morph's folder (it is part of that extra)"
        ) from None
    try:
        text = file.read_text(encoding="utf-8")
        spec, library = json.loads(text), tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises Exception itself
        raise MorphError(f"{file} cannot be read ({str(error)[:120]}): fetch the file again") from None
    library.no_truncation()
    library.no_padding()
    return library, spec


def _encoded_by(library: Any, text: str, add_special_tokens: bool = False) -> Any:
    """What the library makes of a text. Raises MorphError where its file does not say how."""
    try:
        return library.encode(text, add_special_tokens=add_special_tokens)
    except Exception as error:  # the library raises Exception itself
        raise MorphError(f"the folder's tokenizer.json fails on a text ({str(error)[:120]}): fetch it again") from None


def _start(library: Any, settings: dict[str, Any]) -> tuple[int, ...]:
    """Ids before every text: what the tokenizer's own template puts there, or else the first token that
    `tokenizer_config.json` asks for (`add_bos_token`).

    What a template puts behind a text is left out: a text that is to go on has not ended.
    """
    template = _encoded_by(library, "a", add_special_tokens=True)
    marks = list(template.special_tokens_mask)
    before = tuple(template.ids[: marks.index(0) if 0 in marks else 0])
    begin = library.token_to_id(_content(settings.get("bos_token")) or "")
    return before or ((begin,) if settings.get("add_bos_token") is True and begin is not None else ())


def _why_numbers(folder: Path) -> str:
    others = ("tokenizer.model", "tiktoken.model", "vocab.json", "spiece.model", "vocab.txt")
    found = next((name for name in others if (folder / name).is_file()), None)
    what = f"{folder} has no tokenizer.json" + (f", only {found}, which is not read" if found else "")
    return f"{what}: put the model's own tokenizer.json there; without it models take token ids, from Python"


def _table(file: Path) -> dict[str, Any]:
    """A JSON file's table, empty when the file is not there."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise MorphError(f"{file} cannot be read ({str(error)[:120]}): fetch the file again") from None
    return found if isinstance(found, dict) else {}


def _ids(value: Any, vocab_size: int) -> frozenset[int]:
    """An id or a list of them; what a model does not write is left out (-1, say, means none)."""
    found = value if isinstance(value, list) else [value]
    return frozenset(i for i in found if type(i) is int and 0 <= i < vocab_size)


def _content(token: Any) -> str | None:
    """A special token as `tokenizer_config.json` writes it: its text, or a table with it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _holds_kind(part: Any, kind: str) -> bool:
    """Whether a part of a tokenizer's file, or one inside it, is of a kind."""
    if isinstance(part, dict):
        return part.get("type") == kind or any(_holds_kind(value, kind) for value in part.values())
    return isinstance(part, list) and any(_holds_kind(value, kind) for value in part)


def encoded(text: str, what: str = "text") -> bytes:
    """The bytes of a text; words of a command line may hold bytes that are no UTF-8 (they come as lone surrogates)."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError as error:
        raise MorphError(f"the {what} has a character that is no text, at {error.start}: leave it out") from None


# ---- on a screen ----


def visible(letters: str) -> str:
    """A text in which every sign leaves a mark; bytes that are no letters, and control signs, are two digits each."""
    return "".join(map(_mark, letters))


def cut(marks: str) -> str:
    """A token short enough for a label: a run of one sign is counted, the end of a long token left out."""
    counted = _RUN.sub(lambda run: f"{run[1]}×{len(run[0])}", marks)
    return counted if len(counted) <= MOST_SIGNS else f"{counted[: MOST_SIGNS - 1]}…"


def _mark(sign: str) -> str:
    code = ord(sign)
    if sign in SIGNS:
        return SIGNS[sign]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is part of a letter
        return f"{code - 0xDC00:02x}"
    if sign.isprintable():
        return sign
    return f"{code:02x}" if code < 256 else f"U+{code:04X}"


def _byte_signs() -> dict[str, int]:
    """The letters by which byte-level tokenizers write bytes (GPT-2, 2019): the printable ones are themselves, all
    others are counted up from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_signs()
