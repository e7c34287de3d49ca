"""What the figures read of the lab's recorded experiments."""

from __future__ import annotations

import numpy as np
import pytest

from morph.errors import MorphError
from morph.lab.result import recorded
from morph.story.measured import by_seed, holds, run, trained


def test_rows_are_arms_and_columns_seeds() -> None:
    array = by_seed("windows", ("full", "all local"), "effective field", {"window": 8})
    cells = [c for c in recorded("windows").cells if c.point == {"window": 8} and c.arm == "all local"]
    assert array.axes == ("arm", "seed") and array.values.shape == (2, 3)
    np.testing.assert_array_equal(array.values[1], [c.readings["effective field"] for c in cells])
    assert array.source == "recorded experiment windows: effective field"


def test_an_arm_is_read_at_its_own_best_rate() -> None:
    result = run("router-collapse")
    (rate,) = (c.value for c in result.choices if c.arm == "none")
    cells = [c.readings["dead experts"] for c in result.cells if c.arm == "none" and c.point["learning_rate"] == rate]
    assert by_seed("router-collapse", ("none",), "dead experts").values[0].tolist() == cells


def test_readings_that_are_not_there_are_refused() -> None:
    with pytest.raises(MorphError, match="'windows' has no 'effective field' of each seed of full: record it again"):
        by_seed("windows", ("full",), "effective field", {"window": 7})
    with pytest.raises(MorphError, match="of each seed of sandwich, sandwich, 6 layers"):
        by_seed("stream-growth", ("sandwich", "sandwich, 6 layers"), "trained last size")


def test_a_claim_holds_when_it_is_supported() -> None:
    assert holds("router-collapse", "Left alone, experts die")
    assert not holds("sinks", "Weight gathers on the first token")
    with pytest.raises(MorphError, match="claims nothing like 'x'"):
        holds("sinks", "x")


def test_how_long_they_were_trained() -> None:
    assert trained("stream-growth") == "50 steps, 3 seeds"
