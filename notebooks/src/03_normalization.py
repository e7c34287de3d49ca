# %% [markdown]
# # 03 · Normalization and its place
#
# A norm is the smallest organ of a block: a division, and a gain for each feature. Two questions about it are often
# taken for one. *What does it compute?* Here LayerNorm became RMSNorm. *Where does it stand?* Here the norm left the
# stream for the branches. And in the end it turned up where nobody had put it before, on queries and keys.
#
# **After this notebook you can**
#
# - say what RMSNorm leaves out, and turn a trained LayerNorm model into an RMSNorm model that gives the same logits;
# - count the sums and exchanges of a norm, and say when "half as many" is true and when it is not;
# - explain what a norm does to a gradient, and measure how hard one optimizer step hits a deep model;
# - bound an attention score, and say what that bound promises and what it does not.
#
# Reading and predicting take about an hour. It needs no network and no GPU: on two CPU cores all cells together
# compute for less than a minute.

# %%
import math
import os
from dataclasses import replace

import torch
import torch.nn.functional as F

import morph
from morph.checks import normalization as checks
from morph.config import Attention, FullWidthRMSNorm, LayerNormNoBias, RMSNorm
from morph.lab import norms, sharded
from morph.lab.needs import BYTE_FREQUENCIES
from morph.lab.result import recorded
from morph.nn.norm import build_qk_norm
from morph.story.released import RELEASED
from morph.story.subject import subject
from morph.train import load_corpus
from morph.train.data import training_offsets, windows
from morph.widgets import Stepper, show_findings, show_picture, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # a shorter training and fewer seeds, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain

# %% [markdown]
# ## Eleven frames
#
# Two frames norm one live vector in both ways. Four put the norm in four places of the same model, two compare what
# that does to the gradient and to the stream. Then come recorded trainings, and the norm on queries and keys.
#
# **Predict before you step.** (a) How alike are the results of LayerNorm and RMSNorm on a vector of a trained model:
# what is their cosine? (b) After 48 norms *on* the stream, what is left of the token's embedding? (c) Queries and keys
# both become 16 times larger. What happens to the largest score, and to how many tokens a query looks at?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("norm")

# %% [markdown]
# ## What a norm computes
#
# With mean $\mu$ and spread $\sigma$ (the standard deviation) over the $d$ features of one token:
#
# $$\mathrm{LN}(x) = \gamma \odot \frac{x-\mu}{\sqrt{\sigma^2+\epsilon}} + \beta, \qquad
#   \mathrm{RMS}(x) = \gamma \odot \frac{x}{\sqrt{\tfrac1d\sum_j x_j^2+\epsilon}}$$
#
# Since $\tfrac1d\sum_j x_j^2 = \mu^2 + \sigma^2$, LayerNorm is RMSNorm of $x - \mu$, and the two differ by $\mu$ alone.
# How much? Without gains and shift, the cosine of both results is that of $x$ with $x-\mu$:
#
# $$\cos = \frac{\sigma}{\sqrt{\mu^2+\sigma^2}}$$
#
# So everything hangs on $|\mu|/\sigma$. **Predict.** If the features of a token had nothing to do with each other, how
# large would that ratio be, on average, for $d = 48$? And how large is it in a trained model, layer by layer?

# %%
deep = subject("deep")
print(deep.name)
d, layers = deep.config.d_model, deep.config.n_layers
ids = deep.ids(64)


def states(model: morph.Decoder) -> list[torch.Tensor]:
    """The stream (T, d) before the first layer and after each."""
    with torch.no_grad(), morph.trace(model) as seen:
        model(ids)
    return [seen["stream"][0], *(seen[f"blocks.{layer}.stream"][0] for layer in range(layers))]


def mean_over_spread(x: torch.Tensor) -> torch.Tensor:
    """|μ| / σ of every token."""
    return x.mean(-1).abs() / x.std(-1, correction=0)


