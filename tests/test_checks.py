"""The exercises' checks: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import morph
from morph.checks import the_morph as checks

NINE = morph.stage(9)


def window(size: int) -> Any:
    return replace(NINE, layout=replace(NINE.layout, local=replace(NINE.layout.local, window=size)))  # type: ignore[union-attr]


def kv(config: Any) -> int:
    return int(config.n_layers * 4 * config.attention.n_kv_heads * config.attention.head_dim)


def query_heads(config: Any) -> int:
    return int(config.n_layers * 4 * config.attention.n_heads * config.attention.head_dim)


SAME = {"rope", "silu", "gated-ffn", "sliding-window", "loss-free-balance"}


@pytest.mark.parametrize(
    "report",
    [
        checks.kv_bytes_per_token(kv),
        checks.same_parameters(SAME),
        checks.same_parameters(sorted(SAME)),
        checks.widest_window(window(1024)),
    ],
)
def test_right_answers_pass(report: checks.Report) -> None:
    assert report.passed
    assert repr(report).startswith("PASS · ")


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.kv_bytes_per_token(...), "define a function"),  # type: ignore[arg-type]
        (checks.kv_bytes_per_token(lambda config: ...), "returns nothing so far"),
        (checks.kv_bytes_per_token(lambda config: None), "returns nothing so far"),
        (checks.kv_bytes_per_token(query_heads), "stage 7 (nano) keeps 384 bytes a token, yours says 768"),
        (checks.kv_bytes_per_token(lambda config: config.heads), "raised AttributeError"),
        (checks.same_parameters(...), "compare morph.count"),
        (checks.same_parameters(7), "give a set of slugs"),
        (checks.same_parameters({4, 5}), "give a set of slugs"),
        (checks.same_parameters({"rope", "ropes"}), "ropes: no such step"),
        (checks.same_parameters(SAME | {"moe"}), "moe does change a count"),
        (checks.same_parameters(SAME - {"rope"}), "1 more"),
        (checks.same_parameters(set()), "5 more"),
        (checks.widest_window(...), "start from morph.stage(9)"),
        (checks.widest_window(1024), "give a ModelConfig"),
        (checks.widest_window(morph.stage(8)), "keep the windows"),
        (checks.widest_window(morph.stage(14)), "keep the windows"),
        (checks.widest_window(replace(window(1024), bias=True)), "also changes bias"),
        (checks.widest_window(window(1023)), "widen the window"),
        (checks.widest_window(window(2048)), "more than 1,024 tokens need"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: checks.Report, hint: str) -> None:
    assert not report.passed
    assert hint in report.message
    assert repr(report).startswith("Not yet · ")
