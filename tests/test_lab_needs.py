"""The bits per byte that claims are guarded by are those of tables learned from the training text."""

from __future__ import annotations

import numpy as np
import pytest

from morph.lab.needs import BYTE_FREQUENCIES, BYTE_PAIRS, learned
from morph.lab.tasks import corpus


def test_tables_of_bytes_and_of_pairs_need_as_many_bits_on_held_out_text() -> None:
    train, held_out = corpus().train, corpus().validation
    counts = np.bincount(train, minlength=256) + 1
    bits = -np.log2(counts / counts.sum())[held_out].mean()
    assert bits == pytest.approx(BYTE_FREQUENCIES, abs=0.1)  # the text differs a little between Pythons
    pairs = np.full((256, 256), 0.01)
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    bits = -np.log2(pairs / pairs.sum(axis=1, keepdims=True))[held_out[:-1], held_out[1:]].mean()
    assert bits == pytest.approx(BYTE_PAIRS, abs=0.1)
    (need,) = learned("arm")
    assert BYTE_PAIRS < need.less_than < BYTE_FREQUENCIES
