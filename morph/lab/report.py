"""A result in words: what was asked, what was found, what would have counted, and what it does not show. No torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from morph.lab.result import Finding, Result
from morph.lab.spec import Claim, Point
from morph.lab.verdict import NOT_SUPPORTED, SUPPORTED, UNDECIDED, Interval

HOW_TO_READ = """\
Each experiment was declared before it ran: arms, grid, seeds, and for every claim the size that would count. What a
declaration was shaped by (other people's papers, arithmetic, a pilot with other seeds) its file says. Arms with the
same seed see the same batches, so differences are paired by seed; brackets hold their 95 % t-interval. A claim is
*supported* when the whole interval lies on its side of the bound, *not supported* when the whole of it lies on the
other, and *within noise* when the bound lies inside. Where every arm is shown at its own best learning rate, the rate
was chosen by the very seeds and text that it is judged by, which flatters all arms alike. About one interval in twenty
misses the truth by luck alone, and all of it is small: models of some hundred thousand parameters, trained for minutes
on a CPU. What an experiment does not show stands below it."""


_VERDICTS = (SUPPORTED, NOT_SUPPORTED, "within noise", UNDECIDED)


def written(number: float) -> str:
    """Three significant digits, plain where they can be."""
    if not math.isfinite(number):
        return "∞" if number > 0 else "-∞"
    number = float(f"{number:.3g}")
    if number == 0 or 1e-3 <= abs(number) < 1e5:
        digits = 2 - math.floor(math.log10(abs(number))) if number else 0
        return f"{number:,.{max(0, digits)}f}"
    return f"{number:.2e}"


def at(point: Point) -> str:
    """A point in words, empty for the only one."""
    return ", ".join(f"{axis.replace('_', ' ')} {value}" for axis, value in point.items())


def bound(claim: Claim) -> str:
    """What would count."""
    unit = " times" if claim.ratio else ""
    if claim.within is not None:
        low = written(1 / claim.within) if claim.ratio else written(-claim.within)
        return f"between {low} and {written(claim.within)}{unit}"
    word, value = ("more", claim.more_than) if claim.more_than is not None else ("less", claim.less_than)
    assert value is not None
    return f"{word} than {written(value)}{unit}"


def measured(found: Interval | None) -> str:
    """A mean and its interval."""
    if found is None:
        return "–"
    ends = f" [{written(found.low)}, {written(found.high)}]" if found.n > 1 else ""
    return written(found.mean) + ends


def sides(claim: Claim) -> str:
    """What is set against what."""
    against = claim.against or (claim.of if claim.against_at else None)
    if against is None:
        return f"{claim.measure} of {claim.of}"
    moved = f" at {at(claim.against_at)}" if claim.against_at else ""
    return f"{claim.measure}: {claim.of} {'over' if claim.ratio else 'minus'} {against}{moved}"


def section(result: Result, image: str | None = None, level: int = 2) -> str:
    """One experiment as Markdown; `image` is the plot's address."""
    declared = result.declared
    quick = ["**A quick run: it shows that the experiment runs, and nothing else.**", ""] if result.is_quick else []
    lines = [f"{'#' * level} {_heading(declared)}", "", *quick, declared["question"], ""]
    lines += [*findings(result), ""]
    lines += [*([f"![{declared['title']}]({image})", ""] if image else []), *_table(result), ""]
    lines += [how_made(result), ""]
    lines += [f"What it does not show: {_one_line(declared['not_shown'])}", "", _made(result), ""]
    return "\n".join(lines)


def findings(result: Result) -> list[str]:
    """Every claim with its verdict, as the lines of a Markdown table."""
    head = ["| claim | of what | would count | measured | verdict |", "|:--|:--|--:|--:|:--|"]
    return [*head, *map(_row, result.findings)]


def _row(finding: Finding) -> str:
    claim = finding.claim
    where = f" ({at(finding.point)})" if finding.point else ""
    cells = (claim.text + where, sides(claim), bound(claim), measured(finding.found), f"**{finding.verdict}**")
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _table(result: Result) -> list[str]:
    """Arms and points against the scalar measures: means, with half the interval's width."""
    names = [
        name
        for name in result.measures
        if any(isinstance(result.summary(arm, p, name), Interval) for arm in result.arms for p in result.points)
    ]
    unit = {name: result.measures[name]["unit"] for name in names}
    heads = [f"{name}, {unit[name]}" if unit[name] and unit[name] not in name else name for name in names]
    best = result.best.over.replace("_", " ") if result.best else None
    lines = ["| " + " | ".join(["arm", *map(_cell, heads), *([f"best {best}"] if best else [])]) + " |"]
    lines.append("|:--|" + "--:|" * (len(names) + bool(best)))
    for point in result.points:
        for arm in result.arms:
            summaries = [result.summary(arm, point, name) for name in names]
            if not any(isinstance(summary, Interval) for summary in summaries):
                continue
            cells = [_spread(s) if isinstance(s, Interval) else "" for s in summaries]
            if best:
                choice = next((c for c in result.choices if c.arm == arm and c.point == point), None)
                cells.append("" if choice is None else f"{choice.value}{' (edge)' if choice.at_edge else ''}")
            where = f", {at(point)}" if point else ""
            lines.append("| " + " | ".join([_cell(arm + where), *cells]) + " |")
    return lines


def _spread(summary: Interval) -> str:
    half = summary.high - summary.mean
    return written(summary.mean) + (f" ± {written(half)}" if summary.n > 1 and half else "")


def how_made(result: Result) -> str:
    """How the numbers came about, in a few sentences."""
    declared, notes = result.declared, []
    recipe = declared["recipe"]
    trained = f"{_steps(result)} steps of {recipe['batch_size'] * recipe['accumulation']} sequences"
    is_trained = any(arm["is_trained"] for arm in declared["arms"])
    notes.append(
        f"{trained if is_trained else 'No model is trained'}, {len({c.seed for c in result.cells})} seeds; "
        "the mean, ± half its 95 % interval."
    )
    if best := result.best:
        tried = ", ".join(str(value) for value in declared["vary"][best.over])
        notes.append(
            f"Every arm alike is shown at its own best of {len(declared['vary'][best.over])} values of "
            f"{best.over.replace('_', ' ')} ({tried}), by its {best.by} over all seeds."
        )
        if any(choice.at_edge for choice in result.choices):
            notes.append('"Edge": the best was the first or last that was tried, so a better one may lie beyond.')
    if diverged := [cell for cell in result.cells if cell.diverged_at is not None]:
        first = diverged[0]
        where = f", {at(first.point)}" if first.point else ""
        notes.append(f"{len(diverged)} runs diverged, the first {first.arm}{where} at step {first.diverged_at}.")
    return " ".join(notes)


def _steps(result: Result) -> str:
    """Of the trained arms: one number, the two that there are, or the ends."""
    recipe = result.declared["recipe"]
    arms = [arm["recipe"] for arm in result.declared["arms"] if arm["is_trained"] and not result.is_quick]
    found = sorted({arm.get("steps", recipe["steps"]) for arm in arms} or {recipe["steps"]})
    return (" or " if len(found) < 3 else " to ").join(map(str, dict.fromkeys((found[0], found[-1]))))


def _made(result: Result) -> str:
    versions = result.versions
    return (
        f"*{result.date}, torch {versions['torch']}, Python {versions['python']}: {len(result.cells)} cells, "
        f"{result.cpu_seconds / 60:.1f} CPU minutes. Again: `morph lab run {result.name}`.*"
    )


def page(results: Sequence[Result], images: str = "lab") -> str:
    """docs/lab.md: a table of what was asked and how often which verdict fell, then an experiment after another."""
    ordered = sorted(results, key=lambda result: result.declared["number"])
    total = sum(result.cpu_seconds for result in ordered)
    lines = [
        "# The lab: each pressure, measured", "", HOW_TO_READ, "",
        f"{len(ordered)} experiments, {sum(len(r.findings) for r in ordered)} claims, {total / 60:.0f} CPU minutes in "
        f"all. `morph lab run all --record` and `morph lab report --out docs` make this page again.", "",
        "| | experiment | question | " + " | ".join(_VERDICTS) + " |", "|--:|:--|:--|" + "--:|" * len(_VERDICTS),
    ]  # fmt: skip
    for result in ordered:
        declared = result.declared
        verdicts = [finding.verdict for finding in result.findings]
        counts = [sum(verdict.startswith(word) for verdict in verdicts) for word in _VERDICTS]
        link = f"[{declared['title']}](#{_anchor(_heading(declared))})"
        cells = (str(declared["number"]), link, declared["question"], *(str(n) if n else "" for n in counts))
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join([*lines, "", *(section(r, f"{images}/{r.name}.png") for r in ordered)])


def _heading(declared: Mapping[str, Any]) -> str:
    return f"{declared['number']}. {declared['title']}"


def _anchor(heading: str) -> str:
    """Where Markdown viewers put a heading: small letters, no punctuation, dashes for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())
