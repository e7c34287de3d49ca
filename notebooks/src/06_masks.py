# %% [markdown]
# # 06 · Masks and windows
#
# A causal mask keeps a token from seeing the future. A window also takes most of the past away, in most layers, and
# the models that do so hardly suffer. This notebook shows what exactly is taken, what it saves, and by which way the
# rest still arrives.
#
# **After this notebook you can**
#
# - write any mask of this kind as a rule about distance, and apply it;
# - say what a window does to cache and arithmetic, and weigh and count both;
# - find by differentiation what a token hears through a stack of layers, and predict it;
# - tell what a stack *can* hear from what it *learns* to use;
# - give a softmax a sink, and measure what goes there.
#
# It needs no network and no GPU: two CPU cores are enough.

# %%
import math
import os
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.checks import masks as checks
from morph.config import AllGlobal, AllLocal, Interleaved, SlidingWindow
from morph.nn.organ import plain_forms
from morph.story.masks_field import OLMO_3_32B
from morph.story.subject import subject
from morph.widgets import AttentionExplorer, Stepper, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # a shorter training, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain


# %% [markdown]
# ## Twelve frames
#
# A model of four layers reads Python: layers 0 to 2 see 32 tokens, layer 3 sees all. Then stacks of twelve layers show
# how far information travels, and a released model what it is worth.
#
# **Predict before you step.** Twelve layers with a window of five, the token's own place included, and nothing else:
# from how many tokens can the last one have heard? And when one layer in four sees everything, after how many layers
# has it heard from all?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("masks")

# %% [markdown]
# ## A mask is a rule about distance
#
# Query $i$ may see key $j$ when the key is not later and, under a window $w$, fewer than $w$ places back:
#
# $$M_{ij} = 1 \iff 0 \le i - j < w$$
#
# The query's own place counts, so a window of $w$ shows $w$ keys and not $w + 1$. With $w \ge s$ it hides nothing.


# %%
def mask(length: int, window: int | None = None) -> torch.Tensor:
    """(query, key): True where the query may see the key."""
    i = torch.arange(length)
    distance = i[:, None] - i[None, :]
    return (distance >= 0) & (distance < (window or length))


for row in mask(8, 3):
    print(" ".join("■" if seen else "·" for seen in row))

# %% [markdown]
# What is hidden gets a score of $-\infty$ before the softmax, hence a weight of exactly 0, and the weights on the rest
# add up to 1:
#
# $$A = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_h}} + \log M\right), \qquad \log 0 = -\infty$$
#
# **Predict.** Apply this to the queries and keys of a layer of the recorded model. How far will the weights be from
# those that the model reports?

# %%
recorded = subject("windows")
model, config = recorded.model, recorded.config
ids = recorded.ids(64)
with torch.no_grad(), morph.trace(model) as seen:
    model(ids)


