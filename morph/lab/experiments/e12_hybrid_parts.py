"""12. Which parts of Gated DeltaNet earn its gain over windows?

Stage 14 replaces three windows in four by Gated DeltaNet (Yang et al., 2024; Qwen3-Next, 2025): at once a state of
fixed size, a convolution over four tokens before it, a decay of it and a gate on what is read. Each part is taken out
alone; what its parameters were goes into the feed-forward networks, so that all arms are equally large. Those are
dense here, not the experts of stages 10 to 14: the question is about mixers, and steps are cheaper.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from morph.config import GatedDeltaNet as GatedDeltaSpec
from morph.config import GatedMLP, Interleaved, ModelConfig, as_kind
from morph.lab import probes
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure
from morph.lab.tasks import Text
from morph.model import Decoder
from morph.nn.delta import GatedDeltaNet
from morph.nn.feedforward import activation_rms
from morph.steps import stage
from morph.train.recipe import Recipe


def with_dense(number: int, more: int, taps: int = 4) -> ModelConfig:
    """Stage 8 with the layout of stage `number` and `more` hidden features in each feed-forward network."""
    base, layout = stage(8, "nano"), as_kind(stage(number, "nano").layout, Interleaved, "layout")
    if isinstance(layout.local, GatedDeltaSpec):
        layout = replace(layout, local=replace(layout.local, conv_size=taps))
    dense = as_kind(base.feed_forward, GatedMLP, "feed_forward")
    return replace(base, layout=layout, feed_forward=replace(dense, width=dense.width + more))


class Ungated(GatedDeltaNet):
    """Gated DeltaNet whose output is not multiplied by SiLU(z)."""

    def gate(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "1"]:
        """1."""
        return x.new_ones(1)


class Unfading(GatedDeltaNet):
    """Gated DeltaNet whose state changes only where it is written, as in DeltaNet (Schlag et al., 2021)."""

    def log_decay(self, x: Float[Tensor, "B S D"], precise: torch.dtype) -> Float[Tensor, "B H S 1"]:
        """0, which is log 1."""
        return x.new_zeros(len(x), self.n_heads, x.shape[1], 1, dtype=precise)


def without_gate(model: Decoder) -> None:
    """Gated DeltaNet without its output gate; the way out starts smaller by the gate's size, all else equal."""
    for layer in delta_layers(model):
        layer.__class__ = Ungated
        del layer.z_proj
        with torch.no_grad():
            layer.o_proj.weight *= activation_rms("silu")


def without_decay(model: Decoder) -> None:
    """Gated DeltaNet without its decay (α = 1)."""
    for layer in delta_layers(model):
        layer.__class__ = Unfading
        del layer.decay_proj, layer.log_A, layer.dt_bias


def delta_layers(model: Decoder) -> list[GatedDeltaNet]:
    """The layers of a model that keep a state."""
    return [block.attention for block in model.blocks if isinstance(block.attention, GatedDeltaNet)]


COUNTS = 0.02
"""Bits a byte that a part must be worth: some 0.05 nat for a token of four bytes.

Decay (Yang et al., 2024) and output gates (Qiu et al., 2025) are reported to bring about as much.
"""

EXPERIMENT = Experiment(
    number=12,
    name="hybrid-parts",
    title="The parts of a hybrid",
    question="Is it the state that makes a hybrid better than windows, or what comes with it?",
    arms=(
        Arm("windows", with_dense(13, more=16)),
        Arm("hybrid", with_dense(14, more=0)),
        Arm("no convolution", with_dense(14, more=1, taps=1)),
        Arm("no output gate", with_dense(14, more=12), alter=without_gate),
        Arm("no decay", with_dense(14, more=1), alter=without_decay),
    ),
    vary={"learning_rate": (3e-3, 1e-2, 2e-2)},
    best=Best("learning_rate", by="bits per byte"),
    seeds=tuple(range(6)),  # three decided two claims of five
    task=Text(),
    recipe=Recipe(steps=180, batch_size=4, evaluate_every=180, evaluation_windows=128),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("training loss, last quarter", probes.training_loss(), "bits"),
    ),
    claims=(
        Claim(
            "The hybrid learns more than windows", "bits per byte", of="windows", against="hybrid", more_than=0.1,
        ),
        Claim(
            "It still does without its convolution",
            "bits per byte", of="windows", against="no convolution", more_than=0.05,
        ),
        *(
            Claim(f"The {part} is worth something", "bits per byte", of=f"no {part}", against="hybrid",
                  more_than=COUNTS)
            for part in ("convolution", "output gate", "decay")
        ),
    ),
    minutes=16,
    not_shown="""
        Texts of 64 bytes: a state that never fades fills up on long ones, which is what the decay is for. Parts are
        taken out one at a time, so two that can stand in for each other both look cheap; without the convolution each
        token's own features are still scaled and pass SiLU. Whether windows would gain as much from a convolution of
        their own is not tried. All arms have 123,108 to 123,408 parameters, but a step with windows takes about a third
        less time. A first look with three seeds decided two claims of five; three more were added after it.
    """,
)  # fmt: skip
