# %% [markdown]
# # 07 · Mixture of experts
#
# In a dense model each token pays for each parameter. A mixture of experts stores many small networks where one
# large network stood, and lets every token use a few of them. Parameters and arithmetic part company; in return
# somebody has to choose, and the choosing brings problems of its own.
#
# **After this notebook you can**
#
# - write the routed layer in a dozen lines and get the trained layer's own output;
# - say what a change of expert size, count and *k* costs, in stored and in used weights;
# - measure how unevenly a router works, and explain what a loss and a bias do about it;
# - count what crosses between devices when experts are spread over them.
#
# It needs no network and no GPU: two CPU cores are enough.

# %%
import math
import os

import torch
import torch.nn.functional as F

import morph
from morph.checks import mixture_of_experts as checks
from morph.story.subject import subject
from morph.train import load_corpus
from morph.train.data import training_offsets, windows
from morph.widgets import RouterView, Stepper, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # a shorter training, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain


# %% [markdown]
# ## Twelve frames
#
# The row of tiles at the foot is the experts of one layer; whatever stands above a tile is about that expert. Full
# means: at work. Three small models were trained for this figure. They have the same 32 experts and differ in what
# spreads the tokens over them: nothing, a loss, or a bias.
#
# **Predict before you step.** Left alone, will the router (a) use all experts about equally, (b) prefer some, or
# (c) end with a handful? And of four devices that share the experts, how many does one token's work visit?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("moe")

# %% [markdown]
# ## Scores, choice, weights
#
# A router is one matrix. For a token $x$ it gives every expert a probability; the $k$ most probable are chosen, and
# their probabilities are divided by their sum and multiplied by a scale $s$ (why, comes below):
#
# $$p = \mathrm{softmax}(W_r x), \qquad \mathcal T = \text{top-}k(p), \qquad
#   w_e = s\,\frac{p_e}{\sum_{j \in \mathcal T} p_j} \quad (e \in \mathcal T)$$
#
# We take the recorded model that was balanced by a loss, let it read a line of Python, and catch what its layer 2
# reads.

# %%
recorded = subject("experts-auxiliary")
model, spec = recorded.model, recorded.config.feed_forward
print(recorded.name)

text = "for value in values:"
ids = torch.tensor([list(text.encode())])
with torch.no_grad(), morph.trace(model) as seen:
    model(ids)
block = model.blocks[2]
moe = block.feed_forward
with torch.no_grad():
    x = block.feed_forward_norm(seen["blocks.2.feed_forward_norm.input"])[0]  # (T, D): one row a token
print("the layer reads", tuple(x.shape))


