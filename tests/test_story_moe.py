"""Figure 8 as data: routing as the model does it, the sum, the counts, the recorded loads, and what a model lacks."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import morph
from morph.config import MoE, NoBalance, SelectionBias
from morph.lab.verdict import Interval
from morph.story import Array, Figure, Frame
from morph.story.measured import run
from morph.story.moe import NO_ROUTER, NO_SHARED, figure
from morph.story.moe_balance import balance_frames, kind_of, loads
from morph.story.moe_counts import dense_counterpart, power
from morph.story.moe_devices import device_counts
from morph.story.moe_layer import middle_layer, route, routed_layers, slices
from morph.story.subject import Subject, subject
from tests.stories import with_array

KEYS = (
    "dense", "experts", "router", "dispatch", "combination", "active", "combinations", "shared", "collapse",
    "auxiliary-loss", "selection-bias", "parallel",
)  # fmt: skip


@cache
def story(seed: int = 0) -> Figure:
    return figure(seed=seed)


def at(key: str, seed: int = 0) -> Frame:
    return story(seed).frames[KEYS.index(key)]


def values(key: str, name: str) -> np.ndarray:
    return at(key).arrays[name].values


# ---- claims ----


@pytest.mark.parametrize("seed", [0, 1])
def test_there_are_twelve_frames_and_their_claims_hold(seed: int) -> None:
    assert tuple(frame.key for frame in story(seed).frames) == KEYS
    for frame in story(seed).frames:
        assert frame.check(), f"{frame.key}: {frame.claim.text}"
        assert not frame.absent
        assert all(array.source for array in frame.arrays.values()), frame.key
    assert len(json.dumps(story(seed).to_dict())) < 150_000


def first_zero(a: np.ndarray) -> np.ndarray:
    a.flat[0] = 0
    return a


def hand_over(table: np.ndarray) -> np.ndarray:
    """Token 0's choice goes to a token that lacks it: the columns add up as before."""
    expert = next(e for e in table[0].nonzero()[0] if not table[:, e].all())
    table[[0, table[:, expert].argmin()], expert] = 0, 1
    return table


def owe(load: np.ndarray) -> np.ndarray:
    """The same mean, with a share below nothing."""
    load[0, 0], load[0, 1] = load[0, 0] - 10, load[0, 1] + 10
    return load


