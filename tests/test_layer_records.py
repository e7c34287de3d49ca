"""What a config says of single layers, pairs of features and scales: `Listed`, `SomeLayers`, `pairing` and the like."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import (
    Alibi,
    Attention,
    GatedDeltaNet,
    Interleaved,
    LinearRope,
    Listed,
    Llama3Rope,
    ModelConfig,
    NoPosition,
    NtkRope,
    Pairing,
    PartialRope,
    PerLayer,
    RMSNorm,
    Rope,
    Rotation,
    SlidingWindow,
    SomeLayers,
    YarnRope,
    diff,
)
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn.organ import plain_forms
from morph.nn.position import reorder_pairs, rotate, rotation_angles, rotation_table
from tests.models import random_ids, relative_error, stage_model

DOUBLE = torch.float64
ROTATIONS: dict[str, Rotation] = {
    "rope": Rope(),
    "partial": PartialRope(fraction=0.5),
    "two-thirds": PartialRope(fraction=2 / 3),
    "linear": LinearRope(factor=4.0),
    "ntk": NtkRope(factor=4.0),
    "yarn": YarnRope(factor=4.0, original_length=64, base=100.0),
    "llama3": Llama3Rope(factor=4.0, original_length=64),
}
EACH_ROTATION = pytest.mark.parametrize("spec", ROTATIONS.values(), ids=ROTATIONS)


def keeps_the_laws(config: ModelConfig, length: int = 45) -> None:
    """Files, counts, FLOPs, the cache in chunks and with padding, both forms."""
    assert ModelConfig.from_toml(config.to_toml()) == config == ModelConfig.from_dict(config.to_dict())
    model = stage_model(config, dtype=DOUBLE)
    assert morph.count(config).total == sum(p.numel() for p in model.parameters())
    ids, lengths = random_ids(model, 2, length), torch.tensor([length, length - 23])
    with torch.no_grad():
        full, cache = model(ids), model.new_cache(2)
        for cuts in ((19, 1, length - 20), (1,) * 20 + (length - 20,), (length - 3, 1, 1, 1)):
            cache = model.new_cache(2)
            parts = [model(part, cache=cache) for part in ids.split(cuts, dim=1)]
            assert relative_error(torch.cat(parts, dim=1), full) < 1e-12
        assert cache.nbytes == 2 * morph.count(config, bytes_per_value=8).cache_bytes(length) or any(
            isinstance(config.mixer(i), GatedDeltaNet) for i in range(config.n_layers)
        )
        assert relative_error(model(ids, lengths=lengths)[1, 23:], model(ids[1:, 23:])[0]) < 1e-12
        with plain_forms():
            assert relative_error(model(ids), full) < 1e-12
        counter = FlopCounterMode(display=False)
        if not any(isinstance(config.mixer(i), GatedDeltaNet) for i in range(config.n_layers)):
            with counter, plain_forms():
                model(ids[:1])
            flops = morph.count(config).flops(length)
            assert counter.get_total_flops() == flops.linear + flops.head + flops.scores_dense


# ---- pairs ----


@EACH_ROTATION
def test_neighbours_turn_as_the_formula_says(spec: Rotation) -> None:
    """Pair i is (x_2i, x_2i+1), turned by its angle, as a multiplication of complex numbers."""
    width, S = spec.rotated(12), 9
    x = torch.randn(2, 3, S, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    cos, sin = rotation_table(S, spec, 12)
    turned = rotate(x, cos, sin, "interleaved")
    numbers = torch.view_as_complex(x[..., :width].unflatten(-1, (-1, 2)).contiguous())
    size = (cos**2 + sin**2).sqrt()
    expected = numbers * torch.polar(size, rotation_angles(spec, 12, torch.arange(S)))
    assert relative_error(turned[..., :width], torch.view_as_real(expected).flatten(-2)) < 1e-14
    assert torch.equal(turned[..., width:], x[..., width:])
    assert relative_error(rotate(turned, cos / size**2, -sin / size**2, "interleaved"), x) < 1e-14


@EACH_ROTATION
@pytest.mark.parametrize("to", ["interleaved", "half-split"])
def test_reordered_vectors_turn_alike_in_the_other_pairing(spec: Rotation, to: Pairing) -> None:
    """Features of a head reordered, turned the other way round, and compared feature by feature."""
    other: Pairing = "half-split" if to == "interleaved" else "interleaved"
    width = spec.rotated(12)
    x = torch.randn(1, 3, 9, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    cos, sin = rotation_table(9, spec, 12)

    def reorder(x: Tensor) -> Tensor:
        return reorder_pairs(x.movedim(-1, 0), 12, width, to).movedim(0, -1)

    assert torch.equal(rotate(reorder(x), cos, sin, to), reorder(rotate(x, cos, sin, other)))


@pytest.mark.parametrize(("head_dim", "rotated", "heads"), [(12, 12, 4), (12, 6, 3), (10, 2, 1), (2, 2, 5)])
def test_reordering_there_and_back_changes_nothing(head_dim: int, rotated: int, heads: int) -> None:
    weight = torch.randn(heads * head_dim, 7)
    there = reorder_pairs(weight, head_dim, rotated, "interleaved")
    assert torch.equal(reorder_pairs(there, head_dim, rotated, "half-split"), weight)
    assert torch.equal(there.view(heads, head_dim, 7)[:, rotated:], weight.view(heads, head_dim, 7)[:, rotated:])
    first = there.view(heads, head_dim, 7)[:, 0], there.view(heads, head_dim, 7)[:, 1]
    assert torch.equal(torch.stack(first, 1), weight.view(heads, head_dim, 7)[:, [0, rotated // 2]])
    assert torch.equal(reorder_pairs(weight[:, 0], head_dim, rotated, "interleaved"), there[:, 0]), "biases alike"


@EACH_ROTATION
@torch.no_grad()
def test_a_model_of_neighbouring_pairs_is_one_of_half_heads_reordered(spec: Rotation) -> None:
    """With biases and a gain for each feature of a query and key, which reorder alike."""
    attention = Attention(n_heads=4, n_kv_heads=2, qk_norm=RMSNorm())
    halves = replace(morph.stage("sliding-window", "nano"), position=spec, attention=attention, bias=True)
    pairs = replace(halves, position=replace(spec, pairing="interleaved"))
    assert [c.path for c in diff(halves, pairs)] == ["position.pairing"]
    base, model = stage_model(halves, dtype=DOUBLE), stage_model(pairs, dtype=DOUBLE)
    ids = random_ids(base, 2, 40)
    assert relative_error(model(ids), base(ids)) > 1e-2
    for name, weight in base.state_dict().items():
        if ".q_" in name or ".k_" in name:
            reordered = reorder_pairs(weight, 12, spec.rotated(12), "interleaved")
            assert not torch.equal(reordered, weight), name
            model.get_parameter(name).copy_(reordered)
    assert relative_error(model(ids), base(ids)) < 1e-12
    keeps_the_laws(pairs)


def test_files_name_a_pairing_where_it_is_not_the_usual_one() -> None:
    assert "pairing" not in morph.stage("rope").to_toml()
    config = replace(morph.stage("rope", "nano"), position=Rope(pairing="interleaved"))
    assert 'pairing = "interleaved"' in config.to_toml() and ModelConfig.from_toml(config.to_toml()) == config
    with pytest.raises(MorphError, match=r"rope\.pairing = 'interleave' .* did you mean 'interleaved'"):
        Rope(pairing="interleave")  # type: ignore[arg-type]


# ---- attention ----


@pytest.mark.parametrize("scale", [0.05, 12**-0.5, 1.0])
@pytest.mark.parametrize("stage", ["qk-norm", "sliding-window"])
@torch.no_grad()
def test_scores_are_multiplied_by_the_scale(scale: float, stage: str) -> None:
    config = morph.stage(stage, "nano")
    config = replace(config, attention=replace(config.attention, scale=scale))
    model, base = stage_model(config, dtype=DOUBLE), stage_model(stage, dtype=DOUBLE)
    ids = random_ids(model, 2, 70)
    with morph.trace(model) as seen:
        logits = model(ids)
    queries, keys = seen["blocks.0.attention.queries"], seen["blocks.0.attention.keys"].repeat_interleave(2, dim=1)
    with morph.trace(base) as plain:
        usual = base(ids)
    raw = plain["blocks.0.attention.queries"] @ plain["blocks.0.attention.keys"].repeat_interleave(2, dim=1).mT
    scores = seen["blocks.0.attention.scores"]
    visible = scores.isfinite()
    assert relative_error(scores[visible], (scale * raw)[visible]) < 1e-12
    assert relative_error((queries @ keys.mT * 12**-0.5)[visible], scores[visible]) < 1e-12
    assert (relative_error(logits, usual) < 1e-12) is (scale == 12**-0.5)
    keeps_the_laws(config)


@torch.no_grad()
def test_windows_may_have_more_query_heads() -> None:
    """6 heads within the windows, 4 in the global layer, all share 2 pairs of keys and values."""
    config = morph.stage("sliding-window", "nano")
    config = replace(config, layout=Interleaved(n_local=3, local=SlidingWindow(window=16, n_heads=6)))
    model = morph.build(config)
    assert [block.attention.q_proj.weight.shape[0] for block in model.blocks] == [72, 72, 72, 48]
    assert [block.attention.o_proj.weight.shape[1] for block in model.blocks] == [72, 72, 72, 48]
    assert {block.attention.k_proj.weight.shape[0] for block in model.blocks} == {24}
    same = replace(config, layout=Interleaved(n_local=3, local=SlidingWindow(window=16, n_heads=4)))
    base, ids = stage_model("sliding-window"), random_ids(model, 2, 40)
    assert torch.equal(stage_model(same)(ids), base(ids))
    assert morph.count(config).kv_bytes_per_token == morph.count(same).kv_bytes_per_token
    with morph.trace(model) as seen:
        model(ids)
    assert seen["blocks.0.attention.weights"].shape[1] == 6 and seen["blocks.3.attention.weights"].shape[1] == 4
    keeps_the_laws(config, length=70)
    for position in (Alibi(), PerLayer(local=Alibi(), global_=NoPosition())):
        keeps_the_laws(replace(config, position=position), length=70)


# ---- layers by list ----

WINDOW = SlidingWindow(window=16)
STATE = GatedDeltaNet(n_key_heads=2, n_value_heads=4, key_head_dim=12, value_head_dim=12)


@pytest.mark.parametrize("local", [WINDOW, STATE])
@pytest.mark.parametrize(("n_local", "layers"), [(3, (3,)), (1, (1, 3))])
@torch.no_grad()
def test_a_list_of_layers_is_the_pattern_that_it_spells_out(
    local: SlidingWindow | GatedDeltaNet, n_local: int, layers: tuple[int, ...]
) -> None:
    pattern = replace(morph.stage("sliding-window", "nano"), layout=Interleaved(n_local=n_local, local=local))
    listed = replace(pattern, layout=Listed(local=local, global_layers=layers))
    assert [listed.mixer(i) for i in range(4)] == [pattern.mixer(i) for i in range(4)]
    ids = random_ids(morph.build(pattern), 2, 70)
    assert torch.equal(stage_model(listed)(ids), stage_model(pattern)(ids))
    for context in (9, 200):
        assert morph.count(listed).flops(context) == morph.count(pattern).flops(context)
        assert morph.count(listed).cache_bytes(context) == morph.count(pattern).cache_bytes(context)


@pytest.mark.parametrize("local", [WINDOW, STATE])
@pytest.mark.parametrize("layers", [(0,), (0, 1), (1, 2, 3)])
def test_any_list_of_layers_keeps_the_laws(local: SlidingWindow | GatedDeltaNet, layers: tuple[int, ...]) -> None:
    config = replace(morph.stage("sliding-window", "nano"), layout=Listed(local=local, global_layers=layers))
    assert [config.mixer(i) is config.attention for i in range(4)] == [i in layers for i in range(4)]
    keeps_the_laws(config, length=70)
    written = config.to_toml()
    assert f"global_layers = {list(layers)}" in written
    assert tomllib.loads(written)["layout"]["global_layers"] == list(layers)


@torch.no_grad()
def test_positions_by_list_are_those_by_kind_where_they_coincide() -> None:
    """One rotation within windows and none in the global layer, said both ways."""
    windows = morph.stage("sliding-window", "nano")
    by_kind = replace(windows, position=PerLayer(local=Rope(), global_=NoPosition()))
    by_list = replace(windows, position=SomeLayers(layers=(0, 1, 2), inside=Rope(), outside=NoPosition()))
    other_way = replace(windows, position=SomeLayers(layers=(3,), inside=NoPosition(), outside=Rope()))
    ids = random_ids(morph.build(windows), 2, 70)
    expected = stage_model(by_kind)(ids)
    assert torch.equal(stage_model(by_list)(ids), expected)
    assert torch.equal(stage_model(other_way)(ids), expected)
    everywhere = replace(windows, position=SomeLayers(layers=(1,), inside=Rope(), outside=Rope()))
    assert torch.equal(stage_model(everywhere)(ids), stage_model(windows)(ids))


@torch.no_grad()
def test_the_layers_listed_rotate_and_the_others_do_not() -> None:
    """As in SmolLM3: full attention in all layers, no rotation in every second."""
    position = SomeLayers(layers=(0, 2), inside=Rope(base=50.0), outside=NoPosition())
    config = replace(morph.stage("qk-norm", "nano"), position=position)
    assert [config.position_in(i).kind for i in range(4)] == ["rope", "no-position", "rope", "no-position"]
    model: Decoder = stage_model(config, dtype=DOUBLE)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 12))
    cos, sin = rotation_table(12, Rope(base=50.0), 12)
    for i in range(4):
        before, after = (seen[f"blocks.{i}.attention.{name}"] for name in ("unrotated_queries", "queries"))
        assert relative_error(after, rotate(before, cos, sin) if i in (0, 2) else before) < 1e-14
    keeps_the_laws(config)
    keeps_the_laws(replace(config, position=SomeLayers(layers=(1,), inside=Alibi(), outside=Rope())))


# ---- refusals ----


def windowed(**kw: object) -> ModelConfig:
    return replace(morph.stage("sliding-window", "nano"), **kw)  # type: ignore[arg-type]


def listed(*layers: object) -> ModelConfig:
    return windowed(layout=Listed(local=WINDOW, global_layers=layers))  # type: ignore[arg-type]


def some(*layers: object, inside: object = None) -> ModelConfig:
    return windowed(position=SomeLayers(layers=layers, inside=inside or Rope(), outside=NoPosition()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: listed(), r"listed\.global_layers = \[\] must name at least one"),
        (lambda: listed(2, 1), r"listed\.global_layers = \[2, 1\] must name at least one, each once, in order"),
        (lambda: listed(1, 1), r"listed\.global_layers = \[1, 1\] must name"),
        (lambda: listed(-1), r"listed\.global_layers = \(-1,\) must be a list of whole numbers from 0"),
        (lambda: listed(1.0), r"listed\.global_layers = \(1\.0,\) must be a list of whole numbers"),
        (lambda: listed(True), r"listed\.global_layers = \(True,\) must be a list of whole numbers"),
        (lambda: listed(4), r"layout\.global_layers = \[4\] must name some of the layers 0 to 3, and not all"),
        (lambda: listed(0, 1, 2, 3), r"layout\.global_layers = \[0, 1, 2, 3\] must name some of the layers 0 to 3"),
        (lambda: some(), r"some-layers\.layers = \[\] must name at least one"),
        (lambda: some(0, 7), r"position\.layers = \[0, 7\] must name some of the layers 0 to 3, and not all"),
        (lambda: some(0, inside=WINDOW), r"some-layers\.inside = SlidingWindow.* is not one of: rope, partial-rope"),
        (lambda: windowed(layout=Listed(local=Rope(), global_layers=(1,))), r"listed\.local = Rope.* is not one of"),  # type: ignore[arg-type]
        (
            lambda: windowed(layout=Interleaved(n_local=1, local=SlidingWindow(window=4, n_heads=5))),
            r"layout\.local\.n_heads = 5 must share the attention's KV heads evenly",
        ),
        (lambda: SlidingWindow(window=4, n_heads=0), r"sliding-window\.n_heads = 0 is below 1"),
        (lambda: Attention(n_heads=4, n_kv_heads=4, scale=0.0), r"attention\.scale = 0\.0 must be a finite number"),
    ],
)
def test_impossible_records_are_refused(make: object, message: str) -> None:
    with pytest.raises(MorphError, match=message):
        make()  # type: ignore[operator]


def test_a_file_may_not_name_a_layer_by_word() -> None:
    data = listed(1).to_dict()
    for wrong in (["one"], "1", 1, [[1]]):
        data["layout"]["global_layers"] = wrong
        with pytest.raises(MorphError, match=r"listed\.global_layers = .* must be a list of whole numbers from 0"):
            ModelConfig.from_dict(data)
