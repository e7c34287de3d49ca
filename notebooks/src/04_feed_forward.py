# %% [markdown]
# # 04 · The feed-forward network, gated
#
# Attention moves information between tokens. What a token makes of it happens here, in a network that sees one token
# at a time and holds most of a block's weights. In 2017 it was two matrices with a bend between them. Today it is
# three: one of them decides, feature by feature, how much of another comes through.
#
# **After this notebook you can**
#
# - write both networks in a line each and get a trained layer's own output;
# - measure what a bend silences in a trained network, and tell a zero from a little;
# - say what a gate can compute that a sum cannot, how exactly, and what it takes to imitate it;
# - choose a hidden width for a budget, and recognize the rules behind released ones;
# - tell which claims about gates were measured here, and with what result.
#
# About 40 minutes with the exercises. It needs no network and no GPU; the code runs in half a minute on two cores.

# %%
import os
from dataclasses import replace

import torch
import torch.nn.functional as F
from IPython.display import display

import morph
from morph.checks import feed_forward as checks
from morph.config import MLP, GatedMLP
from morph.story.released import RELEASED
from morph.story.subject import siblings, subject
from morph.widgets import Stepper, show_findings, show_picture, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # fewer tokens, for automatic runs
TEXTS = 4 if QUICK else 16
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain


# %% [markdown]
# ## Nine frames
#
# Green is the network, columns and bars are one token's features.
#
# **Predict before you step.** In a *trained* network with ReLU, is the share of hidden features at zero near a half,
# or far from it? And if every SiLU of a trained model is replaced by a GELU, without any training, how different are
# the features that come out?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("ffn")

# %% [markdown]
# ## Two matrices
#
# $$\mathrm{FFN}(x) = W_{\text{down}}\,\phi(W_{\text{up}}\,x), \qquad
#   W_{\text{up}} \in \mathbb R^{4d \times d},\; W_{\text{down}} \in \mathbb R^{d \times 4d}$$
#
# The model below was trained with $\phi = \mathrm{ReLU}$ on Python source. We let it read and keep what layer 1's
# network read and answered.


# %%
@torch.no_grad()
def watch(shown, layer: int) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """What a layer's feed-forward network reads and writes, (T, D) both, and the text up to each token."""
    ids, seen = shown.ids(128, TEXTS), {}
    network = shown.model.blocks[layer].feed_forward
    hook = network.register_forward_hook(lambda _, read, wrote: seen.update(x=read[0], y=wrote))
    shown.model(ids)
    hook.remove()
    text = ["".join(shown.shown(int(t)) for t in row[max(0, i - 9) : i + 1]) for row in ids for i in range(128)]
    return seen["x"].flatten(0, 1), seen["y"].flatten(0, 1), text


plain = subject("relu")
x, y, texts = watch(plain, layer=1)
up, down = (getattr(plain.model.blocks[1].feed_forward, name).weight.detach() for name in ("up", "down"))
mine = F.relu(x @ up.T) @ down.T
print(plain.name)
print(f"up {tuple(up.shape)}, down {tuple(down.shape)}: {up.numel() + down.numel():,} weights")
print(f"largest difference from the layer's own output: {(mine - y).abs().max():.0e}")

# %% [markdown]
# $8d^2$ weights are two thirds of this block, for attention with a key and a value for each head has $4d^2$. Whether
# they are two thirds of a *model* depends on the rest of it: shared keys and values make attention smaller, a large
# vocabulary makes its tables larger.
#
# **Predict.** In which of these is the share smallest?


# %%
def share(name: str) -> list[str]:
    """How much of a dense released model lies in its feed-forward networks: of its blocks, and of the whole."""
    config, counted = RELEASED[name].config, morph.count(RELEASED[name].config)
    matrices = 3 if isinstance(config.feed_forward, GatedMLP) else 2
    weights = config.n_layers * matrices * config.d_model * config.feed_forward.width
    return [name, f"{weights / counted.active.without_embeddings:.0%}", f"{weights / counted.total:.0%}"]


