"""Frames 1 and 2 of figure 4: one token's vector on the stream, and what LayerNorm and RMSNorm make of it.

Arrays: `x` (D,) as it stands on the stream, `normed` (D,) without gains and shifts. Facts: `mean`, `spread` (standard
deviation) and `rms` of x, `shown` (features drawn), `sums` (how many sums over the features the norm takes), `layer`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from morph.config import LayerNormNoBias, RMSNorm
from morph.nn.norm import build_norm
from morph.story.frame import Array, Claim, Frame
from morph.story.measured import by_seed
from morph.story.residual_kit import FEATURES, Material, near, numbers
from morph.story.written import signed

SLACK = 2e-3
"""What ε and the rounding of numbers in a file leave of an equation."""


def _vector(m: Material) -> tuple[int, Tensor, float]:
    """The last token on the stream before the middle layer, in fp64, and the ε of the model's norms."""
    config = m.it.subject.config
    layer = config.n_layers // 2
    return layer, m.it.states[2 * layer, -1].double(), config.norm.eps


def _frame(
    m: Material, layer: int, x: Tensor, normed: Tensor, *, key: str, title: str, caption: str, alt: str, claim: Claim,
    sums: int, more: dict[str, Array] | None = None,
) -> Frame:  # fmt: skip
    mean, spread, rms = float(x.mean()), float(x.std(correction=0)), float(x.square().mean().sqrt())
    source = f"state before layer {layer + 1}, last token"
    return Frame(
        key=key,
        title=title,
        caption=caption,
        alt=alt,
        claim=claim,
        arrays={
            "x": numbers(x, ("feature",), source),
            "normed": numbers(normed, ("feature",), f"the norm of that {source}"),
            **(more or {}),
        },
        facts={
            "aside": f"before layer {layer + 1} of {m.it.subject.config.n_layers}", "layer": layer, "mean": mean,
            "spread": spread, "rms": rms, "shown": min(FEATURES, len(x)), "width": len(x), "sums": sums,
        },
        source=f"{m.it.subject.name[0].upper()}{m.it.subject.name[1:]}; the last of {len(m.it.tokens)} tokens.",
    )  # fmt: skip


def layer_norm(m: Material) -> Frame:
    """Two sums over the features: their mean, then their spread about it."""
    layer, x, eps = _vector(m)
    normed = build_norm(LayerNormNoBias(eps=eps), len(x)).double()
    torch.nn.init.ones_(normed.weight)
    with torch.no_grad():
        out = normed(x)
    return _frame(
        m, layer, x, out,
        key="layer-norm",
        title="LayerNorm: two sums",
        caption=(
            f"One sum over {len(x)} features gives their mean, {signed(float(x.mean()))}; a second, of squares about "
            f"it, their spread, {x.std(correction=0):.2f}. Subtract the one, divide by the other."
        ),
        alt=(
            f"Bars of one token's features with a dashed line at their mean, {signed(float(x.mean()))}; under them the "
            "same after LayerNorm, with mean 0 and spread 1."
        ),
        claim=Claim(
            text="The result is x less its mean over its spread; its own mean is 0 and its spread 1.",
            holds=lambda f: (
                near(f.values("normed"), (f.values("x") - f.values("x").mean()) / f.values("x").std(), SLACK)
                and abs(float(f.values("normed").mean())) < SLACK
                and abs(float(f.values("normed").std()) - 1) < SLACK
            ),
        ),
        sums=2,
    )  # fmt: skip


def rms_norm(m: Material) -> Frame:
    """One sum: the mean square. How like the two results are."""
    layer, x, eps = _vector(m)
    norm = build_norm(RMSNorm(eps=eps), len(x)).double()
    torch.nn.init.ones_(norm.weight)
    with torch.no_grad():
        out = norm(x)
    centred = x - x.mean()
    cosine = float(torch.nn.functional.cosine_similarity(out, centred, dim=0))
    lab = by_seed("norm-cost", ("LayerNorm", "RMSNorm"), "bits per byte")
    means = lab.values.mean(axis=1)
    return _frame(
        m, layer, x, out,
        key="rms-norm",
        title="RMSNorm: one sum",
        caption=(
            f"It only divides by the root mean square, {x.square().mean().sqrt():.2f}: one sum. Both results point the "
            f"same way, cosine {cosine:.4f}. In the lab both train alike: {means[0]:.2f}, {means[1]:.2f} bits."
        ),
        alt=(
            f"The same bars, and under them the same after RMSNorm: divided by {x.square().mean().sqrt():.2f}, the "
            f"mean kept. The cosine of this result with LayerNorm's is {cosine:.4f}."
        ),
        claim=Claim(
            text="The result is x over its root mean square, which becomes 1; its cosine with LayerNorm's is that of x "
            "with x less its mean; in the lab the two differ by less than 0.05 bits.",
            holds=_one_sum,
        ),
        sums=1,
        more={
            "cosine": numbers(cosine, (), "cosine of the two norms' results"),
            "lab": lab,
        },
    )  # fmt: skip


def _one_sum(frame: Frame) -> bool:
    x, normed = frame.values("x"), frame.values("normed")
    centred = x - x.mean()
    cosine = normed @ centred / np.linalg.norm(normed) / np.linalg.norm(centred)
    alike = abs(float(np.diff(frame.values("lab").mean(axis=1))[0])) < 0.05
    return bool(
        near(normed, x / np.sqrt((x**2).mean()), SLACK)
        and abs(cosine - float(frame.values("cosine"))) < SLACK
        and alike
    )
