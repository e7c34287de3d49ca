"""Sampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import morph
from morph.decoding import next_token_probabilities
from morph.errors import MorphError
from tests.models import random_ids, stage_model


@pytest.mark.parametrize("stage", [0, 9, 14])
def test_greedy_decoding_takes_the_best_token_of_the_full_pass(stage: int) -> None:
    model = stage_model(stage, dtype=torch.float64)
    prompt = random_ids(model, 2, 20)
    written = morph.generate(model, prompt, 12, temperature=0)
    assert torch.equal(written[:, :20], prompt) and written.shape == (2, 32)
    with torch.no_grad():
        best = model(written[:, :-1]).argmax(-1)[:, 19:]
    assert torch.equal(written[:, 20:], best)


def test_padded_prompts_continue_as_they_would_alone() -> None:
    model = stage_model(14, dtype=torch.float64)
    prompts = random_ids(model, 2, 20)
    together = morph.generate(model, prompts, 8, lengths=torch.tensor([20, 11]), temperature=0)
    alone = morph.generate(model, prompts[1:, 9:], 8, temperature=0)
    assert torch.equal(together[1, 20:], alone[0, 11:])


def test_a_seed_repeats_a_sample() -> None:
    model = stage_model(7)
    prompt = random_ids(model, 1, 5)
    a, b, c = (morph.generate(model, prompt, 20, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(morph.generate(model, prompt, 9), morph.generate(model, prompt, 9))


def test_the_distribution_sampled_from() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.1, 0.3, 0.1]]))
    assert torch.allclose(next_token_probabilities(logits, 1.0, None, None), logits.exp())
    assert next_token_probabilities(logits, 0.0, None, None).tolist() == [[1, 0, 0, 0]]
    assert torch.allclose(next_token_probabilities(logits, 1.0, 2, None), torch.tensor([[0.625, 0, 0.375, 0]]))
    assert torch.allclose(next_token_probabilities(logits, 1.0, None, 0.79), torch.tensor([[0.625, 0, 0.375, 0]]))
    assert torch.allclose(next_token_probabilities(logits, 1.0, None, 0.81)[0, 1], torch.tensor(1 / 9))
    squared = torch.tensor([[0.25, 0.01, 0.09, 0.01]]) / 0.36
    assert torch.allclose(next_token_probabilities(logits, 0.5, None, None), squared)
    assert next_token_probabilities(logits, 1.0, None, 1e-300).tolist() == [[1, 0, 0, 0]]
    assert next_token_probabilities(logits, 1.0, 99, 1.0).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kw", "words"),
    [
        ({"temperature": -0.1}, "temperature = -0.1"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"temperature": 1e-45}, "temperature = 1"),
        ({"lengths": torch.tensor([0])}, "a row without a token"),
        ({"top_k": 0}, "top_k = 0"),
        ({"top_p": 0.0}, "top_p = 0.0"),
        ({"top_p": 1.5}, "top_p = 1.5"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
    ],
)
def test_impossible_requests_are_refused(kw: dict[str, float], words: str) -> None:
    model = stage_model(0)
    with pytest.raises(MorphError, match=words):
        morph.generate(model, random_ids(model, 1, 3), **({"max_new_tokens": 3} | kw))  # type: ignore[arg-type]


def test_generation_leaves_the_mode_as_it_was() -> None:
    model = stage_model(13).train()
    morph.generate(model, random_ids(model, 1, 3), 3)
    assert model.training
    loads = model.end_step()
    assert loads is not None and float(loads.sum()) == 0, "decoding is not training load"


def test_logits_without_a_next_token_are_told() -> None:
    """NaN of damaged weights is no token, and no more is anything when every id is excluded."""
    model = stage_model("mtp")
    prompt = random_ids(model, 1, 5)
    for call in (
        lambda: morph.generate(model, prompt, 2, never=range(256)),
        lambda: morph.generate(model, prompt, 2, temperature=0, never=range(256)),
        lambda: morph.generate_speculative(model, prompt, 2, never=range(256)),
    ):
        with pytest.raises(MorphError, match="no token is left"):
            call()
    torch.nn.init.constant_(model.norm.weight, float("nan"))
    for call in (
        lambda: morph.generate(model, prompt, 2),
        lambda: morph.generate(model, prompt, 2, temperature=0),
        lambda: morph.generate_speculative(model, prompt, 2),
    ):
        with pytest.raises(MorphError, match="not numbers"):
            call()


def test_ends_that_no_model_writes_are_passed_over() -> None:
    model = stage_model("mtp")
    prompt = random_ids(model, 1, 5)
    plain = morph.generate(model, prompt, 6, temperature=0)
    assert torch.equal(morph.generate(model, prompt, 6, temperature=0, stop=[10**30, -7]), plain)
    assert torch.equal(morph.generate_speculative(model, prompt, 6, stop=[10**30, -7]).ids, plain)


@pytest.mark.parametrize(
    "kw",
    [{"max_new_tokens": True}, {"max_new_tokens": "x"}, {"max_new_tokens": 1.5}, {"top_k": 1.5}, {"top_k": True},
     {"temperature": "x"}, {"temperature": True}, {"top_p": "x"}, {"stop": 5}, {"stop": ["x"]}, {"never": None}],
)  # fmt: skip
def test_arguments_of_another_type_are_told(kw: dict[str, Any]) -> None:
    model = stage_model(7)
    with pytest.raises(MorphError):
        morph.generate(model, random_ids(model, 1, 3), **{"max_new_tokens": 2} | kw)
