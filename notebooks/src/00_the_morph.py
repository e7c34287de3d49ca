# %% [markdown]
# # 00 · The morph
#
# Take the decoder block of 2017 and change one thing. Train it, count it, look at it. Then change the
# next thing. After fourteen changes you hold a block of the kind that ships in 2026, and you know what
# each change did, because nothing else moved with it.
#
# **After this notebook you can**
#
# - name the fourteen changes, and say for each which organ it touches and what pressure drove it;
# - build any of the fifteen stages, run it, and read its difference from the stage before;
# - tell a measured difference from one that a second random seed would wipe out.
#
# It needs no network and no GPU: two CPU cores are enough. Run the cells from top to bottom.

# %%
import math
import os
import tempfile
from pathlib import Path

import torch

import morph
from morph.checks import the_morph as checks
from morph.train import Recipe, Run, Sweep, load_corpus, load_model, train
from morph.widgets import Stepper, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # a shorter training, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain


print(f"morph {morph.__version__}, torch {torch.__version__}, {len(morph.STEPS)} steps")

# %% [markdown]
# ## Fourteen frames, one change each
#
# On the left, one layer on its residual stream: the thick line that every layer reads from and adds to.
# What a step changes is lit; what it takes away stays for that one frame as a dashed outline. On the
# right, what the model costs and how well it predicts. The numbers come from counting the built models
# and from training all fifteen stages on the same text.
#
# **Predict before you step.** Of the fourteen changes, how many make this small model *better at
# predicting text*, by more than the luck of the seed? And which one do you expect to cut the memory of a
# long conversation most? Write both answers down.
#
# Click the figure, then: → and ← step, Home and End jump, space starts and stops it.

# %%
Stepper("morph")

# %% [markdown]
# ## A model is a config, a step is one change of it
#
# A stage is a small frozen record. Stage 0 is the 2017 block, decoder only; stage *k* is stage *k* − 1
# with step *k* applied. Every step says which organ it touches, who shipped it, and why. The order is one
# for learning, not one of dates.

# %%
rows = [[str(s.number), f"`{s.slug}`", str(s.year), s.before, s.after] for s in morph.STEPS]
show_table(["", "step", "year", "before", "after"], rows)

# %% [markdown]
# Since a stage is data, the change that a step makes can be read off, not only described. Try other
# numbers.

# %%
k = 7
for change in morph.diff(morph.stage(k - 1), morph.stage(k)):
    print(change)
print("exactly:", morph.STEPS[k - 1].relation)

# %% [markdown]
# ## Build it and run it
#
# `morph.build` turns a config into an ordinary PyTorch module. Token ids go in, one row of logits per
# position comes out. The vocabulary here is the 256 byte values.
#
# **Predict.** Before any training the model knows nothing. How many bits per byte does a uniform guess over
# 256 values cost? Will the untrained model do better or worse than that?

# %%
config = morph.stage(k, size="nano")
model = morph.build(config, seed=0)
ids = torch.tensor([list(b"Every layer adds to one stream.")])
logits = model(ids)
loss = model.loss(ids[:, :-1], ids[:, 1:])
print("logits", tuple(logits.shape))
bits = loss.cross_entropy.item() / math.log(2)  # the loss is in nats
print(f"untrained: {bits:.2f} bits per byte; a uniform guess: {math.log2(256):.0f}")

# %% [markdown]
# Worse: its first logits are not all equal, so it already has opinions, and they are not based on anything.

# %% [markdown]
# The parameters tell the same story as the config. Compare two neighbouring stages by the names and
# shapes of their tensors: whatever the step does not touch has to appear in both.


# %%
def tensors(stage: int) -> set[str]:
    """Names and shapes of the parameters, of the first layer only where layers repeat."""
    parameters = morph.build(morph.stage(stage, size="nano")).named_parameters()
    other_layers = tuple(f"blocks.{layer}." for layer in range(1, 4))
    return {f"{name} {tuple(p.shape)}" for name, p in parameters if not name.startswith(other_layers)}


