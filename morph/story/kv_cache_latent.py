"""Frame 9 of figure 6: the scores of a latent layer, of unfolded keys and of folded queries, and how far they differ.

Facts: `layer`, `n_heads`, `tokens`, `own` (whether the model has latents itself), `limit` (where colours end), `power`
(the differences are drawn in units of 10 to it), `unfolded` and `cached` (numbers of a token's keys and values, and of
what is cached), `multiplies` (`unfold` and `absorb`, of one step).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch

from morph.config import MLA
from morph.measure.decode import reading, unfolded
from morph.measure.trace import trace
from morph.nn.latent import LatentAttention
from morph.nn.organ import plain_forms
from morph.story.frame import Array, Claim, Frame
from morph.story.kv_cache_heads import bench, latents_of
from morph.story.subject import Subject, siblings
from morph.story.written import small

TOKENS, MOST = 40, 5
LARGE = 4096
"""From so many ids on one layer stands for the model."""
BOUND = 1e-4
TITLE = "Absorbed: the same logits"


def with_latents(own: Subject) -> Subject:
    """The model if it has latents in some layer, else one of its config with latents built beside it, untrained."""
    if own.softmax and isinstance(own.config.attention, MLA):
        return own
    latents = latents_of(own.config)
    if own.config.vocab_size > LARGE:
        return siblings(own, [bench(own, latents)])[0]
    one = replace(bench(own, latents), n_layers=own.config.n_layers)
    return siblings(own, [replace(one, feed_forward=own.config.feed_forward)])[0]


@torch.no_grad()
def absorption_frame(own: Subject) -> Frame:
    """Scores of the last token in every head, both ways; and next-token logits decoded both ways."""
    shown = with_latents(own)
    is_own, spec = shown is own, shown.config.attention
    assert isinstance(spec, MLA)
    layer = next(iter(shown.softmax))
    mixer = shown.softmax[layer]
    assert isinstance(mixer, LatentAttention)
    length = min(TOKENS, shown.config.position_limit or TOKENS)
    ids = shown.ids(length)
    with trace(shown.model) as seen:
        shown.model(ids)
    at = f"blocks.{layer}.attention."
    q, kept = seen[f"{at}queries"], torch.cat((seen[f"{at}latents"], seen[f"{at}rotary_keys"]), dim=-1)
    naive = (q[0, :, -1:] @ seen[f"{at}keys"][0].transpose(-1, -2))[:, 0] * mixer.scale
    absorbed = (mixer.fold(q)[0, :, -1:] @ kept[0].T)[:, 0] * mixer.scale
    plain, fast = (_decoded(shown, ids, is_plain) for is_plain in (True, False))
    difference = (absorbed - naive).numpy()
    size, error = float(naive.abs().max()), float(np.abs(difference).max())
    off, largest = float((plain - fast).abs().max()), float(plain.abs().max())
    read = reading(shown.config, layer)
    assert read is not None
    best = plain.topk(min(MOST, len(plain))).indices
    each, power = unfolded(spec), int(np.floor(np.log10(error))) if error else -9
    return Frame(
        key="absorption",
        title=TITLE,
        caption=f"Folded into the query, W_uk meets no key: scores up to {size:.1f} differ by {small(error)}, "
        f"logits by {small(off)}. A token stays {read.values} numbers, not {each}.",
        alt=f"Two maps of {spec.n_heads} heads by {length} tokens that look alike: the last token’s scores with "
        f"unfolded keys and with folded queries. A third shows their difference, {small(error)} at most.",
        claim=Claim(
            text="Both forms give one set of scores and one set of next-token logits, up to rounding.", holds=_holds
        ),
        arrays={
            "naive": Array(
                values=naive.numpy().round(4), axes=("head", "token"), source=f"{at}queries · {at}keys, last token"
            ),
            "absorbed": Array(
                values=absorbed.numpy().round(4), axes=("head", "token"),
                source=f"LatentAttention.fold({at}queries) · latents and rotary keys, last token",
            ),
            "difference": Array(values=difference, axes=("head", "token"), source="absorbed less naive, unrounded"),
            "logits": Array(
                values=torch.stack((plain[best], fast[best])).numpy(), axes=("form", "token"),
                source="the largest next-token logits of a step of decoding, in plain and in absorbed form",
            ),
            "off": Array(values=np.array([off, largest]), axes=("what",), source="largest difference, largest logit"),
        },
        facts={
            "aside": f"layer {layer}, {spec.n_heads} heads", "layer": layer, "n_heads": spec.n_heads,
            "tokens": length, "own": is_own, "limit": float(max(0.5, np.ceil(2 * size) / 2)), "power": power,
            "unfolded": each, "cached": read.values, "error": error, "best": [shown.shown(int(t)) for t in best],
        },
        source=f"{'' if is_own else 'Latents as in the fork mla, untrained, beside '}{own.name}, {length} tokens.",
    )  # fmt: skip


def _decoded(shown: Subject, ids: torch.Tensor, is_plain: bool) -> torch.Tensor:
    """Logits (V,) of the step that reads the last token with a cache of all before it."""
    cache = shown.model.new_cache()
    with plain_forms() if is_plain else nullcontext():
        shown.model(ids[:, :-1], cache=cache)
        return shown.model(ids[:, -1:], cache=cache)[0, -1]


def _holds(frame: Frame) -> bool:
    naive, absorbed = frame.values("naive"), frame.values("absorbed")
    (off, largest), (plain, fast) = frame.values("off"), frame.values("logits")
    size, error = np.abs(naive).max(), np.abs(frame.values("difference")).max()
    same = np.allclose(naive, absorbed, atol=BOUND * size) and np.allclose(plain, fast, atol=BOUND * largest)
    return bool(same and error < BOUND * size and off < BOUND * largest)
