"""The training loop: plain PyTorch, one process, the same for every stage.

A step is: gradients of `accumulation` micro-batches, clip, AdamW, `model.end_step()`. Which text a step
sees, what dropout drops in it and which learning rate it uses depend on its number alone, so a run resumed from a
checkpoint goes on as if never stopped (bit for bit on the CPU with the same number of threads).
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

import morph
from morph.config import MLA
from morph.errors import MorphError
from morph.nn.router import Router
from morph.train import data
from morph.train.checkpoint import State, restore, save_checkpoint
from morph.train.device import pick_device, pick_precision, world
from morph.train.files import disk_error, lock
from morph.train.recipe import Recipe
from morph.train.records import NUMBER, require_fields
from morph.train.runs import AGAIN, Run, Summary, check_fit

LN2 = math.log(2)


@dataclass(frozen=True)
class StepReport:
    """One line of metrics: `loss` is the cross-entropy in nats per byte, `balance` the balance loss of experts.

    `load` is the fullest expert's share over an even share, counted over all steps since the last validation
    and averaged over layers; 1 is perfect balance. `expert_load` (layers, E) are the shares of the choices that each
    expert got over the same steps, `selection_bias` (layers, E) the biases after this step. What a step did not
    measure, and what the model has not, is None. `mtp` is the part of the loss from MTP heads, whose layers come last,
    `indexer` that of the indexers that choose tokens.
    """

    step: int
    loss: float
    bits_per_byte: float
    balance: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    validation_bits_per_byte: float | None = None
    load: float | None = None
    expert_load: list[list[float]] | None = None
    selection_bias: list[list[float]] | None = None
    mtp: float | None = None
    indexer: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How `train` ended: after all steps (with a summary), or stopped early at `step`."""

    step: int
    summary: Summary | None


