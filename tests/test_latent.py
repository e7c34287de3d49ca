"""Latent attention: against Hugging Face's DeepSeek-V3, its two forms against each other, its cache, and its base."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.config import (
    MLA,
    AllGlobal,
    AllLocal,
    Interleaved,
    LearnedPosition,
    ModelConfig,
    NoPosition,
    PerLayer,
    Rope,
    Sinusoid,
    SlidingWindow,
    SomeLayers,
    YarnRope,
    yarn_softmax_scale,
)
from morph.forks import FORKS, config_of
from morph.nn.cache import LatentCache
from morph.nn.context import Context
from morph.nn.latent import LatentAttention, absorbing_saves
from morph.nn.mask import Mask, visible
from morph.nn.organ import plain_forms
from tests.models import random_ids, relative_error, stage_model
from tests.test_cache import LENGTH, read_in_chunks
from tests.tools import need

ODD = MLA(n_heads=3, q_rank=20, kv_rank=14, nope_dim=10, rope_dim=6, v_dim=7)
"""Widths that all differ; a query is 16 wide, a value 7."""
BOUND = 1e-5


def with_latents(spec: MLA, **changes: Any) -> ModelConfig:
    """The gqa stage with this attention instead."""
    return replace(morph.stage("gqa", "nano"), **{"attention": spec} | changes)


def layer_of(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32, layer: int = 0) -> LatentAttention:
    """One attention layer, norms and biases moved off their start."""
    found = stage_model(config, seed, dtype=dtype).blocks[layer].attention
    assert isinstance(found, LatentAttention)
    return found


# ---- against DeepSeek-V3 ----


YARN = YarnRope(factor=8.0, original_length=64, attention_scale=1.0, pairing="interleaved")

CASES = {
    "interleaved": with_latents(ODD, position=Rope(pairing="interleaved")),
    "half-split": with_latents(ODD, position=Rope(base=500.0)),
    "one query matrix": with_latents(replace(ODD, q_rank=None), position=Rope(pairing="interleaved")),
    "biases": with_latents(ODD, bias=True),
    "wide values": with_latents(replace(ODD, v_dim=21, n_heads=5), position=Rope(pairing="interleaved")),
    "yarn": with_latents(replace(ODD, scale=yarn_softmax_scale(16, 8.0, 0.7)), position=YARN),
}


def their_config(config: ModelConfig, **changes: Any) -> dict[str, Any]:
    """The fields of DeepSeek's configs that their attention reads."""
    spec, position = config.attention, config.position
    assert isinstance(spec, MLA)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": position.base}  # type: ignore[union-attr]
    if isinstance(position, YarnRope):
        rope |= {"rope_type": "yarn", "factor": position.factor, "mscale": 0.7, "mscale_all_dim": 0.7}
        rope |= {"original_max_position_embeddings": position.original_length, "beta_fast": 32, "beta_slow": 1}
    return {
        "hidden_size": config.d_model, "num_attention_heads": spec.n_heads, "num_key_value_heads": spec.n_heads,
        "q_lora_rank": spec.q_rank, "kv_lora_rank": spec.kv_rank, "qk_nope_head_dim": spec.nope_dim,
        "qk_rope_head_dim": spec.rope_dim, "v_head_dim": spec.v_dim, "attention_bias": config.bias,
        "rope_parameters": rope, "max_position_embeddings": 512, "attn_implementation": "eager",
        "rope_interleave": position.pairing == "interleaved", "rms_norm_eps": 1e-3,  # type: ignore[union-attr]
    } | changes  # fmt: skip


NAMES = {
    "q_down": "q_a_proj", "q_latent_norm": "q_a_layernorm", "q_up": "q_b_proj", "q_proj": "q_proj",
    "kv_down": "kv_a_proj_with_mqa", "kv_latent_norm": "kv_a_layernorm", "kv_up": "kv_b_proj", "o_proj": "o_proj",
}  # fmt: skip


def renamed(layer: LatentAttention) -> dict[str, Tensor]:
    """Our weights under DeepSeek's names."""
    parts = {name: value for name, value in layer.state_dict().items() if not name.startswith("indexer.")}
    return {f"{NAMES[name.partition('.')[0]]}.{name.partition('.')[2]}": value for name, value in parts.items()}


