"""A result: the declared experiment, every cell's readings, and what follows from them. Reading one needs no torch.

Only declaration and readings are taken from a file; choices, summaries and verdicts are computed from them each time,
and written beside them for whoever reads the file.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from morph.config import diff
from morph.errors import MorphError, nearest, short
from morph.lab import verdict
from morph.lab.spec import Arm, Best, Cell, Claim, Experiment, Need, Point, Reading, Value
from morph.lab.verdict import Interval
from morph.train.files import read_json, replace_bytes
from morph.train.records import COUNT, LIST, NUMBER, SHARE, TABLE, TEXT, Kind, require_fields
from morph.train.runs import VERSIONS, versions

FORMAT = 1
AGAIN = "make it again: morph lab run"
RECORDED = Path(str(files("morph.lab") / "results"))

_MAYBE_TABLE = Kind("a table or null", lambda v: v is None or isinstance(v, dict))
_MAYBE_COUNT = Kind("a whole number or null", lambda v: v is None or COUNT.holds(v))
_FLAG = Kind("true or false", lambda v: isinstance(v, bool))
_ANY_LIST = Kind("a list", lambda v: isinstance(v, list))
_DECLARED = {
    "number": COUNT, "name": TEXT, "title": TEXT, "question": TEXT, "not_shown": TEXT, "minutes": SHARE, "seeds": LIST,
    "vary": TABLE, "best": _MAYBE_TABLE, "recipe": TABLE, "task": TABLE, "config": TABLE, "arms": LIST,
    "measures": LIST, "shown": COUNT, "claims": _ANY_LIST,
}  # fmt: skip
MEASURED = {"readings": TABLE, "steps": COUNT, "diverged_at": _MAYBE_COUNT, "cpu_seconds": SHARE}
"""What is kept of a cell that was computed."""
_OUTCOME = {"arm": TEXT, "point": TABLE, "seed": COUNT, "key": TEXT, **MEASURED}
_RECIPE = {"steps": COUNT, "batch_size": COUNT, "accumulation": COUNT}
_ARM = {"name": TEXT, "changes": _ANY_LIST, "recipe": TABLE, "is_trained": _FLAG}
_MEASURE = {"name": TEXT, "unit": TEXT, "at": TEXT, "is_log": _FLAG}


@dataclass(frozen=True)
class Outcome:
    """What one cell gave. Readings are numbers or lists, None where a run diverged or a model has no such thing."""

    arm: str
    point: Point
    seed: int
    key: str
    readings: Mapping[str, Reading | None]
    steps: int
    diverged_at: int | None
    cpu_seconds: float


@dataclass(frozen=True)
class Choice:
    """The value of `Best.over` that an arm is compared at; `at_edge` when the best tried was the first or last."""

    arm: str
    point: Point
    value: Value
    at_edge: bool


@dataclass(frozen=True)
class Finding:
    """A claim at one point: the difference, ratio or value (None where there is none), and the verdict."""

    claim: Claim
    point: Point
    found: Interval | None
    verdict: str


@dataclass(frozen=True)
class Result:
    """An experiment that was run, whole or quick."""

    declared: dict[str, Any]
    is_quick: bool
    cells: tuple[Outcome, ...]
    versions: dict[str, str]
    date: str

    # ---- what was declared ----

    @property
    def name(self) -> str:
        return str(self.declared["name"])

    @property
    def arms(self) -> list[str]:
        return [arm["name"] for arm in self.declared["arms"]]

    @property
    def measures(self) -> dict[str, dict[str, Any]]:
        """Name -> unit, at, is_log; along, where it was declared."""
        return {measure["name"]: measure for measure in self.declared["measures"]}

    @cached_property
    def best(self) -> Best | None:
        values = self.declared["best"]
        return None if values is None else Best(**values)

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(
            Claim(**(values | {"needs": tuple(_need(need) for need in values["needs"])}))
            for values in self.declared["claims"]
        )

    @cached_property
    def points(self) -> list[Point]:
        """Where results are spread over: the grid that was run, without the axis whose best is taken."""
        found: list[Point] = []
        for cell in self.cells:
            if (point := self._claimed(cell.point)) not in found:
                found.append(point)
        return found

    @property
    def cpu_seconds(self) -> float:
        """Of all cells, shared ones once."""
        return sum({cell.key: cell.cpu_seconds for cell in self.cells}.values())

    # ---- what follows ----

    def _claimed(self, point: Point) -> Point:
        return {axis: value for axis, value in point.items() if self.best is None or axis != self.best.over}

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Each arm's best at each point, by the mean over seeds; a value with a reading missing is out of the race."""
        if self.best is None:
            return ()
        made = []
        for arm in self.arms:
            for point in self.points:
                cells = [c for c in self.cells if c.arm == arm and self._claimed(c.point) == point]
                tried = list(dict.fromkeys(c.point[self.best.over] for c in cells))
                means = {}
                for value in tried:
                    here = [c.readings.get(self.best.by) for c in cells if c.point[self.best.over] == value]
                    numbers = [reading for reading in here if isinstance(reading, float | int)]
                    if len(numbers) == len(here):
                        means[value] = statistics.fmean(numbers)
                if means:
                    value = (min if self.best.take == "lowest" else max)(means, key=lambda v: means[v])
                    made.append(Choice(arm, point, value, len(tried) > 1 and value in (tried[0], tried[-1])))
        return tuple(made)

    def chosen(self, arm: str, point: Point) -> list[Outcome]:
        """The cells of an arm at a point, a seed each; at the arm's best unless the point says at what."""
        if self.best is not None and self.best.over not in point:
            tried = [c.point[self.best.over] for c in self.cells if self._claimed(c.point) == point]
            best = [c.value for c in self.choices if c.arm == arm and c.point == point]
            if not tried:  # a quick run has no such point
                return []
            point = {**point, self.best.over: (best or tried)[0]}  # untrained, or diverged at every value: any will do
        return [cell for cell in self.cells if cell.arm == arm and cell.point == point]

    def readings(self, arm: str, point: Point, measure: str) -> dict[int, Reading]:
        """Seed -> reading; seeds without one are left out."""
        found = {cell.seed: cell.readings.get(measure) for cell in self.chosen(arm, point)}
        return {seed: reading for seed, reading in found.items() if reading is not None}

    def numbers(self, arm: str, point: Point, measure: str) -> list[float]:
        """The seeds' readings that are numbers."""
        return [value for value in self.readings(arm, point, measure).values() if not isinstance(value, list)]

    def lists(self, arm: str, point: Point, measure: str) -> list[list[float]]:
        """The seeds' readings that are lists."""
        return [value for value in self.readings(arm, point, measure).values() if isinstance(value, list)]

    def summary(self, arm: str, point: Point, measure: str) -> Interval | list[float] | None:
        """Mean and interval over seeds (of a list: its means); None when no seed has a reading."""
        found = list(self.readings(arm, point, measure).values())
        if not found:
            return None
        if rows := [reading for reading in found if isinstance(reading, list)]:
            return [statistics.fmean(column) for column in zip(*rows, strict=False)]
        return verdict.interval([reading for reading in found if not isinstance(reading, list)])

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Every claim at every point that it is about."""
        made = []
        for claim in self.claims:
            claimed = self._claimed(claim.at)
            at = [p for p in self.points if all(p.get(axis) == value for axis, value in claimed.items())]
            made += [self._find(claim, {**point, **claim.at}) for point in at or [claim.at]]
        return tuple(made)

    def _find(self, claim: Claim, point: Point) -> Finding:
        found, why = self._difference(claim, point)
        if self.is_quick:
            return Finding(claim, point, found, verdict.NO_EVIDENCE)
        if found is None:
            return Finding(claim, point, None, f"{verdict.UNDECIDED}: {why}")
        for need in claim.needs:
            summary = self.summary(need.arm, point, need.measure)
            if not isinstance(summary, Interval) or not need.more_than < summary.mean < need.less_than:
                return Finding(claim, point, found, f"{verdict.UNDECIDED}: {_unmet(need, summary)}")
        bounds = {"more_than": claim.more_than, "less_than": claim.less_than, "within": claim.within}
        return Finding(claim, point, found, verdict.judge(found, **bounds, ratio=claim.ratio))

    def _difference(self, claim: Claim, point: Point) -> tuple[Interval | None, str]:
        """What the claim is about, or None and why there is none."""
        sides = [(claim.of, point)]
        if claim.against is not None or claim.against_at:
            sides.append((claim.against or claim.of, {**point, **claim.against_at}))
        found = []
        for arm, where in sides:
            readings = self.readings(arm, where, claim.measure)
            lacking = [c.seed for c in self.chosen(arm, where) if c.seed not in readings]
            if lacking or not readings:
                return None, f"{arm} has no {claim.measure} with seed {lacking[0] if lacking else 'any'}"
            numbers = {seed: reading for seed, reading in readings.items() if not isinstance(reading, list)}
            if len(numbers) < len(readings):
                raise MorphError(f"claim {claim.text!r} is about {claim.measure!r}, a list: claim about a number")
            found.append(numbers)
        if len(found) == 1:
            return verdict.interval(list(found[0].values())), ""
        return verdict.paired(found[0], found[1], ratio=claim.ratio), ""

    @property
    def verdict(self) -> str:
        """All verdicts in one line."""
        if self.is_quick:
            return verdict.NO_EVIDENCE
        counts = collections.Counter(finding.verdict.split(":")[0] for finding in self.findings)
        return ", ".join(f"{n} {word}" for word, n in counts.items()) or "nothing was claimed"

    # ---- files ----

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what follows from the cells is written along."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "quick": self.is_quick,
            "cpu_seconds": round(self.cpu_seconds, 1),
            "date": self.date,
            "versions": self.versions,
            "declared": self.declared,
            "findings": [_told(finding) for finding in self.findings],
            "choices": [dataclasses.asdict(choice) for choice in self.choices],
            "summaries": [
                {"arm": arm, "point": point, "measure": measure, **_told_interval(summary)}
                for arm in self.arms
                for point in self.points
                for measure in self.measures
                if (summary := self.summary(arm, point, measure)) is not None
            ],
            "cells": [dataclasses.asdict(cell) for cell in self.cells],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "the result") -> Result:
        """Inverse of `to_dict`. Raises MorphError naming the first entry that is not a result's."""
        require_fields(values, {}, where, AGAIN)
        if values.get("format") != FORMAT:
            raise MorphError(f"{where} has format {values.get('format')!r}; this version reads {FORMAT}: {AGAIN}")
        fields = {"declared": TABLE, "quick": _FLAG, "cells": LIST, "versions": TABLE, "date": TEXT}
        require_fields(values, fields, where, AGAIN)
        require_fields(values["declared"], _DECLARED, f"{where}: declared", AGAIN)
        require_fields(values["versions"], VERSIONS, f"{where}: versions", AGAIN)
        for name, fields in (("arms", _ARM), ("measures", _MEASURE)):
            for i, entry in enumerate(values["declared"][name]):
                require_fields(entry, fields, f"{where}: {name}[{i}]", AGAIN)
        require_fields(values["declared"]["recipe"], _RECIPE, f"{where}: recipe", AGAIN)
        cells = []
        for i, cell in enumerate(values["cells"]):
            require_fields(cell, _OUTCOME, f"{where}: cells[{i}]", AGAIN)
            require_readings(cell["readings"], f"{where}: cells[{i}]", AGAIN)
            if cell["point"].keys() != values["declared"]["vary"].keys():
                raise MorphError(f"{where}: cells[{i}] is at no point of the grid that it declares: {AGAIN}")
            cells.append(Outcome(**{name: cell[name] for name in _OUTCOME}))
        result = cls(values["declared"], values["quick"], tuple(cells), values["versions"], values["date"])
        try:
            result.findings  # noqa: B018 - judged once here, so that what cannot be is told with the file's name
        except MorphError as error:
            raise MorphError(f"{where}: {error}") from None
        except (AttributeError, KeyError, TypeError) as error:  # what they are computed from has other parts
            raise MorphError(f"{where} holds no claims that can be judged ({short(error)}): {AGAIN}") from None
        return result

    def save(self, path: Path) -> None:
        """Write the JSON file in one move; a cell or finding a line, so that it can be read and compared."""
        replace_bytes(path, (_lines(self.to_dict()) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a file that `save` wrote. Raises MorphError when it is none."""
        return cls.from_dict(read_json(path), str(path))


def recorded(name: str) -> Result:
    """The result that comes with the package. Raises MorphError when there is none of this name."""
    path = RECORDED / f"{name}.json"
    known = sorted(file.stem for file in RECORDED.glob("*.json"))
    if name not in known:
        raise MorphError(f"no result is recorded as {name!r}: there is {', '.join(known)}{nearest(name, known)}")
    return Result.load(path)


def collect(experiment: Experiment, quick: bool, found: Mapping[str, dict[str, Any]]) -> Result:
    """Put the cells of an experiment together; `found` holds each cell's file by its key."""
    cells = experiment.cells(quick)
    if missing := [cell for cell in cells if cell.key not in found]:
        raise MorphError(f"{experiment.name} lacks {len(missing)} of {len(cells)} cells: run it again")
    outcomes = tuple(
        Outcome(c.arm, c.point, c.seed, c.key, **{name: found[c.key][name] for name in MEASURED}) for c in cells
    )
    return Result(declare(experiment, cells), quick, outcomes, versions(), datetime.date.today().isoformat())


def declare(experiment: Experiment, cells: list[Cell]) -> dict[str, Any]:
    """The experiment as plain values: models as changes of the first arm's, at the first point."""
    e, first = experiment, cells[0]
    configs = {cell.arm: cell.config for cell in reversed(cells)}  # the first point's win
    plain = {
        "number": e.number, "name": e.name, "title": e.title,
        "question": _one_line(e.question), "not_shown": _one_line(e.not_shown),
        "minutes": e.minutes, "seeds": list(e.seeds), "vary": {axis: list(values) for axis, values in e.vary.items()},
        "best": None if e.best is None else dataclasses.asdict(e.best),
        "recipe": {k: v for k, v in e.recipe.with_(steps=first.recipe.steps).to_dict().items() if k != "seed"},
        "task": dict(first.task.describe()), "config": first.config.to_dict(),
        "arms": [
            {
                "name": arm.name, "changes": [*map(str, diff(first.config, configs[arm.name])), *_altered(arm)],
                "recipe": dict(arm.recipe), "is_trained": arm.is_trained,
            }
            for arm in e.arms
        ],
        "measures": [
            {"name": m.name, "unit": m.unit, "at": m.at, "is_log": m.is_log} | ({"along": m.along} if m.along else {})
            for m in e.measures
        ],
        "shown": e.shown,
        "claims": [_claim(claim) for claim in e.claims],
    }  # fmt: skip
    return json.loads(json.dumps(plain))  # what a file would give back


def _altered(arm: Arm) -> list[str]:
    """What is done to an arm's built model, in words."""
    return [] if arm.alter is None else [(arm.alter.__doc__ or arm.alter.__qualname__).strip().splitlines()[0]]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _claim(claim: Claim) -> dict[str, Any]:
    values = dataclasses.asdict(claim) | {"at": dict(claim.at), "against_at": dict(claim.against_at)}
    needs = [{k: _finite(v) if isinstance(v, float) else v for k, v in need.items()} for need in values["needs"]]
    return values | {"needs": needs}


def _need(values: dict[str, Any]) -> Need:
    return Need(**{name: value for name, value in values.items() if value is not None})


def _unmet(need: Need, summary: Interval | list[float] | None) -> str:
    wanted = []
    if need.more_than > -math.inf:
        wanted.append(f"more than {need.more_than:g}")
    if need.less_than < math.inf:
        wanted.append(f"less than {need.less_than:g}")
    got = f"{summary.mean:.3g}" if isinstance(summary, Interval) else "not there"
    return f"{need.measure} of {need.arm} is {got}, and the claim needs {' and '.join(wanted)}"


def require_readings(readings: Mapping[str, Any], where: str, remedy: str) -> None:
    """Raise MorphError naming the first that is no finite number, no list of such, and not null."""
    for name, reading in readings.items():
        numbers = reading if isinstance(reading, list) else [] if reading is None else [reading]
        if reading == [] or not all(NUMBER.holds(number) for number in numbers):
            raise MorphError(f"{where}: reading {name!r} is not a finite number, a list of them or null: {remedy}")


def _finite(value: float) -> float | None:
    """What JSON can hold: ends of an interval that one seed leaves open are null."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _told_interval(summary: Interval | list[float]) -> dict[str, Any]:
    if isinstance(summary, list):
        return {"mean": [_finite(value) for value in summary]}
    return {"mean": _finite(summary.mean), "low": _finite(summary.low), "high": _finite(summary.high), "n": summary.n}


def _told(finding: Finding) -> dict[str, Any]:
    found = {} if finding.found is None else _told_interval(finding.found)
    return {"claim": finding.claim.text, "point": dict(finding.point), **found, "verdict": finding.verdict}


def _lines(data: dict[str, Any]) -> str:
    """JSON with every entry of the outer tables and lists on a line of its own."""
    parts = []
    for key, value in data.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in value) + "\n ]"
        elif isinstance(value, dict):
            text = "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}"
