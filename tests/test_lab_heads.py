"""Scores of heads on weights made by hand, and silencing one head."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from morph.config import ModelConfig
from morph.errors import MorphError
from morph.lab import heads, mixers, probes
from morph.lab.experiments.e23_induction_heads import EXPERIMENT, READ, SHORTEST, WINDOW, opened
from morph.lab.fit import start
from morph.lab.tasks import IGNORED, Arrays, Induction
from morph.lab.trial import Trial
from morph.train.recipe import Recipe

TASK = Induction(shortest=4, longest=4, tokens=20, read=8)
RECIPE = Recipe(steps=1, batch_size=2)


def trial(number: int = 0) -> Trial:
    return start(opened(number), TASK, RECIPE)


def looking(*shares: tuple[int, float]) -> torch.Tensor:
    """Weights (1, 1, 8, 8) of a head that gives `share` to the token `back` places before, for each pair."""
    weights = torch.zeros(8, 8)
    for back, share in shares:
        weights += share * torch.diag(torch.ones(8 - back), -back)
    return weights[None, None]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Layers 1 and 3 have two heads each; the run is 4, so that induction looks 3 back."""
    heads_of = {
        1: (looking((1, 0.9)), looking((3, 0.25), (1, 0.5))),
        3: (looking((2, 1.0)), looking((3, 0.75))),
    }
    made = {
        f"blocks.{layer}.attention.weights": torch.cat(two, dim=1).repeat(heads.ROWS, 1, 1, 1)
        for layer, two in heads_of.items()
    }
    monkeypatch.setattr(probes, "watch", lambda trial, rows: made)
    return made


def test_scores_are_the_weight_one_back_and_on_the_token_after_the_last_occurrence(seen: Any) -> None:
    t = trial()
    assert heads.previous_token_scores(t) == pytest.approx({(1, 0): 0.9, (1, 1): 0.5, (3, 0): 0.0, (3, 1): 0.0})
    assert heads.induction_scores(t) == pytest.approx({(1, 0): 0.0, (1, 1): 0.25, (3, 0): 0.0, (3, 1): 0.75})
    assert heads.previous_token_by_layer(t) == pytest.approx([0, 0.9, 0, 0])
    assert heads.induction_by_layer(t) == pytest.approx([0, 0.25, 0, 0.75])
    assert heads.previous_token(t) == pytest.approx(0.9) and heads.induction(t) == pytest.approx(0.75)
    assert heads.layers_between(t) == 2


def test_only_places_count_where_the_next_token_is_asked_for(seen: dict[str, torch.Tensor]) -> None:
    seen["blocks.3.attention.weights"][..., 3, :] = 0  # the first reading's last token
    assert heads.induction_scores(trial())[3, 1] == pytest.approx(0.75)
    seen["blocks.3.attention.weights"][..., 4, :] = 0  # one of four
    assert heads.induction_scores(trial())[3, 1] == pytest.approx(0.75 * 3 / 4)


def test_the_place_after_the_last_occurrence() -> None:
    after, is_repeated = heads.after_last_occurrence(torch.tensor([[5, 7, 5, 5, 9, 7]]))
    assert is_repeated.tolist() == [[False, False, True, True, False, True]]
    assert after[is_repeated].tolist() == [1, 3, 2]


def test_a_silenced_head_writes_nothing_and_the_others_as_before() -> None:
    t = trial()
    mixer: Any = t.model.blocks[2].attention
    ids = t.held_out(2)[0]
    written: list[torch.Tensor] = []
    handle = mixer.o_proj.register_forward_hook(lambda module, inputs, out: written.append(inputs[0]))
    with torch.no_grad():
        whole = t.model(ids)
        with heads.without(t.model, (2, 1)):
            changed = t.model(ids)
        again = t.model(ids)
    handle.remove()
    width = mixer.head_dim
    assert written[1][..., width : 2 * width].abs().max() == 0 < written[0][..., width : 2 * width].abs().max()
    assert torch.equal(written[1][..., :width], written[0][..., :width])
    assert torch.equal(written[1][..., 2 * width :], written[0][..., 2 * width :])
    assert not torch.equal(changed, whole) and torch.equal(again, whole)


def test_the_loss_added_is_told_in_bits_for_the_best_head_and_the_weakest_of_its_layer(
    seen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([1.0, 1.0 + 2 * math.log(2), 1.0, 1.0 + 0.5 * math.log(2)])
    silenced = []
    monkeypatch.setattr(heads, "answers", lambda model, arrays: (0.0, next(losses)))
    real = heads.without

    def watched(model: Any, head: heads.Head) -> Any:
        silenced.append(head)
        return real(model, head)

    monkeypatch.setattr(heads, "without", watched)
    assert heads.added_beyond_other_head(trial()) == pytest.approx(1.5)
    assert silenced == [(3, 1), (3, 0)]


def test_what_has_no_such_heads_is_refused() -> None:
    class Silent(Induction):
        def held_out(self, config: ModelConfig, count: int) -> Arrays:
            ids, targets = super().held_out(config, count)
            return ids, targets * 0 + IGNORED

    with pytest.raises(MorphError, match="no token that was read before is asked about"):
        heads.induction_scores(start(opened(0), Silent(tokens=20), RECIPE))
    with pytest.raises(MorphError, match="no layer of this model has attention weights"):
        fading = mixers.laid_out(20, mixers.everywhere(mixers.lightning(8)))
        heads.induction_scores(start(fading, TASK, RECIPE))


def test_only_the_last_layer_of_stage_9_can_see_the_place_that_is_asked_for() -> None:
    arm = next(arm for arm in EXPERIMENT.arms if arm.name == "stage 9")
    assert isinstance(arm.config, ModelConfig)
    t = start(arm.config, EXPERIMENT.cells()[0].task, RECIPE)
    scores = heads.induction_by_layer(t)
    assert scores[:3] == [0, 0, 0] and scores[3] > 0
    assert WINDOW - 1 < SHORTEST - 1


def test_even_weights_score_what_the_experiment_says_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.ones(READ, READ).tril()
    near = whole - whole.tril(-WINDOW)
    for allowed, score in ((whole, "0.13"), (near, "0.26")):
        even = (allowed / allowed.sum(-1, keepdim=True))[None, None]
        monkeypatch.setattr(heads, "_weights", lambda trial, even=even: {0: even})
        assert f"{heads.previous_token_scores(trial())[0, 0]:.2f}" == score
        assert score in EXPERIMENT.not_shown


def test_what_is_said_of_heads_needs_heads() -> None:
    for claim in EXPERIMENT.claims:
        if claim.measure in ("layers between", "induction head missed more"):
            assert any(need.measure == "induction score" and need.arm == claim.of for need in claim.needs)


def test_only_the_last_layer_of_stage_14_has_weights() -> None:
    t = trial(14)
    assert {layer for layer, _ in heads.previous_token_scores(t)} == {3}
    assert heads.layers_between(t) is None
