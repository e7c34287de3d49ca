# %% [markdown]
# # 08 · Beyond softmax
#
# Attention keeps every token it has read, in case one of them is asked for. Two families of mixers give that up. One
# sums the past into a matrix of fixed size and learns what to write, erase and let fade. The other keeps the past, and
# reads a few chosen tokens of it.
#
# **After this notebook you can**
#
# - move the brackets of attention, and say what that buys and which property of the softmax it costs;
# - predict how wrong a sum of associations is by the number of pairs in it, and say when it is exact;
# - write the gated delta rule, get a trained layer's own states, and spot a common misprint of it;
# - tell what a hybrid weighs and computes at any length, and from where on it is cheaper;
# - judge what was measured about recall here, and what was left undecided.
#
# Reading and predicting take about an hour. It needs no network and no GPU: on two CPU cores all cells together
# compute for about a minute.

# %%
import math
import os
import time
from dataclasses import replace

import torch
import torch.nn.functional as F

import morph
from morph.checks import beyond_softmax as checks
from morph.lab.experiments import e11_recall
from morph.lab.fit import fit, start
from morph.lab.result import recorded
from morph.lab.tasks import Recall
from morph.measure.mixers import indexer_cost, mixer_cost
from morph.nn.delta import chunked_rule, recurrent_rule
from morph.nn.lightning import decay_slopes
from morph.story.released import RELEASED
from morph.story.subject import siblings, subject
from morph.widgets import Stepper, show_findings, show_picture, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # fewer draws and shorter trainings, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain
LN2, KIB, MIB, GIB = math.log(2), 2**10, 2**20, 2**30


# %% [markdown]
# ## Ten frames
#
# The model of the figure is stage 14, three layers with a state under one with a cache, trained on Python.
#
# **Predict before you step.** How many numbers does a layer with a state hold after 10 tokens, and after 10,000? Eight
# random pairs are stored in a matrix of 12 × 12 numbers: how wrong is what comes back?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("beyond-softmax")

# %% [markdown]
# ## 1 · Moving the brackets
#
# Without its softmax, attention is a product of three matrices, and for a product the order of work is free:
#
# $$(Q K^\top)\, V = Q\, (K^\top V)$$
#
# On the left stands a table of $S \times S$, on the right one of $d \times d$, which does not know how long the text
# is. The causal form, where a token sees only what came before it, is a running sum:
#
# $$S_m = S_{m-1} + k_m v_m^\top, \qquad o_m = S_m^\top q_m$$
#
# **Predict.** At which length do both orders cost the same, for heads of width $d$? (The left one in full, as written.)


