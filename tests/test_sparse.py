"""Sparse attention: against Hugging Face's DeepSeek-V3.2, its choices, its cache, and how the indexer learns."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.config import (
    MLA,
    AllLocal,
    Indexer,
    Interleaved,
    ModelConfig,
    NoPosition,
    Rope,
    SlidingWindow,
    YarnRope,
    yarn_softmax_scale,
)
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn.context import Context
from morph.nn.mask import Mask, visible
from morph.nn.organ import plain_forms
from morph.nn.sparse import Indexer as IndexerOrgan
from morph.nn.sparse import SparseAttention
from morph.train import load_model
from morph.train.data import load_corpus, training_offsets, windows
from morph.train.loop import train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.models import random_ids, relative_error, stage_model
from tests.test_cache import LENGTH, read_in_chunks
from tests.test_latent import BOUND, ODD, YARN, added, renamed, their_config, with_latents
from tests.test_train_data import folder
from tests.test_train_runs import assert_same_weights
from tests.tools import need

INDEX = Indexer(n_heads=16, head_dim=9, rope_dim=6, top_k=13)
SPARSE = replace(ODD, indexer=INDEX)
TABLE = Mask(visible(torch.arange(4), torch.arange(4), None, None), is_causal=False)


def indexers(model: Decoder) -> list[IndexerOrgan]:
    return [module for module in model.modules() if isinstance(module, IndexerOrgan)]


# ---- against DeepSeek-V3.2 ----


CASES = {
    "v3.2": with_latents(SPARSE, position=Rope(pairing="interleaved")),
    "biases, few heads": with_latents(
        replace(SPARSE, n_heads=2, indexer=replace(INDEX, n_heads=11)), position=Rope(pairing="interleaved"), bias=True
    ),
    "yarn": with_latents(replace(SPARSE, scale=yarn_softmax_scale(16, 8.0, 0.7)), position=YARN),
    "chooses all": with_latents(
        replace(SPARSE, indexer=replace(INDEX, top_k=64)), position=Rope(pairing="interleaved")
    ),
}
THEIRS = {
    "q_proj.weight": "wq_b.weight", "k_proj.weight": "wk.weight", "k_norm.weight": "k_norm.weight",
    "k_norm.bias": "k_norm.bias", "weights_proj.weight": "weights_proj.weight",
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_layer_is_deepseek_v32s(case: str, seed: int) -> None:
    """Chosen tokens, output, weights and all that is cached; in one pass, in chunks and token by token."""
    need("transformers")
    import transformers
    from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Attention, DeepseekV32RotaryEmbedding

    config = CASES[case]
    model = stage_model(config, seed)
    ours, spec = model.blocks[0].attention, config.attention
    assert isinstance(ours, SparseAttention) and isinstance(spec, MLA) and spec.indexer is not None
    index = {"index_n_heads": spec.indexer.n_heads, "index_head_dim": 9, "index_topk": spec.indexer.top_k}
    hf = transformers.DeepseekV32Config(**their_config(config, **index))
    theirs = DeepseekV32Attention(hf, layer_idx=0).eval()
    mine = {f"indexer.{THEIRS[name]}": value for name, value in ours.indexer.state_dict().items()}
    theirs.load_state_dict(renamed(ours) | mine, strict=True)

    length = 41
    x = torch.randn(2, length, 48, generator=torch.Generator().manual_seed(seed))
    rotation = DeepseekV32RotaryEmbedding(hf)(x, torch.arange(length)[None])
    their_choice: list[Tensor] = []
    hook = theirs.indexer.register_forward_hook(lambda _, __, out: their_choice.append(out.long()))
    their_cache = transformers.DynamicCache(config=hf)
    expected, weights = theirs(x, rotation, added(length).expand(2, 1, -1, -1), cache=their_cache)
    hook.remove()
    with morph.trace(model) as seen:
        out = ours(x, Context(0, length, None, x.device, torch.float32))
    scores, chosen = (seen[f"blocks.0.attention.indexer.{name}"] for name in ("scores", "chosen"))
    for row in range(2):
        for query in range(length):  # those out of sight come in any order
            visible_ones = [set(c[row, query][c[row, query] <= query].tolist()) for c in (chosen, their_choice[0])]
            assert visible_ones[0] == visible_ones[1], (row, query)
            assert len(visible_ones[0]) == min(query + 1, spec.indexer.top_k)
    assert float((scores[scores.isfinite()] == 0).float().mean()) < 0.002
    assert relative_error(out, expected) < BOUND
    assert relative_error(seen["blocks.0.attention.weights"], weights) < BOUND

    cache = ours.new_cache()
    parts = [
        ours(x[:, a:b], Context(a, b - a, None, x.device, torch.float32), cache)
        for a, b in pairwise((0, 23, 24, 25, 36, 37, 38, length))
    ]
    assert relative_error(torch.cat(parts, dim=1), expected) < BOUND
    held = their_cache.layers[0]
    assert relative_error(cache.latents, held.keys[:, 0]) < BOUND
    assert relative_error(cache.index_keys, held.indexer_keys) < BOUND


def test_scores_are_the_formula() -> None:
    """Written out with loops, and rotated pair by pair, for both pairings."""
    for pairing in ("half-split", "interleaved"):
        spec = replace(SPARSE, indexer=replace(INDEX, pairing=pairing))
        model = stage_model(with_latents(spec, position=Rope(base=50.0)), dtype=torch.float64)
        organ, layer = indexers(model)[0], "blocks.0.attention"
        with morph.trace(model) as seen, torch.no_grad():
            model(random_ids(model, 1, 20))
        x, asked = seen["blocks.0.attention_norm.input"][0], seen[f"{layer}.query_latents"][0]
        x = model.blocks[0].attention_norm(x[None])[0].detach()
        q = (asked @ organ.q_proj.weight.T).view(20, 16, 9).detach()
        k = torch.nn.functional.layer_norm(
            x @ organ.k_proj.weight.T, (9,), organ.k_norm.weight, organ.k_norm.bias, 1e-6
        )
        k, w = k.detach(), (x @ organ.weights_proj.weight.T).detach()

        def turned(v: Tensor, place: int, pairing: str = pairing) -> Tensor:
            out = v.clone()
            for pair in range(3):
                i, j = (pair, pair + 3) if pairing == "half-split" else (2 * pair, 2 * pair + 1)
                angle = torch.tensor(place * 50.0 ** (-2 * pair / 6), dtype=torch.float64)
                out[i] = v[i] * angle.cos() - v[j] * angle.sin()
                out[j] = v[j] * angle.cos() + v[i] * angle.sin()
            return out

        for t, s in ((0, 0), (7, 3), (19, 0), (19, 19), (12, 11)):
            expected = sum(w[t, h] / 4 * torch.relu(turned(q[t, h], t) @ turned(k[s], s) / 3) for h in range(16))
            assert float((seen[f"{layer}.indexer.scores"][0, t, s] - expected).abs()) < 1e-12
        assert seen[f"{layer}.indexer.scores"][0, 3, 4] == float("-inf")


@torch.no_grad()
def test_scores_of_bf16_are_summed_in_fp32() -> None:
    """A sum rounded to eight bits would make tokens tie that do not; in bf16 weights and under autocast alike."""
    config = with_latents(SPARSE, position=Rope(base=50.0))
    half, whole = stage_model(config, dtype=torch.bfloat16), stage_model(config)
    for model in (half, whole):
        place = "blocks.0.attention.indexer"
        with morph.trace(model) as seen, torch.autocast("cpu", torch.bfloat16, enabled=model is whole):
            model(random_ids(model, 1, 40))
        q, k, w = (seen[f"{place}.{name}"] for name in ("queries", "keys", "head_weights"))
        assert torch.equal(q, q.bfloat16().float()), "what is summed has been rounded before"
        matches = torch.relu(torch.einsum("bhsd,bnd->bhsn", q, k) * INDEX.head_dim**-0.5)
        expected = torch.einsum("bhsn,bsh->bsn", matches, w)
        scores = seen[f"{place}.scores"]
        in_sight = scores.isfinite()
        assert relative_error(scores[in_sight], expected[in_sight]) < 1e-5
        assert not torch.equal(scores[in_sight], scores[in_sight].bfloat16().float())


# ---- choices ----


def test_ties_go_to_the_earlier_token() -> None:
    organ = indexers(stage_model(with_latents(replace(ODD, indexer=replace(INDEX, top_k=2)))))[0]
    out = float("-inf")
    scores = torch.tensor([[[0.0, out, out, out], [0.0, 0.0, out, out], [1.0, 1.0, 1.0, out], [0.0, 2.0, 0.0, 2.0]]])
    chosen = organ.choose(scores)
    assert chosen.tolist() == [[[0, 1], [0, 1], [0, 1], [1, 3]]]
    limited = organ.limit(TABLE, chosen, 4)
    assert limited.allowed is not None and limited.allowed.int().tolist() == [
        [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]]
    ]
    assert organ.limit(TABLE, organ.choose(scores[:, :, :2]), 2) is TABLE, "nothing is left to hide"


@torch.no_grad()
def test_where_it_chooses_all_it_is_its_base() -> None:
    """Bit for bit up to `top_k` tokens, in one pass and in chunks; beyond them no longer."""
    model, base = stage_model("sparse-attention"), stage_model("mla")
    base.load_state_dict(model.state_dict(), strict=False)
    top_k = model.config.attention.indexer.top_k  # type: ignore[union-attr]
    ids = random_ids(model, 2, top_k + 4)
    assert torch.equal(model(ids[:, :top_k]), base(ids[:, :top_k]))
    first = ids[:, :top_k]
    assert torch.equal(read_in_chunks(model, first, [5, 6, 11]), read_in_chunks(base, first, [5, 6, 11]))
    assert relative_error(model(ids)[:, :top_k], base(ids)[:, :top_k]) < 1e-5
    assert relative_error(model(ids)[:, top_k + 1 :], base(ids)[:, top_k + 1 :]) > 1e-3
    with plain_forms():
        assert torch.equal(model(first), base(first))


PLACES: dict[str, dict[str, Any]] = {
    "everywhere": {},
    "windows": {"layout": Interleaved(n_local=3, local=SlidingWindow(window=21))},
    "windows of no more than it chooses": {
        "layout": AllLocal(local=SlidingWindow(window=13)),
        "position": NoPosition(),
    },
    "yarn, biases": {"position": YarnRope(factor=4.0, original_length=64), "bias": True},
}


@pytest.mark.parametrize("where", PLACES)
@torch.no_grad()
def test_the_cache_law_holds_wherever_it_chooses(where: str) -> None:
    """Also for rows padded on the left, whose padding no query chooses; decoding reads the chosen tokens alone."""
    config = with_latents(SPARSE, **PLACES[where])
    model = stage_model(config, dtype=torch.float64)
    assert morph.count(config).total == sum(p.numel() for p in model.parameters())
    ids, lengths = random_ids(model, 3, LENGTH), torch.tensor([LENGTH, 47, 9])
    full, padded = model(ids), model(ids, lengths=lengths)
    for cuts in ([40, 41, 42, 63], list(range(30, LENGTH)), [5, 6, 29, 58]):
        assert relative_error(read_in_chunks(model, ids, cuts), full) < 1e-12
        chunked = read_in_chunks(model, ids, cuts, lengths)
        for row, n in enumerate(lengths.tolist()):
            alone = model(ids[row : row + 1, LENGTH - n :])[0]
            assert relative_error(padded[row, LENGTH - n :], alone) < 1e-12
            assert relative_error(chunked[row, LENGTH - n :], alone) < 1e-12
    cache = model.new_cache(3)
    model(ids, cache=cache)
    assert cache.nbytes == 3 * morph.count(config, bytes_per_value=8).cache_bytes(LENGTH)


@torch.no_grad()
def test_index_keys_are_selected_restored_and_evicted_with_the_rest() -> None:
    model = stage_model(with_latents(SPARSE), dtype=torch.float64)
    ids = random_ids(model, 3, 40)
    cache = model.new_cache(3)
    model(ids[:, :30], lengths=torch.tensor([30, 12, 21]), cache=cache)
    moment = cache.snapshot()
    first = model(ids[:, 30:35], cache=cache)
    cache.restore(moment)
    order = torch.tensor([2, 0, 0])
    cache.select(order)
    assert relative_error(model(ids[order, 30:35], cache=cache), first[order]) < 1e-12
    cache.evict(torch.tensor([3, 4]))
    assert {t.shape[1] for layer in cache.layers for t in layer.tensors().values() if t is not None} == {33}


def test_no_token_out_of_sight_is_attended_to_and_no_more_than_chosen() -> None:
    model = stage_model(with_latents(SPARSE))
    with morph.trace(model) as seen, torch.no_grad():
        model(random_ids(model, 2, 50), lengths=torch.tensor([50, 31]))
    for layer in range(4):
        attended = seen[f"blocks.{layer}.attention.weights"] > 0
        counts = attended.sum(-1)
        places = torch.arange(50) + 1
        assert torch.equal(counts[0], places.clamp(max=13).expand(3, 50))
        assert torch.equal(counts[1, :, 19:], (places[19:] - 19).clamp(max=13).expand(3, 31))
        assert not attended[1, :, 19:, :19].any()


# ---- how it learns ----


def parts_of(model: Decoder) -> tuple[list[str], list[str]]:
    """Names of the indexers' parameters, and of all others."""
    names = [name for name, _ in model.named_parameters()]
    return [n for n in names if ".indexer." in n], [n for n in names if ".indexer." not in n]


