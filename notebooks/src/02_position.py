# %% [markdown]
# # 02 · Position
#
# Attention compares every token with every other and, left to itself, could not care less in which order
# they came. Something has to tell it. In 2017 that was a vector added to the input; today most models turn
# their queries and keys instead, and some leave the telling to the mask.
#
# **After this notebook you can**
#
# - show, by measuring, that attention without a mask has no order, and that the causal mask brings some;
# - derive rotary position from one requirement, and write it in a few lines;
# - read a model's base, head width and trained length, and say which of its pairs will see new angles in a
#   longer text;
# - stretch a trained model to a text four times longer, without training, and measure what that buys.
#
# It needs no network and no GPU: two CPU cores are enough.

# %%
import math
import os
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F

import morph
from morph.checks import position as checks
from morph.config import LinearRope, NtkRope, Rope, YarnRope
from morph.nn import position
from morph.story.subject import subject
from morph.train import Sweep, load_corpus
from morph.widgets import Stepper

QUICK = os.environ.get("MORPH_QUICK") == "1"  # fewer texts, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain

# %% [markdown]
# ## Twelve frames
#
# The figure is measured on a small model that has read Python source. Its numbers are those of live queries
# and keys.
#
# **Predict before you step.** Frame 10 asks whether a query's score with a key falls as they move apart.
# Draw the curve that you expect for a trained layer. And of twelve clocks, how many make a full turn in a
# text of 128 tokens?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("rope")

# %% [markdown]
# ## Attention has no order
#
# For one head, with rows of $Q$, $K$, $V$ for the tokens,
#
# $$A(X) = \operatorname{softmax}\!\left(\frac{QK^\top}{\sqrt{d}}\right) V .$$
#
# Shuffle the tokens with a permutation matrix $P$: the scores become $P\,QK^\top P^\top$, the softmax works
# along rows, and $P^\top P = 1$ takes the columns' shuffle back. So $A(PX) = P\,A(X)$: every token gets
# what it had before. A mask does not move with the tokens, so with a mask this fails.
#
# **Predict.** How large is the largest difference between $A(PX)$ and $P\,A(X)$ without a mask, and with
# one?


# %%
def attention(x, W, causal):
    q, k, v = (x @ w for w in W)
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
    return scores.softmax(-1) @ v


x = torch.randn(10, 16, dtype=torch.float64)  # ten tokens
W = [torch.randn(16, 16, dtype=torch.float64) / 4 for _ in range(3)]
order = torch.randperm(10)
for causal in (False, True):
    difference = attention(x[order], W, causal) - attention(x, W, causal)[order]
    print(f"{'causal mask' if causal else 'no mask':11}: {difference.abs().max().item():.1e}")

# %% [markdown]
# None, but for rounding; and a lot. That is why a decoder without any position can learn at all:
# token $m$ sees $m$ others before it, and the mask says which. It is also why the first answer of 2017 was
# needed: an encoder has no mask.

# %% [markdown]
# ## First answer: add a vector
#
# Place $m$ gets a row of waves, each slower than the one before, and the row is added to the token's
# embedding:
#
# $$p_{m,2i} = \sin(m\,b^{-2i/d}), \qquad p_{m,2i+1} = \cos(m\,b^{-2i/d}).$$


# %%
def waves(length, width, base=10_000.0):
    speeds = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), speeds)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


p = waves(64, 96)
print(f"difference from the project's table: {(p - position.sinusoid_table(64, 96, 10_000.0)).abs().max().item():.0e}")
meeting = p @ p.T / 48  # dot products; a row with itself gives 1
print("row 10 meets row 7: ", round(meeting[10, 7].item(), 4))
print("row 60 meets row 57:", round(meeting[60, 57].item(), 4))

# %% [markdown]
# Two rows meet by their distance alone, since
# $\sin\alpha\sin\beta + \cos\alpha\cos\beta = \cos(\alpha - \beta)$. That is the good idea in it. But no
# layer ever meets the rows alone. It meets $W_q(x_m + p_m)$ and $W_k(x_n + p_n)$, four products of which
# only one is about places, and that one has $W_q^\top W_k$ in the middle.
#
# **Predict.** A query and a key of fixed content, three tokens apart: by how much does their score change
# as both move from the start of a text to place 60?

# %%
x, y = torch.randn(2, 96, dtype=torch.float64)
Wq, Wk = torch.randn(2, 96, 24, dtype=torch.float64) / math.sqrt(96)


def added(m, n):
    return ((x + p[m]) @ Wq) @ ((y + p[n]) @ Wk) / math.sqrt(24)


print("scores three apart:", [round(added(n + 3, n).item(), 2) for n in (0, 20, 40, 60)])

