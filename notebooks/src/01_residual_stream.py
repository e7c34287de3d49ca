# %% [markdown]
# # 01 · The residual stream
#
# A decoder is a stack of layers on one long wire. Each layer reads what the wire carries and adds something to it.
# That wire, a vector of *d* numbers for every token, is the object that every later notebook comes back to: a norm
# says how it is read, attention and experts say what is written to it, a cache says what of it is kept.
#
# **After this notebook you can**
#
# - take a trained model's last state apart into the 49 vectors that it is the sum of, and add them up again;
# - say when the stream grows like √ℓ, when it does not, and measure which case you have;
# - explain what a norm does in each of four places, forward and backward, and show it in a few lines;
# - tell which part of that is the norm's doing and which comes from the organ beside it.
#
# It needs no network and no GPU: two CPU cores are enough.

# %%
import math
import os
from dataclasses import replace

import torch

import morph
from morph.checks import residual_stream as checks
from morph.story.subject import subject
from morph.widgets import Stepper, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # fewer models, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain


def rms(x: torch.Tensor) -> float:
    """Root mean square: a vector of RMS r has length r times the root of its width."""
    return x.square().mean().sqrt().item()


# %% [markdown]
# ## Thirteen frames
#
# The thick line is the stream of one token. Where a column of coloured cells stands on it, you see the token's 48
# numbers at that place: real ones, of a model with 24 layers that has read some Python. Frames 4 to 8 compare it
# with the same model before its training, and the last five move its norms to other places.
#
# **Predict before you step.** (a) By which factor does the stream grow from the first layer to the last? (b) Each
# layer adds a vector in a space of 48 dimensions: do 48 such additions point in unrelated directions? (c) The loss
# sends a gradient down the wire. Does it arrive at layer 1 smaller, larger, or as it left?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("residual")

# %% [markdown]
# ## A sum, to the last digit
#
# In a pre-norm model layer $\ell$ does
#
# $$m_\ell = x_{\ell-1} + \mathrm{Attn}_\ell(\mathrm{Norm}(x_{\ell-1})), \qquad
#   x_\ell = m_\ell + \mathrm{FFN}_\ell(\mathrm{Norm}(m_\ell)).$$
#
# Call what is added a *delta*. No equation here ever assigns to the stream, so
#
# $$x_L = x_0 + \sum_{w=1}^{2L} \Delta_w .$$
#
# A trace keeps every delta under its name. Nothing stops us from adding them up ourselves.

# %%
deep = subject("deep")
print(deep.name)
ids = deep.ids(64)
layers = deep.config.n_layers
with morph.trace(deep.model) as seen, torch.no_grad():
    logits = deep.model(ids)

HALVES = ("attention", "feed_forward")
names = [f"blocks.{layer}.{half}_delta" for layer in range(layers) for half in HALVES]
x = seen["stream"].clone()
for name in names:
    x += seen[name]
last = seen[f"blocks.{layers - 1}.stream"]
backwards = sum(seen[name] for name in reversed(names)) + seen["stream"]
print(f"{len(names)} deltas, largest value {last.abs().max():.0f}")
print(f"largest error, added in the model's order: {(x - last).abs().max():.1e}")
print(f"largest error, added from the last to the first: {(backwards - last).abs().max():.1e}")

# %% [markdown]
# In the order of the layers not one bit is off; in another order fp32 rounds differently, and that is all. So "what
# did layer 7 contribute?" has an exact answer, a vector, and the logits are a sum too: the final norm scales the
# whole, and the head is linear.
#
# ## What a branch reads
#
# A branch does not read the stream, it reads a copy that the norm made:
#
# $$\mathrm{RMSNorm}(x) = \gamma \odot \frac{x}{\sqrt{\tfrac1d\sum_j x_j^2}}, \qquad
#   \mathrm{RMSNorm}(c\,x) = \mathrm{RMSNorm}(x) \quad (c > 0).$$
#
# **Predict.** Let the stream that enters layer 12 be ten times as large, for this one layer. How much larger is what
# its attention writes?

# %%
block = deep.model.blocks[12]
entering = seen["blocks.11.stream"]
with torch.no_grad():
    copies = [block.attention_norm(c * entering) for c in (1, 10)]
print(f"stream RMS {rms(entering):.2f} and {rms(10 * entering):.1f}")
print(f"copy RMS {rms(copies[0]):.4f} and {rms(copies[1]):.4f}")

# %% [markdown]
# Nothing changes: a branch sees a direction, not a size. (Under the root stands a tiny ε, too, left out above; it
# shows only in vectors about as small.) The size of the stream matters in one place, where the delta is added. The
# larger the stream, the less a delta of the same size turns it.

