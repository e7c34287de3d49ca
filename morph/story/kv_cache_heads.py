"""Frames 5 to 8 of figure 6: one layer's cache under MHA, MQA, GQA and MLA, of one model's heads. Facts of each:

* `n_heads`, `head_dim`; `n_kv` (key-value heads; 0 for a latent), `reads` (which cached head each query head reads);
* `numbers` and `bytes` (of one token in one layer), `layers`, `share` (of what MHA keeps), `own` (whether the model
  itself has it);
* `stride` (features that a drawn cell stands for), `limit` (where colours end), `tokens`;
* `lab`: `arm`, `bits`, `mha`, `bound` and `verdict` of the lab's claim that it costs little ("" for MHA itself).

Arrays: `keys` and `values` (head, token, feature), or `latents` and `rotary_keys` (1, token, feature); `weighed` and
`formula`, bytes of one layer; `lab` (arm, seed).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from morph.config import MLA, MLP, AllGlobal, Attention, ModelConfig, NoPosition
from morph.errors import MorphError
from morph.forks.attention import latent_like
from morph.lab.verdict import interval, judge
from morph.measure.mixers import mixer_cost
from morph.measure.trace import trace
from morph.nn.cache import LatentCache, SightCache
from morph.nn.latent import LatentAttention
from morph.story.frame import Array, Claim, Frame, absent
from morph.story.kv_cache_step import colour_limit, value_bytes
from morph.story.measured import by_seed, run
from morph.story.subject import Subject, siblings
from morph.story.written import in_bytes

TOKENS = 12
CELLS = 96
"""Drawn features of all query heads together; wider heads are drawn by every so many-th feature."""
LAB, BITS = "kv-heads", "bits per byte"
ARMS = {"mha": "MHA", "mqa": "MQA", "gqa": "GQA", "mla": "MLA, GQA's bytes"}
TITLES = {
    "mha": "MHA: a cache for every head",
    "mqa": "MQA: all heads read one",
    "gqa": "GQA: each group reads one",
    "mla": "MLA: one latent, one rotary key",
}
NO_GROUPS = "This model's {} query heads form no groups of equal size between one for each and one for all."


def heads_of(config: ModelConfig) -> Attention:
    """The model's heads with a key and a value each; those of a latent's width without rotation."""
    spec = config.attention
    if isinstance(spec, Attention):
        return replace(spec, n_kv_heads=spec.n_heads)
    return Attention(n_heads=spec.n_heads, n_kv_heads=spec.n_heads, head_dim=spec.nope_dim)


def groups_of(config: ModelConfig) -> int | None:
    """Key-value heads of the model's GQA: its own, or the middle one of those that there could be."""
    spec, heads = config.attention, heads_of(config)
    if isinstance(spec, Attention) and 1 < spec.n_kv_heads < spec.n_heads:
        return spec.n_kv_heads
    between = [n for n in range(2, heads.n_heads) if heads.n_heads % n == 0]
    return between[len(between) // 2] if between else None


def latents_of(config: ModelConfig) -> MLA:
    """The model's latents, or such as the fork `mla` puts in the place of its (grouped) heads."""
    spec = config.attention
    if isinstance(spec, MLA):
        return spec
    return latent_like(replace(heads_of(config), n_kv_heads=groups_of(config) or spec.n_kv_heads), config.d_model)


def bench(own: Subject, attention: Attention | MLA) -> ModelConfig:
    """One layer of the model with this attention and next to nothing else; unplaced where its position does not fit."""
    config, layer = own.config, next(iter(own.softmax), 0)
    one = replace(
        config, n_layers=1, layout=AllGlobal(), position=NoPosition(), attention=attention,
        feed_forward=MLP(width=1, activation="relu"), vocab_size=min(config.vocab_size, 256), mtp=None,
    )  # fmt: skip
    try:
        return replace(one, position=config.position_in(layer))
    except MorphError:
        return one


@dataclass(frozen=True)
class Kept:
    """One layer's live cache after a short text: its tensors (1, ...), the layer's number and config, a token's bytes.

    Attributes:
        unfolded: how far keys and values that unfold from the cache are from the layer's own; 0 without a latent.
    """

    key: str
    own: bool
    spec: Attention | MLA
    tensors: dict[str, Tensor]
    weighed: int
    formula: int
    tokens: tuple[str, ...]
    unfolded: float


@torch.no_grad()
def keep(own: Subject, key: str, attention: Attention | MLA) -> Kept:
    """Let the model, if it has this attention, or one layer built beside it read a short text with a cache."""
    is_own = attention == own.config.attention and bool(own.softmax)
    shown = own if is_own else siblings(own, [bench(own, attention)])[0]
    layer = next(iter(shown.softmax))
    length = min(TOKENS, shown.config.position_limit or TOKENS)
    ids, cache = shown.ids(length), shown.model.new_cache()
    shown.model(ids, cache=cache)
    kept, mixer, error = cache.layers[layer], shown.softmax[layer], 0.0
    assert isinstance(kept, SightCache) and kept.columns is not None
    if isinstance(mixer, LatentAttention) and isinstance(kept, LatentCache):
        error = _unfolding_error(shown, layer, kept)
    cost = mixer_cost(shown.config, layer, 1)
    return Kept(
        key=key, own=is_own, spec=attention,
        tensors={name: t for name, t in kept.tensors().items() if t is not None},
        weighed=kept.nbytes, formula=cost.per_token * value_bytes(shown) * len(kept.columns),
        tokens=tuple(shown.shown(int(t)) for t in ids[0, kept.columns]), unfolded=error,
    )  # fmt: skip


def _unfolding_error(shown: Subject, layer: int, kept: LatentCache) -> float:
    """Largest relative difference of keys and values unfolded from the cache and those of a pass without one."""
    mixer = shown.softmax[layer]
    assert isinstance(mixer, LatentAttention) and kept.latents is not None and kept.rotary_keys is not None
    with trace(shown.model) as seen:
        shown.model(shown.ids(kept.latents.shape[1]))
    pairs = zip(mixer.unfold(kept.latents, kept.rotary_keys), ("keys", "values"))
    both = [(a, seen[f"blocks.{layer}.attention.{name}"]) for a, name in pairs]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in both)