for stage in (6, 7):
    gone, new = tensors(stage - 1) - tensors(stage), tensors(stage) - tensors(stage - 1)
    print(f"step {stage}, {morph.SLUGS[stage]}")
    print("\n".join([f"  - {name}" for name in sorted(gone)] + [f"  + {name}" for name in sorted(new)]))

# %% [markdown]
# ## What each stage costs
#
# Counting needs no training. *Total* is every weight in memory, *active* what one token uses. *KV* is
# what one token adds to the cache in bf16, and the last column is the whole cache once 1,024 tokens have
# been read.
#
# **Predict.** Which step first lets total and active part company? And which steps shrink the cache?

# %%
print(f"{'':2}  {'stage':18} {'total':>9} {'active':>9} {'KV B/token':>10} {'KiB at 1,024':>12}")
for stage, slug in enumerate(morph.SLUGS):
    c = morph.count(morph.stage(stage))
    cache = c.cache_bytes(1024) / 1024
    print(f"{stage:2}  {slug:18} {c.total:9,} {c.active.all:9,} {c.kv_bytes_per_token:10,} {cache:12,.1f}")

# %% [markdown]
# Total and active part at `moe`: every expert is stored, a token pays for two. The cache shrinks at `gqa`, which
# shares keys and values, and at `sliding-window`, which drops them. `hybrid` writes the fewest bytes per token, yet
# its cache is no smaller: a window had already stopped growing, and here the state that replaces it is larger
# than the keys and values of one window. What it buys is reach: a window forgets what lies behind it, a state keeps
# a summary.
#
# Step 6 keeps the count to the digit: two matrices of 4*d* become three of 8*d*/3. That is a whole number here,
# because the widths are multiples of 48; real models round it up to what suits the hardware.

# %% [markdown]
# ## What became of each part
#
# The changes fall into seven groups. The column *quality gain?* is the usual answer from published ablations of
# large models; *measured here* is what our own fifteen stages say, step by step: the change in validation bits
# per byte (negative is better), with the half-width of its 95 % interval over the seeds. In **bold** is what lies
# outside that interval. The rest is *within the spread*: these runs cannot tell it from zero.

# %%
ROWS = [
    ("Position", "a sinusoid, added once", "queries and keys rotated in each layer", "small",
     "longer texts; distance instead of place", ["rope"]),
    ("Normalization", "LayerNorm after each addition", "RMSNorm before each branch", "small",
     "deep stacks, few bits per number", ["pre-norm", "rms-norm", "qk-norm"]),
    ("Feed-forward", "two matrices, ReLU", "three matrices, a SiLU gate", "moderate",
     "more from the same parameters", ["silu", "gated-ffn"]),
    ("Biases", "on every matrix", "none", "none", "steadier training at scale", ["no-bias"]),
    ("Key-value heads", "one pair for each query head", "shared in groups, or one latent", "usually none",
     "memory traffic while decoding", ["gqa"]),
    ("Context", "every layer sees everything", "windows or a fixed state in most layers", "by task",
     "a cache that grows with the text", ["sliding-window", "hybrid"]),
    ("Capacity", "one dense network", "many experts, few used per token", "yes, at scale",
     "parameters without equal arithmetic", ["moe", "fine-grained", "shared-expert", "loss-free-balance"]),
]  # fmt: skip
sweep = Sweep.reference()


def measured(slug: str) -> str:
    """What the sweep says about one step, in bits per byte; bold when it is outside the spread."""
    found = sweep.difference(morph.SLUGS.index(slug))
    interval = "" if found.interval is None else f"\u00a0±\u00a0{found.interval:.3f}"
    change = f"{found.mean:+.3f}{interval}".replace("-", "−")
    return f"`{slug}` **{change}**" if found.verdict in ("lower", "higher") else f"`{slug}` {change}"


