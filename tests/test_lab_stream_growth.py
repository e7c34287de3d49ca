"""Experiment 2: what its measures say of streams whose sizes are known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from morph.config import Placement
from morph.lab import probes
from morph.lab.experiments import e02_stream_growth as e02
from morph.lab.fit import start
from morph.lab.tasks import Recall
from morph.lab.trial import Trial
from morph.train.recipe import Recipe


def untrained(placement: Placement, layers: int) -> Trial:
    config = replace(e02.placed(placement, layers), vocab_size=64)
    return start(config, Recall(has_stem=False), Recipe(batch_size=4, seed=100))


def test_arms_differ_in_placement_or_depth_alone() -> None:
    first = e02.placed("post")
    for cell in e02.EXPERIMENT.cells():
        assert replace(cell.config, placement="post", n_layers=24) == first
        assert cell.config.n_layers == (24 if cell.is_trained else 6)


def test_normed_branches_add_up_like_independent_ones() -> None:
    """1 + 2 branches of size 1 a layer; with gains 1/√L they add 2 in all."""
    assert e02.last_size(untrained("sandwich", 12)) == pytest.approx(math.sqrt(25), rel=0.1)
    assert e02.last_size(untrained("post-branch", 12)) == pytest.approx(math.sqrt(25), rel=0.1)
    assert e02.last_size(untrained("depth-scaled-sandwich", 12)) == pytest.approx(math.sqrt(3), rel=0.1)
    assert e02.last_size(untrained("post", 12)) == pytest.approx(1, rel=1e-3)


def test_the_exponent_is_the_slope_on_a_doubly_logarithmic_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = untrained("post", 1)
    for power in (0.0, 0.5, 1.0, -1.0):
        sizes = [9.0, *((layer**power) for layer in range(1, 25))]  # what stands before the first block is not read
        monkeypatch.setattr(probes, "stream_sizes", lambda _, sizes=sizes: sizes)
        assert e02.exponent(trial) == pytest.approx(power)


def test_shares_are_what_a_block_adds_over_what_it_reads() -> None:
    trial = untrained("pre", 3)
    seen = probes.watch(trial)
    before = seen["stream"]
    for layer, share in enumerate(e02.shares(trial)):
        after = seen[f"blocks.{layer}.stream"]
        assert share == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-4)
        before = after
    assert e02.last_share(trial) == e02.shares(trial)[-1]


def test_change_is_against_the_same_seed_before_training() -> None:
    trial = untrained("sandwich", 2)
    assert e02.change(trial) == 1
    with torch.no_grad():
        for block in trial.model.blocks:
            for norm in (block.attention_out_norm, block.feed_forward_out_norm):
                norm.weight.zero_()  # type: ignore[operator,union-attr]
    grown = untrained("sandwich", 2)
    assert e02.change(trial) == pytest.approx(1 / e02.last_size(grown), rel=0.1)