@pytest.mark.parametrize("warm_up", [0, 3])
def test_its_lesson_is_the_divergence_from_attention(warm_up: int) -> None:
    """Against the formula on traced scores and weights: over all tokens in sight while warm, then over the chosen."""
    config = with_latents(replace(SPARSE, indexer=replace(INDEX, warm_up=warm_up)))
    model = stage_model(config, dtype=torch.float64).train()
    ids = random_ids(model, 2, 40)
    with morph.trace(model) as seen:
        loss = model.loss(ids, ids)
    divergences = []
    for layer in range(4):
        scores, weights = seen[f"blocks.{layer}.attention.indexer.scores"], seen[f"blocks.{layer}.attention.weights"]
        target = weights.sum(1) / weights.sum((1, 3))[..., None]
        attended = target > 0
        assert torch.equal(attended.sum(-1)[0], (torch.arange(40) + 1).clamp(max=40 if warm_up else 13))
        for row in range(2):
            for t in range(40):
                p = target[row, t][attended[row, t]]
                ours = scores[row, t][attended[row, t]].softmax(0)
                divergences.append((p * (p / ours).log()).sum())
    assert loss.indexer.item() == pytest.approx(torch.stack(divergences).mean().item(), rel=1e-10)
    assert loss.indexer.item() > 0.01
    assert loss.total.item() == pytest.approx((loss.cross_entropy + loss.indexer).item(), rel=1e-12)
    assert model.eval().loss(ids, ids).indexer.item() == 0


