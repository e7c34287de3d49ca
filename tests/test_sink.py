"""The sink: its equation, and that the fused form computes the same everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import morph
from morph.nn.attention import fast_attention, plain_attention
from morph.nn.mask import Mask, build_mask
from morph.nn.organ import plain_forms
from morph.nn.sink import softmax_with_sink
from tests.models import random_ids, relative_error, stage_model


def columns_mask(queries: Tensor, keys: Tensor, window: int | None, pads: Tensor | None = None) -> Mask:
    return build_mask(queries, keys, window, pads, is_fresh=len(queries) == len(keys))


MASKS = {
    "causal": columns_mask(torch.arange(45), torch.arange(45), None),
    "windowed, in blocks": columns_mask(torch.arange(45), torch.arange(45), 7),
    "windowed, as a table": columns_mask(torch.arange(45), torch.arange(45), 30),
    "padded": columns_mask(torch.arange(45), torch.arange(45), None, torch.tensor([0, 11])),
    "one new token": columns_mask(torch.arange(44, 45), torch.arange(45), None),
    "a new chunk": columns_mask(torch.arange(40, 45), torch.arange(20, 45), 16),
    "a bias": Mask(None, False, bias=torch.randn(6, 45, 45).masked_fill(torch.ones(45, 45).triu(1) > 0, -torch.inf)),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("width", [10, 16])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_the_fused_form_and_its_gradients_equal_the_plain_ones(
    mask: Mask, width: int, dtype: torch.dtype, bound: float
) -> None:
    torch.manual_seed(0)
    shape = next((t.shape for t in (mask.bias, mask.allowed) if t is not None), (45 if mask.is_causal else 1, 45))
    S, N = shape[-2:]
    q, k, v = (torch.randn(2, heads, n, width, dtype=dtype) for heads, n in ((6, S), (2, N), (2, N)))
    logits = torch.tensor([-2.0, 0.0, 1.0, 3.0, 5.0, -0.5], dtype=dtype)
    given = [tensor.requires_grad_() for tensor in (q, k, v, logits)]
    weight, results = torch.randn(2, 6, S, width, dtype=dtype), []
    for form in (plain_attention, fast_attention):
        out = form(q, k, v, mask, logits)
        results.append((out, *torch.autograd.grad((out * weight).sum(), given)))
    for plain, fast in zip(*results, strict=True):
        assert fast.dtype == dtype and relative_error(fast, plain) < bound
    assert relative_error(fast_attention(q, k, v, mask), results[0][0]) > 0.1, "a sink is felt"


def test_the_sink_is_one_more_term_of_the_sum() -> None:
    scores = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    logits = torch.tensor([0.0, 1.5], dtype=torch.float64)
    weights, rest = softmax_with_sink(scores, logits)
    total = scores.exp().sum(-1) + logits.exp()[:, None]
    assert relative_error(weights, scores.exp() / total[..., None]) < 1e-12
    assert relative_error(rest, logits.exp()[:, None] / total) < 1e-12
    assert relative_error(weights.sum(-1) + rest, torch.ones(1, 2, 3)) < 1e-12


@pytest.mark.parametrize("lengths", [None, torch.tensor([70, 41])])
@torch.no_grad()
def test_traced_weights_are_those_the_fast_path_used(lengths: Tensor | None) -> None:
    model = stage_model("attention-sink", dtype=torch.float64)
    ids = random_ids(model, 2, 70)
    with morph.trace(model) as seen:
        model(ids, lengths=lengths)
    for layer in (f"blocks.{i}.attention" for i in range(4)):
        weights, values = seen[f"{layer}.weights"], seen[f"{layer}.values"].repeat_interleave(2, dim=1)
        assert relative_error(weights @ values, seen[f"{layer}.heads"]) < 1e-12
        rest = seen[f"{layer}.sink_weights"]
        assert torch.allclose(weights.sum(-1) + rest, torch.ones((), dtype=torch.float64))
        assert 0.001 < float(rest.mean()) < 0.5
        assert torch.equal(seen[f"{layer}.scores"] == float("-inf"), weights == 0)
    cache = model.new_cache(2)
    model(ids[:, :69], lengths=None if lengths is None else lengths - 1, cache=cache)
    with morph.trace(model) as last:
        model(ids[:, 69:], cache=cache)
    for name in ("weights", "sink_weights"):
        now, then = last[f"blocks.3.attention.{name}"], seen[f"blocks.3.attention.{name}"][:, :, -1:]
        assert relative_error(now, then) < 1e-12


@torch.no_grad()
def test_a_sink_that_draws_nothing_leaves_the_base() -> None:
    sink, base = stage_model("attention-sink", dtype=torch.float64), stage_model("qk-norm", dtype=torch.float64)
    left = base.load_state_dict(sink.state_dict(), strict=False)
    assert left.missing_keys == [] and left.unexpected_keys == [f"blocks.{i}.attention.sink.logits" for i in range(4)]
    ids = random_ids(base, 2, 70)
    assert relative_error(sink(ids), base(ids)) > 0.01
    for block in sink.blocks:
        block.attention.sink.logits.fill_(-1e4)
    assert relative_error(sink(ids), base(ids)) < 1e-12
    with plain_forms():
        assert relative_error(sink(ids), base(ids)) < 1e-12


@torch.no_grad()
def test_sinks_work_under_windows() -> None:
    """A fork composes: the sink on a model with windows, in blocks and with a cache."""
    config = morph.stage("sliding-window", "nano")
    config = replace(config, attention=replace(config.attention, sink=morph.fork("attention-sink").attention.sink))
    model = morph.build(config).double().eval()
    for block in model.blocks:
        block.attention.sink.logits.copy_(torch.tensor([1.0, -1.0, 2.0, 0.0]))
    ids = random_ids(model, 2, 70)
    full = model(ids)
    with plain_forms():
        assert relative_error(model(ids), full) < 1e-12
    cache = model.new_cache(2)
    steps = [model(ids[:, :33], cache=cache), *(model(ids[:, t : t + 1], cache=cache) for t in range(33, 70))]
    assert relative_error(torch.cat(steps, dim=1), full) < 1e-12


def test_sinks_start_at_zero_and_learn() -> None:
    model = morph.build(morph.fork("attention-sink", "nano"))
    assert all((block.attention.sink.logits == 0).all() for block in model.blocks)
    ids = random_ids(model, 2, 64)
    model.loss(ids[:, :-1], ids[:, 1:]).total.backward()
    assert all((block.attention.sink.logits.grad.abs() > 1e-6).all() for block in model.blocks)
