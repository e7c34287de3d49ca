# %% [markdown]
# # 14 · What did not change
#
# Fourteen steps lie between the block of 2017 and the last stage. A list of changes leaves the impression that
# everything moves, so this notebook looks for what stayed, and *measures* that it did: the program, the stream, one
# equation, the loss, the arithmetic of a step. Where something stayed only in part, or only under a condition, it says
# which.
#
# **After this notebook you can**
#
# - run any stage, and most forks, by one program of seven lines;
# - say since when the stream is a plain sum, and show that it was none in 2017;
# - count the FLOPs of a training step, and tell what 6·N leaves out and which *N* is meant;
# - train a model until it has induction heads, find them, and say what was found in three stages;
# - state how much of stage 0 is still there in stage 14: fields, tensors, lines of code.
#
# Reading and predicting take about an hour. It needs no network and no GPU: on two CPU cores all cells together
# compute for less than a minute.

# %%
import math
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

import morph
from morph.checks import what_did_not_change as checks
from morph.config import Sinusoid
from morph.lab.experiments import e23_induction_heads as induction_heads
from morph.lab.fit import fit, start
from morph.lab.flops import step_flops
from morph.lab.heads import after_last_occurrence
from morph.lab.plot import curves
from morph.lab.plot import rows as dots
from morph.lab.result import recorded
from morph.lab.tasks import IGNORED, Induction, Text
from morph.measure.trace import Trace
from morph.story.released import RELEASED
from morph.story.subject import subject
from morph.train.recipe import Recipe
from morph.widgets import show_findings, show_picture, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # a shorter training, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain
LN2 = math.log(2)
source = Text()  # the text of Python's standard library
ids, targets = (torch.tensor(part) for part in source.held_out(morph.stage(0, "nano"), 4))
stages = {k: morph.build(morph.stage(k, "nano"), seed=0).eval() for k in range(15)}

# %% [markdown]
# ## 1 · The program
#
# Embed. Loop over blocks. Norm. Head. In 2017 a sinusoid is added at the start; later stages turn queries and keys
# inside. That is all there is:


# %%
def program(model: morph.Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Logits of any stage."""
    context = model.context(0, ids.shape[1])  # what layers share: masks, rotations
    x = model.embed(ids)
    if isinstance(model.config.position, Sinusoid):
        x = x + context.sinusoid(model.config.position, model.config.d_model)
    for block in model.blocks:
        x = block(x, context)
    return model.logits(model.norm(x))


# %% [markdown]
# **Predict.** Of which of the fifteen stages does this give the logits, to the last bit? And of forks that change the
# cache (`mla`), the block (`parallel-block`) or the mixer (`kda`)?

# %%
forks = {name: morph.build(morph.fork(name, "nano"), seed=0).eval() for name in ("mla", "parallel-block", "kda")}
with torch.no_grad():
    gaps = {name: (program(model, ids) - model(ids)).abs().max().item() for name, model in (stages | forks).items()}
print(f"largest difference of stages 0 to 14: {max(gaps[k] for k in stages):g}")
print("of the forks:", {name: gaps[name] for name in forks})

# %% [markdown]
# All of them. What differs is inside the four words: which block, which norm, which head. Whoever has read the 2017
# paper can read the file of a model of today.
#
# ## 2 · The stream, with a condition
#
# In a stage of today nothing is ever assigned to the stream, only added: $x_L = x_0 + \sum_w \Delta_w$ over all halves
# of all layers. It is often said that this was so from the start.
#
# **Predict.** Add up embedding and deltas, as a trace recorded them. In which of these stages is the sum the last
# stream?

# %%
sandwiched = morph.build(morph.fork("sandwich-norm", "nano"), seed=0).eval()
rows = []
for name, model in ({k: stages[k] for k in (0, 1, 9, 14)} | {"`sandwich-norm`": sandwiched}).items():
    with torch.no_grad(), morph.trace(model) as seen:
        model(ids)
    layers = range(model.config.n_layers)
    total = seen["stream"] + sum(
        seen[f"blocks.{n}.{half}_delta"] for n in layers for half in ("attention", "feed_forward")
    )
    last = seen[f"blocks.{layers[-1]}.stream"]
    rows.append([str(name), model.config.placement, f"{last.abs().max():.1f}", f"{(total - last).abs().max():.0e}"])
show_table(["stage", "norms", "largest value", "sum minus last stream"], rows)

# %% [markdown]
# The *addition* is as old as the block. The *sum* is not: in 2017 a norm stood on the stream after every addition and
# rescaled all that had been written. The stream as a bus that nobody overwrites dates from step 1. (Notebook 01 takes
# it apart.)
#
# ## 3 · One equation
#
# $$A = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_h}} + \log M\right)$$
#
# Positions moved into $Q$ and $K$, heads came to share keys, norms and windows were put in. **Predict.** In how many
# layers of stages 0, 9 and 14 does this line still give the weights?


# %%
def equation(seen: Trace, layer: int) -> torch.Tensor:
    """Attention weights (B, H, S, S) from a layer's own queries and keys; hidden is what it hid."""
    q, k = (seen[f"blocks.{layer}.attention.{name}"] for name in ("queries", "keys"))
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    hidden = seen[f"blocks.{layer}.attention.scores"] == -torch.inf
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return F.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)


