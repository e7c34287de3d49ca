"""What a trace holds of every stage and every fork: names, shapes, the very numbers that were used, and gradients."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

import morph
from morph.config import MLA
from morph.errors import MorphError
from morph.measure import held as held_module
from morph.measure.held import held
from morph.measure.trace import SHAPES, Trace, describe
from morph.model import Decoder
from morph.nn import attention as attention_module
from morph.nn.attention import SoftmaxMixer
from tests.models import STAGES, random_ids, relative_error, stage_model

EVERY = (*STAGES, *morph.FORKS)
LENGTH, WINDOW = 37, 16  # longer than two windows


def letters(model: Decoder, batch: int, length: int) -> dict[str, int]:
    """What each letter of a shape stands for in a pass without cache; other letters are free."""
    config, moe = model.config, model.config.moe
    known = {"B": batch, "S": length, "N": length, "T": batch * length, "D": config.d_model, "V": config.vocab_size}
    known |= {"H": config.attention.n_heads, "Dh": config.attention.width}
    if isinstance(config.attention, MLA):  # every head unfolds a pair of its own
        known |= {"K": config.attention.n_heads, "Dr": config.attention.rope_dim, "R": config.attention.kv_rank}
        if index := config.attention.indexer:
            known |= {"Hi": index.n_heads, "Di": index.head_dim, "k": min(index.top_k, length)}
    else:
        known |= {"K": config.attention.n_kv_heads}
    return known | ({"E": moe.n_experts, "k": moe.top_k} if moe is not None else {})


@pytest.mark.parametrize("which", EVERY)
def test_names_and_shapes_are_documented_and_watching_changes_no_bit(which: int | str, tmp_path: Path) -> None:
    """One pass forward and back, watched and not: the same loss and gradients; all that was seen is in the table."""
    model = stage_model(which)
    ids = random_ids(model, 2, LENGTH)

    def step() -> tuple[Tensor, list[Tensor]]:
        loss = model.loss(ids, ids).total
        return loss.detach(), list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))

    alone, alone_gradients = step()
    with morph.trace(model, gradients=True) as seen:
        watched, watched_gradients = step()
    assert torch.equal(alone, watched)
    for a, b in zip(alone_gradients, watched_gradients, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)
    known = letters(model, 2, LENGTH)
    for name, tensor in seen.items():
        shape, about = describe(name)
        assert about and tensor.ndim == len(shape.split()), name
        for letter, size in zip(shape.split(), tensor.shape, strict=True):
            assert size == known.get(letter, size), name
        assert tensor.isfinite().all() or name.endswith("scores"), name
    seen.save(tmp_path / "trace.safetensors")
    again = Trace.load(tmp_path / "trace.safetensors")
    assert again.keys() == seen.keys()
    assert all(torch.equal(again[n], seen[n]) and again[n].dtype == seen[n].dtype for n in seen)


@pytest.mark.parametrize("which", EVERY)
@torch.no_grad()
def test_weights_seen_are_the_weights_used(which: int | str) -> None:
    """Weights times values are the heads: at once, after a prefill longer than the window, token by token, padded."""
    model = stage_model(which)
    ids, cache = random_ids(model, 2, LENGTH), model.new_cache(2)
    padded, lengths = model.new_cache(2), torch.tensor([LENGTH, 11])
    with morph.trace(model) as seen:
        model(ids)
        assert weights_make_the_heads(model, seen, 1e-5)
        model(ids, lengths=lengths)
        assert weights_make_the_heads(model, seen, 1e-5)
        for first, last in pairwise((0, WINDOW + 9, *range(WINDOW + 10, LENGTH))):
            model(ids[:, first:last], cache=cache)
            assert weights_make_the_heads(model, seen, 1e-5)
        model(ids[:, :30], lengths=lengths - 7, cache=padded)
        model(ids[:, 30:31], cache=padded)
        assert weights_make_the_heads(model, seen, 1e-5)


@pytest.mark.parametrize("which", [8, 9, 13])
@torch.no_grad()
def test_weights_seen_in_bf16_are_the_weights_used(which: int) -> None:
    """A kernel of bf16 sums in fp32, and so does what is recorded: only the last rounding stands between them."""
    model = stage_model(which, dtype=torch.bfloat16)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, LENGTH))
    assert weights_make_the_heads(model, seen, 8e-3)
    assert float((seen["blocks.3.attention.weights"].sum(-1) - 1).abs().max()) < 1e-6
    full = stage_model(which)
    with torch.autocast("cpu", dtype=torch.bfloat16), morph.trace(full) as seen:
        full(random_ids(full, 2, LENGTH))
    assert weights_make_the_heads(full, seen, 8e-3)


def weights_make_the_heads(model: Decoder, seen: Trace, bound: float) -> bool:
    """Whether weights @ values are the recorded heads in every softmax layer, and none is missing."""
    softmax = [layer for layer, block in enumerate(model.blocks) if isinstance(block.attention, SoftmaxMixer)]
    assert softmax and len([name for name in seen if name.endswith("attention.weights")]) == len(softmax)
    for layer in softmax:
        weights, values, heads = (seen[f"blocks.{layer}.attention.{name}"] for name in ("weights", "values", "heads"))
        used = weights @ values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
        if relative_error(used, heads) >= bound:
            return False
    return True


@pytest.mark.parametrize("which", [0, 1, 9, 13, 14])
def test_a_gradient_seen_is_the_derivative_by_that_tensor(which: int) -> None:
    """Against a finite difference along a random direction, added to the stream as block 2 hands it on."""
    model = stage_model(which, dtype=torch.float64)
    ids = random_ids(model, 2, LENGTH)
    with morph.trace(model, gradients=True) as seen:
        model.loss(ids, ids).total.backward()
    direction = torch.randn(2, LENGTH, model.config.d_model, dtype=torch.float64)

    def moved(by: float) -> float:
        hook = model.blocks[2].register_forward_hook(lambda _, __, out: out + by * direction)
        try:
            with torch.no_grad():
                return model.loss(ids, ids).total.item()
        finally:
            hook.remove()

    expected = (moved(1e-5) - moved(-1e-5)) / 2e-5
    found = (seen["blocks.2.stream.gradient"] * direction).sum().item()
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert torch.equal(seen["blocks.2.stream.gradient"], seen["blocks.3.attention_norm.input.gradient"]) == (which > 0)
    assert describe("blocks.2.stream.gradient") == ("B S D", "the derivative by the stream after the block")


def test_gradients_are_asked_for_and_end_with_the_trace() -> None:
    model = stage_model(8)
    ids = random_ids(model, 1, 9)
    with morph.trace(model) as seen:
        model.loss(ids, ids).total.backward()
    assert not [name for name in seen if name.endswith(".gradient")]
    with morph.trace(model, gradients=True) as late:
        loss = model.loss(ids, ids).total
    loss.backward()
    assert not [name for name in late if name.endswith(".gradient")]
    with morph.trace(model, gradients=True) as blind, torch.no_grad():
        model(ids)
    assert len(blind) > 10 and not [name for name in blind if name.endswith(".gradient")]


def test_a_trace_is_a_mapping() -> None:
    model = stage_model(8)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 4))
    assert "stream" in seen and "steam" not in seen and seen.get("steam") is None
    with pytest.raises(MorphError, match=r"^nothing was recorded as 'steam'.*did you mean 'stream'\?"):
        seen["steam"]


def test_nothing_is_computed_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untraced, no softmax is written out and no choice is counted."""
    from morph.nn import moe, organ, router

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("computed for a trace that nobody opened")

    monkeypatch.setattr(attention_module, "attention_weights", never)
    monkeypatch.setattr(moe, "tally", never)
    monkeypatch.setattr(router, "tally", never)
    monkeypatch.setattr(moe.Experts, "can_group", lambda self, x: False)  # the loop needs no tally
    monkeypatch.setattr(organ.Organ, "recorder", None)
    for which in EVERY:
        if which == "logit-softcap":  # no kernel caps scores: its softmax is written out always
            continue
        model = stage_model(which)
        with torch.no_grad():
            model(random_ids(model, 1, 5))


