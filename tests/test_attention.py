"""Softmax attention: the plain form, the fused ones and what a trace shows are the same thing."""

from __future__ import annotations

import pytest
import torch

import morph
from morph.config import Rope
from morph.nn import mask as mask_module
from morph.nn.attention import attention_weights, blocked_attention, fast_attention, plain_attention
from morph.nn.mask import Mask, build_mask, visible
from morph.nn.organ import plain_forms
from morph.nn.position import frequencies, rotate, rotation_table, sinusoid_table
from tests.models import STAGES, random_ids, relative_error, stage_model


@pytest.mark.parametrize(("length", "window"), [(64, 16), (67, 16), (80, 7), (33, 8), (129, 2)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
def test_blocks_equal_the_plain_window_and_its_gradients(length: int, window: int, heads: int, kv_heads: int) -> None:
    q = torch.randn(2, heads, length, 10, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(2, kv_heads, length, 10, dtype=torch.float64, requires_grad=True) for _ in range(2))
    columns = torch.arange(length)
    mask = build_mask(columns, columns, window, None, is_fresh=True)
    weight = torch.randn(2, heads, length, 10, dtype=torch.float64)
    results = []
    for form in (plain_attention, fast_attention):
        out = form(q, k, v, mask)
        results.append((out, *torch.autograd.grad((out * weight).sum(), (q, k, v))))
    assert mask.window == window and length >= 4 * window, "the fast form runs in blocks here"
    for plain, fast in zip(*results, strict=True):
        assert relative_error(fast, plain) < 1e-12
    assert torch.equal(results[1][0], blocked_attention(q, k, v, window))


def test_a_window_of_w_holds_w_keys_with_its_own() -> None:
    table = visible(torch.arange(6), torch.arange(6), 3, None)
    assert table.sum(-1).tolist() == [1, 2, 3, 3, 3, 3]
    assert table[5].tolist() == [False, False, False, True, True, True]


def test_padding_is_seen_by_nobody() -> None:
    table = visible(torch.arange(4), torch.arange(4), None, torch.tensor([0, 2]))[:, 0]
    assert table[0].tolist() == torch.ones(4, 4).tril().bool().tolist()
    assert table[1, 2].tolist() == [False, False, True, False]
    assert table[1, 3].tolist() == [False, False, True, True]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@torch.no_grad()
def test_the_plain_forms_give_the_same_model(stage: int, dtype: torch.dtype, bound: float) -> None:
    model = stage_model(stage, dtype=dtype)
    ids = random_ids(model, 2, 70)
    fast = model(ids)
    with plain_forms():
        plain = model(ids)
    assert relative_error(fast, plain) < bound


@pytest.mark.parametrize("stage", [0, 7, 8, 9, 14])
@torch.no_grad()
def test_traced_weights_are_those_the_fast_path_used(stage: int) -> None:
    """The fused kernel's output is the traced weights times the traced values, in every softmax layer, also padded."""
    model = stage_model(stage, dtype=torch.float64)
    for lengths in (None, torch.tensor([70, 41])):
        with morph.trace(model) as seen:
            model(random_ids(model, 2, 70), lengths=lengths)
        layers = [n.removesuffix(".weights") for n in seen if n.endswith("attention.weights")]
        assert len(layers) == (1 if stage == 14 else 4)
        for layer in layers:
            weights, values = seen[f"{layer}.weights"], seen[f"{layer}.values"]
            values = values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
            assert relative_error(weights @ values, seen[f"{layer}.heads"]) < 1e-12
            assert torch.allclose(weights.sum(-1), torch.ones((), dtype=torch.float64))
            masked = seen[f"{layer}.scores"] == float("-inf")
            assert (weights[masked] == 0).all() and masked.any()


def test_scores_are_scaled_products() -> None:
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 1, 3, 4)
    scores, weights = attention_weights(q, k, Mask(None, is_causal=False))
    assert scores[0, 1, 2, 0] == pytest.approx(float(q[0, 1, 2] @ k[0, 0, 0]) / 2, rel=1e-6)
    assert torch.allclose(weights.sum(-1), torch.ones(1, 2, 3))


def test_rotation_depends_on_distance_alone_and_keeps_lengths() -> None:
    cos, sin = rotation_table(200, Rope(), 12)
    q, k = torch.randn(2, 12, dtype=torch.float64)

    def at(x: torch.Tensor, m: int) -> torch.Tensor:
        return rotate(x[None, None, None], cos[m : m + 1], sin[m : m + 1])[0, 0, 0]

    products = [float(at(q, 30 + shift) @ at(k, 7 + shift)) for shift in (0, 5, 150)]
    assert products[1] == pytest.approx(products[0], rel=1e-12) == products[2]
    assert float(at(q, 30) @ at(k, 8)) != pytest.approx(products[0], rel=1e-3)
    assert float(at(q, 99).norm()) == pytest.approx(float(q.norm()), rel=1e-12)
    # pair (i, i + 6) turns by m b^(-2i/12): as a complex number it is multiplied by e^(i angle)
    turned = torch.complex(q[:6], q[6:]) * torch.polar(torch.ones(6, dtype=torch.float64), 9 * frequencies(Rope(), 12))
    assert relative_error(at(q, 9), torch.cat((turned.real, turned.imag))) < 1e-12


def test_sinusoid_table_is_the_papers() -> None:
    table = sinusoid_table(50, 8, 10_000.0)
    assert float(table[7, 4]) == pytest.approx(torch.sin(torch.tensor(7 / 10_000 ** (4 / 8))).item(), rel=1e-6)
    assert float(table[7, 5]) == pytest.approx(torch.cos(torch.tensor(7 / 10_000 ** (4 / 8))).item(), rel=1e-6)


@torch.no_grad()
def test_tables_are_made_once_per_shape_and_shared_by_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stage_model(9)
    calls: list[int | None] = []
    real = mask_module.visible

    def counted(
        queries: torch.Tensor, keys: torch.Tensor, window: int | None, pads: torch.Tensor | None
    ) -> torch.Tensor:
        calls.append(window)
        return real(queries, keys, window, pads)

    monkeypatch.setattr(mask_module, "visible", counted)
    for length in (71, 29):  # in blocks, and as one table
        calls.clear()
        for _ in range(3):
            model(random_ids(model, 2, length))
        assert len(calls) <= 1, "three windowed layers, three passes, one table"
    cache = model.new_cache(2)
    model(random_ids(model, 2, 30), cache=cache)
    calls.clear()
    for _ in range(5):
        model(random_ids(model, 2, 1), cache=cache)
    assert calls == [], "one new token sees all that is cached: no table at all"
    model(random_ids(model, 2, 3), cache=cache)
    assert sorted(calls, key=str) == [16, None], "one table per kind of layer"
