"""Granularity: equal parameters but for the routers, and what barring the best experts does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import morph
from morph.config import MoE
from morph.lab.experiments.e10_granularity import EXPERIMENT, cut_in, fullest, later, shallow, without_favourites
from morph.lab.fit import fit, start
from morph.lab.tasks import Text
from morph.nn.moe import MixtureOfExperts
from morph.nn.router import Router
from morph.train.recipe import Recipe
from tests.test_train_data import folder

RECIPE = Recipe(steps=1, batch_size=2, evaluate_every=1, evaluation_windows=4)


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(path=str(folder(tmp_path / "text")))


def test_but_for_the_routers_all_arms_hold_as_much_and_a_token_meets_as_much() -> None:
    sizes, routers = set(), []
    for arm in EXPERIMENT.arms:
        config = arm.config
        assert isinstance(config, morph.ModelConfig)
        moe, count = config.feed_forward, morph.count(config)
        router = config.n_layers * config.d_model * moe.n_experts if isinstance(moe, MoE) else 0
        routers.append(router)
        sizes.add((isinstance(moe, MoE), count.total - router, count.active.all - router))
    assert routers == [0, 768, 1536, 3072, 2976]
    assert sizes == {(False, 63_264, 63_264), (True, 173_856, 63_264)}


def test_the_cuts_are_those_of_the_stages() -> None:
    assert (cut_in(1), cut_in(4)) == (shallow(10), shallow(11))
    shared, twelve = cut_in(4, n_shared=1).feed_forward, shallow(12).feed_forward
    assert morph.diff(twelve, shared)[0].path == "n_experts" and len(morph.diff(twelve, shared)) == 1  # type: ignore[arg-type]


def test_later_experts_follow_the_barred() -> None:
    scores = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.4, 0.3, 0.2, 0.1]])
    assert later(scores, top_k=2, barred=1).tolist() == [[3, 2], [1, 2]]


def test_barring_is_what_an_unreachable_favourite_costs(text: Text) -> None:
    trial = start(cut_in(1), text, RECIPE)
    fit(trial)
    cost = without_favourites(trial)
    assert cost is not None and abs(cost) > 1e-4
    routers = [module for module in trial.model.modules() if isinstance(module, Router)]
    assert all("choose" not in vars(router) for router in routers)

    def hide_the_best(router: Router, inputs: object, logits: torch.Tensor) -> torch.Tensor:
        return logits.scatter(-1, logits.argmax(-1, keepdim=True), -torch.inf)

    for router in routers:
        router.logits.register_forward_hook(hide_the_best)  # type: ignore[arg-type]
        router.forward = bind(router)  # type: ignore[method-assign]
    barred = text.evaluate(trial.model, RECIPE)["bits per byte"]
    assert cost == pytest.approx(barred - trial.evaluations[-1][1]["bits per byte"], abs=1e-4)


def bind(router: Router):  # type: ignore[no-untyped-def]
    """A router whose logits pass through its own hook, its weights among the chosen alone."""

    def forward(x, context):  # type: ignore[no-untyped-def]
        scores = router.logits(x).softmax(-1)
        weights, chosen = scores.topk(router.top_k)
        return weights / weights.sum(-1, keepdim=True) * router.routed_scale, chosen

    return forward


def test_a_dense_network_has_no_experts_to_bar_or_count(text: Text) -> None:
    trial = start(shallow(9), text, RECIPE)
    assert without_favourites(trial) is None and fullest(trial) is None
    assert not any(isinstance(module, MixtureOfExperts) for module in trial.model.modules())
