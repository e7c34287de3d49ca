"""Norms placed by the kind of layer, and norms on the stream before a branch: against the formulas, and on screen."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import morph
from morph.config import ModelConfig, ResidualWeights
from morph.errors import MorphError
from morph.forks import config_of
from morph.model import Decoder
from morph.nn.block import NormedStreamBlock, PostBranchBlock, PreNormBlock
from morph.nn.context import Context
from morph.story import explore, residual
from morph.story.block import organs
from morph.story.subject import subject
from tests.models import random_ids, relative_error, stage_model
from tests.test_cache import read_in_chunks

EXACT, LENGTH = 1e-12, 45
WEIGHTS = ResidualWeights(
    attention_stream=1.2, attention_branch=0.9, local_stream=1.1, local_branch=0.8, feed_forward_stream=1.05,
    feed_forward_branch=0.95,
)  # fmt: skip


def minimax(size: str = "nano") -> ModelConfig:
    """Lightning, norms on the stream, all six factors different."""
    return replace(config_of("lightning", size), placement="on-normed-stream", residual=WEIGHTS)


def olmo_hybrid(size: str = "nano") -> ModelConfig:
    return replace(config_of("hybrid", size), placement="by-mixer")


def shared(x: Tensor) -> Context:
    return Context(0, x.shape[1], None, x.device, x.dtype)


@torch.no_grad()
def test_norms_stand_by_mixer() -> None:
    """Layers with a state: x + f(norm(x)) in both halves; the layer with softmax: x + norm(f(x)) in both."""
    model = stage_model(olmo_hybrid(), dtype=torch.float64)
    assert [type(block) for block in model.blocks] == [PreNormBlock] * 3 + [PostBranchBlock]
    assert [model.config.placement_in(layer) for layer in range(4)] == ["pre"] * 3 + ["post-branch"]
    ids = random_ids(model, 2, LENGTH)
    with morph.trace(model) as seen:
        logits = model(ids)
    x = model.embedding(ids) * 48**0.5
    for i, block in enumerate(model.blocks):
        for half in ("attention", "feed_forward"):
            branch, norm = getattr(block, half), getattr(block, f"{half}_norm")
            x = x + (branch(norm(x), shared(x)) if i < 3 else norm(branch(x, shared(x))))
            if half == "attention":
                assert relative_error(seen[f"blocks.{i}.middle"], x) < EXACT
        assert relative_error(seen[f"blocks.{i}.stream"], x) < EXACT
    x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * model.norm.weight
    assert relative_error(logits, x @ model.embedding.weight.T) < EXACT


def test_by_mixer_is_post_branch_where_no_layer_keeps_a_state() -> None:
    windows = config_of("loss-free-balance", "nano")
    a, b = (stage_model(replace(windows, placement=placement)) for placement in ("by-mixer", "post-branch"))  # type: ignore[arg-type]
    ids = random_ids(a, 1, 20)
    with torch.no_grad():
        assert torch.equal(a(ids), b(ids))
    assert organs(a.config)[0] == organs(b.config)[0] and "states" not in organs(a.config)[0].detail


@torch.no_grad()
def test_branches_are_added_to_the_normed_stream() -> None:
    """n = norm(x), x ← s n + b f(n), with the factors of each kind of branch."""
    model = stage_model(minimax(), dtype=torch.float64)
    assert all(isinstance(block, NormedStreamBlock) for block in model.blocks)
    ids = random_ids(model, 2, LENGTH)
    with morph.trace(model) as seen:
        logits = model(ids)
    x = model.embedding(ids) * 48**0.5
    for i, block in enumerate(model.blocks):
        s, b = (1.1, 0.8) if i < 3 else (1.2, 0.9)
        for half, stream, factor in (("attention", s, b), ("feed_forward", 1.05, 0.95)):
            norm = getattr(block, f"{half}_norm")
            normed = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
            delta = factor * getattr(block, half)(normed, shared(x))
            assert relative_error(seen[f"blocks.{i}.{half}_delta"], delta) < EXACT
            x = stream * normed + delta
        assert relative_error(seen[f"blocks.{i}.stream"], x) < EXACT
    assert relative_error(logits, model.norm(x) @ model.embedding.weight.T) < EXACT


@torch.no_grad()
def test_factors_of_1_are_no_factors() -> None:
    config = replace(minimax(), residual=None)
    ones = replace(config, residual=ResidualWeights())
    a, b = stage_model(config), stage_model(ones)
    ids = random_ids(a, 1, 20)
    assert torch.equal(a(ids), b(ids))
    assert relative_error(stage_model(minimax())(ids), a(ids)) > 1e-2


@torch.no_grad()
def test_norms_that_let_all_pass_leave_the_pre_norm_block() -> None:
    """With the identity for every norm both are x + f(x)."""
    config = replace(minimax(), residual=None)
    a, b = (stage_model(replace(config, placement=p), dtype=torch.float64) for p in ("on-normed-stream", "pre"))  # type: ignore[arg-type]
    ids = random_ids(a, 2, 30)
    assert relative_error(a(ids), b(ids)) > 1e-2
    for model in (a, b):
        for block in model.blocks:
            block.attention_norm = block.feed_forward_norm = torch.nn.Identity()  # type: ignore[assignment]
    assert relative_error(a(ids), b(ids)) < EXACT


def test_weights_without_their_placement_are_refused() -> None:
    with pytest.raises(MorphError, match="'on-normed-stream', and this one is 'pre'"):
        replace(minimax(), placement="pre")


@pytest.mark.parametrize("make", [minimax, olmo_hybrid])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3e-5), (torch.float64, 1e-11)])
@torch.no_grad()
def test_the_cache_law_holds(make, dtype: torch.dtype, bound: float) -> None:  # type: ignore[no-untyped-def]
    model: Decoder = stage_model(make(), dtype=dtype)
    length = 80
    ids, lengths = random_ids(model, 3, length), torch.tensor([length, 57, 9])
    full, padded = model(ids), model(ids, lengths=lengths)
    assert relative_error(read_in_chunks(model, ids, [37, 38, 39, 70]), full) < bound
    chunked = read_in_chunks(model, ids, [13, 60, 61], lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = model(ids[row : row + 1, length - n :])[0]
        assert relative_error(padded[row, length - n :], alone) < bound
        assert relative_error(chunked[row, length - n :], alone) < bound
    assert morph.count(model.config).total == sum(p.numel() for p in model.parameters())


# ---- on screen ----

NO_SUM = {"attention", "feed-forward", "sum", "growth"}
"""Frames that a stream with norms on it cannot have."""


@pytest.mark.parametrize(
    ("config", "gone"),
    [
        (minimax(), NO_SUM),
        (replace(config_of("hybrid", "nano"), placement="on-normed-stream"), NO_SUM),
        (olmo_hybrid(), set()),
        (config_of("lightning", "nano"), set()),
        (config_of("kda", "nano"), set()),
    ],
    ids=["minimax", "hybrid", "olmo-hybrid", "lightning", "kda"],
)  # fmt: skip
def test_the_residual_figure_tells_what_is_there(config: ModelConfig, gone: set[str]) -> None:
    frames = residual.figure(config).frames
    assert {frame.key for frame in frames if frame.absent} == gone
    assert [frame.key for frame in frames if not frame.check()] == []
    for frame in frames:
        assert "sum" not in frame.absent or "no sum" in frame.absent
    names = {"lightning": "Lightning attention reads", "kda": "The delta network reads"}
    if not gone:
        assert names.get(config.mixer(0).kind, "The delta network reads") in frames[1].caption


@pytest.mark.parametrize("make", [minimax, olmo_hybrid])
def test_explorers_show_a_token_on_any_stream(make) -> None:  # type: ignore[no-untyped-def]
    it = subject(make())
    seen = explore.token_trace(it, "hello there")
    assert seen.check() and seen.values("rms").shape == (9, 11)
    weights = explore.attention(it, "hello there")
    assert weights.facts["layers"] == [3] and weights.facts["missing"].startswith("Layers 0, 1, 2 keep a state")


@pytest.mark.parametrize(
    ("word", "name", "mask"),
    [
        ("hybrid", "DeltaNet and attention", "3 DeltaNet, 1 softmax"),
        ("lightning", "Lightning and attention", "3 Lightning, 1 softmax"),
        ("kda", "KDA and attention", "3 KDA, 1 softmax"),
    ],
)
def test_every_kind_of_state_has_its_name(word: str, name: str, mask: str) -> None:
    told = {organ.key: organ for organ in organs(config_of(word, "nano"))}
    assert told["attention"].label == name and told["attention.mask"].detail == mask
    assert told["attention.mask"].data["layers"] == ["state"] * 3 + ["full"]


def test_every_placement_is_told() -> None:
    assert organs(minimax())[0].detail == "on the stream, before a branch"
    assert organs(olmo_hybrid())[0].detail == "before states, after softmax"
