"""Frames 1, 4, 7 and 8 of figure 5: matrices and their sizes, counted on networks that were built.

Frames 1 and 4 give two networks of as many parameters the same reading: arrays `x` (D,), `hidden` (F,), `out` (D,);
frame 4 has `gate` and `value` (F,) too. Facts: `width`, `hidden`, `matrices` (name -> shape), `parameters`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from morph.config import MLP as MLPSpec
from morph.config import AllGlobal, as_kind
from morph.config import GatedMLP as GatedSpec
from morph.nn.feedforward import MLP, GatedMLP
from morph.story.ffn_kit import Look
from morph.story.frame import Array, Claim, Frame
from morph.story.moe_layer import feed_forward
from morph.story.released import RELEASED
from morph.story.residual_kit import numbers
from morph.story.subject import siblings
from morph.story.written import percent

ROUNDED = "Llama 2 7B"
MULTIPLE = 256
"""Llama rounds hidden widths up to a multiple of this."""


def _network(look: Look, spec: MLPSpec | GatedSpec) -> tuple[MLP | GatedMLP, torch.Tensor]:
    """A fresh network of the model's width from its seed, and a reading: the model's own, or a drawn one of RMS 1."""
    config = replace(look.subject.config, feed_forward=spec, n_layers=1, mtp=None, layout=AllGlobal())
    (sibling,) = siblings(look.subject, [config])
    network = feed_forward(sibling.model.blocks[0])
    assert isinstance(network, MLP | GatedMLP)
    width = look.subject.config.d_model
    drawn = torch.randn(width, generator=torch.Generator().manual_seed(look.subject.seed), dtype=torch.float64)
    return network.double(), look.last if len(look.x) else drawn


def _facts(network: MLP | GatedMLP, width: int, hidden: int) -> dict[str, Any]:
    return {
        "aside": "untrained, one token", "width": width, "hidden": hidden,
        "matrices": {n.removesuffix(".weight"): list(p.shape) for n, p in network.named_parameters() if p.ndim == 2},
        "parameters": sum(p.numel() for p in network.parameters() if p.ndim == 2),
    }  # fmt: skip


def two_matrices(look: Look) -> Frame:
    """The network of 2017."""
    d = look.subject.config.d_model
    network, x = _network(look, MLPSpec(width=4 * d, activation="relu"))
    with torch.no_grad():
        hidden = network.activation(network.up(x))  # type: ignore[operator]
        out = network.down(hidden)
    facts = _facts(network, d, 4 * d)
    zero = float((hidden == 0).double().mean())
    return Frame(
        key="two-matrices",
        title="2017: two matrices",
        caption=(
            f"One matrix takes {d} features to {4 * d:,}, ReLU sets {percent(zero)} of them to 0, a second takes them "
            f"back: 8d² = {facts['parameters']:,} parameters, two thirds of a block’s."
        ),
        alt=f"A column of {d} cells, a wide matrix, a column of {4 * d:,} cells, many of them empty, a second matrix, "
        f"and a column of {d} cells.",
        claim=Claim(
            text="The matrices hold 8d² parameters, and the hidden features are the first matrix's output without what "
            "is below 0.",
            holds=lambda f: bool(
                f.facts["parameters"] == 8 * f.facts["width"] ** 2
                and f.values("hidden").min() == 0
                and len(f.values("hidden")) == 4 * len(f.values("x"))
            ),
        ),
        arrays={
            "x": numbers(x, ("feature",), "what the network reads, the last token"),
            "hidden": numbers(hidden, ("hidden feature",), "ReLU(W_up x)"),
            "out": numbers(out, ("feature",), "W_down ReLU(W_up x)"),
        },
        facts=facts,
        source="The network of 2017 at this model’s width, untrained; it reads what a layer of the model read.",
    )


def three_matrices(look: Look) -> Frame:
    """The gated network of as many parameters."""
    d = look.subject.config.d_model
    width = round(8 * d / 3)
    network, x = _network(look, GatedSpec(width=width, activation="silu"))
    assert isinstance(network, GatedMLP)
    with torch.no_grad():
        gate, value = network.gate(x), network.up(x)
        hidden = network.meet(gate, value)
        out = network.down(hidden)
    facts = _facts(network, d, width)
    return Frame(
        key="three-matrices",
        title="2020: a third matrix",
        caption=(
            f"Two matrices now read x: one makes values, one gates that scale them. To keep 8d² parameters the hidden "
            f"width shrinks from 4d to 8d/3: {width:,} of {4 * d:,}."
        ),
        alt=f"The same column of {d} cells goes into two matrices; their outputs, {width:,} cells each, are "
        "multiplied, and a third matrix takes the product back.",
        claim=Claim(
            text="Three matrices hold as many parameters as the two of frame 1, to 1 %; hidden is the product.",
            holds=lambda f: bool(
                abs(f.facts["parameters"] / (8 * f.facts["width"] ** 2) - 1) < 0.01
                and np.allclose(f.values("hidden"), f.values("gate") * f.values("value"), atol=2e-4)
            ),
        ),
        arrays={
            "x": numbers(x, ("feature",), "what the network reads, the last token"),
            "gate": numbers(torch.nn.functional.silu(gate), ("hidden feature",), "SiLU(W_gate x)"),
            "value": numbers(value, ("hidden feature",), "W_up x"),
            "hidden": numbers(hidden, ("hidden feature",), "SiLU(W_gate x) ⊙ W_up x"),
            "out": numbers(out, ("feature",), "W_down of that"),
        },
        facts=facts,
        source="A gated network at this model’s width, untrained, with the same reading (Shazeer, 2020).",
    )


def equal(look: Look) -> Frame:
    """8d² in two ways, and what rounding adds in a released model."""
    llama = RELEASED[ROUNDED].config
    d, rounded = llama.d_model, as_kind(llama.feed_forward, GatedSpec, "feed_forward").width
    exact = 8 * d / 3
    up = int(-(-exact // MULTIPLE) * MULTIPLE)
    parameters = np.array([2 * 4 * d * d, 3 * exact * d, 3 * rounded * d])
    more = parameters[2] / parameters[0] - 1
    return Frame(
        key="equal",
        title="8d² either way",
        caption=(
            f"Two matrices of 4d or three of 8d/3: as many parameters. For d of {d:,} that is {exact:,.2f} "
            f"features; Llama 2 rounds to {rounded:,}, a multiple of {MULTIPLE}: {more:.1%} more."
        ),
        alt=f"Three bars of {parameters[0] / 1e6:.1f}, {parameters[1] / 1e6:.1f} and {parameters[2] / 1e6:.1f} million "
        "parameters: two matrices, three matrices, three rounded up.",
        claim=Claim(
            text="Two and three matrices hold the same; the released width is the next multiple of 256, under 1 % "
            "more.",
            holds=lambda f: bool(
                abs(f.values("parameters")[1] / f.values("parameters")[0] - 1) < 1e-9
                and f.facts["rounded"] == f.facts["up"]
                and 1 < f.values("parameters")[2] / f.values("parameters")[0] < 1.01
            ),
        ),
        arrays={"parameters": Array(values=parameters, axes=("network",), source="of one layer: matrices × d × width")},
        facts={
            "aside": f"{ROUNDED}, one layer", "width": d, "exact": exact, "rounded": rounded, "up": up,
            "multiple": MULTIPLE, "more": round(float(more), 6),
        },
        source=f"Counted; {ROUNDED}’s published config. Wider networks are a choice of their own: frame 8.",
    )  # fmt: skip


def ratios(look: Look) -> Frame:
    """Hidden width over d in released models."""
    found = {name: (model, model.config.feed_forward) for name, model in RELEASED.items()}
    dense = [(name, m, network) for name, (m, network) in found.items() if isinstance(network, MLPSpec | GatedSpec)]
    names = [name for name, _, _ in dense]
    ratio = np.array([network.width / model.config.d_model for _, model, network in dense])
    gated = [isinstance(network, GatedSpec) for _, _, network in dense]
    low, high = ratio[gated].min(), ratio[gated].max()
    return Frame(
        key="ratios",
        title="How wide in released models",
        caption=(
            f"Gated networks of released models are {low:.2f} to {high:.2f} times as wide as the stream; 8/3 is what "
            "matches 4d without a gate. Most are wider: no rule has held."
        ),
        alt="A dot for each model at its hidden width over d: "
        + ", ".join(f"{name} {value:.2f}" for name, value in zip(names, ratio))
        + ". Lines mark 8/3 and 4.",
        claim=Claim(
            text="Without a gate all are 4 times as wide; with one, none is narrower than 8/3, and most are wider.",
            holds=lambda f: _ratios_hold(f),
        ),
        arrays={"ratio": Array(values=ratio.round(4), axes=("model",), source="published configs: hidden width / d")},
        facts={
            "aside": "published configs", "names": names, "gated": gated,
            "years": [model.year for _, model, _ in dense],
        },
        source="Dense models only; an expert’s width says little about what a token uses (figure 8).",
    )  # fmt: skip


def _ratios_hold(frame: Frame) -> bool:
    ratio, gated = frame.values("ratio"), np.array(frame.facts["gated"])
    return bool((ratio[~gated] == 4).all() and ratio[gated].min() > 8 / 3 - 0.01 and (ratio[gated] > 3).mean() > 0.5)
