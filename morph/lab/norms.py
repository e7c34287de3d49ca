"""What a norm needs, counted and measured: sums over the features, exchanges between ranks, digits, time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from morph import config
from morph.lab import probes, sharded
from morph.lab.sharded import Ranks
from morph.lab.trial import Trial
from morph.measure.size import rms
from morph.nn.norm import build_norm
from morph.nn.organ import plain_forms

WIDTH, RANKS, TOKENS = 768, 8, 16
FAR = 1000.0  # a mean of features, in their spreads
FORMS: dict[str, sharded.Norm] = {
    "apart": sharded.separate,
    "together": sharded.together,
    "merged": sharded.merged,
}


class Sums(TorchDispatchMode):
    """Counts sums and means over the last axis."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.sum.dim_IntList, torch.ops.aten.mean.dim):
            self.count += any(axis % args[0].dim() == args[0].dim() - 1 for axis in args[1])
        return func(*args, **(kwargs or {}))


def sums(spec: config.Norm) -> tuple[int, int]:
    """Over a token's features, in the plain form of a norm: forward, and backward by autograd."""
    norm = build_norm(spec, WIDTH)
    norm.init_weights(torch.Generator())
    x = torch.randn(TOKENS, WIDTH, requires_grad=True)
    with plain_forms(), Sums() as forward:
        out = norm(x)
    with Sums() as backward:
        out.backward(torch.ones_like(out))
    return forward.count, backward.count


def of(trial: Trial, form: str) -> sharded.Norm:
    """How the trial's norm is computed on ranks: RMSNorm has one statistic, and so one form."""
    return sharded.rms if isinstance(trial.config.norm, config.RMSNorm) else FORMS[form]


def features(trial: Trial, mean: float) -> Tensor:
    """Some tokens' features (TOKENS, WIDTH), of spread 1 about `mean`."""
    return mean + torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(trial.seed))


def exchanged(form: str) -> Callable[[Trial], tuple[int, float]]:
    """Collectives of one norm on 8 ranks, forward and backward, and numbers that a rank gives into them, a token."""

    def read(trial: Trial) -> tuple[int, float]:
        ranks = Ranks(RANKS)
        x = ranks.split(features(trial, 0.0)).requires_grad_()
        out = of(trial, form)(x, trial.config.norm.eps, ranks)
        out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(0)))
        return ranks.exchanges, ranks.numbers / TOKENS

    return read


def error(form: str) -> Callable[[Trial], float]:
    """Of the output, against the same norm in double precision: RMS, where the features' mean is 1000 spreads."""

    def read(trial: Trial) -> float:
        ranks, x, eps = Ranks(RANKS), features(trial, FAR), trial.config.norm.eps
        found = ranks.whole(of(trial, form)(ranks.split(x), eps, ranks)).double()
        exact = x.double()
        if not isinstance(trial.config.norm, config.RMSNorm):
            exact = exact - exact.mean(-1, keepdim=True)
        return rms(found - exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps))

    return read


def mean_in_stream(trial: Trial) -> float:
    """Size of the features' mean over their spread, in what a trained model's norms read: what centring removes."""
    seen, found = probes.watch(trial), []
    for half in ("attention", "feed_forward"):
        for x in probes.each_layer(trial, seen, f"{half}_norm.input"):
            found.append(float(x.mean(-1).abs().mean() / x.std(-1, correction=0).mean()))
    return statistics.fmean(found)


def time_of(spec: config.Norm, repeats: int = 20) -> float:
    """Seconds of torch's kernel for it, forward and backward, over LayerNorm's, taken in turn: a ratio of medians."""
    x = torch.randn(512, WIDTH, requires_grad=True)
    weight, bias = torch.ones(WIDTH, requires_grad=True), torch.zeros(WIDTH, requires_grad=True)
    upstream = torch.randn(512, WIDTH)
    kernels = {
        "LayerNorm": lambda: F.layer_norm(x, (WIDTH,), weight, bias),
        "RMSNorm": lambda: F.rms_norm(x, (WIDTH,), weight, 1e-5),
    }
    taken: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(repeats):
        for name, kernel in kernels.items():
            since = time.process_time()
            kernel().backward(upstream)
            taken[name].append(time.process_time() - since)
    mine = "RMSNorm" if isinstance(spec, config.RMSNorm) else "LayerNorm"
    return statistics.median(taken[mine]) / statistics.median(taken["LayerNorm"])