# %% [markdown]
# The same two tokens at the same distance, and another score at every place. A model can learn to live with
# that, and models did. GPT-2 went further and *learned* the rows. That has an end, literally. (A *fork* is one of
# the project's models with one part exchanged, here its position.)

# %%
learned = morph.build(morph.fork("learned-position", size="nano"))
rows = learned.config.position.length
try:
    learned(torch.zeros(1, rows + 1, dtype=torch.long))
except morph.MorphError as error:
    print(error)

# %% [markdown]
# ## The requirement
#
# Instead of asking what to add, say what is wanted. Let $f(q, m)$ be the query as it is used at place $m$.
# The score shall depend on the two contents and the offset, and on nothing else:
#
# $$\langle f(q, m),\, f(k, n)\rangle = g(q, k, m - n).$$
#
# In a plane there is an answer that everybody knows: turn. Let $R_\alpha$ turn by the angle $\alpha$, and
# take $f(q, m) = R_{m\theta}\,q$. A turn leaves lengths and angles alone, so
# $R_\alpha^\top R_\beta = R_{\beta - \alpha}$, and
#
# $$\langle R_{m\theta}\,q,\, R_{n\theta}\,k\rangle
#   = q^\top R_{m\theta}^\top R_{n\theta} k = q^\top R_{(n-m)\theta} k .$$


# %%
def R(angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


theta = 0.215
q, k = torch.randn(2, 2, dtype=torch.float64)
for m, n in ((7, 4), (107, 104), (100_007, 100_004)):
    print(f"m = {m:7,}, n = {n:7,}: {((R(m * theta) @ q) @ (R(n * theta) @ k)).item():+.12f}")

# %% [markdown]
# The same number to twelve digits, however far both have slid. That takes exact angles: near
# 20,000, two neighbouring bf16 numbers lie 128 apart, so tables of angles are kept in fp32 or better.

# %% [markdown]
# ## Many pairs, many speeds
#
# A head has more than two features. Rotary position takes them in pairs, and at place $m$ pair $i$ is turned by
# the angle $m\theta_i$. The speeds are those of the waves above: $\theta_i = b^{-2i/d}$. Which features make
# a pair is a convention. Here, as in Llama, feature $i$ goes with feature $i + d/2$; other families pair
# neighbours. Weights trained for one are wrong for the other.
#
# We try it on a trained layer. A trace keeps what is computed inside a model, by name. This model's layers norm
# queries and keys before they turn them, so we do that too.


# %%
def rope(x, base=10_000.0):  # x is (heads, S, d)
    S, d = x.shape[-2:]
    speeds = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.outer(torch.arange(S, dtype=torch.float64), speeds)
    a, b = x.double().chunk(2, dim=-1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), dim=-1)


model = subject("windows").model
ids = subject("windows").ids(128)
layer = model.blocks[3].attention
with torch.no_grad(), morph.trace(model) as t:
    model(ids)
plain = layer.q_norm(t["blocks.3.attention.projected_queries"][0]).detach()
mine, theirs = rope(plain), t["blocks.3.attention.queries"][0]
print("largest difference from the model's own queries:", f"{(mine - theirs).abs().max().item():.1e}")

# %% [markdown]
# That is all of it: no parameter, nothing in the residual stream, and it is said again in every layer
# instead of being remembered from the first. The values are not turned; places decide who is read, not what
# is read.

# %% [markdown]
# ## Clocks
#
# A pair is a clock hand. One full turn of pair $i$ takes $\lambda_i = 2\pi/\theta_i = 2\pi\,b^{2i/d}$
# tokens.
#
# **Predict.** For a head of 128 features and $b = 10^4$: how many tokens does the slowest pair take? Is it
# $2\pi b$, about 63,000?

# %%
for name, base, length, width in (
    ("this model", 1e4, 128, 24), ("Llama 2", 1e4, 4096, 128), ("Llama 3", 5e5, 8192, 128), ("Qwen3", 1e6, 32768, 128),
):  # fmt: skip
    turn = position.wavelengths(Rope(base=base), width)
    full = int((turn <= length).sum())
    print(f"{name:10} slowest turn {turn[-1]:9,.0f} tokens; {full:2} of {len(turn)} come round in {length:,}")

# %% [markdown]
# The last exponent is $(d-2)/d$ and not 1, so it takes less: the row of Llama 2 is this case. A larger base leaves
# the fast clocks as they are and slows the slow ones: in both later models *fewer* come round than in Llama 2,
# although the texts grew.
#
# That sounds like a loss and need not be one. A clock that has come round in training has shown all of its
# angles: at any later place its hand stands somewhere familiar. A clock that never came round has shown a part
# of its dial, and a longer text leads its hand into the rest. With a larger base these hands creep, so the same
# longer text leads them a shorter way into the unknown.

