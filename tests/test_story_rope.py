"""Figure 3 as data: claims on two seeds, and every number against another way to compute it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import morph
from morph.config import Attention, Interleaved, LearnedPosition, NoPosition, SlidingWindow
from morph.errors import MorphError
from morph.measure.trace import trace
from morph.story import Figure, Frame, figure
from morph.story.rope_layer import layers, pairs, unplaced
from morph.story.rope_lengths import geometric, unseen
from morph.story.rope_pairs import KEY_AT, QUERY_AT, Live
from morph.story.subject import Subject, subject
from morph.story.written import many
from tests.stories import with_array

KEYS = (
    "shuffle", "sinusoid", "learned", "requirement", "query", "key", "slide", "clocks", "wavelengths", "distance",
    "base", "longer",
)  # fmt: skip
NEEDS_ROTATION = ("query", "key", "slide", "clocks", "wavelengths", "distance", "longer")


@pytest.fixture(scope="module")
def made() -> Figure:
    return figure("rope")


@pytest.fixture(scope="module")
def shown() -> Subject:
    return subject("windows")


@pytest.fixture(scope="module")
def live(shown: Subject) -> Live:
    layer = layers(shown, 128)[3]
    assert layer.rope is not None
    return Live.of(shown, layer, layer.rope)


def _frame(made: Figure, key: str) -> Frame:
    return next(frame for frame in made.frames if frame.key == key)


def _values(frame: Frame, name: str) -> np.ndarray:
    return frame.arrays[name].values


def test_twelve_frames_in_order(made: Figure) -> None:
    assert tuple(frame.key for frame in made.frames) == KEYS
    assert (made.name, made.number, made.opening) == ("rope", 3, None)
    assert not any(frame.absent for frame in made.frames)
    assert all(array.source for frame in made.frames for array in frame.arrays.values())


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("seed", [0, 1])
def test_claims_hold_on_two_seeds(seeds: dict[int, Figure], seed: int, key: str) -> None:
    frame = _frame(seeds[seed], key)
    assert frame.check(), frame.claim.text


@pytest.fixture(scope="module")
def seeds(made: Figure) -> dict[int, Figure]:
    return {0: made, 1: figure("rope", seed=1)}


def _nudge(values: np.ndarray) -> np.ndarray:
    values.flat[values.size // 2 + 1] += 0.01
    return values


def _bend(values: np.ndarray) -> np.ndarray:
    values[-1] *= 1.01
    return values


def _times(*index: int, by: float) -> Callable[[np.ndarray], None]:
    """Multiplies one number."""
    return lambda values: values.__setitem__(index, values[index] * by)


WRONG: list[tuple[str, str, Callable[[np.ndarray], np.ndarray | None]]] = [
    ("shuffle", "open_change", _nudge),
    ("shuffle", "causal_change", np.zeros_like),
    ("sinusoid", "meeting", _nudge),
    ("learned", "places", lambda v: v + 1),
    ("requirement", "turned", _nudge),
    ("requirement", "added", np.zeros_like),
    ("query", "query", _bend),
    ("key", "key", _bend),
    ("key", "key", _times(1, 0, by=1.01)),  # a stumble on the way, made good at its end
    ("key", "query", _times(1, 0, by=1.01)),
    ("slide", "both", _nudge),
    ("slide", "whole", _nudge),
    ("slide", "alone", np.zeros_like),
    ("clocks", "speeds", _bend),
    ("clocks", "speeds", lambda v: 2 * v),
    ("clocks", "speeds", lambda v: 0.5 ** -np.arange(len(v)) / 2.0 ** len(v)),  # each faster than the one before
    ("wavelengths", "wavelengths", _bend),
    ("wavelengths", "speeds", _bend),
    ("distance", "mean", lambda v: -v),
    ("distance", "low", lambda v: v + 100),
    ("distance", "high", lambda v: v - 100),
    ("base", "wavelengths", lambda v: v[::-1]),
    ("base", "wavelengths", _times(-1, 0, by=1.01)),  # the fastest pair turns otherwise
    ("base", "wavelengths", _times(-2, -1, by=100)),  # a smaller base turns slower
    ("base", "lengths", lambda v: v * 10),
    ("longer", "speeds", lambda v: v[[1, 0, 2, 3]]),
    ("longer", "speeds", _times(1, 0, by=1.01)),  # the fastest pair is not left alone
    ("longer", "speeds", _times(1, -1, by=0.5)),  # the slowest is slowed by more than the factor
    ("longer", "speeds", lambda v: np.maximum(v, 1e-3)),  # no position, and still it turns
    ("longer", "seen", lambda v: v * 0.9),
    ("longer", "seen", lambda v: v.__setitem__(0, 7.0)),  # nothing is new without a change
    ("longer", "lab", lambda v: v[[1, 0, 2]]),  # the lab's YaRN loses more than RoPE
]


@pytest.mark.parametrize(("key", "name", "change"), WRONG, ids=[f"{k}-{n}-{i}" for i, (k, n, _) in enumerate(WRONG)])
def test_every_claim_can_fail(
    made: Figure, key: str, name: str, change: Callable[[np.ndarray], np.ndarray | None]
) -> None:
    assert {k for k, _, _ in WRONG} == set(KEYS)
    assert not with_array(_frame(made, key), name, change).check()


def test_the_figure_is_small_and_survives_its_file(made: Figure) -> None:
    text = json.dumps(made.to_dict())
    assert len(text) < 400_000
    assert Figure.from_dict(json.loads(text)).to_dict() == made.to_dict()


# ---- the layer is the model's own ----


def test_the_copied_layer_does_what_the_model_did(shown: Subject, live: Live) -> None:
    with torch.no_grad(), trace(shown.model) as seen:
        shown.model(shown.ids(128))
    mine = live.layer.attend(live.layer.x, live.rope)
    for name in ("queries", "keys", "weights", "heads"):
        np.testing.assert_allclose(mine[name], seen[f"blocks.3.attention.{name}"][0], atol=2e-4)


def test_a_product_of_complex_numbers_is_the_models_rotation(live: Live) -> None:
    turned = live.layer.attend(live.layer.x, live.rope)
    n = len(live.speeds)
    expected = pairs(live.layer.attend(live.layer.x, None)["queries"], n)
    angles = np.arange(128)[:, None] * live.speeds
    np.testing.assert_allclose(pairs(turned["queries"], n), expected * np.exp(1j * angles), atol=1e-12)


def test_scores_follow_from_unturned_pairs_and_the_offset(live: Live) -> None:
    """What frames 7 and 10 are made of gives back the scores of the layer's own forward pass."""
    traced = live.layer.attend(live.layer.x, live.rope)["scores"]
    for head, m, n in ((0, 100, 97), (1, 127, 0), (3, 64, 64)):
        q, k = live.queries[head, m], live.keys[head, n]
        score = (q * k.conj() * np.exp(1j * live.speeds * (m - n))).real.sum() + live.rest[head, m, n]
        assert score * 24**-0.5 == pytest.approx(traced[head, m, n], abs=1e-12)


