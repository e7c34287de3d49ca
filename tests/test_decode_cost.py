"""What a step of decoding reads and computes: against torch's FLOP counter and live caches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import MLA
from morph.forks import config_of
from morph.measure.decode import reading, unfolded
from morph.measure.scores import dense_flops
from morph.nn.latent import LatentAttention
from tests.models import random_ids, relative_error, stage_model

PAST = 23


@pytest.mark.parametrize("name", ["2017", "gqa", "mqa", "attention-sink"])
def test_a_step_of_decoding_costs_what_it_says(name: str) -> None:
    model = stage_model(name)
    ids, cache = random_ids(model, 1, PAST + 1), model.new_cache()
    with torch.no_grad():
        model(ids[:, :PAST], cache=cache)
    counted = dense_flops(model, ids[:, PAST:], cache)
    for layer, flops in enumerate(counted):
        read = reading(model.config, layer)
        assert read is not None
        assert flops == read.flops * (PAST + 1)
        assert cache.layers[layer].nbytes == read.values * (PAST + 1) * 4


@torch.no_grad()
def test_the_absorbed_form_costs_what_it_says() -> None:
    """Folded queries meet latents, weights gather them: two products, counted on plain matrices."""
    model = stage_model("mla")
    spec, layer = model.config.attention, model.blocks[0].attention
    assert isinstance(spec, MLA) and isinstance(layer, LatentAttention)
    q, kept = torch.randn(1, spec.n_heads, 1, spec.width), torch.randn(1, PAST, spec.kv_rank + spec.rope_dim)
    folded = layer.fold(q)[0, :, 0]
    with FlopCounterMode(display=False) as counter:
        weights = (folded @ kept[0].T).softmax(-1)
        weights @ kept[0, :, : spec.kv_rank]
    read = reading(model.config, 0)
    assert read is not None and counter.get_total_flops() == read.flops * PAST
    assert read.values == spec.kv_rank + spec.rope_dim


@torch.no_grad()
def test_folded_queries_give_the_scores_of_unfolded_keys() -> None:
    model = stage_model("mla", dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, PAST))
    layer = model.blocks[1].attention
    assert isinstance(layer, LatentAttention)
    at = "blocks.1.attention."
    kept = torch.cat((seen[f"{at}latents"], seen[f"{at}rotary_keys"]), dim=-1)[:, None]
    scores = layer.fold(seen[f"{at}queries"]) @ kept.transpose(-1, -2) * layer.scale
    shown = seen[f"{at}scores"]
    inside = shown.isfinite()
    assert relative_error(scores[inside], shown[inside]) < 1e-12


def test_the_ratio_is_that_of_heads_and_a_latent_has_a_high_one() -> None:
    assert [reading(config_of(name), 0).intensity() for name in ("2017", "gqa", "mqa")] == [1, 2, 4]  # type: ignore[union-attr]
    assert reading(morph.stage("hybrid"), 0) is None
    latent = morph.fork("mla")
    spec = latent.attention
    assert isinstance(spec, MLA)
    found = reading(latent, 0)
    assert found is not None
    assert found.intensity() == spec.n_heads * (2 * spec.kv_rank + spec.rope_dim) / (spec.kv_rank + spec.rope_dim)
    assert unfolded(replace(spec, n_heads=2)) == 2 * (spec.width + spec.v_dim)
    assert reading(morph.fork("sparse-attention"), 0) == found, "an indexer's own reading is left out"