# %% [markdown]
# ## Does the score fall with distance?
#
# It is often said that rotation makes scores decay with distance. Take every query and every key of a
# trained layer, set each pair at each offset, and average: what is left is what rotation does, freed from
# which tokens happen to stand where.
#
# **Predict** the column of numbers: falling, rising, or neither?

# %%
keys = layer.k_norm(t["blocks.3.attention.projected_keys"][0]).detach()
a, b = (z[0, :, :12].double() + 1j * z[0, :, 12:].double() for z in (plain, keys))  # head 0; a pair is a complex number
mean = (a[:, None] * b.conj()[None]).mean((0, 1))  # the average product of each pair
speeds = position.frequencies(model.config.position, 24)
print("offset  mean score of head 0")
for offset in (0, 1, 4, 8, 16, 32, 48, 64, 96, 127):
    print(f"{offset:6}  {(mean * torch.exp(1j * offset * speeds)).real.sum().item() / math.sqrt(24):10.2f}")

# %% [markdown]
# Near is preferred, and then it is a wave: a sum of cosines, each with the weight that training gave it.
# For special contents (all pairs alike, all pointing one way) such a sum does fall off on average. Nothing
# makes a trained layer's contents special in this way, and a layer that wants to look far back can.

# %% [markdown]
# ## A live experiment: past the trained length
#
# The recorded model `deep` has 24 narrow layers, all of which see everything, and was trained on texts of
# 64 tokens. Give it 256, and count bits per byte by place. Then change nothing but the *speeds*, and use
# the same weights:
#
# - `linear`: all speeds divided by 4, as if places were squeezed into the trained range;
# - `ntk`: the base enlarged until the slowest pair is 4 times slower;
# - `yarn`: slow pairs divided by 4, fast ones kept, a ramp between, and a slightly sharper softmax.
#
# **Predict** three things: where plain RoPE breaks (at 64, or later?), which of the others is best inside
# the trained length, and which beyond.

# %%
corpus = load_corpus()
deep = subject("deep")
trained = deep.config.context_length
length, count = 4 * trained, 6 if QUICK else 32
starts = torch.linspace(0, len(corpus.validation) - length - 2, count).long()
texts = torch.stack([torch.from_numpy(corpus.validation[i : i + length + 1].astype("int64")) for i in starts])


