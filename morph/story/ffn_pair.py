"""Frame 6 of figure 5: a feature that comes through only where two things are there, found by measurement.

For each channel the tokens fall into four cases: the value is there (larger than its RMS over the tokens) or not, the
gate is open (above 0 before its bend) or not. A channel's contrast is the mean size of its product where both are
there, over the larger mean of the two cases where one is missing. Shown is the channel of the largest contrast among
those in which every case holds at least `RARE` of the tokens.

Arrays: `gate` (before its bend), `value`, `product` (token,) of that channel; `means` (case,) of |product| and `counts`
(case,), in the order of `CASES`; `contrasts` (channel,), 0 where a case is too rare. Facts: `channel`, `contrast`,
`before`: the largest contrast as initialized, where the model was trained here.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from morph.story.ffn_kit import Look
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.residual_kit import near, numbers
from morph.story.subject import siblings
from morph.story.written import times

KEY, TITLE = "together", "Only where both are there"
CASES = ("value and gate", "value, gate shut", "gate, no value", "neither")
RARE = 0.05
LEAST = 2.0
"""A contrast below this is none."""
NO_PAIR = "In no feature of this network does much more pass where gate and value are both there."


def cases(gate: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(4, ..., T, F) booleans: which tokens are in which case, in the order of `CASES`."""
    there, is_open = np.abs(value) > np.sqrt((value**2).mean(axis=0)), gate > 0
    return np.stack([there & is_open, there & ~is_open, ~there & is_open, ~there & ~is_open])


def means_of(product: np.ndarray, held: np.ndarray) -> np.ndarray:
    """(4, ...): the mean size of the product in each case, 0 where no token is."""
    return (np.abs(product) * held).sum(axis=1) / np.maximum(held.sum(axis=1), 1)


def contrasts(gate: Tensor, value: Tensor, product: Tensor) -> np.ndarray:
    """(F,): the contrast of each channel, 0 where a case is too rare."""
    held = cases(gate.numpy(), value.numpy())
    means = means_of(product.numpy(), held)
    ratio = means[0] / np.maximum(np.maximum(means[1], means[2]), 1e-12)
    return np.where(held.mean(axis=1).min(axis=0) >= RARE, ratio, 0.0)


def _search(look: Look) -> tuple[np.ndarray, Tensor, Tensor, Tensor]:
    """Contrasts of all channels; gate, value and product of the best one."""
    halves = look.halves(look.x)
    value, product = look.factors(*halves)[1], look.gated.meet(*halves)
    found = contrasts(halves[0], value, product)
    best = int(found.argmax())
    return found, halves[0][:, best], value[:, best], product[:, best]


def together(look: Look) -> Frame:
    """The channel of the largest contrast, a dot a token."""
    if look.lacks:
        return absent(KEY, TITLE, look.lacks)
    found, gate, value, product = _search(look)
    best, contrast = int(found.argmax()), float(found.max())
    if contrast < LEAST:
        return absent(KEY, TITLE, NO_PAIR)
    held = cases(gate.numpy(), value.numpy())
    means = means_of(product.numpy(), held)
    before, told = _before(look), ""
    if before is not None:
        told = f" Untrained, the best feature reaches {times(before)} times."
    of = f"blocks.{look.layer}.feed_forward"
    return Frame(
        key=KEY,
        title=TITLE,
        caption=(
            f"Feature {best}: where its value is there and its gate open, {means[0]:.2f} passes on average, "
            f"{times(contrast)} times as much as with one missing.{told}"
        ),
        alt=f"A dot a token, {len(gate)} of them: its gate to the right, its value upwards, larger where both are "
        "there. Mean sizes of the product: "
        + ", ".join(f"{name} {mean:.2f} ({int(n)} tokens)" for name, mean, n in zip(CASES, means, held.sum(axis=1)))
        + ".",
        claim=Claim(
            text="The means are those of the dots; where both are there at least twice as much passes as where one is "
            "missing; no other feature has a larger contrast; no case is rare.",
            holds=_holds,
        ),
        arrays={
            "gate": numbers(gate, ("token",), f"{of}.preactivation, feature {best}"),
            "value": numbers(value, ("token",), f"{of}.value, feature {best}"),
            "product": numbers(product, ("token",), "what goes into the last matrix"),
            "means": numbers(means, ("case",), "mean |product| in each case"),
            "counts": Array(values=held.sum(axis=1), axes=("case",), source="tokens in each case"),
            "contrasts": numbers(found, ("channel",), f"{of}: mean where both are there over where one is missing"),
        },
        facts={
            "aside": f"{look.where}, feature {best} of {len(found)}", "channel": best, "contrast": round(contrast, 4),
            "before": before, "there": float(f"{value.square().mean().sqrt():.6g}"), "cases": list(CASES),
        },
        source=look.source,
    )  # fmt: skip


def _before(look: Look) -> float | None:
    """The largest contrast in the same network as initialized."""
    if not look.subject.is_trained or look.subject.is_released:
        return None
    (fresh,) = siblings(look.subject, [look.subject.config])
    found = _search(Look.at(fresh))[0]
    return round(float(torch.as_tensor(found).max()), 4)


def _holds(frame: Frame) -> bool:
    gate, value, product = (frame.values(name) for name in ("gate", "value", "product"))
    held, found = cases(gate, value), frame.values("contrasts")
    counts, means = held.sum(axis=1), frame.values("means")
    contrast = means[0] / max(means[1], means[2])
    return bool(
        (counts == frame.values("counts")).all()
        and near(means_of(product, held), means)
        and contrast >= LEAST
        and counts.min() >= RARE * len(gate)
        and int(found.argmax()) == frame.facts["channel"]
        and abs(found.max() / contrast - 1) < 1e-3
    )
