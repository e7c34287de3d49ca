"""Models that differ in their mixer: which layer has which, how much each keeps, and what the decays leave."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import morph
from morph.lab import mixers
from morph.lab.experiments import e11_recall
from morph.lab.fit import start
from morph.lab.mixers import below_full, everywhere, laid_out
from morph.lab.tasks import Recall
from morph.measure.count import count
from morph.model import Decoder
from morph.nn.attention import SoftmaxMixer
from morph.nn.lightning import decay_slopes
from morph.train.recipe import Recipe


def kinds(config: morph.ModelConfig) -> list[str]:
    return [type(block.attention).__name__ for block in morph.build(config).blocks]


def windows(config: morph.ModelConfig) -> list[int | None]:
    layers: list[Any] = [m for m in morph.build(config).modules() if isinstance(m, SoftmaxMixer)]
    return [layer.window for layer in layers]


def test_layouts_put_the_mixer_in_both_layers_or_below_a_full_one() -> None:
    assert kinds(mixers.full(16)) == ["SoftmaxAttention"] * 2
    assert kinds(laid_out(16, everywhere(mixers.delta(4)))) == ["GatedDeltaNet"] * 2
    assert kinds(laid_out(16, everywhere(mixers.lightning(4)))) == ["Lightning"] * 2
    assert kinds(laid_out(16, below_full(mixers.delta(4)))) == ["GatedDeltaNet", "SoftmaxAttention"]
    assert windows(laid_out(16, below_full(mixers.window(8)))) == [8, None]
    assert kinds(mixers.sparse(16, top_k=4, warm_up=3)) == ["SparseAttention"] * 2


@pytest.mark.parametrize("width", [2, 4, 8])
def test_states_of_one_width_keep_equally_many_numbers(width: int) -> None:
    numbers = 2 * width * width
    assert count(laid_out(16, everywhere(mixers.linear(width)))).state_bytes == 4 * numbers
    assert count(laid_out(16, everywhere(mixers.delta(width, taps=1)))).state_bytes == 4 * numbers
    tail = 2 * 3 * (3 * width)  # of a convolution over 4 tokens, in both layers
    assert count(laid_out(16, everywhere(mixers.delta(width))), bytes_per_value=4).state_bytes == 4 * (numbers + tail)


def test_one_head_of_lightning_attention_hardly_fades() -> None:
    first, last = (decay_slopes(1, layer, mixers.LAYERS) for layer in range(2))
    assert math.exp(-24 * first) == pytest.approx(0.91, abs=0.005) and last < 1e-7
    assert mixers.linear(8).n_heads == 1


def test_recall_counts_what_a_whole_sequence_leaves_in_the_layers() -> None:
    task, recipe = Recall(pairs=8, keys=8, values=8), Recipe(steps=1)

    def kept(arm: str) -> float:
        (config,) = (a.config for a in e11_recall.EXPERIMENT.arms if a.name == arm)
        assert isinstance(config, morph.ModelConfig)
        return e11_recall.memory(start(config, task, recipe))

    assert kept("full") == 2 * 24 * 2 * mixers.HEAD * 4  # layers, tokens, key and value, fp32
    assert kept("window of 8") == kept("full") / 3
    assert kept("linear, 4 x 4") == kept("delta, 4 x 4") == 2 * 16 * 4


def test_sparse_attention_reads_four_tokens_when_it_is_judged() -> None:
    trial = start(mixers.sparse(16, top_k=4, warm_up=100), Recall(pairs=8, keys=8, values=8), Recipe(steps=1))
    with torch.no_grad(), morph.trace(trial.model) as seen:
        trial.model(trial.held_out(2)[0])
    assert (seen["blocks.0.attention.weights"][..., -1, :] > 0).sum(-1).unique().tolist() == [4]


def test_delta_layers_that_start_without_fading_lose_less_than_a_hundredth_a_token() -> None:
    task, recipe = Recall(pairs=8, keys=8, values=8), Recipe(steps=1)
    config = laid_out(16, everywhere(mixers.delta(4)))

    def lost(alter: Callable[[Decoder], None] | None) -> float:
        trial = start(config, task, recipe, alter)
        with torch.no_grad(), morph.trace(trial.model) as seen:
            trial.model(trial.held_out(8)[0])
        return 1 - min(float(seen[f"blocks.{layer}.attention.log_decay"].exp().min()) for layer in range(2))

    assert lost(mixers.start_without_fading) < 0.01 < lost(None)
    fading = {arm.name for arm in e11_recall.EXPERIMENT.arms if arm.alter is None}
    assert not any(name.startswith("delta") for name in fading)
