"""Gated DeltaNet without a part: what is gone, what is left, and how large the models are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import morph
from morph.lab.experiments.e12_hybrid_parts import EXPERIMENT, delta_layers, with_dense, without_decay, without_gate
from morph.model import Decoder

ARMS = {arm.name: arm for arm in EXPERIMENT.arms}
HYBRID = with_dense(14, more=0)


def built(arm: str) -> Decoder:
    model = morph.build(ARMS[arm].config, seed=100)  # type: ignore[arg-type]
    if ARMS[arm].alter is not None:
        ARMS[arm].alter(model)  # type: ignore[misc]
    return model.eval()


def ids(rows: int = 4) -> Tensor:
    return torch.randint(256, (rows, 64), generator=torch.Generator().manual_seed(1))


def test_all_arms_are_equally_large() -> None:
    sizes = {arm: sum(p.numel() for p in built(arm).parameters()) for arm in ARMS}
    assert sizes == {
        "windows": 123_408,
        "hybrid": 123_396,
        "no convolution": 123_108,
        "no output gate": 123_396,
        "no decay": 123_372,
    }


@torch.no_grad()
def test_without_its_gate_a_layer_writes_the_normed_heads_and_starts_as_large() -> None:
    whole, bare = morph.build(HYBRID, seed=100).eval(), morph.build(HYBRID, seed=100).eval()
    without_gate(bare)
    x = torch.randn(4, 64, 48, generator=torch.Generator().manual_seed(2))
    context = whole.context(0, 64, None)
    layer, cut = delta_layers(whole)[0], delta_layers(bare)[0]
    full, left = layer(x, context), cut(x, context)
    assert left.square().mean().sqrt() == pytest.approx(float(full.square().mean().sqrt()), rel=0.15)
    gated = F.linear(F.linear(left, torch.linalg.inv(cut.o_proj.weight)) * layer.gate(x), layer.o_proj.weight)
    torch.testing.assert_close(gated, full, rtol=1e-3, atol=1e-4)  # the gate put back gives the whole layer
    assert not hasattr(cut, "z_proj")


@torch.no_grad()
def test_without_decay_a_state_keeps_what_nothing_overwrites() -> None:
    whole, bare = morph.build(HYBRID, seed=100).eval(), morph.build(HYBRID, seed=100).eval()
    without_decay(bare)
    x = torch.randn(2, 64, 48, generator=torch.Generator().manual_seed(2))
    x[:, 1:] = 0  # through its convolution the first token writes four times, then nothing is written

    def sizes(model: Decoder) -> tuple[float, float]:
        states = []
        for length in (4, 64):
            with morph.trace(delta_layers(model)[0]) as seen:  # type: ignore[arg-type]
                delta_layers(model)[0](x[:, :length], model.context(0, length, None))
            states.append(float(next(value for name, value in seen.items() if name.endswith("state")).norm()))
        return states[0], states[1]

    early, late = sizes(bare)
    assert late == pytest.approx(early, rel=1e-5) and early > 0
    early, late = sizes(whole)
    assert late < 0.9 * early


def test_one_tap_mixes_no_tokens() -> None:
    model = built("no convolution")
    layer = delta_layers(model)[0]
    x = torch.randn(1, 8, 96, generator=torch.Generator().manual_seed(2))
    mixed, tail = layer.conv(x, None)
    torch.testing.assert_close(mixed, x * layer.conv.weight[:, 0])
    assert tail.shape[1] == 0


def test_altered_models_learn() -> None:
    for arm in ("no output gate", "no decay"):
        model = built(arm)
        model.loss(ids(1), ids(1)).total.backward()
        assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters()), arm
