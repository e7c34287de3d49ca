# %% [markdown]
# # 05 · The KV cache
#
# A model that writes reads, for every new token, what it kept of all the old ones. What that takes in memory and in
# time has changed attention more than any wish for better predictions: heads share keys and values, windows forget,
# latents compress.
#
# **After this notebook you can**
#
# - weigh a cache and predict its bytes, for heads, windows, latents and states;
# - say how many operations a byte of it feeds, and what a chip could do in the meantime;
# - decode with latents that are never unfolded, and say why a rotation forbids that;
# - read a claim such as *71 times smaller* and ask: than what?
#
# About 45 minutes. It needs no network and no GPU: two CPU cores are enough.

# %%
from dataclasses import replace

import torch

import morph
from morph.checks import kv_cache as checks
from morph.config import Attention
from morph.forks import config_of
from morph.measure.decode import reading, unfolded
from morph.measure.held import held
from morph.nn.position import rotate
from morph.story.accelerators import ACCELERATORS
from morph.story.released import RELEASED
from morph.story.subject import subject
from morph.story.written import in_bytes
from morph.widgets import Stepper, show_findings, show_picture, show_table

torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain


# %% [markdown]
# ## Eleven frames
#
# Orange is what is kept. In frames 5 to 8 area is bytes: the same four query heads stay in place, and what is cached
# under them changes.
#
# **Predict before you step.** Four query heads of 24 features: how many numbers does a token leave in one layer if
# (a) every head has its own keys and values, (b) all share one, (c) a latent of 48 and a rotary key of 12 are kept?
# And of two ways to compute attention from latents, will the logits agree exactly, nearly, or roughly?
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("kv-cache")

# %% [markdown]
# ## One step
#
# Keys and values of a token do not change when others follow it (in a causal model), so they are computed once and
# kept. A cache is nothing but those tensors. We let a trained model read forty characters, then one more.

# %%
shown = subject("sink")
model, config = shown.model, shown.config
print(shown.name)
ids = shown.ids(41)
with torch.no_grad():
    cache = model.new_cache()
    model(ids[:, :40], cache=cache)
    before = cache.nbytes
    with_cache = model(ids[:, 40:], cache=cache)[0, -1]
    without = model(ids)[0, -1]
print(f"read again: {in_bytes(before)}, added: {in_bytes(cache.nbytes - before)}")
print(f"logits differ by {(with_cache - without).abs().max():.0e}, the largest is {without.abs().max():.1f}")
for tensor in held(cache)[:2]:
    print(tensor.name, tensor.shape, in_bytes(tensor.nbytes))

# %% [markdown]
# The step computed one token's keys and values and not forty-one's, and read everything that was there. Nothing was
# approximated: the two sets of logits differ by rounding.
#
# ## The formula
#
# With $L$ layers, $n_\text{kv}$ heads of $d_h$ features, $s$ tokens, $b$ texts and $z$ bytes a number:
#
# $$\text{bytes} = 2 \cdot L \cdot n_\text{kv} \cdot d_h \cdot s \cdot b \cdot z$$
#
# The 2 is for keys and values. Note what is not in it: the number of query heads, and the width $d$ of the stream.
# (One reads that the cache grows with $d$. It grows with $n_\text{kv} \cdot d_h$, which models choose freely.)
#
# **Predict.** Llama 3 8B has 32 layers, 32 query heads and 8 key-value heads of 128 features, in two bytes. How
# much does one token leave? How much would 131,072 tokens take, and how much if every query head had its own?


# %%
def kv_bytes(layers: int, n_kv: int, d_h: int, s: int = 1, b: int = 1, z: int = 2) -> int:
    """The formula."""
    return 2 * layers * n_kv * d_h * s * b * z


