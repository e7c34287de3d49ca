"""The checks of notebook 05: PASS for what is right, a hint for everything else, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from morph.checks import kv_cache as checks
from morph.checks.core import Report
from morph.measure.decode import reading
from morph.story.released import RELEASED


def cache_bytes(windows: list[int | None], n_kv: int, d_h: int, s: int, b: int, size: int) -> int:
    kept = sum(s if w is None else min(s, w) for w in windows)
    return 2 * n_kv * d_h * size * kept * b


def without_windows(windows: list[int | None], n_kv: int, d_h: int, s: int, b: int, size: int) -> int:
    return 2 * n_kv * d_h * size * s * b * len(windows)


def intensity(n_q: int, r: int, d_rope: int, size: int) -> float:
    return 2 * n_q * (2 * r + d_rope) / ((r + d_rope) * size)


def scores(q: Tensor, q_rope: Tensor, w_uk: Tensor, latents: Tensor, rotary: Tensor) -> Tensor:
    folded = (q[:, None] @ w_uk)[:, 0]
    return folded @ latents.T + q_rope @ rotary.T


def unfolded(q: Tensor, q_rope: Tensor, w_uk: Tensor, latents: Tensor, rotary: Tensor) -> Tensor:
    keys = latents @ w_uk.transpose(-1, -2)
    return (keys @ q[..., None])[..., 0] + q_rope @ rotary.T


def half(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args) // 2


@pytest.mark.parametrize(
    "report",
    [
        checks.cache_bytes(cache_bytes), checks.latent_intensity(intensity), checks.absorbed_scores(scores),
        checks.texts(59),
    ],
)  # fmt: skip
def test_right_answers_pass(report: Report) -> None:
    assert report.passed, report.message


def test_the_numbers_are_those_of_the_measures() -> None:
    llama, v3 = RELEASED["Llama 3 8B"], RELEASED["DeepSeek-V3"]
    assert 2 * llama.parameters == checks.WEIGHTS
    read = reading(v3.config, 0)
    assert read is not None and read.intensity() == intensity(128, 512, 64, 2)


@pytest.mark.parametrize(
    ("report", "hint"),
    [
        (checks.cache_bytes(...), "define a function"),  # type: ignore[arg-type]
        (checks.cache_bytes(lambda *a: ...), "returns nothing so far"),
        (checks.cache_bytes(lambda *a: 1.5), "whole numbers"),
        (checks.cache_bytes(half(cache_bytes)), "keys and values"),
        (checks.cache_bytes(lambda w, k, d, s, b, z: cache_bytes(w, k, d, s, 1, z)), "a cache of its own"),
        (checks.cache_bytes(without_windows), "keeps the last tokens alone"),
        (checks.cache_bytes(lambda *a: 17), "yours 17"),
        (checks.latent_intensity(...), "define a function"),  # type: ignore[arg-type]
        (checks.latent_intensity(lambda *a: None), "returns nothing so far"),
        (checks.latent_intensity(lambda *a: "much"), "give a number"),
        (checks.latent_intensity(lambda *a: intensity(*a) / 2), "are two operations"),
        (checks.latent_intensity(lambda n, r, d, z: 2 * n / z), "the score alone"),
        (checks.latent_intensity(lambda n, r, d, z: 4 * n / z), "leaves the rotary key out"),
        (checks.latent_intensity(lambda n, r, d, z: intensity(n, r, d, z) * n), "share one read"),
        (checks.latent_intensity(lambda n, r, d, z: intensity(n, r, d, 1)), "2 bytes a number"),
        (checks.latent_intensity(lambda n, r, d, z: intensity(1, r, d, z)), "every query head"),
        (checks.latent_intensity(lambda *a: 3.0), "yours 3.0"),
        (checks.absorbed_scores(...), "define a function"),  # type: ignore[arg-type]
        (checks.absorbed_scores(lambda *a: ...), "returns nothing so far"),
        (checks.absorbed_scores(lambda *a: torch.zeros(3)), "(4, 50)"),
        (checks.absorbed_scores(lambda q, qr, w, c, k: (q[:, None] @ w)[:, 0] @ c.T), "rotary part is missing"),
        (checks.absorbed_scores(lambda *a: 2 * scores(*a)), "scores are off"),
        (checks.absorbed_scores(unfolded), "were unfolded"),
        (checks.absorbed_scores(lambda *a: a[0].nothing), "raised AttributeError"),
        (checks.texts(...), "what is left"),
        (checks.texts(59.5), "a whole number"),
        (checks.texts(74), "the weights take room too"),
        (checks.texts(14), "Llama 3 8B has 8"),
        (checks.texts(60), "60 texts take"),
    ],
)
def test_open_and_wrong_answers_get_a_hint(report: Any, hint: str) -> None:
    assert not report.passed
    assert hint in report.message
