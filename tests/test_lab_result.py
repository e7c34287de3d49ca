"""What a result says of readings made by hand: best values, differences, needs, gaps; and what is written of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from morph.errors import MorphError
from morph.lab.plot import SHADES, _measure, plot
from morph.lab.report import how_made, page, section, written
from morph.lab.result import Result, collect
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need, Quick
from tests.lab_tiny import CONFIG, EXPERIMENT

# Loss of each arm at learning rates 0.001 and 0.01 with the seeds 0, 1, 2. At one pair rope is best at 0.01, silu at
# 0.001; at two pairs all are 1 higher.
LOSSES = {
    ("rope", 1e-3): (2.0, 2.0, 2.3),
    ("rope", 1e-2): (1.9, 2.1, 2.0),
    ("silu", 1e-3): (1.6, 1.9, 1.7),
    ("silu", 1e-2): (1.5, 3.0, 1.7),
}


def experiment(*claims: Claim, **changes: Any) -> Experiment:
    return replace(EXPERIMENT, claims=claims, **changes)


def readings(cell: Any) -> dict[str, Any]:
    if not cell.is_trained:
        return {"stream": [1.0, 2.0 + cell.seed]}
    loss = LOSSES[cell.arm, cell.point["learning_rate"]][cell.seed] + (cell.point["pairs"] == 2)
    return {"loss": loss, "curve": [loss + 1, loss], "steps": 3.0, "stream": [1.0, 2.0]}


def result(e: Experiment, quick: bool = False, **special: Any) -> Result:
    """The experiment with the losses above; `special` overrides a cell's file by its key."""
    cells = {}
    for cell in e.cells(quick):
        cells[cell.key] = {"readings": readings(cell), "steps": 3, "diverged_at": None, "cpu_seconds": 1.5}
    return collect(e, quick, cells | special)


def key(e: Experiment, arm: str, rate: float, seed: int, pairs: int = 1) -> str:
    point = {"pairs": pairs, "learning_rate": rate}
    return next(c.key for c in e.cells() if (c.arm, dict(c.point), c.seed) == (arm, point, seed))


LESS = Claim("silu is lower", "loss", of="silu", against="rope", less_than=-0.01, at={"pairs": 1})


def test_each_arm_is_read_at_its_own_best_by_the_mean_over_seeds() -> None:
    found = result(experiment(LESS))
    chosen = {(c.arm, c.point["pairs"]): (c.value, c.at_edge) for c in found.choices}
    assert chosen["rope", 1] == (1e-2, True) and chosen["silu", 1] == (1e-3, True)
    assert chosen["rope", 2] == (1e-2, True) and chosen["silu", 2] == (1e-3, True)
    assert found.readings("rope", {"pairs": 1}, "loss") == {0: 1.9, 1: 2.1, 2: 2.0}
    assert found.readings("rope", {"pairs": 2}, "loss") == {0: 2.9, 1: 3.1, 2: 3.0}
    (finding,) = found.findings
    assert finding.found is not None
    assert finding.found.mean == pytest.approx((-0.3 - 0.2 - 0.3) / 3)
    assert finding.found.high == pytest.approx(-0.8 / 3 + 4.303 * 0.057735 / 3**0.5, abs=1e-5)
    assert finding.verdict == found.verdict.removeprefix("1 ") == "supported"


def test_the_highest_can_be_the_best_and_a_middle_value_is_no_edge() -> None:
    three = experiment(
        vary={"pairs": (1, 2), "learning_rate": (1e-3, 5e-3, 1e-2)},
        best=Best("learning_rate", by="loss", take="highest"),
    )
    LOSSES["rope", 5e-3], LOSSES["silu", 5e-3] = (2.5, 2.5, 2.5), (0.0, 0.0, 0.0)
    try:
        chosen = {c.arm: (c.value, c.at_edge) for c in result(three).choices if c.point == {"pairs": 1}}
    finally:
        del LOSSES["rope", 5e-3], LOSSES["silu", 5e-3]
    assert chosen == {"rope": (5e-3, False), "silu": (1e-2, True)}


def test_a_claim_can_be_set_at_one_rate_for_both() -> None:
    (finding,) = result(experiment(replace(LESS, at={"pairs": 1, "learning_rate": 1e-2}))).findings
    assert finding.found is not None
    assert finding.found.mean == pytest.approx((-0.4 + 0.9 - 0.3) / 3)
    assert finding.verdict == "within noise at 3 seeds"


def test_without_a_point_a_claim_is_judged_at_every_one() -> None:
    findings = result(experiment(replace(LESS, at={}))).findings
    assert [dict(f.point) for f in findings] == [{"pairs": 1}, {"pairs": 2}]
    for finding in findings:  # two pairs are 1 higher on both sides
        assert finding.found is not None and finding.found.mean == pytest.approx(-0.8 / 3)


