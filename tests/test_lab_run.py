"""Running: cells in processes of their own, nothing twice, a kill survived, a failure named, and the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from morph.errors import INTERRUPTED, MorphError
from morph.lab import catalogue, runner
from morph.lab.fit import measure
from morph.lab.result import Result
from morph.lab.runner import Progress
from morph.train.files import lock
from tests import lab_tiny
from tests.lab_tiny import EXPERIMENT
from tests.test_cli import run_morph  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[1]
MODULE = "tests.lab_tiny"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find the tests as this process does."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def written(out: Path) -> dict[str, int]:
    """Cell files with the time they were written."""
    return {path.stem: path.stat().st_mtime_ns for path in (out / "tiny" / "cells").glob("*.json")}


def test_a_run_computes_every_cell_once_and_writes_what_it_found(tmp_path: Path) -> None:
    progress: list[Progress] = []
    told: list[Result] = []
    results = runner.run(
        [MODULE], tmp_path, workers=2, on_progress=progress.append, on_result=lambda r, place: told.append(r)
    )
    assert results == told and len(told) == 1
    found, keys = told[0], {cell.key for cell in EXPERIMENT.cells()}
    assert written(tmp_path).keys() == keys
    assert (progress[-1].cells_done, progress[-1].cells_total) == (len(keys), len(keys))
    assert progress[-1].steps_done == progress[-1].steps_total == 24 * 3 + 6
    assert Result.load(tmp_path / "tiny" / "result.json") == found
    assert (tmp_path / "tiny" / "plot.png").exists()
    assert [f.verdict for f in found.findings] == ["supported"] * 3
    torch.set_num_threads(1)
    here = measure(EXPERIMENT.cells()[0])  # bit for bit what the worker found
    assert here["readings"] == found.cells[0].readings
    assert found.cells[0].readings["steps"] == 3 and "loss" not in found.cells[2].readings  # untrained

    before = written(tmp_path)
    assert runner.run([MODULE], tmp_path, workers=2) == [found]
    assert written(tmp_path) == before
    one = tmp_path / "tiny" / "cells" / f"{EXPERIMENT.cells()[0].key}.json"
    one.unlink()
    assert runner.run([MODULE], tmp_path, workers=1) is not None
    assert {key for key, at in written(tmp_path).items() if before[key] != at} == {one.stem}


def test_a_changed_spec_computes_what_is_new_and_changed_words_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_cells(tmp_path)
    before = written(tmp_path)
    monkeypatch.setattr(lab_tiny, "EXPERIMENT", replace(EXPERIMENT, title="Other words", claims=EXPERIMENT.claims[:1]))
    results = runner.run([MODULE], tmp_path, quick=True)
    assert results is not None and results[0].declared["title"] == "Other words"
    assert written(tmp_path) == before and not (tmp_path / "worker-0.log").exists()
    monkeypatch.setattr(lab_tiny, "EXPERIMENT", replace(EXPERIMENT, version=2))
    assert not set(before) & {cell.key for cell in lab_tiny.EXPERIMENT.cells(quick=True)}


def lab_process(out: Path, **environment: str) -> subprocess.Popen[bytes]:
    code = f"""
from pathlib import Path
from morph.lab import runner
from morph.train.session import stop_on_interrupt
with stop_on_interrupt() as stop:
    done = runner.run([{MODULE!r}], Path({str(out)!r}), workers=2, stop=stop)
raise SystemExit(0 if done else {INTERRUPTED})
"""
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment, cwd=ROOT)


def wait_for_cells(out: Path, process: subprocess.Popen[bytes], n: int = 2) -> None:
    end = time.monotonic() + 120
    while len(written(out)) < n:
        assert process.poll() is None and time.monotonic() < end, "the lab ended before it was to be stopped"
        time.sleep(0.05)


def workers_of(process: int) -> list[int]:
    """Living processes whose parent is `process` (Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_lab_that_was_killed_or_interrupted_goes_on_where_it_was(tmp_path: Path, how: signal.Signals) -> None:
    process = lab_process(tmp_path, LAB_TEST_SLEEP="0.5")
    wait_for_cells(tmp_path, process)
    workers = workers_of(process.pid)
    process.send_signal(how)
    assert process.wait(timeout=60) == (INTERRUPTED if how == signal.SIGINT else -signal.SIGKILL)
    before = written(tmp_path)
    assert 2 <= len(before) < len({cell.key for cell in EXPERIMENT.cells()})
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers):  # none goes on without its lab
        assert time.monotonic() < end
        time.sleep(0.05)
    assert len(written(tmp_path)) == len(before)
    assert not (tmp_path / "tiny" / "result.json").exists()
    assert runner.run([MODULE], tmp_path, workers=2) is not None
    assert written(tmp_path).items() >= before.items()


