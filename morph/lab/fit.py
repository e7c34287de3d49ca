"""One cell: build the model, read what is measured at the start, train it, read what is measured at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import morph
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.lab.spec import Cell, Measure, Reading
from morph.lab.tasks import Task
from morph.lab.trial import CPU, Trial
from morph.model import Decoder
from morph.train.data import noise_seed
from morph.train.loop import Diverged, descend, make_optimizer, to_device
from morph.train.recipe import Recipe


def start(config: ModelConfig, task: Task, recipe: Recipe, alter: Callable[[Decoder], None] | None = None) -> Trial:
    """A fresh model on its task, its weights from the recipe's seed, altered as `Arm.alter` says."""
    model = morph.build(config, seed=recipe.seed)
    if alter is not None:
        alter(model)
    task.prepare(model, recipe.seed)
    return Trial(model.eval(), task, recipe)


def fit(trial: Trial, on_step: Callable[[int], None] = lambda step: None) -> None:
    """Train to the recipe's last step; ends early when the task is solved or the loss diverges."""
    model, task, recipe = trial.model, trial.task, trial.recipe
    optimizer = make_optimizer(model, recipe)
    model.train()
    for step in range(recipe.steps):
        try:
            trial.steps.append(descend(model, optimizer, recipe, step, _batches(trial, step)))
        except Diverged:
            trial.diverged_at = step + 1
            break
        on_step(step + 1)
        if (step + 1) % recipe.evaluate_every == 0 or step + 1 == recipe.steps:
            model.eval()
            trial.evaluations.append((step + 1, task.evaluate(model, recipe)))
            model.train()
            if task.is_solved(trial.evaluations[-1][1]):
                break
    model.eval()


def _batches(trial: Trial, step: int) -> Iterator[tuple[Tensor, Tensor]]:
    for index in range(trial.recipe.accumulation):
        torch.manual_seed(noise_seed(trial.seed, step, index))  # for dropout, as in the training loop
        yield to_device(trial.task.batch(trial.config, trial.recipe, step, index), CPU)


def measure(cell: Cell, on_step: Callable[[int], None] = lambda step: None) -> dict[str, Any]:
    """Every reading of a cell, with how it went; what its result file holds."""
    cpu = time.process_time()
    readings: dict[str, Any]
    diverged_at = None
    if cell.experiment.procedure is not None:
        readings = dict(cell.experiment.procedure(cell, on_step))
        declared = [m.name for m in cell.experiment.measures]
        if undeclared := [name for name in readings if name not in declared]:
            raise MorphError(f"the procedure gives {undeclared[0]!r}, and no measure is declared so")
        taken = cell.steps
    else:
        trial = start(cell.config, cell.task, cell.recipe, cell.alter)
        readings = {m.name: read(m, trial) for m in cell.experiment.measures if m.at == "init"}
        if cell.is_trained:
            fit(trial, on_step)
            diverged_at = trial.diverged_at
            for m in cell.experiment.measures:
                if m.at == "end":
                    readings[m.name] = m.diverged if diverged_at is not None else read(m, trial)
        taken = len(trial.steps)
    return {
        "readings": {name: _rounded(value) for name, value in readings.items()},
        "steps": taken,
        "diverged_at": diverged_at,
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }


def read(measure: Measure, trial: Trial) -> Reading | None:
    """One reading; measures leave no gradients behind."""
    assert measure.read is not None, f"{measure.name} is the procedure's to read"
    found = measure.read(trial)
    trial.model.zero_grad(set_to_none=True)
    return found


def _rounded(value: Any) -> float | list[float] | None:
    """Six significant digits: more is noise, and files stay small. What is not finite is no reading: None."""
    if value is None:
        return None
    if isinstance(value, np.ndarray | Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        numbers = [float(f"{float(v):.6g}") for v in value]
        return numbers if numbers and all(map(math.isfinite, numbers)) else None
    number = float(f"{float(value):.6g}")
    return number if math.isfinite(number) else None
