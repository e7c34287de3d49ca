"""Figure 2 as data: claims on live models of two seeds, wrong data refused, captions that carry their numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import morph
from morph.errors import MorphError
from morph.story import Figure, Frame, figure
from morph.story.residual_norms import FACTORS, PLACEMENTS
from morph.story.stream import (
    apart,
    cosines,
    cross_share,
    divisions,
    fitted,
    gradients,
    louder,
    passed_on,
    read,
    rebuilt,
)
from morph.story.subject import subject
from morph.story.written import small
from tests.stories import with_array

KEYS = (
    "bus", "attention", "feed-forward", "sum", "sizes", "growth", "angles", "shares",
    "post-norm", "pre-norm", "bounded", "gradient", "depth-scaled",
)  # fmt: skip
SEEDS = (0, 1)


@cache
def made(seed: int = 0) -> Figure:
    """The figure of the recorded model."""
    return figure("residual", seed=seed)


@cache
def of(name: str) -> Figure:
    """The figure of a small fresh model."""
    return figure("residual", model=subject(name, size="nano").config)


def at(key: str, seed: int = 0) -> Frame:
    return made(seed).frames[KEYS.index(key)]


def test_there_are_thirteen_frames() -> None:
    assert tuple(frame.key for frame in made().frames) == KEYS
    assert (made().number, made().opening) == (2, None)
    assert made().provenance["tokens"] == 64


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("seed", SEEDS)
def test_claims_hold_on_live_models(seed: int, key: str) -> None:
    frame = at(key, seed)
    assert frame.check(), f"{key}: {frame.claim.text}"
    assert all(array.source for array in frame.arrays.values())


def flip(values: np.ndarray) -> np.ndarray:
    return values[..., ::-1]


WRONG: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "bus": ("embedding", lambda v: v + 0.01),
    "attention": ("delta", lambda v: -v),
    "feed-forward": ("after", lambda v: v + 0.01),
    "sum": ("deltas", lambda v: v[:, :-1]),
    "sizes": ("feed_forward", lambda v: v * 0.05),
    "growth": ("first_rms", lambda v: v * np.linspace(1, 2, len(v))),
    "angles": ("cosines", flip),
    "shares": ("attention", flip),
    "post-norm": ("left", lambda v: np.ones_like(v)),
    "pre-norm": ("left", lambda v: v * 0.99),
    "bounded": ("sandwich", lambda v: v * np.array(FACTORS)),
    "gradient": ("post", np.ones_like),
    "depth-scaled": ("depth-scaled-sandwich", lambda v: v * 1.3),
}


@pytest.mark.parametrize("key", KEYS)
def test_every_claim_can_fail(key: str) -> None:
    name, change = WRONG[key]
    frame = at(key)
    assert not with_array(frame, name, change).check(), frame.claim.text


def one(index: int, to: float) -> Callable[[np.ndarray], None]:
    return lambda values: values.__setitem__(index, to)


@pytest.mark.parametrize(
    ("key", "name", "change"),
    [
        ("sizes", "attention", one(0, 0.05)),
        ("shares", "feed_forward", flip),
        ("bounded", "post-branch", WRONG["bounded"][1]),
        ("bounded", "pre", np.ones_like),
        ("gradient", "depth-scaled-sandwich", one(1, 100.0)),
        ("gradient", "sandwich", one(-1, 2.0)),
        ("depth-scaled", "sandwich", lambda v: v * 1.3),
        ("depth-scaled", "lab", lambda v: v[::-1]),
    ],
)
def test_each_part_of_a_claim_can_fail(key: str, name: str, change: Callable[[np.ndarray], Any]) -> None:
    assert at(key).check() and not with_array(at(key), name, change).check(), at(key).claim.text


@pytest.mark.parametrize("key", ["sum", "post-norm", "pre-norm"])
def test_a_sum_with_an_error_is_refused(key: str) -> None:
    assert not with_array(at(key), "error", lambda v: v + 0.01).check()


@pytest.mark.parametrize("fact", ["mean", "random_spread", "first_spread"])
def test_wrong_cosines_are_refused(fact: str) -> None:
    frame = at("angles")
    assert not dataclasses.replace(frame, facts={**frame.facts, fact: frame.facts[fact] * 1.5}).check()


def test_captions_carry_the_numbers_of_their_arrays() -> None:
    assert f"a delta of RMS {at('attention').facts['rms']['delta']:.2f}" in at("attention").caption
    assert small(float(at("sum").arrays["error"].values)) in at("sum").caption
    low, high = (at("sizes").arrays["feed_forward"].values.min(), at("sizes").arrays["feed_forward"].values.max())
    assert f"feed-forward {low:.2f} to {high:.2f}" in at("sizes").caption
    worst = at("growth").facts["worst"]
    off = at("growth").arrays["curve"].values[worst] / at("growth").arrays["rms"].values[worst] - 1
    assert f"{abs(off):.0%} too high after layer {worst}" in at("growth").caption
    assert f"cosine is {at('angles').facts['mean']:.2f}" in at("angles").caption
    assert small(float(at("post-norm").arrays["left"].values[-1])) in at("post-norm").caption
    ratio = at("pre-norm").arrays["rms"].values[-1] / at("pre-norm").arrays["rms"].values[0]
    assert f"grows {ratio:.1f}-fold" in at("pre-norm").caption
    assert f"{at('gradient').arrays['post'].values[1]:.0f} times the top’s under post-norm" in at("gradient").caption
    assert made(0).frames[11].caption != made(1).frames[11].caption


def test_every_frame_says_whether_it_is_trained() -> None:
    for frame in made().frames:
        index = KEYS.index(frame.key)
        state = "trained" if index < 4 else "trained and as initialized" if index < 8 else "as initialized"
        assert frame.facts["aside"] == f"24 layers, {state}"
        assert frame.facts["trained"] == (index < 8)
    assert "first_rms" not in of("qk-norm").frames[5].arrays
    assert {frame.facts["aside"] for frame in of("qk-norm").frames} == {"4 layers, as initialized"}


def test_the_followed_feature_adds_up_on_screen() -> None:
    for key in ("attention", "feed-forward"):
        feature = at(key).facts["feature"]
        assert feature["before"] + feature["delta"] == pytest.approx(feature["after"], abs=1e-9)
        assert feature["before"] == pytest.approx(at(key).arrays["before"].values[feature["index"]], abs=5e-3)


@pytest.mark.parametrize("model", ["2017", "post-branch-norm", "parallel-block", "loss-free-balance", "hybrid"])
def test_any_model_gets_its_frames(model: str) -> None:
    frames = of(model).frames
    gone = {frame.key for frame in frames if frame.absent}
    assert gone == {"2017": {"attention", "feed-forward", "sum", "growth"}, "parallel-block": {"feed-forward"}}.get(
        model, set()
    )
    assert [frame.key for frame in frames if not frame.check()] == []


ONLY_DEEP = {
    "sizes": ("On average the feed-forward network", "The ranges named"),
    "growth": ("As initialized", "The curve misses"),
    "angles": ("As initialized", "The mean is that"), "shares": ("In the last two layers", "The shares named"),
    "post-norm": ("The RMS stays at 1, x₀'s factor", "The RMS stays at 1, and"),
    "pre-norm": ("The factor on x₀ is 1 throughout, the parts", "The factor on x₀ is 1 throughout, and"),
    "gradient": ("Relative to the top", "The gradient at the top is the measure"),
}  # fmt: skip
"""How the claim about the recorded model begins, and the one made where that does not hold."""


@pytest.mark.parametrize("key", ONLY_DEEP)
def test_the_recorded_model_does_what_only_deep_trained_ones_do(key: str) -> None:
    for seed in SEEDS:
        assert at(key, seed).claim.text.startswith(ONLY_DEEP[key][0])


def test_a_model_that_is_otherwise_claims_what_holds_of_it() -> None:
    """One layer, untrained and "trained"; one token; norms that store their gain's distance from 1."""
    flat = dataclasses.replace(morph.stage(13, "nano"), n_layers=1)
    short = dataclasses.replace(morph.stage(9, "nano"), context_length=1)
    models = [flat, morph.build(flat, seed=1), short, morph.fork("zero-centred-norm", "nano")]
    plain = set()
    for model in models:
        for frame in figure("residual", model=model).frames:
            assert frame.check(), f"{frame.key}: {frame.claim.text}"
            json.dumps(dict(frame.facts), allow_nan=False)
            if frame.key in ONLY_DEEP and frame.claim.text.startswith(ONLY_DEEP[frame.key][1]):
                plain.add(frame.key)
                name = {"angles": "cosines", "growth": "curve", "gradient": "pre"}.get(frame.key)
                name = name or ("error" if "norm" in frame.key else "attention")
                assert not with_array(frame, name, lambda v: 1.5 * v + 0.1).check()
    assert plain >= {"growth", "angles", "shares", "post-norm", "pre-norm", "gradient"}