show_table(
    ["Component", "2017", "Now", "Quality gain?", "Pressure", "Measured here"],
    [[*row[:5], "<br>".join(map(measured, row[5]))] for row in ROWS],
)

# %% [markdown]
# How many of your predictions held? The count, from the same sweep:

# %%
verdicts = {step.slug: sweep.difference(step.number).verdict for step in morph.STEPS}
for verdict in sorted(set(verdicts.values())):
    slugs = [slug for slug, v in verdicts.items() if v == verdict]
    print(f"{len(slugs):2}  {verdict}: {', '.join(slugs)}")
cache = {slug: sweep[slug].cache_bytes for slug in morph.SLUGS}
cuts = {step.slug: cache[step.slug] / cache[morph.SLUGS[step.number - 1]] for step in morph.STEPS}
deepest = min(cuts, key=cuts.get)
print(f"({sweep.size} models, {sweep.steps} steps, {len(sweep.seeds)} seeds)")
print(f"deepest cut of the cache at 1,024 tokens: {deepest}, to {cuts[deepest]:.0%} of what it was")

# %% [markdown]
# Read the table with care.
#
# - **The pressures are pressures of scale.** Nothing overflows in a model this small, its cache fits
#   anywhere, and four layers are not deep. Most of these changes were made to keep large models trainable,
#   servable and affordable, so a step that gains nothing here, or loses a little, can still be right there.
# - **A short training favours what helps to start.** These models have read very little text. Knowing
#   from the first step where the neighbouring bytes are, by rotation or by a window, is worth most when there
#   is little time to learn it; published gains after long training are far smaller.
# - **A verdict is a statement about these runs**, this text and this number of steps. Longer training can
#   reverse the sign of a small difference, and of fourteen comparisons at 95 % about one in twenty lands
#   outside its interval by luck alone.
# - **A new organ is not always a pure gain.** Experts bring a router and a balance rule, windows bring a
#   horizon, and a fixed state forgets.

# %% [markdown]
# ## Train one yourself
#
# A short training of the smallest size, on the Python source of your own standard library. The recipe is the
# same for every stage, so you may change `k` and compare.
#
# **Predict.** It starts where the untrained model above stood. Where will it be at the end: at 7 bits per byte,
# 5, or 3? And what does text look like that a model of that quality writes?

