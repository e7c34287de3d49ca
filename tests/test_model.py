"""The decoder as a whole."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import morph
from morph.errors import MorphError
from morph.nn import loss as loss_module
from morph.nn.loss import cross_entropy
from morph.steps import stage
from tests.models import STAGES, random_ids, relative_error, stage_model


@pytest.mark.parametrize("stage_number", STAGES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_parameter_gets_a_gradient(stage_number: int, precision: str) -> None:
    model = stage_model(stage_number).train()
    ids = random_ids(model, 4, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        loss = model.loss(ids[:, :-1], ids[:, 1:])
    loss.total.backward()
    assert loss.total.dtype == torch.float32
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        slices = parameter.grad.flatten(1) if ".experts." in name else parameter.grad.flatten()[None]
        smallest = float(slices.abs().amax(dim=-1).min())
        if name.endswith("k_proj.bias") and precision == "fp32":
            # without rotation a key bias adds the same to all scores of a query, which the softmax does not see
            assert smallest < 1e-7, name
        else:
            assert smallest > 1e-6, f"{name}: some expert or all of it stays still"


@pytest.mark.parametrize("stage_number", STAGES)
@torch.no_grad()
def test_bf16_autocast_stays_near_fp32(stage_number: int) -> None:
    model = stage_model(stage_number)
    ids = random_ids(model, 2, 64)
    exact = model(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(ids)
    agreement = torch.nn.functional.cosine_similarity(rough.float(), exact, dim=-1)
    # bf16 activations can flip close routing choices, so experts get a wider margin
    assert float(agreement.mean()) > (0.999 if stage_number < 10 else 0.99)


@pytest.mark.parametrize("stage_number", [0, 9, 14])
@torch.no_grad()
def test_autocast_decoding_equals_its_own_full_pass(stage_number: int) -> None:
    model = stage_model(stage_number)
    ids = random_ids(model, 1, 30)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        full, cache = model(ids).float(), model.new_cache(1)
        steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(30)], dim=1).float()
    assert float(F.cosine_similarity(steps, full, dim=-1).mean()) > (0.999 if stage_number < 10 else 0.98)


def test_a_seed_is_a_model_and_meta_needs_no_memory() -> None:
    a, b, c = morph.build(stage(14), seed=1), morph.build(stage(14), seed=1), morph.build(stage(14), seed=2)
    for (name, x), y, z in zip(a.state_dict().items(), b.state_dict().values(), c.state_dict().values(), strict=True):
        assert torch.equal(x, y)
        if x.ndim >= 2:
            assert not torch.equal(x, z), name
    meta = morph.build(stage(14, "small"), device="meta")
    assert all(p.device.type == "meta" for p in meta.parameters())


def test_untied_head_is_a_matrix_of_its_own() -> None:
    from dataclasses import replace

    config = replace(stage(6, "nano"), tied=False)
    model = morph.build(config)
    assert model.head is not None and not torch.equal(model.head.weight, model.embedding.weight)
    counted = morph.count(config)
    table = 256 * 48
    assert counted.total == morph.count(stage(6, "nano")).total + table
    assert counted.active.without_input_embedding == counted.total - table
    assert counted.active.without_embeddings == counted.total - 2 * table


def test_initial_logits_and_stream_have_unit_size() -> None:
    for k in STAGES:
        model = morph.build(stage(k, "tiny"))
        with morph.trace(model) as seen, torch.no_grad():
            logits = model(random_ids(model, 2, 64))
        assert float(logits.std()) == pytest.approx(1.0, rel=0.15)
        assert float(seen["stream"].square().mean().sqrt()) == pytest.approx(1.5**0.5 if k < 4 else 1.0, rel=0.05)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (torch.tensor([[1, 256]]), ["256", "0 to 255"]),
        (torch.tensor([[-1, 3]]), ["-1", "0 to 255"]),
        (torch.tensor([1, 2]), ["(2,)", "(B, S)"]),
        (torch.zeros(1, 0, dtype=torch.long), ["(1, 0)", "non-empty"]),
        (torch.zeros(1, 3), ["float32", "integers"]),
    ],
)
def test_bad_ids_are_refused(ids: torch.Tensor, words: list[str]) -> None:
    with pytest.raises(MorphError) as error:
        stage_model(0)(ids)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("lengths", [[5], [5, 6], [-1, 2]])
def test_bad_lengths_are_refused(lengths: list[int]) -> None:
    model = stage_model(0)
    with pytest.raises(MorphError, match="lengths"):
        model(random_ids(model, 2, 5), lengths=torch.tensor(lengths))


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (torch.full((2, 5), 256), ["256", "0 to 255"]),
        (torch.full((2, 5), -1), ["-1", "-100"]),
        (torch.zeros(2, 4, dtype=torch.long), ["(2, 4)", "(2, 5)"]),
        (torch.zeros(2, 5), ["float32", "int64"]),
    ],
)
def test_bad_targets_are_refused(targets: torch.Tensor, words: list[str]) -> None:
    model = stage_model(0)
    with pytest.raises(MorphError) as error:
        model.loss(random_ids(model, 2, 5), targets)
    assert all(word in str(error.value) for word in words)


def test_what_python_callers_may_get_wrong_is_told() -> None:
    model = stage_model(14)
    for batch_size in (0, -1, 2.5):
        with pytest.raises(MorphError, match="at least one text"):
            model.new_cache(batch_size)  # type: ignore[arg-type]
    with pytest.raises(MorphError, match="ids are a list"):
        model([[1, 2]])  # type: ignore[arg-type]
    with pytest.raises(MorphError, match="a model with another config"):
        model(random_ids(model, 1, 3), cache=stage_model(9).new_cache(1))
    with pytest.raises(MorphError, match="'gpu' cannot be used here"):
        morph.build(stage(0, "nano"), device="gpu")


def test_a_model_on_meta_says_that_it_cannot_run() -> None:
    with pytest.raises(MorphError, match="meta device has shapes and no numbers"):
        morph.build(stage(14, "small"), device="meta")(torch.zeros(2, 100, dtype=torch.long))


@pytest.mark.parametrize("stage_number", STAGES)
@torch.no_grad()
def test_a_model_in_bf16_obeys_the_cache_law_to_bf16(stage_number: int) -> None:
    """Weights and activations in bf16; routes are chosen in fp32, from inputs that differ by bf16 rounding."""
    model = stage_model(stage_number).to(torch.bfloat16)
    ids, cache = random_ids(model, 2, 70), model.new_cache(2)
    full = model(ids).float()
    parts = torch.cat([model(part, cache=cache) for part in ids.split([40, 1, 1, 28], dim=1)], dim=1).float()
    assert full.isfinite().all()
    assert float(F.cosine_similarity(parts, full, dim=-1).mean()) > (0.999 if stage_number < 10 else 0.98)
    for name, buffer in model.named_buffers():
        assert buffer.dtype == (torch.int64 if name.endswith("load") else torch.float32)


def test_sliced_cross_entropy_equals_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(37, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 50, (37,))
    targets[[3, 30]] = -100
    expected = F.cross_entropy(x @ weight.T, targets)
    grads = torch.autograd.grad(3 * expected, (x, weight))
    calls = []
    whole = loss_module.summed_cross_entropy
    monkeypatch.setattr(loss_module, "FEW", 500)
    monkeypatch.setattr(loss_module, "summed_cross_entropy", lambda *a: calls.append(len(a[0])) or whole(*a))
    sliced = cross_entropy(x, weight, targets)
    assert calls == [10, 10, 10, 7], "never more than FEW logits at once"
    assert sliced.item() == pytest.approx(expected.item(), rel=1e-12)
    for a, b in zip(torch.autograd.grad(3 * sliced, (x, weight)), grads, strict=True):
        assert relative_error(a, b) < 1e-12


def test_the_loss_is_that_of_the_logits_in_bits_and_nats() -> None:
    model = stage_model(9)
    ids = random_ids(model, 2, 30)
    with torch.no_grad():
        expected = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        assert float(model.loss(ids[:, :-1], ids[:, 1:]).cross_entropy) == pytest.approx(float(expected), rel=1e-6)