dense = [name for name, model in RELEASED.items() if isinstance(model.config.feed_forward, MLP | GatedMLP)]
show_table(["model", "of its blocks", "of the model"], [share(name) for name in dense])

# %% [markdown]
# "Two thirds of the parameters" holds for blocks in which every head has a key and a value of its own, as in GPT-2 and
# Llama 2. Where heads share them it is more, and of a small model with a large vocabulary it is less than half.
#
# ## What a bend silences
#
# ReLU turns whatever is below zero into exactly zero. At the start that is half of the hidden features: the weights
# are drawn around zero. **Predict** what training does to the half. And how much of the same inputs would GELU or
# SiLU silence?

# %%
z = x @ up.T
(fresh,) = siblings(plain, [plain.config])  # the same model as it was before training
z_fresh = watch(fresh, layer=1)[0] @ fresh.model.blocks[1].feed_forward.up.weight.detach().T

rows = []
for name, bend in {"ReLU": F.relu, "GELU": F.gelu, "SiLU": F.silu}.items():
    for words, inputs in (("untrained", z_fresh), ("trained", z)):
        out = bend(inputs)
        zero = (out == 0).float().mean()
        little = (out.abs() < inputs.abs() / 10).float().mean()
        below = out[inputs < 0].square().sum() / out.square().sum()
        rows.append([name, words, f"{zero:.0%}", f"{little:.0%}", f"{below:.1%}"])
show_table(["bend", "inputs from", "exactly zero", "cut to under a tenth", "of what passes, from below zero"], rows)

# %% [markdown]
# Trained with ReLU, the network learned to keep most of its features at zero for any one token. GELU and SiLU leave
# nothing at exactly zero; SiLU lets a good deal of what lies below zero pass, with its sign. (The last two bends are
# put on inputs that were trained for ReLU. The lab trained each on its own; its table is below.)
#
# Two things often said of GELU and SiLU:
#
# - *SiLU is cheaper.* One sigmoid against an error function, true for the function itself. But a token needs one bend
#   for each hidden feature and $2d$ multiply-adds beside it: at $d = 4096$ thousands to one. What it costs in time is
#   mostly whether it is fused with the product around it.
# - *They are the same.* Their curves differ by at most 0.19, at inputs of about ±2. Whether models differ is a
#   question for measurements.

# %%
grid = torch.linspace(-5, 5, 2001)
gap = (F.gelu(grid) - F.silu(grid)).abs()
print(f"largest difference {gap.max():.2f}, at {grid[gap.argmax()].abs():.2f} from zero")


def draw(figure):
    left, right = figure.subplots(1, 2)
    for name, bend in {"ReLU": F.relu, "GELU": F.gelu, "SiLU": F.silu}.items():
        left.plot(grid[600:1400], bend(grid)[600:1400], label=name)
    left.set_title("three bends")
    left.legend()
    right.hist(z.flatten().numpy(), 60, range=(-5, 5), density=True, histtype="step", label="trained with ReLU")
    right.hist(z_fresh.flatten().numpy(), 60, range=(-5, 5), density=True, histtype="step", label="untrained")
    right.set_title("what goes into the bend, layer 1")
    right.legend()


show_picture(
    draw,
    alt="Left, ReLU, GELU and SiLU from -2 to 2: GELU and SiLU dip below zero. Right, histograms of the inputs: "
    "centred on zero untrained, shifted to the left when trained.",
)

# %% [markdown]
# ## The third matrix
#
# $$\mathrm{SwiGLU}(x) = W_{\text{down}}\big(\underbrace{\mathrm{SiLU}(W_{\text{gate}}\,x)}_{\text{gate}} \odot
#   \underbrace{W_{\text{up}}\,x}_{\text{value}}\big)$$
#
# Two linear maps read the same token; the bent one multiplies the other, feature by feature. To hold as many weights
# as before, $3\,d\,d_{\text{ff}} = 8d^2$, the hidden width becomes $\tfrac{8}{3}d$.

