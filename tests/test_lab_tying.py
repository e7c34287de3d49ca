"""The experiment of tying: equal body, equal total, and what its measures count."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from morph.config import MLP, ModelConfig
from morph.lab.experiments.e18_tying import EXPERIMENT, TIED, initial_bits, repeated, table_share
from morph.lab.fit import start
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.train.loop import evaluate


def trial(arm: str) -> Trial:
    (cell,) = (cell for cell in EXPERIMENT.cells(quick=True) if cell.arm == arm)
    return start(cell.config, cell.task, cell.recipe)


def test_a_head_of_its_own_and_a_wider_body_hold_as_much() -> None:
    table = 256 * 24
    totals = {cell.arm: count(cell.config).total for cell in EXPERIMENT.cells(quick=True)}
    assert totals["tied"] == table + 2 * (4 * 24 * 24 + 2 * 24 * 96 + 2 * 24) + 24
    assert totals["untied"] == totals["tied, wider body"] == totals["tied"] + table


def test_arms_differ_in_one_thing() -> None:
    found: dict[str, ModelConfig] = {cell.arm: cell.config for cell in EXPERIMENT.cells(quick=True)}
    assert found["tied"].tied and found["untied"] == replace(TIED, tied=False)
    assert found["tied, wider body"] == replace(TIED, feed_forward=MLP(width=160, activation="relu"))


@pytest.mark.parametrize(("arm", "share"), [("tied", 0.305), ("untied", 0.468), ("tied, wider body", 0.234)])
def test_the_share_of_tables_is_that_of_the_named_parameters(arm: str, share: float) -> None:
    looked = trial(arm)
    named = {name: p.numel() for name, p in looked.model.named_parameters()}
    tables = sum(n for name, n in named.items() if name in ("embedding.weight", "head.weight"))
    assert table_share(looked) == pytest.approx(tables / sum(named.values()))
    assert table_share(looked) == pytest.approx(share, abs=0.001)


def test_bits_before_training_are_the_loss_on_held_out_windows() -> None:
    looked = trial("untied")
    recipe = looked.recipe.with_(evaluation_windows=32)
    bits = evaluate(looked.model, looked.task.corpus(), recipe, 64, looked.model.embedding.weight.device)  # type: ignore[attr-defined]
    assert initial_bits(looked) == pytest.approx(bits, rel=1e-5)


def test_a_tied_model_says_again_what_it_reads() -> None:
    looked = trial("untied")
    assert repeated(looked) == pytest.approx(1 / 256, abs=0.002)  # as likely as any
    with torch.no_grad():
        assert looked.model.head is not None
        looked.model.head.weight.copy_(looked.model.embedding.weight)
    assert repeated(looked) > 3 / 256
    ids = looked.held_out(32)[0]
    with torch.no_grad():
        odds = torch.log_softmax(looked.model(ids), dim=-1)
    by_hand = sum(float(odds[b, s, ids[b, s]].exp()) for b in range(32) for s in range(64)) / (32 * 64)
    assert repeated(looked) == pytest.approx(by_hand, rel=1e-5)
