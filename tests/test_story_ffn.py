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
from morph.story.ffn_kit import NO_DENSE, NO_GATE, Look, with_activation
from morph.story.ffn_pair import RARE, contrasts
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
    ("two-matrices", "x", lambda v: v[1:]),
    ("curves", "relu", lambda v: v - 0.01),
    ("curves", "gelu", np.abs),
    ("curves", "silu", lambda v: 2 * v),
    ("below-zero", "cut", lambda v: v[::-1]),
    ("below-zero", "share", lambda v: v[::-1]),
    ("below-zero", "lab", lambda v: v - 0.3),
    ("three-matrices", "hidden", lambda v: v + 0.1),
    ("three-matrices", "x", lambda v: v[1:]),
    ("channels", "product", lambda v: v + 0.1),
    ("channels", "gate", lambda v: v[::-1]),
    ("channels", "value", lambda v: v / 10),
    ("together", "product", lambda v: np.ones_like(v)),
    ("together", "gate", lambda v: -v),
    ("together", "value", lambda v: v[::-1]),
    ("together", "counts", lambda v: v[::-1]),
    ("together", "means", lambda v: v[::-1]),
    ("together", "contrasts", lambda v: v[::-1]),
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
    token = look.tokens - 1
    loudest = value[token].abs().topk(24).indices.sort().values
    frame = at("channels")
    assert frame.values("channel").tolist() == loudest.tolist()
    product = F.silu(gate[token]) * value[token]
    np.testing.assert_allclose(frame.values("product"), product[loudest], rtol=1e-3, atol=1e-4)
    strongest = value[token].abs() > value[token][product.abs().argmax()].abs()
    assert f"{int(strongest.sum()) + 1}th largest value" in frame.caption


def test_what_relu_silences_is_what_the_trained_network_silences() -> None:
    source = subject("relu")
    look = Look.at(source)
    with trace(source.model) as seen, torch.no_grad():
        source.model(source.ids(look.tokens, 8))
    z = seen[f"blocks.{look.layer}.feed_forward.preactivation"].flatten(0, 1)
    zero = float((z <= 0).double().mean())
    assert at("below-zero").values("cut")[0] == pytest.approx(zero, abs=1e-3)
    assert f"{zero:.0%} is below 0" in at("below-zero").caption
    np.testing.assert_allclose(at("two-matrices").values("hidden"), F.relu(z[look.tokens - 1]), atol=1e-3)
    assert f"sets {(z[look.tokens - 1] <= 0).float().mean():.0%} of them" in at("two-matrices").caption


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


def test_the_criterion_chose_the_feature() -> None:
    """Every channel's contrast, token by token."""
    look, frame = Look.at(subject("windows")), at("together")
    gate, value = (half.numpy() for half in look.halves(look.x))
    product = np.abs(F.silu(torch.tensor(gate)).numpy() * value)
    found = []
    for channel in range(gate.shape[1]):
        there = np.abs(value[:, channel]) > np.sqrt((value[:, channel] ** 2).mean())
        is_open = gate[:, channel] > 0
        which = (there & is_open, there & ~is_open, ~there & is_open, ~there & ~is_open)
        if min(case.mean() for case in which) < RARE:
            found.append(0.0)
            continue
        both, shut, absent_value, _ = (product[case, channel].mean() for case in which)
        found.append(both / max(shut, absent_value))
    np.testing.assert_allclose(frame.values("contrasts"), found, rtol=1e-4)
    assert frame.facts["channel"] == int(np.argmax(found))
    assert frame.facts["contrast"] > 2 * frame.facts["before"] > 4


def test_a_feature_without_contrast_is_not_shown() -> None:
    """Values of one size everywhere: there is no case in which none is there."""
    gate, value = torch.randn(100, 3, dtype=torch.float64), torch.ones(100, 3, dtype=torch.float64)
    assert contrasts(gate, value, gate * value).tolist() == [0, 0, 0]


def test_bits_are_those_of_the_changed_model() -> None:
    source = subject("windows")
    look, bits = Look.at(source), at("swapped").facts["bits"]
    ids = source.ids(look.tokens + 1, 8)
    loss = source.model.loss(ids[:, :-1], ids[:, 1:]).cross_entropy.item() / np.log(2)
    assert bits["silu"] == pytest.approx(loss, abs=1e-3) and bits["gelu"] > bits["silu"]
    assert of("gated-ffn").frames[8].facts["bits"] == {}, "no loss of a model that nobody trained"


def test_another_bend_goes_into_every_gate() -> None:
    for name in ("gated-ffn", "moe", "dense-first"):
        changed = with_activation(subject(name, size="nano").config, "gelu")
        assert changed is not None and "silu" not in str(changed.feed_forward) and "gelu" in str(changed.feed_forward)
    assert with_activation(subject("2017", size="nano").config, "gelu") is None
    assert with_activation(subject("clamped-swiglu", size="nano").config, "gelu") is None


@pytest.mark.parametrize(
    ("name", "why"),
    [("silu", NO_GATE), ("2017", NO_GATE), ("parallel-block", NO_GATE), ("sandwich-norm", NO_GATE), ("moe", NO_DENSE)],
)
def test_models_without_a_gate_say_so(name: str, why: str) -> None:
    lacking = {frame.key: frame.absent for frame in of(name).frames if frame.absent}
    assert {"channels", "together", "swapped"} <= set(lacking) and set(lacking.values()) == {why}
    assert [frame.key for frame in of(name).frames if not frame.check()] == []


@pytest.mark.parametrize(
    "name",
    ["gated-ffn", "mla", "clamped-swiglu", "geglu", "dense-first", "attention-sink", "shared-expert", "hybrid", "kda"],
)
def test_other_models_are_shown(name: str) -> None:
    frames = of(name).frames
    assert [frame.key for frame in frames if frame.absent] == []
    assert [frame.key for frame in frames if not frame.check()] == []


def test_with_experts_the_shared_one_is_looked_at() -> None:
    look = Look.at(subject("shared-expert", size="nano"))
    assert look.where == "layer 2, shared expert"
    source = look.subject
    with trace(source.model) as seen, torch.no_grad():
        source.model(source.ids(look.tokens, 8))
    here = seen["blocks.2.feed_forward.shared.0.preactivation"].flatten(0, 1).double()
    torch.testing.assert_close(look.halves(look.x)[0], here, atol=1e-4, rtol=1e-4)


def test_a_clamped_gate_multiplies_a_value_that_is_one_larger() -> None:
    look = Look.at(subject("clamped-swiglu", size="nano"))
    gate, value = look.halves(look.x)
    opened, passed = look.factors(gate, value)
    torch.testing.assert_close(passed, value.clamp(-7, 7) + 1)
    torch.testing.assert_close(opened * passed, look.gated.meet(gate, value))
