"""What the explorers show of a reader's own text: attention weights, a token's way through the layers, its experts.

Each function runs one traced pass and returns a `Frame`, so that its numbers carry axes, sources and a claim like those
of any figure.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import morph
from morph.errors import MorphError
from morph.measure.trace import Trace
from morph.model import Decoder
from morph.nn.logits import logits_of
from morph.story.frame import Array, Claim, Frame
from morph.story.stream import states_in
from morph.story.subject import Subject
from morph.story.threads import one_thread

MOST_TOKENS = 96
"""Of a reader's text: more could not be read in a map."""
LENS_TOP = 3
"""Next tokens listed at each depth of a token's way."""


def tokens_of(source: Subject, text: str) -> list[int]:
    """The ids of a text as the model reads it, what stands before every text included.

    Raises:
        MorphError: for no text, for too much of it, and for an id outside the model's vocabulary.
    """
    if not isinstance(text, str):
        raise MorphError(f"the text is {type(text).__name__}, not a string; give a string")
    for i, sign in enumerate(text):
        if 0xD800 <= ord(sign) < 0xE000:
            raise MorphError(f"{sign!r} at {i} is half a character and has no bytes; leave it out")
    vocabulary, size = source.vocabulary, source.config.vocab_size
    unit = vocabulary.unit
    if not text:
        raise MorphError(f"the text is empty; write 1 to {MOST_TOKENS} {unit}s")
    ids = [*vocabulary.start, *vocabulary.read(text)]
    if len(ids) > MOST_TOKENS:
        raise MorphError(f"the text has {len(ids)} {unit}s and {MOST_TOKENS} can be shown; cut it")
    if max(ids) >= size:
        raise MorphError(f"{unit} {max(ids)} is outside this model's vocabulary of {size}; write other letters")
    return ids


def attention(source: Subject, text: str) -> Frame:
    """Attention weights of every softmax layer and head: `weights` (layer, head, query, key), `scores` likewise.

    Facts: `tokens` as shown, `layers` with weights, `windows` of those layers (None: the whole past), `heads` of each
    (where they differ, the maps of heads that a layer has not are NaN), `missing`, a sentence about layers that have
    none. A score out of sight is NaN.
    """
    ids, seen = _traced(source, text)
    layers = list(source.softmax)
    if not layers:
        raise MorphError(f"no layer of {source.name} has attention weights; give a model with softmax attention")
    heads = [organ.n_heads for organ in source.softmax.values()]
    weights, scores = (
        _stacked([seen[f"blocks.{i}.attention.{of}"][0] for i in layers]) for of in ("weights", "scores")
    )
    each = f"{heads[0]} heads each" if len(set(heads)) == 1 else f"{min(heads)} to {max(heads)} heads"
    others = [i for i in range(len(source.model.blocks)) if i not in layers]
    missing = f"Layers {_listed(others)} keep a state and have no attention weights." if others else ""
    windows = [organ.window for organ in source.softmax.values()]
    return Frame(
        key="attention",
        title="Who looks at whom",
        caption=f"Attention weights of {len(layers)} layers with {each}, for this text.",
        alt=f"Maps of attention weights, one for each head of {len(layers)} layers with {each}: a row is "
        f"the token that looks, a column the token looked at. {missing}".strip(),
        claim=Claim(text="No token attends to a later one, and no row sums to more than 1.", holds=_causal),
        arrays={
            "weights": _array(weights, ("layer", "head", "query", "key"), "blocks.*.attention.weights"),
            "scores": _array(
                scores.masked_fill(scores.isinf(), float("nan")),
                ("layer", "head", "query", "key"), "blocks.*.attention.scores",
            ),
        },
        facts={
            "tokens": [source.shown(i) for i in ids], "layers": layers, "windows": windows, "heads": heads,
            "missing": missing,
            "model": source.name,
        },
        source=f"A traced pass of {source.name}",
    )  # fmt: skip


def _stacked(maps: list[Tensor]) -> Tensor:
    """Maps of layers, (head, query, key) each, as one tensor; NaN where a layer has fewer heads."""
    most = max(map(len, maps))
    filler = maps[0].new_full((most, *maps[0].shape[1:]), float("nan"))
    return torch.stack([torch.cat((grid, filler[len(grid) :])) for grid in maps])


