"""A sweep: every stage trained on the same text, steps and seeds, and what can be said about the differences.

A stage is compared with the one before it seed by seed: both saw the same batches, so much of the seed's luck
cancels. With n seeds the mean paired difference has a 95 % t-interval (Student, 1908); a difference inside it
is called "within the spread". One seed shows no spread, and then nothing is claimed. This module needs no
torch.
"""

import csv
import dataclasses
import io
import json
import math
import statistics
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from morph.errors import MorphError
from morph.steps import SIZES, SLUGS
from morph.train.files import read_json, replace_bytes
from morph.train.records import COUNT, LIST, POSITIVE, SHARE, TABLE, TEXT, Kind, require_fields

FORMAT = 1
REFERENCE = Path(__file__).with_name("reference_sweep.json")

AGAIN = "restore the file or run morph sweep again"

_SIZE = Kind(f"one of {', '.join(SIZES)}", lambda v: isinstance(v, str) and v in SIZES)
_SEEDS = Kind("a list of different whole numbers", lambda v: LIST.holds(v) and all(map(COUNT.holds, v)))
_SWEEP = {
    "size": _SIZE, "steps": POSITIVE, "seeds": _SEEDS, "recipe": TABLE, "corpus": TABLE, "versions": TABLE,
    "date": TEXT, "stages": LIST,
}  # fmt: skip
_CORPUS = {"name": TEXT, "sha256": TEXT, "train_bytes": COUNT, "validation_bytes": COUNT}
_VERSIONS = {"morph": TEXT, "torch": TEXT, "python": TEXT}
_STAGE = {
    "stage": COUNT, "slug": TEXT, "parameters_total": POSITIVE, "parameters_active": POSITIVE,
    "kv_bytes_per_token": COUNT, "cache_context": POSITIVE, "cache_bytes": COUNT, "flops_per_token": POSITIVE,
    "runs": LIST,
}  # fmt: skip
_RUN = {"seed": COUNT, "bits_per_byte": SHARE, "cpu_seconds": SHARE, "train_bits_per_byte": SHARE}

LOWER, HIGHER, WITHIN, ONE_SEED = "lower", "higher", "within the spread", "one seed: no spread"

# Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom; the normal's beyond the table.
_T95 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
_NORMAL95 = 1.960


def t95(degrees: int) -> float:
    """Two-sided 95 % point of Student's t."""
    return _T95[degrees - 1] if degrees <= len(_T95) else _NORMAL95 + 2.4 / degrees


@dataclass(frozen=True)
class SeedRun:
    """One trained model: losses in bits per byte, CPU seconds of its training process."""

    seed: int
    bits_per_byte: float
    cpu_seconds: float
    train_bits_per_byte: float


@dataclass(frozen=True)
class Difference:
    """A stage minus the one before it, paired by seed, in bits per byte (negative is better).

    `interval` is the half-width of the 95 % t-interval of `mean`, None with one seed.
    """

    mean: float
    interval: float | None
    seeds: tuple[int, ...]

    @property
    def verdict(self) -> str:
        if self.interval is None:
            return ONE_SEED
        if abs(self.mean) <= self.interval:
            return WITHIN
        return LOWER if self.mean < 0 else HIGHER


def paired_difference(runs: tuple[SeedRun, ...], before: tuple[SeedRun, ...]) -> Difference | None:
    """Mean and 95 % interval of the difference over the seeds that both have; None if there is none."""
    earlier = {run.seed: run.bits_per_byte for run in before}
    pairs = {run.seed: run.bits_per_byte - earlier[run.seed] for run in runs if run.seed in earlier}
    if not pairs:
        return None
    values = list(pairs.values())
    n = len(values)
    interval = t95(n - 1) * statistics.stdev(values) / math.sqrt(n) if n > 1 else None
    return Difference(statistics.fmean(values), interval, tuple(pairs))


