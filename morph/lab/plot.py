"""A result as a picture: what was measured on top, every seed a dot; below it each claim with the size that counts."""

from __future__ import annotations

import io
import math
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph.errors import MorphError
from morph.lab.report import at, bound, measured
from morph.lab.result import Finding, Result
from morph.lab.spec import Point
from morph.lab.verdict import NOT_SUPPORTED, SUPPORTED, Interval
from morph.train.files import replace_bytes
from morph.train.plot import ACCENT, INK, QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import SubFigure

TREND = 3  # values of an axis from which on lines are drawn instead of rows
SHADES = (ACCENT, "#2f6f8f", "#5d7a3a", "#8a5a9e", "#b08a1e", INK, QUIET, "#c06c84")
MARKS = "os^Dv<>P"


def plot(result: Result, path: Path, draw: Callable[[Result, Any], None] | None = None) -> None:
    """Draw `result` to a PNG; `draw` fills the upper part instead, given the result and a matplotlib SubFigure.

    Raises MorphError when matplotlib is absent.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MorphError(
            "matplotlib is missing: the plot needs the extra 'train' (pip install -e '.[train]')"
        ) from None
    shown = list(result.measures)[: result.declared["shown"]]
    heights = [_height(result, name) for name in shown]
    top, bottom = 0.4 + sum(heights), 0.62 * len(result.findings) + 0.2
    figure = Figure(figsize=(9, top + bottom), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(result), fontsize=11, color=INK, x=0.01, ha="left")
    upper, lower = figure.subfigures(2, 1, height_ratios=[top, bottom], squeeze=False)[:, 0]
    if draw is None or not _drawn(result, draw, upper):
        panels = upper.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for panel, name in zip(panels, shown, strict=True):
            _measure(panel, result, name)
    if result.findings:
        rows = lower.subplots(len(result.findings), 1, squeeze=False)[:, 0]
        for axes, finding in zip(rows, result.findings, strict=True):
            _claim(axes, finding)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=90)
    replace_bytes(path, png.getvalue())


def _drawn(result: Result, draw: Callable[[Result, Any], None], upper: SubFigure) -> bool:
    """Whether an experiment's own plot came about: with an arm that diverged it may lack what it is drawn of."""
    try:
        draw(result, upper)
    except (LookupError, ValueError):
        if not any(reading is None for cell in result.cells for reading in cell.readings.values()):
            raise
        upper.clear()
        return False
    return True


def _title(result: Result) -> str:
    seeds = len({cell.seed for cell in result.cells})
    quick = " (quick run: no evidence)" if result.is_quick else ""
    return f"{result.declared['title']}: {seeds} seed{'s' * (seeds != 1)}{quick}"


def _is_number(result: Result, name: str) -> bool:
    return any(isinstance(result.summary(arm, p, name), Interval) for arm in result.arms for p in result.points)


def _is_trend(result: Result) -> bool:
    return len(result.points) >= TREND and len(result.points[0]) == 1


def _rows_of(result: Result, name: str) -> list[tuple[str, list[float]]]:
    """A label and its seeds' values for each arm at each point that has some."""
    found = []
    for point in result.points:
        for arm in result.arms:
            if values := result.numbers(arm, point, name):
                found.append((arm + (f", {at(point)}" if point else ""), values))
    return found


def _height(result: Result, name: str) -> float:
    """Of a measure's panel, in inches."""
    if not _is_number(result, name) or _is_trend(result):
        return 3.0
    return 0.75 + 0.22 * len(_rows_of(result, name))


def _measure(panel: SubFigure, result: Result, name: str) -> None:
    """One measure: rows of dots, lines along the grid's only axis, or, for lists, lines along them, a panel a point."""
    from matplotlib.ticker import MaxNLocator

    measure = result.measures[name]
    unit = f", {measure['unit']}" if measure["unit"] and measure["unit"] not in name else ""
    heading = f"{name}{unit}{' (at init)' * (measure['at'] == 'init')}"
    is_list = not _is_number(result, name)
    points: list[Point] = result.points if is_list else [{}]
    for axes, point in zip(panel.subplots(1, len(points), squeeze=False, sharey=True)[0], points, strict=True):
        axes.set_title(f"{heading}{f', {at(point)}' if point else ''}", loc="left", fontsize=10, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=8)
        if is_list or _is_trend(result):
            lines = _along_list(result, name, point) if is_list else _along_axis(axes, result, name)
            if is_list:
                axes.set_xlabel(measure.get("along", ""), fontsize=9, color=INK)
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            _lines(axes, lines, is_log=measure["is_log"])
        else:
            rows(axes, _rows_of(result, name))
            if measure["is_log"]:
                _logarithmic(axes, axes.xaxis)