def added(length: int, window: int | None = None) -> Tensor:
    """0 where a query may see a key, else -inf, (1, 1, S, S)."""
    columns = torch.arange(length)
    return torch.zeros(length, length).masked_fill(~visible(columns, columns, window, None), float("-inf"))[None, None]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_layer_is_deepseek_v3s(case: str, seed: int) -> None:
    """Output, weights and what is cached; in one pass, in chunks and token by token."""
    need("transformers")
    import transformers
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

    config = CASES[case]
    model = stage_model(config, seed)
    ours, spec = model.blocks[0].attention, config.attention
    hf = transformers.DeepseekV3Config(**their_config(config))
    theirs = DeepseekV3Attention(hf, layer_idx=0).eval()
    theirs.load_state_dict(renamed(ours), strict=True)

    length = 41
    x = torch.randn(2, length, 48, generator=torch.Generator().manual_seed(seed))
    rotation = DeepseekV3RotaryEmbedding(hf)(x, torch.arange(length)[None])
    their_cache = transformers.DynamicCache()
    expected, weights = theirs(x, rotation, added(length), cache=their_cache)
    with morph.trace(model) as seen:
        out = ours(x, Context(0, length, None, x.device, torch.float32))
    assert relative_error(out, expected) < BOUND
    assert relative_error(seen["blocks.0.attention.weights"], weights) < BOUND

    cache = ours.new_cache()
    cuts = (0, 23, 24, 25, 36, length)
    parts = [ours(x[:, a:b], Context(a, b - a, None, x.device, torch.float32), cache) for a, b in pairwise(cuts)]
    assert relative_error(torch.cat(parts, dim=1), expected) < BOUND
    held = their_cache.layers[0]
    assert relative_error(cache.latents, held.keys[:, 0]) < BOUND
    turned = cache.rotary_keys
    if config.position.pairing == "interleaved":  # type: ignore[union-attr]
        turned = turned.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)  # theirs: all firsts, then all seconds
    assert relative_error(turned, held.values[:, 0]) < BOUND
    assert cache.nbytes == 4 * 2 * length * (spec.kv_rank + spec.rope_dim)


@torch.no_grad()
def test_a_quiet_stream_shows_the_eps_of_each_latents_norm() -> None:
    """At a thousandth of its usual size latents are so small that ε counts, and it is DeepSeek's in both norms."""
    need("transformers")
    import transformers
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

    ours = layer_of(config := CASES["interleaved"])
    hf = transformers.DeepseekV3Config(**their_config(config))
    theirs = DeepseekV3Attention(hf, layer_idx=0).eval()
    theirs.load_state_dict(renamed(ours), strict=True)
    x, context = 1e-3 * torch.randn(2, 20, 48), Context(0, 20, None, torch.device("cpu"), torch.float32)
    rotation = DeepseekV3RotaryEmbedding(hf)(x, torch.arange(20)[None])
    expected, _ = theirs(x, rotation, added(20))
    assert relative_error(ours(x, context), expected) < BOUND
    for norm in (ours.q_latent_norm, ours.kv_latent_norm):
        norm.eps = 1e-5
        assert relative_error(ours(x, context), expected) > 1e-2
        norm.eps = 1e-6


def test_every_width_and_switch_moves_the_output() -> None:
    """What the cases above switch does something: without it the output differs."""
    base = layer_of(CASES["yarn"])
    x = torch.randn(1, 41, 48)

    def out(config: ModelConfig) -> Tensor:
        layer = layer_of(config)
        layer.load_state_dict(base.state_dict())
        with torch.no_grad():
            return layer(x, Context(0, 41, None, x.device, torch.float32))

    yarn = CASES["yarn"]
    for other in (
        replace(yarn, attention=replace(yarn.attention, scale=None)),
        replace(yarn, attention=replace(yarn.attention, eps=1e-1)),
        replace(yarn, position=replace(YARN, pairing="half-split")),
        replace(yarn, position=Rope(pairing="interleaved")),
        replace(yarn, position=NoPosition()),
    ):
        assert relative_error(out(other), out(yarn)) > 1e-2
    assert relative_error(out(yarn), out(yarn)) == 0


