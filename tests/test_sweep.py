"""What a sweep says about its runs, on numbers made by hand."""

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from morph.errors import MorphError
from morph.train.plot import plot
from morph.train.sweep import (
    HIGHER,
    LOWER,
    ONE_SEED,
    WITHIN,
    SeedRun,
    StageResult,
    Sweep,
    paired_difference,
    rows,
    t95,
    to_csv,
    to_markdown,
)


def runs(*values: float, first_seed: int = 0) -> tuple[SeedRun, ...]:
    return tuple(SeedRun(first_seed + i, value, 20.0 + i, value + 0.1) for i, value in enumerate(values))


def stage(number: int, slug: str, values: tuple[SeedRun, ...]) -> StageResult:
    return StageResult(
        stage=number, slug=slug, parameters_total=1000 * (number + 1), parameters_active=900, kv_bytes_per_token=768,
        cache_context=1024, cache_bytes=786_432, flops_per_token=1_234_567, runs=values,
    )  # fmt: skip


def sweep(*stages: StageResult, seeds: tuple[int, ...] = (0, 1, 2)) -> Sweep:
    corpus = {"name": "a text", "sha256": "ab" * 32, "train_bytes": 1000, "validation_bytes": 50}
    versions = {"morph": "0", "torch": "2", "python": "3"}
    return Sweep("tiny", 300, seeds, {"learning_rate": 0.003}, corpus, versions, "2026-01-31", stages)


HAND = sweep(
    stage(0, "2017", runs(3.0, 3.2, 3.1)),
    stage(1, "pre-norm", runs(2.9, 3.1, 3.0)),  # 0.1 lower with every seed
    stage(2, "rms-norm", runs(2.9, 3.0, 3.1)),  # differences 0, -0.1, +0.1
    stage(3, "no-bias", runs(3.2, 3.3, 3.45)),  # differences 0.3, 0.3, 0.35
)


def test_mean_and_spread() -> None:
    first = HAND[0]
    assert first.mean == pytest.approx(3.1)
    assert first.spread == pytest.approx(0.2)
    assert first.deviation == pytest.approx(0.1)
    assert first.cpu_seconds == 21.0
    assert HAND["rms-norm"] is HAND[2]
    with pytest.raises(MorphError, match="has no stage 9: it has 2017, pre-norm"):
        HAND[9]


def test_differences_are_paired_by_seed_with_a_t_interval() -> None:
    lower, within, higher = (HAND.difference(k) for k in (1, 2, 3))
    assert lower is not None and within is not None and higher is not None
    assert lower.mean == pytest.approx(-0.1)
    assert lower.interval == pytest.approx(0, abs=1e-12)  # the seeds vary by 0.2, their differences do not
    assert lower.verdict == LOWER
    assert within.mean == pytest.approx(0)
    assert within.interval == pytest.approx(4.303 * 0.1 / math.sqrt(3))
    assert within.verdict == WITHIN
    assert higher.mean == pytest.approx(0.95 / 3)
    assert higher.interval == pytest.approx(4.303 * 0.05 / math.sqrt(3) / math.sqrt(3))
    assert higher.verdict == HIGHER
    assert HAND.difference(0) is None


def test_a_difference_inside_its_interval_is_no_finding() -> None:
    found = paired_difference(runs(2.9, 2.8), runs(3.0, 3.0))  # -0.1 and -0.2: two seeds allow 12.7 times s / sqrt 2
    assert found is not None
    assert (found.mean, found.interval) == (pytest.approx(-0.15), pytest.approx(0.6353))
    assert found.verdict == WITHIN


def test_one_seed_and_foreign_seeds_claim_nothing() -> None:
    one = paired_difference(runs(2.0), runs(3.0))
    assert one is not None
    assert (one.mean, one.interval, one.verdict) == (-1.0, None, ONE_SEED)
    assert paired_difference(runs(2.0), runs(3.0, first_seed=7)) is None
    shared = paired_difference(runs(2.0, 2.5, 2.5), runs(3.0, 3.0, first_seed=1))
    assert shared is not None
    assert (shared.seeds, shared.mean) == ((1, 2), -0.5)


def test_students_t() -> None:
    assert [t95(n) for n in (1, 2, 9)] == [12.706, 4.303, 2.262]
    assert t95(20) == pytest.approx(2.086, abs=0.01)
    assert t95(1000) == pytest.approx(1.962, abs=0.001)