def test_features_that_do_not_turn_stay_in_the_score() -> None:
    found = subject("partial-rope")
    layer = layers(found, 40)[-1]
    assert layer.rope is not None
    half = Live.of(found, layer, layer.rope)
    assert 2 * len(half.speeds) < layer.attention.head_dim
    traced = layer.attend(layer.x, layer.rope)["scores"]
    score = (half.queries[2, 30] * half.keys[2, 11].conj() * np.exp(1j * half.speeds * 19)).real.sum()
    assert (score + half.rest[2, 30, 11]) * 24**-0.5 == pytest.approx(traced[2, 30, 11], abs=1e-12)


# ---- frames 1 to 4 ----


def test_the_shuffle_is_what_a_model_without_position_does(made: Figure, shown: Subject) -> None:
    """Frame 1's causal change, from two passes of the whole model with its position taken out."""
    frame = _frame(made, "shuffle")
    order = _values(frame, "order")
    bare = morph.build(replace(shown.config, position=NoPosition())).eval()
    bare.load_state_dict(shown.model.state_dict())
    text = shown.ids(128)[0].tolist()
    start = "".join(map(chr, text)).index("".join(frame.facts["words"]).replace("␣", " "))
    ids = torch.tensor([text[start : start + 8]])
    heads = []
    for tokens in (ids, ids[:, order]):
        with torch.no_grad(), trace(bare) as seen:
            bare(tokens)
        heads.append(seen["blocks.0.attention.heads"][0].double().numpy())
    change = np.linalg.norm((heads[1] - heads[0][:, order]).transpose(1, 0, 2).reshape(8, -1), axis=1)
    size = np.linalg.norm(heads[0][:, order].transpose(1, 0, 2).reshape(8, -1), axis=1)
    np.testing.assert_allclose(_values(frame, "causal_change"), change / size, atol=1e-4)
    assert sorted(order) == list(range(8)) and (order != np.arange(8)).all()
    followed = int(_values(frame, "causal_change").argmax())
    np.testing.assert_allclose(
        np.sort(_values(frame, "open_before")), np.sort(_values(frame, "open_after")), atol=1e-12
    )
    assert order[followed] == frame.facts["token"]
    assert (_values(frame, "causal_after")[followed + 1 :] == 0).all()