def test_a_branch_that_reads_the_stream_itself_shows_no_copy() -> None:
    frame = of("post-branch-norm").frames[1]
    assert "copy" not in frame.arrays
    assert "before it as the stream has it" in frame.caption
    assert "copy" in at("attention").arrays


def test_a_decoder_of_the_readers_is_shown() -> None:
    config = dataclasses.replace(morph.stage(8, "nano"), n_layers=2)
    mine = figure("residual", model=morph.build(config, seed=3), seed=3)
    assert mine.frames[4].arrays["attention"].values.shape == (2,)
    with pytest.raises(MorphError, match="no folder of a run or checkpoint"):
        figure("residual", model="no-such-model")


# ---- the measurements ----


@cache
def shallow(placement: str) -> Any:
    config = dataclasses.replace(morph.stage(8, "nano"), n_layers=6, placement=placement)
    return read(subject(config, seed=1))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_state_is_the_weighted_sum_of_what_was_written(placement: str) -> None:
    stream = shallow(placement)
    torch.testing.assert_close(rebuilt(stream, passed_on(stream)), stream.states[-1], atol=1e-5, rtol=0)
    assert (passed_on(stream) == 1).all() == (placement != "post")
    torch.testing.assert_close(divisions(stream).prod(0), passed_on(stream)[0])