def test_each_loss_moves_its_own_weights() -> None:
    model = stage_model(with_latents(SPARSE)).train()
    own, others = parts_of(model)
    ids = random_ids(model, 2, 40)
    for part, moved, still in (("indexer", own, others), ("cross_entropy", others, own)):
        model.zero_grad()
        getattr(model.loss(ids, ids), part).backward()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        assert all(gradients[name] is None for name in still), part
        assert all(float(gradients[name].abs().max()) > 1e-7 for name in moved), part  # type: ignore[union-attr]


def test_attention_is_dense_while_it_warms_up_and_never_in_use() -> None:
    config = with_latents(replace(SPARSE, indexer=replace(INDEX, warm_up=2)))
    model = stage_model(config, dtype=torch.float64)
    dense = stage_model(with_latents(ODD), dtype=torch.float64)
    dense.load_state_dict(model.state_dict(), strict=False)
    ids = random_ids(model, 2, 40)
    sparse = model(ids)
    assert relative_error(sparse, dense(ids)) > 1e-2
    for steps in range(4):
        assert [int(organ.steps) for organ in indexers(model)] == [steps] * 4
        assert torch.equal(model.eval()(ids), sparse)
        trained, expected = model.train()(ids), dense(ids) if steps < 2 else sparse
        assert relative_error(trained, expected) < 1e-12, steps
        assert model.end_step() is None
    state = model.state_dict()
    assert [int(value) for name, value in state.items() if name.endswith("steps")] == [4] * 4, (
        "runs resume where they were"
    )
    assert not [n for n in stage_model(with_latents(SPARSE)).state_dict() if n.endswith("steps")]
    half = model.to(torch.bfloat16)
    assert indexers(half)[0].steps.dtype == torch.long