print("ours, formula:", kv_bytes(4, 2, 24, s=41, z=4), " weighed:", cache.nbytes)
llama = RELEASED["Llama 3 8B"].config
as_mha = replace(llama, attention=replace(llama.attention, n_kv_heads=32))
rows = []
for name, one, n_kv in (("as released", llama, 8), ("as MHA", as_mha, 32)):
    each, long = kv_bytes(32, n_kv, 128), kv_bytes(32, n_kv, 128, s=131_072)
    assert (each, long) == (morph.count(one).kv_bytes_per_token, morph.count(one).cache_bytes(131_072))
    rows.append([name, in_bytes(each), in_bytes(long)])
show_table(["Llama 3 8B", "a token", "131,072 tokens"], rows)

# %% [markdown]
# The second row is often told as the model's own. It is that of a model that was never released; grouped heads are
# the reason why the real one takes a quarter. Its weights are often said to be 16 GiB:

# %%
weights = 2 * morph.count(llama).total
print(
    f"weights: {weights / 2**30:.2f} GiB = {weights / 1e9:.2f} GB;",
    f"an H100 has {ACCELERATORS['H100'].memory / 1e9:.0f} GB",
)

# %% [markdown]
# ## What one byte feeds
#
# A step of decoding reads a layer's whole cache once. Against each cached token every query head does a score and its
# share of a weighted sum: $2 d_h$ operations each. All heads that share a key read it together. In bf16:
#
# $$I = \frac{4\, n_q\, d_h}{2 \cdot 2\, n_\text{kv}\, d_h} = \frac{n_q}{n_\text{kv}} \quad\text{operations a byte}$$
#
# A chip with $F$ operations and $B$ bytes a second is kept busy from $F / B$ on, its *ridge point*. Below, it waits.
#
# **Predict.** By how many powers of ten is plain multi-head attention below an H100's ridge point? Which of the models
# in the figure comes nearest to it, and why that one?

# %%
show_table(
    ["chip", "bf16, TFLOP/s", "TB/s", "ridge point"],
    [[n, f"{c.flops / 1e12:,.0f}", f"{c.bandwidth / 1e12:.2f}", f"{c.ridge:.0f}"] for n, c in ACCELERATORS.items()],
)

# %%
names = ("Llama 2 7B", "Gemma 3 27B", "Llama 3 8B", "gpt-oss-120b", "Qwen3-235B-A22B", "Kimi K2.5", "DeepSeek-V3")
ridge, rows, bars = ACCELERATORS["H100"].ridge, [], {}
for name in names:
    read = reading(RELEASED[name].config, layer=0)
    bars[name] = read.intensity()
    rows.append([name, f"{read.flops:,}", f"{read.values:,}", f"{bars[name]:.1f}", f"{ridge / bars[name]:.1f}"])
show_table(["model", "operations a token", "numbers read", "operations a byte", "times below the H100's ridge"], rows)


# %%
def draw(figure):
    """A bar a model, and the ridge point as a line."""
    axes = figure.subplots()
    axes.barh(list(bars), list(bars.values()))
    axes.axvline(ridge, linestyle="--", color="C1")
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel(f"operations for each byte of cache; dashes: ridge point of an H100, {ridge:.0f}")


told = ", ".join(f"{name} {value:.1f}" for name, value in bars.items())
show_picture(draw, f"Bars of operations a byte on a logarithmic scale, against a line at {ridge:.0f}: {told}.")

# %% [markdown]
# A factor of 295 is 2.5 powers of ten; *nearly three orders of magnitude* rounds up. Three conditions belong to
# this sum:
#
# - **The batch does not help attention, but helps the rest.** Each text has its own cache, so $I$ stays. The weights
#   are read once for all texts, so the matrix products of a large batch do reach the ridge.
# - **It is for one new token a text.** Checking several drafted tokens at once (speculative decoding) multiplies $I$.
# - **Bytes a number count.** A cache in one byte doubles $I$; the chip's peak may double with it.
#
# Latents come near the ridge in another way, seen below: all heads read the *same* few numbers, and do more work on
# each. They do not make attention cheaper in operations. They make it read less.
#
# ## Sharing heads
#
# Step 7 lets groups of query heads read one key-value head (GQA; all of them one: MQA). A model whose heads within a
# group are copies of one another is the same function as the grouped one. So grouping is a restriction, and what it
# costs has to be measured.

