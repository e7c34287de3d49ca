"""How a model is trained: one recipe per size, the same for all stages; no step of the morph touches it."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from morph.errors import MorphError

PRECISIONS = ("auto", "fp32", "bf16")
MOST = 10**9  # steps, windows and the like: more is a slip of the hand


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """AdamW (Loshchilov and Hutter, 2019) with linear warm-up, cosine decay and clipping by global norm.

    steps: optimizer steps. batch_size: windows per micro-batch. accumulation: micro-batches per step. warmup:
    share of the steps on which the learning rate rises linearly. final_rate: share of the peak it ends at.
    clip: largest global gradient norm. weight_decay: on matrices only. precision: "auto" is bf16 autocast on
    CUDA and fp32 elsewhere. evaluate_every and checkpoint_every count steps; evaluation_windows are fixed
    validation windows.
    """

    steps: int = 300
    batch_size: int = 8
    accumulation: int = 1
    learning_rate: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    warmup: float = 0.1
    final_rate: float = 0.1
    clip: float = 1.0
    seed: int = 0
    precision: str = "auto"
    evaluate_every: int = 100
    evaluation_windows: int = 256
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "batch_size",
            "accumulation",
            "evaluate_every",
            "evaluation_windows",
            "checkpoint_every",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
                raise MorphError(f"{name} is {value!r}: give a whole number of at least 1 and at most {MOST:,}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**32:
            raise MorphError(f"seed is {self.seed!r}: give a whole number from 0 to {2**32 - 1}")
        betas = isinstance(self.betas, tuple) and len(self.betas) == 2 and all(map(_is_number, self.betas))
        if not betas or not all(0 <= beta < 1 for beta in self.betas):
            raise MorphError(f"betas are {self.betas!r}: give two numbers from 0 to below 1")
        for name in ("learning_rate", "clip", "warmup", "final_rate", "weight_decay"):
            if not _is_number(getattr(self, name)):
                raise MorphError(f"{name} is {getattr(self, name)!r}: give a number")
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise MorphError(f"{name} is {value}: give a number above 0")
        for name in ("warmup", "final_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise MorphError(f"{name} is {getattr(self, name)}: give a share from 0 to 1")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise MorphError(f"weight_decay is {self.weight_decay}: give a number of at least 0")
        if self.precision not in PRECISIONS:
            raise MorphError(f"precision is {self.precision!r}: choose one of {', '.join(PRECISIONS)}")

    def rate(self, step: int) -> float:
        """Learning rate of optimizer step `step` (the first is 0)."""
        rising = round(self.warmup * self.steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        falling = max(1, self.steps - rising - 1)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rising) / falling)))
        return self.learning_rate * (self.final_rate + (1 - self.final_rate) * cosine)

    def with_(self, **changes: Any) -> "Recipe":
        """A copy with the given fields changed; a value of None keeps the field."""
        return dataclasses.replace(self, **{k: v for k, v in changes.items() if v is not None})

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"betas": list(self.betas)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Recipe":
        """Inverse of `to_dict`. Raises MorphError on unknown, missing and impossible fields."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise MorphError(f"unknown recipe field {unknown[0]!r}: known are {', '.join(sorted(known))}")
        if missing := sorted(known - set(values)):
            raise MorphError(f"the recipe lacks {missing[0]!r}: it has {', '.join(sorted(known))}")
        betas = values["betas"]
        return cls(**(values | ({"betas": tuple(betas)} if isinstance(betas, list) else {})))

    def digest(self) -> str:
        """A short name for the whole recipe, kept in each checkpoint."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) > 1e300


_BY_SIZE = {
    "nano": Recipe(steps=60, batch_size=4, evaluate_every=20, evaluation_windows=64, checkpoint_every=20),
    "tiny": Recipe(),
    # 64 windows of 1,024 bytes a step: 600 steps read the default corpus about five times on one GPU.
    "small": Recipe(steps=600, batch_size=16, accumulation=4, learning_rate=6e-4, evaluation_windows=128),
}


def default_recipe(size: str) -> Recipe:
    """The recipe of a size; all its stages share it. Raises MorphError on an unknown size."""
    if size not in _BY_SIZE:
        raise MorphError(f"unknown size {size!r}: choose one of {', '.join(_BY_SIZE)}")
    return _BY_SIZE[size]