rows = []
for number in (0, 9, 14):
    with torch.no_grad(), morph.trace(stages[number]) as seen:
        stages[number](ids)
    layers = [n for n in range(4) if f"blocks.{n}.attention.weights" in seen]
    gap = max((equation(seen, n) - seen[f"blocks.{n}.attention.weights"]).abs().max().item() for n in layers)
    rows.append([f"{number} `{morph.SLUGS[number]}`", f"{len(layers)} of 4", f"{gap:.0e}"])
show_table(["stage", "layers of softmax attention", "largest gap"], rows)

# %% [markdown]
# The equation stayed; its share did not. Three layers in four of the last stage have no weights to look at, they keep a
# state of fixed size. Released hybrids keep one softmax layer in four (Qwen3-Next, Kimi Linear) or in eight (Ling 2.5),
# and the reason given is exact retrieval. The lab tried it: pairs of key and value, then any key is asked for. Each dot
# is a seed, at the arm's best learning rate.

# %%
recall = recorded("recall")
eight = {"pairs": 8}


def draw_recall(figure):
    axes = figure.subplots()
    dots(axes, [(arm, recall.numbers(arm, eight, "accuracy")) for arm in recall.arms])
    axes.set_xlabel("share of 8 pairs recalled")
    axes.set_xlim(0, 1.02)


means = {arm: statistics.fmean(recall.numbers(arm, eight, "accuracy")) for arm in recall.arms}
show_picture(
    draw_recall, size=(7, 3),
    alt="Share of eight pairs recalled: " + ", ".join(f"{arm} {mean:.2f}" for arm, mean in means.items()) + ".",
)  # fmt: skip

# %%
counts = {}
for finding in recall.findings:
    verdict = finding.verdict.split(":")[0].split(" at ")[0]
    counts.setdefault(finding.claim.text, []).append(verdict)
show_table(["claim", "verdicts, one for each number of pairs asked"], [[c, ", ".join(v)] for c, v in counts.items()])

# %% [markdown]
# That *one* softmax layer is enough is supported wherever it was asked. That a fixed state runs full is what the
# smallest states look like, and it is not established: they were still learning when the training ended, or spread too
# widely. And a state with as many features as there are keys recalled about all. So "whoever removes softmax attention
# gives up exact retrieval" needs its condition: with a state that is small for what has to be held.
#
# ## 4 · The objective
#
# $$L = -\frac1n \sum_t \log p(x_{t+1} \mid x_{\le t})$$
#
# **Predict.** A fresh model knows nothing, and even odds among 256 bytes cost 8 bits. Will its loss be 8, less, or
# more? And what do experts and a second target add to the objective?


# %%
def next_token(model: morph.Decoder) -> float:
    """The equation, in bits a byte."""
    with torch.no_grad():
        log_p = model(ids).log_softmax(-1)
    return -log_p.gather(-1, targets[..., None]).mean().item() / LN2