def test_routers_are_watched_as_before() -> None:
    """Experts and indexer in one model: loads come back, and both losses are there."""
    config = replace(morph.stage("moe", "nano"), attention=replace(SPARSE, indexer=replace(INDEX, warm_up=1)))
    model = morph.build(config).train()
    loss = model.loss(random_ids(model, 2, 40), random_ids(model, 2, 40, seed=1))
    loads = model.end_step()
    assert loads is not None and loads.sum(-1).tolist() == [160] * 4
    total = loss.cross_entropy + loss.balance + loss.indexer
    assert loss.total.item() == pytest.approx(total.item(), rel=1e-6) and loss.balance.item() > 0 < loss.indexer.item()


def overlap(model: Decoder, ids: Tensor) -> float:
    """Share of the tokens with most attention, dense, that the indexers would choose; queries that must choose."""
    found = []
    model.train()  # dense, as the warm-up is not over
    with morph.trace(model) as seen, torch.no_grad():
        model(ids)
    for layer in range(model.config.n_layers):
        attended = seen[f"blocks.{layer}.attention.weights"].mean(1)
        chosen = seen[f"blocks.{layer}.attention.indexer.chosen"]
        k = chosen.shape[-1]
        most = attended.topk(k, dim=-1).indices
        for row in range(len(ids)):
            for t in range(2 * k, ids.shape[1]):
                found.append(len(set(most[row, t].tolist()) & set(chosen[row, t].tolist())) / k)
    return sum(found) / len(found)


