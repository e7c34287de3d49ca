# %% [markdown]
# # 11 · Train every stage
#
# Fifteen configurations, one recipe, one text. Here you train them all yourself, watch the curves grow, and then ask
# the question that every such picture should be asked: which of these differences are differences?
#
# **After this notebook you can**
#
# - train any stages from a notebook, stop, go on, and read what was recorded;
# - put a run of your own beside three recorded seeds, and say what one seed can show and what it cannot;
# - read quality against its price: weights, bytes of cache, arithmetic;
# - make Figure 1 of your own runs.
#
# It takes two to three minutes on two CPU cores, most of it in one cell that you can stop. No network, no GPU.

# %%
import os
import statistics
import time

import torch

import morph
from morph.checks import train_every_stage as checks
from morph.train import Recipe, Sweep, load_corpus, sweep_of
from morph.widgets import Stepper, TrainingMonitor, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # a shorter training, for automatic runs
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain
corpus = load_corpus()  # the text of Python's own standard library
recorded = Sweep.reference()

# %% [markdown]
# ## Choose
#
# `None` stands for all fifteen stages. `["2017", "rope", "hybrid"]`, a number, a fork's slug or `"hybrid+mqa"` would do
# as well. What cannot be trained is refused here, before anything starts.
#
# **Predict before you train.** All stages start from about the same loss: more than a uniform guess over 256 bytes
# costs, which is 8 bits. After 60 steps of four windows each, how far apart will the best and the worst be: 0.1 bits
# per byte, 0.5, or 2? Which step will make the largest difference to the step before it? Write down both.

# %%
CHOSEN = None
recipe = Recipe(
    steps=3 if QUICK else 60, batch_size=4, evaluate_every=1 if QUICK else 20, evaluation_windows=4 if QUICK else 32,
    checkpoint_every=60, seed=0,
)  # fmt: skip
monitor = TrainingMonitor(CHOSEN, size="nano", recipe=recipe, corpus=corpus)
monitor

# %% [markdown]
# **Start** and **Stop** in the figure do what `monitor.start()` and `monitor.stop()` do. The models train in a thread
# of this kernel, so the notebook goes on answering. With the figure in focus, space starts and stops, ↑ and ↓ choose
# a model, ← and → read its curve. A thin line is the loss of each batch, in means of a few steps; a circle is the
# held-out text. The number at a line's end is the stage's.
#
# The next cell starts it and waits. `await` lets the kernel hear the buttons meanwhile; in a script, `monitor.wait()`
# does the same. Press Stop when you have seen enough: what follows uses what is there.

# %%
monitor.start()
print("all trained:", await monitor)

# %% [markdown]
# Stopped too early? Press *Go on*, or run the cell again: training goes on where it was, to the same end as if
# nothing had happened. The text that a step sees depends on its number and the seed alone, so this can be put to a
# test. One model is stopped somewhere on its way, its twin is not.

# %%
few = recipe.with_(steps=12 if QUICK else 20, evaluate_every=20, checkpoint_every=20)
straight = TrainingMonitor({"straight": 4}, recipe=few, corpus=corpus)
straight.start()
straight.wait()

broken = TrainingMonitor({"broken off": 4}, recipe=few, corpus=corpus)
broken.start()
while not broken.history["broken off"].reports:
    time.sleep(0.01)
broken.stop()
broken.wait()
print("stopped after step", len(broken.history["broken off"].reports), "of", few.steps)
broken.start()
broken.wait()
same = broken.history["broken off"].bits_per_byte == straight.history["straight"].bits_per_byte
print("all losses equal, to the last bit:", same)

# %% [markdown]
# ## What was recorded
#
# `monitor.history` has a curve for each model: `.bits_per_byte` of every batch, `.held_out` where the held-out text was
# read. Each model is also a run on disk, `monitor.runs[name]`, until this kernel ends (`out="runs/mine"` keeps them),
# and every command and figure of the project takes its path.

# %%
trained = [name for name in morph.SLUGS if name in monitor.history and monitor.history[name].is_done]
for name in trained[:5]:
    curve = monitor.history[name]
    held = ", ".join(f"{bits:.2f} at step {step}" for step, bits in curve.held_out.items())
    print(f"{name:10} batches {curve.bits_per_byte[0]:.2f} to {curve.bits_per_byte[-1]:.2f}; held out {held}")

# %% [markdown]
# Now your run beside the recorded sweep. That one trained larger models for longer, each from three seeds; its
# differences are paired by seed, and ± is the half-width of a 95 % interval. **Bold** is outside it.
#
# **Predict.** Of the fourteen steps, for how many will your single run and the recorded mean agree on the sign?

# %%
mine = {name: list(monitor.history[name].held_out.values())[-1] for name in trained}


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


