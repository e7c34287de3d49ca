"""Made tasks: what the right answer is, that it can be worked out, and that windows and seeds do what they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import morph
from morph.errors import MorphError
from morph.lab.fit import fit, start
from morph.lab.made import Stem, answers
from morph.lab.tasks import IGNORED, Induction, Recall, Text
from morph.train.data import load_corpus, training_offsets, windows
from morph.train.recipe import Recipe
from tests.test_train_data import folder

CONFIG = replace(morph.stage(4, "nano"), vocab_size=64, n_layers=1)
RECIPE = Recipe(steps=2, batch_size=16, evaluation_windows=8)


def test_recall_asks_each_key_once_for_the_value_that_was_paired_with_it() -> None:
    task = Recall(pairs=5, keys=20, values=12)
    ids, targets = task.batch(CONFIG, RECIPE, step=3, index=0)
    assert ids.shape == targets.shape == (16, task.length) == (16, 15)
    for row, wanted in zip(ids, targets, strict=True):
        pairs = dict(zip(row[:10:2], row[1:10:2], strict=True))
        assert len(pairs) == 5 and set(pairs) <= set(range(20))
        assert all(20 <= value < 32 for value in pairs.values())
        assert sorted(row[10:]) == sorted(pairs)  # every key once
        assert [pairs[key] for key in row[10:]] == list(wanted[10:])
        assert set(wanted[:10]) == {IGNORED}
    assert sum(list(row[10:]) != list(row[:10:2]) for row in ids) >= 14  # asked in another order


def test_induction_asks_for_what_followed_the_token_before_in_runs_of_every_length() -> None:
    ids, targets = Induction(shortest=3, longest=5, tokens=30, read=8).batch(CONFIG, RECIPE, step=0, index=0)
    assert ids.shape == (16, 8)
    lengths = set()
    for row, wanted in zip(ids.tolist(), targets.tolist(), strict=True):
        n = row.index(row[0], 1)
        lengths.add(n)
        run = row[:n]
        assert len(set(run)) == n and row == (run * 3)[:8]
        assert wanted == [IGNORED] * n + (run * 4)[n + 1 : 9]
    assert lengths == {3, 4, 5}


def test_batches_depend_on_seed_step_and_index_alone_and_are_never_the_held_out_ones() -> None:
    task = Recall(pairs=4)
    first = task.batch(CONFIG, RECIPE, 0, 0)
    assert np.array_equal(first[0], task.batch(CONFIG, RECIPE, 0, 0)[0])
    others = [
        task.batch(CONFIG, RECIPE, 1, 0),
        task.batch(CONFIG, RECIPE, 0, 1),
        task.batch(CONFIG, RECIPE.with_(seed=1), 0, 0),
        task.held_out(CONFIG, 16),
    ]
    assert not any(np.array_equal(first[0], other[0]) for other in others)
    assert np.array_equal(task.held_out(CONFIG, 16)[0], task.held_out(CONFIG, 16)[0])


def test_values_are_drawn_evenly_and_order_tells_nothing() -> None:
    task = Recall(pairs=8, keys=32, values=4)
    ids, targets = task.held_out(CONFIG, 2000)
    counts = np.bincount(targets[:, 16:].ravel() - 32)
    assert counts.min() > 0.95 * counts.mean()
    places = (ids[:, 16:, None] == ids[:, None, 0:16:2]).argmax(-1)  # which pair is asked for at each place
    assert abs(np.corrcoef(places.ravel(), np.tile(np.arange(8), 2000))[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Recall(pairs=33), "pairs is 33, but keys must differ: give 1 to keys = 32"),
        (lambda: Recall(pairs=0), "pairs is 0"),
        (lambda: Recall(values=1), "values is 1: give at least 2"),
        (
            lambda: Induction(longest=65),
            "8 to 65 tokens, but these must differ: give at least 2 and at most",
        ),
        (lambda: Induction(shortest=13), "runs have 13 to 12 tokens"),
        (lambda: Induction(read=12), "read is 12: give more than longest = 12, or nothing is asked"),
    ],
)
def test_impossible_tasks_are_refused(make, words: str) -> None:
    with pytest.raises(MorphError, match=words):
        make()


def test_text_is_the_sweeps_text_and_can_be_short(tmp_path) -> None:
    path = str(folder(tmp_path / "text"))
    whole, config = load_corpus(path), morph.stage(0, "nano")
    task = Text(path=path)
    offsets = training_offsets(whole.train.size, 64, 16, 0, 5, 0)
    assert np.array_equal(task.batch(config, RECIPE, 5, 0)[0], windows(whole.train, offsets, 64)[0])
    short = Text(path=path, most_bytes=200)
    ids, _ = short.batch(config, RECIPE, 5, 0)
    assert all(bytes(row.tolist()) in whole.train[:200].tobytes() for row in ids)
    assert short.describe()["sha256"] == task.describe()["sha256"] == whole.sha256
    assert np.array_equal(short.held_out(config, 3)[0], task.held_out(config, 3)[0])
    with pytest.raises(MorphError, match="vocab_size is 64, but bytes need 256"):
        task.check(CONFIG)


def test_the_stem_mixes_the_last_three_embeddings_and_nothing_later() -> None:
    stem = Stem(6, torch.Generator().manual_seed(0)).double()
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    by_hand = torch.zeros_like(x)
    for t in range(7):
        for j in range(min(3, t + 1)):
            by_hand[:, t] += stem.weight[j] * x[:, t - j]
    assert torch.allclose(stem(x), by_hand, atol=1e-14)


def test_every_model_of_a_made_task_gets_the_same_stem_and_trains_it() -> None:
    task, recipe = Recall(pairs=2), Recipe(steps=1, batch_size=4, evaluation_windows=8)
    trials = [start(config, task, recipe) for config in (CONFIG, replace(CONFIG, n_layers=2))]
    stems = [trial.model.get_submodule("stem") for trial in trials]
    assert torch.equal(stems[0].weight, stems[1].weight)  # type: ignore[arg-type]
    before = stems[0].weight.clone()  # type: ignore[operator]
    fit(trials[0])
    assert not torch.equal(before, stems[0].weight)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        start(CONFIG, replace(task, has_stem=False), recipe).model.get_submodule("stem")


def test_answers_count_the_asked_places_alone() -> None:
    torch.manual_seed(0)
    model = start(CONFIG, Recall(pairs=3), RECIPE).model
    ids, targets = (torch.from_numpy(part) for part in Recall(pairs=3).held_out(CONFIG, 70))
    with torch.no_grad():
        logits = model(ids)[:, 6:]
    wanted = targets[:, 6:]
    right = (logits.argmax(-1) == wanted).double().mean()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    assert answers(model, (ids.numpy(), targets.numpy())) == (pytest.approx(float(right)), pytest.approx(float(loss)))


def test_a_solved_task_ends_the_training() -> None:
    task = Recall(pairs=1, keys=2, values=2, solved_at=0.4)  # chance is one half
    trial = start(
        replace(CONFIG, vocab_size=4), task, Recipe(steps=9, batch_size=4, evaluate_every=3, evaluation_windows=64)
    )
    fit(trial)
    assert len(trial.steps) == 3 and [step for step, _ in trial.evaluations] == [3]