def test_a_claim_can_be_about_one_arm_and_across_the_grid() -> None:
    alone = Claim("rope stays below 3", "loss", of="rope", less_than=3.0, at={"pairs": 1})
    across = Claim("more pairs cost more", "loss", of="rope", more_than=0.5, at={"pairs": 2}, against_at={"pairs": 1})
    one, two = result(experiment(alone, across)).findings
    assert one.found is not None and one.found.mean == pytest.approx(2.0)
    assert two.found is not None and (two.found.mean, two.verdict) == (pytest.approx(1.0), "supported")
    ratio = Claim(
        "half as much again", "loss", of="rope", ratio=True, within=2, at={"pairs": 2}, against_at={"pairs": 1}
    )
    (three,) = result(experiment(ratio)).findings
    product = (2.9 / 1.9) * (3.1 / 2.1) * (3.0 / 2.0)
    assert three.found is not None and three.found.mean == pytest.approx(product ** (1 / 3))


def test_an_unmet_need_leaves_a_claim_undecided() -> None:
    met, unmet = Need("loss", "rope", less_than=2.5), Need("loss", "silu", more_than=1.8)
    assert result(experiment(replace(LESS, needs=(met,)))).findings[0].verdict == "supported"
    (finding,) = result(experiment(replace(LESS, needs=(met, unmet)))).findings
    assert finding.verdict == "undecided: loss of silu is 1.73, and the claim needs more than 1.8"
    absent = replace(LESS, needs=(Need("loss", "untrained", less_than=1.0),))
    assert result(experiment(absent)).findings[0].verdict.startswith("undecided: loss of untrained is not there")


def test_a_diverged_run_has_the_value_that_was_declared_or_none() -> None:
    e = experiment(LESS)
    lost = {"steps": 1, "diverged_at": 2, "cpu_seconds": 1.0}
    gone = {"loss": None, "curve": None, "steps": None, "stream": [1.0, 2.0]}
    best = key(e, "silu", 1e-3, 1)
    elsewhere = result(e, **{best: lost | {"readings": gone}})
    assert (
        next(c.value for c in elsewhere.choices if c.arm == "silu" and c.point == {"pairs": 1}) == 1e-2
    )  # out of the race
    both = {k: lost | {"readings": gone} for k in (best, key(e, "silu", 1e-2, 1))}
    (finding,) = result(e, **both).findings
    assert (finding.found, finding.verdict) == (None, "undecided: silu has no loss with seed 1")
    assert "2 runs diverged, the first silu, pairs 1, learning rate 0.001 at step 2." in section(result(e, **both))


def test_a_quick_run_is_no_evidence() -> None:
    found = result(experiment(replace(LESS, at={"pairs": 2})), quick=True)
    assert found.verdict == found.findings[0].verdict == "quick run: no evidence"
    assert "A quick run" in section(found)
    (absent,) = result(experiment(LESS), quick=True).findings  # one pair is not run
    assert (absent.found, absent.verdict) == (None, "quick run: no evidence")


def test_lists_are_averaged_and_cannot_be_claimed_about() -> None:
    found = result(experiment(LESS))
    assert found.summary("untrained", {"pairs": 1}, "stream") == [1.0, 3.0]
    assert found.summary("untrained", {"pairs": 1}, "loss") is None
    with pytest.raises(MorphError, match="is about 'curve', a list: claim about a number"):
        _ = result(experiment(replace(LESS, measure="curve"))).findings


def test_shared_cells_cost_once() -> None:
    e = experiment(LESS)
    assert result(e).cpu_seconds == 1.5 * len({c.key for c in e.cells()})
    assert len(e.cells()) > len({c.key for c in e.cells()})