def test_an_added_position_is_taken_out_before_the_shuffle() -> None:
    added = subject(0, size="nano")
    bare = unplaced(added)
    assert isinstance(bare.config.position, NoPosition)
    assert torch.equal(bare.model.embedding.weight, added.model.embedding.weight)
    same = torch.full((1, 6), 101)
    with torch.no_grad(), trace(bare.model) as seen:
        bare.model(same)
    rows = seen["blocks.0.attention.projected_queries"][0]
    assert torch.allclose(rows, rows[:, :1].expand_as(rows))
    rotating = subject(9, size="nano")
    assert unplaced(rotating) is rotating


def test_the_added_wave_is_the_models(made: Figure) -> None:
    table = _values(_frame(made, "sinusoid"), "table")
    place, wave = 37, 5
    assert table[place, wave] == pytest.approx(np.sin(place * 10_000 ** (-2 * wave / 96)), abs=1e-4)
    meeting = _values(_frame(made, "sinusoid"), "meeting")
    expected = np.cos(11 * 10_000 ** (-2 * np.arange(48) / 96)).mean()
    assert meeting[40, 29] == pytest.approx(expected)


def test_the_missing_row_is_refused_by_the_model_itself(made: Figure) -> None:
    frame = _frame(made, "learned")
    assert re.search(r"position 128 is beyond the last row, 127", frame.facts["refusal"])
    assert _values(frame, "places").tolist() == list(range(122, 128))
    assert "12,288 parameters" in frame.caption
    assert not replace(frame, facts={**frame.facts, "refusal": ""}).check(), "a model that reads on claims nothing"


def test_a_learned_table_of_the_readers_own_is_shown() -> None:
    own = morph.build(morph.fork("learned-position", size="nano"), seed=4)
    frame = _frame(figure("rope", model=own), "learned")
    assert own.positions is not None
    np.testing.assert_allclose(_values(frame, "rows"), own.positions.weight.detach()[-6:, :24], atol=1e-4)
    assert frame.source == "your model."


def test_the_requirements_scores_are_the_layers(made: Figure, shown: Subject) -> None:
    """One cell of each map of frame 4, from the layer's matrices by hand."""
    layer = layers(shown, 128)[0]
    frame = _frame(made, "requirement")
    text = "".join(map(chr, layer.ids))
    a, b = (text.index(word) for word in frame.facts["words"])
    m, n = 9, 2

    def head(x: torch.Tensor, weight: torch.Tensor, gain: torch.Tensor) -> np.ndarray:
        row = weight[:24] @ x
        return np.asarray((gain * row / torch.sqrt(row.square().mean() + 1e-5)).detach())

    attention = layer.attention
    assert attention.q_norm is not None and attention.k_norm is not None
    wave = [torch.tensor(_wave(place, 96)) for place in (m, n)]
    q = head(layer.x[a] + wave[0], attention.q_proj.weight, attention.q_norm.weight)
    k = head(layer.x[b] + wave[1], attention.k_proj.weight, attention.k_norm.weight)
    assert _values(frame, "added")[m, n] == pytest.approx(q @ k * 24**-0.5)
    q = head(layer.x[a], attention.q_proj.weight, attention.q_norm.weight)
    k = head(layer.x[b], attention.k_proj.weight, attention.k_norm.weight)
    turn = np.exp(1j * layer.speeds * (m - n))
    score = (pairs(q, 12) * pairs(k, 12).conj() * turn).real.sum() * 24**-0.5
    assert _values(frame, "turned")[m, n] == pytest.approx(score)