# %%
def running_sum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Unnormalized linear attention, causal, in d × d numbers of memory."""
    state, out = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for t in range(len(q)):
        state = state + torch.outer(k[t], v[t])
        out.append(state.T @ q[t])
    return torch.stack(out)


S, d = 256, 32
q, k, v = torch.randn(3, S, d, dtype=torch.float64)
left, right = (q @ k.T) @ v, q @ (k.T @ v)
masked = (q @ k.T).tril() @ v
print(f"both orders differ by {(left - right).abs().max() / left.abs().max():.0e} of the largest number")
print(f"running sum and masked table by {(running_sum(q, k, v) - masked).abs().max() / masked.abs().max():.0e}")
rows = []
for S in (8, 32, 256, 4096, 131_072):
    rows.append([f"{S:,}", f"{4 * S * S * d:,}", f"{4 * S * d * d:,}", f"{S * S:,}", f"{d * d:,}"])
show_table(["tokens", "FLOPs, (QKᵀ)V", "FLOPs, Q(KᵀV)", "numbers between, (QKᵀ)V", "Q(KᵀV)"], rows)

# %% [markdown]
# Equal at $S = d$; from there on every doubling of the text doubles the advantage.
#
# But $e^{q^\top k}$ is no product of something of $q$ with something of $k$, unless these have infinitely many
# features. A *feature map* $\varphi$ takes its place: $\varphi(q)^\top \varphi(k)$ with, say, $\varphi(x) =
# \mathrm{elu}(x) + 1$, which is positive (Katharopoulos et al., 2020); weights are divided by their sum as before.
#
# **Predict.** We take queries and keys of the softmax layer of our trained hybrid. How much weight does a query give
# to its best key, by softmax and by $\varphi$? And over how many keys does it spread, in effect?

# %%
hybrid = subject("hybrid")
print(hybrid.name)
ids = hybrid.ids(64)
with torch.no_grad(), morph.trace(hybrid.model) as seen:
    hybrid.model(ids)
last = "blocks.3.attention"
q, k = seen[f"{last}.queries"][0], seen[f"{last}.keys"][0]
k = k.repeat_interleave(len(q) // len(k), dim=0)  # (H, S, Dh): two query heads share a key head
exact = seen[f"{last}.weights"][0]


def phi(x: torch.Tensor) -> torch.Tensor:
    return F.elu(x * x.shape[-1] ** -0.25) + 1  # the usual scale of scores, half on each side


linear = (phi(q) @ phi(k).mT).tril()
linear = linear / linear.sum(-1, keepdim=True)
late = slice(32, None)
for name, w in {"softmax": exact, "linear": linear}.items():
    spread = torch.special.entr(w).sum(-1).exp()[:, late].mean()  # e to the entropy: that many equal weights
    print(f"{name:8} best key {w[:, late].amax(-1).mean():.0%} of the weight, spread over {spread:.0f} keys in effect")


def draw_weights(figure):
    axes = figure.subplots()
    head = int(exact[:, -1].amax(-1).argmax())
    axes.bar(range(64), exact[head, -1], width=0.8, label="softmax")
    axes.step(range(64), linear[head, -1], "C1", where="mid", linewidth=2, label="linear")
    axes.set_xlabel(f"key, head {head}, the last query")
    axes.set_ylabel("weight")
    axes.legend()


show_picture(
    draw_weights, size=(8, 2.4),
    alt="Weights of one query over 64 keys: softmax has high bars at some keys, the linear form is almost level.",
)  # fmt: skip

# %% [markdown]
# The exponential is by far the sharper; a product of few positive features is nearly blind. (The layer was trained with
# a softmax, so this is not what linear attention learns if it is all there is. Its limit stays: $d$ features tell $d$
# keys apart.) Newer models drop the sum of weights altogether, norm the output instead, and put their effort into what
# is written.
#
# ## 2 · What a state weighs
#
# **Predict.** Llama 3 8B caches 128 KiB a token. How much does Qwen3-Next keep of a token, and how much of a whole
# text in its states, 36 of its 48 layers? How long a text is worth as much as the states?

# %%
rows = []
for name in ("Llama 3 8B", "DeepSeek-V3", "Qwen3-Next 80B-A3B", "Kimi Linear 48B-A3B"):
    c = morph.count(RELEASED[name].config)
    worth = f"{c.state_bytes / c.kv_bytes_per_token:,.0f} tokens" if c.state_bytes else ""
    rows.append([
        name, f"{c.kv_bytes_per_token / KIB:.1f} KiB", f"{c.state_bytes / MIB:.1f} MiB" if c.state_bytes else "",
        worth, f"{c.cache_bytes(131_072) / GIB:.2f} GiB",
    ])  # fmt: skip
show_table(["model", "cached, per token", "states (fp32)", "as much as", "all, at 131,072 tokens"], rows)

# %% [markdown]
# "No cache" is not the word: a state is a cache that is paid in full at the first token. On short texts the hybrid
# keeps *more*. And as long as one layer in four attends, what is kept still grows with the text, four times more
# slowly. (States are fp32, for thousands of small changes add up in them; the rest is counted in bf16.)
#
# ## 3 · Interference
#
# What does a sum of pairs answer when asked for one? With keys of length 1,
#
# $$S^\top k_i = \sum_j v_j\,(k_j^\top k_i) = v_i + \sum_{j \ne i} v_j\,(k_j^\top k_i)$$
#
# so **it is exact if and only if the other terms cancel, and for whatever values that means: if the keys are at right
# angles**. There are at most $d$ such keys in $d$ features. Random keys are not at right angles: the square of
# $k_j^\top k_i$ is $1/d$ on average, and so
#
# $$\text{error} \approx \sqrt{(n-1)/d}$$
#
# relative to a value of random direction and length 1.
#
# **Predict.** What does the delta rule (below) change, for random keys: does it make the sum exact up to $d$ pairs, is
# it better by a constant, or does it win only when the state is overfull? And a softmax over the same keys, at a
# temperature of 1/32?

# %%
W, DRAWS = 12, 20 if QUICK else 200
generator = torch.Generator().manual_seed(0)


def units(n: int) -> torch.Tensor:
    """(DRAWS, n, W) random directions."""
    return F.normalize(torch.randn(DRAWS, n, W, generator=generator), dim=-1)


def corrected(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The delta rule with β = 1: write what is missing from what the state answers already."""
    state = torch.zeros(DRAWS, W, W)
    for t in range(k.shape[1]):
        key, value = k[:, t : t + 1], v[:, t : t + 1]
        state = state + key.mT @ (value - key @ state)
    return state


def error(answers: torch.Tensor, v: torch.Tensor) -> float:
    return (answers - v).norm(dim=-1).mean().item()