# %% [markdown]
# ## How it grows
#
# Square the sum, for one token:
#
# $$\|x_\ell\|^2 = \|x_0\|^2 + \sum_w \|\Delta_w\|^2 + \text{cross terms}, \qquad
#   \text{cross terms} = \sum_{u \ne v} \langle \Delta_u, \Delta_v\rangle ,$$
#
# with $x_0$ counted among the deltas in the last sum. If the parts are unrelated, the cross terms cancel. If besides
# all layers write alike, $\sigma$ each, then $\|x_\ell\|^2 \approx \|x_0\|^2 + \ell\sigma^2$: a random walk, whose
# length grows like √ℓ.

# %%
parts = [rms(seen[name]) for name in ("stream", *names)]  # x₀ counted in
print(f"RMS of the {len(names)} deltas: {min(parts[1:]):.1f} to {max(parts[1:]):.1f}")
print(f"RMS at the end, were there no cross terms: {math.sqrt(sum(part**2 for part in parts)):.1f}")

# %% [markdown]
# **Predict.** Will the real stream of the trained model end near that, below, or above? And before training?

# %%
untrained = morph.build(deep.config, seed=deep.seed).eval()
with morph.trace(untrained) as fresh, torch.no_grad():
    untrained(ids)


def growth(trace) -> list[str]:
    """First size, last size, and the last size if no two parts had anything in common."""
    parts = [rms(trace["stream"]), *(rms(trace[name]) for name in names)]
    alone = math.sqrt(sum(part**2 for part in parts))
    end = rms(trace[f"blocks.{layers - 1}.stream"])
    return [f"{parts[0]:.2f}", f"{end:.2f}", f"{alone:.2f}", f"{1 - (alone / end) ** 2:.0%}"]


show_table(
    ["", "RMS of x₀", "RMS at the end", "without cross terms", "cross terms' share of the square"],
    [["as initialized", *growth(fresh)], ["trained", *growth(seen)]],
)

# %% [markdown]
# Random weights write unrelated deltas, and the random walk comes close to their final length. Training changes that:
# deltas come to agree, and most of the final length is agreement. √ℓ is a law of initialization, not of trained models.
#
# How much agreement does that take? Compare the cosines with those of random vectors, whose spread is $1/\sqrt d$.


# %%
def cosines(trace) -> torch.Tensor:
    """Cosine of each two deltas of a token, every pair once."""
    deltas = torch.cat([trace[name] for name in names])  # (W, S, d)
    unit = torch.nn.functional.normalize(deltas, dim=-1)
    table = torch.einsum("usd,vsd->suv", unit, unit)
    pairs = torch.triu_indices(len(names), len(names), offset=1)
    return table[:, pairs[0], pairs[1]]


d = deep.config.d_model
rows = [
    [name, f"{c.mean():+.3f}", f"{c.square().mean().sqrt():.3f}"]
    for name, c in (("as initialized", cosines(fresh)), ("trained", cosines(seen)))
]
show_table(["", "mean", "spread"], [*rows, ["random vectors", "0", f"{d**-0.5:.3f}"]])

# %% [markdown]
# Such a mean looks like nothing. But there are 1,128 pairs, each counted twice, against 48 squares: a
# small common tilt outweighs them all. "Nearly orthogonal" is a statement about one pair; the norm adds up all of
# them.

# %% [markdown]
# ## What can be left out
#
# The share of a delta in the stream, $\|\Delta\|/\|x\|$, falls with depth (frame 8). Does that make deep layers less
# useful? Leave out one layer at a time: its two deltas are replaced by zero, everything else runs as it is.
#
# **Predict.** Without which layer does the loss suffer most: the first, one in the middle, the last?


# %%
def loss_without(layer: int | None) -> float:
    """Bits per byte on the passage when one layer writes nothing."""
    halves = []
    if layer is not None:
        block = deep.model.blocks[layer]
        halves = [block.attention, block.feed_forward]
    hooks = [half.register_forward_hook(lambda _, args, out: 0 * out) for half in halves]
    with torch.no_grad():
        text = deep.ids(65, batch=4)
        loss = deep.model.loss(text[:, :-1], text[:, 1:]).cross_entropy.item()
    for hook in hooks:
        hook.remove()
    return loss / math.log(2)


whole = loss_without(None)
print(f"all layers: {whole:.2f} bits per byte")
for layer in range(0, layers, 6 if QUICK else 1):
    more = loss_without(layer) - whole
    print(f"without layer {layer + 1:2}: {more:+.2f} {'#' * round(60 * max(more, 0) / 3)}")

# %% [markdown]
# What the first layers write, all others were trained to read. Most of the rest can go one at a time at little cost:
# each adds one vector to a sum of many, and those behind still find what the others wrote. That is what the identity
# path buys. (One at a time: nothing here says that many can go at once. And this model has not read much; a layer that
# costs little to lose may have learned little.)
#
# ## Four places for a norm
#
# | placement | a branch adds | the stream is |
# | --- | --- | --- |
# | post (2017) | $F(x)$, then the *sum* is normalized | rescaled at every write |
# | pre | $F(N(x))$ | a sum |
# | sandwich | $N_2(F(N_1(x)))$ | a sum of bounded parts |
# | post-branch | $N(F(x))$ | a sum of bounded parts |
#
# In code they differ by where one call stands.


