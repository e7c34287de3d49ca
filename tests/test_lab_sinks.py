"""Sinks: what is evicted, what the weights are of, and that trained weights come through untouched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import morph
from morph.config import AllLocal, Sink, SlidingWindow
from morph.lab import probes
from morph.lab.experiments.e14_sinks import (
    EXPERIMENT,
    SEEN,
    attending,
    cost_of_window,
    first_weights,
    gain_of_first,
    heads_with_sink,
    seeing,
    weight_on_sink,
)
from morph.lab.fit import start
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.train.recipe import Recipe
from tests.test_train_data import folder

IDS = torch.randint(256, (2, 64), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def looked(tmp_path: Path) -> Trial:
    """An untrained model whose sinks differ from head to head."""
    trial = start(attending(sink=Sink()), Text(path=str(folder(tmp_path / "text"))), Recipe(batch_size=4))
    with torch.no_grad():
        for name, values in trial.model.named_parameters():
            if name.endswith("sink.logits"):
                values.copy_(torch.tensor([-1.0, 0.0, 2.0, 4.0]))
    return trial


def test_all_arms_are_equally_large() -> None:
    counts = [morph.count(arm.config).total for arm in EXPERIMENT.arms]  # type: ignore[arg-type]
    assert counts == [114_096, 114_112, 114_096]


@torch.no_grad()
@pytest.mark.parametrize("sink", [None, Sink()])
def test_a_window_at_evaluation_is_that_of_a_windowed_config(sink: Sink | None) -> None:
    config = attending(sink=sink)
    windowed = replace(config, layout=AllLocal(local=SlidingWindow(window=SEEN)))
    model, other = morph.build(config, seed=1).eval(), morph.build(windowed, seed=1).eval()
    full = model(IDS)
    with seeing(model, 0, SEEN):
        torch.testing.assert_close(model(IDS), other(IDS), rtol=1e-4, atol=1e-4)
    assert torch.equal(model(IDS), full)  # outside nothing has changed
    assert not torch.allclose(full, other(IDS), atol=1e-2)


@torch.no_grad()
def test_first_tokens_stay_in_sight_beside_the_last() -> None:
    model = morph.build(attending(), seed=1).eval()
    with seeing(model, 4, 12), morph.trace(model) as seen:
        model(IDS)
    weights = seen["blocks.0.attention.weights"]
    assert weights.shape == (2, 4, 64, 64)
    sight = (weights > 0).all(dim=0).all(dim=0)
    assert sight[40].nonzero().flatten().tolist() == [0, 1, 2, 3, *range(29, 41)]
    assert sight[2].nonzero().flatten().tolist() == [0, 1, 2]  # nobody sees what comes later
    assert int(sight.sum(dim=1).max()) == SEEN


def test_all_tokens_in_sight_is_the_model_itself(looked: Trial) -> None:
    with torch.no_grad(), seeing(looked.model, 0, 64):
        windowless = looked.model(IDS)
    with torch.no_grad():
        torch.testing.assert_close(windowless, looked.model(IDS), rtol=1e-4, atol=1e-4)


def test_losses_are_those_of_the_late_positions(looked: Trial) -> None:
    full = probes.loss_between(32, 64, rows=128)(looked)
    with seeing(looked.model, 0, 16):
        recent = probes.loss_between(32, 64, rows=128)(looked)
    with seeing(looked.model, 4, 12):
        kept = probes.loss_between(32, 64, rows=128)(looked)
    assert cost_of_window(looked) == pytest.approx(recent - full, abs=1e-5)
    assert gain_of_first(looked) == pytest.approx(recent - kept, abs=1e-5)


def test_weights_are_those_of_the_late_queries(looked: Trial) -> None:
    first = first_weights(looked)
    assert len(first) == 16 and first[0] == pytest.approx(probes.weight_on_first(looked), rel=1e-5)
    seen = probes.watch(looked)
    missing = [1 - seen[f"blocks.{n}.attention.weights"][:, :, 32:].sum(-1).mean() for n in range(4)]
    assert weight_on_sink(looked) == pytest.approx(float(sum(missing)) / 4, rel=1e-4)
    assert heads_with_sink(looked) == 0.0


def test_without_a_learned_sink_there_is_no_weight_on_it(looked: Trial) -> None:
    plain = start(attending(), looked.task, looked.recipe)
    assert weight_on_sink(plain) is None
    with torch.no_grad():
        for block in plain.model.blocks:  # all queries are alike, and all keys but the first are 0
            block.attention.rope = None  # type: ignore[assignment]
            block.attention.q_proj.forward = lambda x: torch.ones(*x.shape[:2], 48)  # type: ignore[union-attr]
            block.attention.k_proj.forward = first_key  # type: ignore[union-attr]
    assert heads_with_sink(plain) == 1.0
    assert first_weights(plain)[0] == pytest.approx(1.0, abs=1e-3)


def first_key(x: torch.Tensor) -> torch.Tensor:
    keys = torch.zeros(*x.shape[:2], 24)
    keys[:, 0] = 5.0
    return keys
