"""Frames 3, 4 and 10 of figure 6: caches of released models, counted on their published sizes, and what chips can do.

Facts:

* `llama`: `context`, `chip`, `texts` (how many texts fit beside the weights, as released);
* `intensity`: `names`, `kinds` (of attention) and `chips`, in the order of the arrays, `own` (the model's name in them,
  or "");
* `released`: `rows` (of `name`, `kind`, `keeps` and `layers`: how many layers keep every token), `own` (the last row is
  the model), `against` (times that DeepSeek-V3's token would weigh with its heads unfolded, with plain heads of 128,
  with eight of them shared).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

import morph
from morph.config import MLA, Attention, ModelConfig, State
from morph.measure.decode import reading, unfolded
from morph.measure.mixers import mixer_cost
from morph.measure.scores import dense_flops
from morph.story.accelerators import ACCELERATORS
from morph.story.frame import Array, Claim, Frame
from morph.story.released import RELEASED
from morph.story.subject import Subject
from morph.story.written import in_bytes

LLAMA, CONTEXT, CHIP = "Llama 3 8B", 131_072, "H100"
STEPS = 8
"""Parts of the context at which frame 3 counts."""
MEASURED = 24
"""Tokens cached when frame 4 counts the model's own work."""
COMPARED = (
    "Llama 2 7B", "Gemma 3 27B", "Llama 3 8B", "gpt-oss-120b", "Qwen3-235B-A22B", "Kimi K2.5", "DeepSeek-V3",
)  # fmt: skip
SHOWN = (
    "Llama 2 7B", "Gemma 3 27B", "GPT-2 XL", "Olmo 3 32B", "Trinity Large", "Qwen3-235B-A22B", "Llama 3 8B", "GLM-5",
    "Qwen3-30B-A3B", "DeepSeek-V3.2", "gpt-oss-120b", "DeepSeek-V3", "Qwen3-Next 80B-A3B", "Kimi Linear 48B-A3B",
)  # fmt: skip


def with_heads(config: ModelConfig, n_kv: int) -> ModelConfig:
    """The same with other key-value heads."""
    assert isinstance(config.attention, Attention)
    return replace(config, attention=replace(config.attention, n_kv_heads=n_kv))


def as_mha(config: ModelConfig) -> int:
    """Bytes that a token would write in bf16, were every query head's key and value cached."""
    spec = config.attention
    if isinstance(spec, Attention):
        return morph.count(with_heads(config, spec.n_heads)).kv_bytes_per_token
    layers = sum(not isinstance(config.mixer(layer), State) for layer in range(config.n_layers))
    return layers * unfolded(spec) * 2


def kind_of(config: ModelConfig) -> str:
    """How keys and values are kept, in a word or two: `MHA`, `GQA 4:1`, `MLA`; what else there is, after a plus."""
    spec = config.attention
    if isinstance(spec, MLA):
        kind = "MLA + indexer" if spec.indexer else "MLA"
    else:
        ratio = spec.n_heads // spec.n_kv_heads
        kind = "MHA" if ratio == 1 else "MQA" if spec.n_kv_heads == 1 else f"GQA {ratio}:1"
    if any(isinstance(config.mixer(layer), State) for layer in range(config.n_layers)):
        return f"{kind} + states"
    windows = any(mixer_cost(config, layer, 1).window for layer in range(config.n_layers))
    return f"{kind} + windows" if windows else kind


# ---- frame 3 ----


