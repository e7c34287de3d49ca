"""Dropout's experiment: what an epoch reads, what seeds share, and that its losses are free of dropout's noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from morph.lab import probes
from morph.lab.experiments import e13_dropout as e13
from morph.lab.fit import fit, start
from morph.measure.count import count
from morph.train.data import load_corpus, validation_offsets
from morph.train.recipe import Recipe
from tests.test_train_data import folder

WINDOWS = 10
RECIPE = Recipe(steps=5, batch_size=4, evaluate_every=5, evaluation_windows=6)


@pytest.fixture
def excerpt(tmp_path: Path) -> e13.Excerpt:
    return e13.Excerpt(path=str(folder(tmp_path / "text")), most_bytes=WINDOWS * 64 + 1)


def test_an_epoch_reads_every_window_once_in_another_order(excerpt: e13.Excerpt) -> None:
    config, text = e13.dropping(0.0), excerpt.tokens(seed=0)
    assert text.size == 641 and text.tobytes() in load_corpus(excerpt.path).train.tobytes()
    read = np.concatenate([excerpt.batch(config, RECIPE, step, 0)[0] for step in range(5)])  # two epochs
    place = {bytes(text[64 * n : 64 * n + 64]): n for n in range(WINDOWS)}
    order = [place[bytes(row.astype(np.uint8))] for row in read]
    assert sorted(order[:WINDOWS]) == sorted(order[WINDOWS:]) == list(range(WINDOWS))
    assert order[:WINDOWS] != order[WINDOWS:]
    targets = excerpt.batch(config, RECIPE, 0, 0)[1]
    assert list(targets[0]) == list(text[64 * order[0] + 1 : 64 * order[0] + 65])


def test_seeds_read_other_excerpts_and_are_judged_by_the_same_text(excerpt: e13.Excerpt) -> None:
    assert excerpt.tokens(0).tobytes() != excerpt.tokens(1).tobytes()
    assert excerpt.tokens(1).tobytes() == excerpt.tokens(1).tobytes()
    held = excerpt.held_out(e13.dropping(0.0), 3)[0]
    assert np.array_equal(held, e13.Text(path=excerpt.path).held_out(e13.dropping(0.0), 3)[0])


def test_the_run_reads_its_text_once_and_ten_times() -> None:
    for epochs in (1, 10):
        text = e13.excerpt({"epochs": epochs})
        assert (text.most_bytes or 0) - 1 == e13.READ / epochs
        assert (e13.STEPS * e13.BATCH) % epochs == 0 and e13.READ / epochs % e13.CONTEXT == 0


def test_arms_have_the_same_parameters_and_losses_drop_nothing(excerpt: e13.Excerpt) -> None:
    assert len({count(arm.config).total for arm in e13.EXPERIMENT.arms}) == 1  # type: ignore[arg-type]
    trial = start(e13.dropping(0.2), excerpt, RECIPE)
    fit(trial)
    text = excerpt.tokens(0)
    offsets = validation_offsets(text.size, 64, 6)
    rows = torch.stack([torch.from_numpy(text[o : o + 65].astype(np.int64)) for o in offsets])
    with torch.no_grad():
        logits = trial.model(rows[:, :-1])
    by_hand = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()) / np.log(2)
    found = e13.loss_on_training_text(trial)
    assert found == pytest.approx(float(by_hand), rel=1e-5) and found == e13.loss_on_training_text(trial)
    assert e13.gap(trial) == pytest.approx(probes.bits_per_byte(trial) - found)
