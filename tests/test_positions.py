"""Positions: every record against Hugging Face, and numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph import config as c
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn import context as context_module
from morph.nn.mask import causal_table
from morph.nn.position import (
    alibi_bias,
    alibi_slopes,
    attention_scale,
    frequencies,
    rotate,
    rotation_angles,
    rotation_table,
    wavelengths,
    yarn_ramp,
    yarn_scale,
)
from morph.steps import stage
from tests.models import random_ids, relative_error
from tests.test_cache import LENGTH
from tests.tools import need

DOUBLE = torch.float64
ROTATIONS: dict[str, c.Rotation] = {
    "rope": c.Rope(),
    "partial": c.PartialRope(fraction=0.5),
    "linear": c.LinearRope(factor=8.0, base=1e6),
    "ntk": c.NtkRope(factor=4.0),
    "yarn": c.YarnRope(factor=4.0, original_length=256),
    "yarn-exact-ends": c.YarnRope(factor=32.0, original_length=256, base=150_000.0, truncate=False),
    "yarn-unscaled": c.YarnRope(factor=40.0, original_length=256, attention_scale=1.0),
    "yarn-long": c.YarnRope(factor=2.0, original_length=131_072, base=100.0),  # its ramp ends beyond the last pair
    "llama3": c.Llama3Rope(factor=8.0, original_length=128, base=500_000.0),
}
IN_LAYERS: dict[str, c.InLayer | c.PerLayer] = {
    **ROTATIONS,
    "alibi": c.Alibi(),
    "none": c.NoPosition(),
    "none-far": c.PerLayer(local=c.Rope(), global_=c.NoPosition()),
    "yarn-far": c.PerLayer(local=c.Rope(), global_=ROTATIONS["yarn"]),
    "alibi-near": c.PerLayer(local=c.Alibi(), global_=c.Rope(base=1e6)),
}
EACH_ROTATION = pytest.mark.parametrize("spec", ROTATIONS.values(), ids=ROTATIONS)


def with_position(base: int, position: c.Position, **other: Any) -> c.ModelConfig:
    """A nano stage with another record of positions."""
    return replace(stage(base, "nano"), position=position, **other)


def built(config: c.ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32) -> Decoder:
    """A model whose gains and biases are moved off 1 and 0."""
    model = morph.build(config, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim < 2:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype).eval()


# ---- frequencies ----

THEIRS: dict[str, dict[str, Any]] = {
    "rope": {"rope_type": "linear", "factor": 1.0},
    "partial": {"rope_type": "linear", "factor": 1.0, "partial_rotary_factor": 0.5},
    "linear": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "ntk": {"rope_type": "dynamic", "factor": 3.0},  # at twice the length, the base grows by 3 x 2 - (3 - 1) = 4
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
    "yarn-exact-ends": {
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 256, "rope_theta": 150_000.0,
        "truncate": False,
    },
    "yarn-unscaled": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 256,
        "mscale": 1.0, "mscale_all_dim": 1.0,
    },
    "yarn-long": {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 131_072, "rope_theta": 100.0,
    },
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 128, "rope_theta": 500_000.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
}  # fmt: skip
"""Hugging Face's parameters for each of `ROTATIONS`."""


def beside_theirs(**fields: Any) -> tuple[c.YarnRope, dict[str, Any]]:
    """A YaRN record and the same in Hugging Face's words."""
    names = {"base": "rope_theta", "original_length": "original_max_position_embeddings"}
    return c.YarnRope(**fields), {"rope_type": "yarn"} | {names.get(key, key): fields[key] for key in fields}


EDGES = {
    "one number of turns": beside_theirs(factor=4.0, original_length=300, beta_fast=3.0, beta_slow=3.0, truncate=False),
    "one pair of ramp": beside_theirs(base=50_000.0, factor=32.0, original_length=4096, beta_fast=1.0, beta_slow=1.0),
    "far beyond the last pair": beside_theirs(base=10.0, factor=8.0, original_length=10**7),
    "far beyond, exact ends": beside_theirs(base=10.0, factor=8.0, original_length=10**7, truncate=False),
}
"""Ramps of YaRN that have no width, as Kimi K2 has it in whole pairs, and ramps that are cut off where features end."""