def test_a_stop_before_the_end_gives_no_result(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert runner.run([MODULE], tmp_path, stop=stop) is None


def test_a_failing_cell_is_named_and_what_is_done_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TEST_FAIL", "yes")
    with pytest.raises(MorphError) as caught:
        runner.run([MODULE], tmp_path, workers=1)
    assert str(caught.value).startswith(
        "tiny: rope, pairs 1, learning_rate 0.001, seed 1 failed: this seed was told to"
    )
    assert "Traceback" in (tmp_path / "worker-0.log").read_text()
    assert written(tmp_path).keys() == {cell.key for cell in EXPERIMENT.cells() if cell.seed == 0}


def test_a_worker_that_dies_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MorphError, match=r"tiny: rope, pairs 2, learning_rate 0\.01, seed 0 failed: its process ended"):
        runner.run([MODULE], tmp_path, quick=True, workers=1)


def test_a_worker_that_was_killed_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "killed"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(MorphError, match=r"its process was ended by signal 9 \(killed: too little memory\?\); see "):
        runner.run([MODULE], tmp_path / "out", quick=True, workers=1)


def quick_cells(out: Path) -> None:
    """All cells of a quick run, as if they had been computed."""
    for cell in EXPERIMENT.cells(quick=True):
        path = out / "tiny" / "cells" / f"{cell.key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        readings = {"loss": 1.0, "curve": [1.0], "steps": 2.0, "stream": [1.0]}
        path.write_text(json.dumps({"readings": readings, "steps": 2, "diverged_at": None, "cpu_seconds": 0.1}))


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")])
def test_words_that_find_no_reader_are_not_the_disks_fault(tmp_path: Path, error: OSError) -> None:
    quick_cells(tmp_path)

    def tell(result: Result, folder: Path) -> None:
        raise error

    with pytest.raises(OSError) as caught:
        runner.run([MODULE], tmp_path, quick=True, on_result=tell)
    assert caught.value is error
    assert (tmp_path / "tiny" / "result.json").exists(), "what was found is kept before it is told"


def test_a_full_disk_is_told_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_cells(tmp_path)

    def save(result: Result, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Result, "save", save)
    with pytest.raises(MorphError, match=r"no space left on the disk while writing .*tiny: free some space"):
        runner.run([MODULE], tmp_path, quick=True)


def test_a_damaged_cell_and_a_busy_folder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny" / "cells" / f"{EXPERIMENT.cells()[0].key}.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"ste')
    with pytest.raises(MorphError, match=r"cannot be read .*: remove it, and it is computed again"):
        runner.run([MODULE], tmp_path)
    path.write_text('{"steps": 3}')
    with pytest.raises(MorphError, match="lacks 'readings': remove it, and it is computed again"):
        runner.run([MODULE], tmp_path)
    path.write_text('{"readings": {"loss": NaN}, "steps": 3, "diverged_at": null, "cpu_seconds": 1}')
    with pytest.raises(MorphError, match=r"reading 'loss' is not a finite number.*remove it, and it is computed again"):
        runner.run([MODULE], tmp_path)
    path.write_text('{"readings": {"loss": 1}, "steps": 3, "diverged_at": "early", "cpu_seconds": 1}')
    with pytest.raises(MorphError, match=r"diverged_at is 'early'.*remove it, and it is computed again"):
        runner.run([MODULE], tmp_path)
    with lock(tmp_path / ".lock"), pytest.raises(MorphError, match="wait for it or choose another --out"):
        runner.run([MODULE], tmp_path)
    with pytest.raises(MorphError, match="workers is 999"):
        runner.run([MODULE], tmp_path, workers=999)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(float("nan"), None), (float("-inf"), None), ([1.0, float("nan")], None), ([], None), (None, None),
     (torch.tensor(1.23456789), 1.23457), (torch.ones(2), [1.0, 1.0]), (True, 1.0)],
)  # fmt: skip
def test_what_is_no_finite_number_is_no_reading(given: object, kept: object) -> None:
    e = replace(EXPERIMENT, procedure=lambda cell, on_step: {"loss": given})  # type: ignore[dict-item,return-value]
    assert measure(e.cells(quick=True)[0])["readings"] == {"loss": kept}