# %%
gated = subject("windows")
network = gated.model.blocks[2].feed_forward
x, y, texts = watch(gated, layer=2)
W_gate, W_up, W_down = (getattr(network, name).weight.detach() for name in ("gate", "up", "down"))

gate, value = x @ W_gate.T, x @ W_up.T
hidden = F.silu(gate) * value
print(gated.name)
print(f"largest difference from the layer's own output: {(hidden @ W_down.T - y).abs().max():.0e}")
print(f"weights: 3 × {W_gate.numel():,} = {3 * W_gate.numel():,}, and 8d² = {8 * gated.config.d_model**2:,}")

# %% [markdown]
# ## One feature, when another is there
#
# In every channel the product is large only where gate *and* value are. Let us find the channel in which that shows
# most. For each channel sort the tokens into four cases: the value is there (larger than its RMS) or not, the gate is
# open (above zero) or not. Of the channels in which each case holds at least a twentieth of the tokens, we take the
# one with the largest *contrast*: the mean size of the product where both are there, over the larger mean of the two
# cases where one is missing.
#
# **Predict.** The same search in the untrained model: will it find nothing, or also a channel with some contrast?


# %%
def contrasts(gate: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each channel: the contrast (0 where a case is too rare), and which tokens are in each of the four cases."""
    there, is_open = value.abs() > value.square().mean(0).sqrt(), gate > 0
    cases = torch.stack([there & is_open, there & ~is_open, ~there & is_open, ~there & ~is_open])  # (4, T, F)
    size = (F.silu(gate) * value).abs()
    mean = (size * cases).sum(1) / cases.sum(1).clamp(min=1)
    contrast = mean[0] / torch.maximum(mean[1], mean[2])
    return torch.where(cases.float().mean(1).amin(0) > 0.05, contrast, 0), cases


contrast, cases = contrasts(gate, value)
channel = int(contrast.argmax())
size = hidden[:, channel].abs()
rows = []
for words, which in zip(("value and gate", "value, gate shut", "gate, no value", "neither"), cases[:, :, channel]):
    at = torch.where(which)[0]
    examples = " ".join(f"`{texts[i]}`" for i in at[:: max(1, len(at) // 3)][:3])
    rows.append([words, f"{len(at):,}", f"{size[at].mean():.2f}", examples])
print(f"channel {channel}, contrast {contrast.max():.1f}; the median channel has {contrast[contrast > 0].median():.1f}")
show_table(["there", "tokens", "mean size of the product", "the text up to some of them"], rows)

# %%
(fresh,) = siblings(gated, [gated.config])
x_fresh = watch(fresh, layer=2)[0]
before = fresh.model.blocks[2].feed_forward
untrained, _ = contrasts(x_fresh @ before.gate.weight.detach().T, x_fresh @ before.up.weight.detach().T)
for words, found in (("untrained", untrained), ("trained", contrast)):
    print(f"{words:10} largest contrast {found.max():5.1f}, median {found[found > 0].median():.1f}")

# %% [markdown]
# Read both lines. Some contrast is in the arithmetic: multiply any two numbers, and the product is large where both
# are. What training added is the rest. Whether the two features *mean* something is not settled by this; look at the
# texts and form your own guess.
#
# ## What two matrices can do instead
#
# A gate computes a product. With two channels it does so exactly, for
# $\mathrm{SiLU}(a) - \mathrm{SiLU}(-a) = a$: you will write that as an exercise. A network with two matrices and ReLU
# has to lay a product together from straight pieces, since $ab = \tfrac14\big((a+b)^2 - (a-b)^2\big)$ and a square
# can be followed by a chain of ReLUs.
#
# **Predict.** With $n$ hidden units, how does the largest error on $[-1, 1]^2$ fall: like $1/n$, $1/n^2$, or faster?


# %%
def square(s: torch.Tensor, knots: torch.Tensor) -> torch.Tensor:
    """Piecewise linear through s² at the knots from 0 on, for s and -s alike: one ReLU a knot and sign."""
    steps = torch.diff(knots.square()) / torch.diff(knots)  # slopes between knots
    bends = torch.diff(steps, prepend=torch.zeros(1))  # what each ReLU adds to the slope
    return (F.relu(s.abs()[..., None] - knots[:-1]) * bends).sum(-1)


a, b = torch.meshgrid(torch.linspace(-1, 1, 101), torch.linspace(-1, 1, 101), indexing="ij")
rows = []
for pieces in (1, 2, 4, 8, 16, 32):
    knots = torch.linspace(0, 2, pieces + 1)
    product = (square(a + b, knots) - square(a - b, knots)) / 4
    rows.append([f"{4 * pieces}", f"{(product - a * b).abs().max():.4f}"])
twice = F.silu(a) * b + F.silu(-a) * -b
rows.append(["2, gated", f"{(twice - a * b).abs().max():.0e}"])
show_table(["hidden units", "largest error of ab"], rows)

# %% [markdown]
# Four times the units, a sixteenth of the error; the gate has none. So "a two-matrix network must approximate it" is
# right for ReLU, with two conditions worth knowing:
#
# - **For yes and no, a sum does.** If $a$ and $b$ are 0 or 1, $\mathrm{ReLU}(a + b - 1)$ is their *and*, exactly, in
#   one unit (which needs a bias, and models today have none; a feature that is always on serves as one).
# - **It is the bend, not the third matrix.** With $\phi(z) = \mathrm{ReLU}(z)^2$ (Primer, 2021) two matrices multiply
#   exactly as well: four units give $(a+b)^2$ and $(a-b)^2$.
#
# What remains of the argument is one of degree: a gate gets a product from every channel and pays for it with a third
# matrix. Whether that is worth it at equal size is a question for training.
#
# ## How wide
#
# $\tfrac83 d$ need not be whole, and hardware likes multiples. Llama's code multiplies by a factor (1 in Llama 2 7B,
# 1.3 in Llama 3 8B) and rounds up.


# %%
def row(name: str) -> list[str]:
    config, ffn = RELEASED[name].config, RELEASED[name].config.feed_forward
    third = f"{8 * config.d_model / 3:,.2f}" if isinstance(ffn, GatedMLP) else ""
    bend = {"silu": "SiLU", "gelu-tanh": "GELU"}[ffn.activation]
    kind = f"{bend}, {'gated' if isinstance(ffn, GatedMLP) else 'two matrices'}"
    return [name, kind, f"{config.d_model:,}", third, f"{ffn.width:,}", f"{ffn.width / config.d_model:.2f}"]


show_table(["model", "network", "d", "8d/3", "hidden width", "over d"], [row(name) for name in dense])

# %% [markdown]
# Two of them follow 8/3, the rest chose: more width in the network, and less elsewhere. It is a convention for
# comparing at equal size and no law; experts of a mixture are another matter again (notebook 07).
#
# ## SwiGLU or GEGLU
#
# Gemma bends its gates with GELU, most others with SiLU. Put GELU into our model, trained with SiLU, and change
# nothing else.
#
# **Predict** the loss, in bits per byte: a tenth more, twice as much?

# %%
config = gated.config
other = replace(config.feed_forward, activation="gelu")
changed = morph.build(replace(config, feed_forward=other)).eval()
changed.load_state_dict(gated.model.state_dict())
ids = gated.ids(129, TEXTS)
with torch.no_grad():
    for words, model in (("SiLU, as trained", gated.model), ("GELU, put in", changed)):
        loss = model.loss(ids[:, :-1], ids[:, 1:]).cross_entropy / torch.log(torch.tensor(2.0))
        print(f"{words:17} {loss:.3f} bits per byte of our passage")
alike = F.cosine_similarity(y, (F.gelu(gate) * value) @ W_down.T, dim=-1)
print(f"outputs of layer 2: mean cosine {alike.mean():.3f}, smallest of any token {alike.min():.3f}")

# %% [markdown]
# ## What the lab measured
#
# Five small models, alike but for this network and of as many weights each, every one at its own best of three
# learning rates. All that was claimed beforehand, and what came of it:

# %%
show_findings("gates")

# %% [markdown]
# *Within noise* means that the claimed size lies inside the interval: so many seeds cannot tell, in either direction.
# It is not evidence of equality. Shazeer's gain at equal size, after much longer training, was two to three percent of
# the loss; of some three bits that would be 0.06 to 0.09. Hold it against the intervals of the claims about gates.
#
# ## Where the field has not settled
#
# - **Which bend.** SiLU in most, GELU in Gemma, ReLU² in some; measured differences are small where they are found
#   at all, and all of them depend on the rest.
# - **How wide.** From 8/3 to more than 5 in the table above, at other depths and head counts.
# - **Why a gate helps.** Shazeer's paper (2020) offers no explanation. The product is one; that a gate also
#   changes how gradients and sizes behave is another. The lab's table does not separate them.
# - **Whether zeros are worth having.** Exact zeros can be skipped, which SiLU gave away; work on sparse activation
#   brings ReLU back for that.
#
# **What couples to what.** Bend and initial weights: each bend shrinks what passes by another factor, and the way down
# is drawn larger to make up for it. Gate and width: at equal weights a gate costs a third of the hidden features.
# Gate and precision: two middling factors make a large product, so gpt-oss clamps both.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · Llama's width.** Take two thirds of $4d$, cut to a whole number; multiply by `factor`, cut to a whole number;
# round up to a multiple of `multiple`. Llama 2 7B has `factor` 1 and `multiple` 256, Llama 3 8B 1.3 and 1024.


# %%
# Exercise 1 · the hidden width of a Llama
def hidden_width(d: int, factor: float, multiple: int) -> int: ...


# %%
checks.hidden_width(hidden_width)

# %% [markdown]
# **2 · A product, exactly.** Make the three matrices of a SwiGLU network without biases that reads $(a, b)$ and
# answers $a \cdot b$: `W_gate` and `W_up` (F, 2), `W_down` (1, F). Two channels are enough.

# %%
# Exercise 2 · two channels that multiply
my_gate = ...
my_up = ...
my_down = ...

# %%
checks.product(my_gate, my_up, my_down)

# %% [markdown]
# **3 · How many channels work?** For hidden features (T, F), count for each token the fewest channels that together
# hold at least `share` of the sum of squares. Return (T,) whole numbers.


# %%
# Exercise 3 · the fewest channels with most of the signal
def working(hidden: torch.Tensor, share: float) -> torch.Tensor: ...


# %%
checks.working(working)

# %% [markdown]
# With your function: how many channels hold nine tenths of the signal, gated and not, trained and not? (The cell says
# nothing until exercise 3 is done.)

# %%
if checks.working(working).passed:
    hidden_fresh = F.silu(x_fresh @ before.gate.weight.detach().T) * (x_fresh @ before.up.weight.detach().T)
    rows = []
    for words, features in {
        "ReLU, untrained": F.relu(z_fresh), "ReLU, trained": F.relu(z),
        "SwiGLU, untrained": hidden_fresh, "SwiGLU, trained": hidden,
    }.items():  # fmt: skip
        count, width = working(features, 0.9).float().mean(), features.shape[1]
        rows.append([words, f"{count:.0f} of {width}", f"{count / width:.0%}"])
    display(show_table(["network", "channels with nine tenths, mean over tokens", "share"], rows))

# %% [markdown]
# ## Further reading
#
# - *Attention Is All You Need*, Vaswani et al., 2017: two matrices, ReLU, four times as wide.
# - *Gaussian Error Linear Units*, Hendrycks and Gimpel, 2016; *Searching for Activation Functions*, Ramachandran,
#   Zoph and Le, 2017: SiLU under the name Swish.
# - *Language Modeling with Gated Convolutional Networks*, Dauphin et al., 2016: the gated linear unit.
# - *GLU Variants Improve Transformer*, Shazeer, 2020: gates at equal size.
# - *Primer: Searching for Efficient Transformers for Language Modeling*, So et al., 2021: ReLU squared.
# - *LLaMA: Open and Efficient Foundation Language Models*, Touvron et al., 2023: the gate with SiLU in wide use.
