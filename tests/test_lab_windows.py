"""Windows: equal parameters, exact ratios, and fields of gradients held against masks and finite differences."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import morph
from morph.config import AllLocal, SlidingWindow
from morph.lab import receptive
from morph.lab.experiments.e08_windows import EXPERIMENT, cache
from morph.lab.fit import start
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.train.recipe import Recipe
from tests.test_train_data import folder


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(path=str(folder(tmp_path / "text")))


def trial(text: Text, layers: int = 2, window: int | None = None, arm: int | None = None, width: int = 8) -> Trial:
    config = replace(morph.stage(7, "nano"), n_layers=layers)
    if window is not None:
        config = replace(config, layout=AllLocal(local=SlidingWindow(window=window)))
    if arm is not None:
        made = EXPERIMENT.arms[arm].config
        assert callable(made)
        config = made({"window": width})
    return start(config, text, Recipe())


def test_layouts_hold_their_ratios_at_equal_parameters(text: Text) -> None:
    trials = [trial(text, arm=arm) for arm in range(5)]
    assert len({morph.count(t.config).total for t in trials}) == 1
    is_global = [[t.config.mixer(layer) is t.config.attention for layer in range(12)] for t in trials]
    assert [sum(row) for row in is_global] == [12, 6, 3, 2, 0]
    assert all(row[-1] for row in is_global[:4]), "the last layer sees all wherever one does"
    token = 2 * 2 * 12 * 2 / 1024  # K and V of 2 heads of 12 numbers of 2 bytes, KiB
    kept = [12 * 128, 6 * 128 + 6 * 8, 3 * 128 + 9 * 8, 2 * 128 + 10 * 8, 12 * 8]
    assert [cache(t) for t in trials] == pytest.approx([n * token for n in kept])
    assert cache(trial(text, arm=4, width=32)) == pytest.approx(12 * 32 * token)


def test_reach_is_that_of_the_masks(text: Text) -> None:
    assert receptive.theoretical_reach(trial(text)) == 64
    assert receptive.theoretical_reach(trial(text, layers=3, window=4)) == 3 * 3 + 1
    looked = trial(text, arm=4)
    assert receptive.theoretical_reach(looked) == 12 * 7 + 1
    assert next(looked.model.parameters()).dtype == torch.float32, "the trial's own model stays as it was"


def test_shares_of_the_gradient_end_where_the_reach_ends(text: Text) -> None:
    shares = receptive.gradient_shares(trial(text, layers=3, window=4), rows=2)
    assert shares.shape == (2, 64) and torch.allclose(shares.sum(1), torch.ones(2, dtype=torch.float64))
    assert bool((shares[:, :10] > 0).all()) and bool((shares[:, 10:] == 0).all())
    full = receptive.gradient_shares(trial(text), rows=2)
    assert bool((full > 0).all())


def test_shares_are_those_of_nudged_embeddings(text: Text) -> None:
    looked = trial(text, layers=1)
    looked.model.double()
    ids, targets = looked.held_out(2)
    model, nudge = looked.model, torch.zeros(2, 64, 48, dtype=torch.float64)
    model.embedding.register_forward_hook(lambda _, __, out: out + nudge)
    squares = torch.zeros(3, dtype=torch.float64)
    with torch.no_grad():
        for distance in range(3):
            for feature in range(48):
                ends = []
                for sign in (1, -1):
                    nudge.zero_()[1, 63 - distance, feature] = sign * 1e-5
                    ends.append(float(model(ids)[1, -1].log_softmax(-1)[targets[1, -1]]))
                squares[distance] += ((ends[0] - ends[1]) / 2e-5) ** 2
    nudge.zero_()
    found = receptive.gradient_shares(looked, rows=2)[1, :3]
    assert torch.allclose(found / found[0], squares / squares[0], rtol=1e-4)


def test_tokens_within_and_bins() -> None:
    shares = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.95, 0.05, 0.0, 0.0]], dtype=torch.float64)
    assert receptive.tokens_within(shares, 0.9) == (3 + 1) / 2
    assert receptive.tokens_within(shares, 0.97) == (4 + 2) / 2
    assert receptive.in_bins(shares, (0, 1, 4)) == pytest.approx([0.725, 0.275 / 3])


def test_far_tokens_are_worth_what_their_absence_costs(text: Text) -> None:
    looked = trial(text)
    ids, targets = looked.held_out(3)
    with torch.no_grad():
        whole = looked.model(ids)
        costs = []
        for row in range(3):
            for begin in (32, 48):
                alone = looked.model(ids[row : row + 1, begin : begin + 16])[0, 8:]
                there, wanted = whole[row, begin + 8 : begin + 16], targets[row, begin + 8 : begin + 16]
                costs.append(float(cross_entropy(alone, wanted) - cross_entropy(there, wanted)) / math.log(2))
    assert receptive.worth_of_far_tokens(looked, 16, 3) == pytest.approx(sum(costs) / 6, abs=1e-5)
    deaf = trial(text, layers=1, window=8)  # reaches 8 tokens: what lies further back is worth nothing
    assert receptive.worth_of_far_tokens(deaf, 16, 3) == pytest.approx(0, abs=1e-5)
