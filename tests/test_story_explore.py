"""What the explorers are given: the numbers of a traced pass over the reader's text."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import morph
from morph.errors import MorphError
from morph.story import explore
from morph.story.subject import Subject, subject
from tests.stories import with_array

TEXT = "def area(r): return 3.1 * r"


@cache
def of(stage: int, seed: int = 0) -> Subject:
    return subject(stage, size="nano", seed=seed)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("stage", [0, 9, 13, 14])
def test_claims_hold(stage: int, seed: int) -> None:
    assert explore.attention(of(stage, seed), TEXT).check()
    assert explore.token_trace(of(stage, seed), TEXT).check()
    if stage >= 10:
        assert explore.routing(of(stage, seed), TEXT).check()


@pytest.mark.parametrize("fork", ["parallel-block", "post-branch-norm", "attention-sink", "dense-first", "nope"])
def test_claims_hold_for_forks(fork: str) -> None:
    model = subject(fork, size="nano")
    assert explore.attention(model, TEXT).check()
    assert explore.token_trace(model, TEXT).check()
    if fork == "dense-first":
        frame = explore.routing(model, TEXT)
        assert frame.check() and frame.facts["layers"] == [1, 2, 3]
        assert "3 of 4 layers" in frame.caption


def test_a_parallel_block_writes_twice() -> None:
    """Nothing is recorded between its halves, so the explorer stands attention's delta there."""
    model = subject("parallel-block", size="nano")
    with torch.no_grad(), morph.trace(model.model) as seen:
        model.model(torch.tensor([list(TEXT.encode())]))
    written = explore.token_trace(model, TEXT).arrays["write"].values
    for layer in range(4):
        for half, name in enumerate(("attention_delta", "feed_forward_delta")):
            size = seen[f"blocks.{layer}.{name}"][0].square().mean(-1).sqrt().numpy()
            np.testing.assert_allclose(written[2 * layer + half], size, rtol=1e-4)


def test_claims_can_fail() -> None:
    frame = explore.attention(of(9), TEXT)
    assert not with_array(frame, "weights", lambda v: v[..., ::-1]).check()
    frame = explore.token_trace(of(9), TEXT)
    assert not with_array(frame, "likely", lambda v: 255 - v).check()
    frame = explore.routing(of(13), TEXT)
    assert not with_array(frame, "chosen", np.zeros_like).check()


def test_attention_is_that_of_the_pass() -> None:
    frame, model = explore.attention(of(9), TEXT), of(9).model
    with torch.no_grad(), morph.trace(model) as seen:
        model(torch.tensor([list(TEXT.encode())]))
    for place, layer in enumerate(frame.facts["layers"]):
        expected = seen[f"blocks.{layer}.attention.weights"][0].numpy()
        np.testing.assert_array_equal(frame.arrays["weights"].values[place], expected)
    assert frame.facts["windows"] == [16, 16, 16, None]
    assert frame.facts["tokens"][:4] == ["d", "e", "f", "␣"]


def test_layers_without_weights_are_named() -> None:
    frame = explore.attention(of(14), TEXT)
    assert frame.facts["layers"] == [3] and len(frame.arrays["weights"].values) == 1
    assert frame.facts["missing"] == "Layers 0, 1, 2 keep a state and have no attention weights."


def test_a_token_trace_follows_the_stream() -> None:
    frame, model = explore.token_trace(of(8), TEXT), of(8).model
    with torch.no_grad(), morph.trace(model) as seen:
        logits = model(torch.tensor([list(TEXT.encode())]))
    rms = frame.arrays["rms"].values
    assert rms.shape == (2 * 4 + 1, len(TEXT)) and len(frame.facts["writes"]) == 8
    delta = seen["blocks.2.attention_delta"][0].square().mean(-1).sqrt()
    np.testing.assert_allclose(frame.arrays["write"].values[4], delta, rtol=1e-4)
    best = logits[0].softmax(-1).max(-1).values
    np.testing.assert_allclose(frame.arrays["probability"].values[-1, :, 0], best, rtol=1e-4)
    loss = model.loss(torch.tensor([list(TEXT.encode())])[:, :-1], torch.tensor([list(TEXT.encode())])[:, 1:])
    mean = float(np.nanmean(frame.arrays["surprise"].values)) * np.log(2)
    assert mean == pytest.approx(loss.cross_entropy.item(), rel=1e-4)
    assert np.isnan(frame.arrays["surprise"].values[-1])


def test_loads_count_the_choices() -> None:
    frame = explore.routing(of(13), TEXT)
    assert frame.arrays["load"].values.sum() == 4 * len(TEXT) * 7
    np.testing.assert_allclose(frame.arrays["weights"].values.sum(-1), 7.0, rtol=1e-5)
    layer, token = 2, 5
    chosen = frame.arrays["chosen"].values[layer, token]
    assert frame.arrays["probabilities"].values[layer, token].argmax() == chosen[0]  # no bias yet


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"), ("x" * 97, "has 97 bytes and 96 can be shown"),
        ("a\ud83d", r"'\\ud83d' at 1 is half a character"), (None, "the text is NoneType, not a string"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_shown(text: Any, message: str) -> None:
    with pytest.raises(MorphError, match=message):
        explore.attention(of(9), text)


def test_a_readers_model_is_left_as_it_is() -> None:
    """A model in training goes on training: what is looked at is a copy of it as it was."""
    model = morph.build(morph.stage(13, "nano")).to(torch.bfloat16).train()
    shown = subject(model)
    first = explore.attention(shown, TEXT).arrays["weights"].values
    assert model.training and all(block.training for block in model.blocks)
    with torch.no_grad():
        model.embedding.weight.mul_(2).add_(1)
    np.testing.assert_array_equal(explore.attention(shown, TEXT).arrays["weights"].values, first)
    assert shown.model.embedding.weight.dtype == torch.float32


def test_models_without_the_organ_are_refused() -> None:
    with pytest.raises(MorphError, match="has no router; give a model with experts"):
        explore.routing(of(9), TEXT)