def train(
    run: Run,
    *,
    device: str | None = None,
    on_step: Callable[[StepReport], None] | None = None,
    stop: threading.Event | None = None,
    corpus: data.Corpus | None = None,
) -> Outcome:
    """Train `run` to its last step, from its latest checkpoint if it has one.

    `on_step` is called after every step. When `stop` is set, the loop ends after the current step with a
    checkpoint. `device` None means the one the run was created for. `corpus` saves reading the text
    again.

    Raises MorphError when the loss stops being finite, the disk is full, another process trains the same run,
    or the text or checkpoint is not the run's own.
    """
    if run.summary is not None:
        return Outcome(run.summary.steps, run.summary)
    place = pick_device(device or run.facts["device"])
    corpus = corpus or run.corpus()
    check_fit(run.config, corpus)
    with lock(run.path / ".lock"):
        try:
            return _Loop(run, corpus, place).run_steps(on_step, stop or threading.Event())
        except OSError as error:
            raise disk_error(error, run.path, f"then continue with: morph train --out {run.path} --resume") from None


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only (gains, biases and other vectors are left alone)."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cpu", "cuda", "mps") for p in model.parameters())
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=fused)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """bf16 autocast, or nothing for fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else ExitStack()


@torch.no_grad()
def evaluate(model: morph.Decoder, corpus: data.Corpus, recipe: Recipe, context: int, device: torch.device) -> float:
    """Bits per byte on the fixed validation windows."""
    was_training = model.training
    model.eval()
    offsets = data.validation_offsets(corpus.validation.size, context, recipe.evaluation_windows)
    total = 0.0
    for first in range(0, len(offsets), recipe.batch_size):
        part = offsets[first : first + recipe.batch_size]
        ids, targets = to_device(data.windows(corpus.validation, part, context), device)
        with autocast(pick_precision(recipe.precision, device), device):
            total += model.loss(ids, targets).cross_entropy.item() * len(part)
    model.train(was_training)
    return total / len(offsets) / LN2


@dataclass(frozen=True)
class Descent:
    """One optimizer step: means over its micro-batches in nats, the gradient's norm before it was clipped.

    `load` (layers, E) is how often each expert was chosen; None without experts.
    """

    loss: float
    balance: float
    learning_rate: float
    gradient_norm: float
    load: Tensor | None
    mtp: float = 0.0
    indexer: float = 0.0


class Diverged(MorphError):
    """The loss or the gradient stopped being finite; the weights are those before this step."""

    def __init__(self, loss: float, norm: float) -> None:
        super().__init__(f"loss {loss}, gradient norm {norm}: try a lower learning rate")
        self.loss, self.norm = loss, norm


def descend(
    model: morph.Decoder,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    step: int,
    batches: Iterable[tuple[Tensor, Tensor]],
    precision: str = "fp32",
) -> Descent:
    """Optimizer step number `step` (from 0): gradients of `recipe.accumulation` batches, clip, update, `end_step`.

    `batches` is asked for the next one when the last has given its gradients. Raises Diverged instead of taking a step
    that is not finite.
    """
    rate, parts = recipe.rate(step), recipe.accumulation
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss, balance, mtp, indexer = 0.0, 0.0, 0.0, 0.0
    for ids, targets in batches:
        with autocast(precision, ids.device):
            found = model.loss(ids, targets)
        (found.total / parts).backward()
        loss += found.cross_entropy.item() / parts
        balance += found.balance.item() / parts
        mtp += found.mtp.item() / parts
        indexer += found.indexer.item() / parts
    norm = nn.utils.clip_grad_norm_(model.parameters(), recipe.clip).item()
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(loss, norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Descent(loss, balance, rate, norm, model.end_step(), mtp, indexer)


class _Loop:
    """The moving parts of one run."""

    def __init__(self, run: Run, corpus: data.Corpus, device: torch.device) -> None:
        self.run, self.recipe, self.corpus, self.device = run, run.recipe, corpus, device
        self.world = world()
        self.context = run.config.context_length
        self.precision = pick_precision(run.recipe.precision, device)
        self.model = morph.build(run.config, seed=run.seed, device=device).train()
        self.optimizer = make_optimizer(self.model, run.recipe)
        self.state = restore(run, self.model, self.optimizer)
        self.load = None if self.state.load is None else torch.tensor(self.state.load)

    def run_steps(self, on_step: Callable[[StepReport], None] | None, stop: threading.Event) -> Outcome:
        """Take the remaining steps; see `train`."""
        run, recipe = self.run, self.recipe
        run.truncate_metrics(self.state.step)
        saved, cpu = self.state.step, self.state.cpu_seconds - time.process_time()
        with open(run.metrics_path, "a", encoding="utf-8") as metrics:
            while self.state.step < recipe.steps and not stop.is_set():
                report = self._step(self.state.step)
                load = None if self.load is None else self.load.tolist()
                self.state = State(report.step, cpu + time.process_time(), load)
                metrics.write(json.dumps({k: v for k, v in asdict(report).items() if v is not None}) + "\n")
                metrics.flush()
                if report.step % recipe.checkpoint_every == 0 or report.step == recipe.steps:
                    saved = self._save(metrics)
                if on_step is not None:
                    on_step(report)
            if saved != self.state.step:
                self._save(metrics)
        if self.state.step < recipe.steps:
            return Outcome(self.state.step, None)
        summary = self._summary()
        run.write_summary(summary)
        return Outcome(self.state.step, summary)

    def _step(self, step: int) -> StepReport:
        """Optimizer step number `step` (from 0)."""
        recipe, started = self.recipe, time.perf_counter()
        try:
            done = descend(self.model, self.optimizer, recipe, step, self._batches(step), self.precision)
        except Diverged as error:
            self._refuse(step + 1, error)
        self._watch(done.load)
        tokens = recipe.accumulation * recipe.batch_size * self.context
        speed = tokens / (time.perf_counter() - started)
        validation = load = shares = biases = None
        if (step + 1) % recipe.evaluate_every == 0 or step + 1 == recipe.steps:
            validation = evaluate(self.model, self.corpus, recipe, self.context, self.device)
            if self.load is not None:
                load, shares = fullest_share(self.load), _rounded(self.load / self.load.sum(-1, keepdim=True), 4)
                biases = selection_biases(self.model)
            self.load = None
        attention = self.run.config.attention
        return StepReport(
            step=step + 1,
            loss=done.loss,
            bits_per_byte=done.loss / LN2,
            balance=done.balance,
            learning_rate=done.learning_rate,
            gradient_norm=done.gradient_norm,
            tokens_per_second=speed,
            validation_bits_per_byte=validation,
            load=load,
            expert_load=shares,
            selection_bias=biases,
            mtp=done.mtp if self.run.config.mtp else None,
            indexer=done.indexer if isinstance(attention, MLA) and attention.indexer else None,
        )

    def _batches(self, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The micro-batches of a step; each is drawn when it is its turn, and what is random in its pass with it."""
        size = self.corpus.train.size
        for micro in range(self.recipe.accumulation):
            index = micro * self.world.size + self.world.rank
            torch.manual_seed(
                data.noise_seed(self.run.seed, step, index)
            )  # for dropout: it follows from the step alone
            offsets = data.training_offsets(size, self.context, self.recipe.batch_size, self.run.seed, step, index)
            yield to_device(data.windows(self.corpus.train, offsets, self.context), self.device)

    def _watch(self, load: Tensor | None) -> None:
        """Add up how often each expert was chosen, (layers, E), until the next validation."""
        if load is not None:
            self.load = load.cpu() if self.load is None else self.load + load.cpu()

    def _save(self, metrics: Any) -> int:
        os.fsync(metrics.fileno())
        save_checkpoint(self.run, self.model, self.optimizer, self.state)
        return self.state.step

    def _refuse(self, step: int, error: Diverged) -> NoReturn:
        latest = self.run.latest()
        raise MorphError(
            f"training diverged at step {step} of {self.run.path}: loss {error.loss}, gradient norm {error.norm}; "
            f"{f'{latest.name} is the last checkpoint' if latest else 'no checkpoint yet'}; "
            f"try a lower --learning-rate than {self.recipe.learning_rate:g} in a new --out"
        ) from None

    def _summary(self) -> Summary:
        records = self.run.metrics()
        where = f"{self.run.metrics_path}, last line"
        require_fields(records[-1], {"validation_bits_per_byte": NUMBER}, where, AGAIN)
        last = records[-max(1, self.recipe.steps // 10) :]
        return Summary(
            steps=self.state.step,
            validation_bits_per_byte=records[-1]["validation_bits_per_byte"],
            train_bits_per_byte=sum(r["bits_per_byte"] for r in last) / len(last),
            tokens=self.recipe.steps * self.recipe.accumulation * self.recipe.batch_size * self.context,
            cpu_seconds=self.state.cpu_seconds,
        )


def fullest_share(load: Tensor) -> float:
    """The fullest expert's share over an even share, averaged over layers; `load` is (layers, E) counts."""
    load = load.float()
    return (load.amax(dim=-1) / load.mean(dim=-1)).mean().item()


def selection_biases(model: nn.Module) -> list[list[float]] | None:
    """Each routed layer's biases of the choice, (layers, E); None for a model without."""
    routers = [m for m in model.modules() if isinstance(m, Router)]
    biases = [router.selection_bias for router in routers if hasattr(router, "selection_bias")]
    return _rounded(torch.stack(biases), 6) if biases else None


def _rounded(table: Tensor, decimals: int) -> list[list[float]]:
    return [[round(value, decimals) for value in row] for row in table.tolist()]


def to_device(pair: tuple[Any, Any], device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs and targets as tensors on the device."""
    ids, targets = (torch.from_numpy(part.copy()).to(device) for part in pair)
    return ids, targets