# %%
k = 9
steps = 18 if QUICK else 180
recipe = Recipe(steps=steps, batch_size=8, evaluate_every=steps // 6, evaluation_windows=32)
corpus = load_corpus()


def report(step) -> None:
    """Print the steps that measured the held-out text."""
    if step.validation_bits_per_byte is not None:
        print(f"step {step.step:4}: {step.validation_bits_per_byte:.2f} bits per byte on held-out files")


folder = Path(tempfile.mkdtemp(prefix="morph-"))
config = morph.stage(k, size="nano")
run = Run.create(folder / "run", config, recipe, corpus, device="cpu", stage=morph.SLUGS[k])
train(run, on_step=report, corpus=corpus)
trained = load_model(run)
print(f"read {run.summary.tokens:,} bytes in {run.summary.cpu_seconds:.0f} CPU seconds")

# %%
prompt = b"def "
start = torch.tensor([list(prompt)])
written = morph.generate(
    trained, start, max_new_tokens=120, temperature=0.8, generator=torch.Generator().manual_seed(0)
)
print(bytes(written[0].tolist()).decode("utf-8", errors="replace"))

# %% [markdown]
# After so little reading it writes the texture of Python and not Python. Each new byte was computed from the
# cache alone. Whether a cache is right can be checked: the logits of one pass over the whole text must equal
# those of a pass in pieces.

# %%
with torch.no_grad():
    whole = trained(written)
    cache = trained.new_cache(batch_size=1)
    pieces = torch.cat([trained(piece, cache=cache) for piece in written.split(7, dim=1)], dim=1)
print(f"largest difference between the logits: {(whole - pieces).abs().max().item():.1e}")

# %% [markdown]
# ## Where the field has not settled
#
# - **Where the norm goes.** Before the branch is the common choice; some families also norm the branch's
#   output, and some norm only the output.
# - **Whether position is needed in every layer.** Some models rotate only in part of the head, some leave
#   position out of every fourth layer (SmolLM3) or out of all layers with full attention (Trinity Large).
# - **How much attention a model needs.** One full layer in four is a common ratio, not a law: released
#   models range from one in two (Gemma 2) to one in eight (Ling 2.5), and what fills the other layers differs
#   (windows, delta rules, decay).
# - **How experts are cut and balanced.** Numbers run from 8 experts (Mixtral) to 512 (Qwen3-Next), with and
#   without a shared one. Models that balance by a bias often keep a small loss beside it.
# - **What was worth it.** Data and training recipes changed too in these years, and most published
#   comparisons change several things at once. That is the reason for changing one thing at a time here.
#
# Two figures often quoted hold only for some models. *Nine experts of 256 per token* is eight chosen ones
# and a shared one, as in DeepSeek-V3. *Three quarters of the layers see only a window* is true where the
# ratio is 3 : 1.
#
# **What couples to what.** A norm on the branch's input does not bound the attention logits, since the
# projections after it can still grow: QK-norm does. Windows rely on positions that are relative. A routed network
# needs its scale, or its branch shrinks when experts are cut finer. A shared expert changes what balancing has to
# balance. A step that is harmless here may not be so without the step before it.

# %% [markdown]
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the
# answer is open.
#
# **1 · What does one token add to the cache?** For the stages 0 to 8, every layer keeps a key and a value
# for each key-value head. Write the bytes per token from `config.n_layers`, `config.attention.n_kv_heads`
# and `config.attention.head_dim`, with two bytes a number.


# %%
# Exercise 1 · bytes that one token adds to the cache
def kv_bytes_per_token(config: morph.ModelConfig) -> int: ...


# %%
checks.kv_bytes_per_token(kv_bytes_per_token)

# %% [markdown]
# **2 · Which steps leave every parameter count as it was?** Some steps move the total, some only what is
# active, some neither. Make the set of slugs of those steps for which `morph.count` gives the same
# `.total` and the same `.active.all` before and after (size "tiny").

# %%
# Exercise 2 · steps that leave both parameter counts unchanged
same_parameters = ...

# %%
checks.same_parameters(same_parameters)

# %% [markdown]
# **3 · Undo a step without removing it.** Step 9 says: *the window at least as long as the text* gives
# stage 8 back. From `morph.stage(9)`, make a config that differs in the window alone and whose cache at
# 1,024 tokens is exactly as large as that of stage 8. Choose the smallest such window. (`replace` changes
# a field of a frozen record.)

# %%
# Exercise 3 · a window that gives stage 8 back
wide = ...

# %%
checks.widest_window(wide)

# %% [markdown]
# ## Further reading
#
# - *Attention Is All You Need*, Vaswani et al., 2017: stage 0, with an encoder.
# - *On Layer Normalization in the Transformer Architecture*, Xiong et al., 2020: step 1.
# - *Root Mean Square Layer Normalization*, Zhang and Sennrich, 2019: step 2.
# - *RoFormer: Enhanced Transformer with Rotary Position Embedding*, Su et al., 2021: step 4.
# - *GLU Variants Improve Transformer*, Shazeer, 2020: step 6.
# - *GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints*, Ainslie et
#   al., 2023: step 7.
# - *Mixtral of Experts*, Jiang et al., 2024, and *DeepSeekMoE*, Dai et al., 2024: steps 10 to 12.
# - *Gated Delta Networks: Improving Mamba2 with Delta Rule*, Yang et al., 2024: step 14.
#
# Every step names its own source: `[step.source for step in morph.STEPS]`.
