"""What a family of checkpoints is: one `model_type` of transformers, as a config of ours and a list of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from morph.config import ModelConfig
from morph.hf.settings import Settings
from morph.hf.weights import Rule


def nothing(config: ModelConfig) -> tuple[str, ...]:
    """No weights to pass over."""
    return ()


@dataclass(frozen=True)
class Family:
    """One kind of checkpoint.

    Attributes:
        model_type: as config.json spells it.
        architecture: transformers' class, as config.json lists it.
        read_config: our config of theirs; it reads every key that matters (see `Settings`).
        write_config: the keys of their config.json for a config of ours. It may assume that the config fits: what it
            writes is read back, and a difference is refused by name.
        rules: one rule list for all weights of a model with this config; saving writes this form.
        other_rules: further forms that are found on disk (experts apart or together, say).
        ignored: patterns of names on disk that no logit depends on (masks, tables, heads for training).
        tied_copy: what the head is called where a folder stores it although it is the embedding.
    """

    model_type: str
    architecture: str
    read_config: Callable[[Settings], ModelConfig]
    write_config: Callable[[ModelConfig], dict[str, Any]]
    rules: Callable[[ModelConfig], list[Rule]]
    other_rules: tuple[Callable[[ModelConfig], list[Rule]], ...] = ()
    ignored: Callable[[ModelConfig], tuple[str, ...]] = nothing
    tied_copy: str = "lm_head.weight"
