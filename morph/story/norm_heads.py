"""Frames 10 and 11 of figure 4: one layer's queries and keys made larger, with a norm on them and without.

The matrices that make them are multiplied by a factor, as training may do; the scores of a head grow by its square.
Arrays of both frames: `factor` (n,), `with` and `without` (n,): the largest score, or the mean entropy of the weights.
Facts: `layer`, `made` (the model has no such norm, and got one with gains of 1 for this).
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch

from morph.config import RMSNorm
from morph.nn.attention import SoftmaxAttention
from morph.nn.norm import build_norm
from morph.story.frame import Claim, Frame, absent
from morph.story.residual_kit import Material, numbers
from morph.story.rope_layer import Layer, layers
from morph.story.written import times

FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0)
EARLY = 16
"""Queries with fewer keys in sight are left out of the entropy: they have little to choose from."""
NO_LAYER = "No layer of this model has queries and keys of its own heads that could be normed."
TITLES = {"logits": "QK-norm bounds the scores", "entropy": "Without it attention narrows"}


def _layer(m: Material) -> Layer | None:
    """The middle one of the layers with plain heads."""
    found = [
        layer
        for layer in layers(m.it.subject, len(m.it.tokens))
        if isinstance(layer.mixer, SoftmaxAttention) and layer.mixer.cap is None
    ]
    return found[len(found) // 2] if found else None


def _pass(layer: Layer, factor: float, is_normed: bool) -> dict[str, np.ndarray]:
    """The layer's forward pass with larger queries and keys, by the trace's names."""
    mixer = deepcopy(layer.attention)
    assert isinstance(mixer, SoftmaxAttention)
    if not is_normed:
        mixer.q_norm = mixer.k_norm = None
    elif mixer.q_norm is None:
        for name in ("q_norm", "k_norm"):
            norm = build_norm(RMSNorm(), mixer.head_dim).double()
            torch.nn.init.ones_(norm.weight)
            setattr(mixer, name, norm)
    with torch.no_grad():
        for projection in (mixer.q_proj, mixer.k_proj):
            for parameter in projection.parameters():
                parameter.mul_(factor)
    changed = replace(layer)
    changed.__dict__["attention"] = mixer
    return changed.attend(layer.x, layer.rope)


def _largest(seen: dict[str, np.ndarray]) -> float:
    scores = seen["scores"]
    return float(np.abs(scores[np.isfinite(scores)]).max())


def _spread(seen: dict[str, np.ndarray]) -> float:
    """Mean entropy of the weights, in bits, over heads and queries with enough keys in sight."""
    weights = seen["weights"][:, EARLY:]
    logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    return float(-(weights * logs).sum(-1).mean())


def _measured(m: Material) -> tuple[Layer, dict[str, list[dict[str, np.ndarray]]]] | None:
    layer = _layer(m)
    if layer is None or len(layer.ids) <= EARLY:
        return None
    passes = {
        name: [_pass(layer, factor, is_normed) for factor in FACTORS]
        for name, is_normed in (("with", True), ("without", False))
    }
    return layer, passes


def _frame(m: Material, key: str, layer: Layer, series: dict[str, list[float]], *, caption: str, alt: str, claim: Claim,
           what: str) -> Frame:  # fmt: skip
    assert isinstance(layer.mixer, SoftmaxAttention)
    made, of = layer.mixer.q_norm is None, f"blocks.{layer.index}.attention"
    name = m.it.subject.name
    return Frame(
        key=key,
        title=TITLES[key],
        caption=caption,
        alt=alt,
        claim=claim,
        arrays={
            "factor": numbers(np.array(FACTORS), ("point",), "on the matrices that make queries and keys"),
            **{n: numbers(np.array(v), ("point",), f"{of}: {what}") for n, v in series.items()},
        },
        facts={"aside": f"layer {layer.index + 1}, {len(layer.ids)} tokens", "layer": layer.index, "made": made},
        source=f"{name[0].upper()}{name[1:]}; "
        + ("a norm with gains of 1 put in." if made else "without: its norms taken out."),
    )


def largest(m: Material) -> Frame:
    """The largest score by factor."""
    found = _measured(m)
    if found is None:
        return absent("logits", TITLES["logits"], NO_LAYER)
    layer, passes = found
    series = {name: [_largest(seen) for seen in some] for name, some in passes.items()}
    growth = series["without"][-1] / series["without"][0]
    return _frame(
        m, "logits", layer, series,
        caption=(
            f"Make queries and keys {FACTORS[-1]:g} times larger: without a norm on them the largest score grows "
            f"{times(growth)}-fold, from {series['without'][0]:.1f} to {series['without'][-1]:,.0f}. With it, it stays "
            f"at {series['with'][-1]:.1f}."
        ),
        alt=(
            "The largest score of a layer against the factor on queries and keys, both axes logarithmic: a straight "
            f"rise from {series['without'][0]:.1f} to {series['without'][-1]:,.0f} without QK-norm, a level line at "
            f"{series['with'][-1]:.1f} with it."
        ),
        claim=Claim(
            text="Without the norm scores grow by the square of the factor; with it they stay, to 2 %.",
            holds=lambda f: bool(
                np.allclose(f.values("without") / f.values("without")[0], f.values("factor") ** 2, rtol=1e-3)
                and np.allclose(f.values("with"), f.values("with")[-1], rtol=0.02)
            ),
        ),
        what="largest |score|",
    )  # fmt: skip


def entropy(m: Material) -> Frame:
    """How widely a query spreads its weights, by factor."""
    found = _measured(m)
    if found is None:
        return absent("entropy", TITLES["entropy"], NO_LAYER)
    layer, passes = found
    series = {name: [_spread(seen) for seen in some] for name, some in passes.items()}
    tokens = [2**value for value in (series["without"][0], series["without"][-1], series["with"][-1])]
    return _frame(
        m, "entropy", layer, series,
        caption=(
            f"Large scores make the softmax pick one token: a query’s weights spread as over {tokens[0]:.0f} tokens at "
            f"first, over {tokens[1]:.1f} in the end. Behind QK-norm they stay as over {tokens[2]:.0f}."
        ),
        alt=(
            f"Mean entropy of attention weights against the same factor: from {series['without'][0]:.1f} down to "
            f"{series['without'][-1]:.1f} bits without QK-norm, level at {series['with'][-1]:.1f} bits with it; "
            f"{math.log2(len(layer.ids)):.1f} at most are possible."
        ),
        claim=Claim(
            text="Without the norm the entropy falls with every factor, to less than half; with it it stays.",
            holds=lambda f: bool(
                (np.diff(f.values("without")) < 0).all()
                and f.values("without")[-1] < 0.5 * f.values("without")[0]
                and np.allclose(f.values("with"), f.values("with")[-1], rtol=0.02)
            ),
        ),
        what=f"mean entropy of weights in bits, queries from {EARLY} on",
    )  # fmt: skip