def llama_frame() -> Frame:
    """Weights and cache of Llama 3 8B against one chip's memory, with a key-value head for each query head or fewer."""
    config, chip = RELEASED[LLAMA].config, ACCELERATORS[CHIP]
    spec = config.attention
    assert isinstance(spec, Attention)
    whole = with_heads(config, spec.n_heads)
    tokens = np.linspace(0, CONTEXT, STEPS + 1).astype(int)
    mha, gqa = (np.array([morph.count(one).cache_bytes(int(n)) if n else 0 for n in tokens]) for one in (whole, config))
    weights = 2 * morph.count(config).total
    texts = int((chip.memory - weights) // gqa[-1])
    each = in_bytes(morph.count(whole).kv_bytes_per_token)
    return Frame(
        key="llama",
        title="Llama 3 8B as MHA",
        caption=f"With {spec.n_heads} key-value heads, {each} a token: one text of {CONTEXT:,} tokens and the weights "
        f"overfill an {CHIP}. As released, with {spec.n_kv_heads} heads, {texts} such texts fit.",
        alt=f"Memory against tokens. Above the weights, {in_bytes(weights)}, two lines rise: as MHA to "
        f"{in_bytes(int(mha[-1]))} of cache at {CONTEXT:,} tokens, past the {chip.memory / 1e9:.0f} GB of an {CHIP}; "
        f"with {spec.n_kv_heads} key-value heads to {in_bytes(int(gqa[-1]))}.",
        claim=Claim(
            text="512 KiB a token and 64 GiB as MHA, a quarter as released; with the weights more than the chip's "
            "memory, or less.",
            holds=_llama_holds,
        ),
        arrays={
            "tokens": Array(values=tokens, axes=("step",), source="tokens cached"),
            "mha": Array(values=mha, axes=("step",), source=f"morph.count({LLAMA} as MHA).cache_bytes, bf16"),
            "gqa": Array(values=gqa, axes=("step",), source=f"morph.count({LLAMA}).cache_bytes, bf16"),
            "weights": Array(values=np.array(weights), axes=(), source=f"morph.count({LLAMA}).total × 2 bytes"),
            "memory": Array(values=np.array(chip.memory), axes=(), source=chip.source),
        },
        facts={"aside": "counted from its published sizes", "context": CONTEXT, "chip": CHIP, "texts": texts},
        source=f"Counted, bf16; a GB is 10⁹ bytes. As MHA hypothetical. Llama 3 reads 8,192 tokens, 3.1 {CONTEXT:,}.",
    )  # fmt: skip


def _llama_holds(frame: Frame) -> bool:
    at = {name: array.values for name, array in frame.arrays.items()}
    grows = np.array_equal(at["mha"], 512 * 1024 * at["tokens"]) and np.array_equal(4 * at["gqa"], at["mha"])
    texts = frame.facts["texts"]
    fits = at["weights"] + texts * at["gqa"][-1] <= at["memory"] < at["weights"] + (texts + 1) * at["gqa"][-1]
    return bool(grows and at["mha"][-1] == 64 * 2**30 and at["weights"] + at["mha"][-1] > at["memory"] and fits)


# ---- frame 4 ----


@torch.no_grad()
def measured(own: Subject) -> tuple[int, int] | None:
    """FLOPs and bytes of one step in the model's first softmax layer, counted live; None where it has none."""
    if not own.softmax or isinstance(own.config.attention, MLA):
        return None
    layer, length = next(iter(own.softmax)), min(MEASURED, own.config.position_limit or MEASURED)
    ids, cache = own.ids(length), own.model.new_cache()
    own.model(ids[:, :-1], cache=cache)
    flops = dense_flops(own.model, ids[:, -1:], cache)[layer]
    return flops, cache.layers[layer].nbytes


def intensity_frame(own: Subject) -> Frame:
    """FLOPs for each byte of cache that decoding reads, of released models and the subject, against ridge points."""
    configs = {name: RELEASED[name].config for name in COMPARED}
    if own.softmax:
        configs["this model"] = own.config
    reads = [next(filter(None, (reading(c, i) for i in range(c.n_layers)))) for c in configs.values()]
    intensity = np.array([read.intensity() for read in reads])
    ratio = np.array([_heads_ratio(config) for config in configs.values()])
    live = measured(own)
    arrays = {
        "intensity": Array(
            values=intensity, axes=("model",), source="morph.measure.decode.reading: FLOPs over bytes of bf16"
        ),
        "ratio": Array(values=ratio, axes=("model",), source="n_q / n_kv of the config; NaN for latents"),
        "flops": Array(
            values=np.array([c.flops for c in ACCELERATORS.values()]), axes=("chip",), source="bf16, dense; data sheets"
        ),
        "bandwidth": Array(
            values=np.array([c.bandwidth for c in ACCELERATORS.values()]), axes=("chip",), source="data sheets"
        ),
    }  # fmt: skip
    if live:
        arrays["measured"] = Array(
            values=np.array(live), axes=("what",),
            source="FlopCounterMode on one decoding step of a live layer; nbytes of its cache, in fp32",
        )  # fmt: skip
    chip = ACCELERATORS[CHIP]
    most = int(np.nanmax(ratio))
    orders = math.log10(chip.ridge / intensity[0])
    return Frame(
        key="intensity",
        title="How busy one byte keeps arithmetic",
        caption=f"n_q / n_kv operations for each byte read: 1 for MHA, {most} for Qwen3-235B. An {CHIP} could do "
        f"{chip.ridge:.0f}. Only absorbed latents, shared by all heads, come near.",
        alt="Attainable speed against operations a byte, both logarithmic: a slope up to each chip’s ridge point, then "
        "flat. " + "; ".join(f"{n} at {c.ridge:.0f}" for n, c in ACCELERATORS.items()) + ". Models on the slope: "
        + "; ".join(f"{n} {i:.3g}" for n, i in zip(configs, intensity)) + ".",
        claim=Claim(
            text="Intensity is n_q / n_kv, also as counted live; MHA stays 2.5 orders of ten below the ridge, heads "
            "shared by 16 over one; latents come within three times.",
            holds=_intensity_holds,
        ),
        arrays=arrays,
        facts={
            "aside": "operations for each byte of cache", "names": list(configs),
            "kinds": [kind_of(c).split(" + ")[0] for c in configs.values()], "chips": list(ACCELERATORS),
            "own": "this model" if own.softmax else "", "chip": CHIP, "orders": orders,
        },
        source="In bf16, one new token a text. Peaks: data sheets, dense. Latents: n_q (2r + d_rope) / (r + d_rope).",
    )  # fmt: skip


def _heads_ratio(config: ModelConfig) -> float:
    spec = config.attention
    return spec.n_heads / spec.n_kv_heads if isinstance(spec, Attention) else math.nan


def _intensity_holds(frame: Frame) -> bool:
    at, facts = {name: array.values for name, array in frame.arrays.items()}, frame.facts
    ridge = dict(zip(facts["chips"], at["flops"] / at["bandwidth"]))
    theirs = [name != facts["own"] for name in facts["names"]]
    whole = ~np.isnan(at["ratio"])
    equal = np.array_equal(at["intensity"][whole], at["ratio"][whole])
    below = np.log10(ridge[facts["chip"]] / at["intensity"][whole & theirs])
    latent = ridge[facts["chip"]] / at["intensity"][~whole & theirs]
    live = True
    if "measured" in at:
        flops, size = at["measured"]
        live = 2 * flops / size == at["intensity"][facts["names"].index(facts["own"])]  # fp32 has twice the bytes
    return bool(equal and below.min() > 1 and 2.4 < below.max() < 2.5 and latent.max() < 3 and live)


# ---- frame 10 ----


def released_frame(own: Subject) -> Frame:
    """Bytes that one token writes in released models and in the subject, and what their heads would unfolded."""
    configs = {name: RELEASED[name].config for name in SHOWN} | ({"this model": own.config} if own.softmax else {})
    counts = {name: morph.count(config) for name, config in configs.items()}
    theirs = sorted(SHOWN, key=lambda name: -counts[name].kv_bytes_per_token)
    names = theirs + [name for name in configs if name not in theirs]
    written = np.array([counts[name].kv_bytes_per_token for name in names])
    mha = np.array([as_mha(configs[name]) for name in names])
    rows = []
    for name in names:
        config = configs[name]
        costs = [mixer_cost(config, layer, 1) for layer in range(config.n_layers)]
        keeps = sum(cost.per_token > 0 and cost.window is None for cost in costs)
        rows.append({"name": name, "kind": kind_of(config), "keeps": keeps, "layers": config.n_layers})
    against = _against(RELEASED["DeepSeek-V3"].config)
    first, second, third = against.values()
    return Frame(
        key="released",
        title="Bytes a token, released models",
        caption=f"DeepSeek-V3 keeps {first:.0f} times less than its heads unfolded, {second:.0f} times less than plain "
        f"heads of 128, but only {third:.1f} times less than eight shared ones.",
        alt="Bars of the bytes that one token writes, on a logarithmic scale, each with an outline up to what one head "
        "a query would take. "
        + " ".join(f"{r['name']} ({r['kind']}): {in_bytes(int(w))}." for r, w in zip(rows, written)),
        claim=Claim(
            text="Heads shared by n save a factor n; DeepSeek-V3 writes 70,272 bytes, 71, 57 and 3.6 times less than "
            "others of its size.",
            holds=_released_holds,
        ),
        arrays={
            "written": Array(values=written, axes=("model",), source="morph.count(config).kv_bytes_per_token, bf16"),
            "mha": Array(values=mha, axes=("model",), source="the same with every query head's key and value cached"),
            "ratio": Array(
                values=np.array([_heads_ratio(configs[n]) for n in names]), axes=("model",),
                source="n_q / n_kv of the config; NaN for latents",
            ),
            "against": Array(values=np.array([*against.values()]), axes=("design",), source="a token, relative"),
        },
        facts={
            "aside": "bf16, counted from published sizes", "rows": rows, "own": "this model" if own.softmax else "",
            "against": list(against),
        },
        source="All layers counted. Windows forget and states do not grow: the last column has the layers that do.",
    )  # fmt: skip


def _against(config: ModelConfig) -> dict[str, float]:
    """Times that a token of a latent model would weigh in other designs of as many layers."""
    spec = config.attention
    assert isinstance(spec, MLA)
    own = morph.count(config).kv_bytes_per_token
    plain = replace(config, attention=Attention(n_heads=spec.n_heads, n_kv_heads=spec.n_heads, head_dim=spec.v_dim))
    return {
        "its heads unfolded": as_mha(config) / own,
        f"heads of {spec.v_dim}": morph.count(plain).kv_bytes_per_token / own,
        "eight shared heads": morph.count(with_heads(plain, 8)).kv_bytes_per_token / own,
    }


def _released_holds(frame: Frame) -> bool:
    at, rows = {name: array.values for name, array in frame.arrays.items()}, frame.facts["rows"]
    names = [row["name"] for row in rows]
    whole = ~np.isnan(at["ratio"])
    shared = np.allclose(at["mha"][whole], at["ratio"][whole] * at["written"][whole])
    theirs = at["written"][[name != frame.facts["own"] for name in names]]
    v3 = at["written"][names.index("DeepSeek-V3")]
    against = np.allclose(at["against"], [71.1, 56.9, 3.56], atol=0.06)
    return bool(
        shared and (np.diff(theirs) <= 0).all() and v3 == 70_272 and (at["mha"] >= at["written"]).all() and against
    )
