"""Frames 2, 3, 5, 6 and 9 of figure 5: what bends, and what a gate does, in one network of a model.

Arrays: `z` and a curve for each activation (frame 2); `edges` and `share` of a histogram (3); `gate`, `value`,
`product` of the strongest channels (5); the same of every token in one channel (6); `silu`, `gelu` (9), what the
network writes with either.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from morph.nn.feedforward import ACTIVATIONS, MLP
from morph.story.ffn_kit import NO_DENSE, Look
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.measured import by_seed
from morph.story.residual_kit import near, numbers
from morph.story.written import percent, signed

SHOWN = ("relu", "gelu", "silu")
NAMES = {"relu": "ReLU", "gelu": "GELU", "silu": "SiLU"}
CHANNELS, BARS, RANGE = 16, 24, 4.0
TENTH = 0.1
TITLES = {
    "curves": "Three ways to bend",
    "below-zero": "What each one cuts",
    "channels": "Gate times value",
    "together": "Only where both are large",
    "swapped": "SwiGLU or GEGLU?",
}


def curves(look: Look) -> Frame:
    """ReLU, GELU and SiLU."""
    z = torch.linspace(-RANGE, RANGE, 161, dtype=torch.float64)
    lines = {name: ACTIVATIONS[name](z) for name in SHOWN}
    low = {name: (float(z[int(y.argmin())]), float(y.min())) for name, y in lines.items()}
    return Frame(
        key="curves",
        title=TITLES["curves"],
        caption=(
            f"ReLU is 0 below 0. GELU and SiLU dip under it, to {signed(low['gelu'][1])} and {signed(low['silu'][1])}, "
            "and have no corner: below 0 a little still comes through, with a gradient."
        ),
        alt="Three curves over inputs from −4 to 4. All end near the diagonal at the right and near zero at the left; "
        f"GELU is lowest at {signed(low['gelu'][0])}, SiLU at {signed(low['silu'][0])}.",
        claim=Claim(
            text="ReLU is never negative; GELU and SiLU are, by less than 0.2 and 0.3; at 4 all are within 0.1 of 4.",
            holds=lambda f: bool(
                f.values("relu").min() == 0
                and -0.2 < f.values("gelu").min() < 0
                and -0.3 < f.values("silu").min() < 0
                and all(abs(f.values(name)[-1] - RANGE) < 0.1 for name in SHOWN)
            ),
        ),
        arrays={
            "z": numbers(z, ("point",), "inputs"),
            **{
                name: numbers(y, ("point",), f"morph.nn.feedforward.ACTIVATIONS[{name!r}]") for name, y in lines.items()
            },
        },
        facts={"names": NAMES, "aside": "the functions themselves"},
        source="ReLU: the Transformer of 2017. GELU: GPT-2. SiLU: in the gates of most models since Llama.",
    )


def below_zero(look: Look) -> Frame:
    """A live histogram of what goes into the bend, and what each function makes of it."""
    if look.network is None:
        return absent("below-zero", TITLES["below-zero"], NO_DENSE)
    if isinstance(look.network, MLP):
        with torch.no_grad():
            bias = look.network.up.bias
            z = look.x @ look.network.up.weight.double().T + (0 if bias is None else bias.double())
    else:
        z = look.halves(look.x)[0]
    z = z.flatten()
    edges = np.linspace(-RANGE, RANGE, 2 * BARS + 1)
    inside = np.clip(z.numpy(), -RANGE + 1e-9, RANGE - 1e-9)
    share = np.histogram(inside, edges)[0] / len(z)
    cut = {name: float((ACTIVATIONS[name](z).abs() < TENTH * z.abs()).double().mean()) for name in SHOWN}
    lab = by_seed("gates", ("ReLU",), "preactivations below zero")
    own = "gate’s" if not look.lacks else "network’s"
    return Frame(
        key="below-zero",
        title=TITLES["below-zero"],
        caption=(
            f"Of the {own} inputs {percent(cut['relu'])} are below 0, where ReLU passes nothing. To under a tenth GELU "
            f"would cut {percent(cut['gelu'])}, SiLU {percent(cut['silu'])}. Trained with ReLU (lab): "
            f"{percent(lab.values.mean())} below 0."
        ),
        alt=f"A histogram of {len(z):,} inputs to the bend, from −4 to 4. Marks: below 0 lie {percent(cut['relu'])}; "
        f"below the marks of GELU and SiLU, {percent(cut['gelu'])} and {percent(cut['silu'])}.",
        claim=Claim(
            text="Fewer inputs are cut to a tenth by SiLU than by GELU, and fewer by GELU than are below 0; the lab's "
            "ReLU networks have more than half below 0.",
            holds=lambda f: bool(
                f.values("cut")[2] < f.values("cut")[1] < f.values("cut")[0]
                and abs(f.values("share")[:BARS].sum() - f.values("cut")[0]) < 2e-3
                and (f.values("lab") > 0.5).all()
            ),
        ),
        arrays={
            "edges": numbers(edges, ("edge",), "of the histogram; what lies beyond is in the last bars"),
            "share": numbers(share, ("bar",), f"blocks.{look.layer}.feed_forward.preactivation, {len(z):,} numbers"),
            "cut": numbers(np.array([cut[name] for name in SHOWN]), ("function",), "share of |f(z)| < |z| / 10"),
            "marks": numbers(np.array([0.0, _mark("gelu"), _mark("silu")]), ("function",), "z where |f(z)| = |z| / 10"),
            "lab": lab,
        },
        facts={"names": NAMES, "aside": look.where},
        source=look.source,
    )


def _mark(name: str) -> float:
    """The z below which a function passes less than a tenth of it."""
    z = torch.linspace(-RANGE, -1e-3, 40_000, dtype=torch.float64)
    return float(z[ACTIVATIONS[name](z).abs() < TENTH * z.abs()].max())


def channels(look: Look) -> Frame:
    """The strongest channels of the last token: gate, value and product."""
    if look.lacks:
        return absent("channels", TITLES["channels"], look.lacks)
    gate, value = look.halves(look.last)
    hidden = look.gated.meet(gate, value)
    chosen = hidden.abs().topk(min(CHANNELS, len(hidden))).indices.sort().values
    opened = look.gated.meet(gate, torch.ones_like(value))
    loud = value.abs() > value.abs().median()
    shut = loud & (opened.abs() < TENTH * opened.abs().max())
    share = float(shut.sum() / loud.sum())
    return Frame(
        key="channels",
        title=TITLES["channels"],
        caption=(
            f"A hidden feature is a gate times a value: the strongest {len(chosen)} of {len(hidden)}. "
            f"Of the louder half of all values {percent(share)} meet an all but shut gate."
        ),
        alt=f"Three rows of bars for {len(chosen)} hidden features: the bent gate, the value, and their product.",
        claim=Claim(
            text="The product is the bent gate times the value, and these are the largest of all.",
            holds=lambda f: bool(
                near(f.values("product"), f.values("gate") * f.values("value"), 2e-3)
                and np.abs(f.values("product")).min() >= f.facts["next"] - 1e-6
            )
            or f.facts["clamped"],
        ),
        arrays={
            "channel": Array(values=chosen.numpy(), axes=("channel",), source="numbers of the hidden features"),
            "gate": numbers(opened[chosen], ("channel",), f"blocks.{look.layer}.feed_forward: bent gate, last token"),
            "value": numbers(value[chosen], ("channel",), f"blocks.{look.layer}.feed_forward.value, last token"),
            "product": numbers(hidden[chosen], ("channel",), "what goes into the last matrix"),
        },
        facts={
            "aside": f"{look.where}, one token", "next": _next(hidden, len(chosen)), "shut": round(share, 4),
            "clamped": not torch.allclose(opened * value, hidden),
        },
        source=look.source,
    )  # fmt: skip


def _next(hidden: Tensor, count: int) -> float:
    """The largest magnitude that is not among the first `count`."""
    ordered = hidden.abs().sort(descending=True).values
    return float(ordered[count]) if len(ordered) > count else 0.0


def together(look: Look) -> Frame:
    """One feature over all tokens: it comes through only where its gate is open and its value is there."""
    if look.lacks:
        return absent("together", TITLES["together"], look.lacks)
    gate, value = look.halves(look.x)
    opened, hidden = look.gated.meet(gate, torch.ones_like(value)), look.gated.meet(gate, value)
    channel = _pair(opened, value)
    g, v, p = (t[:, channel] for t in (opened, value, hidden))
    is_open, is_there = g.abs() > g.abs().max() / 4, v.abs() > v.abs().max() / 4
    through = p.abs() > p.abs().max() / 4
    counts = {
        "open": int((is_open & ~is_there).sum()), "there": int((is_there & ~is_open).sum()),
        "both": int((is_open & is_there).sum()), "through": int(through.sum()),
        "alone": int((through & ~(is_open & is_there)).sum()),
    }  # fmt: skip
    return Frame(
        key="together",
        title=TITLES["together"],
        caption=(
            f"Feature {channel}, {len(p)} tokens: {counts['open']} have the gate alone, {counts['there']} the value "
            f"alone, {counts['both']} both. It comes through in {counts['through']}, {counts['alone']} of them with "
            "one alone."
        ),
        alt=f"A dot a token: its bent gate to the right, its value upwards, filled where the product is more than a "
        f"quarter of its largest. The filled ones, {counts['through']}, lie away from both axes.",
        claim=Claim(
            text="Nine in ten of the tokens where the feature comes through have an open gate and a value.",
            holds=lambda f: _needs_both(f),
        ),
        arrays={
            "gate": numbers(g, ("token",), f"blocks.{look.layer}.feed_forward: bent gate of feature {channel}"),
            "value": numbers(v, ("token",), f"blocks.{look.layer}.feed_forward.value of feature {channel}"),
            "product": numbers(p, ("token",), "their product, which goes into the last matrix"),
        },
        facts={
            "aside": f"{look.where}, feature {channel}", "channel": channel, "counts": counts,
            "criterion": "the feature with the most tokens that have one of both alone, of those with both in some",
        },
        source=look.source,
    )  # fmt: skip


def _pair(opened: Tensor, value: Tensor) -> int:
    """The feature with the most tokens where gate or value is there alone, of those where both meet in a twentieth."""
    is_open, is_there = (t.abs() > t.abs().amax(0) / 4 for t in (opened, value))
    both, alone = (is_open & is_there).sum(0), (is_open ^ is_there).sum(0)
    least = both >= max(1, len(value) // 20)
    return int(torch.where(least, alone, -1).argmax() if least.any() else both.argmax())


def _needs_both(frame: Frame) -> bool:
    gate, value, product = (np.abs(frame.values(name)) for name in ("gate", "value", "product"))
    through = product > product.max() / 4
    both = (gate > gate.max() / 4) & (value > value.max() / 4)
    return bool((through & both).sum() >= 0.9 * through.sum())


def swapped(look: Look) -> Frame:
    """The same weights with SiLU and with GELU in the gate."""
    if look.lacks:
        return absent("swapped", TITLES["swapped"], look.lacks)
    gate, value = look.halves(look.x)
    with torch.no_grad():
        down = look.gated.down.weight.double()
        out = {name: (ACTIVATIONS[name](gate) * value) @ down.T for name in ("silu", "gelu")}
    cosine = float(F.cosine_similarity(out["silu"], out["gelu"], dim=-1).mean())
    ratio = float(out["gelu"].norm() / out["silu"].norm())
    lab = by_seed("gates", ("SwiGLU", "GEGLU"), "bits per byte")
    means = lab.values.mean(axis=1)
    here = {name: values[look.tokens - 1] for name, values in out.items()}
    return Frame(
        key="swapped",
        title=TITLES["swapped"],
        caption=(
            f"The same weights with GELU in the gate write almost the same: cosine {cosine:.3f}, {ratio:.2f} times as "
            f"large. Trained apart in the lab, they end at {means[0]:.3f} and {means[1]:.3f} bits."
        ),
        alt=f"A dot for each feature that the network writes: with SiLU to the right, with GELU upwards. The dots lie "
        f"near the diagonal; the mean cosine over tokens is {cosine:.3f}.",
        claim=Claim(
            text="Both outputs point the same way, cosine above 0.9; in the lab their losses differ by less than 0.05.",
            holds=lambda f: bool(
                float(f.values("cosine")) > 0.9 and abs(np.diff(f.values("lab").mean(axis=1))[0]) < 0.05
            ),
        ),
        arrays={
            "silu": numbers(here["silu"], ("feature",), f"blocks.{look.layer}.feed_forward with SiLU, last token"),
            "gelu": numbers(here["gelu"], ("feature",), f"blocks.{look.layer}.feed_forward with GELU, last token"),
            "cosine": numbers(cosine, (), "mean over tokens"),
            "lab": lab,
        },
        facts={"aside": f"{look.where}, same weights"},
        source=look.source,
    )