rows, agree, counted = [], 0, 0
for step in morph.STEPS:
    before, found = morph.SLUGS[step.number - 1], recorded.difference(step.number)
    here = mine[step.slug] - mine[before] if {step.slug, before} <= mine.keys() else None
    told = f"{signed(found.mean)} ± {found.interval:.3f}"
    outside = found.verdict in ("lower", "higher")
    if here is not None:
        agree, counted = agree + ((here < 0) == (found.mean < 0)), counted + 1
    bits = f"{mine[step.slug]:.3f}" if step.slug in mine else ""
    change = "" if here is None else signed(here)
    rows.append([f"{step.number} `{step.slug}`", bits, change, f"**{told}**" if outside else told, found.verdict])
if mine:
    best, worst = min(mine, key=mine.get), max(mine, key=mine.get)
    print(f"your best is {best} with {mine[best]:.2f}, your worst {worst} with {mine[worst]:.2f} bits per byte")
print(f"recorded: size {recorded.size}, {recorded.steps} steps, seeds {', '.join(map(str, recorded.seeds))}")
print(f"yours: size nano, {recipe.steps} steps, seed {recipe.seed}; the signs agree for {agree} of {counted}")
show_table(["step", "yours, held out", "yours, change", "recorded change", "verdict"], rows)

# %% [markdown]
# Coins would agree on about half of them. If yours agree on more, then many steps show their direction even here. The
# sizes are another matter: compare both columns at `pre-norm` and at `rope`. Three reasons for that:
#
# - **One seed has no spread.** Your column of changes is fourteen numbers without a ±. Next comes what the seed alone
#   is worth.
# - **Another point of the curve.** After 60 small steps every model is still falling steeply. What helps to *start*
#   stands out; what pays later does not show yet.
# - **Another size.** The recipe's learning rate is one for all; what suits a width of 96 need not suit 48.
#
# So: how much does a model differ from *itself* with another seed? The recorded spread, beside the changes:

# %%
spreads = [stage.spread for stage in recorded.stages]
changes = [abs(recorded.difference(step.number).mean) for step in morph.STEPS]
print(f"spread of one stage over three seeds: median {statistics.median(spreads):.3f}, largest {max(spreads):.3f}")
print(f"change from stage to stage, size:     median {statistics.median(changes):.3f}, largest {max(changes):.3f}")
small = sum(change < statistics.median(spreads) for change in changes)
print(f"{small} of {len(changes)} changes are smaller than the median spread of seeds")

# %% [markdown]
# Train two seeds of two neighbours yourself: stage 2, and stage 3, which has no biases.
#
# **Predict.** Which two results will lie closer together: two seeds of one stage, or the two stages with one seed?

# %%
pair, readings = ["rms-norm", "no-bias"], {}
for seed in (0, 1):
    two = TrainingMonitor(pair, recipe=recipe.with_(seed=seed), corpus=corpus)
    two.start()
    await two
    for name, curve in two.history.items():
        if curve.is_done:
            readings[name, seed] = list(curve.held_out.values())[-1]
two

# %%
if len(readings) == 4:
    for name in pair:
        print(f"{name:9} seed 1 minus seed 0: {signed(readings[name, 1] - readings[name, 0])}")
    for seed in (0, 1):
        print(f"seed {seed}:   {pair[1]} minus {pair[0]}: {signed(readings[pair[1], seed] - readings[pair[0], seed])}")

# %% [markdown]
# Biases start at 0, so with one seed both stages begin as the same function and see the same batches: their luck is
# shared, and it cancels in their difference. That is why the sweep compares seed by seed. For steps that draw new
# weights less of it is shared, and a difference that looks the same is worth less.
#
# ## Its price
#
# Counting needs no training: `morph.count` builds each model without storage. *Active* is what one token uses; *KV* is
# what a token adds to the cache, and *cache* what 1,024 tokens keep, in bf16; MFLOPs are those of a forward pass,
# per token at that length.
#
# **Predict.** Which step costs most arithmetic per token? Which stages of the table are beaten by another in
# bits *and* in MFLOPs?

# %%
rows = []
for stage, slug in enumerate(morph.SLUGS):
    c = morph.count(morph.stage(stage, "nano"))
    rows.append([
        f"{stage} `{slug}`", f"{c.total:,}", f"{c.active.all:,}", f"{c.kv_bytes_per_token:,}",
        f"{c.cache_bytes(1024) / 1024:,.0f}", f"{c.flops(1024).per_token / 1e6:.2f}",
        f"{mine[slug]:.3f}" if slug in mine else "",
    ])  # fmt: skip
show_table(["stage, nano", "total", "active", "KV bytes", "cache, KiB", "MFLOPs", "yours, bits per byte"], rows)

