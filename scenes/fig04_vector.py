"""Figure 4, frames 1 and 2: a token's features, and under them the same behind a norm."""

from __future__ import annotations

from scenes.charts import Axes, axes, bars, line, number
from scenes.fig02_parts import greatest
from scenes.pen import Pen
from scenes.shape import Box

ABOVE: Box = (-5.9, 0.75, 2.5, 2.6)
BELOW: Box = (-5.9, -2.25, 2.5, -0.4)
COLUMN = 3.4
"""Where the words at the right begin."""
CUT = 2.9


def normed(pen: Pen) -> None:
    """Bars of x above, of the normed x below, each in its own scale; at the right what was summed."""
    shown, facts = pen.facts["shown"], pen.facts
    two = facts["sums"] == 2
    pen.board.cut = CUT
    some = "" if shown == facts["width"] else f", {shown} of {facts['width']} drawn"
    for key, name, title, at in (
        ("x", "x", f"x, one token on the stream, feature by feature{some}", ABOVE),
        ("out", "normed", f"x behind {'LayerNorm' if two else 'RMSNorm'}", BELOW),
    ):
        values = pen.at(name)[:shown]
        top = greatest(values)
        area = Axes(at, (-0.5, shown - 0.5), (-top, top))
        axes(pen.board, key, pen.theme, area, y_label=title, y_ticks=[(-top, number(-top)), 0.0, top])
        bars(pen.board, key, pen.theme, area, values, "ink" if name == "x" else "norm")
        mean = facts["mean"] if name == "x" else float(pen.at(name).mean())
        if two:
            line(pen.board, f"{key}.mean", pen.theme, area, [-0.5, shown - 0.5], [mean, mean], "ink", dash=True)
    rows = [("sum 1", "of x", "mean", facts["mean"]), ("sum 2", "of (x − mean)²", "spread", facts["spread"])]
    if not two:
        rows = [("sum 1", "of x²", "root mean square", facts["rms"])]
    for i, (name, what, word, value) in enumerate(rows):
        y = 2.35 - 1.35 * i
        pen.text(f"sum{i}:name", name, (COLUMN, y), weight="medium", size="label")
        pen.text(f"sum{i}:of", what, (COLUMN + 0.95, y), colour="muted", size="label")
        pen.text(f"sum{i}:value", f"{word} {value:.2f}".replace("-", "−"), (COLUMN, y - 0.45), size="body")
    words = ["subtract the mean,", "divide by the spread"] if two else ["divide by it; the mean stays"]
    for i, told in enumerate(words):
        pen.text(f"do:{i}", told, (COLUMN, -0.6 - 0.38 * i), size="label")
    if not two:
        told = f"cosine with LayerNorm’s {float(pen.at('cosine')):.4f}"
        pen.text("cosine", told, (COLUMN, -1.1), size="label", weight="medium")