counts = (1, 2, 4, 6, 8, 12, 16, 24, 36, 48)
found: dict[str, list[float]] = {name: [] for name in ("sum", "delta rule", "softmax, all pairs kept", "√((n − 1)/d)")}
newest = []
for n in counts:
    k, v = units(n), units(n)
    state = corrected(k, v)
    found["sum"].append(error(k @ (k.mT @ v), v))
    found["delta rule"].append(error(k @ state, v))
    found["softmax, all pairs kept"].append(error((32 * k @ k.mT).softmax(-1) @ v, v))
    found["√((n − 1)/d)"].append(math.sqrt((n - 1) / W))
    newest.append(error(k[:, -1:] @ state, v[:, -1:]))
square = torch.linalg.qr(torch.randn(DRAWS, W, W, generator=generator)).Q
v = units(W)
print(f"{W} keys at right angles: the sum errs by {error(square @ (square.mT @ v), v):.0e}")
print(f"delta rule, the newest pair alone: {max(newest):.0e} at most")


def draw_errors(figure):
    axes = figure.subplots()
    for name, values in found.items():
        is_formula = name.startswith("√")
        axes.plot(counts, values, ":" if is_formula else "o-", markersize=4, label=name)
    axes.axvline(W, linewidth=0.8, color="gray")
    axes.set_xlabel(f"pairs stored in {W} × {W} numbers (the line: {W})")
    axes.set_ylabel("error")
    axes.legend()


show_picture(
    draw_errors, size=(8, 3.2),
    alt="Error over the number of stored pairs. The sum follows the root formula closely. The delta rule lies below it "
    "everywhere and levels off. The softmax over all kept pairs stays at almost 0.",
)  # fmt: skip

# %% [markdown]
# The delta rule errs less everywhere and is exact for the *newest* pair, whatever else is stored; a sum is exact for
# none. But one pass of it does not make random keys fit: each correction disturbs what was there before, unless keys
# are at right angles, where both rules are the same. When far too much is stored, the sum's error grows on, while the
# delta rule's levels off: old pairs are written over and forgotten. Attention has no such limit, since it keeps each
# pair apart, and pays for it.
#
# Keys of a real layer are *learned*. Section 7 looks at what training makes of their angles.
#
# ## 4 · Erase, then write
#
# A state is a linear map that should answer each key with its value. Ask how wrong it is about the present pair, and
# take one step of gradient descent of size $\beta$:
#
# $$L(S) = \tfrac12 \lVert S^\top k - v \rVert^2, \qquad
#   S - \beta\, \nabla L = S - \beta\, k\,(S^\top k - v)^\top = (I - \beta k k^\top)\, S + \beta\, k v^\top$$
#
# That is the delta rule (Widrow and Hoff, 1960; in a network's state, Schlag et al., 2021): a layer that learns while
# it reads. *Gated* DeltaNet lets everything fade first, by $\alpha$:
#
# $$S_t = \alpha_t\,(I - \beta_t k_t k_t^\top)\, S_{t-1} + \beta_t\, k_t v_t^\top, \qquad o_t = S_t^\top q_t$$
#
# Note what $\alpha$ multiplies: the erased part, too. One also meets $S\,(\alpha I - \beta k k^\top)$, which erases
# more than what is left after fading. And some papers write the transpose, $v k^\top$ for $k v^\top$, with all
# products turned around; mind which one you read.
#
# **Predict.** The trained layer 1 hands us its $q, k, v, \alpha, \beta$. How far is each of the two forms from the
# state that it ends with?


# %%
def parts(layer: int) -> list[torch.Tensor]:
    """Queries, keys, values (H, S, D), log α and β (H, S) of a layer with a state."""
    names = ("unit_queries", "unit_keys", "new_values", "log_decay", "beta")
    return [seen[f"blocks.{layer}.attention.{name}"][0].double() for name in names]


def states(layer: int, is_misprint: bool = False) -> torch.Tensor:
    """The state after each token, (S, H, Dk, Dv)."""
    q, k, v, log_decay, beta = parts(layer)
    state, eye, all_ = torch.zeros(len(q), 12, 12, dtype=torch.float64), torch.eye(12), []
    for t in range(q.shape[1]):
        alpha, b = log_decay[:, t, None, None].exp(), beta[:, t, None, None]
        key, value = k[:, t, :, None], v[:, t, None, :]
        keep = alpha * eye - b * key @ key.mT if is_misprint else alpha * (eye - b * key @ key.mT)
        state = keep @ state + b * key @ value
        all_.append(state)
    return torch.stack(all_)