@pytest.mark.parametrize("which", [10, 13])
@torch.no_grad()
def test_experts_and_router_are_seen_whole(which: int) -> None:
    """Counts, biases and parts: what was seen puts the layer's output together again, in both forms of the experts."""
    model = stage_model(which)
    ids = random_ids(model, 2, LENGTH)
    outputs = []
    for form in (torch.no_grad, morph.nn.organ.plain_forms):  # type: ignore[attr-defined]
        with form(), morph.trace(model) as seen:
            model(ids)
        place = "blocks.2.feed_forward"
        chosen, weights = seen[f"{place}.router.chosen"], seen[f"{place}.router.weights"]
        loads = seen[f"{place}.router.loads"]
        assert torch.equal(loads, torch.bincount(chosen.flatten(), minlength=len(loads)))
        routed = (seen[f"{place}.experts.parts"] * weights[..., None]).sum(1).view_as(seen[f"{place}.routed"])
        assert relative_error(routed, seen[f"{place}.routed"]) < 1e-5
        whole = seen[f"{place}.routed"] + sum(t for n, t in seen.items() if n.startswith(place) and ".output" in n)
        assert relative_error(whole, seen["blocks.2.feed_forward_delta"]) < 1e-5
        outputs.append(seen[f"{place}.experts.parts"])
        if which == 13:
            bias = seen[f"{place}.router.selection_bias"]
            choice = seen[f"{place}.router.probabilities"] + bias
            assert torch.equal(choice.sort(descending=True, stable=True).indices[:, :7], chosen) and bias.any()
    assert relative_error(outputs[1], outputs[0]) < 1e-5


@pytest.mark.parametrize("which", EVERY)
@torch.no_grad()
def test_a_cache_is_listed_to_the_byte(which: int | str) -> None:
    model = stage_model(which)
    cache = model.new_cache(2)
    assert held(cache) == ()
    model(random_ids(model, 2, LENGTH), cache=cache)
    listed = held(cache)
    assert sum(tensor.nbytes for tensor in listed) == cache.nbytes
    assert len({tensor.name for tensor in listed}) == len(listed)
    for tensor in listed:
        shape, about = held_module.SHAPES[tensor.kind]
        assert about and len(shape.split()) == len(tensor.shape) and tensor.shape[0] == 2
        assert tensor.nbytes == tensor.tensor.numel() * tensor.tensor.element_size()


def test_every_pattern_of_the_table_is_told_apart() -> None:
    for pattern, about in SHAPES.items():
        assert describe(pattern.replace("*", "3")) == about
    with pytest.raises(KeyError):
        describe("blocks.3.attention.weight")