# ---- the frames ----


def heads_frames(own: Subject) -> tuple[Frame, ...]:
    """Frames 5 to 8."""
    config, whole, groups = own.config, heads_of(own.config), groups_of(own.config)
    kinds: dict[str, Attention | MLA | None] = {
        "mha": whole,
        "mqa": replace(whole, n_kv_heads=1),
        "gqa": None if groups is None else replace(whole, n_kv_heads=groups),
        "mla": latents_of(config),
    }
    kept = {key: keep(own, key, spec) for key, spec in kinds.items() if spec is not None}
    limit = max(
        colour_limit(np.concatenate([t.numpy().ravel() for t in one.tensors.values()])) for one in kept.values()
    )
    return tuple(
        _frame(own, kept[key], kept["mha"], limit)
        if key in kept
        else absent(key, TITLES[key], NO_GROUPS.format(whole.n_heads))
        for key in kinds
    )


def _frame(own: Subject, kept: Kept, whole: Kept, limit: float) -> Frame:
    heads, layers = heads_of(own.config), len(own.softmax)
    latent = isinstance(kept.spec, MLA)
    n_kv = 0 if isinstance(kept.spec, MLA) else kept.spec.n_kv_heads
    stride = -(-heads.n_heads * heads.width // CELLS)
    tokens = len(kept.tokens)
    size, share = kept.weighed // tokens, (kept.weighed / tokens) / (whole.weighed / len(whole.tokens))
    numbers = sum(t[0, ..., 0, :].numel() for t in kept.tensors.values())
    lab, told = _lab(kept.key)
    drawn = {
        name: Array(
            values=_drawn(t, stride), axes=("head", "token", "feature"),
            source=f"{name} of a live cache, {'this model' if kept.own else 'one layer built beside it, untrained'}",
        )
        for name, t in kept.tensors.items()
    }  # fmt: skip
    reads = [] if latent else [head // (heads.n_heads // n_kv) for head in range(heads.n_heads)]
    return Frame(
        key=kept.key,
        title=TITLES[kept.key],
        caption=_caption(kept, heads, n_kv, numbers, share),
        alt=_alt(kept, heads, n_kv, numbers, size, told),
        claim=Claim(
            text="The live layer weighs what the formula says; the share of MHA is that of the heads, or of latent and "
            "rotary key; the lab's verdict follows from its seeds.",
            holds=_holds,
        ),
        arrays={
            **drawn,
            "weighed": Array(values=np.array(kept.weighed), axes=(), source="nbytes of one layer's live cache"),
            "formula": Array(
                values=np.array(kept.formula), axes=(), source="numbers a token by measure.mixers × bytes × tokens"
            ),
            "unfolded": Array(
                values=np.array(kept.unfolded), axes=(),
                source="largest relative error of keys and values that unfold from the cache",
            ),
            "lab": lab,
        },
        facts={
            "aside": f"one of {layers} layers" if layers > 1 else "one layer", "n_heads": heads.n_heads,
            "head_dim": heads.width, "n_kv": n_kv, "reads": reads, "numbers": numbers, "bytes": size, "layers": layers,
            "share": share, "own": kept.own, "stride": stride, "limit": limit, "tokens": list(kept.tokens), "lab": told,
        },
        source=f"{'The cache of ' + own.name if kept.own else 'One layer built beside ' + own.name}. "
        f"Lab: kv-heads, {run(LAB).declared['recipe']['steps']} steps.",
    )  # fmt: skip


def _drawn(tensor: Tensor, stride: int) -> np.ndarray:
    """(head, token, feature) of the first text, every `stride`-th feature."""
    one = tensor[0] if tensor.dim() == 4 else tensor
    return np.asarray(one[..., ::stride].float().numpy()).round(2)


def _caption(kept: Kept, heads: Attention, n_kv: int, numbers: int, share: float) -> str:
    if kept.key == "mha":
        return (
            f"Each of {heads.n_heads} query heads has a key and a value head of its own: {numbers} numbers for every "
            f"token in every layer."
        )
    if kept.key == "mqa":
        return (
            f"All {heads.n_heads} query heads read one key and one value head: {numbers} numbers a token and layer, "
            f"{share:.0%} of MHA’s."
        )
    if kept.key == "gqa":
        return (
            f"{n_kv} groups of {heads.n_heads // n_kv} query heads share a key and a value head each: {numbers} "
            f"numbers a token and layer, {share:.0%} of MHA’s."
        )
    assert isinstance(kept.spec, MLA)
    more = f", {kept.spec.indexer.head_dim} for an indexer" if kept.spec.indexer else ""
    return (
        f"{kept.spec.kv_rank} numbers from which all heads unfold keys and values, and {kept.spec.rope_dim} for one "
        f"rotated key that they share{more}: {share:.0%} of MHA’s."
    )


def _alt(kept: Kept, heads: Attention, n_kv: int, numbers: int, size: int, told: dict[str, Any]) -> str:
    what = (
        f"{n_kv} maps of cached keys and {n_kv} of values"
        if n_kv
        else "one wide map of latents and a narrow one of rotary keys"
    )
    lab = f" In the lab {told['bits']:.2f} bits per byte" + (
        f", MHA {told['mha']:.2f}; that it costs little: {told['verdict']}." if told["verdict"] else "."
    )
    return (
        f"{heads.n_heads} query heads in a row; under them {what}, {len(kept.tokens)} tokens high, joined to the heads "
        f"that read them. {numbers} numbers, {in_bytes(size)}, a token and layer.{lab}"
    )


def _lab(key: str) -> tuple[Array, dict[str, Any]]:
    """What the lab recorded of this kind and of MHA, and its verdict that it costs little."""
    arm, result = ARMS[key], run(LAB)
    array = by_seed(LAB, ("MHA", arm), BITS)
    bound, verdict = 0.0, ""
    for finding in result.findings:
        claim = finding.claim
        if (claim.of, claim.against) == (arm, "MHA") and claim.less_than is not None:
            bound, verdict = claim.less_than, finding.verdict
    mha, bits = array.values.mean(axis=1)
    return array, {
        "arm": arm, "bits": float(bits), "mha": float(mha), "bound": bound, "verdict": verdict,
        "seeds": array.values.shape[1],
    }  # fmt: skip


def _holds(frame: Frame) -> bool:
    facts, told = frame.facts, frame.facts["lab"]
    per_token = frame.values("weighed") / len(facts["tokens"])
    whole = 2 * facts["n_heads"] * facts["head_dim"]
    expected = facts["n_kv"] / facts["n_heads"] if facts["n_kv"] else facts["numbers"] / whole
    mha, arm = frame.values("lab")
    verdict = not told["verdict"] or told["verdict"].startswith("undecided")
    verdict = verdict or judge(interval((arm - mha).tolist()), less_than=told["bound"]) == told["verdict"]
    return bool(
        frame.values("weighed") == frame.values("formula")
        and per_token == facts["bytes"]
        and np.isclose(facts["share"], expected)
        and frame.values("unfolded") < 1e-4
        and verdict
    )
