"""5. What does each way to a smaller cache cost?

Decoding reads all cached keys and values at every step. Heads can share them (one for all: Shazeer, 2019; one a group:
Ainslie et al., 2023) or unfold their own from a short latent that alone is cached (MLA: DeepSeek-V2, 2024). As in
Shazeer's comparison, what attention saves or spends goes into the feed-forward width: all models are of one size.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from morph.config import MLA, Attention, GatedMLP, ModelConfig, as_kind
from morph.lab import probes
from morph.lab.plot import MARKS, SHADES
from morph.lab.result import Result
from morph.lab.spec import Arm, Best, Claim, Experiment, Measure, Need
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.steps import stage
from morph.train.plot import QUIET
from morph.train.recipe import Recipe

HEADS = replace(stage("gated-ffn", "nano"), n_layers=2)
"""Stage 6, two layers deep: 4 heads of 12 features, each with keys and values of its own."""


def with_attention(attention: Attention | MLA) -> ModelConfig:
    """The same with another attention, and the feed-forward width that gives it as many parameters, within 1 %."""
    ffn = as_kind(HEADS.feed_forward, GatedMLP, "feed_forward")
    changed = replace(HEADS, attention=attention)
    per_unit = 3 * HEADS.d_model * HEADS.n_layers  # three matrices in every layer
    more = round((count(HEADS).total - count(changed).total) / per_unit)
    return replace(changed, feed_forward=replace(ffn, width=ffn.width + more))


def latent(rank: int) -> MLA:
    """A latent of `rank` numbers and one rotary key of 6; queries have a whole matrix, as in DeepSeek-V2 Lite."""
    return MLA(n_heads=4, kv_rank=rank, nope_dim=12, rope_dim=6, v_dim=12)


def cache_bytes(trial: Trial) -> float:
    """Bytes in bf16 that one token adds to the cache, over all layers."""
    return float(count(trial.config).kv_bytes_per_token)


def draw(result: Result, figure: Any) -> None:
    """Loss against cache: a dot a seed, a stroke for each mean; arms of equal bytes stand side by side."""
    from matplotlib.ticker import NullFormatter

    axes = figure.subplots()
    columns: dict[float, list[str]] = {}
    for arm in result.arms:
        columns.setdefault(result.numbers(arm, {}, "cache bytes per token")[0], []).append(arm)
    for size, arms in columns.items():
        for place, arm in enumerate(arms):
            i = result.arms.index(arm)
            x = size * 1.08 ** (place - (len(arms) - 1) / 2)
            values = result.numbers(arm, {}, "bits per byte")
            axes.plot([x] * len(values), values, MARKS[i], color=SHADES[i], markersize=4, alpha=0.7, label=arm)
            axes.plot([x], [statistics.fmean(values)], "_", color=SHADES[i], markersize=16, markeredgewidth=2)
    axes.set_xscale("log")
    axes.set_xlim(min(columns) / 1.3, max(columns) * 1.2)
    axes.set_xticks(list(columns), [f"{size:g}" for size in columns])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel("cache bytes per token (bf16, both layers)", fontsize=9)
    axes.set_ylabel("bits per byte", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color=QUIET, alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)


COSTS = 0.03  # bits per byte, 1 % of some 3 bits: about what one key-value head cost Shazeer (WMT14, equal parameters)
PAIR_TABLE = 3.38  # bits per byte of a table of byte pairs counted on the held-out text itself, the best there can be
READS = Need("bits per byte", "MHA", less_than=PAIR_TABLE)

EXPERIMENT = Experiment(
    number=5,
    name="kv-heads",
    title="Loss against cache",
    question="How much loss does a smaller cache cost, and do latents cost less than shared heads of the same bytes?",
    arms=(
        Arm("MHA", HEADS),
        Arm("GQA", with_attention(Attention(n_heads=4, n_kv_heads=2))),
        Arm("MLA, GQA's bytes", with_attention(latent(42))),
        Arm("MQA", with_attention(Attention(n_heads=4, n_kv_heads=1))),
        Arm("MLA, MQA's bytes", with_attention(latent(18))),
        Arm("one head in all", with_attention(Attention(n_heads=1, n_kv_heads=1, head_dim=12))),
    ),
    vary={"learning_rate": (1e-2, 2e-2, 4e-2)},
    best=Best("learning_rate", by="bits per byte"),
    seeds=tuple(range(8)),  # four decided nothing
    task=Text(),
    recipe=Recipe(steps=160, batch_size=8, warmup=0.05, evaluate_every=160, evaluation_windows=256),
    measures=(
        Measure("bits per byte", probes.bits_per_byte, diverged=8.0),
        Measure("cache bytes per token", cache_bytes, "B", at="init"),
    ),
    claims=(
        Claim(
            "The control: with one head for queries too, the loss is higher, so heads matter here",
            "bits per byte", of="one head in all", against="MHA", more_than=COSTS, needs=(READS,),
        ),
        *(
            Claim(f"{name} costs little", "bits per byte", of=arm, against="MHA", less_than=COSTS, needs=(READS,))
            for name, arm in (
                ("Half the cache by shared heads (GQA)", "GQA"),
                ("Half the cache by a latent", "MLA, GQA's bytes"),
                ("A quarter by one shared head (MQA)", "MQA"),
                ("A quarter by a latent", "MLA, MQA's bytes"),
            )
        ),
        *(
            Claim(
                f"At {heads}'s bytes a latent learns more",
                "bits per byte", of=heads, against=f"MLA, {heads}'s bytes", more_than=0.01, needs=(READS,),
            )
            for heads in ("GQA", "MQA")
        ),
    ),
    minutes=11,
    not_shown="""
        What a cache holds over a long text: contexts are 64 bytes, a head has 12 features, and 160 steps teach little
        that needs many heads (the control tells whether heads matter at all). MLA also norms its latent and rotates
        only 6 of a query's 18 features, all part of it as published; the rest of its attention is larger or smaller,
        and the feed-forward width pays for that. Reports from large models go both ways: MQA a little worse, MLA even
        better than full heads. Bytes are counted, time is not. A first look with four seeds
        decided nothing; four more were added after it.
    """,
    draw=draw,
)  # fmt: skip