trained, fresh = states(deep.model), states(morph.build(deep.config, seed=0).eval())
x = trained[12]
ln, rms = F.layer_norm(x, (d,)), F.rms_norm(x, (d,))
formula = 1 / (1 + mean_over_spread(x) ** 2).sqrt()
print(f"before layer 13: cosine {F.cosine_similarity(ln, rms).mean():.4f}, by the formula {formula.mean():.4f}")
print(f"LayerNorm is RMSNorm of x - μ, to {(ln - F.rms_norm(x - x.mean(-1, keepdim=True), (d,))).abs().max():.0e}")

# %%
series = {
    "trained": [mean_over_spread(x).mean().item() for x in trained],
    "as initialized": [mean_over_spread(x).mean().item() for x in fresh],
}
chance = math.sqrt(2 / math.pi / d)  # mean of |N(0, 1/d)|


def draw(figure) -> None:
    axes = figure.subplots()
    for (name, ys), style in zip(series.items(), ("-o", "--s")):
        axes.plot(ys, style, label=name, markersize=3)
    axes.axhline(chance, linestyle=":", color="gray", label="unrelated features")
    axes.set(xlabel="layers passed", ylabel="|mean| over spread", ylim=(0, None))
    axes.legend()


show_picture(
    draw,
    "Mean over spread of the stream's features by layer. "
    + "; ".join(f"{name}: {min(ys):.2f} to {max(ys):.2f}" for name, ys in series.items())
    + f"; unrelated features would give {chance:.2f}.",
)

# %% [markdown]
# There is little to subtract: the mean stays close to what unrelated features would have by chance. It is one direction
# of $d$, the one in which all features are equal, and LayerNorm forbids the branches to read it.

# %% [markdown]
# ## What is lost without it
#
# The usual reason is that the next linear layer *absorbs a constant offset*. It does that for the shift $\beta$, which
# is the same for all tokens: $W(z + \beta) = Wz + W\beta$, a bias. The mean is another matter, for each token has its
# own. But it can be removed where it comes from. All that stands on the stream was written by some matrix; take from
# each matrix the mean of its outputs,
#
# $$W \leftarrow \big(I - \tfrac1d \mathbf 1 \mathbf 1^\top\big) W,$$
#
# and the stream has no mean at any layer. Then $\mathrm{LN}(x) = \mathrm{RMS}(x)$, exactly. So each pre-norm model with
# LayerNorm *is* a model with RMSNorm, whose writers are centred and whose shifts have become biases.
#
# We train a small model with LayerNorm for some seconds, and test that. **Predict** for two changed models how far they
# are from the trained one: RMSNorm in place of LayerNorm with the same weights, and RMSNorm with centred writers.

# %%
corpus = load_corpus()


