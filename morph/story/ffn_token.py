"""Frames 2, 3, 5 and 9 of figure 5: what bends, and what a gate does, in one network of a model.

Arrays: `z` and a curve for each activation (frame 2); `edges` and `share` of a histogram (3); `gate`, `value`,
`product` of the channels with the largest values (5), whose fact `passes` has the places of open gates; `silu`, `gelu`
(9), what the network writes with either, and the fact `bits`, what a token costs then (where it was trained here).
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import morph
from morph.nn.feedforward import ACTIVATIONS
from morph.story.ffn_kit import NO_DENSE, TEXTS, Look, with_activation
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.measured import by_seed
from morph.story.residual_kit import near, numbers
from morph.story.written import percent, signed

SHOWN = ("relu", "gelu", "silu")
NAMES = {"relu": "ReLU", "gelu": "GELU", "silu": "SiLU"}
CHANNELS, BARS, RANGE, WIDE = 24, 25, 4.0, 5.0
TENTH, HALF = 0.1, 0.5
TITLES = {
    "curves": "Three ways to bend",
    "below-zero": "What each one cuts",
    "channels": "Gate times value",
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
    here = look.plain or look
    if here.network is None:
        return absent("below-zero", TITLES["below-zero"], NO_DENSE)
    z = here.inputs.flatten()
    edges = np.linspace(-WIDE, WIDE, 2 * BARS + 1)
    inside = np.clip(z.numpy(), -WIDE + 1e-9, WIDE - 1e-9)
    share = np.histogram(inside, edges)[0] / len(z)
    cut = {name: float((ACTIVATIONS[name](z).abs() < TENTH * z.abs()).double().mean()) for name in SHOWN}
    lab = by_seed("gates", ("ReLU",), "preactivations below zero")
    what, verb = ("what goes into the bend", "is") if here.lacks else ("the gate’s inputs", "are")
    return Frame(
        key="below-zero",
        title=TITLES["below-zero"],
        caption=(
            f"Of {what} {percent(cut['relu'])} {verb} below 0: ReLU passes nothing. GELU cuts {percent(cut['gelu'])} "
            f"to under a tenth, SiLU {percent(cut['silu'])}. In the lab, trained with ReLU: "
            f"{percent(lab.values.mean())}."
        ),
        alt=f"A histogram of {len(z):,} inputs to the bend, from −5 to 5. Marks: below 0 lie {percent(cut['relu'])}; "
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
            "share": numbers(share, ("bar",), f"blocks.{here.layer}.feed_forward.preactivation, {len(z):,} numbers"),
            "cut": numbers(np.array([cut[name] for name in SHOWN]), ("function",), "share of |f(z)| < |z| / 10"),
            "marks": numbers(np.array([0.0, _mark("gelu"), _mark("silu")]), ("function",), "z where |f(z)| = |z| / 10"),
            "lab": lab,
        },
        facts={"names": NAMES, "aside": here.where},
        source=here.source,
    )


def _mark(name: str) -> float:
    """The z below which a function passes less than a tenth of it."""
    z = torch.linspace(-RANGE, -1e-3, 40_000, dtype=torch.float64)
    return float(z[ACTIVATIONS[name](z).abs() < TENTH * z.abs()].max())


def channels(look: Look) -> Frame:
    """The largest values of the last token, their gates and the products."""
    if look.lacks:
        return absent("channels", TITLES["channels"], look.lacks)
    halves = look.halves(look.last)
    (opened, value), hidden = look.factors(*halves), look.gated.meet(*halves)
    chosen = value.abs().topk(min(CHANNELS, len(value))).indices.sort().values
    passes = opened[chosen].abs() >= HALF
    few = f"{int(passes.sum())} of them" if passes.any() else "none of them"
    strongest = int(hidden.abs().argmax())
    rank = int((value.abs() > value[strongest].abs()).sum()) + 1
    return Frame(
        key="channels",
        title=TITLES["channels"],
        caption=(
            f"One token’s {len(chosen)} largest values of {len(value)}: {few} have an open gate, a half or more. The "
            f"largest product of all comes from the {_nth(rank)} largest value."
        ),
        alt=f"Three rows of bars for {len(chosen)} hidden features: the bent gate, the value, and their product. Where "
        "the gate is near 0 so is the product, however large the value.",
        claim=Claim(
            text="The product is the bent gate times the value, as the network computes it; no other value is larger; "
            "the filled ones are those with a gate of a half or more.",
            holds=lambda f: bool(
                near(f.values("product"), f.values("gate") * f.values("value"), 2e-3)
                and np.abs(f.values("value")).min() >= f.facts["next"] - 1e-6
                and f.facts["passes"] == np.flatnonzero(np.abs(f.values("gate")) >= HALF).tolist()
            ),
        ),
        arrays={
            "channel": Array(values=chosen.numpy(), axes=("channel",), source="numbers of the hidden features"),
            "gate": numbers(opened[chosen], ("channel",), f"blocks.{look.layer}.feed_forward: bent gate, last token"),
            "value": numbers(value[chosen], ("channel",), f"blocks.{look.layer}.feed_forward.value, last token"),
            "product": numbers(hidden[chosen], ("channel",), "what goes into the last matrix"),
        },
        facts={
            "aside": f"{look.where}, one token", "next": _next(value, len(chosen)), "total": len(value),
            "passes": torch.where(passes)[0].tolist(),
        },
        source=look.source,
    )  # fmt: skip


def _nth(rank: int) -> str:
    """`1st`, `22nd`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th") if rank % 100 not in (11, 12, 13) else "th"
    return f"{rank}{ending}"


