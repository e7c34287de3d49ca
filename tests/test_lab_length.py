"""Beyond the trained length: what is trained, what is read, and why a window cannot fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import morph
from morph.config import LearnedPosition, Rope, YarnRope, diff
from morph.errors import MorphError
from morph.lab import probes
from morph.lab.experiments import e07_length as e07
from morph.lab.fit import fit, start
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.train.recipe import Recipe
from tests.test_train_data import folder

RECIPE = Recipe(steps=2, batch_size=16, evaluate_every=2, evaluation_windows=2, learning_rate=1e-2)
CONFIGS = {arm.name: arm.config for arm in e07.EXPERIMENT.arms}


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(path=str(folder(tmp_path / "text")))


def config(arm: str) -> morph.ModelConfig:
    found = CONFIGS[arm]
    assert isinstance(found, morph.ModelConfig)
    return found


def test_each_arm_is_one_change_away_from_rope() -> None:
    assert config("RoPE") == morph.stage(7, "nano") and isinstance(config("RoPE").position, Rope)
    changed = {name: {change.path.split(".")[0] for change in diff(config("RoPE"), config(name))} for name in CONFIGS}
    assert changed.pop("RoPE") == set()
    assert changed.pop("window 16") == changed.pop("hybrid") == {"layout"}
    assert changed.pop("RoPE, tuned") == {"context_length"}
    assert changed.pop("YaRN, tuned") == {"context_length", "position"}
    assert set(changed) == {"sinusoid", "learned", "NoPE", "ALiBi", "YaRN, no training"}
    assert all(paths == {"position"} for paths in changed.values())


def test_yarn_reads_with_the_weights_of_rope(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Trial] = []

    def keep(trial: Trial) -> dict[str, float]:
        read.append(trial)
        return {}

    monkeypatch.setattr(e07, "readings", keep)
    cells = replace(e07.EXPERIMENT, task=text).cells(quick=True)
    for arm in ("RoPE", "YaRN, no training"):
        (cell,) = (c for c in cells if c.arm == arm)
        e07.train_short(replace(cell, recipe=RECIPE), lambda step: None)
    rope, yarn = read
    assert isinstance(rope.config.position, Rope) and isinstance(yarn.config.position, YarnRope)
    for mine, other in zip(rope.model.parameters(), yarn.model.parameters(), strict=True):
        assert torch.equal(mine, other)
    ids = rope.held_out(2)[0]
    assert not torch.allclose(rope.model(ids), yarn.model(ids), atol=1e-3)


def test_tuning_takes_as_many_tokens_a_step_at_the_greater_length(text: Text) -> None:
    trial = start(config("RoPE"), text, RECIPE.with_(steps=20))
    recipe = e07.tuning(trial.recipe, 512)
    assert (recipe.steps, recipe.batch_size * 512) == (2, 16 * 64) and recipe.learning_rate == pytest.approx(3e-3)
    tuned = e07.stretched(trial, config("YaRN, tuned"))
    assert len(tuned.steps) == 2 and tuned.recipe == trial.recipe and tuned.config == config("YaRN, tuned")
    assert any(not torch.equal(a, b) for a, b in zip(trial.model.parameters(), tuned.model.parameters(), strict=True))


def test_readings_are_means_over_stretches() -> None:
    found = e07.summary(torch.arange(512.0))
    assert found["bits at 32-63"] == 47.5 and found["bits at 256-511"] == 383.5 and found["rise"] == 336.0
    bins = found["bits by position"]
    assert isinstance(bins, list) and len(bins) == 12
    assert bins[0] == 0.5 and bins[5] == (32 + 63) / 2 and bins[-1] == (384 + 511) / 2


def test_a_window_of_16_reaches_61_tokens_whatever_the_place(text: Text) -> None:
    model = start(config("window 16"), text, RECIPE).model.double()
    ids = torch.randint(0, 256, (1, 200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = model(ids)[:, -1]
        assert torch.allclose(whole, model(ids[:, -61:])[:, -1], atol=1e-9)
        assert not torch.allclose(whole, model(ids[:, -60:])[:, -1], atol=1e-9)


def test_a_table_reads_as_far_as_its_rows(text: Text) -> None:
    trial = start(config("learned"), text, RECIPE)
    before = trial.model.positions.weight.detach().clone()  # type: ignore[union-attr]
    fit(trial)
    after = trial.model.positions.weight.detach()  # type: ignore[union-attr]
    kept = 1.0
    for step in range(RECIPE.steps):
        kept *= 1 - RECIPE.rate(step) * RECIPE.weight_decay
    assert torch.allclose(after[64:], before[64:] * kept, rtol=1e-5), "beyond 64 nothing but weight decay"
    assert not torch.allclose(after[:64], before[:64] * kept, rtol=1e-3)
    assert probes.position_losses(trial, 512, rows=1).shape == (512,)
    short = start(replace(config("learned"), position=LearnedPosition(length=64)), text, RECIPE)
    with pytest.raises(MorphError, match="read at most 64 tokens"):
        probes.position_losses(short, 65, rows=1)