# %%
grouped = morph.build(morph.stage("gqa"), seed=0)
full = morph.build(morph.stage("gated-ffn"), seed=0)  # four heads of its own each
weights = grouped.state_dict()
for name in list(weights):
    if "k_proj" in name or "v_proj" in name:
        heads = weights[name].unflatten(0, (2, 24))
        weights[name] = heads.repeat_interleave(2, dim=0).flatten(0, 1)
full.load_state_dict(weights)
caches = {}
with torch.no_grad():
    for name, one in (("grouped", grouped), ("copies", full)):
        caches[name] = one.new_cache()
        logits = one(ids, cache=caches[name])
        print(f"{name:8} {in_bytes(caches[name].nbytes):>8}   first logit {logits[0, -1, 0]:.6f}")

# %% [markdown]
# ## Latents
#
# Multi-head latent attention (MLA) asks why whole heads should be kept at all. Keys and values of all heads are linear
# maps of one vector, so keep a short vector $c$, and let every head unfold its own:
#
# $$c = \mathrm{norm}(W_{dkv}\, x), \qquad k_h = W_{uk,h}\, c, \qquad v_h = W_{uv,h}\, c$$
#
# Unfolding all of the past at every step would cost more than it saves. It need not be done, for
#
# $$q_h \cdot (W_{uk,h}\, c_j) = (W_{uk,h}^\top q_h) \cdot c_j$$
#
# Fold the matrix into the one new query, and it meets the cached latents as they are. The same goes for the values:
# gather latents first, and unfold the sum. (Released models norm the latent and cache it normed, so this still holds;
# and their queries unfold from a latent of their own, which is not cached.)
#
# **Predict.** How far apart will the two sides be, for products of up to 18?

# %%
latent = subject("mla")
spec, layer = latent.config.attention, latent.model.blocks[0].attention
with torch.no_grad(), morph.trace(latent.model) as seen:
    latent.model(ids)
at = "blocks.0.attention."
q = seen[at + "queries"][0, :, -1]  # (H, nope + rope), the last token's
c, k_rope = seen[at + "latents"][0], seen[at + "rotary_keys"][0]  # (N, R), (N, rope)
w_uk = layer.kv_up.weight.unflatten(0, (spec.n_heads, -1))[:, : spec.nope_dim].detach()  # (H, nope, R)
q_plain, q_rope = q.split((spec.nope_dim, spec.rope_dim), dim=-1)

naive = torch.einsum("hd,hnd->hn", q_plain, c @ w_uk.transpose(1, 2))  # keys of all tokens are made
folded = torch.einsum("hd,hdr->hr", q_plain, w_uk)  # once a step
absorbed = folded @ c.T
both = absorbed + q_rope @ k_rope.T
own = seen[at + "scores"][0, :, -1] / layer.scale
print(f"naive and absorbed differ by {(naive - absorbed).abs().max():.0e}")
print(f"with the rotary part, and the model's own scores: {(both - own).abs().max():.0e} of {own.abs().max():.1f}")

# %% [markdown]
# ## Why a rotation does not pass
#
# A rotated key is $R_j W_{uk} c_j$, and the rotation depends on the place $j$. Fold that, and the folded matrix is
# $W_{uk}^\top R_{i-j} q$: another one for every distance. **Predict**: if we fold without regard to that, as if the
# rotation could wait until after $W_{uk}$, how large is the error?

