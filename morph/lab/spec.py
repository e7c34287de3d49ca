"""What an experiment is, declared before it runs: arms, a grid, seeds, what is measured, and which effect would count.

    EXPERIMENT = Experiment(
        number=1, name="warm-up", title="Warm-up at depth",
        question="Does a deep post-norm model need a warm-up that a pre-norm one does without?",
        arms=(Arm("post", lambda point: ...), Arm("pre", lambda point: ...)),
        vary={"layers": (12, 24), "learning_rate": (1e-3, 3e-3, 1e-2)},
        best=Best("learning_rate", by="bits per byte"),
        task=Text(), recipe=Recipe(steps=200),
        measures=(Measure("bits per byte", bits_per_byte),),
        claims=(Claim("post ends worse", "bits per byte", of="post", against="pre", more_than=0.1),),
        minutes=20, not_shown="...",
    )

A *cell* is one arm at one point of the grid with one seed: an independent job, named by a hash of everything that its
numbers follow from. Claims, titles and texts are not part of it, so that sharpening a sentence costs no training.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from morph.config import ModelConfig
from morph.errors import MorphError, nearest
from morph.lab.tasks import Task
from morph.train.recipe import Recipe
from morph.train.runs import versions

if TYPE_CHECKING:
    from morph.lab.trial import Trial
    from morph.model import Decoder

FORMAT = 1
"""Part of every cell's name. Raise it when a change of models, training or tasks changes what old cells would say."""

Value = int | float | str
Point = Mapping[str, Value]
Reading = float | list[float]
"""What a measure gives: a number, or a list of them (a layer each, a position each)."""
Procedure = Callable[["Cell", Callable[[int], None]], Mapping[str, Reading | None]]
"""From a cell to its readings; the second argument is told the steps done so far."""

