"""Measures, held against the same thing worked out another way."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import morph
from morph.errors import MorphError
from morph.lab import probes
from morph.lab.fit import fit, measure, start
from morph.lab.result import declare
from morph.lab.spec import Measure
from morph.lab.tasks import Recall, Text
from morph.lab.trial import Trial
from morph.model import Decoder
from morph.train.loop import Descent, Diverged, descend, evaluate, make_optimizer
from morph.train.recipe import Recipe
from tests.lab_tiny import EXPERIMENT
from tests.test_train_data import folder

RECIPE = Recipe(steps=3, batch_size=4, evaluate_every=1, evaluation_windows=8)


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(path=str(folder(tmp_path / "text")))


def trial(stage: int, text: Text, **changes: object) -> Trial:
    return start(replace(morph.stage(stage, "nano"), **changes), text, RECIPE)  # type: ignore[arg-type]


def steps(losses: list[float], loads: list[list[list[int]]] | None = None) -> list[Descent]:
    return [
        Descent(loss, 0.0, 1e-3, 1.0, None if loads is None else torch.tensor(loads[i]))
        for i, loss in enumerate(losses)
    ]


def test_a_fit_is_the_training_loop_without_its_folder(text: Text) -> None:
    here, by_hand = trial(13, text), trial(13, text)
    seen: list[int] = []
    fit(here, seen.append)
    optimizer = make_optimizer(by_hand.model, RECIPE)
    by_hand.model.train()
    for step in range(3):
        batch = text.batch(by_hand.config, RECIPE, step, 0)
        descend(by_hand.model, optimizer, RECIPE, step, [tuple(torch.from_numpy(part.copy()) for part in batch)])  # type: ignore[list-item]
    assert seen == [1, 2, 3] and [step for step, _ in here.evaluations] == [1, 2, 3]
    for mine, other in zip(here.model.parameters(), by_hand.model.parameters(), strict=True):
        assert torch.equal(mine, other)
    bits = evaluate(by_hand.model.eval(), text.corpus(), RECIPE, 64, torch.device("cpu"))
    assert probes.bits_per_byte(here) == bits
    assert not here.model.training


def silent(model: Decoder) -> None:
    """The head says nothing."""
    torch.nn.init.zeros_(model.embedding.weight)


def test_an_arm_alters_its_model_before_anything_is_read() -> None:
    arms = (replace(EXPERIMENT.arms[0], alter=silent), EXPERIMENT.arms[1])
    measures = (Measure("stream", probes.stream_sizes, at="init"), Measure("nothing", lambda trial: None))
    cells = replace(EXPERIMENT, arms=arms, measures=measures, claims=(), best=None).cells()
    assert measure(cells[0])["readings"] == {"stream": [0.0, 0.0], "nothing": None}
    assert min(measure(cells[1])["readings"]["stream"]) > 0.5
    told = declare(replace(EXPERIMENT, arms=arms, claims=()), cells)["arms"]
    assert told[0]["changes"] == ["The head says nothing."]
    assert told[1]["changes"] == ["feed_forward.activation: relu → silu"]


def test_a_run_that_is_not_finite_ends_with_the_weights_before_it(text: Text) -> None:
    broken = trial(4, text)
    with torch.no_grad():
        broken.model.norm.weight[0] = math.inf  # type: ignore[index,union-attr]
    fit(broken)
    assert (broken.diverged_at, broken.steps, broken.model.training) == (1, [], False)


def test_a_diverged_cell_reads_what_was_declared_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def second_step_diverges(*arguments: object) -> Descent:
        if arguments[3] == 1:
            raise Diverged(math.nan, math.nan)
        return descend(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("morph.lab.fit.descend", second_step_diverges)
    measures = (replace(EXPERIMENT.measures[0], diverged=7.0), *EXPERIMENT.measures[1:])
    done = measure(replace(EXPERIMENT, measures=measures).cells()[0])
    assert (done["diverged_at"], done["steps"]) == (2, 1)
    stream = done["readings"].pop("stream")  # read before the training
    assert len(stream) == 2 and done["readings"] == {"loss": 7.0, "curve": None, "steps": None}


def test_what_attention_looks_at(text: Text) -> None:
    looked = trial(9, text)
    ids = looked.held_out(probes.ROWS)[0]
    with torch.no_grad(), morph.trace(looked.model) as seen:
        looked.model(ids)
    weights = [seen[f"blocks.{layer}.attention.weights"].double() for layer in range(4)]
    entropies = [float(torch.special.entr(w).sum(-1).mean()) for w in weights]
    assert probes.attention_entropies(looked) == pytest.approx(entropies, rel=1e-5)
    assert probes.attention_entropy(looked) == pytest.approx(sum(entropies) / 4, rel=1e-5)
    largest = max(float(seen[f"blocks.{n}.attention.scores"].nan_to_num(neginf=0.0).abs().max()) for n in range(4))
    assert probes.largest_logit(looked) == largest
    first = sum(float(w[:, :, 32:, 0].mean()) for w in weights) / 4
    assert probes.weight_on_first(looked) == pytest.approx(first, rel=1e-5)
    sizes = [float(seen[name].square().mean().sqrt()) for name in ("stream", *(f"blocks.{n}.stream" for n in range(4)))]
    assert probes.stream_sizes(looked) == pytest.approx(sizes, rel=1e-6)


def test_gradients_by_layer_are_those_of_the_loss_and_leave_nothing(text: Text) -> None:
    looked = trial(1, text)
    sizes = probes.gradient_sizes(looked)
    loss = looked.model.loss(*looked.held_out(probes.ROWS)).total
    for layer, block in enumerate(looked.model.blocks):
        grads = torch.autograd.grad(loss, list(block.parameters()), retain_graph=True)
        assert sizes[layer] == pytest.approx(float(torch.cat([g.flatten() for g in grads]).norm()), rel=1e-5)
    assert probes.first_gradient(looked) == pytest.approx(sizes[0] / sizes[3])


def test_loads_are_shares_of_an_even_one_over_the_last_steps(text: Text) -> None:
    looked = trial(10, text)
    with pytest.raises(MorphError, match="no routed experts, or was not trained"):
        probes.fullest_expert(looked)
    looked.steps = steps([1.0] * 4, [[[9, 0, 0], [3, 3, 3]]] * 2 + [[[6, 6, 0], [4, 3, 5]]] * 2)
    assert probes.expert_shares(looked).tolist() == [[1.5, 1.5, 0.0], [1.0, 0.75, 1.25]]
    assert probes.fullest_expert(looked) == pytest.approx((1.5 + 1.25) / 2)
    assert probes.dead_experts(looked) == 0.5
    looked.steps = steps([1.0] * 4, [[[4, 0, 0], [9, 0, 0]]] * 2 + [[[8, 0, 4], [3, 3, 3]], [[0, 8, 4], [3, 3, 3]]])
    assert probes.fullest_expert(looked) == 1.0, "what swings averages out"
    assert probes.fullest_in_a_step(looked) == pytest.approx((2 + 1) / 2)


def test_losses_over_steps(text: Text) -> None:
    looked = trial(4, text)
    looked.steps = steps([math.log(2) * n for n in (8, 6, 4, 3, 2, 1, 1, 3)])
    assert probes.training_loss(0.25)(looked) == pytest.approx(2.0)
    assert probes.loss_curve(4)(looked) == pytest.approx([7.0, 3.5, 1.5, 2.0])
    assert len(probes.loss_curve(20)(looked)) == 8
    assert probes.steps_taken(looked) == 8.0


def test_late_gain_is_what_the_last_quarter_brought() -> None:
    recipe = Recipe(steps=100, evaluate_every=25)
    looked = start(EXPERIMENT.arms[0].config, Recall(pairs=1, keys=8, values=8), recipe)  # type: ignore[arg-type]
    with pytest.raises(MorphError, match="nothing was evaluated"):
        probes.accuracy(looked)
    looked.evaluations = [(25 * n, {"accuracy": value}) for n, value in ((1, 0.1), (2, 0.5), (3, 0.6), (4, 0.68))]
    assert probes.late_gain("accuracy")(looked) == pytest.approx(0.08)
    assert probes.late_gain("accuracy", share=0.5)(looked) == pytest.approx(0.18)
    looked.evaluations[-1] = (100, {"accuracy": 1.0})
    assert probes.late_gain("accuracy")(looked) == 0.0  # solved: nothing is left to gain
    looked.evaluations = [(100, {"accuracy": 0.5})]
    with pytest.raises(MorphError, match="lower evaluate_every"):
        probes.late_gain("accuracy")(looked)


def test_losses_by_position_reach_beyond_the_trained_length(text: Text) -> None:
    looked = trial(4, text)
    losses = probes.position_losses(looked, length=100, rows=3)
    ids, targets = (torch.from_numpy(part.copy()) for part in text.held_out(looked.config, 3, 100))
    with torch.no_grad():
        logits = looked.model(ids)
    at_70 = cross_entropy(logits[:, 70], targets[:, 70]) / math.log(2)
    assert (losses.shape, float(losses[70])) == ((100,), pytest.approx(float(at_70), rel=1e-5))
    assert probes.loss_between(64, 100, rows=3)(looked) == pytest.approx(float(losses[64:].mean()))
    assert probes.loss_between(0, 64, length=100, rows=3)(looked) == pytest.approx(float(losses[:64].mean()))
