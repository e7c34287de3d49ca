"""Frames 9 and 10 of figure 9: what trained mixers recall, and an indexer that chooses what attention reads.

Arrays: `accuracy` (arm, pairs), the mean over seeds, `low` and `high` their range (9); `scores` (query, key), `chosen`
(query, key) of 0 and 1, and `share` (query,), how much of dense attention's weight lies on the chosen (10).
"""

from __future__ import annotations

import numpy as np
import torch

from morph.lab.needs import settled
from morph.nn.latent import LatentAttention
from morph.story.beyond_kit import Look
from morph.story.frame import Array, Claim, Frame
from morph.story.measured import by_seed, run, trained
from morph.story.residual_kit import numbers
from morph.story.subject import subject
from morph.story.written import percent

LAB = "recall"
ARMS = (
    "full", "window of 8", "linear, 4 x 4", "delta, 4 x 4", "delta, 8 x 8", "delta + full", "sparse, 4 chosen",
)  # fmt: skip
RECORDED = "sparse"


def recalled(look: Look) -> Frame:
    """Accuracy by the number of pairs, for each mixer that the lab trained."""
    pairs = sorted(int(point["pairs"]) for point in run(LAB).points)
    found = np.array([by_seed(LAB, ARMS, "accuracy", {"pairs": n}).values for n in pairs])  # (pairs, arm, seed)
    mean, low, high = (np.moveaxis(f(found, -1), 0, 1) for f in (np.mean, np.min, np.max))
    at = {arm: float(mean[i, -1]) for i, arm in enumerate(ARMS)}
    late = np.array([by_seed(LAB, ARMS, "late gain", {"pairs": n}).values.mean(-1) for n in pairs]).T
    learning = late >= np.array([settled(arm).less_than for arm in ARMS])[:, None]
    still = " Hollow dots were still learning." if learning.any() else ""
    return Frame(
        key="recall",
        title="Which memories can recall",
        caption=(
            f"Of {pairs[-1]} pairs full attention recalls {percent(at['full'])}, a 4×4 delta state "
            f"{percent(at['delta, 4 x 4'])}, an 8×8 one {percent(at['delta, 8 x 8'])}, states under a full layer "
            f"{percent(at['delta + full'])}.{still}"
        ),
        alt=f"Accuracy at {', '.join(map(str, pairs))} pairs for {len(ARMS)} mixers, a dot for each. At {pairs[-1]}: "
        + ", ".join(f"{arm} {percent(value)}" for arm, value in at.items())
        + ".",
        claim=Claim(
            text="Full attention, an 8 × 8 delta state, one full layer over states, and four chosen tokens recall "
            "over nine in ten of the most pairs; a 4 × 4 delta state and a window recall fewer than these.",
            holds=lambda f: _recall_holds(f),
        ),
        arrays={
            "pairs": Array(values=np.array(pairs), axes=("pairs",), source="key-value pairs in a sequence"),
            "accuracy": numbers(mean, ("arm", "pairs"), f"recorded experiment {LAB}: accuracy, mean over seeds"),
            "low": numbers(low, ("arm", "pairs"), "the least of the seeds"),
            "high": numbers(high, ("arm", "pairs"), "the greatest of the seeds"),
            "late": numbers(late, ("arm", "pairs"), "gain in accuracy over the last steps, mean over seeds"),
            "learning": Array(values=learning.astype(int), axes=("arm", "pairs"), source="1 where that was no end yet"),
        },
        facts={"aside": f"lab, {trained(LAB)}", "arms": list(ARMS)},
        source="Two layers each, trained on multi-query associative recall (Arora et al., 2023).",
    )


def _recall_holds(frame: Frame) -> bool:
    last = dict(zip(frame.facts["arms"], frame.values("accuracy")[:, -1]))
    good = [last[arm] for arm in ("full", "delta, 8 x 8", "delta + full", "sparse, 4 chosen")]
    return bool(min(good) > 0.9 and max(last["delta, 4 x 4"], last["window of 8"]) < min(good))


def chosen(look: Look) -> Frame:
    """An indexer's scores, the tokens it keeps, and how much of dense attention they hold."""
    own = [n for n in look.caches if f"blocks.{n}.attention.indexer.chosen" in look.seen]
    it = look if own else Look.at(subject(RECORDED, seed=look.subject.seed if look.subject.seed in (0, 1) else 0))
    layers = [n for n in it.caches if f"blocks.{n}.attention.indexer.chosen" in it.seen]
    layer = layers[len(layers) // 2]
    mixer = it.subject.model.blocks[layer].attention
    assert isinstance(mixer, LatentAttention)
    scores, picks = it.of(layer, "indexer.scores"), it.seen[f"blocks.{layer}.attention.indexer.chosen"][0]
    length = scores.shape[0]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    table = torch.zeros(length, length, dtype=torch.bool).scatter(1, picks, True) & causal
    q, k = it.of(layer, "queries"), it.of(layer, "keys")
    dense = (q @ k.mT * mixer.scale).masked_fill(~causal, -torch.inf).softmax(-1)
    share = (dense * table).sum(-1).mean(0)
    kept, of = picks.shape[1], f"blocks.{layer}.attention.indexer"
    late = slice(min(2 * kept, length - 1), length)
    even = kept / torch.arange(1, length + 1)[late].double()
    held, fair = float(share[late].mean()), float(even.mean())
    return Frame(
        key="sparse",
        title="Read only what is chosen",
        caption=(
            f"A small indexer scores all tokens; attention reads the best {kept}. For late queries these hold "
            f"{percent(held)} of dense attention’s weight; {kept} random ones would hold {percent(fair)}."
        ),
        alt=f"Two maps of {length} queries by {length} keys: the indexer's scores, and the {kept} keys kept for each "
        f"query.",
        claim=Claim(
            text="Each query keeps its top_k best-scored tokens, or all it can see; they hold more than a random "
            "choice.",
            holds=lambda f: _chosen_holds(f) and float(f.values("held")) > float(f.values("even")),
        )
        if it.subject.is_trained
        else Claim(
            text="Each query keeps its top_k best-scored tokens, or all it can see; an untrained indexer promises no "
            "more.",
            holds=lambda f: _chosen_holds(f),
        ),
        arrays={
            "scores": numbers(scores.masked_fill(~causal, 0), ("query", "key"), f"{of}.scores", 4),
            "chosen": Array(values=table.int().numpy(), axes=("query", "key"), source=f"{of}.chosen"),
            "share": numbers(share, ("query",), "dense softmax of the layer's own scores, summed over the chosen"),
            "held": numbers(held, (), f"mean of share over queries from {late.start} on"),
            "even": numbers(fair, (), "the same for a random choice"),
        },
        facts={"aside": f"layer {layer}, top {kept}", "top_k": kept, "layer": layer, "late": late.start},
        source=it.source,
    )  # fmt: skip


def _chosen_holds(frame: Frame) -> bool:
    scores, table, kept = frame.values("scores"), frame.values("chosen").astype(bool), frame.facts["top_k"]
    for i, row in enumerate(table):
        if row.sum() != min(kept, i + 1):
            return False
        rest = scores[i, : i + 1][~row[: i + 1]]
        if rest.size and scores[i][row].min() < rest.max() - 1e-3 * np.abs(scores).max():
            return False
    return True