def weights(q: torch.Tensor, k: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """(head, query, key), from queries (H, S, Dh) and keys (K, S, Dh) that groups of heads share."""
    k = k.repeat_interleave(len(q) // len(k), dim=0)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)


print(recorded.name)
for layer in (0, 3):
    window = model.blocks[layer].attention.window
    q, k = seen[f"blocks.{layer}.attention.queries"][0], seen[f"blocks.{layer}.attention.keys"][0]
    gap = (weights(q, k, mask(64, window)) - seen[f"blocks.{layer}.attention.weights"][0]).abs().max()
    print(f"layer {layer}: window {window}, {int(mask(64, window).sum()):,} pairs in sight, largest gap {gap:.0e}")

# %% [markdown]
# Look at the weights on a text of your own: layers and heads side by side, every number at hand. Layers 0 to 2 end
# where their window ends.

# %%
AttentionExplorer("windows", text="def area(width, height):\n    return width * height\n")

# %% [markdown]
# ## What a window saves, weighed
#
# A layer with a window never needs a key again once it is $w$ tokens old, so it may forget it. With $n_{kv}$ key-value
# heads of width $d_h$ and $b$ bytes a number, one layer holds after $s$ tokens
#
# $$\text{bytes}(s) = 2\, n_{kv}\, d_h\, b \cdot \min(s, w)$$
#
# **Predict.** 128 tokens have been read. By which factor is the cache of a layer with a window of 32 smaller than that
# of a layer without? And the cache of the whole model, three such layers and one without?

# %%
with torch.no_grad():
    cache = model.new_cache()
    for piece in recorded.ids(128).split(16, dim=1):
        model(piece, cache=cache)
        print(f"{cache.columns:4} tokens:", *(f"{layer.nbytes / 1024:6.1f}" for layer in cache.layers), "KiB")
whole = morph.count(replace(config, layout=AllGlobal()), bytes_per_value=4).cache_bytes(128)
print(f"all layers {cache.nbytes / 1024:.0f} KiB, without windows {whole / 1024:.0f} KiB")

# %% [markdown]
# ## What a window saves, counted
#
# A mask by itself saves no arithmetic: the plain form computes all $s^2$ scores and throws most away. To save, one must
# not compute them. Cut the text into blocks of $w$ queries; each needs the keys of its own block and of the one before.
# For $n_q$ query heads:
#
# $$\text{FLOPs} \approx 4\, n_q\, d_h \cdot s \cdot 2w \quad\text{instead of}\quad 4\, n_q\, d_h \cdot s^2$$
#
# **Predict.** From 256 to 512 tokens, by how much does either number grow?


# %%
def in_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: int) -> torch.Tensor:
    """What a window of w sees, without ever forming the square. q (H, S, Dh); k, v (H, S, Dh)."""
    out = []
    for start in range(0, q.shape[1], w):
        end, first = start + w, max(0, start - w)
        allowed = mask(q.shape[1], w)[start:end, first:end]
        out.append(weights(q[:, start:end], k[:, first:end], allowed) @ v[:, first:end])
    return torch.cat(out, dim=1)


for s in (128, 256, 512):
    q, k, v = torch.randn(3, 4, s, 24)
    with FlopCounterMode(display=False) as square:
        dense = weights(q, k, mask(s, 32)) @ v
    with FlopCounterMode(display=False) as line:
        blocks = in_blocks(q, k, v, 32)
    counted = (square.get_total_flops(), line.get_total_flops())
    print(f"{s:4} tokens: square {counted[0] / 1e6:6.1f} M, blocks {counted[1] / 1e6:5.1f} M,", end=" ")
    print(f"largest difference {(dense - blocks).abs().max():.0e}")

# %% [markdown]
# ## How far a stack hears
#
# One layer with a window of $w$ reaches $w - 1$ tokens back, besides its own. The next one reads streams that have
# themselves heard that far. Each layer adds another $w - 1$:
#
# $$R(L) = L\,(w - 1) + 1$$
#
# Often $L \cdot w$ is given instead. That counts the token itself once a layer rather than once. We need not argue: a
# token hears another exactly when the gradient of its stream to the other's embedding is not zero.
#
# **Predict.** Four layers, $w = 5$: write down $R$ before you run the cell.


# %%
def heard(model: morph.Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Norm of the gradient of the last token's stream to every token's embedding, (S,)."""
    kept = []
    start = model.embedding.register_forward_hook(
        lambda _, __, out: kept.append(out.detach().requires_grad_()) or kept[0]
    )
    end = model.blocks[-1].register_forward_hook(lambda _, __, out: kept.append(out))
    with plain_forms():  # attention written out, not fused
        model(ids)
    start.remove(), end.remove()
    direction = torch.randn(model.config.d_model, dtype=kept[1].dtype)
    (gradient,) = torch.autograd.grad(kept[1][0, -1] @ direction, kept[0])
    return gradient[0].norm(dim=-1)


def stack(layers: int, layout: AllLocal | Interleaved) -> morph.Decoder:
    """Untrained, in double precision: nothing underflows, so a zero means that there is no path."""
    return morph.build(replace(morph.stage(9, "nano"), n_layers=layers, layout=layout)).double().eval()


narrow = SlidingWindow(window=5)
text = torch.arange(40)[None]
for layers in (1, 2, 4, 8):
    print(f"depth {layers}: {int((heard(stack(layers, AllLocal(local=narrow)), text) != 0).sum())} tokens heard")

# %% [markdown]
# Now mix in layers that see all. A ratio of 3 : 1 means three local layers, then a global one.
#
# **Predict.** Eight layers, $w = 5$, 40 tokens. For 1 : 1, 3 : 1 and 7 : 1, how many tokens are heard? And compare how
# *strongly* the token 32 places back arrives: by eight hops, or by way of one global layer.

# %%
layouts = {"all local": AllLocal(local=narrow)}
layouts |= {f"{n} : 1": Interleaved(n_local=n, local=narrow) for n in (1, 3, 7)}
rows = []
for name, layout in layouts.items():
    size = heard(stack(8, layout), text)
    rows.append([name, str(int((size != 0).sum())), f"{size[-2]:.2f}", f"{size[-33]:.1e}"])
show_table(["layers", "tokens heard", "gradient, 1 back", "gradient, 32 back"], rows)

# %% [markdown]
# One global layer is enough to complete the reach, wherever it stands. And the reach by hops is a thin one: the only
# path to its far edge takes the longest hop in every layer.
#
# ## Hearing is not learning
#
# Let a text begin with one of eight symbols, go on with noise, and end with a question: which symbol was it? Guessing
# costs 3 bits. Four layers with $w = 8$ reach $4 \cdot 7 + 1 = 29$ tokens.
#
# **Predict.** Which of these four models gets below 3 bits: all local with texts of 12, of 28 and of 40 tokens; and
# 3 : 1 with 40?


# %%
def texts(length: int, generator: torch.Generator) -> torch.Tensor:
    """A symbol (0 to 7), noise (8 to 15), and the question (16)."""
    rows = torch.randint(8, 16, (32, length), generator=generator)
    rows[:, 0] = torch.randint(0, 8, (32,), generator=generator)
    rows[:, -1] = 16
    return rows


def recall(layout: AllLocal | Interleaved, length: int, steps: int) -> float:
    """Bits that the symbol costs at the end of a short training."""
    small = replace(morph.stage(9, "nano"), vocab_size=17, context_length=length, layout=layout)
    learner, generator = morph.build(small, seed=0), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3)
    bits = []
    for _ in range(steps):
        batch = texts(length, generator)
        loss = F.cross_entropy(learner(batch)[:, -1], batch[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bits.append(loss.item() / math.log(2))
    return sum(bits[-8:]) / len(bits[-8:])


eight, steps = SlidingWindow(window=8), 4 if QUICK else 60
local, mixed = AllLocal(local=eight), Interleaved(n_local=3, local=eight)
for name, layout, length in (
    ("all local", local, 12),
    ("all local", local, 28),
    ("all local", local, 40),
    ("3 : 1", mixed, 40),
):
    print(f"{name:9} {length} tokens: {recall(layout, length, steps):.2f} bits after {steps} steps")

# %% [markdown]
# At 40 tokens all local can never do it: the gradient is exactly zero, and no training finds what does not arrive. At
# 28 the symbol is within reach, and still it is not found in so short a training: it would have to be handed on four
# times, by layers that do not yet know what for. A single global layer makes it one step, at any length. That is why
# nearly all who use windows keep some layers that see everything.
#
# ## A released model
#
# Olmo 3 32B has, by its released config, 64 layers, 8 key-value heads of 128 and a window of 4,096, in the ratio 3 : 1.
# Counted by the same code as our own models, in bf16:

# %%
for context in (4_096, 16_384, 65_536):
    with_windows = morph.count(OLMO_3_32B).cache_bytes(context) / 2**30
    without = morph.count(replace(OLMO_3_32B, layout=AllGlobal())).cache_bytes(context) / 2**30
    print(f"{context:6,} tokens: {without:5.2f} GiB, with windows {with_windows:.2f}: ÷ {without / with_windows:.2f}")

# %% [markdown]
# **Predict.** Towards which factor does this go as the text grows? (Exercise 3 asks for the formula.)
#
# ## A softmax that may abstain
#
# The weights of a softmax add up to 1, also where nothing in sight is of use. Large models then put the weight where it
# does no harm, often on the first token: an *attention sink*. A learned logit $\sigma_h$ for each head gives it another
# place to go, with no value behind it:
#
# $$a_{ij} = \frac{e^{z_{ij}}}{e^{\sigma_h} + \sum_{j'} e^{z_{ij'}}}, \qquad \sum_j a_{ij} < 1$$


# %%
def with_sink(scores: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """Weights on the keys (H, S, S) when each head's sink (H,) takes its part."""
    column = sink[:, None, None].expand(*scores.shape[:2], 1)
    return torch.cat((scores, column), dim=-1).softmax(dim=-1)[..., :-1]


scores = torch.zeros(1, 1, 3)
for sigma in (-10.0, 0.0, 3.0):
    left = with_sink(scores, torch.tensor([sigma]))[0, 0]
    print(f"sink {sigma:5.1f}: weights {[round(a, 2) for a in left.tolist()]}, the sink takes {1 - left.sum():.2f}")

# %% [markdown]
# **Predict.** Does our small model, which has no such logit, use token 0 as a sink? And how much will a sink take that
# was there from the first step of training?

# %%
for name in ("windows", "sink"):
    one = subject(name)
    with torch.no_grad(), morph.trace(one.model) as seen:
        one.model(one.ids(128, batch=8))
    a = seen["blocks.3.attention.weights"][:, :, 32:]  # a layer that sees all; late queries, whose even share is small
    even = (1 / torch.arange(33.0, 129.0)).mean()
    first, outside = a[..., 0].mean(), 1 - a.sum(dim=-1).mean()
    print(f"{name:7}: on token 0 {first:.1%} (an even share is {even:.1%}), outside of the text {outside:.1%}")

# %% [markdown]
# Here token 0 gets less than an even share, and a learned sink is hardly used: nothing in a short training on short
# texts has made these heads look for a place to idle. In large models sinks are strong, and dropping the first tokens
# of a long stream from the cache, as a window does, breaks those that rely on them. A small model cannot show all.
#
# ## Where the field has not settled
#
# - **The ratio.** One to one (Gemma 2, gpt-oss), three to one (Olmo 3, Trinity Large), five to one (Gemma 3), and once
#   nothing but windows (Mistral 7B, 2023). Reported losses differ little over a wide range.
# - **The width.** From 128 (gpt-oss) to 4,096 (Mistral 7B, Olmo 3). A short window is cheap and forces the global
#   layers to do the rest.
# - **What fills the other layers.** A window forgets; a fixed state (step 14) keeps a summary of what it has seen.
# - **Position by layer type.** Gemma 3 has a slower rotation in its global layers, Trinity Large none there, Olmo 3
#   stretches only theirs.
# - **Sinks.** A learned logit, a gate on the output, or keeping the first tokens for good.
#
# **Corrections.** Three statements that one meets, and what holds:
#
# - "A stack of $L$ windows sees $L \cdot w$ tokens." It sees $L(w - 1) + 1$; you differentiated it.
# - "In three layers of four the cache stops growing." In models of the ratio 3 : 1.
# - "SmolLM3 leaves position out of its global layers and keeps it in the local ones." All its layers are global; every
#   fourth one goes without position. The sentence fits Trinity Large and Command A.
#
# **What couples to what.** Windows favour positions that are relative: the window slides, and what is in it should
# look alike wherever it stands. Two kinds of layers need two masks, and possibly two position tables, in one pass;
# build them once per shape, not once per layer. A sink on the first token and a window that drops it do not go
# together. And windows in most layers make the global ones the only direct way to what is far.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · A mask with a sink that stays.** For streams that never end one keeps a window *and* the first `kept` tokens.
# Write the mask: query $i$ sees key $j \le i$ if it is fewer than `window` back or one of the first `kept`.


# %%
# Exercise 1 · a window that keeps the first tokens
def stream_mask(length: int, window: int, kept: int) -> torch.Tensor: ...


# %%
checks.stream_mask(stream_mask)

# %% [markdown]
# **2 · How deep must it be?** All layers local with window $w \ge 2$. What is the least number of layers by which a
# token can hear one that stands `distance` places back? (`distance = 0` is the token itself.)


# %%
# Exercise 2 · layers needed to hear so far back
def layers_needed(distance: int, window: int) -> int: ...


# %%
checks.layers_needed(layers_needed)

# %% [markdown]
# **3 · What windows save.** $n$ local layers of window $w$ to one global layer, a text of $s$ tokens. By which factor
# does the cache shrink against all layers global? Write it as a function of `n`, `w` and `s`.


# %%
# Exercise 3 · factor by which the cache shrinks
def saving(n: int, w: int, s: int) -> float: ...


# %%
checks.saving(saving)

# %% [markdown]
# **4 · The sink's logit.** A head gives every one of $n$ keys the score 0. Which $\sigma$ makes the sink take a `share`
# of the weight, between 0 and 1?


# %%
# Exercise 4 · the logit that takes a share
def sink_logit(n: int, share: float) -> float: ...


# %%
checks.sink_logit(sink_logit)

# %% [markdown]
# ## Further reading
#
# - *Generating Long Sequences with Sparse Transformers*, Child et al., 2019: masks with holes, layer by layer.
# - *Longformer: The Long-Document Transformer*, Beltagy et al., 2020: windows, and a few tokens that see all.
# - *Mistral 7B*, Jiang et al., 2023: windows in every layer, and a cache that rolls.
# - *Gemma 3 Technical Report*, Gemma Team, 2025: 5 : 1, and a base for each kind of layer.
# - *Efficient Streaming Language Models with Attention Sinks*, Xiao et al., 2023: when the first tokens go.
# - *gpt-oss-120b & gpt-oss-20b Model Card*, OpenAI, 2025: a learned sink in every head.
# - *Rope to Nope and Back Again: A New Hybrid Attention Strategy*, Yang et al., 2025: no position in global layers.
