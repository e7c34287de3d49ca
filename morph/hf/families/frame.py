"""The keys that nearly every decoder of config.json has: sizes, final norm, tied head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morph.config import ModelConfig
from morph.hf.settings import Settings


def read_frame(s: Settings, context: int, context_key: str = "max_position_embeddings") -> dict[str, Any]:
    """Fields of a `ModelConfig`: sizes, bias, embedding and head; `context` is what is assumed when it is missing."""
    return {
        "vocab_size": s.whole("vocab_size"),
        "d_model": s.whole("hidden_size"),
        "n_layers": s.whole("num_hidden_layers"),
        "context_length": s.whole(context_key, context),
        "bias": False,
        "tied": s.flag("tie_word_embeddings", False),
        "embedding_scale": 1.0,
    }


def write_frame(config: ModelConfig, context_key: str = "max_position_embeddings") -> dict[str, Any]:
    """The same, the other way, and the norms' eps."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        context_key: config.context_length,
        "rms_norm_eps": config.norm.eps,
        "tie_word_embeddings": config.tied,
    }


def either(s: Settings, names: Sequence[str], default: int) -> int:
    """A whole number that folders of different age spell differently; two that disagree are refused."""
    found = {name: s.whole(name) for name in names if name in s}
    for name, value in found.items():
        first = next(iter(found))
        if value != found[first]:
            s.refuse(name, f"{first} says {found[first]}; remove one of the two")
    return next(iter(found.values()), default)