# %% [markdown]
# The price has several currencies, and no column is *the* cost. `gqa` pays back in bytes of cache, which this training
# never fills. No step adds much arithmetic, `hybrid` most; the largest change is a saving, by `sliding-window`, for at
# 1,024 tokens most of the work of attention was with tokens far away. Experts multiply the total and leave the
# arithmetic nearly as it was. What a stage *takes* here in seconds is another matter still: with models this small a
# CPU spends much of its time on handing out small pieces of work, which the FLOPs do not count.

# %%
seconds = {name: monitor.runs[name].summary.cpu_seconds for name in trained}
rows = [
    [f"`{name}`", f"{seconds[name]:.1f}", f"{recorded[name].cpu_seconds:.0f}",
     f"{recorded[name].cpu_seconds / recorded['2017'].cpu_seconds:.2f}",
     f"{recorded[name].flops_per_token / recorded['2017'].flops_per_token:.2f}"]
    for name in trained
]  # fmt: skip
show_table(["stage", "CPU s, yours", "CPU s, recorded", "recorded, × `2017`", "MFLOPs, × `2017`"], rows)

# %% [markdown]
# ## Figure 1, of your runs
#
# The figure of notebook 00 is made of a sweep. Yours is one, with a single seed, and the figure says so.

# %%
own = sweep_of(monitor.runs[name] for name in trained) if len(trained) == len(morph.SLUGS) else recorded
Stepper("morph", sweep=own)

# %% [markdown]
# ## The whole thing
#
# `make tour` does the same at size `tiny`, in several processes; `morph sweep --seeds 0 1 2` repeats what was recorded.
# In this notebook it would be `TrainingMonitor(size="tiny")`:

# %%
total = sum(stage.cpu_seconds for stage in recorded.stages)
read = recorded.steps * recorded.recipe["batch_size"] * morph.stage(0).context_length
here = recipe.steps * recipe.batch_size * morph.stage(0, "nano").context_length
print(f"{len(recorded.stages)} stages at size {recorded.size}: about {total / 60:.0f} CPU minutes a seed")
print(f"each reads {read:,} bytes; yours read {here:,}")

# %% [markdown]
# ## Where the field has not settled
#
# - **How long is long enough?** Orders of architectures at small budgets do not always survive large ones. Published
#   comparisons fit curves over several sizes and read the trend.
# - **One recipe for all?** It is what makes the comparison about the architecture. It is also unfair to whatever needs
#   another learning rate; tuning each stage would be fair and cost fifteen sweeps.
# - **Which loss?** Bits per byte on held-out text is what we measure. Recall over a long distance, or a second language
#   in the text, would order the stages differently.
#
# **What couples to what.** A verdict belongs to its text, its number of steps, its size and its seeds. Change one, and
# measure again.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · The bill of a training.** How many FLOPs does training cost? Count a backward pass as two forward passes. For
# `config`, `steps` steps of `batch` windows of `config.context_length` tokens each. `morph.count(config).flops(n)`
# is the forward pass of one sequence of n tokens: `.total`.


# %%
# Exercise 1 · FLOPs of a training
def training_flops(config: morph.ModelConfig, steps: int, batch: int) -> int: ...


# %%
checks.training_flops(training_flops)

# %% [markdown]
# **2 · A verdict.** Two lists hold the bits per byte of a stage and of the one before it, seed by seed. Give
# `"lower"`, `"higher"` or `"within the spread"`: the mean of the paired differences *d* against
# $t\, s / \sqrt n$, with *s* their sample standard deviation (`statistics.stdev`) and $t$ = `T95[n - 1]`.

# %%
# Exercise 2 · lower, higher, or within the spread
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # degrees of freedom -> two-sided 95 % point of Student's t


def verdict(after: list[float], before: list[float]) -> str: ...


# %%
checks.verdict(verdict)

# %% [markdown]
# **3 · What nothing beats.** A stage is on the front when no other stage has both fewer (or equal) bits and fewer (or
# equal) FLOPs per token, one of the two truly fewer. From the recorded sweep (`recorded[slug].mean` and
# `.flops_per_token`) make the set of slugs on the front.

# %%
# Exercise 3 · the front of quality and arithmetic
front = ...

# %%
checks.front(front)

# %% [markdown]
# ## Further reading
#
# - *Scaling Laws for Neural Language Models*, Kaplan et al., 2020, and *Training Compute-Optimal Large Language
#   Models*, Hoffmann et al., 2022: curves over sizes instead of a single one.
# - *The Probable Error of a Mean*, Student, 1908: the interval in the table.
# - *Do Transformer Modifications Transfer Across Implementations and Applications?*, Narang et al., 2021: many
#   changes, one code base, few gains.