rows = []
second = morph.build(morph.fork("mtp", "nano"), seed=0)
for name, model in ({f"stage {k}": stages[k] for k in (0, 9, 12, 14)} | {"fork `mtp`": second}).items():
    model.train()  # where a balance term is computed
    with torch.no_grad():
        loss = model.loss(ids, targets)
    model.eval()
    parts = (getattr(loss, part).item() / LN2 for part in ("cross_entropy", "balance", "mtp"))
    rows.append([name, f"{next_token(model):.3f}", *(f"{part:.3f}" for part in parts)])
show_table(["bits per byte", "equation", "cross-entropy", "balance", "second target"], rows)

# %% [markdown]
# The first two columns agree in every stage: the objective is that of 2017, and what else is added (a balance term, a
# second target) stands beside it.
#
# **Predict.** These losses lie on both sides of 8. Is that luck? Look at many seeds, and at a head of its own.

# %%
for tied in (True, False):
    config = replace(morph.stage(9, "nano"), tied=tied)
    fresh = [morph.build(config, seed=seed).eval() for seed in range(4 if QUICK else 24)]
    losses = [next_token(model) for model in fresh]
    with torch.no_grad():
        spread = statistics.fmean(model(ids).var(dim=-1).mean().item() for model in fresh)
    mean, deviation, even = statistics.fmean(losses), statistics.stdev(losses), 8 + spread / 2 / LN2
    print(f"{'one table' if tied else 'two tables':10}: {mean:.2f} ± {deviation:.2f} bits over seeds;", end=" ")
    print(f"variance of the logits {spread:.2f}, and 8 + σ² / 2 ln 2 = {even:.2f}")

# %% [markdown]
# A fresh model is not modest. Its logits are spread at random, with a variance σ², and that costs σ²/2 nats on average:
# to say nothing in particular is something that has to be learned. One table lowers the average here, as a fresh model
# then expects the byte just read (notebook 09), which in source code often comes.
#
# ## 5 · Backward is two forwards
#
# A product $Y = XW$ has two on the way back, each as large:
#
# $$\partial X = \partial Y\, W^\top, \qquad \partial W = X^\top\, \partial Y$$
#
# **Predict.** Does the factor of 2 survive experts, and a recurrent state? And does your *clock* say 2?

# %%
batch = tuple(torch.tensor(part) for part in source.held_out(morph.stage(0, "nano"), 8))


def seconds(model: morph.Decoder) -> tuple[float, float]:
    """Of a forward pass with its loss, and of the backward pass; the fastest of a few."""
    found = []
    for _ in range(3 if QUICK else 10):
        begin = time.perf_counter()
        loss = model.loss(*batch).total
        middle = time.perf_counter()
        loss.backward()
        found.append((middle - begin, time.perf_counter() - middle))
    return tuple(min(column) for column in zip(*found))


rows, step = [], {}
for k in (0, 9, 13, 14):
    forward, backward = step_flops(start(stages[k].config, source, Recipe(batch_size=1)), 64)
    step[k] = forward + backward
    there, back = seconds(stages[k])
    rows.append([f"{k} `{morph.SLUGS[k]}`", f"{forward / 64:,.0f}", f"{backward / forward:.3f}", f"{back / there:.1f}"])
show_table(["stage", "forward FLOPs per token", "backward over forward, FLOPs", "the same in seconds, here"], rows)

# %% [markdown]
# Counted, 2 to within a hundredth, exactly so where all is products with weights. In time it is another number, and a
# different one on your machine: norms, activations and small kernels count no FLOPs and take their time.
#
# ## 6 · 6·N, and where it bends
#
# Two FLOPs for each weight that a token meets, twice as many on the way back: $6N$ a token.
#
# **Predict.** *N* can mean all weights stored, those that a token meets, or those without the tables of the vocabulary.
# Which of the three tells the count, for stage 13 with its 32 experts?

# %%
rows = []
for k in (0, 9, 13, 14):
    count = morph.count(stages[k].config)
    meanings = (count.total, count.active.all, count.active.without_embeddings)
    rows.append([f"{k} `{morph.SLUGS[k]}`", *(f"{step[k] / 64 / (6 * N):.2f}" for N in meanings)])