trajectory, own = states(1), seen["blocks.1.attention.state"][0]
largest = own.abs().max()
print(f"as above:                 off by {(trajectory[-1] - own).abs().max() / largest:.0e} of the largest number")
print(f"α beside the erased part: off by {(states(1, is_misprint=True)[-1] - own).abs().max() / largest:.0%}")
guess = torch.randn(12, 12, dtype=torch.float64, requires_grad=True)
key, value = F.normalize(torch.randn(12, dtype=torch.float64), dim=0), torch.randn(12, dtype=torch.float64)
(0.5 * (guess.T @ key - value).square().sum()).backward()
with torch.no_grad():
    by_rule = guess - 0.3 * torch.outer(key, key @ guess) + 0.3 * torch.outer(key, value)
    print(f"a gradient step and the rule: {(guess - 0.3 * guess.grad - by_rule).abs().max():.0e} apart")


def draw_states(figure):
    head, moments = int(own.flatten(1).norm(dim=1).argmax()), (0, 3, 15, 39, 63)
    for axes, t in zip(figure.subplots(1, len(moments)), moments):
        sizes = trajectory[t, head].abs()
        axes.imshow(sizes, vmin=0, vmax=sizes.max())  # each in its own scale
        axes.set_title(f"after {t + 1}: up to {sizes.max():.1f}")
        axes.set_xticks([])
        axes.set_yticks([])


show_picture(
    draw_states, size=(9, 2.1),
    alt="One head's state, 12 by 12 sizes, after 1, 4, 16, 40 and 64 tokens: rank one first, then mixed stripes that "
    "change from moment to moment.",
)  # fmt: skip

# %% [markdown]
# After one token the state is a single product, its rows all multiples of one another. Then it mixes; no cell belongs
# to a token. That is the price: from a cache one can remove a token, take back a draft, keep a shared prefix. A state
# has to be copied beforehand.
#
# ## 5 · Forgetting
#
# $\alpha$ is a number between 0 and 1, read from the token, for each head: what is written now is worth
# $\alpha_{t+1} \alpha_{t+2} \cdots$ of itself later. Its half-life is the number of tokens until half is left.
#
# **Predict.** Heads start with half-lives from less than one to about a thousand tokens. Our hybrid was trained on 64
# bytes at a time, below a layer that can look anywhere. What half-lives did it end with?

# %%
rows = []
for layer in range(3):
    log_decay = parts(layer)[3]
    lives = (LN2 / -log_decay.mean(-1)).tolist()
    rows.append([str(layer), *(f"{life:.1f}" for life in lives)])


def draw_decay(figure):
    axes = figure.subplots()
    axes.imshow(torch.cat([parts(layer)[3] for layer in range(3)]).exp(), vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(64), [hybrid.shown(token) for token in ids[0].tolist()], fontsize=7)
    axes.set_yticks(range(12), [f"{n}.{head}" for n in range(3) for head in range(4)], fontsize=7)
    axes.set_ylabel("layer.head")


show_picture(
    draw_decay, size=(10, 2.8),
    alt="α of 12 heads over 64 bytes of Python, from 0 (empty) to 1 (full colour): some heads keep nearly everything "
    "at most bytes and drop it at a few; others drop it all the time.",
)  # fmt: skip

# %%
show_table(["layer", *(f"head {head}: half gone after" for head in range(4))], rows)

# %% [markdown]
# A few tokens. In a model this small the states have become short, *chosen* windows, and whatever is far is left to
# the one layer that attends. (These are means of $\log \alpha$: one token that wipes everything weighs heavily.) The
# architecture could have kept more: section 7 starts states that hardly fade, for there the task needs it.
#
# How fine forgetting should be is open. Kimi Linear gives every key feature an $\alpha$ of its own. Lightning attention
# (MiniMax-01, Ling 2.5) asks no token at all: each head fades at a fixed speed, and nothing is erased.

# %%
rows = []
for layer in (0, 40, 78):  # every eighth, the last one among them, attends
    lives = LN2 / decay_slopes(64, layer, 80)[[0, 15, 31, 63]]
    rows.append([str(layer), *(f"{life:,.1f}" if life < 1e6 else "never, nearly" for life in lives.tolist())])
show_table(["MiniMax-01's rule: layer of 80", *(f"head {h} of 64" for h in (1, 16, 32, 64))], rows)

# %% [markdown]
# ## 6 · Work
#
# Token by token a state is a chain of small products, each waiting for the last: fine for writing a text, hopeless for
# training on one. So texts are read in chunks. Inside a chunk the rule becomes a triangular system, which matrix
# products solve; only the chunks wait for one another.
#
# **Predict.** 2,048 tokens, four heads of 64 × 64: how much faster are chunks of 32 on one core? How different is the
# result?