def _next(values: Tensor, count: int) -> float:
    """The largest magnitude that is not among the first `count`."""
    ordered = values.abs().sort(descending=True).values
    return float(ordered[count]) if len(ordered) > count else 0.0


def _bits(look: Look) -> dict[str, float]:
    """Bits a token of the passage costs with either bend in all gates; nothing where training means nothing here."""
    source = look.subject
    if not source.is_trained or source.is_released:
        return {}
    ids, found = source.ids(look.tokens + 1, TEXTS), {}
    for name in ("silu", "gelu"):
        changed = with_activation(source.config, name)
        if changed is None:
            return {}
        model = morph.build(changed).eval()
        model.load_state_dict(source.model.state_dict())
        with torch.no_grad():
            loss = model.loss(ids[:, :-1], ids[:, 1:]).cross_entropy
        found[name] = round(float(loss) / math.log(2), 4)
    return found


def swapped(look: Look) -> Frame:
    """The same weights with SiLU and with GELU in the gate."""
    if look.lacks:
        return absent("swapped", TITLES["swapped"], look.lacks)
    gate, value = look.halves(look.x)
    with torch.no_grad():
        down = look.gated.down.weight.double()
        out = {name: (ACTIVATIONS[name](gate) * value) @ down.T for name in ("silu", "gelu")}
    cosine = float(F.cosine_similarity(out["silu"], out["gelu"], dim=-1).mean())
    bits = _bits(look)
    loss = f"; a token costs {bits['silu']:.2f} and {bits['gelu']:.2f} bits" if bits else ""
    lab = by_seed("gates", ("SwiGLU", "GEGLU"), "bits per byte")
    means = lab.values.mean(axis=1)
    here = {name: values[look.tokens - 1] for name, values in out.items()}
    return Frame(
        key="swapped",
        title=TITLES["swapped"],
        caption=(
            f"The same weights write almost the same with SiLU and GELU, cosine {cosine:.3f}{loss}. "
            f"Trained apart (lab): {means[0]:.3f} and {means[1]:.3f}."
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
        facts={"aside": f"{look.where}, same weights", "bits": bits},
        source=look.source,
    )