show_table(["FLOPs of a step over 6·N", "N stored", "N met by a token", "N met, without tables"], rows)

# %% [markdown]
# Read *N* as what a token meets, the head's table included, and the rule holds within a quarter, at 64 tokens. What is
# missing are the scores, products of activations that have no weights. They grow with the context:
#
# $$\frac{\text{FLOPs}}{6N} \approx 1 + \frac{2\, L\, n_q d_h\, s}{N}$$
#
# **Predict.** How far does the ratio rise, from 64 tokens to 512, for a model of width 48? And for the last stage?

# %%
costs, contexts = recorded("costs"), (64, 128, 256, 512)


def draw_costs(figure):
    for axes, (name, title) in zip(
        figure.subplots(1, 2, sharey=True),
        (("over 6·N by context", "every score formed"), ("visible over 6·N by context", "what a mask hides left out")),
    ):
        shown = [costs.arms[k] for k in (0, 9, 14)]
        over = {arm: (contexts, list(zip(*costs.lists(arm, {}, name)))) for arm in shown}
        curves(axes, over, x="tokens of context", y="FLOPs over 6·N" if name.startswith("over") else "")
        axes.set_title(title)
    figure.axes[0].get_legend().remove()


ends = {k: costs.lists(costs.arms[k], {}, "over 6·N by context")[0][-1] for k in (0, 9, 14)}
show_picture(
    draw_costs, size=(10, 3),
    alt=f"FLOPs over 6 N rise with the context; at 512 tokens, every score formed: {ends} by stage.",
)  # fmt: skip

# %% [markdown]
# A released model is far wider, and so the bend comes later. Counted by the same code, forward, visible scores:

# %%
rows = []
for name in ("GPT-2 XL", "Llama 3 8B", "Olmo 3 32B", "DeepSeek-V3"):
    count = morph.count(RELEASED[name].config)
    N = count.active.without_input_embedding
    ratios = (count.flops(context).per_token / (2 * N) for context in (1024, 8192, 65_536))
    rows.append([name, f"{N / 1e9:.1f} B", *(f"{ratio:.2f}" for ratio in ratios)])
show_table(["forward FLOPs over 2·N", "N met, input table left out", "1,024 tokens", "8,192", "65,536"], rows)

# %%
show_findings("costs")

# %% [markdown]
# All of it supported, and all of it arithmetic: who can write down the claim can nearly compute it. Note the last one:
# trained in chunks, the state that saves memory costs more FLOPs at short contexts than the windows it replaced.
#
# ## 7 · A straight line
#
# Loss falls with parameters as a power, a line where both axes are logarithmic. If a better block only shifts the line,
# the two stages' lines are parallel. **Predict.** Are they, at our size? And what is worth more: fifteen times the
# parameters, or nine steps?

# %%
scaling = recorded("scaling")


def exponent(sizes: list[float], losses: list[float]) -> float:
    """a of loss ~ N⁻ᵃ, by least squares on the logarithms."""
    line = statistics.linear_regression([math.log(n) for n in sizes], [math.log(loss) for loss in losses])
    return -line.slope


over = {}
for arm in scaling.arms:
    sizes, losses = scaling.lists(arm, {}, "parameters")[0], scaling.lists(arm, {}, "bits per byte")
    over[arm] = (sizes, list(zip(*losses)))
    mean = [statistics.fmean(at) for at in zip(*losses)]
    exponents = ", ".join(f"{exponent(sizes, one):.3f}" for one in losses)
    print(f"{arm:18} exponent by seed {exponents}; {mean[0]:.2f} bits at {sizes[0]:,.0f} parameters", end=", ")
    print(f"{mean[-1]:.2f} at {sizes[-1]:,.0f}")


def draw_scaling(figure):
    curves(figure.subplots(), over, x="parameters without the table of tokens", y="bits per byte", is_log_y=True)


show_picture(
    draw_scaling, size=(8, 3),
    alt="Two falling lines, bits per byte over parameters: stage 9 lies below stage 0 and falls more steeply.",
)  # fmt: skip

# %%
show_findings("scaling")

