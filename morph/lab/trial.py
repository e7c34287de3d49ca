"""A model on its task: what is trained, and what measures look at."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from morph.config import ModelConfig
from morph.lab.tasks import Task
from morph.model import Decoder
from morph.train.loop import Descent, to_device
from morph.train.recipe import Recipe

CPU = torch.device("cpu")


@dataclass
class Trial:
    """What a measure looks at: a model, its task, and how it was trained so far.

    Attributes:
        model: in evaluation mode while measures look.
        steps: one record a step taken, as `Descent`.
        evaluations: (steps taken, what `Task.evaluate` said), every `recipe.evaluate_every` steps and at the end.
        diverged_at: the step whose loss was not finite; None if there was none. The weights are those before it.
    """

    model: Decoder
    task: Task
    recipe: Recipe
    steps: list[Descent] = field(default_factory=list)
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    diverged_at: int | None = None

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def seed(self) -> int:
        return self.recipe.seed

    def held_out(self, count: int) -> tuple[Tensor, Tensor]:
        """`count` held-out inputs and targets, the same for every cell of the task."""
        return to_device(self.task.held_out(self.config, count), CPU)