def test_layer_norm_on_the_stream_takes_the_mean_away_too() -> None:
    config = dataclasses.replace(morph.stage(0, "nano"), n_layers=3)
    stream = read(subject(config))
    torch.testing.assert_close(rebuilt(stream, passed_on(stream)), stream.states[-1], atol=1e-5, rtol=0)


def test_the_fit_finds_the_sigma_of_a_random_walk() -> None:
    stream = shallow("pre")
    depth = torch.arange(len(stream.states)) / 2
    walk = dataclasses.replace(stream)
    walk.__dict__["sizes"] = (1.5**2 + 0.7**2 * depth.double()).sqrt()
    sigma, curve = fitted(walk)
    assert sigma == pytest.approx(0.7, rel=1e-6)
    torch.testing.assert_close(curve, walk.sizes[::2])


def test_cosines_and_cross_terms_of_known_vectors() -> None:
    stream = shallow("pre")
    unit = torch.eye(48)[:13, None, :]
    square = dataclasses.replace(stream, states=torch.cat([unit[:1], unit[1:].cumsum(0) + unit[:1]]), deltas=unit[1:])
    assert apart(cosines(square.deltas)).abs().max() == 0
    assert cross_share(square) == pytest.approx(0, abs=1e-6)
    line = dataclasses.replace(
        stream, states=unit[:1] * torch.arange(1, 14)[:, None, None], deltas=unit[:1].expand(12, -1, -1)
    )
    assert cross_share(line) == pytest.approx(1 - 13 / 13**2, abs=1e-6)
    assert apart(cosines(line.deltas)).tolist() == pytest.approx([1.0] * 66)


def test_gradients_are_those_of_a_cut_graph() -> None:
    """The model cut open after its first layer: what enters there is a leaf, and autograd's own gradient is asked."""
    config = dataclasses.replace(morph.stage(8, "nano"), n_layers=2)
    chosen = subject(config, seed=2)
    lengths = gradients(chosen)
    assert len(lengths) == 3
    assert all(p.grad is None for p in chosen.model.parameters())
    ids, block, held = chosen.ids(65, 4), chosen.model.blocks[0], []

    def cut(_: object, __: object, out: torch.Tensor) -> torch.Tensor:
        held.append(out.detach().requires_grad_())
        return held[0]

    hook = block.register_forward_hook(cut)
    chosen.model.loss(ids[:, :-1], ids[:, 1:]).cross_entropy.backward()
    hook.remove()
    assert held[0].grad is not None
    assert float(lengths[1]) == pytest.approx(float(held[0].grad.norm()), rel=1e-5)


def test_louder_is_a_larger_last_matrix() -> None:
    config = dataclasses.replace(morph.stage(8, "nano"), n_layers=2)
    chosen, other = subject(config, seed=4), subject(config, seed=4)
    by_hook = louder(chosen, 3.0)
    with torch.no_grad():
        for block in other.model.blocks:
            block.get_submodule("attention").get_parameter("o_proj.weight").mul_(3)
            block.get_submodule("feed_forward").get_parameter("down.weight").mul_(3)
    torch.testing.assert_close(by_hook, read(other).writes)
    torch.testing.assert_close(louder(chosen, 1.0), read(chosen).writes)