# %% [markdown]
# Lines, yes; parallel, no. And the narrowest model of stage 9 is below the widest of stage 0. One reads that
# architecture is not what made models good, and that size and recipe are; on so few tokens it is the other way round.
# That does not refute the sentence, which is about models that have learned what they can: here it decides how *fast*
# one learns. It shows that the sentence has a condition, and that nobody has tested it for all fourteen steps.
#
# ## 8 · Induction heads
#
# To continue a run that was read before, find the last time the present token was read, and look at what came next.
# Heads that do so were found in every transformer that Olsson et al. (2022) looked into: an *induction head*, and below
# it a *previous-token head*, which marks each token with the one before it. Did they survive the steps?
#
# We train stage 9 on such runs, with windows of 4 tokens, too short to reach the place, in all layers but the last.
#
# **Predict.** In which layer will induction heads appear, in how many of its four heads, and where the marking?

# %%
task, recipe = induction_heads.EXPERIMENT.task, induction_heads.EXPERIMENT.recipe
trial = start(induction_heads.short_sighted(), task, recipe.with_(steps=10 if QUICK else 300))
fit(trial)
steps, result = trial.evaluations[-1]
print(f"{steps} steps, {result['accuracy']:.1%} of the tokens that can be foreseen are")


def look(model: morph.Decoder, ids: torch.Tensor, asked: torch.Tensor) -> dict[str, torch.Tensor]:
    """Mean weight of every head, (layers, heads): on the place after the last occurrence; on the token before."""
    after, _ = after_last_occurrence(ids)
    with torch.no_grad(), morph.trace(model) as seen:
        model(ids)
    weights = [seen[f"blocks.{n}.attention.weights"] for n in range(model.config.n_layers)]
    found = [w.gather(-1, after[:, None, :, None].expand(-1, w.shape[1], -1, 1))[..., 0] for w in weights]
    return {
        "induction": torch.stack([w.transpose(1, 2)[asked].mean(0) for w in found]),
        "previous token": torch.stack([w.diagonal(-1, 2, 3)[..., 1:].mean((0, 2)) for w in weights]),
    }


runs, wanted = (torch.tensor(part) for part in task.held_out(trial.config, 64))
heads = look(trial.model, runs, wanted != IGNORED)


def draw_heads(figure):
    for axes, (name, scores) in zip(figure.subplots(1, 2), heads.items()):
        axes.imshow(scores, vmin=0, vmax=1)
        for layer, row in enumerate(scores.tolist()):
            for head, score in enumerate(row):
                axes.text(head, layer, f"{score:.2f}", ha="center", va="center")
        axes.set(title=name, xlabel="head", ylabel="layer", xticks=range(4), yticks=range(4))


show_picture(
    draw_heads, size=(7, 3.2),
    alt="Weights by layer and head. " + " ".join(
        f"{name}, best of each layer: {[round(v, 2) for v in scores.amax(1).tolist()]}."
        for name, scores in heads.items()
    ),
)  # fmt: skip

# %% [markdown]
# One head's weights on one run. Rows ask, columns are looked at; from the second reading on, the weight should lie on
# the token that comes next.

# %%
best = int(heads["induction"][3].argmax())
with torch.no_grad(), morph.trace(trial.model) as seen:
    trial.model(runs[:1])


def draw_map(figure):
    axes = figure.subplots()
    axes.imshow(seen["blocks.3.attention.weights"][0, best], vmin=0, vmax=1)
    letters = [chr(ord("a") + token) for token in runs[0].tolist()]
    axes.set_xticks(range(len(letters)), letters)
    axes.set_yticks(range(len(letters)), letters)
    axes.set(title=f"layer 3, head {best}", xlabel="looked at", ylabel="asks")


show_picture(draw_map, alt="Attention map: on the second reading, weight on the token after the last occurrence.",
             size=(4, 4))  # fmt: skip

# %% [markdown]
# What three stages of the lab had, layer by layer (the best head of each, mean over seeds; a layer that keeps a state
# has no weights and is drawn as 0):

# %%
found = recorded("induction-heads")