def test_the_softmax_scale_of_deepseek_v3() -> None:
    assert yarn_softmax_scale(192, 40.0) == pytest.approx(192**-0.5 * 1.3688879454113936**2, rel=1e-12)
    assert yarn_softmax_scale(192, 1.0) == 192**-0.5 and yarn_softmax_scale(16, 0.5) == 0.25


# ---- the two forms ----


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("spec", [ODD, replace(ODD, v_dim=33), replace(ODD, scale=0.4)], ids=["odd", "wide", "scaled"])
@torch.no_grad()
def test_absorbed_is_unfolded(spec: MLA, dtype: torch.dtype, bound: float) -> None:
    """For one query and many, causal, windowed, padded, and where every key is in sight."""
    layer = layer_of(with_latents(spec), dtype=dtype)
    for queries, keys, window, pads in (
        (1, 30, None, None),
        (30, 30, None, None),
        (7, 30, 9, None),
        (7, 30, 9, [0, 4]),
    ):
        q = torch.randn(2, 3, queries, spec.width, dtype=dtype)
        latents, shared = torch.randn(2, keys, 14, dtype=dtype), torch.randn(2, keys, 6, dtype=dtype)
        columns = torch.arange(keys)
        table = visible(columns[keys - queries :], columns, window, None if pads is None else torch.tensor(pads))
        masks = [Mask(table, is_causal=False)]
        masks += [Mask(None, is_causal=False)] if queries == 1 else []
        masks += [Mask(None, is_causal=True), Mask(None, is_causal=True, window=5)] if queries == keys else []
        for mask in masks:
            with plain_forms():
                plain = layer.attend(q, latents, shared, mask, is_cached=True)
            assert relative_error(layer.absorbed(q, latents, shared, mask), plain) < bound
            assert relative_error(layer.attend(q, latents, shared, mask, is_cached=False), plain) < bound


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@torch.no_grad()
def test_decoding_takes_the_absorbed_form_and_agrees(
    dtype: torch.dtype, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    absorbed = LatentAttention.absorbed

    def counted(self: LatentAttention, q: Tensor, latents: Tensor, *rest: Any) -> Tensor:
        taken.append((q.shape[2], latents.shape[1]))
        return absorbed(self, q, latents, *rest)

    monkeypatch.setattr(LatentAttention, "absorbed", counted)
    model = stage_model("mla", dtype=dtype)
    ids = random_ids(model, 2, LENGTH)
    full = model(ids)
    with plain_forms():
        assert relative_error(read_in_chunks(model, ids, [40, 41]), full) < bound
    assert taken == []
    assert relative_error(read_in_chunks(model, ids, [40, 41]), full) < bound
    assert (1, 41) in taken and (40, 40) not in taken
    with morph.trace(model) as seen:  # a trace still has every head's keys and values
        read_in_chunks(model, ids[:, :41], [40])
    assert seen["blocks.2.attention.values"].shape == (2, 4, 41, 12) and taken[-1] == (1, 41)


def test_the_cheaper_form_is_taken() -> None:
    """Against products counted one by one, at the widths of DeepSeek-V3 and at ours."""
    deepseek = MLA(n_heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
    for spec in (deepseek, ODD, morph.fork("mla", "tiny").attention):
        R, nope, rope, v = spec.kv_rank, spec.nope_dim, spec.rope_dim, spec.v_dim  # type: ignore[union-attr]
        for queries, keys in ((1, 1), (1, 100), (5, 100), (50, 100), (100, 100), (170, 4000), (172, 4000)):
            unfolded = keys * R * nope + keys * R * v + queries * keys * (nope + rope) + queries * keys * v
            absorbed = queries * nope * R + queries * R * v + queries * keys * (R + rope) + queries * keys * R
            assert absorbing_saves(spec, queries, keys) == (absorbed < unfolded)  # type: ignore[arg-type]
    assert absorbing_saves(deepseek, 1, 4096) and not absorbing_saves(deepseek, 4096, 4096)


# ---- cache, masks and places ----


WINDOW = SlidingWindow(window=16)
PLACES = {
    "windows": {"layout": Interleaved(n_local=3, local=WINDOW)},
    "windows, no rotation": {"layout": AllLocal(local=WINDOW), "position": NoPosition()},
    "sinusoid": {"position": Sinusoid(), "bias": True},
    "learned": {"position": LearnedPosition(length=LENGTH)},
    "per layer": {
        "layout": Interleaved(n_local=3, local=WINDOW),
        "position": PerLayer(local=Rope(pairing="interleaved"), global_=NoPosition()),
    },
    "some layers": {
        "layout": AllGlobal(), "position": SomeLayers(layers=(1, 3), inside=NoPosition(), outside=Rope(base=300.0)),
    },
}  # fmt: skip


@pytest.mark.parametrize("where", PLACES)
@torch.no_grad()
def test_the_cache_law_holds_wherever_latents_are(where: str) -> None:
    """Prompts longer than the window, rows padded on the left, any chunks; plain and fast forms."""
    for spec in (ODD, replace(ODD, q_rank=None, v_dim=19)):
        config = with_latents(spec, **PLACES[where])
        model = stage_model(config, dtype=torch.float64)
        assert morph.count(config).total == sum(p.numel() for p in model.parameters())
        ids, lengths = random_ids(model, 3, LENGTH), torch.tensor([LENGTH, 47, 9])
        full, padded = model(ids), model(ids, lengths=lengths)
        with plain_forms():
            assert relative_error(model(ids), full) < 1e-12
        for cuts in ([40, 41, 42, 63], list(range(30, LENGTH)), [5, 6, 29, 58]):
            cache = model.new_cache(3)
            assert relative_error(read_in_chunks(model, ids, cuts), full) < 1e-12
            chunked = read_in_chunks(model, ids, cuts, lengths)
            for row, n in enumerate(lengths.tolist()):
                alone = model(ids[row : row + 1, LENGTH - n :])[0]
                assert relative_error(padded[row, LENGTH - n :], alone) < 1e-12
                assert relative_error(chunked[row, LENGTH - n :], alone) < 1e-12
        model(ids, cache=cache)
        assert cache.nbytes == 3 * morph.count(config, bytes_per_value=8).cache_bytes(LENGTH)


def test_rotations_turn_where_they_should() -> None:
    """Layers that rotate differ from those that do not in the recorded keys."""
    config = with_latents(ODD, **PLACES["some layers"])
    model = stage_model(config)
    with morph.trace(model) as seen, torch.no_grad():
        model(random_ids(model, 1, 20))
    turned = [
        not torch.equal(seen[f"blocks.{i}.attention.{kind}rotary_keys"], seen[f"blocks.{i}.attention.rotary_keys"])
        for i in range(4)
        for kind in ("unrotated_",)
    ]
    assert turned == [True, False, True, False]
    for i in range(4):
        keys, shared = seen[f"blocks.{i}.attention.keys"], seen[f"blocks.{i}.attention.rotary_keys"]
        assert all(torch.equal(keys[:, head, :, ODD.nope_dim :], shared) for head in range(3))


@torch.no_grad()
def test_latents_can_be_selected_restored_and_evicted() -> None:
    model = stage_model(with_latents(ODD, layout=Interleaved(n_local=3, local=WINDOW)), dtype=torch.float64)
    ids = random_ids(model, 3, 40)
    cache = model.new_cache(3)
    model(ids[:, :30], lengths=torch.tensor([30, 12, 21]), cache=cache)
    moment, weight = cache.snapshot(), cache.nbytes
    first = model(ids[:, 30:35], cache=cache)
    cache.restore(moment)
    assert cache.nbytes == weight and torch.equal(model(ids[:, 30:35], cache=cache), first)
    cache.restore(moment)
    order = torch.tensor([2, 0, 0])
    cache.select(order)
    assert relative_error(model(ids[order, 30:35], cache=cache), first[order]) < 1e-12

    cache = model.new_cache(3)
    model(ids[:, :30], cache=cache)
    untouched = [layer.latents for layer in cache.layers if isinstance(layer, LatentCache)]
    cache.evict(torch.tensor([0, 17, 20]))
    columns = [layer.columns.tolist() for layer in cache.layers if isinstance(layer, LatentCache)]  # type: ignore[union-attr]
    assert columns[0] == [14, 15, 16, 18, 19, *range(21, 30)] and columns[3] == [
        c for c in range(30) if c % 17 and c != 20
    ]
    left = [layer.latents for layer in cache.layers if isinstance(layer, LatentCache)]
    assert torch.equal(left[3], untouched[3][:, columns[3]])  # type: ignore[index]
    assert relative_error(model(ids[:, 30:31], cache=cache), model(ids[:, :31])[:, -1:]) > 1e-4


# ---- against its base ----


@pytest.mark.parametrize("slug", ["mla", "hybrid-mla"])
@torch.no_grad()
def test_without_rotation_and_norms_it_is_its_base_at_low_rank(slug: str) -> None:
    """The latent can hold all of a base whose values are its keys, and queries of half the width."""
    config = replace(morph.fork(slug, "nano"), position=NoPosition())
    plain_heads = replace(config_of(FORKS[slug].base, "nano").attention, qk_norm=None)  # type: ignore[arg-type]
    model = stage_model(config, dtype=torch.float64)
    base = stage_model(replace(config, attention=plain_heads), dtype=torch.float64)
    model.load_state_dict(base.state_dict(), strict=False)  # and each attention below
    for ours, old in zip(model.blocks, base.blocks, strict=True):
        attention, plain = ours.attention, old.attention
        if not isinstance(attention, LatentAttention):
            continue
        attention.q_latent_norm = attention.kv_latent_norm = torch.nn.Identity()  # type: ignore[assignment]
        plain.q_proj.weight.copy_(torch.randn(48, 24, dtype=torch.float64) @ attention.q_down.weight / 24**0.5)
        plain.v_proj.weight.copy_(plain.k_proj.weight)
        attention.kv_down.weight.copy_(torch.cat((plain.k_proj.weight, torch.randn(6, 48))))
        per_head = plain.q_proj.weight.view(4, 12, 48) * (18 / 12) ** 0.5  # their widths scale the scores
        queries = torch.linalg.lstsq(attention.q_down.weight.T, per_head.flatten(0, 1).T).solution.T.view(4, 12, 24)
        silent = queries.new_zeros(4, 6, 24)
        attention.q_up.weight.copy_(torch.cat((queries, silent), dim=1).flatten(0, 1))
        copies = (
            torch.eye(24, dtype=torch.float64).view(2, 12, 24).repeat_interleave(2, dim=0)
        )  # head h reads pair h // 2
        attention.kv_up.weight.copy_(torch.cat((copies, copies), dim=1).flatten(0, 1))
    ids = random_ids(model, 2, 40)
    assert relative_error(model(ids), base(ids)) < 1e-11
    plain.v_proj.weight.add_(torch.randn(24, 48))
    assert relative_error(model(ids), base(ids)) > 1e-3, "of a higher rank it is not"


@pytest.mark.parametrize(("size", "share"), [("nano", 5 / 8), ("tiny", 5 / 8), ("small", 9 / 16)])
def test_the_cache_is_smaller_than_the_bases(size: str, share: float) -> None:
    for slug, base in (("mla", "gqa"), ("hybrid-mla", "hybrid")):
        ours, theirs = morph.count(morph.fork(slug, size)), morph.count(morph.stage(base, size))
        assert ours.kv_bytes_per_token == share * theirs.kv_bytes_per_token
        assert ours.state_bytes == theirs.state_bytes


@torch.no_grad()
def test_bf16_decoding_stays_near_fp32() -> None:
    """In both forms, with the whole model in bf16 and under autocast."""
    exact, rough = stage_model("mla"), stage_model("mla", dtype=torch.bfloat16)
    ids = random_ids(exact, 2, 60)
    full = exact(ids)
    outs = [read_in_chunks(rough, ids, list(range(20, 60)))]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outs.append(read_in_chunks(exact, ids, list(range(20, 60))))
        cache = exact.new_cache(2)
        exact(ids, cache=cache)
    assert {tensor.dtype for layer in cache.layers for tensor in layer.tensors().values()} == {torch.bfloat16}  # type: ignore[union-attr]
    for out in outs:
        assert float(torch.nn.functional.cosine_similarity(out.float(), full, dim=-1).mean()) > 0.999
