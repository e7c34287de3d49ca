"""The experiment of caches: one size, bytes as counted and as a live cache holds them, and a readable plot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import morph
from morph.config import Attention, ModelConfig
from morph.lab.experiments.e05_kv_heads import EXPERIMENT, PAIR_TABLE, cache_bytes
from morph.lab.fit import start
from morph.lab.tasks import corpus
from morph.measure.count import count
from morph.steps import attention_of


def configs() -> dict[str, ModelConfig]:
    return {cell.arm: cell.config for cell in EXPERIMENT.cells(quick=True)}


def test_all_models_have_as_many_parameters_within_one_percent() -> None:
    totals = {arm: count(config).total for arm, config in configs().items()}
    assert totals["MHA"] == 67_824
    assert max(abs(total / totals["MHA"] - 1) for total in totals.values()) < 0.01, totals


def test_arms_differ_in_attention_and_the_width_that_pays_for_it() -> None:
    found = configs()
    whole = found["MHA"]
    assert whole == replace(morph.stage("gated-ffn", "nano"), n_layers=2)
    for arm, config in found.items():
        assert replace(config, attention=whole.attention, feed_forward=whole.feed_forward) == whole, arm
    heads = {arm: attention_of(found[arm]) for arm in ("MHA", "GQA", "MQA", "one head in all")}
    assert {arm: (a.n_heads, a.n_kv_heads, a.width) for arm, a in heads.items()} == {
        "MHA": (4, 4, 12), "GQA": (4, 2, 12), "MQA": (4, 1, 12), "one head in all": (1, 1, 12),
    }  # fmt: skip
    assert all(isinstance(attention, Attention) for attention in heads.values())


@pytest.mark.parametrize(
    ("arm", "values"),
    [
        ("MHA", 96),
        ("GQA", 48),
        ("MLA, GQA's bytes", 48),
        ("MQA", 24),
        ("MLA, MQA's bytes", 24),
        ("one head in all", 24),
    ],
)
def test_the_bytes_read_are_those_of_a_live_cache(arm: str, values: int) -> None:
    (cell,) = (cell for cell in EXPERIMENT.cells(quick=True) if cell.arm == arm)
    trial = start(cell.config, cell.task, cell.recipe)
    assert cache_bytes(trial) == values * 2 * 2  # two layers, two bytes
    cache = trial.model.new_cache()
    with torch.no_grad():
        trial.model(torch.arange(10)[None], cache=cache)
    assert cache.nbytes == 10 * 2 * cache_bytes(trial)  # kept in fp32 here


def test_the_bound_of_a_table_of_byte_pairs_is_that_of_the_held_out_text() -> None:
    text = corpus().validation
    pairs = np.bincount(text[:-1].astype(np.int64) * 256 + text[1:], minlength=65_536).reshape(256, 256) / (
        text.size - 1
    )
    first = pairs.sum(axis=1)
    bits = -(pairs[pairs > 0] * np.log2(pairs[pairs > 0])).sum() + (first[first > 0] * np.log2(first[first > 0])).sum()
    assert pytest.approx(float(bits), abs=0.1) == PAIR_TABLE  # the text differs a little between Pythons