def draw_layers(figure):
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("induction score", "previous-token score")):
        for arm, mark in zip(found.arms, "os^"):
            axes.plot(range(4), found.summary(arm, {}, f"{kind} by layer"), marker=mark, label=arm)
        axes.set(title=kind, xlabel="layer", xticks=range(4), ylim=(0, 1))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


show_picture(
    draw_layers, size=(9, 2.8),
    alt="Induction score by layer: " + "; ".join(
        f"{arm} {[round(v, 2) for v in found.summary(arm, {}, 'induction score by layer')]}" for arm in found.arms
    ) + ".",
)  # fmt: skip

# %%
show_findings("induction-heads")

# %% [markdown]
# Stages 9 and 14 have induction heads; in stage 0 the interval is too wide to say. The rest of the classical picture
# did *not* come out as expected: stage 0 shows no clear previous-token head, and stages 9 and 14 hardly miss their best
# induction head when it is silenced. Our own small model suggests why: several heads of the last layer do the same, so
# that one is not missed. That was seen afterwards and is no claim.
#
# **Predict.** And models trained on *text*, shown runs of letters: have they such heads?

# %%
letters = Induction(shortest=8, longest=12, tokens=26, read=32)
for name in ("windows", "sink"):
    one = subject(name)
    runs, wanted = (torch.tensor(part) for part in letters.held_out(one.config, 64))
    heads_of_text = look(one.model, runs + ord("a"), wanted != IGNORED)
    shown = ", ".join(f"{kind} {scores.max():.2f}" for kind, scores in heads_of_text.items())
    even = (1 / torch.arange(1.0, 33)).expand(64, -1)[wanted != IGNORED].mean()
    print(f"{one.name}: best head, {shown}; with equal weights a place has {even:.2f}")

# %% [markdown]
# These models have heads that look at the token before, and none that deserves the other name. Whether more training on
# more text would form them at this size is open; that larger models have them is well documented.
#
# Which *mixers* learn the task at all, and how soon, was asked in another experiment:

# %%
show_findings("induction")

# %% [markdown]
# ## 9 · How much of stage 0 is in stage 14?
#
# **Predict.** Of the functions that run when stage 0 computes its loss, which share runs in stage 14 too? Of stage 14's
# weights, which share has the name and the shape of a tensor of stage 0?
#
# First the configs, field by field:

# %%
old, new = morph.stage(0, "nano"), morph.stage(14, "nano")
changes = morph.diff(old, new)
show_table(["field", "2017", "stage 14"], [[f"`{c.path}`", str(c.before), str(c.after)] for c in changes])

# %% [markdown]
# Eight entries, and two of them, `layout` and `feed_forward`, carry more than half of the fourteen steps. Width, depth,
# context, vocabulary, the table's double duty and its scale are as they were. Now the tensors, and the functions that
# run:

# %%
PACKAGE = str(Path(morph.__file__).parent)


def functions(model: morph.Decoder) -> dict[str, int]:
    """Functions of the package that run for one loss -> their lines of code."""
    model.loss(ids, targets)  # what is made once and remembered is made here
    ran = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            lines = {line for *_, line in code.co_lines() if line}
            ran[f"{code.co_filename}:{code.co_qualname}"] = len(lines)

    sys.setprofile(note)
    try:
        model.loss(ids, targets)
    finally:
        sys.setprofile(None)
    return ran


held = [{name: t.shape for name, t in stages[k].state_dict().items()} for k in (0, 14)]
ran = [functions(stages[k]) for k in (0, 14)]
same = [name for name in held[1] if held[0].get(name) == held[1][name]]
rows = []
for label, names, codes in (
    ("in both", same, ran[0].keys() & ran[1].keys()),
    ("in stage 0 alone", held[0].keys() - set(same), ran[0].keys() - ran[1].keys()),
    ("in stage 14 alone", held[1].keys() - set(same), ran[1].keys() - ran[0].keys()),
):
    side = held[0] if "0" in label else held[1]
    numbers = sum(side[name].numel() for name in names)
    lines = sum((ran[0] | ran[1])[code] for code in codes)
    rows.append([label, str(len(names)), f"{numbers:,}", str(len(codes)), str(lines)])
show_table(["", "tensors", "numbers in them", "functions run", "lines of these"], rows)

