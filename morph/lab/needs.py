"""What claims of several experiments need first: that a model has learned something at all, or nothing more.

Bits per byte that tables need on held-out text, learned from the training text (the tests compute them):
"""

from __future__ import annotations

from morph.lab.spec import Need

BYTE_FREQUENCIES = 4.48
"""Of how often each byte occurs, whatever came before it."""
BYTE_PAIRS = 3.46
"""Of how often each byte follows each other."""


def learned(*arms: str) -> tuple[Need, ...]:
    """Text: each knows more than how common each byte is."""
    return tuple(Need("bits per byte", arm, less_than=4.4) for arm in arms)


def solved(arm: str) -> Need:
    """A made task: nearly every answer is right."""
    return Need("accuracy", arm, more_than=0.9)


def settled(arm: str) -> Need:
    """A claim that an arm fails needs it to have stopped learning."""
    return Need("late gain", arm, less_than=0.03)
