"""Experiment 3: norms over split features equal whole ones, also between two processes; exchanges are counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor.debug import CommDebugMode

from morph import config
from morph.errors import MorphError
from morph.lab import norms, sharded
from morph.lab.experiments import e03_norm_cost as e03
from morph.lab.sharded import Norm, Ranks

EPS = 1e-5
WHOLE: dict[Norm, Callable[[Tensor], Tensor]] = {
    sharded.rms: lambda x: F.rms_norm(x, x.shape[-1:], eps=EPS),
    sharded.separate: lambda x: F.layer_norm(x, x.shape[-1:], eps=EPS),
    sharded.together: lambda x: F.layer_norm(x, x.shape[-1:], eps=EPS),
    sharded.merged: lambda x: F.layer_norm(x, x.shape[-1:], eps=EPS),
}
COUNTS = {  # exchanges forward; numbers that a rank gives for a token
    sharded.rms: (1, 1),
    sharded.separate: (2, 2),
    sharded.together: (1, 2),
    sharded.merged: (1, 2),
}


def drawn() -> tuple[Tensor, Tensor]:
    """Features with a mean of 1, and an upstream gradient, (3, 24) in double precision."""
    draw = torch.Generator().manual_seed(100)
    return 1 + torch.randn(3, 24, generator=draw).double(), torch.randn(3, 24, generator=draw).double()


@pytest.mark.parametrize("norm", list(WHOLE), ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("size", [1, 2, 8])
def test_split_features_give_the_whole_norm_and_its_gradient(norm: Norm, size: int) -> None:
    x, upstream = drawn()
    whole = x.clone().requires_grad_()
    wanted = WHOLE[norm](whole)
    wanted.backward(upstream)
    ranks = Ranks(size)
    parts = ranks.split(x).requires_grad_()
    found = norm(parts, EPS, ranks)
    assert (ranks.exchanges, ranks.numbers) == (COUNTS[norm][0], COUNTS[norm][1] * 3)
    torch.testing.assert_close(ranks.whole(found), wanted)
    found.backward(ranks.split(upstream))
    assert whole.grad is not None and parts.grad is not None
    torch.testing.assert_close(ranks.whole(parts.grad), whole.grad)
    assert ranks.exchanges == 2 * COUNTS[norm][0]


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.clone()
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        out = gradients[0].clone()
        dist.all_reduce(out)
        return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.stack(parts, dim=-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        out = gradients[0].clone()
        dist.all_reduce(out)  # a reduce-scatter, its other parts thrown away
        return out[..., dist.get_rank(), :]


class Processes:
    """A `Group` of real processes, a rank each."""

    size = 2

    def total(self, x: Tensor) -> Tensor:
        found: Tensor = _Total.apply(x)  # type: ignore[no-untyped-call]
        return found

    def gather(self, x: Tensor) -> Tensor:
        found: Tensor = _Gather.apply(x)  # type: ignore[no-untyped-call]
        return found


def one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for norm in WHOLE:
        x, upstream = (part.chunk(2, dim=-1)[rank].contiguous() for part in drawn())
        x.requires_grad_()
        with CommDebugMode() as forward:
            out = norm(x, EPS, Processes())
        with CommDebugMode() as backward:
            out.backward(upstream)
        counts = (forward.get_total_counts(), backward.get_total_counts())
        torch.save((out.detach(), x.grad, counts), f"{folder}/{norm.__name__}-{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_agree_in_numbers_and_in_counts(tmp_path: Path) -> None:
    mp.spawn(one_rank, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    x, upstream = drawn()
    for norm in WHOLE:
        ranks = Ranks(2)
        parts = ranks.split(x).requires_grad_()
        found = norm(parts, EPS, ranks)
        forward = ranks.exchanges
        found.backward(ranks.split(upstream))
        assert parts.grad is not None
        for rank in range(2):
            out, gradient, counts = torch.load(tmp_path / f"{norm.__name__}-{rank}.pt")
            torch.testing.assert_close(out, found[rank].detach())
            torch.testing.assert_close(gradient, parts.grad[rank])
            assert counts == (forward, ranks.exchanges - forward), norm.__name__


def test_a_large_mean_spoils_the_difference_of_sums_alone() -> None:
    """float32 holds 10⁸ + 1 as 10⁸: no variance is left, and what is divided by is √ε."""
    x = torch.tensor([[9999.0, 10001.0] * 12])
    exact = torch.tensor([[-1.0, 1.0] * 12])
    ranks = Ranks(2)
    for norm in (sharded.separate, sharded.merged):
        torch.testing.assert_close(ranks.whole(norm(ranks.split(x), EPS, ranks)), exact)
    spoilt = ranks.whole(sharded.together(ranks.split(x), EPS, ranks))
    assert float((spoilt - exact).abs().max()) > 0.5


def test_features_that_do_not_split_and_no_ranks_are_refused() -> None:
    with pytest.raises(MorphError, match="24 features do not split evenly over 5 ranks"):
        Ranks(5).split(drawn()[0])
    with pytest.raises(MorphError, match="0 ranks can hold nothing"):
        Ranks(0)


def test_sums_over_features_are_counted_in_the_plain_form() -> None:
    assert norms.sums(config.LayerNorm())[0] == 2
    assert norms.sums(config.LayerNormNoBias())[0] == 2
    assert norms.sums(config.RMSNorm()) == (1, 1)
    with norms.Sums() as seen:
        x = torch.ones(4, 6)
        x.sum(0), x.mean(-1), x.sum((0, 1)), x.sum(1, keepdim=True)
    assert seen.count == 3


def test_the_trained_arms_differ_in_the_norm_alone() -> None:
    layer_norm, rms_norm, _ = (arm.config for arm in e03.EXPERIMENT.arms)
    assert isinstance(layer_norm, config.ModelConfig) and isinstance(rms_norm, config.ModelConfig)
    assert [str(change).split(":")[0] for change in config.diff(layer_norm, rms_norm)] == ["norm"]


def test_a_kernel_is_timed_against_layer_norm() -> None:
    assert norms.time_of(config.LayerNorm(), repeats=2) == 1
    assert norms.time_of(config.RMSNorm(), repeats=2) > 0
