"""torch.compile gives the same numbers; stages 0, 9 and 14 always, the others and some forks in the full run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import morph
from morph.forks import config_of
from morph.model import Loss
from tests.models import random_ids, relative_error

pytestmark = pytest.mark.timeout(900)  # a compiler that shares its cores with others can take minutes

ALWAYS = (0, 9, 14)
FORKS = ("attention-sink", "sandwich-norm", "parallel-block", "mla", "sparse-attention", "lightning", "mtp")
CHOSEN = [pytest.param(k, marks=() if k in ALWAYS else pytest.mark.slow) for k in (*range(15), *FORKS)]


@pytest.mark.parametrize("k", CHOSEN)
@pytest.mark.filterwarnings("default")
def test_a_compiled_training_step_equals_the_eager_one(k: int | str) -> None:
    torch._dynamo.reset()
    model = morph.build(config_of(k, "nano")).train()
    ids = random_ids(model, 2, 70)

    start = {name: value.clone() for name, value in model.state_dict().items()}

    def step(run: Callable[..., Loss]) -> tuple[float, Tensor, Tensor | None]:
        """The loss, all gradients in one vector, and the experts' load."""
        model.zero_grad()
        model.load_state_dict(start)
        loss = run(ids[:, :-1], ids[:, 1:]).total
        loss.backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        return loss.item(), gradients, model.end_step()

    loss, gradients, load = step(model.loss)
    compiled_loss, compiled_gradients, compiled_load = step(torch.compile(model.loss))
    assert compiled_loss == pytest.approx(loss, rel=1e-5)
    assert relative_error(compiled_gradients, gradients) < 1e-4
    assert (load is None) == (model.config.moe is None)
    if load is not None and compiled_load is not None:
        assert torch.equal(compiled_load, load) and float(load.sum()) > 0
