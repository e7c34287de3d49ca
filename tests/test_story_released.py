"""Released models as configs: their parameters are the published ones, to the last."""

from __future__ import annotations

from dataclasses import replace

import pytest

import morph
from morph.story.released import RELEASED


@pytest.mark.parametrize("name", RELEASED)
def test_a_config_weighs_what_transformers_counts(name: str) -> None:
    assert morph.count(RELEASED[name].config).total == RELEASED[name].parameters


def test_a_mistyped_size_is_seen() -> None:
    llama = RELEASED["Llama 2 7B"]
    assert morph.count(replace(llama.config, n_layers=31)).total != llama.parameters


def test_they_stand_in_order_and_name_their_sources() -> None:
    years = [model.year for model in RELEASED.values()]
    assert years == sorted(years)
    assert all(model.source for model in RELEASED.values())


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("Llama 2 7B", 512.0),
        ("Llama 3 8B", 128.0),
        ("DeepSeek-V3", 68.625),
        ("Gemma 3 27B", 496.0),
        ("Olmo 3 32B", 256.0),
        ("Qwen3-Next 80B-A3B", 24.0),
        ("DeepSeek-V3.2", 83.875),
        ("Kimi Linear 48B-A3B", 7.875),
        ("GLM-5", 107.25),
    ],
)
def test_a_token_writes_as_many_bytes_as_published_sizes_say(name: str, kib: float) -> None:
    assert morph.count(RELEASED[name].config).kv_bytes_per_token / 1024 == kib