def test_a_procedure_gives_what_was_declared() -> None:
    e = replace(EXPERIMENT, procedure=lambda cell, on_step: {"loss": 1.0, "los": 1.0})
    with pytest.raises(MorphError, match="the procedure gives 'los', and no measure is declared so"):
        measure(e.cells(quick=True)[0])


def test_the_catalogue_holds_each_experiment_under_its_own_name() -> None:
    numbers = []
    for name, module in catalogue.modules().items():
        experiment = catalogue.load(module)
        assert experiment.name == name
        assert module.rpartition(".")[2].startswith(f"e{experiment.number:02d}_")
        numbers.append(experiment.number)
    assert numbers == sorted(set(numbers))
    assert sum(catalogue.find(name).minutes for name in catalogue.modules()) <= 240


# ---- the command line ----


def test_list_names_all_with_their_cost(run_morph) -> None:  # noqa: F811
    *listed, total, more = run_morph("lab", "list").out.splitlines()
    assert [line.split()[1] for line in listed] == list(catalogue.modules())
    minutes = [catalogue.find(name).minutes for name in catalogue.modules()]
    assert [float(line.split()[2]) for line in listed] == minutes
    assert "morph lab report NAME" in more and "morph lab run NAME" in more
    assert total == f"About {sum(minutes):.0f} CPU minutes in all."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "warm-upp"), "morph: unknown experiment 'warm-upp': give one of"),
        (("run", "warm-up", "warm-up"), "morph: experiment 'warm-up' is named twice: name it once\n"),
        (("run", "all", "recall"), "morph: experiment 'recall' is named twice"),
        (("run", "recall", "--quick", "--record"), "morph: a quick run is no evidence and is never recorded"),
        (("run", "recall", "--workers", "99"), "morph: workers is 99"),
        (("report", "nothing"), "morph: unknown experiment 'nothing'"),
        (("report", "--results", "nowhere"), "morph: no results at nowhere"),
    ],
)
def test_bad_words_are_one_line(run_morph, words: tuple[str, ...], told: str) -> None:  # noqa: F811
    done = run_morph("lab", *words)
    assert done.code == 2 and done.err.startswith(told) and done.err.count("\n") == 1
    assert done.out == "" and not Path("runs").exists()


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_a_folder_that_takes_no_record_is_told_before_anything_is_computed(
    run_morph,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    Path("file").touch()
    monkeypatch.setattr("morph.lab.result.RECORDED", Path(place))
    done = run_morph("lab", "run", "recall", "--record")
    assert done.code == 2 and done.err == (
        f"morph: results cannot be recorded in {place}, which cannot be written to: leave out --record\n"
    )
    assert done.out == "" and not Path("runs").exists()


def test_a_quick_run_from_the_command_line_is_told_and_never_put_on_the_page(run_morph) -> None:  # noqa: F811
    done = run_morph("lab", "run", "recall", "--quick", "--out", "q")
    assert done.code == 0, done.err
    assert "11. Recall of many pairs: quick run: no evidence" in done.out
    assert re.search(r"\n\d+ CPU seconds in all\.\n", done.out)
    told = run_morph("lab", "report", "--results", "q").out
    assert "A quick run: it shows that the experiment runs, and nothing else." in told
    assert "does not show" in told
    refused = run_morph("lab", "report", "--results", "q", "--out", "page")
    assert refused.code == 2 and "recall is a quick run, which is no evidence" in refused.err
    assert not Path("page").exists()
