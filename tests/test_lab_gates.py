"""The experiment of gates: equal parameters, one difference, and a share of zeros counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import morph
from morph.config import MLP, GatedMLP, ModelConfig
from morph.lab.experiments.e04_gates import EXPERIMENT, below_zero
from morph.lab.fit import start
from morph.lab.spec import Arm
from morph.measure.count import count
from morph.nn.feedforward import ACTIVATIONS


def config(arm: Arm) -> ModelConfig:
    assert isinstance(arm.config, ModelConfig)
    return arm.config


CONFIGS = {arm.name: config(arm) for arm in EXPERIMENT.arms}


def test_every_arm_has_as_many_parameters_and_matrix_products() -> None:
    counts = {name: count(config) for name, config in CONFIGS.items()}
    assert {counted.total for counted in counts.values()} == {67_824}
    assert len({counted.flops(64).total for counted in counts.values()}) == 1


def test_arms_differ_in_the_feed_forward_network_alone_and_are_the_stages() -> None:
    rope = replace(morph.stage("rope", "nano"), n_layers=2)
    assert CONFIGS["ReLU"] == rope
    assert CONFIGS["SiLU"] == replace(morph.stage("silu", "nano"), n_layers=2)
    assert CONFIGS["SwiGLU"] == replace(morph.stage("gated-ffn", "nano"), n_layers=2)
    for config in CONFIGS.values():
        assert replace(config, feed_forward=rope.feed_forward) == rope
    networks = {name: config.feed_forward for name, config in CONFIGS.items()}
    assert networks["GELU"] == MLP(width=192, activation="gelu")
    assert networks["GEGLU"] == GatedMLP(width=128, activation="gelu")


@pytest.mark.parametrize("name", ["ReLU", "SwiGLU"])
def test_half_of_what_activations_read_is_below_zero_before_training(name: str) -> None:
    cell = next(cell for cell in EXPERIMENT.cells() if cell.arm == name)
    trial = start(cell.config, cell.task, cell.recipe)
    assert below_zero(trial) == pytest.approx(0.5, abs=0.05)
    if name == "ReLU":  # then it is the share of units at exactly zero, over all layers alike
        ids = trial.held_out(8)[0]
        with torch.no_grad(), morph.trace(trial.model) as seen:
            trial.model(ids)
        out = torch.stack([ACTIVATIONS["relu"](seen[f"blocks.{n}.feed_forward.preactivation"]) for n in range(2)])
        assert below_zero(trial) == pytest.approx(float((out == 0).double().mean()), abs=1e-6)