# %%
gone = sorted(code.rsplit(":")[-1] for code in ran[0].keys() - ran[1].keys())
shared = sum(held[1][name].numel() for name in same) / sum(shape.numel() for shape in held[1].values())
print(f"{len(ran[0].keys() & ran[1].keys()) / len(ran[0]):.0%} of the functions of stage 0 run in stage 14")
print("those that do not:", ", ".join(gone))
print(f"{shared:.0%} of the weights of stage 14 have name and shape of a tensor of stage 0")

# %% [markdown]
# The program is nearly all there, with about as much again beside it; the weights are mostly new, because most of them
# are experts. Two grains of salt. A name is not a role: `v_proj` of a layer that keeps a state has the shape of 2017's,
# and what it makes is written into the state. And it is *our* code, written so that a change is small; another's would
# give other shares, hardly another picture.
#
# ## What is unsettled
#
# - **Hybrids against full attention.** No public comparison holds data, budget and post-training equal at the size of
#   the largest models. That several labs bet on hybrids is a revealed preference, no measurement.
# - **How small a state may be,** and how many softmax layers a model needs beside it (one in four, in eight).
# - **Whether the scaling exponent is the architecture's to change.** At our size it looks so, by how fast one learns.
# - **What marks the token before** where the lower layers have no attention: the convolution, one supposes.
# - **The objective.** Second targets, diffusion and others are tried; the models in use predict the next token.
#
# **Corrections.** Four statements that one meets, and what holds:
#
# - "Nothing ever overwrites the stream." Since step 1; in 2017 a norm stood on it.
# - "Forward and backward are 6·N." With *N* what a token meets, the head's table included, at contexts that are short
#   beside the one of exercise 2.
# - "Without softmax attention there is no exact retrieval." With a state too small for what is to be held.
# - "Decoder-only won completely." Among models that write. Encoders with a decoder live on in translation and speech,
#   encoders alone in search.
#
# **What couples to what.** That the stream is a sum is what lets mixers be exchanged layer by layer. That the loss is
# one number a token is what lets vocabularies, slices and second targets be changed around it. That a step costs
# $6N$ is what makes experts attractive: they raise what is stored and leave *N*.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · The objective.** A text `ids` (B, S) was read whole, and `logits` (B, S, V) came of it. Give the loss of the
# next token in *bits*: position $t$ speaks of token $t + 1$, and the last position of nothing we have.


# %%
# Exercise 1 · bits of the next token
def next_token_bits(logits: torch.Tensor, ids: torch.Tensor) -> float: ...


# %%
checks.next_token_bits(next_token_bits)

# %% [markdown]
# **2 · Where 6·N bends.** A model has `weights` that a token meets, `layers` of softmax attention and query heads of
# `width` features together. Every score is formed. At which context do scores and weighted sums cost as much as all
# products with weights?


# %%
# Exercise 2 · the context at which scores cost as much as weights
def even_context(weights: int, layers: int, width: int) -> float: ...


# %%
checks.even_context(even_context)

# %% [markdown]
# **3 · An induction head by hand.** For every place of `ids` (B, S), guess the next token: what came after the last
# earlier occurrence of the present one. Where there is none, guess the present token.


# %%
# Exercise 3 · find the last occurrence, copy what came next
def induced(ids: torch.Tensor) -> torch.Tensor: ...


# %%
checks.induced(induced)

# %% [markdown]
# ## Further reading
#
# - *Attention Is All You Need*, Vaswani et al., 2017: stage 0, with an encoder beside it.
# - *Scaling Laws for Neural Language Models*, Kaplan et al., 2020, and *Training Compute-Optimal Large Language
#   Models*, Hoffmann et al., 2022: 6·N and the lines.
# - *Tensor Programs V*, Yang et al., 2022: why a learning rate must follow the width.
# - *In-context Learning and Induction Heads*, Olsson et al., 2022.
# - *A Mathematical Framework for Transformer Circuits*, Elhage et al., 2021: the stream as a sum.
# - *Zoology: Measuring and Improving Recall in Efficient Language Models*, Arora et al., 2023: recall as a test.
