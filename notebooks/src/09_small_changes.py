# %% [markdown]
# # 09 · Small changes
#
# Some changes have no figure of their own: how many words a model knows, whether one table serves both its ends, what
# became of biases and dropout, where idle attention goes, a second target, and the shape of the whole. Each fits in a
# line of a config, and each has a consequence that the line does not show.
#
# **After this notebook you can**
#
# - say what logits weigh for any vocabulary, and compute their loss without ever holding them;
# - measure how many tokens a text costs its reader, and why that depends on the language;
# - decide whether a bias is redundant, by proof and by experiment, and name what breaks the proof;
# - tell what tying, dropout, sinks, a second target and depth did in experiments that were declared beforehand,
#   those without a result included.
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
from morph.checks import small_changes as checks
from morph.config import MTP, Alibi, Dropout, NoPosition, RMSNorm, Rope, Sink, Softcap
from morph.lab import pieces
from morph.lab.chain import longest_chain
from morph.lab.experiments.e14_sinks import late_loss
from morph.lab.experiments.e20_mtp_loss import drafts
from morph.lab.experiments.e21_width_depth import SHAPES, shaped
from morph.lab.fit import fit, start
from morph.lab.plot import curves
from morph.lab.result import recorded
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.largest import largest
from morph.nn.loss import cross_entropy
from morph.nn.sink import softmax_with_sink
from morph.steps import attention_of
from morph.story.released import RELEASED
from morph.story.subject import subject
from morph.train.recipe import Recipe
from morph.train.sweep import Sweep
from morph.widgets import show_findings, show_picture, show_table

QUICK = os.environ.get("MORPH_QUICK") == "1"  # less text and shorter trainings, for automatic runs
torch.manual_seed(0)
torch.set_num_threads(1)  # models this small lose more to handing work out than they gain
LN2, GIB, MIB = math.log(2), 2**30, 2**20


# %% [markdown]
# ## 1 · The vocabulary, paid at the end
#
# A vocabulary of $V$ pieces is met twice: by a table of $V \times d$ weights, and by the logits, $V$ numbers for every
# token of a batch. The table is there once, logits are there for each of $B \cdot S$ tokens, and their loss is
# usually computed in fp32:
#
# $$\text{bytes} = B \cdot S \cdot V \cdot 4$$
#
# **Predict.** Eight sequences of 8,192 tokens. How much do GPT-2's logits weigh, and Qwen3's? How does that compare
# with the table itself?

# %%
rows = []
for name in ("GPT-2 XL", "Llama 2 7B", "Llama 3 8B", "Qwen3-235B-A22B", "gpt-oss-120b", "Gemma 3 27B"):
    config = RELEASED[name].config
    V, table = config.vocab_size, config.vocab_size * config.d_model
    tables, total = (1 if config.tied else 2) * table, morph.count(config).total
    logits = 8 * 8192 * V * 4 / GIB
    rows.append([name, f"{V:,}", f"{logits:.1f} GiB", f"{table * 4 / GIB:.2f} GiB", f"{tables / total:.1%}"])
show_table(["model", "vocabulary", "logits, fp32", "one table, fp32", "tables, of all weights"], rows)

# %% [markdown]
# One tensor, of which the backward pass wants a second (GPT-2 could not have read texts this long; the row is there
# for its vocabulary). The remedy is not to hold it. The loss of a token needs the logits of that token only, so they
# can be made for a slice of the tokens, reduced to one number, forgotten, and made again for the gradient.
#
# **Predict.** Below, the loss of the same tokens is computed at once and in slices. What stays the same, what shrinks,
# and what must grow?

# %%
T, V, D = (1280, 16_384, 48) if QUICK else (2048, 16_384, 48)
x, weight = torch.randn(T, D), torch.randn(V, D) * D**-0.5
targets = torch.randint(V, (T,))


