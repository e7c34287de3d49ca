# %% [markdown]
# # 13 · Your own step
#
# Every step and fork of this project is one named change: a function from a config to a config, a few words, and a
# sentence on how it relates to what it changes. This notebook adds two of your making, one that rearranges what is
# there and one with an organ that did not exist before, and holds them to the same rules.
#
# **After this notebook you can**
#
# - declare a change and have it checked, counted and drawn like those that came with the project;
# - state how it relates to its base, and test the statement on two models with the same weights;
# - add a small organ: a record of what it is, and a module that computes it;
# - train it beside its base without fooling yourself.
#
# It takes about a minute on two CPU cores, without network or GPU.

# %%
import os
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

import morph
from morph.checks import your_own_step as checks
from morph.config import Interleaved, Listed, ModelConfig, RMSNorm, SlidingWindow, as_kind
from morph.forks import Fork
from morph.forks.own import register
from morph.nn.norm import Norm
from morph.nn.own import add_organ
from morph.steps import Size
from morph.story import figure
from morph.train import Recipe, load_corpus
from morph.widgets import Stepper, TrainingMonitor, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # a shorter training, for automatic runs
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain
corpus = load_corpus()

# %% [markdown]
# ## A change of what is there
#
# Stage 9 gives three layers of four a window and lets the fourth see everything. Why the *last* one? Gemma 3 begins
# with local layers, ModernBERT, an encoder, with a global one. So let us move it: the first layer global, the others
# local.
#
# A change is a function of a config and of the widths that it may need. `Listed` names the global layers one by one.


# %%
def global_first(config: ModelConfig, size: Size) -> ModelConfig:
    """The first layer sees everything, the others keep their windows."""
    return replace(config, layout=Listed(global_layers=(0,), local=config.layout.local))


for change in morph.diff(morph.stage(9), global_first(morph.stage(9), None)):
    print(change)

# %% [markdown]
# The words around it are part of the declaration. `paths` says which fields it may touch, and `relation` says what a
# test can hold it to. `register` checks that the change does what `paths` says, at every size, before it makes the slug
# known.

# %%
own = register(Fork(
    slug="global-first", base="sliding-window", title="The global layer first", year=2026, origin="this notebook",
    role="attention", paths=("layout",),
    before="the last layer of four sees everything", after="the first one does",
    question="Does it matter where in the depth the one far look is?",
    relation="a window at least as long as the text", shipped_by=(), source="none", apply=global_first,
))  # fmt: skip
print("forks known:", len(morph.FORKS), "- the newest:", own.slug)

# %% [markdown]
# A change that is not as declared is refused. Try it: let `paths` say `("norm",)`, or give a slug that is taken.

# %%
try:
    register(replace(own, paths=("layout", "norm")))
except morph.MorphError as error:
    print(error)

# %% [markdown]
# ## What it costs
#
# **Predict.** Which of these differ from the base's: the parameters, the bytes of cache at 1,024 tokens, the FLOPs?

# %%
rows = []
for name, config in (("sliding-window", morph.stage(9, "nano")), ("global-first", morph.fork("global-first", "nano"))):
    c = morph.count(config)
    rows.append([f"`{name}`", f"{c.total:,}", f"{c.cache_bytes(1024):,}", f"{c.flops(1024).per_token:,}"])
show_table(["", "parameters", "cache bytes", "FLOPs per token"], rows)

# %% [markdown]
# None: the same four layers, dealt in another order. A difference in what the two models compute would be one of
# *place* alone, which makes it a clean question.
#
# ## Held to its word
#
# The relation says: with a window at least as long as the text, it is its base. Weights are drawn by the name of their
# organ, so both models start with the same numbers, and a comparison needs no copying.
#
# **Predict.** How far apart are the logits of the two models for a text of 64 bytes with the window of 16 that size
# `nano` has? And with one of 64?

# %%
text = torch.tensor([list((b"for key in sorted(counts):  total += counts[key]  # " * 2)[:64])])


def with_window(config: ModelConfig, window: int) -> ModelConfig:
    return replace(config, layout=replace(config.layout, local=SlidingWindow(window=window)))


@torch.no_grad()
def apart(a: ModelConfig, b: ModelConfig) -> float:
    """The largest difference between the logits of two models drawn from one seed."""
    return (morph.build(a, seed=0)(text) - morph.build(b, seed=0)(text)).abs().max().item()


base, fork = morph.stage(9, "nano"), morph.fork("global-first", "nano")
for window in (16, 63, 64):
    print(
        f"window {window}: logits differ by {apart(with_window(base, window), with_window(fork, window)):.0e} at most"
    )

