"""The sweep as a picture: quality on top, and below it what each stage costs."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from morph.errors import MorphError
from morph.train.files import replace_bytes
from morph.train.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET, ACCENT = "#1f2430", "#8a93a5", "#b5482a"


def plot(sweep: Sweep, path: Path) -> None:
    """Draw `sweep` to a PNG. Raises MorphError when matplotlib is absent."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MorphError(
            "matplotlib is missing: the plot needs the extra 'train' (pip install -e '.[train]')"
        ) from None
    places = range(len(sweep.stages))
    figure = Figure(figsize=(10, 10.5), layout="constrained")
    FigureCanvasAgg(figure)
    loss, *costs = figure.subplots(6, 1, sharex=True, height_ratios=[3, 1, 1, 1, 1, 1])
    parameters, written, cache, flops, seconds = costs
    for place, result in zip(places, sweep.stages, strict=True):
        values = [run.bits_per_byte for run in result.runs]
        loss.plot([place] * len(values), values, "o", color=QUIET, markersize=4, zorder=2)
    loss.plot(places, [result.mean for result in sweep.stages], color=ACCENT, marker="_", markersize=14, zorder=3)
    many = len(sweep.seeds) > 1
    loss.set_title(
        f"Held-out bits per byte, lower is better ({'dots: seeds, line: mean' if many else 'one seed'})",
        loc="left", fontsize=10, color=INK,
    )  # fmt: skip
    context = f"{sweep.stages[0].cache_context:,} tokens"
    _bars(
        parameters,
        [r.parameters_active / 1e6 for r in sweep.stages],
        "Active parameters, millions (outline: total)",
    )
    parameters.bar(places, [r.parameters_total / 1e6 for r in sweep.stages], fill=False, edgecolor=QUIET, width=0.6)
    _bars(written, [r.kv_bytes_per_token for r in sweep.stages], "Keys and values written per token, bytes")
    _bars(cache, [r.cache_bytes / 1024 for r in sweep.stages], f"Cache at {context}, KiB")
    _bars(flops, [r.flops_per_token / 1e6 for r in sweep.stages], f"Forward MFLOPs per token at {context}")
    _bars(seconds, [r.cpu_seconds for r in sweep.stages], "CPU seconds of a training run")
    seconds.set_xticks(list(places), [f"{r.stage} {r.slug}" for r in sweep.stages], rotation=40, ha="right")
    for axes in (loss, *costs):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=9)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=130)
    replace_bytes(path, png.getvalue())


def _bars(axes: "Axes", values: list[float], title: str) -> None:
    axes.bar(range(len(values)), values, color=QUIET, width=0.6)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
