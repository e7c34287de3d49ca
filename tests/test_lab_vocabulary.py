"""The vocabulary's experiment: what tokenizers learn from, what they are tried on, and the memory that is counted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import morph
from morph.errors import MorphError
from morph.lab import pieces
from morph.lab.experiments import e19_vocabulary as e19
from morph.lab.fit import start
from morph.lab.plot import plot
from morph.lab.report import section
from morph.lab.result import collect
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.train.data import load_corpus
from morph.train.recipe import Recipe

DEFINITION = (
    'def greet(name: str) -> str:\n    """Say hello to somebody who came."""\n    return "hello, " + name\n\n\n'
)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Text:
    monkeypatch.setattr(pieces, "BLOCK", 100)
    for n in range(20):
        (tmp_path / f"file{n}.py").write_text(DEFINITION.replace("name", f"name_{n}") * 3)
    return Text(path=str(tmp_path))


def trial(text: Text, vocabulary: int, seed: int = 0) -> Trial:
    return start(e19.reader(vocabulary), text, Recipe(batch_size=1, seed=seed))


def test_a_tokenizer_has_its_size_and_loses_nothing(text: Text) -> None:
    known = pieces.learned(text, 270, 0)
    assert known.get_vocab_size() == 270
    letters = {sign: byte for byte, sign in bytes_as_letters().items()}
    for sample in (DEFINITION, *pieces.SENTENCES.values(), pieces.digits()[:200]):
        read = b"".join(bytes(letters[sign] for sign in token) for token in known.encode(sample).tokens)
        assert read.decode() == sample
    again = pieces.learned.__wrapped__(text, 270, 0)
    assert again.to_str() == known.to_str() != pieces.learned(text, 270, 1).to_str()


def bytes_as_letters() -> dict[int, str]:
    """GPT-2's letters for bytes, written down again."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(rest)}


def test_256_pieces_are_the_bytes(text: Text) -> None:
    known = pieces.learned(text, 256, 0)
    for sample in (DEFINITION, pieces.SENTENCES["Hindi"]):
        assert pieces.tokens_of(known, sample) == len(sample.encode())
        assert pieces.bytes_per_token(known, sample) == 1.0


def test_each_seed_draws_a_quarter_of_the_training_text_and_none_that_is_held_out(text: Text) -> None:
    train = load_corpus(text.path).train.tobytes().decode()
    blocks = [train[first : first + 100] for first in range(0, len(train), 100)]
    for seed in (0, 1):
        found = pieces.drawn(text, seed)
        assert len(found) == len(blocks) // 4
        assert set(found) <= set(blocks)
    assert pieces.drawn(text, 0) != pieces.drawn(text, 1)
    assert pieces.held_out_text(text) not in train


def test_docstrings_are_the_prose_of_held_out_files(text: Text) -> None:
    assert pieces.docstrings(text) == "\n".join(["Say hello to somebody who came."] * 3)


def test_digits_are_numbers_and_hold_no_pattern() -> None:
    numbers = pieces.digits().split(" ")
    assert len(numbers) == 5000 and all(n.isdecimal() and len(n) <= 12 for n in numbers)
    last = np.bincount([int(n) % 10 for n in numbers], minlength=10)
    assert last.min() > 400 and last.max() < 600


def test_the_measures_are_of_the_trials_own_tokenizer(text: Text) -> None:
    looked = trial(text, 270, seed=1)
    known = pieces.learned(text, 270, 1)
    held = pieces.held_out_text(text)
    length = len(held.encode()) / len(known.encode(held).ids)
    assert length > 1.2 and e19.KINDS["Python"](looked) == length
    assert e19.logits_of_a_byte(looked) == pytest.approx(270 * 4 / length)
    english = len(known.encode(pieces.SENTENCES["English"]).ids)
    greek = len(known.encode(pieces.SENTENCES["Greek"]).ids)
    assert e19.over_english(["Greek", "English"])(looked) == [greek / english, 1.0]
    assert len(e19.OTHER_SCRIPTS) == 6 and set(e19.OTHERS) - set(e19.OTHER_SCRIPTS) == {"German"}


def test_memory_is_that_of_tensors(text: Text) -> None:
    looked = trial(text, 300)
    with torch.device("meta"):
        held = torch.empty(1, 4096, 300)
    assert e19.logits(looked) * 2**20 == held.nbytes
    model = morph.build(replace(e19.counted(looked), context_length=64), device="meta")
    assert e19.weights(looked) * 2**20 == sum(p.nbytes for p in model.parameters())
    assert model.config.vocab_size == 300


def test_the_report_says_that_nothing_is_trained_and_the_plot_is_drawn(tmp_path: Path) -> None:
    readings = {m.name: 2.0 for m in e19.EXPERIMENT.measures} | {"tokens over English": [2.0] * len(e19.OTHERS)}
    made_up = {"readings": readings, "steps": 0, "diverged_at": None, "cpu_seconds": 1.0}
    result = collect(e19.EXPERIMENT, False, {cell.key: made_up for cell in e19.EXPERIMENT.cells()})
    assert "No model is trained, 5 seeds; the mean" in section(result)
    plot(result, tmp_path / "plot.png", e19.EXPERIMENT.draw)
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_what_cannot_be_learned_is_refused(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MorphError, match="vocabulary is 255, but each of the 256 bytes needs a piece"):
        pieces.learned(text, 255, 0)
    with pytest.raises(MorphError, match=r"the text gives \d+ pieces and not 4000: ask for fewer"):
        pieces.learned(text, 4000, 0)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MorphError, match=r"needs the library tokenizers: pip install -e '.\[hf\]'"):
        pieces.learned(text, 280, 0)
