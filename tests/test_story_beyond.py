"""Figure 9 as data: claims on live models, wrong data refused, states against the rule, models without a state."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import morph
from morph.lab.needs import settled
from morph.lab.result import recorded
from morph.story import Figure, Frame, figure
from morph.story.beyond_kit import NO_RULE, NO_STATE, Look
from morph.story.beyond_recall import ARMS
from morph.story.beyond_state import _forgotten, _rule, _stored
from morph.story.beyond_work import LENGTHS
from morph.story.subject import subject
from tests.stories import with_array

KEYS = ("held", "orders", "state", "interference", "erase", "decay", "work", "stack", "recall", "sparse")
STATE_KEYS = {"held", "state", "interference", "erase", "decay", "work", "stack"}


@cache
def made(seed: int = 0) -> Figure:
    return figure("beyond-softmax", seed=seed)


@cache
def of(name: str) -> Figure:
    return figure("beyond-softmax", model=subject(name, size="nano").config)


def at(key: str, seed: int = 0) -> Frame:
    return made(seed).frames[KEYS.index(key)]


@pytest.mark.parametrize("seed", [0, 1])
def test_ten_frames_whose_claims_hold(seed: int) -> None:
    assert tuple(frame.key for frame in made(seed).frames) == KEYS
    assert made(seed).number == 9
    assert [frame.key for frame in made(seed).frames if not frame.check() or frame.absent] == []


def one(index: tuple[int, ...], to: float) -> Callable[[np.ndarray], None]:
    return lambda values: values.__setitem__(index, to)


WRONG: list[tuple[str, str, Callable[[np.ndarray], Any]]] = [
    ("held", "state", lambda v: v + np.arange(len(v))),
    ("held", "cache", lambda v: v**2),
    ("held", "cache", lambda v: v[::-1]),
    ("orders", "error", lambda v: v + 1e-3),
    ("orders", "causal", lambda v: v + 1e-3),
    ("state", "error", lambda v: v + 0.1),
    ("state", "states", lambda v: v[:, :-1]),
    ("interference", "orthogonal", lambda v: v + 0.01),
    ("interference", "delta", lambda v: 3 * v),
    ("erase", "after", lambda v: v + 0.1),
    ("erase", "weight", lambda v: 0.5 * v),
    ("decay", "alpha", lambda v: v + 1),
    ("decay", "alpha", lambda v: -v),
    ("decay", "half_life", lambda v: 2 * v),
    ("work", "state", lambda v: v + np.arange(len(v))),
    ("work", "softmax", lambda v: v**2),
    ("work", "softmax", lambda v: v[::-1]),
    ("stack", "bytes", lambda v: v[::-1]),
    ("recall", "accuracy", lambda v: v[::-1] * 0.8),
    ("recall", "accuracy", np.ones_like),
    ("sparse", "chosen", np.ones_like),
    ("sparse", "chosen", lambda v: v[:, ::-1]),
    ("sparse", "scores", lambda v: -v),
    ("sparse", "held", lambda v: 0 * v),
]


@pytest.mark.parametrize(("key", "name", "change"), WRONG, ids=[f"{k}-{n}-{i}" for i, (k, n, _) in enumerate(WRONG)])
def test_every_claim_can_fail(key: str, name: str, change: Callable[[np.ndarray], Any]) -> None:
    assert {k for k, _, _ in WRONG} == set(KEYS)
    assert not with_array(at(key), name, change).check()


# ---- weighed and counted ----


def test_bytes_are_those_of_live_caches() -> None:
    source, frame = subject("hybrid"), at("held")
    cache = source.model.new_cache(1)
    with torch.no_grad():
        source.model(source.ids(40), cache=cache)
    i = frame.values("tokens").tolist().index(40)
    full, state = frame.facts["layers"]
    assert frame.values("cache")[i] == cache.layers[full].nbytes
    assert frame.values("state")[i] == cache.layers[state].nbytes
    assert f"level at {frame.facts['meet']:.0f} tokens" in frame.caption


def test_work_of_softmax_grows_by_two_products_a_token() -> None:
    """Scores and weighted sums: two operations for each feature of each query head, twice."""
    config = subject("hybrid").config
    attention = config.attention
    assert isinstance(attention, morph.config.Attention)
    softmax = at("work").values("softmax")
    slope = (softmax[-1] - softmax[0]) / (LENGTHS[-1] - LENGTHS[0])
    assert slope == 4 * attention.n_heads * attention.width


def test_the_stack_is_what_the_count_says() -> None:
    frame = at("stack")
    config = subject("hybrid").config
    assert frame.values("bytes").sum() == morph.count(config).cache_bytes(frame.facts["context"])
    assert frame.facts["kinds"] == ["state", "state", "state", "cache"]


# ---- states ----


def test_states_are_the_rules_after_every_moment() -> None:
    look, frame = Look.at(subject("hybrid")), at("state")
    layer, head = frame.facts["layer"], frame.facts["head"]
    for moment, state in zip(frame.facts["moments"], frame.values("states")):
        shorter = Look.at(subject("hybrid"))
        with morph.trace(shorter.subject.model) as seen, torch.no_grad():
            shorter.subject.model(look.ids[:, :moment])
        np.testing.assert_allclose(state, seen[f"blocks.{layer}.attention.state"][0, head], atol=1e-5)


def test_a_write_is_one_step_of_the_rule() -> None:
    look, frame = Look.at(subject("hybrid")), at("erase")
    layer, head = frame.facts["layer"], frame.facts["head"]
    key = look.of(layer, "unit_keys")
    key = key[head * key.shape[0] // look.of(layer, "new_values").shape[0], -1]
    np.testing.assert_allclose(frame.values("after"), key @ _rule(look, layer, 64)[head], rtol=1e-4, atol=1e-5)


def test_storing_by_hand() -> None:
    k = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    v = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    state = _stored(k, v)  # k1 v1ᵀ, then k2 (v2 - 0.6 v1)ᵀ
    expected = torch.tensor([[1 - 0.36, 0.6], [-0.48, 0.8]], dtype=torch.float64)
    torch.testing.assert_close(state, expected)
    assert _forgotten(state, k[1:], v[1:]) < 1e-12  # what was written last is recalled exactly
    assert _forgotten(k.T @ v, k, v) == pytest.approx(0.6)


@pytest.mark.parametrize("name", ["kda", "hybrid-gated", "hybrid-mla", "hybrid+mqa"])
def test_other_hybrids_are_shown(name: str) -> None:
    assert [frame.key for frame in of(name).frames if frame.absent or not frame.check()] == []


def test_lightning_has_a_state_without_the_rule() -> None:
    lacking = {frame.key: frame.absent for frame in of("lightning").frames if frame.absent}
    assert lacking == dict.fromkeys(("state", "interference", "erase", "decay"), NO_RULE)
    assert all(frame.check() for frame in of("lightning").frames)


@pytest.mark.parametrize("name", ["2017", "sliding-window", "mla", "alibi", "learned-position"])
def test_models_without_a_state_say_so(name: str) -> None:
    lacking = {frame.key: frame.absent for frame in of(name).frames if frame.absent}
    assert lacking == dict.fromkeys(STATE_KEYS, NO_STATE)
    assert all(frame.check() for frame in of(name).frames)


# ---- recall, and the indexer ----


def test_accuracies_are_the_recorded_ones() -> None:
    result, frame = recorded("recall"), at("recall")
    for i, arm in enumerate(ARMS):
        for j, pairs in enumerate(frame.values("pairs").tolist()):
            numbers = result.numbers(arm, {"pairs": pairs}, "accuracy")
            assert frame.values("accuracy")[i, j] == pytest.approx(np.mean(numbers), rel=1e-5)
            assert frame.values("low")[i, j] == pytest.approx(min(numbers), rel=1e-5)
            gains = result.numbers(arm, {"pairs": pairs}, "late gain")
            assert frame.values("late")[i, j] == pytest.approx(np.mean(gains), rel=1e-5)
            assert frame.values("learning")[i, j] == (np.mean(gains) >= settled(arm).less_than)
    assert ("still learning" in frame.caption) == frame.values("learning").any()


def test_an_indexer_of_the_readers_own_is_shown_and_untrained_promises_nothing() -> None:
    frame = of("sparse-attention").frames[-1]
    assert "untrained" in frame.source and "promises no more" in frame.claim.text and frame.check()
    assert "Fork sparse-attention, nano, trained" in at("sparse").source


def test_chosen_are_the_models_own() -> None:
    look, frame = Look.at(subject("sparse")), at("sparse")
    layer = frame.facts["layer"]
    picks = look.seen[f"blocks.{layer}.attention.indexer.chosen"][0]
    assert sorted(np.flatnonzero(frame.values("chosen")[-1]).tolist()) == sorted(picks[-1].tolist())
    weights = look.of(layer, "weights")
    assert float(weights[:, -1].sum(-1).mean()) == pytest.approx(1, abs=1e-4)
    assert ((weights[0] > 0).numpy() <= frame.values("chosen").astype(bool)).all()  # nothing else is read