# %% [markdown]
# Zero where it should be zero, and not zero elsewhere: the second half matters as much, or the test would pass for a
# change that does nothing.
#
# ## Drawn
#
# The figures take a registered fork like any other model. This is figure 7 of *your* model; frames 1 to 4 are its own
# masks, weights and cache, 5 to 8 are stacks built for the figure.
#
# **Predict.** With the one far look at the bottom instead of the top, does any layer still link the last token to the
# first in one step?

# %%
Stepper("masks", model="global-first")

# %% [markdown]
# It does, and frame 4 says which. What has changed is *what* is seen from afar: the first layer looks at embeddings,
# the last one of stage 9 at what three layers have made of them.
#
# ## Trained beside its base
#
# Same recipe, same text, same seed, two names. **Predict** which line ends lower, or whether you could tell.

# %%
recipe = Recipe(
    steps=3 if QUICK else 100, batch_size=4, evaluate_every=3 if QUICK else 25, evaluation_windows=4 if QUICK else 32,
    checkpoint_every=100,
)  # fmt: skip
monitor = TrainingMonitor({"base": "sliding-window", "mine": "global-first"}, recipe=recipe, corpus=corpus)
monitor

# %%
monitor.start()
await monitor
ends = {name: list(curve.held_out.values())[-1] for name, curve in monitor.history.items() if curve.is_done}
print({name: round(bits, 3) for name, bits in ends.items()})

# %% [markdown]
# Before you believe the difference: it is one seed, one short text, one small size, and windows of 16 in texts of 64
# bytes, where little is far away. Notebook 11 measures what a seed alone is worth. What would count as an answer: three
# seeds or more, compared in pairs, and a task that needs distance.
#
# ## An organ of your own
#
# Now one that no config can name yet. RMSNorm divides by the root of the mean square. One could divide by the mean of
# the absolute values instead, which needs no squares and no root; for batch normalization that was tried in 2018. Both
# are cases of
#
# $$y = \gamma \odot \frac{x}{\big(\tfrac1D \sum_i |x_i|^p + \varepsilon\big)^{1/p}}$$
#
# with $p = 2$ and $p = 1$. An organ is two things: a *record*, which says what it is and is saved with a run, and a
# *module*, which computes it. The record extends the one whose place it may take.


# %%
@dataclass(frozen=True, kw_only=True)
class PowerNorm(RMSNorm):
    """Divide by the p-th root of the mean of the p-th powers."""

    kind: ClassVar[str] = "power-norm"
    p: float = 1.0


class PowerNormModule(Norm):
    """What a `PowerNorm` computes."""

    def __init__(self, spec: PowerNorm, width: int, gain: float) -> None:
        super().__init__(width, spec.eps, gain)  # the gains, `self.weight`
        self.p = spec.p

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x / (x.abs().pow(self.p).mean(-1, keepdim=True) + self.eps).pow(1 / self.p)

    fused = plain  # torch has no kernel for it


add_organ(PowerNorm, PowerNormModule)

# %% [markdown]
# From here on it is an ordinary part of a config: compared, counted, written to a file and read again.

# %%
register(Fork(
    slug="mean-abs-norm", base="gated-ffn", title="Mean of absolute values", year=2018, origin="Hoffer et al.",
    role="norm", paths=("norm",), before="divide by the root mean square", after="by the mean absolute value",
    question="Does the second moment matter, or any measure of size?",
    relation="with p = 2 it is its base", shipped_by=(), source="Hoffer et al., Norm matters, 2018",
    apply=lambda config, size: replace(config, norm=PowerNorm(eps=config.norm.eps)),
))  # fmt: skip
mean_abs = morph.fork("mean-abs-norm", "nano")
print(*morph.diff(morph.stage(6, "nano"), mean_abs), sep="\n")
print("read back from its file:", ModelConfig.from_toml(mean_abs.to_toml()) == mean_abs)

# %% [markdown]
# **Predict.** For features drawn from a normal distribution the mean absolute value is smaller than the root mean
# square. By how much will the RMS of the norm's output exceed 1? And is the logits' distance from the base zero at
# $p = 2$?

# %%
for p in (1.0, 1.5, 2.0):
    config = replace(mean_abs, norm=PowerNorm(p=p))
    norm = morph.build(config).blocks[0].attention_norm
    with torch.no_grad():
        size = norm(torch.randn(2000, 48)).square().mean().sqrt()
    print(
        f"p = {p}: output RMS {size:.3f}, logits apart from the base's by {apart(morph.stage(6, 'nano'), config):.0e}"
    )
