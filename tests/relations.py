"""What tests of a relation between a fork and its base share: which test holds for which fork, and models alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from morph.config import Rotary
from morph.forks import FORKS
from morph.model import Decoder
from morph.nn.position import frequencies
from tests.models import random_ids, relative_error, stage_model

EXACT = 1e-12
FELT = 1e-4

HELD: dict[str, str] = {}
Test = TypeVar("Test", bound=Callable[..., None])


def holds(*slugs: str) -> Callable[[Test], Test]:
    """Mark a test as that of these forks' relations."""

    def mark(test: Test) -> Test:
        HELD.update(dict.fromkeys(slugs, test.__name__))
        return test

    return mark


def each(*slugs: str) -> Callable[[Test], Test]:
    """The same for a test with an argument `slug`, which runs for each."""
    return lambda test: holds(*slugs)(pytest.mark.parametrize("slug", slugs)(test))


def share(fork: Decoder, base: Decoder) -> None:
    """Give the fork every weight of its base that fits."""
    own = fork.state_dict()
    fitting = {k: v for k, v in base.state_dict().items() if k in own and own[k].shape == v.shape}
    fork.load_state_dict(fitting, strict=False)


def pair(slug: str, **changes: Any) -> tuple[Decoder, Decoder]:
    """Base and fork (with `changes` of its config) in fp64 with the same weights; apart, as the fork is made."""
    base = stage_model(FORKS[slug].base, dtype=torch.float64)
    made = stage_model(slug, dtype=torch.float64)
    share(made, base)
    assert relative_error(logits(made), logits(base)) > FELT, "as it is, the fork is felt"
    changed = stage_model(replace(made.config, **changes), dtype=torch.float64)
    share(changed, made)
    return base, changed


@torch.no_grad()
def logits(model: Decoder, length: int = 40) -> Tensor:
    out: Tensor = model(random_ids(model, 2, length))
    return out


def assert_same(fork: Decoder, base: Decoder, length: int = 40) -> None:
    assert relative_error(logits(fork, length), logits(base, length)) < EXACT


def still(length: int, spec: Rotary, width: int) -> Tensor:
    """A table of rotations in which every token stands at position 0."""
    pairs = len(frequencies(spec, width))
    return torch.stack((torch.ones(length, pairs), torch.zeros(length, pairs))).double()
