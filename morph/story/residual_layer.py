"""Frames 1 to 3 of figure 2: a token enters the stream, and the two halves of layer 1 write to it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from morph.config import Lightning, State
from morph.nn.norm import ZeroCentredRMSNorm
from morph.story.frame import Claim, Frame, absent
from morph.story.residual_kit import FEATURES, Material, drawn, make, near, numbers, rms_of


def bus(m: Material) -> Frame:
    """A token's embedding becomes the first state."""
    it, config = m.it, m.it.subject.config
    S, D = it.states.shape[1:]
    token = it.tokens[-1]
    factor = config.embedding_factor
    scaled = it.subject.model.embedding.weight[token].detach() * factor
    unit, word = it.subject.vocabulary.unit.capitalize(), it.subject.shown(token)
    scale = f"√{D}" if config.embedding_scale is None else f"{factor:g}"
    return make(
        m,
        "shown",
        key="bus",
        title="A token enters the bus",
        caption=f"{unit} “{word}” becomes {D} numbers. They enter one tensor of shape (1, {S}, {D}), "
        "which every layer reads from and writes to.",
        alt=f"The last {m.words} of {S} tokens, each with a column of {drawn(D)} of its {D} numbers; the column of "
        f"the last token stands on a thick line, the residual stream, that runs on through {config.n_layers} layers.",
        claim=Claim(
            text="The first state is the token's row of the embedding, scaled, and its position where one is added.",
            holds=lambda f: near(f.values("stream")[:, -1], f.values("embedding") + f.values("position")),
        ),
        arrays={
            "stream": numbers(it.states[0, -m.words :, :FEATURES].T, ("feature", "token"), "stream[0], last tokens"),
            "embedding": numbers(scaled[:FEATURES], ("feature",), f"embedding.weight[{token}] × {scale}"),
            "position": numbers((it.states[0, -1] - scaled)[:FEATURES], ("feature",), "stream - scaled embedding"),
        },
        facts={"words": [it.subject.shown(t) for t in it.tokens[-m.words :]], "tokens": S, "shown": min(D, FEATURES)},
    )


def first_write(m: Material) -> Frame:
    """Attention of layer 1 reads and writes."""
    _, S, _ = m.it.states.shape
    mixer = m.it.subject.config.mixer(0)
    name = "Attention"
    if isinstance(mixer, State):
        name = "Lightning attention" if isinstance(mixer, Lightning) else "The delta network"
    return _write(
        m,
        0,
        key="attention",
        title="Attention reads, then adds",
        caption=lambda read, delta: (
            f"{name} reads {read.format(f'this token and the {S - 1} before it')}, "
            f"and adds what it found: a delta of RMS {delta:.2f}."
        ),
    )


def second_write(m: Material) -> Frame:
    """The feed-forward network of layer 1 reads and writes."""
    return _write(
        m,
        1,
        key="feed-forward",
        title="The feed-forward network adds too",
        caption=lambda read, delta: (
            f"The feed-forward network reads {read.format('this token alone')}, and adds a delta of RMS {delta:.2f}. "
            "Nothing on the stream was overwritten."
        ),
    )


def _write(m: Material, write: int, *, key: str, title: str, caption: Callable[[str, float], str]) -> Frame:
    it, config = m.it, m.it.subject.config
    half = ("attention", "feed_forward")[write]
    placement = config.placement_in(0)
    if placement == "on-normed-stream":
        return absent(
            key,
            title,
            "In this model a norm stands on the stream before each branch, and what the branch writes is added to the "
            "normalized stream. Frame 9 shows what norms on the stream make of it.",
        )
    if placement == "post":
        return absent(
            key,
            title,
            "This model normalizes the stream itself after every addition, so a branch does not read a normalized "
            "copy. Frame 9 shows what becomes of the stream.",
        )
    if placement == "parallel" and write:
        return absent(key, title, "In this model both halves read one copy and are added together, as in frame 2.")
    before, delta, after = it.states[write, -1], it.deltas[write, -1], it.states[write + 1, -1]
    name = "norm" if placement == "parallel" else f"{half}_norm"
    norm = it.subject.model.blocks[0].get_submodule(name)
    vectors = {"before": before, "delta": delta, "after": after}
    reads = "{} as the stream has it"
    facts: dict[str, Any] = {"half": half, "norm": placement != "post-branch"}
    if facts["norm"]:
        with torch.no_grad():
            vectors["copy"] = norm(before)
            facts["unit"] = rms_of(_bare(norm)(before))
        size = f"(root mean square, RMS, {rms_of(vectors['copy']):.2f})"
        copies = f"normalized copies {size} of" if write == 0 else "a normalized copy of"
        reads = copies + " {}"
    state = ("the stream before layer 1", "the stream between the halves of layer 1")[write]
    sources = {
        "before": ("stream[0, -1]", "blocks.0.middle[0, -1]")[write],
        "copy": f"blocks.0.{name}, applied to it",
        "delta": f"blocks.0.{half}_delta[0, -1]",
        "after": ("blocks.0.middle[0, -1]", "blocks.0.stream[0, -1]")[write],
    }
    facts["rms"] = {name: round(rms_of(vector), 4) for name, vector in vectors.items()}
    facts["feature"] = _followed(before, delta, after)
    arrays = {n: numbers(v[:FEATURES].detach(), ("feature",), sources[n]) for n, v in vectors.items()}
    return make(
        m,
        "shown",
        key=key,
        title=title,
        caption=caption(reads, rms_of(delta)),
        alt=f"A column of numbers, {state} (RMS {rms_of(before):.2f}), "
        + (f"goes through a norm (RMS {rms_of(vectors['copy']):.2f}) and " if facts["norm"] else "goes ")
        + f"into the {half.replace('_', '-')} branch, whose column (RMS {rms_of(delta):.2f}) is added to the stream "
        f"(RMS {rms_of(after):.2f}). Feature {facts['feature']['index']}: {facts['feature']['sum']}.",
        claim=Claim(
            text="The state after is the state before plus the delta, and the norm's output has RMS 1 before its gain.",
            holds=lambda f: (
                near(f.values("before") + f.values("delta"), f.values("after"))
                and abs(f.facts.get("unit", 1.0) - 1) < 0.01
                and float(abs(f.values("delta")).max()) > 1e-3 * float(abs(f.values("after")).max())
            ),
        ),
        arrays=arrays,
        facts=facts,
    )


def _bare(norm: nn.Module) -> nn.Module:
    """The norm without its gain and shift."""
    bare = deepcopy(norm)
    for name, parameter in bare.named_parameters():
        parameter.fill_(1.0 if name == "weight" and not isinstance(norm, ZeroCentredRMSNorm) else 0.0)
    return bare


def _followed(before: Tensor, delta: Tensor, after: Tensor) -> dict[str, Any]:
    """The feature that the write changes most, among those whose rounded numbers still add up."""
    order = delta[:FEATURES].abs().argsort(descending=True).tolist()
    for index in order:
        a, b, c = (round(float(vector[index]), 2) for vector in (before, delta, after))
        if abs(a + b - c) < 1e-6:
            break
    text = f"{a:.2f} {'+' if b >= 0 else '−'} {abs(b):.2f} = {c:.2f}".replace("-", "−")
    return {"index": index, "before": a, "delta": b, "after": c, "sum": text}