# %%
S = 512 if QUICK else 2048
q, k = (F.normalize(torch.randn(1, 4, S, 64), dim=-1) for _ in range(2))
v, log_decay, beta = torch.randn(1, 4, S, 64), -0.01 * torch.rand(1, 4, S), torch.rand(1, 4, S)
outputs, seconds = {}, {}
for rule in (recurrent_rule, chunked_rule):
    begin = time.perf_counter()
    outputs[rule], _ = rule(q, k, v, log_decay, beta, torch.zeros(1, 4, 64, 64))
    seconds[rule] = time.perf_counter() - begin
apart = (outputs[recurrent_rule] - outputs[chunked_rule]).abs().max()
print(f"token by token {seconds[recurrent_rule]:.2f} s, in chunks {seconds[chunked_rule]:.2f} s; {apart:.0e} apart")

# %% [markdown]
# From which length on does a state save work? We count one layer of each kind in Qwen3-Next, for a text of $S$ tokens
# that is read at once.
#
# **Predict.** Is the layer with the state cheaper at 100 tokens? At 1,000? At 10,000?

# %%
qwen = RELEASED["Qwen3-Next 80B-A3B"].config


def work(config: morph.ModelConfig, layer: int, S: int) -> float:
    """Million FLOPs a token of mixing in one layer, its maps included, averaged over a text of S tokens."""
    cost = mixer_cost(config, layer, S)
    return (cost.linear + cost.scores + cost.delta) / S / 1e6


lengths = [2**n for n in range(6, 18)]
per_token = {
    "softmax attention": [work(qwen, 3, S) for S in lengths],
    "Gated DeltaNet": [work(qwen, 0, S) for S in lengths],
}
level = next(S for S in range(64, 10**5, 32) if work(qwen, 0, S) < work(qwen, 3, S))
print(f"the state is cheaper from about {level:,} tokens on")


