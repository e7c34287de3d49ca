"""The results that come with Morph: of the experiments as they are declared, whole, and still what a rerun gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from morph.errors import MorphError
from morph.lab import catalogue
from morph.lab.fit import measure
from morph.lab.report import page
from morph.lab.result import RECORDED, Result, declare, recorded
from morph.lab.spec import Cell
from morph.train.runs import versions

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))
LARGEST = 120_000  # bytes; 270 cells take 104,000
SECONDS = 4


def without_text(declared: dict[str, Any]) -> dict[str, Any]:
    """The default corpus differs between versions of Python."""
    return declared | {"task": {k: v for k, v in declared["task"].items() if k != "sha256"}}


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_result_is_of_the_experiment_as_it_is_declared(name: str) -> None:
    found, experiment = recorded(name), catalogue.find(name)
    cells = experiment.cells()
    assert not found.is_quick and len({cell.seed for cell in found.cells}) >= 3
    assert without_text(found.declared) == without_text(declare(experiment, cells)), "record it again"
    assert [(c.arm, dict(c.point), c.seed) for c in found.cells] == [(c.arm, dict(c.point), c.seed) for c in cells]
    text = (RECORDED / f"{name}.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(found.to_dict())), "what follows from the cells is out of date"
    assert len(text) < LARGEST
    if found.versions["torch"] == versions()["torch"] and found.declared["task"] == json.loads(
        json.dumps(cells[0].task.describe())
    ):
        assert [c.key for c in found.cells] == [c.key for c in cells], "the cells are of another spec: record it again"


def test_the_whole_lab_took_less_than_four_hours() -> None:
    assert sum(recorded(name).cpu_seconds for name in NAMES) <= 4 * 3600


def test_an_unknown_result_is_refused_with_what_there_is() -> None:
    with pytest.raises(MorphError, match=f"no result is recorded as 'recal': there is {', '.join(NAMES)}"):
        recorded("recal")


def test_the_page_in_docs_tells_the_recorded_results() -> None:
    assert (ROOT / "docs" / "lab.md").read_text() == page([recorded(name) for name in NAMES]), (
        "morph lab report --out docs"
    )
    assert {path.stem for path in (ROOT / "docs" / "lab").glob("*.png")} == set(NAMES)


def cheapest(found: Result) -> tuple[Cell, dict[str, Any]]:
    """The cell that took least, with what was recorded of it."""
    best = min(found.cells, key=lambda outcome: outcome.cpu_seconds)
    cells = catalogue.find(found.name).cells()
    (cell,) = [c for c in cells if (c.arm, c.point, c.seed) == (best.arm, best.point, best.seed)]
    return cell, dict(best.readings)


def reruns() -> Iterator[Any]:
    """Every result; those whose cheapest cell takes more than seconds are for the slow tests."""
    for name in NAMES:
        is_slow = min(cell.cpu_seconds for cell in recorded(name).cells) > SECONDS
        yield pytest.param(name, marks=pytest.mark.slow if is_slow else ())


@pytest.mark.parametrize("name", reruns())
def test_a_rerun_of_the_cheapest_cell_gives_what_was_recorded(name: str) -> None:
    torch.set_num_threads(1)
    found = recorded(name)
    cell, before = cheapest(found)
    if found.declared["task"].get("sha256") != cell.task.describe().get("sha256"):
        pytest.skip("this Python's library is another text than the one recorded with")
    now = measure(cell)["readings"]
    assert now.keys() == before.keys()
    slack = 0.05 if cell.is_trained else 1e-3  # rounding differs between processors, and training makes it grow
    for reading, value in before.items():
        expected = value if value is None else pytest.approx(value, rel=slack, abs=slack)
        assert now[reading] == expected, reading
