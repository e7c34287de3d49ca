"""Declarations: what is refused, which cells there are, and what a cell's name depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

import morph
from morph.errors import MorphError
from morph.lab import spec
from morph.lab.spec import Arm, Best, Cell, Claim, Experiment, Measure, Need, Quick
from morph.lab.tasks import Recall
from morph.model import Decoder
from tests.lab_tiny import CONFIG, EXPERIMENT

CLAIM = EXPERIMENT.claims[0]


def cell(experiment: Experiment, arm: str = "rope", seed: int = 0, **point: float) -> Cell:
    """The one cell of an arm at a point."""
    point = {"pairs": 1, "learning_rate": 1e-3} | point
    (found,) = [c for c in experiment.cells() if (c.arm, c.seed, dict(c.point)) == (arm, seed, point)]
    return found


def test_the_grid_times_arms_times_seeds() -> None:
    cells = EXPERIMENT.cells()
    assert len(cells) == 3 * 2 * 2 * 3
    assert [c.seed for c in cells] == [0] * 12 + [1] * 12 + [2] * 12  # a whole comparison early
    assert cell(EXPERIMENT, learning_rate=1e-2).recipe == EXPERIMENT.recipe.with_(learning_rate=1e-2, seed=0)
    assert cell(EXPERIMENT, pairs=2, seed=1).task == Recall(pairs=2, keys=8, values=8)
    assert cell(EXPERIMENT, "silu").config.feed_forward.activation == "silu"  # type: ignore[union-attr]


def test_a_quick_run_is_one_seed_few_steps_and_one_value_of_each_axis() -> None:
    cells = EXPERIMENT.cells(quick=True)
    assert [(c.arm, dict(c.point), c.seed) for c in cells] == [
        (arm, {"pairs": 2, "learning_rate": 1e-2}, 0) for arm in ("rope", "silu", "untrained")
    ]
    assert (cells[0].recipe.steps, cells[0].recipe.evaluation_windows) == (2, 16)
    shared = {c.key for c in cells} & {c.key for c in EXPERIMENT.cells()}
    assert shared == {c.key for c in cells if not c.is_trained}  # nothing about these is quicker


def test_an_untrained_cell_is_the_same_at_every_learning_rate() -> None:
    assert cell(EXPERIMENT, "untrained", learning_rate=1e-2).key == cell(EXPERIMENT, "untrained").key
    assert len({c.key for c in EXPERIMENT.cells()}) == 2 * 2 * 2 * 3 + 2 * 3


def without_norm(model: Decoder) -> None:
    """No final norm."""
    model.norm = torch.nn.Identity()


def without_the_last_measure(e: Experiment) -> Experiment:
    return replace(e, measures=e.measures[:-1])


def without_the_last_trained_measure(e: Experiment) -> Experiment:
    last = [measure for measure in e.measures if measure.at == "end"][-1]
    return replace(e, measures=tuple(measure for measure in e.measures if measure != last))


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        (lambda e: replace(e, recipe=e.recipe.with_(steps=4)), True),
        (lambda e: replace(e, recipe=e.recipe.with_(clip=0.5)), True),
        (lambda e: replace(e, arms=(Arm("rope", CONFIG, {"warmup": 0.5}), *e.arms[1:])), True),
        (lambda e: replace(e, arms=(Arm("rope", replace(CONFIG, n_layers=2)), *e.arms[1:])), True),
        (lambda e: replace(e, task=Recall(pairs=1, keys=7, values=9)), True),
        (lambda e: replace(e, arms=(Arm("rope", CONFIG, alter=without_norm), *e.arms[1:])), True),
        (without_the_last_measure, True),
        (lambda e: replace(e, version=2), True),
        (lambda e: replace(e, procedure=lambda cell, on_step: {}), True),
        (lambda e: replace(e, claims=(), title="Other words", question="Why?", minutes=7, not_shown=""), False),
        (lambda e: replace(e, seeds=(0, 1, 2, 3)), False),
        (lambda e: replace(e, vary={"pairs": (1, 2), "learning_rate": (1e-3, 1e-2, 3e-2)}), False),
        (lambda e: replace(e, best=None), False),
    ],
)
def test_a_cells_name_follows_from_what_its_numbers_follow_from(
    change: Callable[[Experiment], Experiment], is_new: bool
) -> None:
    assert (cell(change(EXPERIMENT)).key != cell(EXPERIMENT).key) == is_new


def test_a_procedure_reads_all_measures_of_an_untrained_cell_too() -> None:
    untrained = replace(EXPERIMENT, arms=(Arm("rope", CONFIG, is_trained=False),), claims=(), best=None)
    assert cell(untrained).key == cell(without_the_last_trained_measure(untrained)).key
    read = replace(untrained, procedure=lambda cell, on_step: {})
    assert cell(read).key != cell(without_the_last_trained_measure(read)).key


def test_seed_format_and_torch_are_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first = cell(EXPERIMENT).key
    assert cell(EXPERIMENT, seed=1).key != first
    monkeypatch.setattr(spec, "FORMAT", 10**6)
    assert cell(EXPERIMENT).key != first
    monkeypatch.undo()
    monkeypatch.setattr(spec, "versions", lambda: {"torch": "0.1"})
    assert cell(EXPERIMENT).key != first


def claims(**changes: Any) -> dict[str, Any]:
    return {"claims": (replace(CLAIM, **changes),)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": (0, 1)}, "2 seeds show too little of the spread: give at least 3"),
        ({"seeds": (0, 1, 1)}, "its seeds have 1 twice"),
        ({"arms": (Arm("rope", CONFIG), Arm("rope", CONFIG))}, "its arms have 'rope' twice"),
        ({"arms": ()}, "it has no arms"),
        ({"arms": (Arm("rope", CONFIG, alter=lambda m: None),)}, "alter of 'rope' has no name of its own"),
        ({"arms": (Arm("rope", CONFIG, alter=partial(without_norm)),)}, "alter of 'rope' has no name of its own"),
        ({"arms": (Arm("rope", CONFIG, {"warm_up": 0.1}),)}, "unknown recipe field of 'rope' 'warm_up'"),
        ({"measures": (Measure("loss", lambda t: 0.0),) * 2}, "its measures have 'loss' twice"),
        ({"measures": (*EXPERIMENT.measures, Measure("bare"))}, "nothing reads its measure 'bare': give it a `read`"),
        ({"vary": {"pairs": ()}, "best": None}, "it has no values of 'pairs'"),
        ({"best": Best("rate", by="loss")}, "unknown axis 'rate': choose one of pairs, learning_rate"),
        ({"best": Best("learning_rate", by="los")}, "unknown measure 'los': choose one of loss, curve, steps"),
        ({"quick": Quick(vary={"pairs": (3,)})}, "unknown value of 'pairs' 3: choose one of 1, 2"),
        (claims(of="ropes"), "unknown arm 'ropes': choose one of rope, silu, untrained; did you mean 'rope'?"),
        (claims(against="gelu"), "unknown arm 'gelu'"),
        (claims(measure="speed"), "unknown measure 'speed'"),
        (claims(at={"pairs": 5}), "unknown value of 'pairs' 5"),
        (claims(against_at={"depth": 5}), "unknown axis 'depth'"),
        (claims(more_than=1.0), "has 2 bounds: give one of more_than, less_than, within"),
        (claims(less_than=None), "has 0 bounds"),
        (claims(ratio=True, less_than=-1.0), r"is of a ratio, and -1.0 is none"),
        (claims(ratio=True, less_than=None, within=1.0), "within = 1.0 leaves no room"),
        (claims(needs=(Need("loss", "gelu"),)), "unknown arm 'gelu'"),
        (claims(needs=(Need("speed", "rope"),)), "unknown measure 'speed'"),
    ],
)
def test_a_slip_in_a_declaration_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MorphError) as caught:
        replace(EXPERIMENT, **changes)
    assert str(caught.value).startswith("experiment 'tiny': ")
    assert words in str(caught.value)


def test_a_measure_that_the_procedure_reads_needs_no_read_and_changes_no_name() -> None:
    by_procedure = replace(EXPERIMENT, procedure=lambda cell, on_step: {"loss": 1.0})
    bare = replace(by_procedure, measures=tuple(replace(measure, read=None) for measure in EXPERIMENT.measures))
    assert [c.key for c in bare.cells()] == [c.key for c in by_procedure.cells()]


def test_a_model_that_cannot_learn_the_task_is_refused() -> None:
    small = replace(morph.stage(4, "nano"), vocab_size=12)
    with pytest.raises(MorphError, match="vocab_size is 12, but this recall task has 16 tokens"):
        replace(EXPERIMENT, arms=(Arm("small", small),), claims=()).cells()


def test_a_claim_is_words_and_one_bound() -> None:
    assert Claim("a", "loss", of="rope", more_than=0.0) == Claim("a", "loss", "rope", None, 0.0)
