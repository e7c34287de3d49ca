"""Frames 1, 4, 7 and 8 of figure 5: matrices and their sizes, counted on networks that were built.

Frames 1 and 4 follow one token through two matrices and through three: arrays `x` (D,), `hidden` (F,), `out` (D,);
frame 4 has `gate` and `value` (F,) too. Facts: `width`, `hidden`, `matrices` (name -> shape), `parameters`, `equal`
(8d², what both should weigh), and `share`, their part of all matrices of the block.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from morph.config import MLP as MLPSpec
from morph.config import AllGlobal, as_kind
from morph.config import GatedMLP as GatedSpec
from morph.nn.feedforward import MLP, GatedMLP
from morph.story.ffn_kit import Look
from morph.story.frame import Array, Claim, Frame
from morph.story.moe_layer import feed_forward
from morph.story.released import RELEASED
from morph.story.residual_kit import near, numbers
from morph.story.subject import siblings
from morph.story.written import percent

ROUNDED = "Llama 2 7B"
MULTIPLE = 256
"""Llama rounds hidden widths up to a multiple of this."""


@dataclass(frozen=True)
class Shown:
    """A network in fp64, what it reads, the block that it is part of, and whose it is."""

    network: MLP | GatedMLP
    x: Tensor
    block: nn.Module
    is_trained: bool
    source: str


def _own(look: Look) -> Shown:
    """The network that is looked at."""
    assert look.network is not None and look.layer is not None
    network = copy.deepcopy(look.network).double()
    return Shown(network, look.last, look.subject.model.blocks[look.layer], look.subject.is_trained, look.source)


def _fresh(look: Look, spec: MLPSpec | GatedSpec) -> Shown:
    """A new network of the model's width from its seed; it reads what the model's did, or a drawn vector of RMS 1."""
    config = replace(look.subject.config, feed_forward=spec, n_layers=1, mtp=None, layout=AllGlobal())
    (sibling,) = siblings(look.subject, [config])
    block = sibling.model.blocks[0]
    network = feed_forward(block)
    assert isinstance(network, MLP | GatedMLP)
    width = look.subject.config.d_model
    drawn = torch.randn(width, generator=torch.Generator().manual_seed(look.subject.seed), dtype=torch.float64)
    who = "two matrices" if isinstance(spec, MLPSpec) else "a gate"
    what = "what a layer of the model read" if len(look.x) else "numbers drawn for it"
    source = f"A network with {who} at this model’s width, untrained; it reads {what}."
    return Shown(network.double(), look.last if len(look.x) else drawn, block, False, source)


def _facts(shown: Shown, hidden: int) -> dict[str, Any]:
    network, width = shown.network, len(shown.x)
    parameters = sum(p.numel() for p in network.parameters() if p.ndim == 2)
    return {
        "aside": f"{'trained' if shown.is_trained else 'untrained'}, one token", "width": width, "hidden": hidden,
        "matrices": {n.removesuffix(".weight"): list(p.shape) for n, p in network.named_parameters() if p.ndim == 2},
        "parameters": parameters, "equal": 8 * width**2,
        "share": round(parameters / sum(p.numel() for p in shown.block.parameters() if p.ndim > 1), 4),
    }  # fmt: skip


def _weighs(facts: dict[str, Any], words: str) -> str:
    """How many parameters that is, as a multiple of d² where it is 8."""
    is_equal = abs(facts["parameters"] / facts["equal"] - 1) < 0.01
    return f"{words}{'8d² = ' if is_equal else ''}{facts['parameters']:,} parameters"


def two_matrices(look: Look) -> Frame:
    """The network of 2017."""
    d = look.subject.config.d_model
    shown = _own(look.plain) if look.plain else _fresh(look, MLPSpec(width=4 * d, activation="relu"))
    network, x = shown.network, shown.x
    assert isinstance(network, MLP)
    with torch.no_grad():
        hidden = network.activation(network.up(x))
        out = network.down(hidden)
    facts = _facts(shown, len(hidden))
    zero = float((hidden == 0).double().mean())
    spec = (look.plain or look).subject.config.feed_forward
    name = "the bend" if look.plain and isinstance(spec, MLPSpec) and spec.activation != "relu" else "ReLU"
    bent = f"{name} sets {percent(zero)} of them to 0" if zero > 0 else "each is bent"
    return Frame(
        key="two-matrices",
        title="2017: two matrices",
        caption=(
            f"One matrix takes {len(x)} features to {len(hidden):,}, {bent}, a second takes them back: "
            f"{_weighs(facts, '')}, {percent(facts['share'])} of the block’s."
        ),
        alt=f"A column of {len(x)} cells, a wide matrix, a column of {len(hidden):,} cells, many of them empty, a "
        f"second matrix, and a column of {len(x)} cells.",
        claim=Claim(
            text="The two matrices hold 2 d times the hidden width; as many hidden features are 0 as the caption says.",
            holds=lambda f: bool(
                f.facts["parameters"] == 2 * len(f.values("x")) * len(f.values("hidden"))
                and abs((f.values("hidden") == 0).mean() - f.facts["zero"]) < 1e-3
                and 0 < f.facts["share"] < 1
            ),
        ),
        arrays={
            "x": numbers(x, ("feature",), "what the network reads, the last token"),
            "hidden": numbers(hidden, ("hidden feature",), "bend(W_up x)"),
            "out": numbers(out, ("feature",), "W_down bend(W_up x)"),
        },
        facts={**facts, "zero": round(zero, 4)},
        source=shown.source,
    )


def three_matrices(look: Look) -> Frame:
    """The gated network, of as many parameters where its width is 8d/3."""
    d = look.subject.config.d_model
    shown = _fresh(look, GatedSpec(width=round(8 * d / 3), activation="silu")) if look.lacks else _own(look)
    network, x = shown.network, shown.x
    assert isinstance(network, GatedMLP)
    with torch.no_grad():
        gate, value = network.gate(x), network.up(x)
        hidden = network.meet(gate, value)
        out = network.down(hidden)
        opened, passed = (F.silu(gate), value) if look.lacks else look.factors(gate, value)
    facts = _facts(shown, len(hidden))
    is_equal = abs(facts["parameters"] / facts["equal"] - 1) < 0.01
    width = (
        f"To keep 8d² parameters the hidden width shrinks from 4d to 8d/3: {len(hidden):,} of {4 * len(x):,}."
        if is_equal
        else f"With {len(hidden):,} hidden features that is {facts['parameters']:,} parameters; two of 4d have "
        f"{facts['equal']:,}."
    )
    return Frame(
        key="three-matrices",
        title="2020: a third matrix",
        caption=f"Two matrices now read x: one makes values, one gates that scale them. {width}",
        alt=f"The same column of {len(x)} cells goes into two matrices; their outputs, {len(hidden):,} cells each, are "
        "multiplied, and a third matrix takes the product back.",
        claim=Claim(
            text="Three matrices hold 3 d times the hidden width; the hidden features are the bent gate times the "
            "value.",
            holds=lambda f: bool(
                f.facts["parameters"] == 3 * len(f.values("x")) * len(f.values("hidden"))
                and near(f.values("hidden"), f.values("gate") * f.values("value"), 2e-3)
            ),
        ),
        arrays={
            "x": numbers(x, ("feature",), "what the network reads, the last token"),
            "gate": numbers(opened, ("hidden feature",), "bend(W_gate x)"),
            "value": numbers(passed, ("hidden feature",), "W_up x, as it is multiplied"),
            "hidden": numbers(hidden, ("hidden feature",), "bend(W_gate x) ⊙ W_up x"),
            "out": numbers(out, ("feature",), "W_down of that"),
        },
        facts=facts,
        source=shown.source,
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