# %%
@torch.no_grad()
def route(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Probabilities (T, E), weights (T, k) and the chosen experts (T, k)."""
    p = F.softmax(x @ moe.router.logits.weight.T, dim=-1)
    best, chosen = p.topk(spec.top_k, dim=-1)
    weights = spec.routed_scale * best / best.sum(dim=-1, keepdim=True)
    return p, weights, chosen


p, weights, chosen = route(x)
print("experts of the last token:", chosen[-1].tolist())
shown = [round(w, 2) for w in weights[-1].tolist()]
print("their weights:            ", shown, "sum", round(weights[-1].sum().item(), 3))
print("as the model chose:       ", seen["blocks.2.feed_forward.router.chosen"][-1].tolist())

# %% [markdown]
# ## The sum
#
# Each expert is a gated network as in step 6, only narrow. The layer is the weighted sum of the chosen ones, and of
# the shared expert, which no router is asked about:
#
# $$y = \sum_{e \in \mathcal T} w_e\, E_e(x) + E_{\text{shared}}(x), \qquad
#   E(x) = W_{\text{down}}\big(\mathrm{silu}(W_{\text{gate}}\,x) \odot W_{\text{up}}\,x\big)$$
#
# **Predict.** How close will a few plain lines come to the layer's own output, which sorts the tokens by expert and
# multiplies in groups?


# %%
@torch.no_grad()
def layer(x: torch.Tensor) -> torch.Tensor:
    """The routed layer, one token and one expert at a time."""
    _, weights, chosen = route(x)
    y = torch.zeros_like(x)
    for t in range(len(x)):
        for w, e in zip(weights[t], chosen[t]):
            gate, up, down = (m[e] for m in (moe.experts.gate, moe.experts.up, moe.experts.down))
            y[t] += w * (down @ (F.silu(gate @ x[t]) * (up @ x[t])))
        shared = moe.shared[0]
        y[t] += shared.down(F.silu(shared.gate(x[t])) * shared.up(x[t]))
    return y


own = seen["blocks.2.feed_forward_delta"][0]
print(f"largest difference: {(layer(x) - own).abs().max():.0e}; largest output: {own.abs().max():.1f}")

# %% [markdown]
# ## Why the scale
#
# Step 10 cuts a dense network of width $F$ into halves and stores four pairs of them. If the two rows of a pair are
# equal in the router, a token takes both halves with probability weights ½ and ½. Unscaled, that is half of the
# dense network's output; with $s = 2$ it is all of it. So a cut alone changes nothing: stage 10 *contains* stage 9.

# %%
dense = morph.build(morph.stage(9, "nano"), seed=1)
routed = morph.build(morph.stage(10, "nano"), seed=2)
with torch.no_grad():
    for a, b in zip(dense.blocks, routed.blocks):
        network, experts = a.feed_forward, b.feed_forward.experts
        for name in ("gate", "up"):
            halves = getattr(network, name).weight.chunk(2)  # by rows: hidden features
            getattr(experts, name).copy_(torch.stack(halves * 4))
        experts.down.copy_(torch.stack(network.down.weight.chunk(2, dim=1) * 4))
        rows = b.feed_forward.router.logits.weight
        rows[1::2] = rows[0::2]
    same = {k: v for k, v in dense.state_dict().items() if "feed_forward." not in k}
    routed.load_state_dict(same, strict=False)
    difference = (dense(ids) - routed(ids)).abs().max()
scale = routed.config.feed_forward.routed_scale
print(f"scale {scale:g}; largest difference between the logits of stages 9 and 10: {difference:.0e}")

# %% [markdown]
# ## Stored and used
#
# Stored weights grow with the number of experts $N$, used ones with $k$. `morph.count` counts both on the built
# modules. (Frame 6 counts released models in the same way: built from their published shapes, without storage.)
#
# **Predict.** By which factor do the parameters grow from stage 9 to stage 10? And the FLOPs of a token?

# %%
rows = []
for k in range(9, 14):
    config = morph.stage(k, "nano")
    c, ffn = morph.count(config), config.feed_forward
    shape = f"{ffn.top_k} of {ffn.n_experts}, {ffn.n_shared} shared" if k > 9 else "dense"
    share = f"{c.active.all / c.total:.0%}"
    rows.append(
        [f"{k} `{morph.SLUGS[k]}`", shape, f"{c.total:,}", f"{c.active.all:,}", share, f"{c.flops(64).per_token:,}"]
    )
show_table(["stage, nano", "experts", "total", "active", "share", "FLOPs per token"], rows)

# %% [markdown]
# The FLOPs move by the router alone: a matrix of $d \times N$. In released models the active share has fallen:
# frame 6 counts it for Mixtral 8×7B (2023, 8 experts) and Qwen3-235B (2025, 128). Step 12's extra expert adds to the
# total and not to what is used, for it takes the place of one chosen expert.

# %% [markdown]
# ## Finer experts
#
# Cut each expert in four, choose four times as many, and a token uses as many weights as before. What grows is the
# number of teams it can choose from: $\binom{8}{2}$ against $\binom{32}{8}$.
#
# **A common comparison, corrected.** Often 8 experts with $k = 2$ are put beside 256 experts with $k = 8$, each 32
# times smaller, as if they cost the same. The stored weights are equal, the used ones are not: $2/8$ of them against
# $8/256$.

# %%
rows = []
for n, k in ((8, 2), (32, 8), (256, 8), (256, 64)):
    teams = math.comb(n, k)
    rows.append([f"{k} of {n}", f"{teams:,}" if teams < 1e9 else f"{teams:.1e}", f"{k / n:.1%}"])
show_table(["chosen", "teams", "share of the expert weights used"], rows)

# %% [markdown]
# The 256 experts in the third row run an eighth of the arithmetic. Real models that are built so save on purpose;
# at equal cost the number would be that of the last row. And a count of teams is not a measure of quality: it says
# what could be expressed, not what training finds.

# %% [markdown]
# ## Your text
#
# Which experts does each character go to? Change the text, move with the arrow keys. Do brackets share experts? Do
# letters of one word?

# %%
RouterView("experts-auxiliary", text="def area(width, height):\n    return width * height\n")

# %% [markdown]
# ## Balance
#
# Nothing so far asks the router to use all experts. Preference feeds itself: only what is chosen is trained, and what
# is trained is worth choosing. Two remedies are in use. The first adds to the loss
#
# $$L_{\text{balance}} = N \sum_e f_e P_e, \qquad f_e = \text{share of the choices}, \quad P_e = \text{mean of } p_e$$
#
# which is 1 when both are even, and larger when full experts are also the probable ones. $f_e$ is a count and
# passes no gradient; $P_e$ does.
#
# The second leaves the loss alone. Each expert has a bias $b_e$ that is added to $p_e$ for the *choice* and not for
# the weights. After every step it moves by a fixed amount against the load:
#
# $$\mathcal T = \text{top-}k(p + b), \qquad b_e \leftarrow b_e + \gamma\,\mathrm{sign}(\bar c - c_e)$$
#
# with $c_e$ the tokens that expert $e$ got, and $\bar c$ their mean.


# %%
def balance_loss(p: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """N times the sum of share of choices times mean probability; 1 when even."""
    n = p.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
    return n * (f * p.mean(dim=0)).sum()


def move(bias: torch.Tensor, load: torch.Tensor, rate: float) -> torch.Tensor:
    """Up where fewer tokens than average came, down where more."""
    return bias + rate * torch.sign(load.mean() - load)


even = torch.full((32, 32), 1 / 32)
print("even use:        ", round(balance_loss(even, torch.arange(32)[:, None]).item(), 3))
print("our line of text:", round(balance_loss(p, chosen).item(), 3))
moved = move(torch.zeros(4), torch.tensor([5.0, 1, 3, 3]), rate=0.001)
print("biases of four experts with 5, 1, 3 and 3 tokens:", [round(v, 3) for v in moved.tolist()])

# %% [markdown]
# **Predict.** Three models start from the same weights and read the same text. After a short training, how full is
# the fullest expert of layer 2, relative to an even share: with nothing, with the loss (times 0.01), with the bias?
# The most that is possible is $N/k$: every token chooses it.

# %%
corpus = load_corpus()
steps = 3 if QUICK else 90


def loads_in_training(config: morph.ModelConfig) -> torch.Tensor:
    """How many tokens each expert of layer 2 got in each step, (steps, E)."""
    model = morph.build(config, seed=0).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    history = []
    for step in range(steps):
        offsets = training_offsets(corpus.train.size, 64, batch_size=4, seed=0, step=step, index=0)
        ids, targets = (torch.tensor(part) for part in windows(corpus.train, offsets, 64))
        model.loss(ids, targets).total.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(model.end_step()[2])  # moves the biases, where there are some
    return torch.stack(history).float()


def bars(load: torch.Tensor) -> str:
    """One character an expert, as high as its load; the highest is the most that is possible."""
    heights = (load / load.mean() / (32 / 7) * 8).clamp(max=7).int()
    return "".join("▁▂▃▄▅▆▇█"[h] for h in heights.tolist())


configs = {
    "nothing": morph.fork("unbalanced", "nano"),
    "a loss": morph.stage(12, "nano"),
    "a bias": morph.stage(13, "nano"),
}
for name, config in configs.items():
    history = loads_in_training(config)
    for label, part in (("first", history[: steps // 3]), ("last", history[-steps // 3 :])):
        load = part.sum(dim=0)
        fullest, starved = load.max() / load.mean(), int((load < load.mean() / 4).sum())
        print(f"{name:8} {label:5} third  {bars(load)}  fullest {fullest:.1f} × even, under a quarter: {starved}")

# %% [markdown]
# The runs recorded for the figure went on for longer. Their loads over the last stretch, all four layers:

# %%
for name in ("experts-unbalanced", "experts-auxiliary", "experts"):
    run = subject(name)
    load = torch.tensor(run.metrics[-1]["expert_load"])  # (layers, E), shares of the choices
    fullest, emptiest = load.amax(dim=-1) / load.mean(dim=-1), load.min() / load.mean()
    bits = run.metrics[-1]["validation_bits_per_byte"]
    by_layer = ", ".join(f"{v:.1f}" for v in fullest.tolist())
    print(f"{name:19} {bars(load[2])}  {run.metrics[-1]['step']} steps, {bits:.3f} bits per byte")
    print(f"{'':19} fullest, by layer: {by_layer} × even; emptiest of all: {emptiest:.2f} × even")

# %% [markdown]
# Read this with care.
#
# - **It is a collapse in part.** Some experts are starved, none is dead. These models are small, their runs short,
#   and with seven of 32 chosen a router has to spread out anyway. With one or two chosen, and in long runs, there
#   is more room to fall.
# - **Uneven is not the same as bad.** In so short a run the model without any balancing can predict as well as the
#   others, or better: compare the bits, and mind that each is a single run. Balance is bought for hardware that waits
#   for its fullest expert, and for the experts that would otherwise never learn.
# - **A loss pulls, a bias pushes.** The loss is a gradient that competes with prediction, so its coefficient is
#   small and it evens the load only so far. The bias has no gradient and no such limit. But with it a token may be
#   sent to an expert that the router itself ranks lower:

# %%
biased = subject("experts")
with torch.no_grad(), morph.trace(biased.model) as seen_biased:
    biased.model(biased.ids(64, batch=4))
of = "blocks.2.feed_forward.router"
by_probability = seen_biased[f"{of}.probabilities"].topk(7).indices.sort(dim=-1).values
by_choice = seen_biased[f"{of}.chosen"].sort(dim=-1).values
b = biased.model.blocks[2].feed_forward.router.selection_bias
moved = (by_probability != by_choice).any(dim=-1).float().mean()
print(f"tokens whose seven are not the seven most probable: {moved:.0%}")
print(f"biases from {b.min():.3f} to {b.max():.3f}; an even probability is {1 / 32:.3f}")

# %% [markdown]
# ## Experts on several devices
#
# Large models hold their experts on different devices. Each routed layer then sends every token to where its
# experts are, and the answers back: two exchanges of all with all, in each layer.
#
# **Predict.** Four devices hold eight experts each, and a quarter of the positions. Which share of the (token,
# expert) pairs crosses to another device, when routing knows nothing of devices?

# %%
DEVICES = 4
chosen = seen_biased[f"{of}.chosen"]  # (T, k): 4 texts of 64 tokens
home = (torch.arange(64) * DEVICES // 64).repeat(4)  # where each token is
there = chosen * DEVICES // 32  # where its experts are
pairs = torch.zeros(DEVICES, DEVICES, dtype=torch.long)
pairs.index_put_((home[:, None].expand_as(there), there), torch.ones_like(there), accumulate=True)
print(f"crossing: {1 - pairs.trace() / pairs.sum():.1%} of {pairs.sum():,} pairs")
reach = sum(len(set(row)) for row in there.tolist()) / len(there)
print(f"devices that hold a token's experts: {reach:.2f} of {DEVICES} on average")
show_table(
    ["pairs", *(f"to device {to}" for to in range(DEVICES))],
    [[f"from device {start}", *map(str, row)] for start, row in enumerate(pairs.tolist())],
)

# %% [markdown]
# About what chance would give, which is $1 - 1/4$. Since one token's experts lie on nearly all devices, finer experts
# make the exchange wider. That is why some models choose groups of experts first, each group on one device, and experts
# inside the chosen groups only.
#
# ## Where the field has not settled
#
# - **Shared or not.** gpt-oss and the first Qwen3 models do without; Qwen took one up in Qwen3-Next and Qwen3.5, and
#   DeepSeek, Kimi and GLM have one.
# - **How many, how small.** From 8 experts with 2 chosen (Mixtral) to 512 with 10 (Qwen3-Next). Finer experts combine
#   better and travel worse.
# - **Scores.** A softmax lets experts compete for one unit of probability; DeepSeek-V3 scores each by a sigmoid.
# - **Balance.** A loss, a bias, or a bias with a small loss beside it.
# - **Which layers.** Several models keep the first layers dense.
#
# **Also often heard.** *Nine of 256 networks run per token* is eight chosen and one shared, in DeepSeek-V3.
# And *balance that leaves the loss alone* is nearly true: DeepSeek-V3 keeps a small balance loss within each
# sequence.
#
# **What couples to what.** The scale ties to $k$: change one without the other and the branch changes its size. A
# shared expert takes what all tokens need, so the others' loads change too. The bias needs counts of *all* tokens
# of a step, over all devices, or each device balances for itself. Dropping tokens of full experts, as older systems
# do, would make an output depend on who else is in the batch; nothing is dropped here.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · Route.** From router scores `logits` (T, E) make the weights and the chosen experts, both (T, k), most
# probable first, weights that add up to `scale`.


# %%
# Exercise 1 · from scores to weights
def my_route(logits: torch.Tensor, k: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]: ...


# %%
checks.route(my_route)

# %% [markdown]
# **2 · What is used?** The share of a layer's expert weights (router left out) that one token uses, with `n` routed
# experts, `k` of them chosen, and `shared` more that always run; all of one size.


# %%
# Exercise 2 · the share of the weights that one token uses
def used_share(n: int, k: int, shared: int) -> float: ...


# %%
checks.used_share(used_share)

# %% [markdown]
# **3 · At equal cost.** 256 experts store as much as 8 that are 32 times larger. How many of the 256 have to be
# chosen for a token to use as much as 2 of the 8? And how many teams are there then? Give both numbers exactly.

# %%
# Exercise 3 · the fair comparison with 2 of 8
equal_k = ...
teams = ...

# %%
checks.equal_cost(equal_k, teams)

# %% [markdown]
# **4 · A bias alone.** Make biases for the router below that send *every* token to expert 3, as one of its two,
# without changing a single probability. (`logits` are (T, 8) scores; the choice is the top 2 of probability plus
# bias.)

# %%
# Exercise 4 · a bias that every token obeys
logits = torch.randn(50, 8, generator=torch.Generator().manual_seed(3))
bias = ...

# %%
checks.biased(bias, logits)

# %% [markdown]
# **5 · Fewer devices a token.** Suppose a token may take experts from at most two of the four devices (those with
# the largest sum of its probabilities), the best seven there. Write the choice. `p` is (T, 32), eight neighbouring
# experts to a device; return the chosen experts (T, 7), most probable first.


# %%
# Exercise 5 · the best seven on the best two devices
def limited(p: torch.Tensor) -> torch.Tensor: ...


# %%
checks.limited(limited)

# %% [markdown]
# ## Further reading
#
# - *Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer*, Shazeer et al., 2017.
# - *GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding*, Lepikhin et al., 2020:
#   experts over devices.
# - *Switch Transformers*, Fedus, Zoph and Shazeer, 2021: one expert a token, and the balance loss above.
# - *Mixtral of Experts*, Jiang et al., 2024: step 10.
# - *DeepSeekMoE: Towards Ultimate Expert Specialization*, Dai et al., 2024: steps 11 and 12.
# - *Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts*, Wang et al., 2024, and *DeepSeek-V3
#   Technical Report*, DeepSeek-AI, 2024: step 13 and groups.
