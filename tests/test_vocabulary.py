"""Text and token ids: bytes, tokenizers of released models against transformers', and how a token is written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from morph.errors import MorphError
from morph.vocabulary import Bytes, Numbers, Pieces, cut, visible, vocabulary_of
from tests.checkpoints import TEXT, byte_level, sentence_pieces
from tests.tools import need


def folder(path: Path, tokenizer: Any, **settings: Any) -> Path:
    """The tokenizer's files of a checkpoint; `config` and `generation` are the tables of those two."""
    path.mkdir(exist_ok=True)
    tables = {
        "config": settings.pop("config", {"vocab_size": 512}),
        "generation_config": settings.pop("generation", {}),
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | settings
    for name, table in (tables | {"tokenizer_config": settings}).items():
        (path / f"{name}.json").write_text(json.dumps(table))
    if tokenizer is not None:
        (path / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    return path


KINDS = {"byte level": byte_level, "sentence pieces": sentence_pieces}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("add", [None, True, False], ids=["untold", "told to", "told not to"])
def test_text_is_read_as_transformers_reads_it(tmp_path: Path, kind: str, add: bool | None) -> None:
    """The start of a text included, which the tokenizer's template says, whatever `add_bos_token` says."""
    need("transformers")
    from transformers import AutoTokenizer

    tokenizer = KINDS[kind]()
    begin = "<|begin|>" if kind == "byte level" else "<s>"
    settings = {"bos_token": begin} | ({} if add is None else {"add_bos_token": add})
    place = folder(tmp_path / "model", tokenizer, **settings)
    vocabulary, theirs = vocabulary_of(place, 512), AutoTokenizer.from_pretrained(place)
    ids = [*vocabulary.start, *vocabulary.read(TEXT)]
    assert ids == theirs(TEXT)["input_ids"]
    assert ids[0] == tokenizer.token_to_id(begin)
    assert vocabulary.write(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert vocabulary.write(ids) == TEXT


def test_the_first_token_without_a_template(tmp_path: Path) -> None:
    """Then `add_bos_token` decides; what a template puts behind a text is left out."""
    from tokenizers import Tokenizer, processors

    silent, both = (Tokenizer.from_str(byte_level().to_str()) for _ in range(2))
    silent.post_processor = processors.ByteLevel(trim_offsets=False)
    both.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A <|end|>", special_tokens=[("<|begin|>", 0), ("<|end|>", 1)]
    )
    starts = [
        vocabulary_of(folder(tmp_path / str(i), tokenizer, bos_token={"content": "<|begin|>"}, **told), 512).start
        for i, (tokenizer, told) in enumerate(
            [(silent, {}), (silent, {"add_bos_token": True}), (silent, {"add_bos_token": False}), (both, {})]
        )
    ]
    assert starts == [(), (0,), (), (0,)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_letters_of_the_pieces_are_the_text(tmp_path: Path, kind: str) -> None:
    """Piece by piece, bytes of a letter cut in two included: together they are the bytes of the text."""
    vocabulary = vocabulary_of(folder(tmp_path / "model", KINDS[kind]()), 512)
    assert isinstance(vocabulary, Pieces)
    ids = vocabulary.read(TEXT)
    letters = "".join(vocabulary.letters(token) for token in ids)
    assert letters.encode("utf-8", "surrogateescape").decode().removeprefix(" ") == TEXT
    assert len(ids) < len(TEXT.encode())
    for token in range(512):
        assert 1 <= len(vocabulary.shown(token)) <= 12
        assert not any(sign.isspace() or not sign.isprintable() for sign in vocabulary.shown(token))


def test_tokens_are_written_readably(tmp_path: Path) -> None:
    byte = vocabulary_of(folder(tmp_path / "byte", byte_level()), 512)
    piece = vocabulary_of(folder(tmp_path / "piece", sentence_pieces()), 512)

    def shown(vocabulary: Any, text: str) -> list[str]:
        return [vocabulary.shown(token) for token in vocabulary.read(text)]

    assert shown(byte, "return self\n") == ["re", "turn", "␣self", "⏎"]
    assert shown(byte, "é\t\x07") == ["c3", "a9", "⇥", "07"]
    assert shown(piece, "x€")[-3:] == ["e2", "82", "ac"]
    assert piece.shown(1) == "<s>" and byte.shown(0) == "<|begin|>"
    assert byte.shown(5000) == "#5000"
    indent = byte_level().token_to_id("Ġ" * 7)
    assert byte.shown(indent) == "␣×7"


@pytest.mark.parametrize(
    ("letters", "marks"),
    [
        (" the", "␣the"), ("\r\n", "0d⏎"), ("\t\x00", "⇥00"), ("\u202eabc", "U+202Eabc"), ("\udce2\udc82", "e282"),
        (" " * 8, "␣×8"), ("   ", "␣␣␣"), ("=" * 60, "=×60"), ("a" * 3 + "internationalization", "aaainternat…"),
        ("漢字", "漢字"),
    ],
)  # fmt: skip
def test_marks(letters: str, marks: str) -> None:
    assert cut(visible(letters)) == marks


def test_bytes_are_as_ever() -> None:
    vocabulary = Bytes()
    assert vocabulary.read("é\n") == [0xC3, 0xA9, 10] and vocabulary.write([0xC3, 0xA9, 0xFF]) == "é\ufffd"
    assert vocabulary.read(os.fsdecode(b"\xff")) == [255]
    assert [vocabulary.shown(token) for token in (10, 32, 65, 9, 255)] == ["⏎", "␣", "A", "09", "ff"]
    assert vocabulary.unknown(256) == [] and vocabulary.unknown(258) == [256, 257]
    with pytest.raises(MorphError, match="the text has a character that is no text, at 1"):
        vocabulary.read("a\ud800")


STOPS = [
    ({"generation": {"eos_token_id": [7, 9]}, "config": {"eos_token_id": 5}}, {7, 9}),
    ({"generation": {"temperature": 0.6}, "config": {"eos_token_id": 5}}, {5}),
    ({"config": {"eos_token_id": None, "text_config": {"eos_token_id": [6]}}}, {6}),
    ({"eos_token": "<|end|>"}, {1}),
    ({"eos_token": {"content": "<|end|>", "special": True}}, {1}),
    ({"eos_token": "<|not there|>"}, set()),
    ({}, set()),
]


@pytest.mark.parametrize(("settings", "stop"), STOPS)
def test_where_a_text_ends(tmp_path: Path, settings: dict[str, Any], stop: set[int]) -> None:
    assert vocabulary_of(folder(tmp_path / "model", byte_level(), **settings), 512).stop == stop


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    place = folder(tmp_path / "model", None, config={"eos_token_id": 3})
    vocabulary = vocabulary_of(place, 512)
    assert isinstance(vocabulary, Numbers) and vocabulary.stop == {3} and vocabulary.shown(17) == "#17"
    (place / "tokenizer.model").write_bytes(b"")
    told = f"{place} has no tokenizer.json, only tokenizer.model, which is not read: put the model's own tokenizer.json"
    for vocabulary in (vocabulary_of(place, 512),):
        with pytest.raises(MorphError, match=told):
            vocabulary.read("text")
        with pytest.raises(MorphError, match="token ids, from Python"):
            vocabulary.write([1])


def test_a_tokenizer_of_another_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(MorphError, match=r"gives id 3.., and this model knows 0 to 299: .* of another model"):
        vocabulary_of(folder(tmp_path / "model", byte_level()), 300).read("import return self")


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", "{"), ("tokenizer.json", "{}"), ("generation_config.json", "[" * 10**5), ("config.json", "?")],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    place = folder(tmp_path / "model", byte_level())
    (place / name).write_text(content)
    with pytest.raises(MorphError, match=f"{name} cannot be read .*: fetch the file again"):
        vocabulary_of(place, 512)


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder(tmp_path / "model", byte_level())

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("morph.vocabulary.import_module", missing)
    with pytest.raises(MorphError, match=r"needs the library tokenizers: pip install -e '.\[hf\]'"):
        vocabulary_of(place, 512)


def test_ids_that_stand_for_nothing(tmp_path: Path) -> None:
    vocabulary = vocabulary_of(folder(tmp_path / "model", byte_level()), 520)
    assert vocabulary.unknown(520) == list(range(512, 520)) and vocabulary.unknown(512) == []


@pytest.mark.parametrize("ids", [-1, 10**30, [2, 10**30, -5, 3.5, None, "x", True], 512])
def test_ends_are_ids_that_the_model_writes(tmp_path: Path, ids: Any) -> None:
    made = folder(tmp_path / "model", byte_level())
    (made / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    assert vocabulary_of(made, 512).stop == (frozenset((2,)) if isinstance(ids, list) else frozenset())


def test_a_tokenizer_that_fails_on_a_text_is_told(tmp_path: Path) -> None:
    made = folder(tmp_path / "model", byte_level())
    spec = json.loads((made / "tokenizer.json").read_text())
    spec |= {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "no such"}, "added_tokens": []}
    (made / "tokenizer.json").write_text(json.dumps(spec | {"post_processor": None}))
    with pytest.raises(MorphError, match="fails on a text"):
        vocabulary_of(made, 512).read("b")