# %%
def norm(x: torch.Tensor) -> torch.Tensor:
    """RMSNorm with a gain of 1, as initialized."""
    return x / x.square().mean(-1, keepdim=True).sqrt()


PLACES = {
    "post": lambda x, branch: norm(x + branch(x)),
    "pre": lambda x, branch: x + branch(norm(x)),
    "sandwich": lambda x, branch: x + norm(branch(norm(x))),
    "post-branch": lambda x, branch: x + norm(branch(x)),
}
width, depth = 256, 48
generator = torch.Generator().manual_seed(0)
matrices = [torch.randn(width, width, generator=generator) / math.sqrt(width) for _ in range(depth)]
start = norm(torch.randn(64, width, generator=generator))
for place, write in PLACES.items():
    x = start
    for matrix in matrices:
        x = write(x, lambda v, m=matrix: v @ m)
    print(f"{place:12} after {depth} random branches: RMS {rms(x):.2f}")

# %% [markdown]
# Three sums and three times $\sqrt{1+48} = 7$; post-norm stays at 1. Its price is in what it divides. If $r_w$ is the
# RMS at the norm behind write $w$, then by following $x \leftarrow (x + \Delta)/r$ back,
#
# $$x_L = \frac{x_0}{r_1 r_2 \cdots r_{2L}} + \sum_w \frac{\Delta_w}{r_w \cdots r_{2L}} .$$
#
# **Predict.** A delta as large as the stream and unrelated to it makes $r = \sqrt 2$. What is left of $x_0$ after 48
# such norms? (Frame 9 measures the real factor, exercise 3 asks for it.)

# %%
print(f"(1/√2)^48 = {2**-24:.0e}")

# %% [markdown]
# The sum of pre-norm keeps everything, and so it grows until a new delta hardly matters. Neither is free.
#
# ## The way back
#
# The derivative of one layer is $\partial x_\ell/\partial x_{\ell-1} = I + J_\ell$ in a stream that is a sum. Because
# of the $I$, the gradient always has one way down on which nothing happens to it. It is often said to arrive
# *unattenuated*; that leaves out what the $J_\ell$ add.
#
# **Predict.** As initialized, by which factor does the gradient at layer 1 differ from that at the top, for post-norm
# and for pre-norm? `gradients=True` makes a trace keep the derivative by each tensor.


# %%
def came_down(config: morph.ModelConfig, seed: int = 0) -> float:
    """Length of the loss's gradient at the stream behind layer 1, over that behind the last layer."""
    model = morph.build(config, seed=seed)
    text = deep.ids(65, batch=4)
    with morph.trace(model, gradients=True) as t:
        model.loss(text[:, :-1], text[:, 1:]).cross_entropy.backward()
    ends = [t[f"blocks.{layer}.stream.gradient"].norm() for layer in (0, config.n_layers - 1)]
    return (ends[0] / ends[1]).item()


places = ("post", "pre", "sandwich", "post-branch", "depth-scaled-sandwich")
seeds = (0,) if QUICK else (0, 1, 2)
came = {place: [came_down(replace(deep.config, placement=place), seed) for seed in seeds] for place in places}
show_table(
    ["placement", *(f"seed {seed}" for seed in seeds)],
    [[place, *(f"× {value:.1f}" for value in values)] for place, values in came.items()],
)

# %% [markdown]
# It grows on its way down. In pre-norm the reason is the norm on the branch: its derivative is divided by the size of
# the stream, which is small at the bottom and large at the top, so deltas near the bottom turn the stream more, and the
# gradient feels it. In post-norm there is no $I$ left to hold on to: every layer multiplies by a matrix of its own, and
# what 48 factors come to depends on what the branches are made of.
#
# **Predict.** With the organs of 2017, does post-norm's gradient explode, vanish, or neither? Which of the steps up to
# stage 8 changes that?

# %%
stages = (1, 6) if QUICK else (1, 2, 4, 5, 6, 7, 8)
rows = []
for stage in stages:
    config = replace(morph.stage(stage, size="nano"), n_layers=layers)
    values = [came_down(replace(config, placement=place)) for place in ("post", "pre")]
    rows.append([f"{stage}", f"`{morph.SLUGS[stage]}`", *(f"× {value:.1f}" for value in values)])
show_table(["stage", "organs up to", "post", "pre"], rows)

