"""2. How large does the residual stream grow?

Every block adds to the stream. Where a norm stands on it (post, 2017) its size is reset; where norms stand on the
branches it is a sum. Independent branches of size 1 make that sum grow like the root of their number: slowly, but what
a late block writes is then small beside what it reads, the "curse of depth" (Sun et al., 2025), and training makes it
grow on (Kim et al., Peri-LN, 2025). A second norm on the branch (Gemma 2, 2024) holds what is written to the size of a
gain, and gains that start at 1/√L hold the sum at any depth.
"""

from __future__ import annotations

import math
from dataclasses import replace

from morph.config import ModelConfig, Placement
from morph.lab import probes
from morph.lab.fit import start
from morph.lab.needs import learned
from morph.lab.spec import Arm, Claim, Experiment, Measure
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.size import rms
from morph.measure.trace import Trace
from morph.steps import stage
from morph.train.recipe import Recipe

LAYERS = 24
SHALLOW = 6


def placed(placement: Placement, layers: int = LAYERS) -> ModelConfig:
    """Stage 4 (RMSNorm, RoPE, no biases: the stream starts at size 1) with other norms and depth."""
    return replace(stage("rope", "nano"), placement=placement, n_layers=layers)


def last_size(trial: Trial) -> float:
    """RMS of the stream after the last block, before any final norm."""
    return probes.stream_sizes(trial)[-1]


def exponent(trial: Trial) -> float:
    """p of size ~ layerᵖ, from the layer at a quarter of the depth to the last: 0 is no growth, 1/2 a root."""
    sizes = probes.stream_sizes(trial)
    layers = len(sizes) - 1
    quarter = max(1, round(layers / 4))
    return math.log(sizes[-1] / sizes[quarter]) / math.log(layers / quarter)


def change(trial: Trial) -> float:
    """The last size after training over that before it, of the same seed."""
    return last_size(trial) / last_size(start(trial.config, trial.task, trial.recipe))


def shares(trial: Trial) -> list[float]:
    """RMS of what each block's two branches add together, over that of the stream it reads."""
    seen: Trace = probes.watch(trial)
    read = [seen["stream"], *probes.each_layer(trial, seen, "stream")]
    attention = probes.each_layer(trial, seen, "attention_delta")
    feed_forward = probes.each_layer(trial, seen, "feed_forward_delta")
    return [rms(a + f) / rms(x) for a, f, x in zip(attention, feed_forward, read[:-1], strict=True)]


def last_share(trial: Trial) -> float:
    """The same of the last block."""
    return shares(trial)[-1]


EXPERIMENT = Experiment(
    number=2,
    name="stream-growth",
    title="Growth of the residual stream",
    question="How large is the residual stream after each layer, at the start and trained, by where norms stand?",
    arms=(
        Arm("post", placed("post")),
        Arm("pre", placed("pre")),
        Arm("sandwich", placed("sandwich")),
        Arm("post-branch", placed("post-branch")),
        Arm("depth-scaled sandwich", placed("depth-scaled-sandwich")),
        Arm("sandwich, 6 layers", placed("sandwich", SHALLOW), is_trained=False),
        Arm("depth-scaled sandwich, 6 layers", placed("depth-scaled-sandwich", SHALLOW), is_trained=False),
    ),
    task=Text(),
    recipe=Recipe(steps=50, batch_size=4, learning_rate=3e-3, warmup=0.2, evaluate_every=50, evaluation_windows=32),
    measures=(
        Measure("stream size", probes.stream_sizes, "RMS", along="layers passed", at="init", is_log=True),
        Measure("trained stream size", probes.stream_sizes, "RMS", along="layers passed", is_log=True),
        Measure("last size", last_size, "RMS, at init", at="init"),
        Measure("growth exponent", exponent, "at init", at="init"),
        Measure("last share", last_share, "of the stream it reads, at init", at="init"),
        Measure("trained last size", last_size, "RMS"),
        Measure("change by training", change, "times"),
        Measure("trained last share", last_share, "of the stream it reads"),
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
    ),
    claims=(
        # Each branch starts with size 1, attention with less: √(1 + 24) to √(1 + 48) after 24 layers, and 1 in post.
        Claim(
            "At the start, pre-norm's stream ends several times as large as post-norm's",
            "last size", of="pre", against="post", more_than=3, ratio=True,
        ),
        Claim("Pre-norm's stream starts as a root of depth: no slower", "growth exponent", of="pre", more_than=0.35),
        Claim("Pre-norm's stream starts as a root of depth: no faster", "growth exponent", of="pre", less_than=0.6),
        Claim("Post-norm's stream starts the same after every layer", "growth exponent", of="post", within=0.05),
        Claim(  # √(1 + 48) over √(1 + 12) is 1.94
            "A sandwich of 24 layers starts larger than one of 6",
            "last size", of="sandwich", against="sandwich, 6 layers", more_than=1.6, ratio=True,
        ),
        Claim(
            "Gains of 1/√L make it start as large at 24 layers as at 6",
            "last size", of="depth-scaled sandwich", against="depth-scaled sandwich, 6 layers", within=1.15, ratio=True,
        ),
        Claim(
            "To what it reads, pre-norm's last block adds at the start less than a third as much as post-norm's",
            "last share", of="pre", against="post", less_than=1 / 3, ratio=True,
        ),
        Claim(  # Adam moves a gain by about the learning rate a step, here by less than 0.1 in all
            "Training leaves post-norm's stream at the size of its norm", "trained last size", of="post", less_than=1.3,
        ),
        Claim(
            "Training makes pre-norm's stream grow on",
            "change by training", of="pre", more_than=1.2, needs=learned("pre"),
        ),
        Claim(
            "It makes pre-norm's grow more than a sandwich's",
            "change by training", of="pre", against="sandwich", more_than=1.2, ratio=True,
            needs=learned("pre", "sandwich"),
        ),
        Claim(
            "Small gains stay small: the depth-scaled sandwich is less than half as large after training",
            "trained last size", of="depth-scaled sandwich", against="sandwich", less_than=0.5, ratio=True,
            needs=learned("depth-scaled sandwich", "sandwich"),
        ),
    ),
    minutes=3,
    not_shown="""
        Whether a large stream does harm: losses are not compared, and the learning rate is one. 50 steps are the
        beginning of a training, in which post-norm at this depth hardly learns (experiment 1 tells why); growth over
        many thousands of steps, the few features that become huge in large models, and overflow in half precision are
        not seen. Sizes are means over all tokens and features; what a block adds is taken before the norms that stand
        on post-norm's stream.
    """,
)  # fmt: skip
