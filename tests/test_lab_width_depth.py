"""Experiment 21: shapes of equal parameters, and chains of matrix products."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import morph
from morph.config import ModelConfig
from morph.lab.chain import Chain, longest_chain
from morph.lab.experiments import e21_width_depth as e21
from morph.lab.fit import start
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.train.recipe import Recipe


def untrained(config: ModelConfig) -> Trial:
    return Trial(morph.build(config, seed=100), Text(), Recipe())


def test_all_shapes_have_as_many_parameters_in_their_blocks() -> None:
    counts = [e21.block_parameters(untrained(e21.shaped({"layers": layers}))) for layers in e21.SHAPES]
    assert counts == pytest.approx([197_000] * 4, rel=0.01)
    assert max(counts) / min(counts) < 1.01


def test_shapes_differ_in_width_and_depth_alone() -> None:
    first = e21.shaped({"layers": 4})
    for layers, (d, width) in e21.SHAPES.items():
        config = e21.shaped({"layers": layers})
        same = replace(config, n_layers=4, d_model=64, attention=first.attention, feed_forward=first.feed_forward)
        assert same == first
        assert config.attention.head_dim * 4 == d and config.attention.n_kv_heads == 4  # type: ignore[union-attr,operator]
        assert config.feed_forward.width == width  # type: ignore[union-attr]


def test_a_chain_counts_products_that_wait_for_each_other() -> None:
    x, w = torch.ones(3, 4), torch.ones(4, 4)
    with Chain() as seen:
        side, by_side = x @ w, x @ w.T
    assert seen.longest == 1
    with Chain() as seen:
        out = torch.relu(x @ w).view(3, 4) + 1
        out @ (out.T @ x)
    assert seen.longest == 3
    with Chain() as seen:
        torch.baddbmm(torch.ones(2, 3, 3), torch.ones(2, 3, 4), torch.ones(2, 4, 3)).sum()
    assert seen.longest == 1
    assert side.shape == by_side.shape


def test_a_layer_adds_six_products_to_the_chain() -> None:
    """Queries (beside keys and values), scores, weighted sum, way out; gate (beside value), way down; and the head."""
    for layers in (1, 3):
        config = replace(e21.shaped({"layers": 4}), n_layers=layers, context_length=8)
        assert longest_chain(untrained(config)) == 6 * layers + 1
    assert longest_chain(start(morph.stage(1, "nano"), Text(), Recipe())) == 6 * 4 + 1
