"""Figure 6 as data: live caches weighed, both forms of latents, counts of released models, and what a model lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import morph
from morph.config import MLA, Attention, GatedDeltaNet, Interleaved
from morph.forks import config_of
from morph.lab.result import recorded
from morph.measure.decode import unfolded
from morph.story import Figure, Frame
from morph.story.accelerators import ACCELERATORS
from morph.story.kv_cache import figure
from morph.story.kv_cache_heads import ARMS, groups_of, heads_of, latents_of
from morph.story.kv_cache_released import as_mha, kind_of
from morph.story.kv_cache_step import NO_KEYS
from morph.story.kv_cache_weighed import BRANCHES, KINDS, weigh
from morph.story.released import RELEASED
from morph.story.subject import subject
from tests.models import random_ids, stage_model
from tests.stories import with_array

KEYS = (
    "step", "formula", "llama", "intensity", "mha", "mqa", "gqa", "mla", "absorption", "released", "weighed",
)  # fmt: skip


@cache
def story() -> Figure:
    return figure()


def at(key: str) -> Frame:
    return story().frames[KEYS.index(key)]


def values(key: str, name: str) -> np.ndarray:
    return at(key).arrays[name].values


# ---- claims ----


def test_there_are_eleven_frames_and_their_claims_hold() -> None:
    assert tuple(frame.key for frame in story().frames) == KEYS
    for frame in story().frames:
        assert frame.check(), f"{frame.key}: {frame.claim.text}"
        assert not frame.absent
        assert all(array.source for array in frame.arrays.values()), frame.key
    assert len(json.dumps(story().to_dict())) < 150_000


def forget_the_new(held: np.ndarray) -> np.ndarray:
    held[:, -1] = 0
    return held


WRONG = [
    ("step", "read", lambda a: a + 1),
    ("step", "formula", lambda a: 2 * a),
    ("step", "held", forget_the_new),
    ("step", "error", lambda a: a + 1),
    ("formula", "weighed", lambda a: a + 4),
    ("formula", "formula", lambda a: a[::-1]),
    ("llama", "mha", lambda a: a // 2),
    ("llama", "gqa", lambda a: a + 1),
    ("llama", "weights", lambda a: 0 * a),
    ("llama", "memory", lambda a: 2 * a),
    ("intensity", "intensity", lambda a: a + 1),
    ("intensity", "ratio", lambda a: 2 * a),
    ("intensity", "bandwidth", lambda a: 3 * a),
    ("intensity", "measured", lambda a: a * [2, 1]),
    ("mha", "weighed", lambda a: a + 1),
    ("mqa", "formula", lambda a: 2 * a),
    ("mqa", "lab", lambda a: np.stack((a[0], a[1] + 1))),
    ("gqa", "weighed", lambda a: 2 * a),
    ("gqa", "lab", lambda a: np.stack((a[0], a[1] + 1))),
    ("mla", "unfolded", lambda a: a + 1),
    ("mla", "lab", lambda a: a[::-1]),
    ("absorption", "absorbed", lambda a: 1.01 * a),
    ("absorption", "difference", lambda a: a + 0.01),
    ("absorption", "logits", lambda a: a * [[1], [1.01]]),
    ("absorption", "off", lambda a: a[::-1]),
    ("released", "written", lambda a: a[::-1]),
    ("released", "mha", lambda a: 2 * a),
    ("released", "against", lambda a: a + 1),
    ("weighed", "weighed", lambda a: a + 1),
    ("weighed", "formula", lambda a: a[::-1]),
]


@pytest.mark.parametrize(("key", "name", "change"), WRONG, ids=[f"{k}-{n}-{i}" for i, (k, n, _) in enumerate(WRONG)])
def test_every_claim_can_fail(key: str, name: str, change: Any) -> None:
    assert not with_array(at(key), name, change).check()


def test_no_claim_was_left_out() -> None:
    assert {key for key, _, _ in WRONG} == set(KEYS)


# ---- one step, one token ----


def test_a_step_reads_what_was_kept_before_and_adds_one_token() -> None:
    config = subject("sink").config
    assert isinstance(config.attention, Attention)
    each = 2 * config.attention.n_kv_heads * config.attention.width * 4
    assert values("step", "written").tolist() == [each] * config.n_layers
    assert values("step", "read").tolist() == [40 * each] * config.n_layers
    assert values("step", "held").all() and values("step", "held").shape == (config.n_layers, 41)
    assert "60 KiB" in at("step").caption and "41 tokens" in at("step").caption


def test_windows_drop_tokens_and_states_are_read_whole() -> None:
    windows = {f.key: f for f in figure(model=9).frames}["step"]
    assert windows.arrays["held"].values.sum(axis=1).tolist() == [32, 32, 32, 41]
    assert windows.facts["rows"][0]["keeps"] == "window 32"
    hybrid = {f.key: f for f in figure(model=14).frames}
    step = hybrid["step"]
    assert [row["is_state"] for row in step.facts["rows"]] == [True, True, True, False]
    assert step.arrays["read"].values[0] == step.arrays["written"].values[0] == step.arrays["formula"].values[0]
    assert "rewrites or adds" in step.caption
    assert hybrid["formula"].facts["layers"] == 1 and hybrid["formula"].facts["rows"] == [3]
    assert all(frame.check() for frame in hybrid.values())


def test_the_product_names_its_factors() -> None:
    assert [(f["name"], f["value"]) for f in at("formula").facts["factors"]] == [
        ("K and V", 2), ("layers", 4), ("heads", 2), ("features", 24), ("bytes", 4),
    ]  # fmt: skip
    tokens, texts = 32, 2
    assert values("formula", "weighed").tolist() == [1536, 1536 * tokens, 1536 * tokens * texts]
    latent = {f.key: f for f in figure(model="mla").frames}["formula"]
    assert [f["value"] for f in latent.facts["factors"]] == [4, 60, 4]
    assert [part["name"] for part in latent.facts["parts"]] == ["latents", "rotary keys"]


# ---- kinds of attention ----


@pytest.mark.parametrize(("key", "n_kv", "numbers"), [("mha", 4, 192), ("mqa", 1, 48), ("gqa", 2, 96), ("mla", 0, 60)])
def test_what_each_kind_keeps(key: str, n_kv: int, numbers: int) -> None:
    facts = at(key).facts
    assert (facts["n_kv"], facts["numbers"], facts["bytes"]) == (n_kv, numbers, 4 * numbers)
    assert facts["own"] == (key == "gqa"), "only the subject's own kind is read from it"
    assert facts["reads"] == {4: [0, 1, 2, 3], 1: [0, 0, 0, 0], 2: [0, 0, 1, 1], 0: []}[n_kv]
    names = {"keys", "values"} if n_kv else {"latents", "rotary_keys"}
    assert names <= set(at(key).arrays)
    assert f"{facts['share']:.0%}" in at(key).caption or key == "mha"


def test_the_labs_words_are_the_labs() -> None:
    findings = {f.claim.of: f for f in recorded("kv-heads").findings if f.claim.less_than is not None}
    for key, arm in ARMS.items():
        told = at(key).facts["lab"]
        assert told["arm"] == arm
        assert told["verdict"] == (findings[arm].verdict if key != "mha" else "")
        found = findings[arm].found if key != "mha" else None
        if found is not None:
            assert told["bits"] - told["mha"] == pytest.approx(found.mean)


def test_heads_groups_and_latents_of_a_config() -> None:
    plain = morph.stage(6)
    assert groups_of(plain) == 2 and groups_of(morph.stage(7)) == 2
    three = replace(plain, d_model=96, attention=Attention(n_heads=3, n_kv_heads=3))
    assert groups_of(three) is None
    gone = {f.key: f for f in figure(model=three).frames}
    assert "3 query heads form no groups" in gone["gqa"].absent
    assert all(frame.check() for frame in gone.values())
    latent = morph.fork("mla")
    assert latents_of(latent) == latent.attention == latents_of(morph.stage("gqa"))
    assert isinstance(latent.attention, MLA)
    assert heads_of(latent) == Attention(n_heads=4, n_kv_heads=4, head_dim=24)


# ---- latents ----


def test_both_forms_are_the_models_own() -> None:
    frame = {f.key: f for f in figure(model="mla").frames}["absorption"]
    assert frame.facts["own"] and not at("absorption").facts["own"]
    shown = subject("mla")
    with torch.no_grad(), morph.trace(shown.model) as seen:
        shown.model(shown.ids(40))
    np.testing.assert_allclose(frame.values("naive"), seen["blocks.0.attention.scores"][0, :, -1], atol=1e-4)
    assert 0 < np.abs(frame.values("difference")).max() < 1e-5
    assert frame.facts["cached"] == 60 and frame.facts["unfolded"] == 4 * (36 + 24)
    logits = shown.model(shown.ids(40))[0, -1]
    np.testing.assert_allclose(frame.values("logits")[0], logits.topk(5).values.detach(), atol=1e-4)


# ---- released models ----


def test_counts_are_those_of_published_sizes() -> None:
    assert values("llama", "mha")[-1] == 64 * 2**30 and values("llama", "gqa")[-1] == 16 * 2**30
    assert float(values("llama", "weights")) == 2 * RELEASED["Llama 3 8B"].parameters
    v3 = RELEASED["DeepSeek-V3"].config
    assert isinstance(v3.attention, MLA)
    assert as_mha(v3) == 61 * unfolded(v3.attention) * 2 == 4_997_120
    assert at("llama").facts["texts"] == 3
    rows = {row["name"]: row for row in at("released").facts["rows"]}
    assert rows["Qwen3-Next 80B-A3B"] == {
        "name": "Qwen3-Next 80B-A3B", "kind": "GQA 8:1 + states", "keeps": 12, "layers": 48,
    }  # fmt: skip
    assert (rows["gpt-oss-120b"]["keeps"], rows["Olmo 3 32B"]["keeps"]) == (18, 16)
    assert kind_of(morph.stage(0)) == "MHA" and kind_of(config_of("mqa")) == "MQA"


def test_ridge_points_are_those_of_the_data_sheets() -> None:
    assert {name: round(chip.ridge) for name, chip in ACCELERATORS.items()} == {
        "A100": 153, "H100": 295, "MI300X": 247, "H200": 206, "B200": 281,
    }  # fmt: skip
    years = [chip.year for chip in ACCELERATORS.values()]
    assert years == sorted(years) and all(chip.source for chip in ACCELERATORS.values())


def test_intensity_is_counted_live_where_keys_are_plain() -> None:
    flops, size = values("intensity", "measured")
    assert (flops, size) == (4 * 4 * 24 * 24, 2 * 2 * 24 * 24 * 4), "24 tokens, 4 heads and 2, 24 features"
    assert dict(zip(at("intensity").facts["names"], values("intensity", "intensity")))["DeepSeek-V3"] > 241
    latent = {f.key: f for f in figure(model="mla").frames}["intensity"]
    assert "measured" not in latent.arrays and latent.check()


# ---- the scales ----


def test_every_kind_of_tensor_is_on_the_scales() -> None:
    assert set(at("weighed").facts["kinds"]) == {kind.replace("_", " ") for kind in KINDS}
    assert [row["name"] for row in at("weighed").facts["rows"]] == list(BRANCHES)
    model = stage_model("gqa")
    assert weigh(model, random_ids(model, 1, 1))["keys"] == 4 * 2 * 12 * 4


# ---- other models ----


@pytest.mark.parametrize(
    "model",
    [0, "parallel-block", "kda", "sparse-attention", "hybrid-mla", config_of("alibi", "nano"), config_of(6, "nano")],
    ids=str,
)
def test_other_models_are_shown(model: Any) -> None:
    made = figure(model=model, seed=3)
    assert tuple(frame.key for frame in made.frames) == KEYS
    for frame in made.frames:
        assert frame.check() and not frame.absent, frame.key
    assert made.frames[-1].facts["rows"][0]["name"] == "this model"


def test_a_model_of_states_alone_says_so() -> None:
    config = morph.stage(14, "nano")
    layout = config.layout
    assert isinstance(layout, Interleaved) and isinstance(layout.local, GatedDeltaNet)
    made = {f.key: f for f in figure(model=replace(config, n_layers=3)).frames}
    assert made["formula"].absent == NO_KEYS
    assert all(frame.check() for frame in made.values())
    assert made["released"].facts["own"] == "" and made["intensity"].facts["own"] == ""
    assert not made["gqa"].facts["own"]


def test_a_text_of_few_places_is_enough() -> None:
    config = replace(config_of("learned-position", "nano"), context_length=8)
    assert all(frame.check() for frame in figure(model=config).frames)