def test_a_file_gives_the_result_back_and_holds_what_follows(tmp_path: Path) -> None:
    needs = (Need("loss", "rope", less_than=9.0),)
    found = result(experiment(replace(LESS, needs=needs), Claim("w", "steps", of="rope", within=4.0)))
    found.save(tmp_path / "r.json")
    again = Result.load(tmp_path / "r.json")
    assert again == found and again.findings == found.findings and again.choices == found.choices
    values = json.loads((tmp_path / "r.json").read_text())
    assert values["findings"][0] == {
        "claim": "silu is lower", "point": {"pairs": 1}, "mean": -0.266667, "low": -0.4101, "high": -0.123233, "n": 3,
        "verdict": "supported",
    }  # fmt: skip
    assert values["verdict"] == "3 supported"
    wanted = {"arm": "silu", "point": {"pairs": 1}, "measure": "loss"}
    (summary,) = [s for s in values["summaries"] if s.items() >= wanted.items()]
    assert (summary["mean"], summary["n"]) == (1.73333, 3)
    assert values["declared"]["arms"][1]["changes"] == ["feed_forward.activation: relu → silu"]
    assert max(map(len, (tmp_path / "r.json").read_text().splitlines())) < 1000


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("format", 9, "has format 9; this version reads 1"),
        ("cells", [], "cells is []"),
        ("quick", "no", "quick is 'no'"),
        ("cells/0/seed", -1, "cells[0]: seed is -1"),
        ("cells/3/readings", 5, "cells[3]: readings is 5"),
        ("declared/arms/0/name", 5, "arms[0]: name is 5"),
        ("declared/question", None, "declared: question is None"),
        ("versions", {}, "versions lacks 'morph'"),
        ("cells/1/readings/loss", float("nan"), "cells[1]: reading 'loss' is not a finite number"),
        ("cells/1/readings/curve", [1.0, "x"], "cells[1]: reading 'curve' is not a finite number"),
        ("cells/1/readings/curve", [], "reading 'curve' is not"),
        ("cells/2/point", {}, "cells[2] is at no point of the grid"),
        ("declared/recipe", {}, "recipe lacks 'steps'"),
        ("declared/claims/0", {"text": "x"}, "holds no claims that can be judged (KeyError('needs'))"),
        ("declared/claims/0/less_than", None, "a claim needs a bound"),
        ("declared/claims/0/less_than", "x", "holds no claims that can be judged (TypeError"),
        ("declared/best", {"by": "loss"}, "holds no claims that can be judged (TypeError"),
    ],
)
def test_a_damaged_file_is_named_with_its_entry(tmp_path: Path, place: str, value: Any, words: str) -> None:
    values = json.loads(json.dumps(result(experiment(LESS)).to_dict()))
    *path, last = [int(part) if part.isdigit() else part for part in place.split("/")]
    table: Any = values
    for part in path:
        table = table[part]
    table[last] = value
    (tmp_path / "r.json").write_text(json.dumps(values))
    with pytest.raises(MorphError) as caught:
        Result.load(tmp_path / "r.json")
    assert str(tmp_path / "r.json") in str(caught.value) and words in str(caught.value)


def lacking(arm: str) -> Result:
    """One arm diverged with every seed, and has no readings."""
    e = experiment(LESS)
    gone = {"readings": dict.fromkeys(("loss", "curve", "steps", "stream")), "steps": 1, "diverged_at": 1}
    return result(e, **{c.key: gone | {"cpu_seconds": 1.0} for c in e.cells() if c.arm == arm})


def test_a_plot_that_lacks_an_arm_is_the_usual_one(tmp_path: Path) -> None:
    def draw(found: Result, part: Any) -> None:
        part.subplots().plot([1], [1])
        part.axes[0].set_title(found.readings("silu", found.points[0], "loss")[0])  # KeyError

    plot(lacking("silu"), tmp_path / "usual.png")
    plot(lacking("silu"), tmp_path / "own.png", draw)
    assert (tmp_path / "own.png").read_bytes() == (tmp_path / "usual.png").read_bytes()
    assert "undecided: silu has no loss with seed 0" in section(lacking("silu"))
    with pytest.raises(KeyError):  # where nothing is lacking, it is a mistake
        plot(result(experiment(LESS)), tmp_path / "own.png", lambda found, part: {}["nothing"])


def test_missing_cells_are_counted() -> None:
    with pytest.raises(MorphError, match="tiny lacks 36 of 36 cells"):
        collect(EXPERIMENT, False, {})


def test_the_report_holds_the_numbers_and_what_they_do_not_show() -> None:
    claim = replace(LESS, text="silu | wins")
    text = section(result(experiment(claim)))
    row = "| silu \\| wins (pairs 1) | loss: silu minus rope | less than -0.0100 | -0.267 [-0.410, -0.123] | "
    assert row + "**supported** |" in text
    assert "| rope, pairs 1 | 2.00 ± 0.248 | 3.00 | 0.01 (edge) |" in text
    assert "its own best of 2 values of learning rate (0.001, 0.01), by its loss over all seeds." in text
    assert "What it does not show: Anything." in text
    whole = page([result(experiment(claim)), result(experiment(claim, number=3, name="first", title="First"))])
    assert whole.index("## 3. First") < whole.index("## 99. A tiny experiment")
    assert f"| 3 | [First](#3-first) | {EXPERIMENT.question} | 1 |  |  |  |" in whole
    assert f"| 99 | [A tiny experiment](#99-a-tiny-experiment) | {EXPERIMENT.question} | 1 |  |  |  |" in whole


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0"), (1.0, "1.00"), (-0.01234, "-0.0123"), (12345.6, "12,300"), (123456.0, "1.23e+05"), (1e-5, "1.00e-05"),
     (float("inf"), "∞"), (9.999, "10.0"), (99.96, "100"), (0.00123, "0.00123")],
)  # fmt: skip
def test_numbers_are_written_with_three_digits(number: float, text: str) -> None:
    assert written(number) == text