def token_trace(source: Subject, text: str) -> Frame:
    """Each token's stream, write by write: 2L + 1 depths, the first the embedding.

    Arrays: `rms` (depth, token) of the stream, `write` (write, token), the RMS of what each half of a layer added or
    changed, `cosine` (write, token) of that write with the stream before it, `likely` and `probability`
    (depth, token, rank): the next tokens that the final norm and the head read off the stream at that depth (the
    logit lens, nostalgebraist, 2020), `surprise` (token,): bits of the token that follows, NaN for the last.
    Facts: `tokens`, `likely` as shown, `writes`: names of the writes, `model`.
    """
    ids, seen = _traced(source, text)
    model, depth = source.model, len(source.model.blocks)
    stream = states_in(seen, depth)  # (2L + 1, S, D)
    writes = stream[1:] - stream[:-1]
    likely, probability = zip(*(_lens(model, state) for state in stream))
    logits = seen["logits"][0]
    following = torch.tensor([*ids[1:], 0])
    surprise = torch.nn.functional.cross_entropy(logits, following, reduction="none") / np.log(2)
    surprise[-1] = float("nan")
    names = [f"{half} {layer}" for layer in range(depth) for half in ("attention", "feed-forward")]
    return Frame(
        key="token-trace",
        title="One token through the layers",
        caption=f"The stream after each of {2 * depth} writes, and the next token it would predict if read there.",
        alt=f"For a chosen token: the size of the residual stream after each of {2 * depth} writes, the size of each "
        "write, and the most probable next tokens at that depth.",
        claim=Claim(text="Read after the last write, the lens is the model's own prediction.", holds=_lens_ends),
        arrays={
            "rms": _array(stream.square().mean(-1).sqrt(), ("depth", "token"), "stream, blocks.*.middle and .stream"),
            "write": _array(writes.square().mean(-1).sqrt(), ("write", "token"), "differences of the stream"),
            "cosine": _array(
                torch.nn.functional.cosine_similarity(writes, stream[:-1], dim=-1), ("write", "token"),
                "differences of the stream, with the stream before",
            ),
            "likely": Array(
                values=torch.stack(likely).numpy(), axes=("depth", "token", "rank"), source="norm and head"
            ),
            "probability": _array(
                torch.stack(probability), ("depth", "token", "rank"), "softmax of head(norm(stream))"
            ),
            "surprise": _array(surprise, ("token",), "logits, and the token that follows"),
            "predicted": Array(values=logits.argmax(-1).numpy(), axes=("token",), source="logits"),
        },
        facts={
            "tokens": [source.shown(i) for i in ids], "writes": names, "model": source.name,
            "likely": [[[source.shown(i) for i in row] for row in at.tolist()] for at in likely],
        },
        source=f"A traced pass of {source.name}",
    )  # fmt: skip


def routing(source: Subject, text: str) -> Frame:
    """Which experts each token goes to.

    Arrays: `chosen` and `weights` (layer, token, rank), `probabilities` (layer, token, expert), `load` (layer, expert).
    Facts: `tokens`, `layers` that route, `n_experts`, `top_k`, `n_shared`, `model`.
    """
    moe = source.config.moe
    if moe is None:
        raise MorphError(f"{source.name} has no router; give a model with experts, such as stage 13")
    ids, seen = _traced(source, text)
    names = [name.removesuffix(".logits") for name in seen if name.endswith("feed_forward.router.logits")]
    layers = [int(name.split(".")[1]) for name in names]
    chosen, weights, probabilities = (
        torch.stack([seen[f"{name}.{what}"] for name in names]) for what in ("chosen", "weights", "probabilities")
    )
    load = torch.nn.functional.one_hot(chosen.flatten(1), probabilities.shape[-1]).sum(1)
    every = len(layers) == source.config.n_layers
    where = "every layer" if every else f"{len(layers)} of {source.config.n_layers} layers"
    return Frame(
        key="routing",
        title="Which experts a token uses",
        caption=f"Each token goes to {moe.top_k} of {moe.n_experts} experts in {where}; the router scores all.",
        alt=f"Tokens against {moe.n_experts} experts in each of {len(layers)} layers: the {moe.top_k} chosen cells of "
        "a row are filled by their weight. Below, how often each expert was chosen.",
        claim=Claim(text="Every token chooses top_k different experts.", holds=_different),
        arrays={
            "chosen": Array(values=chosen.numpy(), axes=("layer", "token", "rank"), source=_router("chosen")),
            "weights": _array(weights, ("layer", "token", "rank"), _router("weights")),
            "probabilities": _array(probabilities, ("layer", "token", "expert"), _router("probabilities")),
            "load": Array(values=load.numpy(), axes=("layer", "expert"), source="how often each was chosen"),
        },
        facts={
            "tokens": [source.shown(i) for i in ids], "layers": layers, "n_experts": moe.n_experts, "top_k": moe.top_k,
            "n_shared": moe.n_shared, "model": source.name,
        },
        source=f"A traced pass of {source.name}",
    )  # fmt: skip


@torch.no_grad()
def _lens(model: Decoder, state: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable next tokens where the head reads one depth of the stream, (S, D): ids and probabilities."""
    said = logits_of(model.norm(state), model.head_weight, model.config.logits)
    top = said.softmax(-1).topk(LENS_TOP, dim=-1)
    return top.indices, top.values


@one_thread()
def _traced(source: Subject, text: str) -> tuple[list[int], Trace]:
    ids = tokens_of(source, text)
    model: Decoder = source.model
    with torch.no_grad(), morph.trace(model) as seen:
        model(torch.tensor([ids]))
    return ids, seen


def _router(what: str) -> str:
    return f"blocks.*.feed_forward.router.{what}"


def _array(values: Tensor, axes: tuple[str, ...], source: str) -> Array:
    return Array(values=values.float().numpy(), axes=axes, source=source)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


# ---- claims ----


def _causal(frame: Frame) -> bool:
    weights = np.nan_to_num(frame.values("weights"))
    return bool(np.all(np.triu(weights, 1) == 0) and np.all(weights.sum(-1) < 1 + 1e-4))


def _lens_ends(frame: Frame) -> bool:
    return bool(np.array_equal(frame.values("likely")[-1, :, 0], frame.values("predicted")))


def _different(frame: Frame) -> bool:
    chosen = np.sort(frame.values("chosen"), axis=-1)
    return bool(np.all(np.diff(chosen, axis=-1) > 0)) and chosen.shape[-1] == frame.facts["top_k"]