# %%
place = torch.arange(len(c))
angles = place[:, None] * 10_000.0 ** (-torch.arange(0, spec.nope_dim, 2) / spec.nope_dim)
cos, sin = angles.cos(), angles.sin()
keys = c @ w_uk.transpose(1, 2)
turned_keys = rotate(keys, cos, sin, "half-split")  # what rotary attention would compare with
turned_query = rotate(q_plain[:, None], cos[-1:], sin[-1:], "half-split")[:, 0]
right = torch.einsum("hd,hnd->hn", turned_query, turned_keys)
wrong = torch.einsum("hd,hdr->hr", turned_query, w_uk) @ c.T  # one folded matrix for all places
print(f"one matrix for all places is off by up to {(right - wrong).abs().max():.2f} of {right.abs().max():.2f}")

# %% [markdown]
# So MLA lets these features go without position, and adds a few that turn: `rope_dim` of every query, and one key of
# as many features that *all* heads share and that is cached beside the latent.
#
# What is cached, in DeepSeek-V3, and how much smaller is that? It depends on what stands beside it:

# %%
v3 = RELEASED["DeepSeek-V3"].config
mla = v3.attention
each = morph.count(v3).kv_bytes_per_token
plain = replace(v3, attention=Attention(n_heads=128, n_kv_heads=128, head_dim=128))
shared = replace(v3, attention=Attention(n_heads=128, n_kv_heads=8, head_dim=128))
rows = [["its latents and rotary keys", f"{each:,}", "1"]]
for name, size in (
    ("its own heads, unfolded (keys of 192, values of 128)", 61 * unfolded(mla) * 2),
    ("128 plain heads of 128", morph.count(plain).kv_bytes_per_token),
    ("8 shared heads of 128", morph.count(shared).kv_bytes_per_token),
):
    rows.append([name, f"{size:,}", f"{size / each:.1f}"])
show_table(["61 layers keep", "bytes a token", "times"], rows)

# %% [markdown]
# The well-known factor of 71 is that against its own heads; nobody would cache those. Against grouped heads, which
# is what others do, it is between three and four.
#
# ## Who keeps how little
#
# **Predict.** Which of these writes least for a token: Gemma 3 27B, Qwen3-235B, gpt-oss-120b, or Qwen3-Next?

# %%
rows = []
for name, one in RELEASED.items():
    total = morph.count(one.config).kv_bytes_per_token
    long = morph.count(one.config).cache_bytes(32_768) if one.config.position_limit is None else 0
    rows.append([name, str(one.year), in_bytes(total), in_bytes(long) if long else "no such text"])
rows.sort(key=lambda row: row[1])
show_table(["model", "year", "a token writes", "a text of 32,768 tokens keeps"], rows)

# %% [markdown]
# Divide the last column by the third, and you have how many tokens are kept in full. Windows forget (Gemma 3, Olmo 3,
# gpt-oss) and states do not grow (Qwen3-Next, Kimi Linear): notebooks 06 and 08. Two remarks on what is often
# said. *A sparse indexer leaves the cache as it was* (DeepSeek-V3.2, GLM-5): it caches a key of its own for every
# token, some fifth on top. And *latents are everywhere now*: some of the largest models here have them; most share
# heads.
#
# ## On the scales
#
# Every kind of cache in this project, weighed tensor by tensor. (Windows hold the last tokens only. A state is kept
# in four bytes a number, whatever the rest is.)

# %%
rows = []
for slug in ("2017", "gqa", "mqa", "mla", "sparse-attention", "sliding-window", "hybrid"):
    one = subject(config_of(slug))
    with torch.no_grad():
        kept = one.model.new_cache()
        one.model(one.ids(96), cache=kept)
    kinds: dict[str, int] = {}
    for tensor in held(kept):
        kinds[tensor.kind] = kinds.get(tensor.kind, 0) + tensor.nbytes
    formula = morph.count(one.config, bytes_per_value=4).cache_bytes(96)
    parts = ", ".join(f"{kind} {in_bytes(size)}" for kind, size in kinds.items())
    rows.append([f"`{slug}`", parts, f"{kept.nbytes:,}", f"{formula:,}"])
