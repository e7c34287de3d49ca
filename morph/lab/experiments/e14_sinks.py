"""14. Do heads park weight on the first token, and what goes wrong when it is evicted?

A softmax spends all its weight, whether or not any key deserves it. Trained models put what is left on the first token,
and fail when a window drops it; four first tokens kept mend that (Xiao et al., 2023). A learned sink (gpt-oss, 2025)
gives that weight another place; a gate on the output (Qiu et al., 2025) makes it harmless. Texts start anywhere in a
file, so the first token is a byte like any other. Eviction is tried at the trained length, on trained weights:
every query sees 16 tokens, either the last 16, or the first 4 and the last 12.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from morph.config import Attention, GatedMLP, ModelConfig, OutputGate, Sink, as_kind
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.model import Decoder
from morph.nn.context import Context
from morph.nn.mask import Mask, visible
from morph.steps import attention_of, stage
from morph.train.recipe import Recipe

SEEN, KEPT = 16, 4
LATE = 32  # from this position on losses are read; the first tokens are out of sight by then


def attending(*, sink: Sink | None = None, gate: OutputGate | None = None) -> ModelConfig:
    """Stage 7 (RoPE, grouped keys, no QK-norm to hold logits down); a gate's weights are taken from the networks."""
    base = stage(7, "nano")
    attention: Attention = replace(attention_of(base), sink=sink, gate=gate)
    dense = as_kind(base.feed_forward, GatedMLP, "feed_forward")
    return replace(base, attention=attention, feed_forward=replace(dense, width=dense.width - (16 if gate else 0)))


@contextmanager
def seeing(model: Decoder, first: int, recent: int) -> Iterator[None]:
    """Inside, every query of a fresh text sees the `first` tokens and the `recent` last ones, its own included."""
    whole = model.context

    def context(past: int, length: int, pads: Tensor | None = None) -> Context:
        made, columns = whole(past, length, pads), torch.arange(length)
        allowed = visible(columns, columns, recent, pads) | (visible(columns, columns, None, pads) & (columns < first))
        made.mask = lambda window, keys, alibi_heads=0: Mask(allowed, is_causal=False)  # type: ignore[method-assign]
        return made

    model.context = context  # type: ignore[method-assign]
    try:
        yield
    finally:
        del model.context


def late_loss(trial: Trial, first: int, recent: int) -> float:
    """Mean loss in bits at the late positions of held-out text."""
    with seeing(trial.model, first, recent):
        return probes.loss_between(LATE, trial.config.context_length, rows=128)(trial)


def cost_of_window(trial: Trial) -> float:
    """What seeing the last tokens only costs, in bits."""
    return late_loss(trial, 0, SEEN) - late_loss(trial, 0, trial.config.context_length)


def gain_of_first(trial: Trial) -> float:
    """What the first tokens are worth more than as many of the last, in bits."""
    return late_loss(trial, 0, SEEN) - late_loss(trial, KEPT, SEEN - KEPT)


def late_weights(trial: Trial, name: str) -> list[Tensor]:
    """What was recorded of the attention, layer by layer, without the queries of the first half: (B, H, S/2, ...)."""
    found = probes.each_layer(trial, probes.watch(trial), f"attention.{name}")
    return [weights[:, :, weights.shape[2] // 2 :] for weights in found]


def heads_with_sink(trial: Trial) -> float:
    """Share of the heads whose mean weight on the first token is above 0.3 (the threshold of Gu et al., 2024)."""
    heads = [weights[..., 0].mean(dim=(0, 2)) for weights in late_weights(trial, "weights")]
    return float((torch.cat(heads) > 0.3).double().mean())


def weight_on_sink(trial: Trial) -> float | None:
    """Mean weight on the learned sink, over layers, heads and the second half of the queries."""
    found = [float(weights.mean()) for weights in late_weights(trial, "sink_weights")]
    return statistics.fmean(found) if found else None


def first_weights(trial: Trial) -> list[float]:
    """Mean weight on each of the first 16 tokens, over the same."""
    return torch.stack([w[..., :16].mean(dim=(0, 1, 2)) for w in late_weights(trial, "weights")]).mean(dim=0).tolist()


FIRST, KEEPING = "weight on the first token", "gain of keeping the first 4"
FORMED = Need(FIRST, "softmax", more_than=0.1)
"""Five times an even share; trained models have 0.4 to 0.8 (Xiao et al., 2023; Qiu et al., 2025)."""

EXPERIMENT = Experiment(
    number=14,
    name="sinks",
    title="Attention sinks",
    question="Does weight gather on the first token, can it be evicted, and do a learned sink or a gate change that?",
    arms=(
        Arm("softmax", attending()),
        Arm("learned sink", attending(sink=Sink())),
        Arm("output gate", attending(gate=OutputGate())),
    ),
    vary={"learning_rate": (3e-3, 1e-2, 2e-2)},
    best=Best("learning_rate", by="bits per byte"),
    task=Text(),
    recipe=Recipe(steps=250, batch_size=4, evaluate_every=250, evaluation_windows=128),
    measures=(
        Measure(FIRST, probes.weight_on_first),
        Measure("weight on each of the first 16 tokens", first_weights, along="place in the text, from 0"),
        Measure("weight on the learned sink", weight_on_sink),
        Measure(KEEPING, gain_of_first, "bits"),
        Measure("cost of a window of 16", cost_of_window, "bits"),
        Measure("heads with a sink", heads_with_sink, "share"),
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
    ),
    shown=4,
    claims=(
        Claim("Weight gathers on the first token", FIRST, of="softmax", more_than=0.1),
        Claim(
            "A learned sink takes it away", FIRST, of="softmax", against="learned sink", more_than=0.05,
            needs=(FORMED,),
        ),
        Claim(
            "An output gate takes it away", FIRST, of="softmax", against="output gate", more_than=0.05,
            needs=(FORMED,),
        ),
        Claim("A learned sink is used", "weight on the learned sink", of="learned sink", more_than=0.1),
        Claim(
            "In a window of 16, the first 4 tokens are worth more than 4 recent ones", KEEPING, of="softmax",
            more_than=0.05, needs=(FORMED,),
        ),
        Claim(
            "With a learned sink they are not", KEEPING, of="learned sink", less_than=0.02, needs=(FORMED,),
        ),
        Claim(
            "A learned sink costs no loss", "bits per byte", of="learned sink", against="softmax", less_than=0.02,
        ),
    ),
    minutes=4,
    not_shown="""
        Texts longer than those trained on, on which the released models failed; and 250 steps are few: Gu et al. (2024)
        saw sinks come up after a thousand and more. Where no sink has formed, what needs one stays undecided. An even
        share of the weight is 0.02, as is a learned sink's at the start. Evicted tokens still reach later layers
        through those that saw them. The arms have 114,096 parameters (with sinks 114,112): those of the gate are taken
        from the feed-forward networks.
    """,
)  # fmt: skip
