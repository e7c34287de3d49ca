"""Figure 5 as data: claims on live networks, wrong data refused, sizes recomputed, models without a gate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from morph.measure.trace import trace
from morph.story import Figure, Frame, figure
from morph.story.ffn_kit import NO_DENSE, NO_GATE, Look
from morph.story.subject import subject
from tests.stories import with_array

KEYS = (
    "two-matrices", "curves", "below-zero", "three-matrices", "channels", "together", "equal", "ratios", "swapped",
)  # fmt: skip


@cache
def made(seed: int = 0) -> Figure:
    return figure("ffn", seed=seed)


@cache
def of(name: str) -> Figure:
    return figure("ffn", model=subject(name, size="nano").config)


def at(key: str, seed: int = 0) -> Frame:
    return made(seed).frames[KEYS.index(key)]


@pytest.mark.parametrize("seed", [0, 1])
def test_nine_frames_whose_claims_hold(seed: int) -> None:
    assert tuple(frame.key for frame in made(seed).frames) == KEYS
    assert made(seed).number == 5
    assert [frame.key for frame in made(seed).frames if not frame.check() or frame.absent] == []


WRONG: list[tuple[str, str, Callable[[np.ndarray], Any]]] = [
    ("two-matrices", "hidden", lambda v: v - 0.1),
    ("two-matrices", "hidden", lambda v: v[1:]),
    ("curves", "relu", lambda v: v - 0.01),
    ("curves", "gelu", np.abs),
    ("curves", "silu", lambda v: 2 * v),
    ("below-zero", "cut", lambda v: v[::-1]),
    ("below-zero", "share", lambda v: v[::-1]),
    ("below-zero", "lab", lambda v: v - 0.3),
    ("three-matrices", "hidden", lambda v: v + 0.01),
    ("channels", "product", lambda v: v + 0.1),
    ("channels", "gate", lambda v: v[::-1]),
    ("together", "product", lambda v: np.ones_like(v)),
    ("equal", "parameters", lambda v: v * np.array([1, 1.001, 1])),
    ("equal", "parameters", lambda v: v * np.array([1, 1, 1.02])),
    ("ratios", "ratio", lambda v: v - 1),
    ("ratios", "ratio", lambda v: np.minimum(v, 2.7)),
    ("swapped", "cosine", lambda v: v - 0.2),
    ("swapped", "lab", lambda v: v + np.array([[0.1], [0.0]])),
]


@pytest.mark.parametrize(("key", "name", "change"), WRONG, ids=[f"{k}-{n}-{i}" for i, (k, n, _) in enumerate(WRONG)])
def test_every_claim_can_fail(key: str, name: str, change: Callable[[np.ndarray], Any]) -> None:
    assert {k for k, _, _ in WRONG} == set(KEYS)
    assert not with_array(at(key), name, change).check()


def test_gate_and_value_are_the_models_own() -> None:
    source = subject("windows")
    look = Look.at(source)
    with trace(source.model) as seen, torch.no_grad():
        source.model(source.ids(look.tokens, 8))
    here = f"blocks.{look.layer}.feed_forward"
    gate, value = (seen[f"{here}.{name}"].flatten(0, 1).double() for name in ("preactivation", "value"))
    mine = look.halves(look.x)
    for a, b in zip(mine, (gate, value), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    product = F.silu(gate[look.tokens - 1]) * value[look.tokens - 1]
    strongest = product.abs().topk(16).indices.sort().values
    assert at("channels").values("channel").tolist() == strongest.tolist()
    np.testing.assert_allclose(at("channels").values("product"), product[strongest], rtol=1e-3, atol=1e-4)
    zero = float((gate <= 0).double().mean())
    assert at("below-zero").values("cut")[0] == pytest.approx(zero, abs=1e-3)
    assert f"{zero:.0%} are below 0" in at("below-zero").caption


def test_what_is_written_with_silu_is_what_the_network_writes() -> None:
    source = subject("windows")
    look = Look.at(source)
    with torch.no_grad(), trace(source.model) as seen:
        source.model(source.ids(look.tokens, 8))
    written = seen[f"blocks.{look.layer}.feed_forward_delta"][0, -1]
    np.testing.assert_allclose(at("swapped").values("silu"), written, atol=1e-3)


def test_marks_are_where_a_tenth_comes_through() -> None:
    relu, gelu, silu = at("below-zero").values("marks")
    assert relu == 0
    assert torch.sigmoid(torch.tensor(silu)) == pytest.approx(0.1, abs=1e-3)
    assert torch.distributions.Normal(0, 1).cdf(torch.tensor(gelu)) == pytest.approx(0.1, abs=1e-3)


def test_both_networks_weigh_the_same() -> None:
    two, three = at("two-matrices").facts, at("three-matrices").facts
    assert two["parameters"] == three["parameters"] == 8 * 96**2
    assert two["matrices"] == {"up": [384, 96], "down": [96, 384]}
    assert three["matrices"] == {"gate": [256, 96], "up": [256, 96], "down": [96, 256]}


def test_llamas_width_is_rounded_up() -> None:
    facts = at("equal").facts
    assert (facts["rounded"], facts["multiple"]) == (11_008, 256)
    assert facts["exact"] == pytest.approx(10_922.67, abs=0.01)
    assert "0.8% more" in at("equal").caption


def test_counts_of_tokens_add_up() -> None:
    frame = at("together")
    gate, value, product = (np.abs(frame.values(name)) for name in ("gate", "value", "product"))
    is_open, is_there = gate > gate.max() / 4, value > value.max() / 4
    counts = frame.facts["counts"]
    assert counts["both"] == (is_open & is_there).sum() and counts["open"] == (is_open & ~is_there).sum()
    assert counts["through"] == (product > product.max() / 4).sum()
    np.testing.assert_allclose(product, gate * value, rtol=1e-4, atol=1e-5)


def test_the_criterion_chose_the_feature() -> None:
    look = Look.at(subject("windows"))
    gate, value = look.halves(look.x)
    opened = F.silu(gate)
    is_open, is_there = (t.abs() > t.abs().amax(0) / 4 for t in (opened, value))
    alone = (is_open ^ is_there).sum(0).double()
    alone[(is_open & is_there).sum(0) < len(value) // 20] = -1
    assert at("together").facts["channel"] == int(alone.argmax())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("silu", NO_GATE), ("2017", NO_GATE), ("parallel-block", NO_GATE), ("moe", NO_DENSE), ("hybrid", NO_DENSE),
    ],
)  # fmt: skip
def test_models_without_a_gate_say_so(name: str, why: str) -> None:
    lacking = {frame.key: frame.absent for frame in of(name).frames if frame.absent}
    assert {"channels", "together", "swapped"} <= set(lacking) and set(lacking.values()) == {why}
    assert [frame.key for frame in of(name).frames if not frame.check()] == []


@pytest.mark.parametrize("name", ["gated-ffn", "mla", "clamped-swiglu", "geglu", "dense-first"])
def test_other_models_are_shown(name: str) -> None:
    frames = of(name).frames
    assert [frame.key for frame in frames if frame.absent] == []
    assert [frame.key for frame in frames if not frame.check() and frame.key not in ("swapped", "together")] == []