WRONG = [
    ("dense", "sizes", first_zero),
    ("dense", "weights", lambda a: 0 * a),
    ("experts", "expert", lambda a: a + 1),
    ("experts", "chosen", lambda a: np.full_like(a, a[0])),
    ("router", "probabilities", lambda a: a[::-1]),
    ("router", "probabilities", lambda a: 2 * a),
    ("dispatch", "table", lambda a: 1 - a),
    ("dispatch", "load", lambda a: a[::-1]),
    ("dispatch", "table", hand_over),
    ("combination", "sum", lambda a: 1.01 * a),
    ("combination", "error", lambda a: a + 1),
    ("combination", "weights", lambda a: a[:-1]),
    ("active", "active", lambda a: 2 * a),
    ("active", "total", lambda a: a + 1),
    ("active", "total", lambda a: np.full_like(a, a[0])),
    ("active", "released_active", lambda a: 4 * a),
    ("combinations", "combinations", lambda a: a + 1),
    ("combinations", "used", lambda a: a[::-1]),
    ("combinations", "picks", lambda a: 0 * a),
    ("combinations", "stored", first_zero),
    ("shared", "ratio", first_zero),
    ("shared", "table", lambda a: np.ones_like(a)),
    ("collapse", "load", lambda a: np.ones_like(a)),
    ("collapse", "load", lambda a: np.concatenate((2 * a[:1], a[1:]))),
    ("collapse", "load", owe),
    ("auxiliary-loss", "load", lambda a: 2 * a),
    ("auxiliary-loss", "fullest_before", lambda a: 0 * a),
    ("selection-bias", "bias", lambda a: -a),
    ("selection-bias", "fullest_before", lambda a: 0 * a),
    ("parallel", "counts", lambda a: a + 1),
    ("parallel", "crossing", lambda a: 0 * a),
    ("parallel", "counts", lambda a: np.diag(np.full(len(a), a.sum() // len(a)))),
]


@pytest.mark.parametrize(("key", "name", "change"), WRONG, ids=[f"{k}-{n}-{i}" for i, (k, n, _) in enumerate(WRONG)])
def test_every_claim_can_fail(key: str, name: str, change: Any) -> None:
    assert not with_array(at(key), name, change).check()


def test_no_claim_was_left_out() -> None:
    assert {key for key, _, _ in WRONG} == set(KEYS)


# ---- the layer ----


def test_the_routing_is_the_models_own() -> None:
    shown = subject("experts-auxiliary")
    here, layer = route(shown, 16), middle_layer(shown)
    assert routed_layers(shown) == (0, 1, 2, 3) and layer == 2
    moe = shown.model.blocks[layer].feed_forward
    reads: list[torch.Tensor] = []
    hook = moe.register_forward_hook(lambda _, args, out: reads.append(args[0]))  # type: ignore[union-attr]
    with torch.no_grad():
        shown.model(shown.ids(16))
    hook.remove()  # type: ignore[union-attr]
    with torch.no_grad():
        p = (reads[0][0] @ moe.router.logits.weight.T).softmax(-1)  # type: ignore[union-attr, operator]
    np.testing.assert_allclose(here.probabilities, p.numpy(), atol=1e-6)
    top, indices = p.topk(7)
    np.testing.assert_array_equal(here.chosen, indices.numpy())
    np.testing.assert_allclose(here.weights, (7 * top / top.sum(-1, keepdim=True)).numpy(), rtol=1e-5)
    assert here.table.sum() == 16 * 7
    size = np.abs(here.output).max()
    np.testing.assert_allclose(here.parts.sum(1) + here.shared, here.output, atol=1e-5 * size)
    assert np.abs(here.parts.sum(1) - here.output).max() > 0.01 * size, "the shared expert counts"


def test_the_frames_hold_what_the_layer_gave() -> None:
    here = route(subject("experts-auxiliary"), 16)
    np.testing.assert_allclose(values("router", "probabilities"), here.probabilities[-1], atol=1e-6)
    assert set(values("experts", "chosen")) == set(values("combination", "chosen")) == set(here.chosen[-1])
    weight = dict(zip(here.chosen[-1].tolist(), here.weights[-1].tolist()))
    shown = dict(zip(values("combination", "chosen").tolist(), values("combination", "weights").tolist()))
    assert shown == pytest.approx(weight, abs=1e-5)
    np.testing.assert_array_equal(values("dispatch", "table"), values("shared", "table"))
    assert "".join(at("dispatch").facts["tokens"]) == '"""Keep␣the␣long'
    assert f"{values('dispatch', 'load').max()} tokens" in at("dispatch").caption


def test_the_slices_of_a_dense_layer_add_up_to_it() -> None:
    dense = subject(9, size="nano")
    tokens, sizes = slices(dense, 2, 16, 8)
    _, whole = slices(dense, 2, 16, 1)
    with morph.trace(dense.model) as seen:
        dense.model(dense.ids(16))
    np.testing.assert_allclose(whole[:, 0], seen["blocks.2.feed_forward_delta"][0].norm(dim=-1), rtol=1e-5)
    assert sizes.shape == (16, 8) and len(tokens) == 16
    assert (sizes.sum(1) > whole[:, 0]).all(), "lengths of parts are at least the length of the sum"


def test_pairs_are_counted_by_device() -> None:
    chosen = np.array([[0, 1], [0, 3], [2, 3]])
    counts, reach = device_counts(chosen, np.array([0, 0, 1]), n_experts=4, devices=2)
    assert counts.tolist() == [[3, 1], [0, 2]]
    assert reach == pytest.approx((1 + 2 + 1) / 3)
    frame = at("parallel")
    assert frame.arrays["counts"].values.sum() == 4 * 64 * 7
    assert f"{100 * frame.arrays['crossing'].values:.0f}%" in frame.caption


def test_a_selection_bias_is_part_of_the_choice() -> None:
    frame = figure(model="experts").frames[KEYS.index("router")]
    p, bias = frame.arrays["probabilities"].values, frame.arrays["bias"].values
    assert set(frame.arrays["chosen"].values) == set(np.argsort(-(p + bias))[:7])
    assert "a selection bias added" in frame.caption and frame.check()
    assert not with_array(frame, "bias", lambda a: -100 * a).check()
    assert "bias" not in at("router").arrays


# ---- counts ----


def test_counts_are_those_of_the_published_models() -> None:
    total, active = values("active", "released_total"), values("active", "released_active")
    assert [f"{n / 1e9:.1f}" for n in total] == ["46.7", "30.5", "235.1"]
    assert [f"{n / 1e9:.1f}" for n in active] == ["12.9", "3.4", "22.2"]
    assert values("active", "total").tolist() == [morph.count(morph.stage(k, "nano")).total for k in range(9, 14)]


def test_combinations_are_at_equal_cost_where_it_says_so() -> None:
    assert values("combinations", "combinations").tolist() == [28, 10_518_300, math.comb(256, 8)]
    assert at("combinations").facts["ways"] == ["28", "10,518,300", "4.1\u00a0×\u00a010¹⁴"]
    stored, used = values("combinations", "stored"), values("combinations", "used")
    coarse = morph.stage(10, "nano").feed_forward
    assert isinstance(coarse, MoE)
    assert stored.tolist() == [3 * 48 * 8 * coarse.expert.width] * 3
    assert (used[0] / used).tolist() == [1, 1, 8]
    assert np.isnan(values("combinations", "picks")[0, 8:]).all()


def test_the_dense_counterpart_weighs_what_a_token_uses() -> None:
    for stage in (10, 11, 12, 13):
        config = morph.stage(stage, "nano")
        moe = config.feed_forward
        assert isinstance(moe, MoE)
        router = config.n_layers * config.d_model * moe.n_experts
        assert morph.count(dense_counterpart(config)).total == morph.count(config).active.all - router
    assert dense_counterpart(morph.stage(9)) == morph.stage(9)


def test_how_counts_read() -> None:
    assert [power(n) for n in (28, 999_999_999, 10**9)] == ["28", "999,999,999", "1.0\u00a0×\u00a010⁹"]


# ---- training runs ----


def trained(kind: str, load: list[list[list[float]]], bias: list[list[list[float]]] | None = None) -> Subject:
    """An untrained model with an invented history, to hold the arithmetic against."""
    slug = {"bias": 13, "loss": 12, "none": "unbalanced"}[kind]
    records: list[dict[str, Any]] = [{"step": 1, "bits_per_byte": 8.0}]
    for i, share in enumerate(load):
        record = {"step": 10 * (i + 1), "expert_load": share, "validation_bits_per_byte": 3.0}
        records.append(record | ({"selection_bias": bias[i]} if bias else {}))
    return replace(subject(slug, size="nano"), metrics=tuple(records), name="a made-up run")


def shares(*loads: float) -> list[list[float]]:
    """Shares of 32 experts in 4 layers: `loads` of the first ones of layer 2, relative to even."""
    rest = (32 - sum(loads)) / (32 - len(loads))
    even = [1 / 32] * 32
    return [even, even, [x / 32 for x in (*loads, *[rest] * (32 - len(loads)))], even]


def test_loads_are_read_relative_to_an_even_share() -> None:
    found = loads(trained("none", [shares(1.0), shares(4.0, 0.1, 0.0)]))
    assert found is not None
    assert found.steps.tolist() == [10, 20]
    assert found.load[1, :3] == pytest.approx([4.0, 0.1, 0.0])
    assert found.fullest[1] == pytest.approx([1, 1, 4, 1])
    assert (found.peak, found.starved, found.bias) == (pytest.approx(4.0), 2, None)
    assert loads(subject(13, size="nano")) is None
    assert loads(replace(subject(9, size="nano"), metrics=({"step": 1},))) is None


def test_captions_say_what_the_run_did() -> None:
    dead = balance_frames({"none": trained("none", [shares(4.0, 0.0)])})[0]
    assert "4.0 times an even share, of 4.6 possible; 1 of 32" in dead.caption
    assert "1 gets nothing." in dead.caption
    assert dead.check(), "of one run alone only the arithmetic is claimed"
    partly = balance_frames({"none": trained("none", [shares(4.0, 0.1)])})[0]
    assert "None is dead: a partial collapse." in partly.caption
    even = balance_frames({"none": trained("none", [shares(1.0)])})[0]
    assert "0 of 32 get under a quarter. No collapse." in even.caption
    both = balance_frames(
        {"none": trained("none", [shares(4.0, 0.1)]), "loss": trained("loss", [shares(2.0)])},
    )
    of_lab = [run("router-collapse").summary(arm, {}, "fullest expert over even") for arm in ("none", "auxiliary loss")]
    none, loss = (f"{interval.mean:.1f}" for interval in of_lab if isinstance(interval, Interval))
    assert f"ends at 2.0, not 4.0 times an even share. In the lab (3 seeds) {loss}, not {none}." in both[1].caption
    dead = run("router-collapse").summary("none", {}, "dead experts")
    assert isinstance(dead, Interval) and f"{dead.mean:.1f} of 16 get under a tenth." in both[0].caption
    assert both[1].check()
    assert not with_array(both[1], "lab", lambda v: v[::-1]).check(), "in the lab it helps too"
    worse = balance_frames({"none": trained("none", [shares(2.0)]), "loss": trained("loss", [shares(3.0)])})
    assert not worse[1].check(), "a loss that does not help is not claimed to"


def test_biases_are_shown_beside_the_loads() -> None:
    rows = [[[0.0] * 32] * 4, [[-0.01] + [0.01] * 31] * 4]
    frame = balance_frames({"bias": trained("bias", [shares(3.0), shares(1.5)], rows)})[2]
    assert frame.arrays["bias"].values[:, 0].tolist() == [0.0, -0.01]
    assert "1.50 times an even share." in frame.caption
    assert at("selection-bias").arrays["bias"].values.shape == at("selection-bias").arrays["load"].values.shape


def test_recorded_runs_are_named_and_as_long() -> None:
    for key, words in (("collapse", "unbalanced"), ("auxiliary-loss", "stage 12"), ("selection-bias", "stage 13")):
        frame = at(key)
        assert words in frame.source.lower()
        assert frame.arrays["load"].values.shape == (len(frame.arrays["steps"].values), 32)
        assert f"{frame.facts['bits']:.3f} bits" in frame.source


def test_the_kind_of_balance() -> None:
    moe = morph.stage(12, "nano").feed_forward
    assert isinstance(moe, MoE)
    assert kind_of(moe) == "loss"
    assert kind_of(replace(moe, balance=NoBalance())) == "none"
    assert kind_of(replace(moe, balance=SelectionBias())) == "bias"


# ---- a reader's model ----


def test_a_model_without_a_router_says_so() -> None:
    made = figure(model=morph.build(morph.stage(5, "nano")))
    assert tuple(frame.key for frame in made.frames) == KEYS
    for frame in made.frames:
        assert frame.absent == ("" if frame.key in ("dense", "active", "combinations") else NO_ROUTER), frame.key
        assert frame.check()
    assert made.frames[5].arrays["total"].values.tolist() == made.frames[5].arrays["active"].values.tolist()
    assert "Every parameter of this model is active." in made.frames[5].caption


@pytest.mark.parametrize("stage", [10, 14])
def test_a_readers_routed_model_is_shown_and_what_it_lacks_is_said(stage: int) -> None:
    made = figure(model=stage, seed=3)
    frames = {frame.key: frame for frame in made.frames}
    assert all(frame.check() for frame in made.frames)
    assert frames["dispatch"].facts["n_experts"] == (8 if stage == 10 else 32)
    assert f"stage {stage}" in frames["dispatch"].source.lower()
    assert frames["shared"].absent == (NO_SHARED if stage == 10 else "")
    own, other = ("auxiliary-loss", "selection-bias") if stage == 10 else ("selection-bias", "auxiliary-loss")
    assert "No training of this model was recorded" in frames[own].absent
    assert "was balanced by" in frames[other].absent and "was balanced by" in frames["collapse"].absent


@pytest.mark.parametrize(
    "slug", ["sigmoid-router", "group-limited-router", "switch-top-1", "shared-expert-gate", "dense-first"]
)
def test_every_router_and_mixture_can_be_shown(slug: str) -> None:
    frames = {frame.key: frame for frame in figure(model=slug).frames}
    assert all(frame.check() for frame in frames.values())
    assert not frames["combination"].absent and not frames["dense"].absent
    assert ("a score" in frames["router"].caption) == (slug in ("sigmoid-router", "group-limited-router"))
    assert frames["experts"].facts["top_k"] == (1 if slug == "switch-top-1" else 7)


def test_the_seed_moves_the_passage_and_the_model() -> None:
    assert (
        at("router", 0).arrays["probabilities"].values.tolist()
        != at("router", 1).arrays["probabilities"].values.tolist()
    )
    assert at("router", 0).facts["tokens"] != at("router", 1).facts["tokens"]


def test_arrays_have_named_axes() -> None:
    assert at("dispatch").arrays["table"].axes == ("token", "expert")
    assert at("parallel").arrays["counts"].axes == ("from device", "to device")
    assert isinstance(at("collapse").arrays["load"], Array)
