"""Frame 12 of figure 8, expert parallelism: the all-to-all of one routed layer, for a batch that a model reads.

Positions and experts are dealt to the devices in equal runs. Arrays: `counts` (from device, to device), pairs of token
and expert; `crossing`, their share between different devices; `reach`, on how many devices a token's experts lie on
average. Facts beside the common ones: `devices`, `length`, `batch`, `n_tokens`.
"""

from __future__ import annotations

import numpy as np

from morph.story.frame import Array, Claim, Frame
from morph.story.moe_layer import facts_of, reads, route, router_of
from morph.story.subject import Subject
from morph.story.written import percent

KEY, TITLE = "parallel", "Experts on several devices"
DEVICES, LENGTH, BATCH = 4, 64, 4


def devices_frame(subject: Subject) -> Frame:
    """Frame 12: the middle routed layer's pairs of token and expert between devices."""
    here = route(subject, LENGTH, BATCH)
    facts = facts_of(subject, here)
    n, k = facts["n_experts"], facts["top_k"]
    home = np.tile(np.arange(LENGTH) * DEVICES // LENGTH, BATCH)
    counts, reach = device_counts(here.chosen, home, n, DEVICES)
    crossing = 1 - np.trace(counts) / counts.sum()
    return Frame(
        key=KEY,
        title=TITLE,
        caption=(
            f"{DEVICES} devices share tokens and experts. Of {counts.sum():,} pairs of token and expert "
            f"{percent(crossing)} change device and return: a token's {k} experts lie on {reach:.1f} devices on "
            "average."
        ),
        alt=(
            f"A matrix of {DEVICES} by {DEVICES} devices, from the tokens' to the experts'. "
            + " ".join(f"From device {i}: {', '.join(map(str, row))}." for i, row in enumerate(counts.tolist()))
        ),
        claim=Claim(
            text="Each token makes k pairs, and more than half of them leave the token's device.",
            holds=lambda f: bool(
                f.values("counts").sum() == f.facts["n_tokens"] * f.facts["top_k"]
                and np.trace(f.values("counts")) < 0.5 * f.values("counts").sum()
                and abs(f.values("crossing") - (1 - np.trace(f.values("counts")) / f.values("counts").sum())) < 1e-9
            ),
        ),
        arrays={
            "counts": Array(values=counts, axes=("from device", "to device"), source=f"{router_of(here)}.chosen"),
            "crossing": Array(values=np.array(crossing), axes=(), source="share of counts off the diagonal"),
            "reach": Array(values=np.array(reach), axes=(), source="mean number of devices of a token's experts"),
        },
        facts={
            **facts,
            "tokens": [],
            "n_tokens": len(here.tokens),
            "devices": DEVICES,
            "length": LENGTH,
            "batch": BATCH,
        },
        source=reads(subject),
    )


def device_counts(chosen: np.ndarray, home: np.ndarray, n_experts: int, devices: int) -> tuple[np.ndarray, float]:
    """The all-to-all of one layer: (devices, devices) pairs of token and expert, from where the token is (`home`, (T,))
    to where the expert is (experts in equal runs), and the mean number of devices that a token's experts lie on."""
    of_expert = np.arange(n_experts) * devices // n_experts
    there = of_expert[chosen]
    counts = np.zeros((devices, devices), dtype=int)
    np.add.at(counts, (home[:, None], there), 1)
    return counts, float(np.mean([len(set(row)) for row in there.tolist()]))