_RECIPE_FIELDS = {f.name for f in dataclasses.fields(Recipe)} - {"seed"}


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Attributes:
        name: as tables and plots write it.
        config: the model, or a function from the point of the grid to it.
        recipe: what differs from the experiment's recipe, field by field.
        is_trained: whether it is trained at all; otherwise only measures "at init" are taken.
        alter: what is done to the freshly built model, where no config says it; the first line of its docstring tells
            it. A procedure hands `Cell.alter` to `start` itself.
    """

    name: str
    config: ModelConfig | Callable[[Point], ModelConfig]
    recipe: Mapping[str, Any] = field(default_factory=dict)
    is_trained: bool = True
    alter: Callable[[Decoder], None] | None = None


@dataclass(frozen=True)
class Measure:
    """A named quantity.

    Attributes:
        name: as claims refer to it.
        read: what takes it from a model on its task; scalars can be claimed about, lists only drawn. What it gives is
            None where the model has no such thing. It is None itself where the experiment's procedure reads it.
        unit: for tables and axes.
        at: "end" of the training, or "init".
        diverged: its value for a run whose loss stopped being finite; None when it then has none.
        is_log: whether plots spread it logarithmically.
        along: what a list goes along, for the axis of its plot ("layer, from 0").
    """

    name: str
    read: Callable[[Trial], Reading | None] | None = None
    unit: str = ""
    at: Literal["init", "end"] = "end"
    diverged: float | None = None
    is_log: bool = False
    along: str = ""


@dataclass(frozen=True)
class Best:
    """Each arm is compared at its own best value of one axis: the one whose mean of `by` over the seeds is best."""

    over: str
    by: str
    take: Literal["lowest", "highest"] = "lowest"


@dataclass(frozen=True)
class Need:
    """What must hold of an arm, on the mean over seeds, before a claim says anything: a control, or an end of learning.

    Give either bound, or both.
    """

    measure: str
    arm: str
    more_than: float = -math.inf
    less_than: float = math.inf


@dataclass(frozen=True)
class Claim:
    """An inequality between two arms, with the size that would count, set before the data.

    The difference is `of` minus `against`, paired by seed (`ratio`: the quotient instead, its logarithms paired).
    Exactly one of `more_than`, `less_than` and `within` is given; `within=w` claims that the difference lies between
    -w and w (with `ratio`, between 1/w and w). Without `against` the value itself is held against the bound.

    Attributes:
        text: the claim in words, for tables.
        at: a point of the grid; for each axis left out the claim is judged at every value. With the axis of `Best` in
            it both sides are read at that one value; left out, each at its own best.
        against_at: where the other side is read when that is elsewhere (with `against` left out: the same arm).
        needs: what must hold first; else the claim stays undecided.
    """

    text: str
    measure: str
    of: str
    against: str | None = None
    more_than: float | None = None
    less_than: float | None = None
    within: float | None = None
    ratio: bool = False
    at: Point = field(default_factory=dict)
    against_at: Point = field(default_factory=dict)
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True)
class Quick:
    """The same experiment in seconds, to see that it runs: one seed, few steps, one value of each axis.

    `vary` names other values; an axis that it leaves out keeps its first (that of `Best` its middle) value.
    """

    steps: int = 10
    vary: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=lambda: {"evaluation_windows": 16})


@dataclass(frozen=True)
class Cell:
    """One arm at one point with one seed: all that its numbers follow from."""

    arm: str
    point: Point
    seed: int
    config: ModelConfig
    recipe: Recipe
    task: Task
    is_trained: bool
    experiment: Experiment
    alter: Callable[[Decoder], None] | None = None

    @property
    def steps(self) -> int:
        """Optimizer steps, for the progress view (an untrained cell counts as one)."""
        return self.recipe.steps if self.is_trained else 1

    def identity(self) -> dict[str, Any]:
        """What the cell's numbers follow from, as plain values."""
        measures = [
            m.name for m in self.experiment.measures if self.is_trained or m.at == "init" or self.experiment.procedure
        ]
        altered = {} if self.alter is None else {"alter": self.alter.__qualname__}
        return altered | {
            "format": FORMAT,
            "version": self.experiment.version,
            "procedure": self.experiment.procedure.__qualname__ if self.experiment.procedure else None,
            "measures": measures,
            "config": self.config.to_dict(),
            "recipe": self.recipe.to_dict() if self.is_trained else {"batch_size": self.recipe.batch_size},
            "task": self.task.describe(),
            "seed": self.seed,
            "torch": versions()["torch"],
        }

    @cached_property
    def key(self) -> str:
        """A name for these numbers, 20 hexadecimal digits."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One pressure, measured.

    Attributes:
        number: its place in docs/lab.md.
        name: on the command line; its file is `experiments/eNN_name.py`, dashes as underscores.
        title, question: the heading, and the pressure as a question.
        arms: what is compared.
        vary: the grid, axis by axis. An axis with the name of a recipe's field changes the recipe; every axis reaches
            the functions of `Arm.config` and `task`.
        best: the axis of which each arm gets its best value (the learning rate, where one recipe could favour a side).
        seeds: at least three.
        task: what is learned, or a function from the point to it.
        recipe: how, the same for all arms but for what they and the axes change; its seed is not used.
        measures: what is read from every cell, in order of importance; `shown` of them are drawn.
        claims: what would count, set beforehand.
        minutes: CPU minutes that the whole of it is expected to take.
        not_shown: what it does not show.
        quick: what `--quick` runs.
        procedure: another way from a cell to its readings, where training once and measuring is not it.
        version: raise it when the code of measures or procedure changes what old cells would say.
        draw: a plot of its own: given the result and an empty matplotlib Figure.
    """

    number: int
    name: str
    title: str
    question: str
    arms: tuple[Arm, ...]
    task: Task | Callable[[Point], Task]
    recipe: Recipe
    measures: tuple[Measure, ...]
    claims: tuple[Claim, ...]
    minutes: float
    not_shown: str
    vary: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    best: Best | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    shown: int = 2
    quick: Quick = Quick()
    procedure: Procedure | None = None
    version: int = 1
    draw: Callable[[Any, Any], None] | None = None

    def __post_init__(self) -> None:
        _unique(self, "arms", [arm.name for arm in self.arms])
        _unique(self, "measures", [measure.name for measure in self.measures])
        _unique(self, "seeds", list(self.seeds))
        for axis, values in self.vary.items():
            _unique(self, f"values of {axis!r}", list(values))
        if len(self.seeds) < 3:
            _refuse(self, f"{len(self.seeds)} seeds show too little of the spread: give at least 3")
        if self.procedure is None and (unread := [m.name for m in self.measures if m.read is None]):
            _refuse(self, f"nothing reads its measure {unread[0]!r}: give it a `read`, or the experiment a procedure")
        if self.best is not None:
            _known(self, "axis", self.best.over, self.vary)
            _known(self, "measure", self.best.by, [m.name for m in self.measures])
        for arm in self.arms:
            if arm.alter is not None and not getattr(arm.alter, "__qualname__", "<").isidentifier():
                _refuse(self, f"alter of {arm.name!r} has no name of its own to tell cells by: give a plain function")
            for name in arm.recipe:
                _known(self, f"recipe field of {arm.name!r}", name, _RECIPE_FIELDS)
        for axis, values in self.quick.vary.items():
            _known(self, "axis", axis, self.vary)
            for value in values:
                _known(self, f"value of {axis!r}", value, self.vary[axis])
        for claim in self.claims:
            self._check_claim(claim)

    def _check_claim(self, claim: Claim) -> None:
        arms, measures = [arm.name for arm in self.arms], [m.name for m in self.measures]
        _known(self, "measure", claim.measure, measures)
        for arm in (claim.of, *([] if claim.against is None else [claim.against])):
            _known(self, "arm", arm, arms)
        for need in claim.needs:
            _known(self, "arm", need.arm, arms)
            _known(self, "measure", need.measure, measures)
        for axis, value in (*claim.at.items(), *claim.against_at.items()):
            _known(self, "axis", axis, self.vary)
            _known(self, f"value of {axis!r}", value, self.vary[axis])
        bounds = [bound for bound in (claim.more_than, claim.less_than, claim.within) if bound is not None]
        if len(bounds) != 1:
            _refuse(self, f"claim {claim.text!r} has {len(bounds)} bounds: give one of more_than, less_than, within")
        if claim.ratio and bounds[0] <= 0:
            _refuse(self, f"claim {claim.text!r} is of a ratio, and {bounds[0]} is none: give a bound above 0")
        if claim.within is not None and claim.within <= float(claim.ratio):
            _refuse(
                self, f"claim {claim.text!r}: within = {claim.within} leaves no room: give more than {claim.ratio:d}"
            )

    @property
    def claimed_axes(self) -> tuple[str, ...]:
        """The axes of the grid that results are spread over: all but the one whose best is taken."""
        return tuple(axis for axis in self.vary if self.best is None or axis != self.best.over)

    def grid(self, quick: bool = False) -> list[Point]:
        """All points; with `quick` those that are tried."""
        axes = dict(self.vary)
        if quick:
            for axis, values in self.vary.items():
                middle = self.best is not None and axis == self.best.over
                axes[axis] = self.quick.vary.get(axis, (values[len(values) // 2 if middle else 0],))
        return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]

    def cells(self, quick: bool = False) -> list[Cell]:
        """Every cell, a whole comparison with the first seed first. Cells of equal content have equal keys."""
        seeds = self.seeds[:1] if quick else self.seeds
        return [self._cell(arm, point, s, quick) for s in seeds for point in self.grid(quick) for arm in self.arms]

    def _cell(self, arm: Arm, point: Point, seed: int, quick: bool) -> Cell:
        changes = dict(arm.recipe) | {axis: value for axis, value in point.items() if axis in _RECIPE_FIELDS}
        if quick:
            changes |= dict(self.quick.recipe) | {"steps": self.quick.steps}
        config = arm.config if isinstance(arm.config, ModelConfig) else arm.config(point)
        task = self.task(point) if callable(self.task) else self.task
        task.check(config)
        recipe = self.recipe.with_(**changes, seed=seed)
        return Cell(arm.name, point, seed, config, recipe, task, arm.is_trained, self, arm.alter)


def _refuse(experiment: Experiment, message: str) -> None:
    raise MorphError(f"experiment {experiment.name!r}: {message}")


def _unique(experiment: Experiment, what: str, names: list[Any]) -> None:
    if not names:
        _refuse(experiment, f"it has no {what}: give at least one")
    if twice := [name for name in names if names.count(name) > 1]:
        _refuse(experiment, f"its {what} have {twice[0]!r} twice: name each once")


def _known(experiment: Experiment, what: str, name: Value, known: Any) -> None:
    if name not in known:
        listed = ", ".join(map(str, known))
        _refuse(experiment, f"unknown {what} {name!r}: choose one of {listed}{nearest(str(name), map(str, known))}")