def bits_by_place(model, texts):
    with torch.no_grad():
        logits = model(texts[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten(), reduction="none")
    return loss.view(len(texts), -1).mean(0) / math.log(2)


def with_position(model, position):
    """The same weights, turned in another way."""
    other = morph.build(replace(model.config, position=position))
    other.load_state_dict(model.state_dict())
    return other.eval()


WAYS = {
    "rope": Rope(),
    "linear": LinearRope(factor=4.0),
    "ntk": NtkRope(factor=4.0),
    "yarn": YarnRope(factor=4.0, original_length=trained),
}
edges = [0, 32, 64, 96, 128, 192, 256]
print(f"{'places':8}" + "".join(f"{a:>6}–{b:<4}" for a, b in pairwise(edges)))
for name, way in WAYS.items():
    found = bits_by_place(with_position(deep.model, way), texts)
    print(f"{name:8}" + "".join(f"{found[a:b].mean().item():8.2f}   " for a, b in pairwise(edges)))

# %% [markdown]
# Read it by rows. Plain RoPE does not break at the trained length but somewhat beyond, when slow hands have
# moved far enough into the unseen; then it is lost. Linear squeezing never breaks, and costs from the first
# places on: it quarters the angles between neighbours too, which the model relies on most. The other two keep
# the fast clocks. NTK's middle clocks still run out before the end. YaRN pays a little inside the trained length
# and holds beyond it, with not one step of training.
#
# These are short texts, and one small model. Large models are trained some steps more after such a change,
# and that closes most of the gap.
#
# **Predict.** The model of the figure, `windows`, was trained on 128 tokens. Three of its four layers see
# 32 tokens, one sees all, and nothing is stretched. What happens to it at 512?

# %%
few = subject("windows")
starts = torch.linspace(0, len(corpus.validation) - 514, 4 if QUICK else 24).long()
texts = torch.stack([torch.from_numpy(corpus.validation[i : i + 513].astype("int64")) for i in starts])
found = bits_by_place(few.model, texts)
for a, b in ((0, 128), (128, 256), (256, 384), (384, 512)):
    print(f"places {a:3} to {b:3}: {found[a:b].mean().item():.2f} bits per byte")

# %% [markdown]
# Nothing breaks: compare with what `deep` lost. A window never shows an offset above 31, whatever the length of
# the text, and one layer in four can be wrong about far tokens without much harm: the others do not ask it. Here
# is a coupling that no single change shows: **windows make a rotation's trained length matter less.** It is also
# the reason for giving the two kinds of layers two bases, or for leaving position out of the global ones.

# %% [markdown]
# ## What it was worth here
#
# Of the fourteen steps of notebook 00, rotation is the fourth. Its table of trained models says what the step did
# to bits per byte, with the half-width of the 95 % interval over seeds:

# %%
gap = Sweep.reference().difference(4)
print(f"rope: {gap.mean:+.3f} ± {gap.interval:.3f} bits per byte ({gap.verdict})")

# %% [markdown]
# ## Where the field has not settled
#
# - **Which base.** From 10⁴ to 10⁶ and beyond, chosen with the length in mind. Gemma 3 uses two: 10⁴ where
#   layers see a window, 10⁶ where they see all.
# - **How much of a head turns.** All of it in Llama, half in GLM-4.5, a quarter in Qwen3-Next. What does
#   not turn can match by content at any distance.
# - **Whether every layer needs it.** Command-A and Trinity turn in their window layers and leave position
#   out of the global ones. SmolLM3 has no windows at all and leaves it out of every fourth layer. Mechanism
#   and cause are still debated: a mask does tell order, as you measured, and how models use it is less
#   clear.
# - **How to stretch.** YaRN is common (Qwen, DeepSeek, gpt-oss, Olmo 3 in its full layers), Llama 3.1 has
#   bands of its own, Gemma 3 divides by eight. Which is best depends on how much training follows.
#
# ## Where common accounts are corrected
#
# - *Pair 0 rotates once per token.* It turns by one radian; a full turn takes 6.28 tokens.
# - *The last pair takes* $2\pi b$ *tokens.* It takes $2\pi b^{(d-2)/d}$, as printed under *Clocks*.
# - *Rotation makes scores decay.* Not in the trained layer that the figure and the cell above measure.
# - *SmolLM3 drops position from its global layers and keeps it in the local ones.* It has no local layers.
# - *A bias on the keys is redundant.* It shifts all of a query's scores alike, and so drops out of the
#   softmax, only where nothing turns: with rotation the shift depends on the offset.
#
# ## What couples to this
#
# - **The cache** holds keys as turned. A key's place is fixed when it is written; to move a text, its keys
#   must be turned again.
# - **QK-norm** stands before the turn, which keeps lengths, so it bounds turned scores as well.
# - **Latent attention** cannot turn a key that it never writes out: it carries a small extra key that
#   turns, shared by all heads.
# - **Windows** cap the offsets, as you saw, and so decide which clocks matter.
# - **Delta layers** (step 14) know order from their recurrence and turn nothing.

# %% [markdown]
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer
# is open.
#
# **1 · Speeds.** The angle per token of each pair, fastest first, from a head's width and a base.


# %%
# Exercise 1 · speeds of a head's pairs
def speeds_of(width: int, base: float): ...


# %%
checks.speeds(speeds_of)

# %% [markdown]
# **2 · Turn.** Rows $x$ of shape $(S, d)$, row $m$ at place $m$: turn each pair $(i, i + d/2)$ by $m$ times
# its speed.


# %%
# Exercise 2 · rows turned by their places
def turned(x: torch.Tensor, speeds: torch.Tensor): ...


# %%
checks.rotate(turned)

# %% [markdown]
# **3 · A base for a length.** You want the slowest pair of a head of width $d$ to make exactly one turn in
# a text of $L$ tokens, so that every angle of every pair is seen. Which base does that?


# %%
# Exercise 3 · the base whose slowest pair turns once in a text
def base_for(width: int, length: float): ...


# %%
checks.base_for(base_for)

# %% [markdown]
# **4 · Stretch a model.** From `deep.config`, make a config whose position shows no new angle at four times
# the trained length, in any pair, and leaves the fastest pair as it was. (`replace` changes a field of a
# frozen record.)

# %%
# Exercise 4 · a position for texts four times longer
longer = ...

# %%
checks.stretched(longer, deep.config)

# %% [markdown]
# ## Further reading
#
# - *Attention Is All You Need*, Vaswani et al., 2017: the added waves.
# - *RoFormer: Enhanced Transformer with Rotary Position Embedding*, Su et al., 2021: the requirement and
#   the rotation.
# - *Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation*, Press et al.,
#   2021: a third answer, a penalty on distance (`morph.fork("alibi")`).
# - *Extending Context Window of Large Language Models via Positional Interpolation*, Chen et al., 2023: the
#   linear way.
# - *YaRN: Efficient Context Window Extension of Large Language Models*, Peng et al., 2023.
# - *The Impact of Positional Encoding on Length Generalization in Transformers*, Kazemnejad et al., 2023:
#   no position.
# - *Round and Round We Go! What Makes Rotary Positional Encodings Useful?*, Barbero et al., 2024: on decay
#   and on which pairs trained models use.
