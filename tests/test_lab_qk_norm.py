"""QK-norm: what its gains allow, and that both arms differ in it alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import morph
from morph.config import diff
from morph.lab import probes
from morph.lab.experiments.e06_qk_norm import EXPERIMENT, allowed_logit, rise_beyond
from morph.lab.fit import start
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.train.recipe import Recipe
from tests.test_train_data import folder


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(path=str(folder(tmp_path / "text")))


def trial(stage: int, text: Text) -> Trial:
    return start(replace(morph.stage(stage, "nano"), n_layers=2), text, Recipe(evaluation_windows=8))


def test_arms_differ_in_qk_norm_alone() -> None:
    without, with_norm = (arm.config for arm in EXPERIMENT.arms)
    assert isinstance(without, morph.ModelConfig) and isinstance(with_norm, morph.ModelConfig)
    assert [change.path for change in diff(without, with_norm)] == ["attention.qk_norm"]
    more = morph.count(with_norm).total - morph.count(without).total
    assert more == with_norm.n_layers * 2 * 12, "two gains of Dh = 12 a layer"


def test_scores_stay_below_what_the_gains_allow_and_can_reach_it(text: Text) -> None:
    looked = trial(8, text)
    assert allowed_logit(looked) == pytest.approx(12**0.5)
    with torch.no_grad():
        for block in looked.model.blocks:
            block.attention.q_norm.weight.copy_(torch.linspace(-3, 2, 12))  # type: ignore[union-attr,operator]
            block.attention.k_norm.weight.copy_(torch.linspace(-1, 5, 12))  # type: ignore[union-attr,operator]
            block.attention.k_proj.weight.mul_(100)  # type: ignore[union-attr,operator]
    allowed = allowed_logit(looked)
    assert allowed is not None
    assert allowed == pytest.approx(12**0.5 * 3 * 5)
    assert 0.2 * allowed < probes.largest_logit(looked) <= allowed
    with torch.no_grad():  # queries and keys of one feature: a token's score with itself reaches the bound
        for block in looked.model.blocks:
            block.attention.q_norm.weight.fill_(3)  # type: ignore[union-attr,operator]
            block.attention.k_norm.weight.fill_(5)  # type: ignore[union-attr,operator]
            block.attention.k_proj.weight.copy_(block.attention.q_proj.weight[:24])  # type: ignore[union-attr,operator,index]
    assert probes.largest_logit(looked) == pytest.approx(allowed_logit(looked), rel=1e-3)


def test_without_qk_norm_nothing_is_allowed_or_refused(text: Text) -> None:
    looked = trial(7, text)
    assert allowed_logit(looked) is None
    before = probes.largest_logit(looked)
    with torch.no_grad():
        for block in looked.model.blocks:
            block.attention.k_proj.weight.mul_(10)  # type: ignore[union-attr,operator]
    assert probes.largest_logit(looked) > 3 * before


def test_the_rise_is_between_two_stretches_of_the_same_texts(text: Text) -> None:
    looked = trial(8, text)
    losses = probes.position_losses(looked, 256)
    assert rise_beyond(looked) == pytest.approx(float(losses[128:256].mean() - losses[32:64].mean()))