# %% [markdown]
# **What couples to this.** It is the gate, step 6. A product of two linear maps has a steeper derivative than its size
# suggests: both factors move. A plain stack of ReLU networks passes the gradient on at about its length, even in
# post-norm; with gated ones each layer stretches it, and nothing on the way holds against it. The place of the norm
# and the choice of the feed-forward network are one decision. What *warm-up* cures in post-norm is a matter of the
# first optimizer steps, and not on this page.
#
# ## A small start
#
# If every branch starts with RMS $1/\sqrt L$, then $2L$ unrelated writes add $2L \cdot \tfrac1L = 2$ to the square of
# the stream: it ends near $\sqrt{1+2}$, at any depth. In a sandwich the gain of the second norm does that without
# touching the weights.

# %%
for count in (6, 24) if QUICK else (6, 24, 96):
    sizes = []
    for place in ("sandwich", "depth-scaled-sandwich"):
        model = morph.build(replace(deep.config, placement=place, n_layers=count))
        with morph.trace(model) as t, torch.no_grad():
            model(ids)
        sizes.append(rms(t[f"blocks.{count - 1}.stream"]))
    print(f"{count:3} layers: gain 1 ends at {sizes[0]:5.2f} (√(1+2L) = {math.sqrt(1 + 2 * count):5.2f}),", end=" ")
    print(f"gain 1/√L at {sizes[1]:.2f} (√3 = {math.sqrt(3):.2f})")

# %% [markdown]
# ## Where the field has not settled
#
# - **Before, behind, or both.** Most models norm the branch's input. Olmo 2 and 3 norm its output alone, Gemma and
#   Trinity both. Each reports stable training; comparisons with nothing else changed are rare.
# - **How small a branch should start.** GPT-2 shrinks the last matrices by the depth, Trinity a gain, others nothing.
# - **Whether growth is harm.** A stream that grows makes late layers count for less, which wastes them or, seen the
#   other way, makes them safe to add.
#
# **Where common statements need care**
#
# - *The norm of the stream grows like √ℓ.* As initialized, yes. Trained, ours grows faster, because its deltas agree.
# - *Gradients reach layer 1 unattenuated.* As initialized they arrive amplified, as the table of placements shows: most
#   of all in post-norm, much less in pre-norm, and least with small branches.
# - *The key-value cache grows with d.* It grows with the key-value heads and their width, which a config sets apart
#   from *d*: notebook 00 counts it.
# - *Trinity starts the second norm's gain at 1/√L.* Its report names a depth-scaled sandwich; we took 1/√L as the plain
#   reading of that, and have not seen the exact number.

# %% [markdown]
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · Add it up.** From a trace of a pre-norm model, make the stream after `layers` layers, for any number from 0 on.


# %%
# Exercise 1 · the stream after some layers, from its parts
def stream_after(trace: dict[str, torch.Tensor], layers: int) -> torch.Tensor: ...


# %%
checks.stream_after(stream_after)

# %% [markdown]
# **2 · The length of agreement.** $W$ deltas of length 1 have a cosine of $c$ with each other, all pairs alike. How
# long is their sum? (Count the pairs in $\|\sum\Delta\|^2$.)


# %%
# Exercise 2 · length of a sum of W unit vectors, any two of which have the cosine c
def length_of_sum(W: int, c: float) -> float: ...


# %%
checks.length_of_sum(length_of_sum)

# %% [markdown]
# **3 · What is left of x₀.** Post-norm, RMSNorm with a gain of 1. Given the RMS of the stream as each norm finds it, in
# order, what factor does the delta of write `w` (from 0) carry in the last state? For $x_0$ itself `w` is −1.


# %%
# Exercise 3 · the factor of one part in the last state of a post-norm model
def factor_left(found: list[float], w: int) -> float: ...


# %%
checks.factor_left(factor_left)

# %% [markdown]
# **4 · A calm deep model.** From `morph.stage(8, size="nano")` make a config of 96 layers whose stream, as initialized,
# ends with an RMS below 2 *and* is a plain sum (so post-norm does not count). Change nothing else.

# %%
# Exercise 4 · 96 layers whose stream is a sum and stays small
calm = ...

# %%
checks.calm(calm)

# %% [markdown]
# ## Further reading
#
# - *Deep Residual Learning for Image Recognition*, He et al., 2015: the sum, in another field.
# - *Attention Is All You Need*, Vaswani et al., 2017: post-norm.
# - *Language Models are Unsupervised Multitask Learners*, Radford et al., 2019: pre-norm, matrices shrunk by depth.
# - *On Layer Normalization in the Transformer Architecture*, Xiong et al., 2020: gradients under both placements.
# - *A Mathematical Framework for Transformer Circuits*, Elhage et al., 2021: the stream as a shared channel.
# - *Gemma 2: Improving Open Language Models at a Practical Size*, Gemma Team, 2024: the sandwich.
# - *2 OLMo 2 Furious*, OLMo Team, 2024: the norm behind the branch.