@dataclass(frozen=True)
class StageResult:
    """One stage: its exact costs and its runs.

    Bytes are bf16. `cache_bytes` and `flops_per_token` (forward) are at `cache_context` tokens.
    """

    stage: int
    slug: str
    parameters_total: int
    parameters_active: int
    kv_bytes_per_token: int
    cache_context: int
    cache_bytes: int
    flops_per_token: int
    runs: tuple[SeedRun, ...]

    @property
    def mean(self) -> float:
        """Mean validation bits per byte over seeds."""
        return statistics.fmean(run.bits_per_byte for run in self.runs)

    @property
    def spread(self) -> float:
        """Largest minus smallest over seeds (0 for one seed)."""
        values = [run.bits_per_byte for run in self.runs]
        return max(values) - min(values)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds, None with one seed."""
        return statistics.stdev(run.bits_per_byte for run in self.runs) if len(self.runs) > 1 else None

    @property
    def cpu_seconds(self) -> float:
        """Mean CPU seconds of a run."""
        return statistics.fmean(run.cpu_seconds for run in self.runs)


@dataclass(frozen=True)
class Sweep:
    """All stages of one sweep, in order, and what they share."""

    size: str
    steps: int
    seeds: tuple[int, ...]
    recipe: dict[str, Any]
    corpus: dict[str, Any]
    versions: dict[str, str]
    date: str
    stages: tuple[StageResult, ...]

    @cached_property
    def _by_stage(self) -> dict[int, StageResult]:
        return {result.stage: result for result in self.stages}

    def __getitem__(self, stage: int | str) -> StageResult:
        """The result of a stage, by number or slug. Raises MorphError when the sweep lacks it."""
        numbers = {result.slug: result.stage for result in self.stages}
        number = numbers.get(stage, stage) if isinstance(stage, str) else stage
        if number in self._by_stage:
            return self._by_stage[number]
        raise MorphError(f"the sweep has no stage {stage!r}: it has {', '.join(r.slug for r in self.stages)}")

    def difference(self, stage: int) -> Difference | None:
        """Stage minus the stage before it; None when the sweep lacks either or they share no seed."""
        if stage not in self._by_stage or stage - 1 not in self._by_stage:
            return None
        return paired_difference(self._by_stage[stage].runs, self._by_stage[stage - 1].runs)

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT} | dataclasses.asdict(self) | {"seeds": list(self.seeds)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Sweep":
        """Inverse of `to_dict`. Raises MorphError naming the first entry that is not a sweep's."""
        require_fields(values, {}, "the sweep", AGAIN)
        if values.get("format") != FORMAT:
            raise MorphError(
                f"sweep format {values.get('format')!r}: this version reads {FORMAT}; run morph sweep again"
            )
        require_fields(values, _SWEEP, "the sweep", AGAIN)
        require_fields(values["corpus"], _CORPUS, "corpus", AGAIN)
        require_fields(values["versions"], _VERSIONS, "versions", AGAIN)
        stages = tuple(_stage(stage, f"stages[{i}]") for i, stage in enumerate(values["stages"]))
        if len({stage.stage for stage in stages}) < len(stages):
            raise MorphError(f"the sweep has a stage twice: {AGAIN}")
        kept = {name: values[name] for name in _SWEEP}
        return cls(**(kept | {"seeds": tuple(values["seeds"]), "stages": stages}))

    def save(self, path: str | Path) -> None:
        """Write the JSON file in one move."""
        replace_bytes(Path(path), (json.dumps(self.to_dict(), indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> "Sweep":
        """Read a sweep file, or the `sweep.json` of a sweep's folder. Raises MorphError when it is none."""
        path = Path(path)
        if path.is_dir():
            path = path / "sweep.json"
        if not path.exists():
            raise MorphError(f"no sweep at {path}: make one with morph sweep, or leave the option out")
        try:
            return cls.from_dict(read_json(path))
        except MorphError as error:
            raise MorphError(str(error) if str(path) in str(error) else f"{path}: {error}") from None

    @classmethod
    def reference(cls) -> "Sweep":
        """The sweep that comes with the package (tiny models, three seeds)."""
        return cls.load(REFERENCE)


def _stage(values: Any, where: str) -> StageResult:
    require_fields(values, _STAGE, where, AGAIN)
    if SLUGS[values["stage"] : values["stage"] + 1] != (values["slug"],):
        raise MorphError(f"{where}: stage {values['stage']} is not {values['slug'][:40]!r}: {AGAIN}")
    runs = []
    for i, run in enumerate(values["runs"]):
        require_fields(run, _RUN, f"{where}.runs[{i}]", AGAIN)
        runs.append(SeedRun(**{name: run[name] for name in _RUN}))
    if len({run.seed for run in runs}) < len(runs):
        raise MorphError(f"{where} has a seed twice: {AGAIN}")
    return StageResult(**({name: values[name] for name in _STAGE} | {"runs": tuple(runs)}))


# Tables: one list of columns, written as Markdown and as CSV.

COLUMNS = (
    "stage", "slug", "bits_per_byte", "spread", "difference", "interval", "verdict", "parameters_total",
    "parameters_active", "kv_bytes_per_token", "cache_context", "cache_bytes", "flops_per_token",
    "cpu_seconds",
)  # fmt: skip


def rows(sweep: Sweep) -> list[dict[str, Any]]:
    """One dictionary a stage, with COLUMNS as keys and unrounded values; None where there is none."""
    table = []
    for result in sweep.stages:
        difference = sweep.difference(result.stage)
        values = {name: getattr(result, name) for name in COLUMNS if hasattr(result, name)}
        values |= {
            "bits_per_byte": result.mean,
            "spread": result.spread if len(result.runs) > 1 else None,
            "difference": difference.mean if difference else None,
            "interval": difference.interval if difference else None,
            "verdict": difference.verdict if difference else None,
        }
        table.append({name: values[name] for name in COLUMNS})
    return table


def to_csv(sweep: Sweep) -> str:
    """The table as CSV; empty cells where a value does not exist."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(sweep))
    return out.getvalue()


def to_markdown(sweep: Sweep) -> str:
    """The table as Markdown, with what it was made from above it and how to read it below."""
    seeds = ", ".join(str(seed) for seed in sweep.seeds)
    context = sweep.stages[0].cache_context if sweep.stages else 0
    lines = [
        f"# All stages, size {sweep.size}: {sweep.steps} steps, seeds {seeds}",
        "",
        f"Text: {sweep.corpus['name']}, SHA-256 `{sweep.corpus['sha256'][:12]}`, "
        f"{sweep.corpus['train_bytes']:,} bytes to train on and {sweep.corpus['validation_bytes']:,} "
        f"held out. torch {sweep.versions['torch']}, {sweep.date}.",
        "",
        "| stage | step | bits per byte | spread | vs previous | verdict | parameters | active "
        f"| KV bytes/token | cache at {context:,} | MFLOPs/token | CPU s |",
        "|--:|:--|--:|--:|--:|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows(sweep):
        lines.append("| " + " | ".join(_cells(row)) + " |")
    lines += [
        "",
        "Bits per byte: held-out text, mean over seeds; spread: largest minus smallest. vs previous: mean "
        "difference to the stage before, paired by seed, ± the half-width of its 95 % t-interval; inside it, "
        f'the difference is "{WITHIN}". Of {len(sweep.stages) - 1} such comparisons about one in twenty lands '
        f"outside by luck alone. Cache and FLOPs are at {context:,} tokens; bytes are bf16.",
        *(["One seed shows no spread: no difference in this table is a finding."] if len(sweep.seeds) == 1 else []),
        "",
    ]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    difference = "" if row["difference"] is None else f"{row['difference']:+.3f}"
    if row["interval"] is not None:
        difference += f" ± {row['interval']:.3f}"
    return [
        str(row["stage"]), row["slug"], f"{row['bits_per_byte']:.3f}",
        "" if row["spread"] is None else f"{row['spread']:.3f}", difference, row["verdict"] or "",
        f"{row['parameters_total']:,}", f"{row['parameters_active']:,}", f"{row['kv_bytes_per_token']:,}",
        f"{row['cache_bytes']:,}", f"{row['flops_per_token'] / 1e6:.2f}", f"{row['cpu_seconds']:.0f}",
    ]  # fmt: skip