@pytest.mark.parametrize("points", [(1, 2), (1, 2, 3)])
def test_the_plot_is_a_picture_with_rows_or_lines(tmp_path: Path, points: tuple[int, ...]) -> None:
    ratio = Claim("rope is larger", "loss", of="rope", against="silu", ratio=True, more_than=1.05)
    measures = (replace(EXPERIMENT.measures[0], is_log=True), *EXPERIMENT.measures[1:])
    e = experiment(
        LESS, ratio, Claim("w", "loss", of="rope", within=4.0), measures=measures, shown=4,
        vary={"pairs": points, "learning_rate": (1e-3, 1e-2)},
    )  # fmt: skip
    plot(result(e), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    drawn: list[Result] = []
    plot(result(e), tmp_path / "own.png", lambda found, part: drawn.append(found))
    assert drawn == [result(e)]


def panel(found: Result, name: str) -> list[Any]:
    """The axes of one measure's panel."""
    from matplotlib.figure import Figure

    figure = Figure()
    _measure(figure.subfigures(1, 1), found, name)
    return figure.get_axes()


def test_a_list_is_drawn_along_what_it_was_declared_to_go_along() -> None:
    *others, stream = EXPERIMENT.measures
    e = experiment(measures=(*others, replace(stream, along="layers passed")))
    for axes in panel(result(e), "stream"):
        assert axes.get_xlabel() == "layers passed"
    assert {axes.get_xlabel() for axes in panel(result(e), "curve")} == {""}
    assert result(e).measures["stream"]["along"] == "layers passed" and "along" not in result(e).measures["curve"]


def test_more_lines_than_shades_are_told_apart_by_dashes() -> None:
    arms = tuple(Arm(f"arm {i}", CONFIG, is_trained=False) for i in range(len(SHADES) + 2))
    e = experiment(arms=arms, vary={"pairs": (1,)}, best=None, quick=Quick())
    cells = {
        c.key: {"readings": {"stream": [1.0, 2.0]}, "steps": 1, "diverged_at": None, "cpu_seconds": 0.0}
        for c in e.cells()
    }
    found = collect(e, False, cells)
    apart = [replace(c, readings={"stream": [1.0, 2.0 + int(c.arm.split()[1])]}) for c in found.cells]
    (axes,) = panel(replace(found, cells=tuple(apart)), "stream")
    looks = [(line.get_color(), line.get_linestyle()) for line in axes.get_lines()]
    assert len(set(looks)) == len(looks) == len(arms)
    assert {text.get_text() for text in axes.texts} >= {"arm 0", f"- - arm {len(SHADES)}"}


@pytest.mark.parametrize(
    ("steps", "told"), [((3, 3), "3 steps"), ((3, 7), "3 or 7 steps"), ((3, 7, 5), "3 to 7 steps")]
)
def test_the_steps_of_all_trained_arms_are_told(steps: tuple[int, ...], told: str) -> None:
    arms = tuple(Arm(f"{i}", CONFIG, {"steps": n}) for i, n in enumerate(steps))
    e = experiment(arms=(*arms, Arm("untrained", CONFIG, {"steps": 99}, is_trained=False)))
    cells = {
        c.key: {"readings": {"loss": 1.0}, "steps": 3, "diverged_at": None, "cpu_seconds": 0.0}
        for quick in (False, True)
        for c in e.cells(quick)
    }
    assert how_made(collect(e, False, cells)).startswith(told)
    assert how_made(collect(e, True, cells)).startswith("2 steps of 4 sequences")


def test_a_trainless_experiment_needs_no_grid(tmp_path: Path) -> None:
    e = Experiment(
        number=98, name="flat", title="Flat", question="?", arms=(Arm("one", CONFIG), Arm("two", CONFIG)),
        task=EXPERIMENT.task({"pairs": 1}),  # type: ignore[operator]
        recipe=EXPERIMENT.recipe, measures=(Measure("steps", lambda trial: 1.0),),
        claims=(Claim("equal", "steps", of="one", against="two", within=0.5),), minutes=1, not_shown="",
        procedure=lambda cell, on_step: {"steps": 1.0},
    )  # fmt: skip
    cells = {
        c.key: {"readings": {"steps": 1.0}, "steps": 3, "diverged_at": None, "cpu_seconds": 0.0} for c in e.cells()
    }
    found = collect(e, False, cells)
    assert found.verdict == "1 supported" and found.points == [{}]
    plot(found, tmp_path / "plot.png")


def test_reading_a_result_needs_no_torch() -> None:
    code = "import morph.lab.result, morph.lab.report, morph.lab.plot, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