def _wave(place: int, width: int) -> np.ndarray:
    angles = place * 10_000 ** (-np.arange(0, width, 2) / width)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).ravel()


# ---- frames 5 to 9 ----


def test_the_turned_pair_is_a_live_one(made: Figure, live: Live) -> None:
    frame = _frame(made, "slide")
    facts = frame.facts
    content = live.layer.attend(live.layer.x, None)
    m, n = live.tokens
    q = content["queries"][facts["head"], m, [facts["pair"], facts["pair"] + 12]]
    k = content["keys"][facts["head"] // 2, n, [facts["pair"], facts["pair"] + 12]]
    np.testing.assert_allclose(_values(frame, "query")[0], q)
    angle = facts["speed"] * (QUERY_AT - KEY_AT)
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ q
    assert facts["score"] == pytest.approx(turned @ k)
    assert f"{facts['score']:.3f}" in frame.caption
    assert facts["words"] == [chr(live.layer.ids[m]), chr(live.layer.ids[n])]


def test_clocks_and_their_wavelengths(made: Figure) -> None:
    clocks, waves = _frame(made, "clocks"), _frame(made, "wavelengths")
    np.testing.assert_allclose(_values(clocks, "speeds"), 10_000.0 ** (-np.arange(12) / 12))
    np.testing.assert_allclose(_values(clocks, "turns"), 32 * _values(clocks, "speeds") / (2 * np.pi))
    found = _values(waves, "wavelengths")
    assert (found[0], found[-1]) == (pytest.approx(2 * np.pi), pytest.approx(2 * np.pi * 10_000 ** (22 / 24)))
    assert waves.facts["full"] == 4
    assert "4 of 12" in waves.caption
    assert not replace(waves, facts={**waves.facts, "full": 5}).check()


# ---- frames 10 to 12 ----


def test_the_mean_over_all_pairs_is_the_mean(made: Figure, live: Live) -> None:
    frame = _frame(made, "distance")
    by_hand = [
        (q * k.conj() * np.exp(1j * 20 * live.speeds)).real.sum() * 24**-0.5
        for q in live.queries[1] for k in live.keys[1]
    ]  # fmt: skip
    assert _values(frame, "mean")[1, 20] == pytest.approx(np.mean(by_hand), abs=1e-5)
    assert _values(frame, "high")[1, 20] == pytest.approx(np.percentile(by_hand, 90), abs=1e-5)


def test_the_caption_on_distance_says_what_the_curves_do(made: Figure) -> None:
    frame = _frame(made, "distance")
    mean = _values(frame, "mean")
    steady = sum(bool((np.diff(head) < 0).all()) for head in mean)
    assert f"{many(steady, 4)} fall at every step" in frame.caption
    assert f"Of 4 heads {many(sum(head.argmax() < 8 for head in mean), 4)} peak" in frame.caption
    fresh = _frame(figure("rope", model=morph.stage(9, "nano")), "distance")
    assert fresh.caption.startswith("Untrained")


def test_the_slowest_turn_is_not_two_pi_times_the_base(made: Figure) -> None:
    frame = _frame(made, "base")
    llama = _values(frame, "wavelengths")[1]
    assert llama[-1] == pytest.approx(54_410, abs=1)  # 2π b would be 62,832
    assert frame.facts["full"] == [4, 46, 35, 40]
    assert "54,410" in frame.caption
    np.testing.assert_allclose(2 * np.pi / geometric(500_000.0, 128), _values(frame, "wavelengths")[2])


def test_new_angles_are_those_no_trained_place_came_near(made: Figure) -> None:
    """By brute force: a hand is new when no place of a trained text, whole or not, puts it there."""
    frame = _frame(made, "longer")
    speeds = _values(frame, "speeds")[0]
    places = np.linspace(0, 128, 200_001)
    for pair, speed in enumerate(speeds):
        gap = np.abs(np.exp(1j * places * speed) - np.exp(1j * 512 * speed)).min()
        new = bool(unseen(_values(frame, "hand")[0], _values(frame, "seen")[0])[pair])
        assert (gap > 1e-3 * min(1, 128 * speed)) == new
    assert frame.facts["new"][:2] == [7, 0]
    showing = with_array(frame, "seen", lambda v: v.__setitem__(1, v[0]))  # interpolated, and new angles all the same
    showing = with_array(showing, "hand", lambda v: v.__setitem__(1, v[0]))
    assert not replace(showing, facts={**frame.facts, "new": [7, 7, *frame.facts["new"][2:]]}).check()
    assert frame.facts["turned"] == [12, 12, 6, 0]


# ---- other models ----


@pytest.mark.parametrize("model", ["0", "nope", "alibi", "learned-position"])
def test_a_model_that_does_not_rotate_says_so(model: str) -> None:
    config = morph.stage(0, "nano") if model == "0" else morph.fork(model, "nano")
    found = figure("rope", model=config)
    for frame in found.frames:
        assert frame.check(), frame.key
        assert (frame.key in NEEDS_ROTATION) == bool(frame.absent)
        if frame.absent:
            assert type(config.position).__name__ in frame.absent and not frame.arrays
    assert len(_values(_frame(found, "base"), "lengths")) == 3  # the published models alone


@pytest.mark.parametrize("model", ["nope-global", "yarn", "partial-rope", "dual-rope-base"])
def test_forks_that_rotate_are_measured(model: str) -> None:
    found = figure("rope", model=morph.fork(model, "nano"), seed=1)
    assert all(frame.check() for frame in found.frames)
    assert not any(frame.absent for frame in found.frames)
    if model == "nope-global":
        assert _frame(found, "clocks").arrays["speeds"].source.startswith("blocks.2.")  # the last layer that turns


def test_a_hybrid_is_asked_in_its_softmax_layer() -> None:
    found = figure("rope", model=morph.stage(14, "nano"))
    assert all(frame.check() for frame in found.frames)
    assert _frame(found, "shuffle").facts["layer"] == 3


@pytest.mark.parametrize("fork", ["", "learned-position"])
def test_a_model_of_short_texts(fork: str) -> None:
    """Shorter than the eight tokens that are shuffled; a learned table has four rows, what rotates can read on."""
    config = morph.fork(fork, "nano") if fork else morph.stage(9, "nano")
    short = replace(config, context_length=4, position=LearnedPosition(length=4) if fork else config.position)
    found = figure("rope", model=short)
    assert all(frame.check() for frame in found.frames)
    assert len(_values(_frame(found, "shuffle"), "order")) == 8
    np.testing.assert_array_equal(_values(_frame(found, "learned"), "places"), range(4))
    assert len(_values(_frame(found, "learned"), "rows")) == 4


def test_a_model_of_long_texts_makes_no_larger_figure() -> None:
    found = figure("rope", model=replace(morph.stage(9, "nano"), context_length=100_000))
    assert all(frame.check() for frame in found.frames)
    assert len(_values(_frame(found, "slide"), "both")) == 513
    assert len(json.dumps(found.to_dict())) < 400_000


def test_a_layer_that_sees_itself_alone_has_no_order_to_lose() -> None:
    alone = Interleaved(n_local=3, local=SlidingWindow(window=1))
    frame = _frame(figure("rope", model=replace(morph.stage(9, "nano"), layout=alone)), "shuffle")
    assert frame.absent.startswith("A shuffle changes the outputs of layer 0 by less than 1 %")


def test_a_head_of_one_pair() -> None:
    narrow = replace(morph.stage(4, "nano"), d_model=8, attention=Attention(n_heads=4, n_kv_heads=4))
    found = figure("rope", model=narrow)
    assert all(frame.check() for frame in found.frames)
    assert "one pair" in _frame(found, "longer").absent


def test_an_unknown_model_is_one_clear_line() -> None:
    with pytest.raises(MorphError, match="is no folder of a run or checkpoint, no stage and no fork"):
        figure("rope", model="windowz")