def batch(step: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Four sequences of 64 bytes and what follows them."""
    offsets = training_offsets(corpus.train.size, 64, batch_size=4, seed=seed, step=step, index=0)
    return tuple(torch.tensor(part) for part in windows(corpus.train, offsets, 64))


config = replace(morph.stage(4, "nano"), norm=LayerNormNoBias(), tied=False)  # no shifts, no biases: less to fold
with_mean = morph.build(config, seed=0)
optimizer = torch.optim.AdamW(with_mean.parameters(), lr=1e-2, weight_decay=0.1)
for step in range(6 if QUICK else 80):
    with_mean.loss(*batch(step)).total.backward()
    optimizer.step()
    optimizer.zero_grad()

# %%
swapped = morph.build(replace(config, norm=RMSNorm(eps=config.norm.eps)), seed=0)
swapped.load_state_dict(with_mean.state_dict())
centred = morph.build(swapped.config, seed=0)
centred.load_state_dict(with_mean.state_dict())
with torch.no_grad():
    table = centred.embedding.weight  # (V, d): a row is what a token writes
    table -= table.mean(dim=1, keepdim=True)
    for block in centred.blocks:
        for writer in (block.attention.o_proj, block.feed_forward.down):  # (d, in)
            writer.weight -= writer.weight.mean(dim=0, keepdim=True)

    text = batch(10_000)
    logits = with_mean(text[0])
    for name, model in (("LayerNorm", with_mean), ("RMSNorm, same", swapped), ("RMSNorm, centred", centred)):
        bits = model.loss(*text).cross_entropy.item() / math.log(2)
        print(f"{name:17} {bits:.4f} bits per byte, logits off by {(model(text[0]) - logits).abs().max():.0e}")

# %% [markdown]
# The centred one is the same function. (The other is not, though its loss hardly shows it: there was little mean to
# miss.) Nothing that LayerNorm could say is lost; RMSNorm can say more, for its branches may also read the mean.
# Whether the two *train* alike does not follow from this. That was measured; the table comes below.
#
# Two limits: the shift before the head becomes a bias of the head, which most models do not have. And the stream has to
# be a sum; in post-norm, gains stand on it and bring a mean back.
#
# ## What a sum costs
#
# Summing over features means waiting for all of them. On one chip that is a pause; if the features of a token are
# split between devices, it is an exchange. LayerNorm has two statistics, RMSNorm one, so it is said to halve both.
#
# **Predict.** The variance is taken about the mean, so it seems to need the mean first. Can LayerNorm do with one
# exchange? At what price?
#
# Below, eight ranks hold an eighth of the features each, and every exchange is counted, the backward pass included.
# `together` sums $x$ and $x^2$ at once and takes $\sigma^2 = \overline{x^2} - \mu^2$; `merged` exchanges each rank's
# own mean and variance. The errors are of tokens whose mean is 1,000 spreads.

# %%
forms = {
    "RMSNorm": (sharded.rms, 0.0),
    "LayerNorm, apart": (sharded.separate, 1.0),
    "LayerNorm, together": (sharded.together, 1.0),
    "LayerNorm, merged": (sharded.merged, 1.0),
}
rows = []
for name, (form, is_centred) in forms.items():
    ranks, given = sharded.Ranks(8), 1000 + torch.randn(16, 768)
    part = ranks.split(given).requires_grad_()
    out = form(part, 1e-5, ranks)
    out.backward(torch.randn(out.shape))
    exact = given.double() - is_centred * given.double().mean(-1, keepdim=True)
    exact = exact / (exact.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    error = (ranks.whole(out) - exact).square().mean().sqrt()
    rows.append([name, f"{ranks.exchanges}", f"{ranks.numbers / 16:g}", f"{error:.0e}"])
show_table(["norm, forward and backward", "exchanges", "numbers a token and rank", "rounding error"], rows)

# %%
rows = [
    [type(spec).__name__, *map(str, norms.sums(spec))]
    for spec in (morph.config.LayerNorm(), LayerNormNoBias(), RMSNorm())
]
show_table(["as written out", "sums over features, forward", "backward"], rows)

# %% [markdown]
# Written out, RMSNorm sums half as often; but LayerNorm needs no more exchanges if it is written with care. With plain
# sums its one exchange costs digits when the mean is large; in the merged form it costs none. (Many numbers on its way
# back are the gradient of a gather, for which each rank gives one to each other; derived by hand they would be few.)
# What is true in any form is that RMSNorm has half as much to exchange or less.
#
# Here is all that the lab claimed before it measured, and what came of it:

# %%
show_findings("norm-cost")

# %% [markdown]
# How much *time* it saves depends on the machine and on whose kernel it is, so no claim was made of it. On the machine
# that recorded this, with torch's own kernels on a CPU:

# %%
ratio = recorded("norm-cost").numbers("RMSNorm", {}, "time over LayerNorm's")
print(f"time of RMSNorm over LayerNorm's, forward and backward: {min(ratio):.2f} to {max(ratio):.2f}")

# %% [markdown]
# Above 1, the norm that needs less work took longer: torch 2.13 has one kernel for LayerNorm on a CPU, and composes
# RMSNorm of several. Fewer sums are a reason to expect a gain, not a measurement of it.

# %% [markdown]
# ## What a norm does to a gradient
#
# In 2017 the norm stood on the stream: $x_{\ell+1} = N(x_\ell + F(x_\ell))$. On its way back the gradient meets the
# derivative of $N$ at each of them. For RMSNorm with a gain of 1 and $r = \mathrm{RMS}(x)$ it is
#
# $$\frac{\partial N}{\partial x} = \frac1r \Big(I - \frac{x x^\top}{d\,r^2}\Big).$$
#
# **Predict.** This matrix has $d$ singular values. What are they? How many are zero, and how many for LayerNorm?

# %%
x = trained[12][-1].double()
for name, norm in (("RMSNorm", F.rms_norm), ("LayerNorm", F.layer_norm)):
    J = torch.autograd.functional.jacobian(lambda v, norm=norm: norm(v, (d,), eps=1e-12), x)
    values = torch.linalg.svdvals(J)
    zeros = int((values < 1e-6).sum())
    print(f"{name:10} {zeros} zero; the others from {values[: d - zeros].min():.4f} to {values[0]:.4f}")
print(f"1/RMS = {1 / x.square().mean().sqrt():.4f}, 1/spread = {1 / x.std(correction=0):.4f}")

# %% [markdown]
# One direction dies, that of $x$ itself: a norm does not see size, so no gradient can ask for it. (LayerNorm kills the
# mean's direction, too.) All others are divided by $r$. On a *branch* this is harmless, for the $I$ of the stream goes
# past it. *On* the stream there is no way round: a product of $2L$ such matrices, each mixed with a branch's own
# derivative, is all that the first layer ever hears of the loss.
#
# Whether that product grows or shrinks is not the norm's decision alone. Frame 7 has a model with gated networks, where
# it grows. The lab built stage 0, of 2017, at the same depth. **Predict** which way it goes there.

# %%
lab = recorded("warm-up")
PLACES = ("post", "pre", "sandwich", "post-branch", "depth-scaled-sandwich")


def geometric_mean(lists: list[list[float]]) -> torch.Tensor:
    """Over seeds."""
    return torch.tensor(lists).log().mean(dim=0).exp()


sizes = {place: geometric_mean(lab.lists(f"{place} 24", {}, "gradient by layer")) for place in PLACES}


def draw(figure) -> None:
    axes = figure.subplots()
    for (place, ys), mark in zip(sizes.items(), "os^Dv"):
        axes.plot(range(1, 25), ys / ys[-1], marker=mark, markersize=3, label=place)
    axes.set(yscale="log", xlabel="layer", ylabel="gradient, over the last layer's")
    axes.legend(ncols=2)


show_picture(
    draw,
    "Gradient of each layer's weights over the last layer's, 24 layers of stage 0 as initialized. At layer 1: "
    + ", ".join(f"{place} {ys[0] / ys[-1]:.2f}" for place, ys in sizes.items()),
)

# %% [markdown]
# With ReLU networks post-norm's gradient arrives a few times smaller than it left, over 24 layers, and by how much
# depends on the seed; with gated ones it grows by orders of magnitude (notebook 01 follows that step by step).
# Everywhere else it arrives larger than it left. "Post-norm's gradients vanish" is too simple.

# %% [markdown]
# ## Who put it where
#
# **Predict.** Of the released models below, how many norm both ends of the branch, and how many only its end? How many
# norm queries and keys?

# %%
rows = []
for name in (
    "GPT-2 XL", "Llama 2 7B", "Llama 3 8B", "Gemma 2 9B", "Gemma 3 27B", "Qwen3-235B-A22B", "Olmo 3 32B", "SmolLM3 3B",
    "gpt-oss-120b", "DeepSeek-V3", "Qwen3-Next 80B-A3B", "Trinity Large",
):  # fmt: skip
    released = RELEASED[name]
    attention = released.config.attention
    qk = attention.qk_norm if isinstance(attention, Attention) else None
    how = "" if qk is None else "whole projection" if isinstance(qk, FullWidthRMSNorm) else "each head"
    norm = type(released.config.norm).__name__
    rows.append([name, str(released.year), f"`{norm}`", released.config.placement, how])
show_table(["model", "year", "norm", "placement", "QK-norm"], rows)

# %% [markdown]
# Read the last column against two common statements. *gpt-oss uses QK-norm*: neither OpenAI's code nor transformers'
# has one. *QK-norm is per head in Qwen3, Olmo 3, Gemma 3 and Trinity*: Olmo norms the whole projection, all heads at
# once; below you see what that changes. (DeepSeek-V3's attention norms its latents instead; a latent is not a head.
# Trinity's report names a depth-scaled sandwich; how it starts its gains we have not seen.)
#
# ## A warm-up, and for whom
#
# The 2017 recipe began with a tiny learning rate and raised it slowly. Two explanations were measured in the papers
# below; both can be tried on fresh models in seconds:
#
# - *Gradients at the top* (Xiong et al., 2020). In post-norm the last layer's gradient is as large at any depth. In
#   pre-norm it shrinks like $1/\sqrt L$, since the final norm divides by a stream that has grown.
# - *Amplification* (Liu et al., 2020). One small step in all weights moves a post-norm model's output the more, the
#   deeper it is; a pre-norm model's far less.
#
# **Predict** from 6 to 24 layers: by which factor does each of the four numbers change?


# %%
def first_step(placement: str, n_layers: int, seed: int, rate: float = 1e-4) -> tuple[float, float]:
    """Gradient of the last layer's `down`, and how far one step of AdamW moves the logits (RMS)."""
    model = morph.build(replace(morph.stage(0, "nano"), placement=placement, n_layers=n_layers), seed=seed)
    text = batch(0, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    before = model(text[0]).detach()
    model.loss(*text).total.backward()
    gradient = model.blocks[-1].feed_forward.down.weight.grad.norm().item()
    optimizer.step()
    return gradient, (model(text[0]) - before).square().mean().sqrt().item()


rows = []
for placement in ("post", "pre"):
    for n_layers in (6, 12, 24):
        found = torch.tensor([first_step(placement, n_layers, seed) for seed in range(1 if QUICK else 4)])
        gradient, moved = found.log().mean(dim=0).exp().tolist()
        rows.append([placement, f"{n_layers}", f"{gradient:.2f}", f"{moved:.2f}"])
show_table(["placement", "layers", "gradient of the last layer", "logits moved by one step of 0.0001"], rows)

# %% [markdown]
# Both effects are there, in the first step. (AdamW divides a gradient by its own size, so for it the second says more.)
# Do they decide a training? The lab trained stage 0 with its norms in two places at two depths, with and without a
# warm-up over a third of the steps, each at its best of three rates.
#
# **Predict.** Two comparisons: post-norm without warm-up against with; post-norm with warm-up against pre-norm without.
# Which is larger?

# %%
ARMS = ("post 12", "post 12, warm-up", "pre 12", "pre 12, warm-up", "post 24", "post 24, warm-up", "pre 24")
bits = {arm: sum(found) / len(found) for arm in ARMS if (found := lab.numbers(arm, {}, "bits per byte"))}


def draw(figure) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, depth in ((left, 12), (right, 24)):
        for arm in (arm for arm in ARMS if f" {depth}" in arm):
            curve = torch.tensor(lab.lists(arm, {}, "loss while training")).mean(dim=0)
            shown = torch.arange(1, len(curve) + 1) / len(curve)
            style = {"linestyle": "--" if "warm-up" in arm else "-", "marker": "os"["pre" in arm], "markersize": 3}
            axes.plot(shown, curve, label=arm, **style)
        axes.axhline(BYTE_FREQUENCIES, linestyle=":", color="gray")
        axes.set(xlabel="share of the training", title=f"{depth} layers")
        axes.legend()
    left.set_ylabel("training loss, bits per byte")


show_picture(
    draw,
    f"Training loss; dotted: what byte frequencies alone give, {BYTE_FREQUENCIES:.2f}. Validation at the end: "
    + ", ".join(f"{arm} {value:.2f}" for arm, value in bits.items()),
)

# %%
show_findings("warm-up")

# %% [markdown]
# Read this with care.
#
# - **The place decides.** Pre-norm without warm-up is far ahead of post-norm with it, at both depths.
# - **The warm-up itself is not shown to help.** At 12 layers post-norm with it ends a little lower, and three seeds do
#   not tell that from noise. At its highest rate, and at 24 layers, post-norm does not get beyond the frequencies of
#   bytes *with or without* warm-up. Between two models that learned nothing there is nothing to compare, and the lab
#   says "undecided" instead of counting it.
# - **"Post-norm needs a warm-up to train at all"** is thus neither confirmed nor refuted here. What is confirmed is
#   that a warm-up of this kind is no remedy as good as moving the norm. The original had 6 layers, 4,000 steps of
#   warm-up and a hundred thousand steps.
#
# ## The price of pre-norm
#
# Nothing stands on the stream, so it grows (frame 8), and what a late branch adds weighs less. A second norm bounds
# what each branch writes. What training makes of that:

# %%
show_findings("stream-growth")

# %% [markdown]
# Bounded writes are not a bounded stream: a sandwich's stream grows, too, at the start as fast as any. Only small gains
# keep it small. Whether growth does harm was not measured here.
#
# ## On queries and keys
#
# A score is $q^\top k/\sqrt{d_h}$, and nothing bounds $q$ or $k$. QK-norm divides both by their root mean square.
# A vector of $d_h$ features with an RMS of 1 has the length $\sqrt{d_h}$, so with gains of 1
#
# $$|\text{score}| = \frac{|q^\top k|}{\sqrt{d_h}} \le \frac{\sqrt{d_h}\,\sqrt{d_h}}{\sqrt{d_h}} = \sqrt{d_h},$$
#
# whatever the projections learn. (Rotary position turns both after the norm and keeps their lengths.)
#
# **Predict.** We take queries and keys of a trained layer from before their norm, and multiply both. What do the
# scores do, how many bits of choice do the weights keep, and what is left of the derivative through the softmax?

# %%
attention = deep.model.blocks[12].attention
with torch.no_grad(), morph.trace(deep.model) as seen:
    deep.model(ids)
q, k = (seen[f"blocks.12.attention.{name}_norm.input"][0].double() for name in "qk")  # (heads, S, d_h)
k = k.repeat_interleave(len(q) // len(k), dim=0)
head_dim, late = q.shape[-1], slice(16, None)  # queries with at least 16 keys before them
hidden = torch.ones(q.shape[1], q.shape[1]).triu(1).bool()


def look(q: torch.Tensor, k: torch.Tensor) -> tuple[float, float, float]:
    """Largest |score|, mean entropy in bits, and mean size of ∂weights/∂scores (Frobenius norm); rotation left out."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
    p = scores.masked_fill(hidden, -torch.inf).softmax(-1)[:, late]
    bits = torch.special.entr(p).sum(-1).mean() / math.log(2)
    slope = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return scores.masked_fill(hidden, 0).abs().max().item(), bits.item(), slope.norm(dim=(-2, -1)).mean().item()


rows = []
for factor in (1, 4, 16, 64):
    larger = (factor * q, factor * k)
    for name, pair in (("raw", larger), ("normed", [F.rms_norm(v, (head_dim,)) for v in larger])):
        score, entropy, slope = look(*pair)
        rows.append([f"{factor}", name, f"{score:,.1f}", f"{entropy:.2f}", f"{slope:.4f}"])
show_table(["factor", "queries and keys", "largest score", "bits of choice", "derivative of the softmax"], rows)

# %% [markdown]
# Raw scores grow with the square of the factor. Soon each query looks at a single token, and no gradient passes that
# could change its mind. Normed ones do not notice. (Their gain is 1 here, so they spread wider than the model's own.)
#
# **How far does the bound go?** Gains are learned, and they multiply it: with gains $g_q$, $g_k$ it is
# $\sqrt{d_h}\,\max|g_q|\max|g_k|$. "Whatever the projections learn" is true, "bounded" only as far as the gains are.
# And norming the *whole* projection, as Olmo does, bounds all heads together instead of each.
#
# **Predict.** One of four heads has queries 16 times as large as the others'. What is its RMS after either norm?

# %%
some = torch.randn(1, 4, 1, head_dim) * torch.tensor([16.0, 1, 1, 1])[:, None, None]  # (B, heads, S, d_h)
for spec in (RMSNorm(), FullWidthRMSNorm()):
    norm = build_qk_norm(spec, heads=4, head_dim=head_dim)
    norm.init_weights(torch.Generator())
    with torch.no_grad():
        sizes = norm(some)[0].square().mean(dim=(-2, -1)).sqrt()
    print(f"{type(spec).__name__:16} RMS of the heads: {[round(v, 2) for v in sizes.tolist()]}")

# %% [markdown]
# Over the whole projection heads may differ in sharpness: one of $H$ can take everything, with an RMS of $\sqrt H$, and
# a score of $H\sqrt{d_h}$ if its keys do the same. In exchange the others fade. Each head's own norm gives all the
# same say.
#
# What does it do for a training? The lab raised the learning rate until scores ran away.

# %%
qk = recorded("qk-norm")
rates = [point["learning_rate"] for point in qk.points]


def draw(figure) -> None:
    left, right = figure.subplots(1, 2)
    for axes, measure in ((left, "largest |logit|"), (right, "bits per byte")):
        for arm, mark in (("without", "o"), ("QK-norm", "s")):
            runs = torch.tensor([qk.numbers(arm, point, measure) for point in qk.points])
            (line,) = axes.plot(rates, runs.mean(dim=1), label=arm)
            for column in runs.T:
                axes.plot(rates, column, mark, color=line.get_color(), markersize=4)
        axes.set(xscale="log", xlabel="learning rate", title=measure)
    left.set(yscale="log")
    left.legend()


def mean_of(arm: str, measure: str, point: dict[str, float]) -> float:
    """Over seeds."""
    found = qk.numbers(arm, point, measure)
    return sum(found) / len(found)


show_picture(
    draw,
    "Largest score and final loss by learning rate, without QK-norm and with it, a dot a seed. At the highest rate: "
    + "; ".join(
        f"{arm} {mean_of(arm, 'largest |logit|', qk.points[-1]):.0f} and "
        f"{mean_of(arm, 'bits per byte', qk.points[-1]):.2f} bits"
        for arm in qk.arms
    ),
)

# %%
show_findings("qk-norm")

# %% [markdown]
# The scores go where the theory says, though three seeds do not settle whether by as much as had been set to count. The
# *losses* hardly part: at this size a model survives large scores, and the highest rate was no bad one. That QK-norm
# rescues trainings is a report from large models, in low precision and over many more steps; nothing here contradicts
# it and nothing here shows it.
#
# ## A bounded score is a bounded focus
#
# The same bound has another side. Let one key have the score $B$, and $n-1$ others, which have nothing to do with the
# query, the score 0. The one gets the share
#
# $$a = \frac{e^B}{e^B + n - 1}.$$
#
# **Predict.** A head of width 64 with gains of 1, and a context of 131,072. How much can it give to one token?

# %%
rows = []
for width in (12, 64, 128):
    B = math.sqrt(width)
    shares = [math.exp(B) / (math.exp(B) + n - 1) for n in (64, 8192, 131_072)]
    rows.append([f"{width}", f"{B:.1f}", *(f"{share:.2%}" for share in shares)])
show_table(["head width", "bound, gains of 1", "of 64 tokens", "of 8,192", "of 131,072"], rows)

# %% [markdown]
# Do gains of 1 stay? In the lab's models, whose heads are 12 wide:

# %%
rows = []
for point in qk.points:
    allowed, used = (mean_of("QK-norm", name, point) for name in ("|logit| that the gains allow", "largest |logit|"))
    rows.append([f"{point['learning_rate']:g}", f"{math.sqrt(12):.1f}", f"{allowed:.1f}", f"{used:.1f}"])
show_table(["learning rate", "bound at the start", "bound after training", "largest score"], rows)

# %% [markdown]
# The bound moves, and most of what it allows is used. So the longer the context, the more a head depends on its gains
# having grown, and gains that grow undo the bound. That is arithmetic, and a plausible reason for those who leave
# QK-norm out for long contexts (Cohere's Tiny Aya, by its authors' account). It is not evidence: the lab's texts end
# at 256 tokens, and what it claimed of a rise there came to nothing.
#
# ## Where the field has not settled
#
# - **The place.** Before, behind, or at both ends of a branch: see the table. Comparisons with nothing else changed are
#   rare.
# - **QK-norm.** In most new models, not in all. Other remedies for large scores are a cap (Gemma 2), clipping the
#   weights that make them (Kimi K2), or a lower learning rate.
# - **Per head or whole.** Both are in use, and we know of no comparison that isolates it.
# - **No norm at all.** A learned tanh in its place (Zhu et al., 2025) trains well in their experiments. Then a norm's
#   statistics are not what matters, or not alone.
#
# **Where common statements need care**
#
# - *Dropping the mean costs nothing because the next layer absorbs it.* It absorbs the shift. The mean can be removed
#   at the writers, as you did; and in trained streams it is small.
# - *LayerNorm needs two exchanges.* As written. In other forms one, of twice the numbers.
# - *Halving the sums is a real gain in speed.* Where the sums are what one waits for, and with kernels of equal care.
# - *Post-norm's gradients vanish.* As initialized, with ReLU networks, they fade; with gated ones they explode.
# - *The identity path arrives unattenuated.* It does, and the branches add to it: the gradient grows on its way down.
# - *Pre-norm has no cost.* The stream grows, the last states need a norm of their own, and late branches weigh less.
#
# **What couples to what.** The place of the norm and the kind of feed-forward network decide together what the
# gradient does. A norm's gain is a factor on the matrix behind it, so decaying the one shrinks the other (Gemma stores
# $\gamma - 1$, so that decay pulls to 1 instead of 0). A large stream couples to fp16, where a sum of its squares
# overflows first. QK-norm couples to the scale $1/\sqrt{d_h}$, to the learning rate, and to what a cache holds: keys
# are cached normed.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · One from the other.** Write LayerNorm, with gain and shift, over the last axis. The only norm that you may call
# is `F.rms_norm(x, (width,), eps=eps)`.


# %%
# Exercise 1 · LayerNorm by way of RMSNorm
def my_layer_norm(x: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, eps: float) -> torch.Tensor: ...


# %%
checks.layer_norm(my_layer_norm)

# %% [markdown]
# **2 · Merge.** Each of R ranks knows mean and variance of its own equally many features, for T tokens: `means` and
# `variances`, both (R, T). Give mean and variance over all features, both (T,), without subtracting large numbers from
# each other.


# %%
# Exercise 2 · statistics of the whole from those of its parts
def merged(means: torch.Tensor, variances: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]: ...


# %%
checks.merged(merged)

# %% [markdown]
# **3 · What a norm does not hear.** LayerNorm's derivative at a vector `x` (d,) sends two directions to zero. Give
# them, as a tensor (2, d).


# %%
# Exercise 3 · two directions in which LayerNorm's output does not move
def unheard(x: torch.Tensor) -> torch.Tensor: ...


# %%
checks.unheard(unheard)

# %% [markdown]
# **4 · The tight bound.** Queries and keys are normed to an RMS of 1 and multiplied by the gains `gq` and `gk`
# (d_h,); no rotation stands between. How large can $|q^\top k|/\sqrt{d_h}$ become at most? (It should be reached by
# some pair. The formula above is for rotated ones, and too large here.)


# %%
# Exercise 4 · the largest score that two gains allow
def largest_score(gq: torch.Tensor, gk: torch.Tensor) -> float: ...


# %%
checks.largest_score(largest_score)

# %% [markdown]
# **5 · What focus takes.** Which score does one key need to get the share `a` of the weight, when `n - 1` others have
# the score 0?


# %%
# Exercise 5 · the score for a share
def needed(a: float, n: int) -> float: ...


# %%
checks.needed(needed)

# %% [markdown]
# ## Further reading
#
# - *Layer Normalization*, Ba, Kiros and Hinton, 2016.
# - *Root Mean Square Layer Normalization*, Zhang and Sennrich, 2019.
# - *On Layer Normalization in the Transformer Architecture*, Xiong et al., 2020, and *Understanding the Difficulty of
#   Training Transformers*, Liu et al., 2020: the two explanations above.
# - *Pre-RMSNorm and Pre-CRMSNorm Transformers*, Jiang et al., 2023: LayerNorm models as RMSNorm models.
# - *Query-Key Normalization for Transformers*, Henry et al., 2020, and *Scaling Vision Transformers to 22 Billion
#   Parameters*, Dehghani et al., 2023: the norm on queries and keys.
# - *Small-scale proxies for large-scale Transformer training instabilities*, Wortsman et al., 2023.
# - *2 OLMo 2 Furious*, OLMo Team, 2024: the norm behind the branch.
# - *Transformers without Normalization*, Zhu et al., 2025.