print(f"√(π/2) = {(torch.pi / 2) ** 0.5:.3f}")

# %% [markdown]
# At $p = 2$ what is left is the rounding of another order of operations. At $p = 1$ the branches read a copy larger
# by a quarter, in all features alike. A gain could undo that, and the gains are trained. So the prediction that the
# algebra offers is: no difference worth the name. Train both.

# %%
pair = TrainingMonitor({"base": "gated-ffn", "mine": "mean-abs-norm"}, recipe=recipe, corpus=corpus)
pair

# %%
pair.start()
await pair
ends = {name: list(curve.held_out.values())[-1] for name, curve in pair.history.items() if curve.is_done}
print({name: round(bits, 3) for name, bits in ends.items()})

# %% [markdown]
# ## What your organ breaks
#
# Each frame of a figure carries a claim about its numbers, and the claim is evaluated on them. Frames about norms claim
# what holds for all norms that came with the project, such as an output of RMS 1. Yours was made to differ there.

# %%
if "mine" in ends:
    drawn = figure("residual", model=pair.runs["mine"].path)
    broken = [frame for frame in drawn.frames if not frame.check()]
    print(f"{len(drawn) - len(broken)} of {len(drawn)} claims hold of your model")
    for frame in broken:
        print(f"- {frame.title}: does not hold: {frame.claim.text}")

# %% [markdown]
# That is no fault of the organ. It says which sentences of a text about RMSNorm a reader would have to write anew.
#
# ## To keep it
#
# What you registered is known until this kernel ends. To keep a fork, put its entry in a file of `morph/forks/` and its
# relation into a test marked `@holds("your-slug")` in `tests/test_fork_relations.py`: the suite refuses a fork whose
# relation nobody tests. A run keeps its record in `config.json`; another process reads it after `add_organ`.
#
# **What couples to what.** A change composes with others: `morph.compose("hybrid", "mean-abs-norm")` takes your norm
# to stage 14. QK-norm is a norm too, and `mean-abs-norm` leaves it alone, since its paths name only `norm`. And a
# layout that names its layers does not follow when the depth changes.

# %%
try:
    deeper = morph.compose("hybrid", "mean-abs-norm", size="nano")
    print(deeper.norm, deeper.attention.qk_norm, sep="\n")
    morph.compose("gqa", "global-first", size="nano")
except (morph.MorphError, AttributeError) as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# The last one fails badly, with an error about Python and not about models: stage 7 has no windows to keep, and
# `global_first` did not say that it needs them. `as_kind` is there to say so:

# %%
try:
    as_kind(morph.stage(7).layout, Interleaved, "layout")
except morph.MorphError as error:
    print(error)

# %% [markdown]
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · A change that knows where it fits.** Write the change *half the window*, for every config whose layout is
# `Interleaved` with a `SlidingWindow`; for all others it must raise a `MorphError`, not a Python error.


# %%
# Exercise 1 · half the window
def half_window(config: ModelConfig, size: Size) -> ModelConfig: ...


# %%
checks.half_window(half_window)

# %% [markdown]
# **2 · Its relation, as a test.** Write `holds(fork, base)`: whether two configs give the same logits for `ids`, up to
# $10^{-4}$, when built from one seed. Then give `smallest`, the smallest window with which `global-first` and stage 9
# (size `nano`) are the same model for texts of 40 tokens.

# %%
# Exercise 2 · a relation, tested
ids = torch.arange(40)[None] * 5 % 256


def holds(fork: ModelConfig, base: ModelConfig) -> bool: ...


smallest = ...

# %%
checks.relation(holds, smallest)

# %% [markdown]
# **3 · A norm of a part.** The paper that proposed RMSNorm also proposed to take the mean square of the first features
# only: *pRMSNorm*, "with 6.25 % of them". Write what it computes: `x` of shape (..., D) over the root of the mean
# square of its first `count` features plus `eps`, times `gain`. All features are divided.


# %%
# Exercise 3 · RMS of the first features
def partial_rms(x: torch.Tensor, gain: torch.Tensor, count: int, eps: float) -> torch.Tensor: ...


# %%
checks.partial_rms(partial_rms)

# %% [markdown]
# ## Further reading
#
# - *Root Mean Square Layer Normalization*, Zhang and Sennrich, 2019: RMSNorm and pRMSNorm.
# - *Norm matters: efficient and accurate normalization schemes in deep networks*, Hoffer et al., 2018: other norms than
#   the second, for batch normalization.
# - *Do Transformer Modifications Transfer Across Implementations and Applications?*, Narang et al., 2021: what became
#   of many such ideas.
