"""Models that also see images, of which Morph reads the language model.

Their config.json has its keys in `text_config`, and their folders its weights under `model.language_model`, or the
whole of it under `language_model`. What belongs to the tower for images has no place in Morph: its weights are told by
name unless they are in `skip`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from morph.config import ModelConfig
from morph.errors import MorphError
from morph.hf.families.family import Family
from morph.hf.settings import Settings
from morph.hf.weights import Rule

Rules = Callable[[ModelConfig], list[Rule]]


def text_table(s: Settings, *of_images: str) -> Settings:
    """The language model's keys; those of the tower, and `of_images`, are passed over."""
    s.ignore("vision_config", *of_images)
    table = s.table("text_config")
    if table is None:
        s.refuse("text_config", "give the table of the language model's keys")
    assert table is not None
    return table


def with_tower(text: Family, model_type: str, architecture: str, *of_images: str) -> Family:
    """The family of the whole, read as `text` is; it is written as `text` itself. `of_images` are keys to pass over."""

    def read(s: Settings) -> ModelConfig:
        config = text.read_config(text_table(s, *of_images))
        s.only("tie_word_embeddings", config.tied)
        return config

    def write(config: ModelConfig) -> dict[str, Any]:
        raise MorphError(f"it has a tower for images, and Morph has none; save it as {text.model_type}")

    def moved(rules: Rules, inside: Callable[[str], str]) -> Rules:
        return lambda config: [
            replace(rule, theirs=tuple(inside(name) for name in rule.theirs)) for rule in rules(config)
        ]

    first, *others = [
        moved(rules, inside) for inside in (_inside, _beside) for rules in (text.rules, *text.other_rules)
    ]
    return Family(model_type, architecture, read, write, first, tuple(others))


def _inside(name: str) -> str:
    first, _, rest = name.partition(".")
    return f"model.language_model.{rest}" if first == "model" else name


def _beside(name: str) -> str:
    return f"language_model.{name}"
