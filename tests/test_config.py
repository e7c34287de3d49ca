"""Configs: validation, round trips, differences."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph.config import (
    MLP,
    Attention,
    GatedDeltaNet,
    GatedMLP,
    Interleaved,
    LayerNorm,
    ModelConfig,
    MoE,
    NoPosition,
    RMSNorm,
    Rope,
    SelectionBias,
    Sinusoid,
    SlidingWindow,
    diff,
)
from morph.errors import MorphError
from morph.steps import SLUGS, stage


@pytest.mark.parametrize("slug", SLUGS)
def test_files_give_back_the_config(slug: str) -> None:
    config = stage(slug, "nano")
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert ModelConfig.from_toml(config.to_toml()) == config


@given(
    heads=st.integers(1, 12),
    kv=st.integers(1, 12),
    dim=st.integers(1, 9),
    position=st.sampled_from([Sinusoid(), Rope(), NoPosition()]),
    experts=st.integers(1, 6),
    top_k=st.integers(1, 6),
)
def test_a_config_is_whole_or_refused(
    heads: int, kv: int, dim: int, position: object, experts: int, top_k: int
) -> None:
    possible = heads % kv == 0 and top_k <= experts and not (isinstance(position, Rope) and dim % 2)
    try:
        config = replace(
            stage("hybrid", "nano"),
            attention=Attention(n_heads=heads, n_kv_heads=kv, head_dim=dim),
            position=position,
            feed_forward=MoE(
                expert=GatedMLP(width=8, activation="silu"),
                n_experts=experts,
                top_k=top_k,
                routed_scale=1.0,
                balance=SelectionBias(),
            ),
        )
    except MorphError:
        assert not possible
    else:
        assert possible
        assert ModelConfig.from_toml(config.to_toml()) == config


def _attention(**kw: object) -> ModelConfig:
    return replace(stage("rope", "nano"), attention=Attention(**{"n_heads": 4, "n_kv_heads": 4} | kw))  # type: ignore[arg-type]


def _moe(**kw: object) -> MoE:
    fields = {"expert": GatedMLP(width=8, activation="silu"), "n_experts": 4, "top_k": 2, "routed_scale": 1.0}
    return MoE(**fields | {"balance": SelectionBias()} | kw)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: _attention(n_heads=5, n_kv_heads=5), ["n_heads = 5", "d_model = 48"]),
        (lambda: _attention(n_kv_heads=3), ["n_kv_heads = 3", "n_heads = 4", "1, 2, 4"]),
        (lambda: _attention(head_dim=7), ["head_dim = 7", "even"]),
        (lambda: _attention(n_heads=0), ["n_heads = 0", ">= 1"]),
        (lambda: _attention(n_heads=2.5), ["n_heads = 2.5", "whole number"]),
        (lambda: _attention(n_heads=True), ["n_heads = True", "whole number"]),
        (lambda: SlidingWindow(window=0), ["window = 0", ">= 1"]),
        (lambda: _moe(top_k=5), ["top_k = 5", "n_experts = 4"]),
        (lambda: _moe(n_shared=-1), ["n_shared = -1", ">= 0"]),
        (lambda: _moe(routed_scale=0.0), ["routed_scale = 0.0", "above 0"]),
        (lambda: GatedMLP(width=8, activation="sillu"), ["sillu", "relu, silu", "did you mean 'silu'"]),
        (lambda: replace(stage(0, "nano"), placement="pree"), ["pree", "did you mean 'pre'"]),
        (lambda: replace(stage(0, "nano"), norm=Rope()), ["norm = ", "layer-norm, rms-norm"]),
        (lambda: replace(stage(0, "nano"), d_model=49, attention=Attention(n_heads=7, n_kv_heads=7)), ["49", "odd"]),
        (
            lambda: GatedDeltaNet(n_key_heads=2, n_value_heads=3, key_head_dim=4, value_head_dim=4),
            ["n_key_heads = 2", "n_value_heads = 3"],
        ),
    ],
)
def test_impossible_values_are_named_with_limit_and_remedy(make, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MorphError) as error:
        make()
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(n_layer=3), ["n_layer", "did you mean 'n_layers'"]),
        (lambda d: d.pop("vocab_size"), ["lacks vocab_size"]),
        (lambda d: d["norm"].update(kind="rmsnorm"), ["config.norm.kind = 'rmsnorm'", "did you mean 'rms-norm'"]),
        (lambda d: d["layout"]["local"].update(windows=3), ["config.layout.local.windows", "did you mean 'window'"]),
        (lambda d: d.update(norm=3), ["config.norm = 3", "table"]),
        (lambda d: d.update(kind=["model"]), ["config.kind = ['model']"]),
        (lambda d: d["norm"].update(kind={}), ["config.norm.kind = {}"]),
        (lambda d: d["norm"].update(eps=float("inf")), ["eps = inf", "finite"]),
        (lambda d: d["attention"].update(n_heads="four"), ["n_heads = 'four'", "whole number"]),
    ],
)
def test_bad_files_are_named(change, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    data = stage("sliding-window", "nano").to_dict()
    change(data)
    with pytest.raises(MorphError) as error:
        ModelConfig.from_dict(data)
    for word in words:
        assert word in str(error.value)


def test_text_that_is_not_toml_is_one_line() -> None:
    with pytest.raises(MorphError, match="not valid TOML"):
        ModelConfig.from_toml("n_layers = = 3")


def test_head_dim_is_filled_in_and_layers_know_their_mixer() -> None:
    config = stage("hybrid", "nano")
    assert config.attention.head_dim == 12
    kinds = [type(config.mixer(layer)).__name__ for layer in range(8)]
    assert kinds == ["GatedDeltaNet"] * 3 + ["Attention"] + ["GatedDeltaNet"] * 3 + ["Attention"]
    odd = Interleaved(n_local=5, local=SlidingWindow(window=4))
    assert [odd.is_global(layer) for layer in range(7)] == [False] * 5 + [True, False]


def test_diff_lists_fields_and_whole_records() -> None:
    changes = [str(change) for change in diff(stage("moe"), stage("fine-grained"))]
    assert changes == [
        "feed_forward.expert.width: 128 → 32",
        "feed_forward.n_experts: 8 → 32",
        "feed_forward.top_k: 2 → 8",
        "feed_forward.routed_scale: 2 → 8",
    ]
    assert [str(c) for c in diff(stage(1), stage(2))] == ["norm: LayerNorm(eps=1e-05) → RMSNorm(eps=1e-05)"]
    assert diff(stage(3), stage(3)) == []


def test_null_stands_for_an_absent_option() -> None:
    data = stage("gqa", "nano").to_dict()
    data["attention"]["qk_norm"] = None
    assert ModelConfig.from_dict(data) == stage("gqa", "nano")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: replace(stage(9, "nano"), attention=None), ["model.attention = None", "attention"]),
        (lambda: Interleaved(n_local=3, local=None), ["local = None", "sliding-window, gated-delta-net"]),  # type: ignore[arg-type]
        (lambda: _moe(expert=MLP(width=4, activation="relu")), ["moe.expert", "gated-mlp"]),
        (lambda: _moe(balance=None), ["balance = None", "auxiliary-loss, selection-bias"]),
        (lambda: _attention(qk_norm=LayerNorm()), ["qk_norm", "rms-norm"]),
        (lambda: _attention(n_heads=10**30, n_kv_heads=7), ["above 100,000,000"]),
        (lambda: replace(stage(0, "nano"), n_layers=10**9), ["n_layers = 1000000000", "1,000"]),
        (lambda: RMSNorm(eps=10**400), ["eps", "finite"]),
        (lambda: diff(stage(0), None), ["give two configs"]),  # type: ignore[arg-type]
        (lambda: diff(stage(0), RMSNorm()), ["give two configs"]),
    ],
)
def test_wrong_records_and_huge_numbers_are_refused_at_once(make, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MorphError) as error:
        make()
    assert all(word in str(error.value) for word in words)