show_table(["after 96 tokens", "tensors", "weighed", "formula"], rows)

# %% [markdown]
# ## What it costs in loss
#
# The lab trained one small model with six kinds of heads, all with as many parameters: what attention saves goes into
# the feed-forward network. Every claim was written down before it ran.
#
# **Predict.** At half the cache, which loses less: two shared heads, or a latent of the same bytes?

# %%
show_findings("kv-heads")

# %% [markdown]
# Read this with care. These are networks of some ten thousand parameters after few steps on short contexts. What a
# latent costs here is a finding about so small a model, with a latent of 18 to 42 numbers and six rotating features;
# DeepSeek-V2 reports latents ahead of full heads at its size, and neither settles the other. *Within noise* means
# that these seeds cannot tell, not that there is no difference. Frames 5 to 8 show the same readings beside each
# kind.
#
# **What couples to what.** Fewer key-value heads leave less for tensor parallelism to split: with 8 of them on 16
# devices, each is held twice. MLA's latent cannot be split by heads at all. QK-norm does not fit onto latents; their
# norms stand in. The cache couples to the batch: half the bytes are twice as many texts at once, which is what makes
# the weights' products worth their read.
#
# **Unsettled.** Whether a rank or a number of heads is the better thing to save; how few bytes a number a cache
# bears (8 and 4 bits are in use); whether to forget by distance, by content, or not at all.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · The formula with windows.** `windows` has an entry a layer: the number of tokens that it sees, or `None` for
# all. Answer the bytes of a cache of `s` tokens in each of `b` texts, `size` bytes a number.


# %%
# Exercise 1 · bytes of layers with and without windows
def my_cache_bytes(windows: list[int | None], n_kv: int, d_h: int, s: int, b: int, size: int) -> int: ...


# %%
checks.cache_bytes(my_cache_bytes)

# %% [markdown]
# **2 · What a byte of latents feeds.** `n_q` query heads decode in the absorbed form: each meets the latent (`r`
# numbers) and the rotary key (`d_rope`), and gathers latents. All heads share one read. How many operations a byte,
# at `size` bytes a number? (A multiply and an add are two operations.)


# %%
# Exercise 2 · operations a byte of absorbed latents
def latent_intensity(n_q: int, r: int, d_rope: int, size: int) -> float: ...


# %%
checks.latent_intensity(latent_intensity)

# %% [markdown]
# **3 · Absorb.** The scores (H, N), unscaled, of one query against all cached tokens, without ever making a key:
# `q` (H, nope), `q_rope` (H, rope), `w_uk` (H, nope, R), `latents` (N, R), `rotary_keys` (N, rope).


# %%
# Exercise 3 · scores from latents, nothing unfolded
def absorbed_scores(
    q: torch.Tensor, q_rope: torch.Tensor, w_uk: torch.Tensor, latents: torch.Tensor, rotary_keys: torch.Tensor
) -> torch.Tensor: ...


# %%
checks.absorbed_scores(absorbed_scores)

# %% [markdown]
# **4 · How many at once?** One chip of 80 GB ($80 \cdot 10^9$ bytes) holds Llama 3 8B in bf16, and nothing else but
# caches in bf16. How many texts of 8,192 tokens can it write at once?

# %%
# Exercise 4 · texts beside the weights
texts = ...

# %%
checks.texts(texts)

# %% [markdown]
# ## Further reading
#
# - *Fast Transformer Decoding: One Write-Head is All You Need*, Shazeer, 2019: the argument from bandwidth, and MQA.
# - *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, Ainslie et al., 2023.
# - *DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model*, DeepSeek-AI, 2024: latents.
# - *Roofline: An Insightful Visual Performance Model for Multicore Architectures*, Williams et al., 2009.
# - *Efficiently Scaling Transformer Inference*, Pope et al., 2022: what batches and devices change.