def test_the_divergence_teaches_the_indexer() -> None:
    """Trained alone beside a model that stands still, it comes to choose what attention looks at."""
    config: ModelConfig = with_latents(replace(SPARSE, indexer=replace(INDEX, top_k=8, warm_up=1000)), n_layers=2)
    model = stage_model(config).train()
    own, _ = parts_of(model)
    optimizer = torch.optim.AdamW([p for n, p in model.named_parameters() if n in own], lr=1e-2)
    held_out = random_ids(model, 2, 48, seed=99)
    before = overlap(model, held_out)
    losses = []
    for step in range(60):
        ids = random_ids(model, 8, 48, seed=step)
        optimizer.zero_grad()
        lesson = model.loss(ids, ids).indexer
        lesson.backward()
        optimizer.step()
        model.end_step()
        losses.append(lesson.item())
    after = overlap(model, held_out)
    assert losses[-1] < 0.6 * losses[0]
    assert before < 0.35 and after > before + 0.2, (before, after)


def test_an_indexer_needs_the_queries_latent() -> None:
    with pytest.raises(MorphError, match=r"q_rank"):
        replace(SPARSE, q_rank=None)


def test_a_stopped_run_goes_on_where_its_warm_up_was(tmp_path: Path) -> None:
    """Two steps of warm-up and one after it, resumed in between, are the run that was not stopped."""
    corpus = load_corpus(folder(tmp_path / "text"))
    fork = morph.fork("sparse-attention", "nano")
    index = replace(fork.attention.indexer, warm_up=2)  # type: ignore[union-attr, arg-type]
    config = replace(fork, attention=replace(fork.attention, indexer=index))  # type: ignore[arg-type]
    recipe = Recipe(steps=4, batch_size=2, evaluate_every=4, evaluation_windows=4, checkpoint_every=1)
    whole, stopped = (Run.create(tmp_path / name, config, recipe, corpus, "cpu") for name in ("whole", "stopped"))
    train(whole, corpus=corpus)
    stop = threading.Event()
    train(stopped, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 1 else None)
    train(Run.load(stopped.path), corpus=corpus)
    assert_same_weights(whole, stopped)
    assert [int(organ.steps) for organ in indexers(load_model(stopped))] == [4] * 4
    told = [[line["indexer"] for line in run.metrics()] for run in (whole, stopped)]
    assert told[0] == told[1]
    offsets = training_offsets(corpus.train.size, config.context_length, 2, recipe.seed, 0, 0)
    ids, targets = map(torch.from_numpy, windows(corpus.train, offsets, config.context_length))
    first = morph.build(config, recipe.seed).train().loss(ids, targets).indexer
    assert told[0][0] == pytest.approx(first.item(), rel=1e-5)