@pytest.mark.parametrize("name", [*ROTATIONS, *EDGES])
@pytest.mark.parametrize("head_dim", [12, 64, 128])
def test_frequencies_against_hugging_face(name: str, head_dim: int) -> None:
    need("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    spec, theirs = EDGES[name] if name in EDGES else (ROTATIONS[name], THEIRS[name])
    theirs = {"rope_theta": 10_000.0} | theirs
    config = LlamaConfig(head_dim=head_dim, rope_parameters=theirs, max_position_embeddings=1024)
    length = 2048 if name == "ntk" else None
    expected, scale = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, "cpu", seq_len=length)
    ours = frequencies(spec, head_dim)
    assert ours.shape == expected.shape
    assert float(((ours - expected) / expected).abs().max()) < 1e-6, "their powers are taken in fp32"
    assert attention_scale(spec) == pytest.approx(scale, rel=1e-12)
    angles = torch.outer(torch.arange(50.0), expected)
    cos, sin = rotation_table(50, spec, head_dim)
    assert float((cos - angles.cos() * scale).abs().max()) < 2e-5  # fp32 angles near 50
    assert float((sin - angles.sin() * scale).abs().max()) < 2e-5


def test_frequencies_worked_out_by_hand() -> None:
    assert frequencies(c.Rope(), 4).tolist() == pytest.approx([1.0, 0.01], rel=1e-14)
    assert frequencies(c.PartialRope(fraction=0.5), 8).tolist() == pytest.approx([1.0, 0.01], rel=1e-14), "4 rotate"
    assert frequencies(c.LinearRope(factor=4.0), 4).tolist() == pytest.approx([0.25, 0.0025], rel=1e-14)
    # NTK: the base becomes 10^4 x 4^(4/2) = 160,000, whose root is 400: the slowest pair turns 4 times slower
    assert frequencies(c.NtkRope(factor=4.0), 4).tolist() == pytest.approx([1.0, 1 / 400], rel=1e-14)
    # Llama 3: 0.1^i, i = 0 .. 3, makes 64 / 2π x 0.1^i = 10.2, 1.02, 0.1, 0.01 turns in 64 tokens
    llama = frequencies(c.Llama3Rope(factor=8.0, original_length=64), 8)
    blend = (64 * 0.1 / (2 * math.pi) - 1) / (4 - 1)
    assert llama.tolist() == pytest.approx([1.0, 0.1 * (blend + (1 - blend) / 8), 0.01 / 8, 0.001 / 8], rel=1e-12)
    # YaRN, gpt-oss: pair 64 ln(4096 / 2πr) / (2 ln 150000) for r = 32 and 1 turns
    exact = c.YarnRope(base=150_000.0, factor=32.0, original_length=4096, truncate=False)
    assert 64 * math.log(4096 / (2 * math.pi * 32)) / (2 * math.log(150_000)) == pytest.approx(8.0928, abs=1e-4)
    ramp = yarn_ramp(exact, 64)
    assert ramp[:9].tolist() == [0.0] * 9 and ramp[18:].tolist() == [1.0] * 14
    assert float(ramp[9]) == pytest.approx((9 - 8.0928) / (17.3980 - 8.0928), abs=1e-4)
    whole = yarn_ramp(replace(exact, truncate=True), 64)
    assert whole.tolist() == pytest.approx([min(max((i - 8) / 10, 0.0), 1.0) for i in range(32)], abs=1e-12)
    assert attention_scale(exact) == pytest.approx(1.34657, abs=1e-5) == yarn_scale(32.0)
    assert attention_scale(c.YarnRope(factor=8.0, original_length=8192)) == pytest.approx(1.20794, abs=1e-5), "Olmo 3"