def test_a_file_gives_the_sweep_back(tmp_path: Path) -> None:
    HAND.save(tmp_path / "sweep.json")
    assert Sweep.load(tmp_path / "sweep.json") == HAND
    assert Sweep.load(tmp_path) == HAND
    values = json.loads((tmp_path / "sweep.json").read_text())
    assert values["format"] == 1
    assert values["stages"][1]["runs"][2] == {
        "seed": 2, "bits_per_byte": 3.0, "cpu_seconds": 22.0, "train_bits_per_byte": 3.1
    }  # fmt: skip
    with pytest.raises(MorphError, match="sweep format 9: this version reads 1"):
        Sweep.from_dict(values | {"format": 9})
    with pytest.raises(MorphError, match="the sweep lacks 'corpus'"):
        Sweep.from_dict({k: v for k, v in values.items() if k != "corpus"})
    with pytest.raises(MorphError, match="no sweep at"):
        Sweep.load(tmp_path / "elsewhere.json")


@pytest.mark.parametrize("value", [{}, [], None, 5, "text"])
def test_a_file_that_holds_no_sweep_is_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(value))
    with pytest.raises(MorphError, match=r"sweep\.json: (the sweep holds|sweep format None)"):
        Sweep.load(tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("size", "huge", "size is 'huge', not one of nano, tiny, small"),
        ("size", ["tiny"], "size is a list of 1"),
        ("steps", "300", "steps is '300'"),
        ("seeds", [], "seeds is [], not a list"),
        ("seeds", ["a"], "seeds is a list of 1, not a list of different whole numbers"),
        ("versions", {"torch": "2"}, "versions lacks 'morph'"),
        ("corpus", {"name": 5}, "corpus: name is 5, not text"),
        ("stages", [], "stages is [], not a list with at least one entry"),
        ("stages/0/stage", 77, "stages[0]: stage 77 is not '2017'"),
        ("stages/1/stage", 0, "stages[1]: stage 0 is not 'pre-norm'"),
        ("stages/1", [], "stages[1] holds [], not a table"),
        ("stages/2/cache_bytes", True, "stages[2]: cache_bytes is True"),
        ("stages/3/runs", [], "stages[3]: runs is [], not a list with at least one entry"),
        ("stages/3/runs/1/bits_per_byte", math.nan, "stages[3].runs[1]: bits_per_byte is nan, not a finite number"),
        ("stages/3/runs/1/cpu_seconds", -math.inf, "stages[3].runs[1]: cpu_seconds is -inf"),
        ("stages/3/runs/1/seed", 0, "stages[3] has a seed twice"),
    ],
)
def test_a_wrong_entry_is_named_with_its_file(tmp_path: Path, place: str, value: object, words: str) -> None:
    values = json.loads(json.dumps(HAND.to_dict()))
    *path, last = [int(key) if key.isdigit() else key for key in place.split("/")]
    table = values
    for key in path:
        table = table[key]
    table[last] = value
    (tmp_path / "sweep.json").write_text(json.dumps(values))
    with pytest.raises(MorphError) as caught:
        Sweep.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'sweep.json'}: ")
    assert words in str(caught.value)


def test_tables_hold_the_same_numbers() -> None:
    table = list(csv.DictReader(io.StringIO(to_csv(HAND))))
    assert [row["slug"] for row in table] == ["2017", "pre-norm", "rms-norm", "no-bias"]
    assert float(table[3]["difference"]) == rows(HAND)[3]["difference"]
    assert (table[0]["difference"], table[0]["verdict"], table[2]["verdict"]) == ("", "", WITHIN)
    text = to_markdown(HAND)
    assert "| 2 | rms-norm | 3.000 | 0.200 | +0.000 ± 0.248 | within the spread | 3,000 | 900 | 768 |" in text
    assert "1,024 tokens" in text
    assert "One seed" not in text


def test_one_seed_is_said_aloud() -> None:
    alone = sweep(stage(0, "2017", runs(3.0)), stage(1, "pre-norm", runs(2.9)), seeds=(0,))
    text = to_markdown(alone)
    assert "| 1 | pre-norm | 2.900 |  | -0.100 | one seed: no spread |" in text
    assert "One seed shows no spread: no difference in this table is a finding." in text


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    plot(HAND, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["plot.png"]


def test_reading_a_sweep_needs_no_torch() -> None:
    code = "import morph.train.sweep, morph.train.plot, morph.train.ledger, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
