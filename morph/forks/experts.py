"""Forks: how experts are chosen and balanced."""

from __future__ import annotations

from dataclasses import replace

from morph.config import ModelConfig, MoE, NoBalance
from morph.forks.entry import Fork
from morph.steps import Size


def _experts(config: ModelConfig) -> MoE:
    assert isinstance(config.feed_forward, MoE)
    return config.feed_forward


def _unbalanced(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, feed_forward=replace(_experts(config), balance=NoBalance()))


EXPERTS: tuple[Fork, ...] = (
    Fork(
        "unbalanced", "shared-expert", "No balancing", 2017, "what Shazeer et al. warn of", "ffn",
        ("feed_forward.balance",),
        "an auxiliary loss spreads the load", "nothing does",
        "How unevenly does a router spread its tokens when nothing asks it to? No released model does without: it is "
        "here to be compared with.",
        "Shazeer et al., Outrageously Large Neural Networks, 2017",
        _unbalanced,
    ),
)  # fmt: skip