def test_the_ramps_of_the_forks_are_live() -> None:
    """At every size some pairs are kept, some squeezed, and at least one is between."""
    for slug in ("yarn", "llama3-rope"):
        for size in morph.steps.SIZES:
            config = morph.fork(slug, size)
            ratio = frequencies(config.position, config.attention.width) / frequencies(  # type: ignore[arg-type]
                c.Rope(), config.attention.width
            )
            assert float(ratio[0]) == 1.0 and float(ratio[-1]) == pytest.approx(1 / 4)
            assert ((ratio > 0.26) & (ratio < 0.99)).any(), (slug, size)


def test_what_figures_ask() -> None:
    waves = wavelengths(c.Rope(), 128)
    assert float(waves[0]) == pytest.approx(2 * math.pi) and float(waves[-1]) == pytest.approx(54_410, abs=1)
    angles = rotation_angles(c.Rope(), 4, torch.tensor([0.0, 2.5, 100.0]))
    assert torch.allclose(angles, torch.tensor([[0.0, 0.0], [2.5, 0.025], [100.0, 1.0]], dtype=DOUBLE))


# ---- rotations ----


@EACH_ROTATION
@pytest.mark.parametrize("head_dim", [12, 16])
def test_turned_products_depend_on_the_distance_alone(spec: c.Rotary, head_dim: int) -> None:
    cos, sin = rotation_table(1200, spec, head_dim)
    q, k = torch.randn(2, head_dim, dtype=DOUBLE)

    def at(x: Tensor, m: int) -> Tensor:
        return rotate(x[None, None, None], cos[m : m + 1], sin[m : m + 1])[0, 0, 0]

    products = [float(at(q, 30 + shift) @ at(k, 7 + shift)) for shift in (0, 1, 150, 1111)]
    assert products[1:] == pytest.approx(products[:1] * 3, rel=1e-11)
    assert float(at(q, 31) @ at(k, 7)) != pytest.approx(products[0], rel=1e-4), "and on the distance it does depend"
    width, scale = spec.rotated(head_dim), attention_scale(spec)
    turned = at(q, 99)
    assert float(turned[:width].norm()) == pytest.approx(scale * float(q[:width].norm()), rel=1e-12)
    assert torch.equal(turned[width:], q[width:]), "what does not rotate passes"
    pairs = torch.complex(q[: width // 2], q[width // 2 : width])
    by = scale * torch.exp(1j * 99 * frequencies(spec, head_dim))
    assert relative_error(turned[:width], torch.cat(((pairs * by).real, (pairs * by).imag))) < 1e-12


@pytest.mark.parametrize(
    "same",
    [
        c.PartialRope(fraction=1.0),
        c.LinearRope(factor=1.0),
        c.NtkRope(factor=1.0),
        c.YarnRope(factor=1.0, original_length=64),
        c.Llama3Rope(factor=1.0, original_length=64),
        c.PerLayer(local=c.Rope(), global_=c.Rope()),
    ],
    ids=lambda spec: spec.kind,
)
@torch.no_grad()
def test_with_nothing_to_stretch_it_is_rope(same: c.Position) -> None:
    model, rope = (built(with_position(9, position), dtype=DOUBLE) for position in (same, c.Rope()))
    ids = random_ids(rope, 2, LENGTH)
    assert relative_error(model(ids), rope(ids)) < 1e-13


@torch.no_grad()
def test_layers_share_tables_and_kinds_of_layers_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[c.Rotary] = []
    real = context_module.rotation_table

    def counted(length: int, spec: c.Rotary, width: int) -> Tensor:
        seen.append(spec)
        return real(length, spec, width)

    monkeypatch.setattr(context_module, "rotation_table", counted)
    near, far = c.Rope(base=12_345.0), c.Rope(base=1e6)
    model = built(with_position(9, c.PerLayer(local=near, global_=far)))
    for _ in range(2):
        model(random_ids(model, 2, 40))
    assert seen == [near, far], "four layers, two passes, two tables"
    kinds = [model.config.position_in(layer) for layer in range(4)]
    assert kinds == [near] * 3 + [far]
    with morph.trace(model) as trace:
        model(random_ids(model, 1, 8))
    for layer, spec in enumerate(kinds):
        attention = f"blocks.{layer}.attention"
        cos, sin = real(8, spec, 12).float()  # type: ignore[arg-type]
        for name in ("queries", "keys"):
            expected = rotate(trace[f"{attention}.unrotated_{name}"], cos, sin)
            assert relative_error(trace[f"{attention}.{name}"], expected) < 1e-6


@torch.no_grad()
def test_positions_are_a_layers_own_affair() -> None:
    """A rotation in windowed layers only is felt there, and without position in the last layer nothing is turned."""
    model = built(with_position(9, IN_LAYERS["none-far"]), dtype=DOUBLE)
    with morph.trace(model) as trace:
        model(random_ids(model, 1, 20))
    for layer in range(4):
        same = torch.equal(trace[f"blocks.{layer}.attention.unrotated_keys"], trace[f"blocks.{layer}.attention.keys"])
        assert same is (layer == 3)


# ---- ALiBi ----


def test_slopes_worked_out_by_hand() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(4).tolist() == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    assert alibi_slopes(1).tolist() == [2.0**-8]
    # 6 heads: those of 4, then the first and third of 8
    assert alibi_slopes(6).tolist() == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    bias = alibi_bias(torch.tensor([5, 6]), torch.tensor([2, 5, 6]), 8)
    assert bias[0].tolist() == [[-1.5, 0.0, 0.5], [-2.0, -0.5, 0.0]]


@pytest.mark.parametrize("n_heads", [1, 4, 6, 8, 12, 20])
def test_slopes_against_hugging_face(n_heads: int) -> None:
    need("transformers")
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    ours = alibi_bias(torch.tensor([6]), torch.arange(7), n_heads)
    assert relative_error(build_mpt_alibi_tensor(n_heads, 7).double(), ours) < 1e-6
    bloom = build_alibi_tensor(torch.ones(1, 7), n_heads, torch.float32).double()  # counts from the left
    assert relative_error(bloom - bloom[:, :, -1:], ours) < 1e-6


@torch.no_grad()
def test_alibi_enters_the_scores_and_flat_slopes_are_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(with_position(9, c.Alibi()), dtype=DOUBLE)
    bare = built(with_position(9, c.NoPosition()), dtype=DOUBLE)
    ids = random_ids(model, 1, 12)
    with morph.trace(model) as seen:
        logits = model(ids)
    q, k = seen["blocks.0.attention.queries"], seen["blocks.0.attention.keys"].repeat_interleave(2, dim=1)
    scores = seen["blocks.0.attention.scores"][0, 1, 9]
    by_hand = [float(q[0, 1, 9] @ k[0, 1, j]) / math.sqrt(12) - (9 - j) / 16 for j in range(10)]  # slope 2^-4
    assert scores[:10].tolist() == pytest.approx(by_hand, rel=1e-12)
    assert scores[10:].tolist() == [float("-inf")] * 2
    cache = model.new_cache(1)
    model(ids[:, :9], cache=cache)
    with morph.trace(model) as late:
        model(ids[:, 9:], cache=cache)
    assert relative_error(late["blocks.0.attention.scores"][0, 1, 0, :10], scores[:10]) < 1e-12, "also when cached"
    assert relative_error(logits, bare(ids)) > 0.01

    def flat(length: int, window: int | None, n_heads: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        zeros = torch.zeros(n_heads, length, length, dtype=dtype)
        return zeros.masked_fill(~causal_table(length, window, device), float("-inf"))

    monkeypatch.setattr(context_module, "_causal_bias", flat)
    assert relative_error(model(ids), bare(ids)) < 1e-13


def test_layers_with_and_without_alibi_have_masks_of_their_own() -> None:
    columns = torch.arange(5)
    context = context_module.Context(0, 5, None, torch.device("cpu"), DOUBLE)
    plain, biased, other = (context.mask(None, columns, heads) for heads in (0, 4, 2))
    assert plain.bias is None and biased.bias is not None and other.bias is not None
    assert biased.bias.shape == (4, 5, 5) and other.bias.shape == (2, 5, 5)
    assert context.mask(None, columns.clone(), 4) is biased, "equal layers share one"


# ---- added to the embedding ----


@torch.no_grad()
def test_learned_rows_are_added_once_and_counted_from_each_rows_start() -> None:
    model = built(with_position(0, c.LearnedPosition(length=64)), dtype=DOUBLE)
    bare = built(with_position(0, c.NoPosition()), dtype=DOUBLE)
    assert model.positions is not None and model.positions.weight.shape == (64, 48)
    ids = random_ids(model, 2, 20)
    with morph.trace(model) as seen:
        logits = model(ids, lengths=torch.tensor([20, 12]))
    embedded = (model.embedding(ids) + model.positions.weight[:20]) * 48**0.5
    assert relative_error(seen["stream"][0], embedded[0]) < 1e-14
    shifted = (model.embedding(ids[1, 8:]) + model.positions.weight[:12]) * 48**0.5
    assert relative_error(seen["stream"][1, 8:], shifted) < 1e-14
    assert relative_error(logits, bare(ids, lengths=torch.tensor([20, 12]))) > 0.01
    model.positions.weight.zero_()
    assert torch.equal(model(ids), bare(ids))


@torch.no_grad()
def test_beyond_the_last_row_is_refused_before_any_work() -> None:
    model = built(with_position(0, c.LearnedPosition(length=64)))
    ids = random_ids(model, 2, 70)
    words = "position 64 is beyond the last row, 63, .* read at most 64 tokens"
    assert model(ids[:, :64]).shape == (2, 64, 256)
    with pytest.raises(MorphError, match=words):
        model(ids[:, :65])
    with pytest.raises(MorphError, match=words):
        model.loss(ids[:, :65], ids[:, :65])
    assert model(ids, lengths=torch.tensor([64, 3])).isfinite().all(), "padding takes no places"
    with pytest.raises(MorphError, match=words):
        model(ids, lengths=torch.tensor([3, 65]))

    cache = model.new_cache(2)
    model(ids[:, :60], lengths=torch.tensor([60, 50]), cache=cache)
    before = cache.nbytes
    with pytest.raises(MorphError, match=words):
        model(ids[:, 60:65], cache=cache)
    assert (cache.columns, cache.nbytes) == (60, before), "and the cache is as it was"
    model(ids[:, 60:64], cache=cache)
    with pytest.raises(MorphError, match=words):
        model(ids[:, 64:65], cache=cache)
    cache.select(torch.tensor([1]))
    model(ids[1:, 60:70], cache=cache)  # the shorter row has 10 places left
    with pytest.raises(MorphError, match=words):
        model(ids[1:, :1], cache=cache)

    calls: list[int] = []
    model.embedding.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(MorphError, match="position 64 is beyond"):
        morph.generate(model, ids[:, :60], max_new_tokens=6)
    assert calls == [], "nothing was computed"
    assert morph.generate(model, ids[:, :60], max_new_tokens=5).shape == (2, 65), "the last token is never read"
    assert morph.generate(model, ids[:1], 5, lengths=torch.tensor([60])).shape == (1, 75)


def test_which_configs_have_an_end() -> None:
    limits = {slug: morph.fork(slug, "nano").position_limit for slug in morph.FORKS}
    assert {slug for slug, limit in limits.items() if limit is not None} == {"learned-position"}
    assert limits["learned-position"] == 64 and stage(0).position_limit is None
    counted, bare = (morph.count(with_position(0, p)) for p in (c.LearnedPosition(length=64), c.Sinusoid()))
    assert counted.total == bare.total + 64 * 48 == counted.active.all
    assert counted.active.without_embeddings == bare.active.without_embeddings
    assert counted.active.without_input_embedding == bare.active.without_input_embedding
    assert counted.flops(40) == bare.flops(40)