def draw_work(figure):
    axes = figure.subplots()
    for name, values in per_token.items():
        axes.plot(lengths, values, "o-", markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens in the text")
    axes.set_ylabel("million FLOPs a token")
    axes.legend()


show_picture(
    draw_work, size=(8, 2.8),
    alt="Work per token of one layer over the length of the text: level for Gated DeltaNet, which lies above softmax "
    "attention for short texts and far below it for long ones.",
)  # fmt: skip

# %% [markdown]
# Its maps are wider and its chunks cost something at any length, so a state pays off on long texts only. In the lab's
# count of whole models the same shows at its size:

# %%
kept = [f for f in recorded("costs").findings if "state" in f.claim.text or "delta" in f.claim.text]
show_table(["claimed beforehand", "verdict"], [[f.claim.text, f.verdict] for f in kept])

# %% [markdown]
# ## 7 · Recall
#
# The question that decides it: can a mixer bring back what was said once? The task is multi-query associative recall
# (Arora et al., 2023): pairs of a key and a value, then every key in another order, and its value is wanted.
#
# $$k_3\, v_9\, k_1\, v_4\, k_7\, v_2\, k_5\, v_4 \;\big|\; k_1\, k_5\, k_3\, k_7$$
#
# **Predict.** Three models of two layers learn it for a while, four pairs of eight keys and eight values: full
# attention, a window of 8 tokens, a state of 8 × 8. Who is right how often? Who learns first?

# %%
arms = {arm.name: arm for arm in e11_recall.EXPERIMENT.arms}
task = Recall(pairs=4, keys=e11_recall.KEYS, values=e11_recall.VALUES)
trials = {}
for name in ("full", "window of 8", "delta, 8 x 8"):
    steps = 20 if QUICK else 600
    recipe = replace(
        e11_recall.EXPERIMENT.recipe, steps=steps, learning_rate=1.5e-2 if "delta" in name else 7e-3,
        evaluate_every=max(5, steps // 12),
    )  # fmt: skip
    trials[name] = start(arms[name].config, task, recipe, arms[name].alter)
    fit(trials[name])  # ends when everything is recalled


def draw_learning(figure):
    axes = figure.subplots()
    for name, trial in trials.items():
        taken, scores = zip(*((step, found["accuracy"]) for step, found in trial.evaluations))
        axes.plot(taken, scores, "o-", markersize=4, label=name)
    axes.axhline(1 / e11_recall.VALUES, linestyle=":", linewidth=0.8, color="gray")
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("steps (dotted: chance)")
    axes.set_ylabel("recalled")
    axes.legend()


for name, trial in trials.items():
    print(f"{name:13} {trial.evaluations[-1][1]['accuracy']:.0%} after {len(trial.steps)} steps")
show_picture(
    draw_learning, size=(8, 2.8),
    alt="Share recalled over training steps: full attention is first, the window next, the state last.",
)  # fmt: skip

# %% [markdown]
# What has the state learned? By section 3 there is one thing to do: put the keys of different pairs at right angles,
# and ask with a query along the right one. **Predict** the angles: root mean square of the cosine between two keys of
# one text, at random in 8 features 0.35, in the untrained layer, in the trained one.

# %%
delta = trials["delta, 8 x 8"]
fresh = start(delta.config, task, delta.recipe, arms["delta, 8 x 8"].alter)
inputs, _ = delta.held_out(64)
n = task.pairs
same = inputs[:, 2 * n :, None] == inputs[:, None, 0 : 2 * n : 2]  # question and pair have one key
rows = []
for name, trial in (("untrained", fresh), ("trained", delta)):
    with torch.no_grad(), morph.trace(trial.model) as looked:
        trial.model(inputs)
    for layer in range(2):
        at = f"blocks.{layer}.attention"
        keys = looked[f"{at}.unit_keys"][:, 0, 1 : 2 * n : 2]  # where the value is read, and the pair is complete
        asked = F.normalize(looked[f"{at}.unit_queries"][:, 0, 2 * n :], dim=-1)
        between = (keys @ keys.mT)[:, ~torch.eye(n, dtype=torch.bool)]
        match = asked @ keys.mT
        rows.append([
            f"{name}, layer {layer}", f"{between.square().mean().sqrt():.2f}", f"{match[same].mean():+.2f}",
            f"{match[~same].square().mean().sqrt():.2f}",
        ])  # fmt: skip
show_table(["", "cosine between keys (RMS)", "query and its own key", "query and others (RMS)"], rows)

# %% [markdown]
# In the layer that recalls, keys have moved apart, towards right angles, and queries point at the right one. (Which of
# the two layers does the work may differ with the seed; look for the one whose queries match.) Interference is a matter
# of what is *learned*, as long as there is room: as many features as keys to tell apart.
#
# Now the lab's runs: more mixers, three numbers of pairs, three seeds, each at its best of three learning rates.

# %%
recall = recorded("recall")
most = recall.points[-1]
rows = []
for arm in recall.arms:
    values, gains = (recall.numbers(arm, most, measure) for measure in ("accuracy", "late gain"))
    memory = recall.numbers(arm, most, "memory")[0]
    rows.append([
        arm, f"{sum(values) / len(values):.0%}", f"{min(values):.0%} to {max(values):.0%}",
        f"{sum(gains) / len(gains):+.2f}", f"{memory:,.0f}",
    ])  # fmt: skip
steps = recall.declared["recipe"]["steps"]
print(f"{most['pairs']:.0f} pairs, {len(recall.declared['seeds'])} seeds, at most {steps} steps")
show_table(["mixer", "recalled", "from seed to seed", "gain in the last quarter of steps", "bytes kept"], rows)

# %%
show_picture(
    lambda figure: e11_recall.draw(recall, figure), size=(9, 5),
    alt="Accuracy over 2, 4 and 8 pairs: states by their size above, other mixers below; each seed a dot.",
)  # fmt: skip

# %%
show_findings("recall")

# %% [markdown]
# How to read this:
#
# - **"Undecided" is meant.** A small state that still gained when the steps ran out may be unable to hold the pairs, or
#   slow to learn; the claim was declared so that this cannot pass for an answer. The table's last gains tell which.
# - **Erasing.** Section 3 shows the delta rule err less on random keys. Whether that makes *trained* models of one size
#   recall more is another question, for training chooses the keys. Compare the two rows of 4 × 4, and the claim's
#   interval: an argument from random keys is no measurement of trained ones.
# - **One layer that attends.** Where the claim holds, a single full layer over states, or over windows, recalls what
#   full attention does, at a part of the memory. That is the case for hybrids in one line.
# - **"Without softmax no exact recall"** is too strong as it stands. A state with as many features as there are keys
#   can be exact; the trouble is that a real text has more keys than any state has features, and nobody says in advance
#   which will be asked for.
#
# ## 8 · The hybrid, and its parts
#
# Step 14 brings more than a state: a convolution over four tokens, a decay, an output gate. Which of these earn what
# they cost?
#
# **Predict** first, then read: which part, taken out, hurts most in a short training on text?

# %%
parts_found = recorded("hybrid-parts")
rows = []
for arm in parts_found.arms:
    values = parts_found.numbers(arm, {}, "bits per byte")
    rows.append([arm, f"{sum(values) / len(values):.3f}", f"{min(values):.3f} to {max(values):.3f}"])
show_table(["", "bits per byte", "from seed to seed"], rows)

# %%
show_findings("hybrid-parts")

# %% [markdown]
# At this size the convolution and the decay earn their place, and the output gate does not: without it the loss was
# lower. And the hybrid gains less on windows than was claimed beforehand; without its convolution nothing is left of
# the gain. So "the state is better than a window" would be the wrong lesson: a good part of it is four taps over
# neighbouring tokens. All of that after few steps on short texts, where a state's reach is worth least.
#
# ## 9 · Keep all, read some
#
# The other way out leaves softmax alone. An *indexer*, a small attention without values, scores every token in sight,
#
# $$I(t, s) = \sum_h w_{t,h}\,\mathrm{relu}\big(q_{t,h}^\top k_s / \sqrt{d_I}\big)$$
#
# and attention reads the $k$ best only (DeepSeek-V3.2, GLM-5). A choice has no gradient, so the indexer is taught: its
# scores, through a softmax, are to match attention's own weights.
#
# **Predict.** Our recorded model chooses 16 of up to 64 tokens. How much of what dense attention would weigh lies on
# the chosen ones: with the trained indexer, with an untrained one, at best? And how good would simply the last 16
# tokens be?

# %%
sparse = subject("sparse")
print(sparse.name)
K, rows = sparse.config.attention.indexer.top_k, []
for name, one in (("trained", sparse), ("untrained", siblings(sparse, [sparse.config])[0])):
    with torch.no_grad(), morph.trace(one.model) as looked:
        one.model(sparse.ids(64, batch=4))
    for layer in range(sparse.config.n_layers):
        at, mixer = f"blocks.{layer}.attention", one.model.blocks[layer].attention
        scores = looked[f"{at}.queries"] @ looked[f"{at}.keys"].mT * mixer.scale
        causal = torch.ones(64, 64, dtype=torch.bool).tril()
        dense = scores.masked_fill(~causal, -torch.inf).softmax(-1).mean(1)  # over heads: (B, S, S)
        chosen = torch.zeros_like(dense).scatter(-1, looked[f"{at}.indexer.chosen"], 1.0)
        recent = causal & ~causal.tril(-K)
        best = torch.zeros_like(dense).scatter(-1, dense.topk(K).indices, 1.0)
        shares = [(dense * kept).sum(-1)[:, 2 * K :].mean().item() for kept in (chosen, best, recent)]
        rows.append([f"{name}, layer {layer}", *(f"{share:.0%}" for share in shares)])
even = sum(K / (t + 1) for t in range(2 * K, 64)) / (64 - 2 * K)
print(f"{K} tokens at random would hold {even:.0%}")
show_table(["", f"the indexer's {K}", f"the best {K}", f"the last {K}"], rows)

# %% [markdown]
# The trained indexer comes close to the best possible choice. But look at the last column: in models this small most
# attention is near, and recency alone does nearly as well in some layers. What an indexer adds is whatever is far, and
# that shows where the two columns differ. An untrained one is as good as chance.
#
# What does it cost? **Two sentences that one meets**: "the cache is unchanged", and "attention becomes linear".
# Predict both, for DeepSeek-V3 and V3.2.

# %%
old, new = (RELEASED[name].config for name in ("DeepSeek-V3", "DeepSeek-V3.2"))
a, b = (morph.count(config).kv_bytes_per_token for config in (old, new))
print(f"cached, bf16: {a:,} bytes a token, then {b:,} ({b / a - 1:+.0%}): the indexer's keys")
rows = []
for S in (2048, 8192, 32_768, 131_072):
    dense, chosen = (mixer_cost(config, 30, S).scores / S / 1e9 for config in (old, new))
    index = indexer_cost(new.attention.indexer, new.attention.q_rank, new.d_model, S, None).scores / S / 1e9
    rows.append([f"{S:,}", f"{dense:.2f}", f"{chosen:.2f}", f"{chosen / dense:.2f}", f"{index / chosen:.0%}"])
show_table(["tokens read", "GFLOPs a token, dense", "with the indexer", "ratio", "of that, the indexer"], rows)

# %% [markdown]
# Neither holds. The indexer's key of each token is cached as well. And the indexer meets every pair of tokens, if
# cheaply: at long lengths most of what is left is its own work, and that grows as before. (Real indexers run in fp8,
# which these counts do not see.) At 2,048 tokens there is nothing to leave out, and choosing only costs.
#
# ## Where the field has not settled
#
# - **Whether at all.** Qwen moved hybrids into its main line; MiniMax went to 7:1 and back to softmax everywhere with
#   M2; DeepSeek and GLM keep softmax and choose. Models without any attention exist (Falcon Mamba, RWKV-7). Kimi
#   Linear's report compares a hybrid with full attention under one recipe, by its own authors; at the frontier's
#   scale nobody has published such a comparison.
# - **How many layers attend.** One in four (Qwen3-Next, Qwen3.5, Kimi Linear, OLMo Hybrid), one in eight (MiniMax-01,
#   Ling 2.5).
# - **What the state does.** Adds at a fixed fading (lightning), or erases with one decay a head (Gated DeltaNet) or one
#   for each feature (KDA). OLMo Hybrid lets $\beta$ go up to 2: see exercise 3.
# - **What attends beside it.** Gated attention with few heads (Qwen), latent attention without positions (Kimi
#   Linear), latent attention with them (Ling 2.5).
#
# **Corrections.** Five statements that one meets, and what holds:
#
# - "$S\,(\alpha I - \beta k k^\top)$." The decay multiplies the erased part as well; you measured the difference.
# - "Ling 2.5 does the same, at 3:1." At 7:1, and the layers that attend have latent attention.
# - "The cache is unchanged" in sparse attention. In bf16 it grew by what you computed above.
# - "Constant memory, forever." Of the states; the layers that attend go on caching, and a state weighs as much as
#   thousands of tokens from the start.
# - "A fixed state cannot retrieve precisely." It can, as many pairs as it has features, at right angles.
#
# **What couples to what.** The rule is stable only for keys of bounded length ($\beta \lVert k \rVert^2 < 2$), hence
# unit keys. Padding must write zeros, or it stays in the state. Drafts and shared prefixes need copies of states. The
# order of tokens is in the decays, so Gated DeltaNet and KDA take no RoPE (Ling 2.5's states do), and Kimi Linear's
# other layers then do without it, too. A state's size is fixed before the text is known, so the layers that attend must
# cover what does not fit.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · One step.** The gated delta rule for one head: from the state (Dk, Dv), a key of length 1, a value, a query and
# two numbers make the new state and what is read from it.


# %%
# Exercise 1 · fade, erase, write, read
def delta_step(
    state: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q: torch.Tensor, alpha: float, beta: float
) -> tuple[torch.Tensor, torch.Tensor]: ...


# %%
checks.delta_step(delta_step)

# %% [markdown]
# **2 · Level.** After how many tokens does the cache of one softmax layer (`kv_heads` of `head_dim`, bf16) weigh as
# much as the state of one delta layer (`heads` of `key_dim` × `value_dim`, fp32; leave its convolution out)?


# %%
# Exercise 2 · when a cache has grown as heavy as a state
def level_at(kv_heads: int, head_dim: int, heads: int, key_dim: int, value_dim: int) -> float: ...


# %%
checks.level_at(level_at)

# %% [markdown]
# **3 · A state that flips.** A state of one number, a key of 1 and values of 0 leave of the rule $S \leftarrow \alpha
# (1 - \beta)\, S$. Choose $\alpha$ in $[0, 1]$ and $\beta$ in $[0, 2]$ for each bit so that $S$, which starts at 1,
# ends at +1 after an even number of ones and at −1 after an odd one, however long the text. (With $\beta \le 1$ there
# is no way: why?)


# %%
# Exercise 3 · parity
def alpha_beta(bit: int) -> tuple[float, float]: ...


# %%
checks.parity(alpha_beta)

# %% [markdown]
# **4 · What is kept.** From an indexer's `scores` (S, S), query by key, make the mask of what attention may read: of
# the keys up to the query's own place the `top_k` best, all of them while there are no more; ties go to the earlier
# key.


# %%
# Exercise 4 · from scores to a mask
def kept(scores: torch.Tensor, top_k: int) -> torch.Tensor: ...


# %%
checks.kept(kept)

# %% [markdown]
# ## Further reading
#
# - *Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention*, Katharopoulos et al., 2020.
# - *Linear Transformers Are Secretly Fast Weight Programmers*, Schlag et al., 2021: interference, and the delta rule.
# - *Parallelizing Linear Transformers with the Delta Rule over Sequence Length*, Yang et al., 2024: chunks.
# - *Gated Delta Networks: Improving Mamba2 with Delta Rule*, Yang et al., 2024.
# - *Kimi Linear: An Expressive, Efficient Attention Architecture*, Kimi Team, 2025: a decay for each feature.
# - *Lightning Attention-2*, Qin et al., 2024, and *MiniMax-01*, MiniMax, 2025: fixed decays, one layer in eight.
# - *Zoology: Measuring and Improving Recall in Efficient Language Models*, Arora et al., 2023: the recall task.
# - *Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues*, Grazzi et al., 2024: β up to 2.
# - *DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek Sparse Attention*, DeepSeek-AI, 2025.
