"""Forks, one by one: what each computes, against its formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import morph
from morph.config import SlidingWindow
from tests.models import random_ids, relative_error, stage_model
from tests.test_cache import LENGTH
from tests.test_forks import branch_sizes

# ---- norms ----


def test_normalized_branches_write_what_their_gains_say() -> None:
    for slug, size in (("sandwich-norm", 1.0), ("post-branch-norm", 1.0), ("depth-scaled-gain", 0.5)):
        for half in branch_sizes(slug):
            assert half == pytest.approx([size] * 4, rel=1e-3), slug
    assert branch_sizes("rms-norm")[0][0] < 0.7, "attention averages, and writes less where nothing normalizes it"


@torch.no_grad()
def test_a_parallel_block_reads_one_stream() -> None:
    model = stage_model("parallel-block", dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 12))
    for i, block in enumerate(model.blocks):
        normed = block.norm(seen[f"blocks.{i}.norm.input"])
        assert relative_error(block.feed_forward(normed, None), seen[f"blocks.{i}.feed_forward_delta"]) < 1e-12
        total = sum(seen[f"blocks.{i}.{part}"] for part in ("norm.input", "attention_delta", "feed_forward_delta"))
        assert relative_error(total, seen[f"blocks.{i}.stream"]) < 1e-12


@torch.no_grad()
def test_layer_norm_without_its_shift() -> None:
    model, base = stage_model("layer-norm-no-bias"), stage_model("pre-norm")
    assert not any(name.endswith("norm.bias") for name, _ in model.named_parameters())
    missing = base.load_state_dict(model.state_dict(), strict=False)
    assert missing.unexpected_keys == [] and all(name.endswith("norm.bias") for name in missing.missing_keys)
    for name in missing.missing_keys:
        base.get_parameter(name).zero_()
    ids = random_ids(base, 2, 40)
    assert torch.equal(model(ids), base(ids))


@torch.no_grad()
def test_qk_norm_across_heads() -> None:
    model = stage_model("qk-norm-full-width", dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, 12))
    for block, layer in zip(model.blocks, (f"blocks.{i}.attention" for i in range(4)), strict=True):
        for side, norm in (("queries", block.attention.q_norm), ("keys", block.attention.k_norm)):
            before, after = seen[f"{layer}.projected_{side}"], seen[f"{layer}.unrotated_{side}"]
            gain = norm.weight.view(before.shape[1], 1, -1)
            expected = gain * before / (before.square().mean((1, 3), keepdim=True) + 1e-5).sqrt()
            assert relative_error(after, expected) < 1e-12
            assert torch.equal(seen[f"{layer}.{side[0]}_norm.input"], before)


# ---- layouts ----


def test_which_layers_are_global() -> None:
    def globals_of(slug: str, size: str) -> list[int]:
        config = morph.fork(slug, size)
        return [i for i in range(config.n_layers) if not isinstance(config.mixer(i), SlidingWindow)]

    assert globals_of("window-1-1", "tiny") == [1, 3]
    assert globals_of("window-5-1", "tiny") == [] and globals_of("window-5-1", "small") == [5, 11]
    assert globals_of("all-local", "small") == []


@torch.no_grad()
def test_windows_reach_no_further_than_they_can() -> None:
    """A token changed L (w - 1) back is felt, one more step back it is not."""
    model = stage_model("all-local", dtype=torch.float64)
    reach = 4 * (16 - 1)
    ids = random_ids(model, 1, LENGTH)
    before = model(ids)[0, -1]
    for back, is_felt in ((reach, True), (reach + 1, False)):
        changed = ids.clone()
        changed[0, -1 - back] = (changed[0, -1 - back] + 7) % 256
        assert torch.equal(model(changed)[0, -1], before) is not is_felt, back
    same = morph.build(morph.fork("window-5-1", "nano")).eval().double()
    same.load_state_dict(model.state_dict())
    assert torch.equal(same(ids)[0, -1], before), "with four layers, 5 : 1 has no global one"


# ---- attention ----


@pytest.mark.parametrize("slug", ["gated-attention", "headwise-gate"])
@torch.no_grad()
def test_gates_multiply_what_the_heads_gathered(slug: str) -> None:
    model = stage_model(slug, dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, 12))
    for i, block in enumerate(model.blocks):
        attention, name = block.attention, f"blocks.{i}.attention"
        normed = block.attention_norm(seen[f"blocks.{i}.attention_norm.input"])
        gate = torch.sigmoid(normed @ attention.gate_proj.weight.T).view(2, 12, 4, -1).transpose(1, 2)
        assert relative_error(seen[f"{name}.gate"], gate.expand(2, 4, 12, 12)) < 1e-12
        assert gate.shape[-1] == (12 if slug == "gated-attention" else 1)
        gated = (seen[f"{name}.heads"] * gate).transpose(1, 2).flatten(2)
        assert relative_error(seen[f"blocks.{i}.attention_delta"], gated @ attention.o_proj.weight.T) < 1e-12


@torch.no_grad()
def test_a_soft_cap_bounds_the_scores() -> None:
    """Against the formula, with a cap that bites; a wide one leaves the base."""
    model, base = stage_model("logit-softcap", dtype=torch.float64), stage_model("qk-norm", dtype=torch.float64)
    ids = random_ids(model, 2, 30)
    assert 1e-5 < relative_error(model(ids), base(ids)) < 0.05, "QK-norm has bounded them already"
    config = morph.fork("logit-softcap", "nano")
    attention = replace(config.attention, softcap=replace(config.attention.softcap, cap=1.5))
    capped = morph.build(replace(config, attention=attention)).double()
    capped.load_state_dict(base.state_dict())
    with morph.trace(capped) as bounded, morph.trace(base) as free:
        capped(ids), base(ids)
    ours, raw = (seen["blocks.0.attention.scores"] for seen in (bounded, free))
    finite = raw > float("-inf")
    assert torch.equal(ours > float("-inf"), finite) and float(raw[finite].abs().max()) > 2
    assert relative_error(ours[finite], 1.5 * torch.tanh(raw[finite] / 1.5)) < 1e-12
    weights, values = bounded["blocks.0.attention.weights"], bounded["blocks.0.attention.values"]
    heads = weights @ values.repeat_interleave(2, dim=1)
    assert relative_error(bounded["blocks.0.attention.heads"], heads) < 1e-12


@torch.no_grad()
def test_biases_on_queries_keys_and_values_alone() -> None:
    model, base = stage_model("qkv-bias", dtype=torch.float64), stage_model("qk-norm", dtype=torch.float64)
    left = base.load_state_dict(model.state_dict(), strict=False)
    assert left.unexpected_keys == [f"blocks.{i}.attention.{n}_proj.bias" for i in range(4) for n in "qkv"]
    ids = random_ids(base, 2, 30)
    before = model(ids)
    for name in ("q", "k", "v"):
        getattr(model.blocks[0].attention, f"{name}_proj").bias.zero_()
        assert relative_error(model(ids), before) > 1e-3, name
        before = model(ids)


def test_one_key_value_head_has_the_smallest_cache() -> None:
    pairs = [morph.count(config).kv_bytes_per_token for config in (morph.stage(6), morph.stage(7), morph.fork("mqa"))]
    assert pairs == [1536, 768, 384]


# ---- feed-forward ----


@pytest.mark.parametrize(
    ("slug", "form"),
    [
        ("gelu", lambda z: z * torch.distributions.Normal(0, 1).cdf(z)),
        ("relu-squared", lambda z: torch.where(z > 0, z * z, 0)),
        ("geglu", lambda z: z * torch.distributions.Normal(0, 1).cdf(z)),
    ],
)
@torch.no_grad()
def test_activations_are_their_formulas(slug: str, form: Callable[[Tensor], Tensor]) -> None:
    model = stage_model(slug, dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 9))
    for i, block in enumerate(model.blocks):
        hidden = form(seen[f"blocks.{i}.feed_forward.preactivation"])
        if slug == "geglu":
            hidden = hidden * seen[f"blocks.{i}.feed_forward.value"]
        delta = seen[f"blocks.{i}.feed_forward_delta"]
        assert relative_error(block.feed_forward.down(hidden), delta) < 1e-6