def at_once(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Every logit, then the loss."""
    return F.cross_entropy(x @ weight.T, targets)


def weighed(loss) -> tuple[float, float, float, torch.Tensor]:
    """The loss, the largest tensor made on the way there and back, what is kept between, and x's gradient."""
    here, kept = x.clone().requires_grad_(), {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        kept[t.data_ptr()] = t.untyped_storage().nbytes()
        return t

    with largest() as made:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            value = loss(here, weight, targets)
        value.backward()
    return value.item(), made.nbytes / MIB, sum(kept.values()) / MIB, here.grad


found = {"at once": weighed(at_once), "in slices": weighed(cross_entropy)}
for name, (value, most, kept, _) in found.items():
    print(f"{name:9}: loss {value:.6f}, largest tensor {most:5.1f} MiB, kept for the backward pass {kept:5.1f} MiB")
print(f"largest difference of gradients: {(found['at once'][3] - found['in slices'][3]).abs().max():.0e}")

# %% [markdown]
# The same loss and the same gradient. What grows is arithmetic: the logits are multiplied out twice. (Morph's own loss
# slices from 64 MiB of logits on, which is what the largest tensor shows; exercise 1 has you write it.)
#
# ## 2 · The vocabulary, paid by the text
#
# What are more pieces for? A tokenizer joins frequent neighbours, starting from bytes, until its vocabulary is full
# (byte-pair encoding). Text that looks like what it learned from becomes short. Two of them
# learn from a quarter of Python's own library, beside one that knows bytes only, and read four plain sentences in
# eight languages.
#
# **Predict.** How many bytes of Python will one of 4,096 pieces hold? And how many tokens does Hindi take where English
# takes one?

# %%
source = Text()  # the text of Python's standard library
tokenizers = {V: pieces.learned(source, V, seed=0) for V in ((256, 4096) if QUICK else (256, 1024, 4096))}
most = 60_000 if QUICK else 250_000
kinds = {
    "Python": pieces.held_out_text(source)[:most],
    "docstrings": pieces.docstrings(source)[:most],
    "digits": pieces.digits(),
    "other scripts": "\n".join(pieces.SENTENCES[name] for name in ("Russian", "Greek", "Hindi", "Chinese")),
}
lengths = {
    kind: [pieces.bytes_per_token(tokenizer, text) for tokenizer in tokenizers.values()] for kind, text in kinds.items()
}
for name in ("English", "Hindi"):
    first = pieces.SENTENCES[name].split(". ")[0].split("। ")[0]
    n = pieces.tokens_of(tokenizers[4096], first)
    print(f"{name:8} {len(first):3} signs, {len(first.encode()):3} bytes, {n:3} tokens: {first}")


def draw_lengths(figure):
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    over = {kind: (list(tokenizers), [[value] for value in values]) for kind, values in lengths.items()}
    curves(left, over, x="pieces in the vocabulary", y="bytes per token")
    counts = {name: pieces.tokens_of(tokenizers[4096], text) for name, text in pieces.SENTENCES.items()}
    right.barh(list(counts), [n / counts["English"] for n in counts.values()])
    right.invert_yaxis()
    right.set_title("tokens over English, 4,096 pieces")


show_picture(
    draw_lengths, size=(10, 3.2),
    alt="Left: bytes per token rise with the vocabulary for Python and docstrings, hardly for digits, not at all for "
    "other scripts. Right: the same four sentences take several times the tokens of English in Hindi, Arabic or Greek.",
)  # fmt: skip

# %% [markdown]
# A sign of Hindi has three bytes in UTF-8, and a tokenizer that never met it joins none of them. Its readers pay for
# every word several times: in context, in arithmetic, and in money. That, and not English, is what large vocabularies
# were made for; a tokenizer learned from many languages is the other half of the remedy, and the only one that helps
# without growing $V$. What the lab claimed beforehand, with five seeds:

# %%
show_findings("vocabulary")

# %% [markdown]
# Length grows with the logarithm of $V$ at best, logits grow with $V$. Which size makes the best *model* was not
# measured here, and is answered differently by each lab.
#
# ## 3 · One table or two
#
# The table that reads tokens in can also write them out: logits are then products of the stream with the embeddings
# (2017 did so). That saves $V \cdot d$ weights, which is much of a small model and little of a large one.
#
# **Predict.** Which share of Qwen3-0.6B is its one table? And which of these models have one table, which two?

# %%
rows = []
for name in ("Qwen3-0.6B", "SmolLM3 3B", "Llama 3 8B", "Gemma 2 9B", "Gemma 3 27B", "DeepSeek-V3"):
    config, total = RELEASED[name].config, morph.count(RELEASED[name].config).total
    table = config.vocab_size * config.d_model
    rows.append([name, f"{total / 1e9:.1f} B", "one" if config.tied else "two", f"{table / total:.1%}"])
show_table(["model", "parameters", "tables", "share of one table"], rows)

# %% [markdown]
# So it is not true that everything above a few billion parameters has two: Gemma ties at 9 and 27 billion, and
# Command A at 111. With 256,000 pieces a table is dear at any size.
#
# Tying is a restriction: an untied model with the embedding copied into its head is the tied one. But it shows at
# the start. **Predict.** Fresh weights, nothing trained: what does a tied model think will come next, and will its
# loss on real text be higher or lower for it?

# %%
tied, untied = (morph.build(config, seed=0).eval() for config in (morph.stage("rope"), morph.fork("untied")))
inputs, wanted = (torch.tensor(part) for part in source.held_out(tied.config, 8))


@torch.no_grad()
def told(model: morph.Decoder) -> str:
    """What an untrained model makes of real text."""
    logits = model(inputs)
    again = logits.softmax(-1).gather(-1, inputs[..., None]).mean()
    bits = F.cross_entropy(logits.flatten(0, 1), wanted.flatten()) / LN2
    return f"says the byte just read again with {again:.1%} (even odds {1 / 256:.1%}), {bits:.2f} bits per byte"


print(f"tied:   {told(tied)}")
print(f"untied: {told(untied)}")
with torch.no_grad():
    untied.head.weight.copy_(untied.embedding.weight)
    print(f"untied, embedding copied: logits differ by {(tied(inputs) - untied(inputs)).abs().max():.0e}")

# %% [markdown]
# The stream begins as the embedding of the token just read, and its product with itself is large: a fresh tied model
# expects an echo. One may fear that this harms; the lab claimed so beforehand:

# %%
show_findings("tying")

# %% [markdown]
# It did not: in source code a byte often *is* the one before. And the usual sentence, that tying costs a little loss,
# finds no support at this size either, where five seeds see no difference in either direction that would count. "Within
# noise" is no proof of equality; the interval says how large a difference could have gone unseen.
#
# ## 4 · Biases
#
# Step 3 took all biases away. **Predict.** By how much did the loss change, in bits per byte, over the three seeds of
# the reference sweep?

# %%
sweep = Sweep.reference()
step = sweep.difference(3)
saved = sweep[2].parameters_total - sweep[3].parameters_total
print(f"{step.mean:+.4f} ± {step.interval:.4f} bits per byte, {len(step.seeds)} seeds, {sweep.steps} steps")
print(f"{saved:,} of {sweep[2].parameters_total:,} parameters went ({saved / sweep[2].parameters_total:.1%})")

# %% [markdown]
# Next to nothing, whatever the sign. Then some models brought a few back: Qwen2.5, GLM-4.5 and gpt-oss have biases on
# queries, keys and values. Is the key's bias of any use? Write a score with it:
#
# $$q_i^\top (k_j + b) = q_i^\top k_j + q_i^\top b$$
#
# The second term is the same for every key $j$, and a softmax does not feel what is added to all of its inputs. So
# the bias drops out: no output depends on it, and no gradient reaches it. That is a theorem (Namazifar et al., 2023).
#
# With RoPE the key is turned by its place *after* the bias was added:
#
# $$(R_i q_i)^\top R_j (k_j + b) = q_i^\top R_{j-i} k_j + q_i^\top R_{j-i}\, b$$
#
# and now the second term depends on $j$.
#
# **Predict.** Eight models follow, with random key biases put in. In which does any output move? Three positions that
# do not rotate keys, one that does; then, *without* positions: a norm on the keys, a learned sink, a cap on scores;
# last the fork `qkv-bias`, which is built as released models are.

# %%
biased = morph.stage("rms-norm", "nano")  # stage 2: biases everywhere, an added sinusoid
attention = attention_of(biased)


def bare(**change: object) -> morph.ModelConfig:
    """Without position, and with one thing more in its attention."""
    return replace(biased, position=NoPosition(), attention=replace(attention, **change))


models = {
    "sinusoid, added once": biased,
    "no position": bare(),
    "ALiBi": replace(biased, position=Alibi()),
    "RoPE": replace(biased, position=Rope()),
    "no position, norm on keys": bare(qk_norm=RMSNorm()),
    "no position, learned sink": bare(sink=Sink()),
    "no position, capped scores": bare(softcap=Softcap()),
    "fork qkv-bias": morph.fork("qkv-bias", "nano"),
}
text = torch.tensor([list(b"for value in values: total += value")])
rows = []
for name, config in models.items():
    model = morph.build(config, seed=0).double().eval()  # double precision: what is equal shows as 1e-15
    with torch.no_grad():
        before = model(text)
        for number, block in enumerate(model.blocks):
            block.attention.k_proj.bias.normal_(generator=torch.Generator().manual_seed(number))
        moved = (model(text) - before).abs().max().item()
    rows.append([name, f"{moved:.0e}", "drops out" if moved < 1e-9 else "**counts**"])
show_table(["keys", "largest change of a logit", "a key bias"], rows)

# %% [markdown]
# The theorem holds where scores are $q^\top k$ and the softmax is over keys alone. Four things end it, and RoPE is only
# the commonest: a norm on the keys is not linear, a sink's logit is compared with scores that the bias shifts, and a
# cap bends what was a plain sum (little, as long as scores are far below it). gpt-oss, about whose bias the theorem is
# often quoted, has RoPE *and* sinks.
#
# The gradient says the same. In a model that rotates nothing, training has no way to learn a key's bias:

# %%
rows = []
for name in ("sinusoid, added once", "RoPE"):
    model = morph.build(models[name], seed=0).double()
    model.loss(text[:, :-1], text[:, 1:]).total.backward()
    sizes = (getattr(model.blocks[1].attention, f"{part}_proj").bias.grad.norm() for part in "qkv")
    rows.append([name, *(f"{size:.0e}" for size in sizes)])
show_table(["gradient of the bias on", "queries", "keys", "values"], rows)

# %% [markdown]
# A value's bias is a different matter: the weights of a head add up to 1, so whatever is added to *every* value comes
# out unchanged, whatever the weights are. Exercise 2 folds it away. (Where a sink takes part of the weight, not even
# that is true.)
#
# ## 5 · Dropout
#
# While training, dropout sets a random tenth of what is added to the stream to 0 and enlarges the rest. **Predict.**
# One trained model reads one batch thirty times with dropout, once without. Is the loss without it the middle of the
# thirty, below all of them, or above?

# %%
trained = subject("windows")
noisy = morph.build(replace(trained.config, dropout=Dropout()), seed=0)
noisy.load_state_dict(trained.model.state_dict())
inputs, wanted = (torch.tensor(part) for part in source.held_out(trained.config, 8))
with torch.no_grad():
    whole = noisy.eval().loss(inputs, wanted).cross_entropy.item() / LN2
    noisy.train()
    losses = [noisy.loss(inputs, wanted).cross_entropy.item() / LN2 for _ in range(5 if QUICK else 30)]
print(trained.name)
print(f"without dropout {whole:.3f} bits per byte; with it {min(losses):.3f} to {max(losses):.3f}")

# %% [markdown]
# Below all of them: a model that was never trained to do without a tenth of itself only loses. What training *with* it
# buys is that no feature may rely on another, which helps where a text is read until it is known by heart, as in 2017.
# Where every text is read once, there is no heart to learn by. So much for the argument; the lab:

# %%
show_findings("dropout")

# %% [markdown]
# Half of the story is confirmed: read once, a rate of 0.2 costs. The other half is not: ten readings did learn the text
# by heart, and still dropout was not shown to gain anything. Each arm ran at its own best rate, and a low learning rate
# is a remedy, too. Read what the gap did, and why the last claim fails, in what is not shown.
#
# ## 6 · Where idle attention goes
#
# A softmax spends all of its weight. A head that has nothing to say has to put it somewhere, and large models put most
# of it on the first token, as if that were nothing. Notebook 06 has the equation of a learned sink; here is what
# happens when the dumping ground is taken away, as a cache does that keeps the latest tokens only.
#
# We make a sink by hand: in one layer of a trained model, the first token's score is raised and its value set to 0.
#
# **Predict.** It takes a share $a_0$ of the weight. By which factor does the head's output grow once it is evicted?

# %%
deep = subject("deep")
with torch.no_grad(), morph.trace(deep.model) as seen:
    deep.model(deep.ids(64))
scores, values = (seen[f"blocks.12.attention.{name}"][0].clone() for name in ("scores", "values"))
values = values.repeat_interleave(len(scores) // len(values), dim=0)
scores[:, :, 0], values[:, 0] = scores[:, 1:, 1:].diagonal(dim1=-2, dim2=-1).mean() + 4, 0.0
weights = scores.softmax(-1)
evicted = scores.clone()
evicted[:, 1:, 0] = -torch.inf
late = slice(16, None)
growth = ((evicted.softmax(-1) @ values).norm(dim=-1) / (weights @ values).norm(dim=-1))[:, late]
a0 = weights[:, late, 0]


def draw_growth(figure):
    axes = figure.subplots()
    axes.plot(a0.flatten(), growth.flatten(), "o", markersize=3)
    axes.set_xlabel("weight on the first token before it went")
    axes.set_ylabel("output grows by")


print(f"factor times (1 - a₀): {(growth * (1 - a0)).min():.4f} to {(growth * (1 - a0)).max():.4f}")
learned, _ = softmax_with_sink(scores[None, :, 1:, 1:], torch.zeros(len(scores)))
kept = (learned[0] @ values[:, 1:]).norm(dim=-1).mean()
print(f"with a learned logit of 0 beside the same keys: size {kept:.2f}, and there is nothing to evict")
show_picture(
    draw_growth, size=(7, 2.6),
    alt="One dot a head and token: the more weight lay on the first token, the more the output grows without it.",
)  # fmt: skip

# %% [markdown]
# It grows by $1 / (1 - a_0)$, whatever the other keys are: the head had been quiet, and eviction makes it shout. A
# learned logit cannot be evicted. A gate on the output (Qwen3-Next, Trinity) lets the head be quiet without a sink;
# it multiplies what the heads gathered, before the output matrix and not after it.
#
# **Predict.** Do our own trained models behave so? The same eviction on real weights: every query sees its last 16
# tokens only, or the first 4 and the last 12.

# %%
for name in ("deep", "sink"):
    one = subject(name)
    if QUICK and name == "deep":
        continue
    trial, S = Trial(one.model, source, Recipe()), one.config.context_length
    all_, last, kept = (late_loss(trial, first, recent) for first, recent in ((0, S), (0, 16), (4, 12)))
    print(f"{one.name}\n   all {all_:.3f} bits, the last 16 {last:.3f}, the first 4 and the last 12 {kept:.3f}")

# %%
show_findings("sinks")

# %% [markdown]
# A null result, and we leave it one. In models and trainings this small no sink forms, a learned one is hardly used,
# and evicting the first tokens breaks nothing. What needs a sink could therefore not be tested: those claims are
# *undecided*, which is neither yes nor no. In large models the effect is well documented (Xiao et al., 2023), and it
# was seen to come up after a thousand steps and more (Gu et al., 2024).
#
# ## 7 · A second target
#
# Multi-token prediction asks each state for the token after next, too, through a head one block deep. It is sometimes
# called small, and free. **Predict.** How many parameters has DeepSeek-V3's one head? And which share of our own trunk?

# %%
small, large = morph.compose("rope", "mtp", size="nano"), replace(RELEASED["DeepSeek-V3"].config, mtp=MTP())
for name, config in {"ours, nano": small, "DeepSeek-V3": large}.items():
    count = morph.count(config)
    head, trunk = count.mtp, count.total - count.mtp
    print(f"{name:12} trunk {trunk:15,}, head {head:14,}: {head / trunk:.1%} of it")

# %% [markdown]
# DeepSeek-V3's is a full layer of experts. It reads the trunk's states, so the trunk runs once; the head is extra
# arithmetic, a block and the vocabulary once more. What one gets for it besides the loss is a drafter: the head
# guesses, the trunk checks two tokens in one pass and keeps what it would have written anyway.
#
# **Predict.** We train such a model for a moment and let it write 64 bytes. How many passes will it need? How similar
# will the text be to what it writes without drafts?

# %%
recipe = Recipe(steps=8 if QUICK else 120, batch_size=8, learning_rate=1e-2, warmup=0.1, evaluate_every=1000,
                evaluation_windows=32)  # fmt: skip
trial = start(small, source, recipe)
fit(trial)
prompt = torch.tensor([list(b"def ")])
plain = morph.generate(trial.model, prompt, 64, temperature=0)
fast = morph.generate_speculative(trial.model, prompt, 64)
print(bytes(fast.ids[0].tolist()).decode(errors="replace"))
print(f"the same as without drafts: {bool((fast.ids == plain).all())}; {fast.passes} passes instead of {fast.written}")
real = drafts(trial)
print(f"on real text: {real.accepted:.0%} accepted; the best table of the last byte {real.accepted_of_table:.0%}")

# %% [markdown]
# Half the passes, and not a byte differs. But look at the text: it repeats itself, and a repetition is easily
# foreseen. On real text fewer drafts are accepted, and a table that knows one byte would do nearly as well against a
# trunk that has learned this little. A drafter has to be measured against that. The lab's longer runs:

# %%
show_findings("mtp-loss")

# %% [markdown]
# At equal steps the second target neither gained nor lost; at equal arithmetic, more steps were the better buy. So "a
# denser signal for the same forward pass" leaves out the price, which is exaggerated here, as the head is a quarter
# of this trunk's blocks. Gains are reported for models thousands of times as large (Gloeckle et al., 2024;
# DeepSeek-V3).
#
# ## 8 · Wide or deep
#
# A layer of width $d$ has about $12 d^2$ weights, so few wide layers weigh as much as many narrow ones. Arithmetic is
# equal, too. What differs is what has to wait: a product that reads another's result comes after it.
#
# **Predict.** Equal weights in 2 layers and in 16: by which factor does the longest chain of products grow? And if
# attention and network of a layer read the stream side by side (`parallel`)?

# %%
rows = []
for layers in SHAPES:
    config, count = shaped({"layers": layers}), morph.count(shaped({"layers": layers}))
    chain, parallel = (
        longest_chain(start(c, source, Recipe())) for c in (config, replace(config, placement="parallel"))
    )
    flops = count.flops(64).per_token
    rows.append([f"{layers} × {config.d_model}", f"{count.active.without_embeddings:,}", f"{flops:,}", str(chain),
                 str(parallel)])  # fmt: skip
show_table(["layers × width", "weights in layers", "FLOPs per token", "chain", "chain, parallel block"], rows)

# %% [markdown]
# No hardware shortens that chain; it is why a deep model answers more slowly than a wide one of its size. Two released
# models that are close in size and opposite in shape:

# %%
rows = []
for name in ("gpt-oss-20b", "Qwen3-30B-A3B"):
    config, count = RELEASED[name].config, morph.count(RELEASED[name].config)
    size = f"{count.total / 1e9:.1f} B, {count.active.all / 1e9:.1f} B active"
    rows.append([name, f"{config.n_layers} × {config.d_model}", size])
show_table(["model", "layers × width", "parameters"], rows)

# %%
show_findings("width-depth")

# %% [markdown]
# So early in a training, depth did not pay here: 16 layers ended worse than 4, and 2 were not too few. What that says
# about a finished training is nothing. Nor is Gemma 2's comparison, a wider 9B slightly ahead of a deeper one, the only
# one that exists: Kaplan et al. (2020) found the loss hardly to depend on shape, Tay et al. (2021) preferred deep and
# narrow, and Levine et al. (2020) tied the worth of depth to the width.
#
# ## All in one
#
# Everything that these six experiments claimed before they ran, and what became of it:

# %%
names = ("vocabulary", "tying", "dropout", "sinks", "mtp-loss", "width-depth")
words = ("supported", "not supported", "within noise", "undecided")
rows = []
for name in names:
    verdicts = [finding.verdict for finding in recorded(name).findings]
    counts = [sum(verdict.startswith(word) for verdict in verdicts) for word in words]
    rows.append([recorded(name).declared["title"], *(str(n or "") for n in counts)])
show_table(["experiment", *words], rows)

# %% [markdown]
# Most of what is supported is arithmetic. Of what is said about *quality*, little could be shown at this size, in
# either direction, and that is worth knowing before one repeats it.
#
# ## Where the field has not settled
#
# - **Vocabulary.** From 32,000 pieces (2023) to 262,208 rows (Gemma 3). Larger models are said to deserve larger ones
#   (Tao et al., 2024); byte models want none.
# - **One table or two.** By size in most families; Gemma and Command A tie at any.
# - **Biases.** None (Llama), on queries, keys and values (Qwen2.5, GLM-4.5), nearly everywhere (gpt-oss, with router
#   and experts). Qwen3 dropped them for a norm on queries and keys.
# - **Sinks.** The first token, a learned logit, or a gate.
# - **Second targets.** None (most), one head (DeepSeek-V3, GLM-4.5 and 4.7, Qwen3-Next), three (MiniMax-M2, Step 3.7).
# - **Shape.** 24 layers or 48 for nearly the same size, in the same year.
#
# **Corrections.** Five statements that one meets, and what holds:
#
# - "Everything above a few billion parameters has two tables." Not Gemma 2 9B, Gemma 3 27B or Command A 111B.
# - "The key's bias is provably redundant." Where keys do not rotate and are not normed, and the softmax has neither
#   sink nor cap; you moved the logits of the others.
# - "Multi-token prediction adds small heads." DeepSeek-V3's single one has 11.6 billion parameters.
# - "GLM-4.7 has three heads." Its config says one.
# - "Trinity gates the attention result before it is added to the stream." It gates the heads' outputs before the output
#   matrix; another norm follows before the addition.
#
# **What couples to what.** A larger vocabulary makes tying worth more and the loss harder to hold. Norms with gains on
# queries and keys do a bias's work, and end its redundancy. Sinks and windows must agree on who keeps the first token.
# A drafter needs a cache that can be taken back, which a recurrent state cannot without a snapshot. Depth multiplies
# what each layer caches.
#
# ## Exercises
#
# Replace each `...`, run the cell, then run the check below it. A check gives a hint as long as the answer is open.
#
# **1 · A loss in slices.** The mean cross-entropy of `x` (T, D) against `targets` (T,) under a head `weight` (V, D),
# without a tensor larger than `rows` times V. (Forward only: leave making the slices again to others.)


# %%
# Exercise 1 · never hold all logits
def sliced_loss(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor: ...


# %%
checks.sliced_loss(sliced_loss)

# %% [markdown]
# **2 · A bias too many.** A layer of attention adds `value_bias` (features,) to every value, and ends in the map
# `o_weight` (D, features) with the bias `o_bias` (D,). Give the bias of that map with which the layer computes the same
# once its value bias is 0. (As many heads for values as for queries, so that features line up.)


# %%
# Exercise 2 · fold the value bias into the output bias
def folded(value_bias: torch.Tensor, o_weight: torch.Tensor, o_bias: torch.Tensor) -> torch.Tensor: ...


# %%
checks.folded(folded)

# %% [markdown]
# **3 · Tokens a pass.** Heads draft `n` tokens ahead, and each draft is right with probability `p`, given that those
# before it are. The trunk keeps drafts up to the first wrong one and writes one more token itself. How many tokens does
# a pass yield on average?


# %%
# Exercise 3 · what a drafter is worth
def tokens_per_pass(p: float, n: int) -> float: ...


# %%
checks.tokens_per_pass(tokens_per_pass)

# %% [markdown]
# ## Further reading
#
# - *Neural Machine Translation of Rare Words with Subword Units*, Sennrich et al., 2016: byte-pair encoding.
# - *Language Model Tokenizers Introduce Unfairness Between Languages*, Petrov et al., 2023.
# - *Cut Your Losses in Large-Vocabulary Language Models*, Wijmans et al., 2024: the loss without logits.
# - *Scaling Laws with Vocabulary*, Tao et al., 2024.
# - *Using the Output Embedding to Improve Language Models*, Press and Wolf, 2017: one table.
# - *Role of Bias Terms in Dot-Product Attention*, Namazifar et al., 2023: the theorem, without rotation.
# - *Dropout*, Srivastava et al., 2014.
# - *Efficient Streaming Language Models with Attention Sinks*, Xiao et al., 2023, and *When Attention Sink Emerges in
#   Language Models*, Gu et al., 2024.
# - *Better & Faster Large Language Models via Multi-token Prediction*, Gloeckle et al., 2024.
# - *Fast Inference from Transformers via Speculative Decoding*, Leviathan et al., 2023.
# - *Scale Efficiently*, Tay et al., 2021, and *Limits to Depth Efficiencies of Self-Attention*, Levine et al., 2020.