def _logarithmic(axes: Axes, axis: Axis) -> None:
    """A logarithmic scale with plain numbers on it, for what was drawn."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    low, high = axis.get_view_interval()
    few = high < 6 * low  # less than a decade has too few round numbers
    axis.set_major_locator(MaxNLocator(5) if few else LogLocator(subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def rows(axes: Axes, found: Sequence[tuple[str, Sequence[float]]]) -> None:
    """A line for each name, from the top: its seeds as dots, their mean as a stroke."""
    for row, (_, values) in enumerate(found):
        axes.plot(values, [row] * len(values), "o", color=QUIET, markersize=4, zorder=3)
        axes.plot([statistics.fmean(values)], [row], "|", color=ACCENT, markersize=12, markeredgewidth=2, zorder=2)
    axes.set_yticks(range(len(found)), [label for label, _ in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.grid(axis="y", color=QUIET, alpha=0.2)
    axes.spines["left"].set_visible(False)


def _along_axis(axes: Axes, result: Result, name: str) -> dict[str, list[float]]:
    """Each arm's means along the grid's axis; every seed's dot is drawn here."""
    (axis,) = result.points[0]
    lines = {}
    for i, arm in enumerate(result.arms):
        found = [result.numbers(arm, point, name) for point in result.points]
        shade, mark = SHADES[i % len(SHADES)], MARKS[i % len(MARKS)]
        for place, values in enumerate(found):
            axes.plot([place] * len(values), values, mark, color=shade, markersize=3.5, alpha=0.6)
        if any(found):
            lines[arm] = [statistics.fmean(values) if values else math.nan for values in found]
    axes.set_xticks(range(len(result.points)), [str(point[axis]) for point in result.points])
    axes.set_xlabel(axis.replace("_", " "), fontsize=9, color=INK)
    return lines


def _along_list(result: Result, name: str, point: Point) -> dict[str, list[float]]:
    """Each arm's means along the list."""
    found = {arm: result.summary(arm, point, name) for arm in result.arms}
    return {arm: means for arm, means in found.items() if isinstance(means, list)}


def _lines(axes: Axes, lines: dict[str, list[float]], is_log: bool) -> None:
    """Lines, equal ones once, each with its name at its right end, moved apart where names would overlap.

    Where there are more lines than shades, the shades come again with dashes.
    """
    same: dict[tuple[float, ...], list[int]] = {}
    for i, values in enumerate(lines.values()):
        same.setdefault(tuple(values), []).append(i)
    names, ends = list(lines), []
    for points, members in same.items():
        shade, mark = SHADES[members[0] % len(SHADES)], MARKS[members[0] % len(MARKS)]
        again = members[0] >= len(SHADES)
        style = "--" if again else "-"
        axes.plot(range(len(points)), points, style, color=shade, linewidth=1.5, marker=mark, markersize=2.5)
        ends.append((points[-1], "- - " * again + " = ".join(names[i] for i in members), shade))
    if is_log:
        _logarithmic(axes, axes.yaxis)
    scale = math.log if is_log else float
    low, high = map(scale, axes.get_ylim())
    last = -math.inf
    for value, text, shade in sorted(ends):
        last = max((scale(value) - low) / (high - low), last + 0.07)
        axes.annotate(
            text, (1, last), xycoords="axes fraction", xytext=(4, 0), textcoords="offset points", fontsize=8,
            color=shade, va="center", annotation_clip=False,
        )  # fmt: skip


def curves(
    axes: Axes, over: Mapping[str, tuple[Sequence[float], Sequence[Sequence[float]]]], *, x: str, y: str,
    is_log_y: bool = False,
) -> None:  # fmt: skip
    """Curves over a quantity that is spread logarithmically, for `draw` of an experiment: seeds are dots, means a line.

    `over` gives each arm's places on the x-axis, and at each place the seeds' values.
    """
    for i, (name, (places, found)) in enumerate(over.items()):
        shade, mark = SHADES[i % len(SHADES)], MARKS[i % len(MARKS)]
        for place, values in zip(places, found, strict=True):
            axes.plot([place] * len(values), values, mark, color=shade, markersize=3.5, alpha=0.6)
        means = [statistics.fmean(values) for values in found]
        axes.plot(places, means, color=shade, linewidth=1.5, marker=mark, markersize=2.5, label=name)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    _logarithmic(axes, axes.xaxis)
    if is_log_y:
        _logarithmic(axes, axes.yaxis)


def _claim(axes: Axes, finding: Finding) -> None:
    """A claim: shaded where it would hold, the interval as a bar, zero (of a ratio: one) as a thin line."""
    claim, found = finding.claim, finding.found
    where = f" ({at(finding.point)})" if finding.point else ""
    shade = {SUPPORTED: ACCENT, NOT_SUPPORTED: INK}.get(finding.verdict, QUIET)
    title = f"{claim.text}{where}: {measured(found)}, {bound(claim)} would count: {finding.verdict}"
    axes.set_title("\n".join(textwrap.wrap(title, 155)), loc="left", fontsize=8, color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_yticks([])
    axes.tick_params(colors=INK, labelsize=7)
    neutral = 1.0 if claim.ratio else 0.0
    if claim.within is not None:
        bounds = [1 / claim.within if claim.ratio else -claim.within, claim.within]
    else:
        bounds = [b for b in (claim.more_than, claim.less_than) if b is not None]
    seen = [neutral, *bounds]
    if found is not None:
        seen += [found.mean, *([found.low, found.high] if found.n > 1 else [])]
    if claim.ratio:
        axes.set_xlim(min(seen) / 1.3, max(seen) * 1.3)
        _logarithmic(axes, axes.xaxis)
    else:
        room = (max(seen) - min(seen)) * 0.08 or 1.0
        axes.set_xlim(min(seen) - room, max(seen) + room)
    left, right = axes.get_xlim()
    low = bounds[0] if claim.less_than is None else left
    high = bounds[-1] if claim.more_than is None else right
    axes.axvspan(low, high, color=ACCENT, alpha=0.12, linewidth=0)
    axes.axvline(neutral, color=QUIET, linewidth=0.8)
    if found is not None:
        if found.n > 1:
            axes.plot([found.low, found.high], [0, 0], color=shade, linewidth=2.5, solid_capstyle="butt")
        axes.plot([found.mean], [0], "o", color=shade, markersize=6)
    axes.set_ylim(-1, 1)
