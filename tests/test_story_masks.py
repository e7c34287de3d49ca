"""Figure 7: masks, caches, reach and sinks, as data and drawn, for two seeds and for models that lack a window."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import morph
from morph.config import AllLocal, Interleaved, SlidingWindow
from morph.errors import MorphError
from morph.measure.reach import reach
from morph.measure.scores import blocked, blocked_flops, dense_flops
from morph.nn.attention import plain_attention
from morph.nn.mask import Mask, visible
from morph.steps import stage
from morph.story import Figure, Frame
from morph.story.masks import Look, cells, figure
from morph.story.masks_field import OLMO_3_32B
from morph.story.subject import subject
from tests.stories import with_array
from tests.tools import need

KEYS = (
    "causal", "window", "cache", "stack", "reach-all-local", "reach-1-1", "reach-3-1", "reach-5-1", "work", "olmo",
    "tables", "sink",
)  # fmt: skip


@pytest.fixture(scope="module")
def masks() -> Figure:
    return figure()


@pytest.fixture(scope="module")
def other_seed() -> Figure:
    return figure(seed=1)


@pytest.fixture(scope="module")
def frames(masks: Figure) -> dict[str, Frame]:
    return {frame.key: frame for frame in masks.frames}


# ---- the measures it stands on ----


def _stack(layers: int, window: int, n_local: int | None, d_model: int = 48) -> morph.Decoder:
    local = SlidingWindow(window=window)
    layout = AllLocal(local=local) if n_local is None else Interleaved(n_local=n_local, local=local)
    config = replace(stage(9, "nano"), n_layers=layers, layout=layout, d_model=d_model)
    return morph.build(config, seed=3).double().eval()


@pytest.mark.parametrize(("layers", "window"), [(1, 4), (3, 2), (4, 5)])
def test_windows_reach_layers_times_window_less_one_plus_one(layers: int, window: int) -> None:
    ids = torch.arange(24)[None]
    sizes = reach(_stack(layers, window, None), ids)
    assert sizes.shape == (layers + 1, 24)
    assert [(row != 0).sum().item() for row in sizes] == [d * (window - 1) + 1 for d in range(layers + 1)]
    assert bool((sizes[-1, -(layers * (window - 1) + 1) :] > 0).all())  # no hole inside of the reach


def test_reach_is_the_gradient_that_finite_differences_give() -> None:
    """Of a token in the middle, by moving one embedding a little along each feature."""
    model, ids, token, width, step = _stack(2, 3, None, d_model=12), torch.arange(9)[None], 6, 12, 1e-5
    sizes = reach(model, ids, token)
    probe = torch.randn(width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probe, last = probe / probe.norm(), []
    model.blocks[-1].register_forward_hook(lambda _, __, out: last.append(out[0, token] @ probe))

    def moved(s: int, feature: int, by: float) -> float:
        shift = torch.zeros(1, 9, width, dtype=torch.float64)
        shift[0, s, feature] = by
        hook = model.embedding.register_forward_hook(lambda _, __, out: out + shift)
        with torch.no_grad():
            model(ids)
        hook.remove()
        return float(last.pop())

    for s in (2, 5, 6):
        slopes = [(moved(s, i, step) - moved(s, i, -step)) / (2 * step) for i in range(width)]
        assert sizes[-1, s] == pytest.approx(np.linalg.norm(slopes), rel=1e-5)
    assert sizes[-1].count_nonzero() == 5 and sizes[-1, 7:].tolist() == [0, 0]  # nothing from later tokens


def test_reach_leaves_the_model_as_it_was_and_takes_one_text() -> None:
    model = _stack(2, 3, 1)
    reach(model, torch.arange(8)[None])
    assert not model.embedding._forward_hooks and not model.blocks[0]._forward_hooks
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(MorphError, match="2 texts; give one"):
        reach(model, torch.zeros(2, 8, dtype=torch.long))


@pytest.mark.parametrize(("length", "window"), [(40, 8), (37, 8), (5, 8)])
def test_blocks_compute_what_the_masked_square_does_with_less(length: int, window: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, length, 6, generator=generator)
    k, v = (torch.randn(2, 2, length, 6, generator=generator) for _ in range(2))
    columns = torch.arange(length)
    whole = plain_attention(q, k, v, Mask(visible(columns, columns, window, None), is_causal=False))
    out, flops = blocked(q, k, v, window)
    torch.testing.assert_close(out, whole)
    sizes = [(min(window, length - s), min(length, s + window) - max(0, s - window)) for s in range(0, length, window)]
    assert flops == 2 * 4 * 4 * 6 * sum(rows * columns for rows, columns in sizes)


def test_counted_scores_are_the_formulas() -> None:
    model = morph.build(stage(9, "nano"))
    assert dense_flops(model, torch.arange(20)[None]) == [4 * 4 * 12 * 20 * 20] * 4
    assert sum(dense_flops(model, torch.arange(20)[None])) == morph.count(model.config).flops(20).scores_dense
    assert blocked_flops(model.config.attention, 64, 16) == 4 * 4 * 12 * 16 * 16 * 7


def test_cells_add_up_keys_and_average_queries() -> None:
    weights = np.tril(np.ones((5, 5)))
    weights /= weights.sum(axis=1, keepdims=True)
    small = cells(weights, 3)
    assert small.shape == (3, 3)
    np.testing.assert_allclose(small.sum(axis=1), 1)
    np.testing.assert_allclose(small[0], [1, 0, 0])
    np.testing.assert_allclose(small[2], [0.4, 0.4, 0.2])  # the last query stands alone
    np.testing.assert_array_equal(cells(weights, 5), weights)


# ---- the figure ----


def test_twelve_frames_and_their_claims_hold_for_both_seeds(masks: Figure, other_seed: Figure) -> None:
    for made in (masks, other_seed):
        assert tuple(frame.key for frame in made.frames) == KEYS
        assert [frame.key for frame in made.frames if not frame.check()] == []
        assert not any(frame.absent for frame in made.frames)
    assert masks.frames[0].arrays["weights"].values.tolist() != other_seed.frames[0].arrays["weights"].values.tolist()


def test_the_figure_is_json_and_not_too_heavy(masks: Figure) -> None:
    text = json.dumps(masks.to_dict())
    assert json.loads(text) == masks.to_dict()
    assert len(text) < 400_000
    assert all(array.source for frame in masks.frames for array in frame.arrays.values())


def _set(*index: int, to: float):  # type: ignore[no-untyped-def]
    return lambda values: values.__setitem__(index, to)


@pytest.mark.parametrize(
    ("key", "name", "change"),
    [
        ("causal", "weights", _set(0, 5, to=0.2)),  # a weight on the future
        ("causal", "in_sight", lambda v: v - 1),
        ("window", "weights", _set(60, 3, to=0.2)),  # a weight behind the window
        ("window", "in_sight", lambda v: np.arange(1, len(v) + 1)),  # no window at all
        ("window", "weights", lambda v: 0.9 * v),
        ("cache", "local", lambda v: v * 2),
        ("cache", "local", _set(-1, to=1)),
        ("stack", "first_in_sight", lambda v: 1 - v),
        ("stack", "weights", _set(0, 31, 0, to=0.1)),
        ("reach-all-local", "heard", _set(12, 14, to=1)),  # one token further
        ("reach-all-local", "heard", _set(12, 30, to=0)),  # a hole
        ("reach-all-local", "lab_field", lambda v: v + 8.5),
        ("reach-1-1", "heard", _set(2, 0, to=0)),
        ("reach-3-1", "heard", _set(3, 0, to=1)),
        ("reach-3-1", "heard", _set(-1, 0, to=0)),
        ("reach-5-1", "power", lambda v: v - 12),
        ("work", "dense", lambda v: v // 2),
        ("work", "blocked", lambda v: v + 1),
        ("work", "dense_formula", lambda v: v + 1),
        ("work", "visible_formula", lambda v: v * 4),
        ("olmo", "mixed", lambda v: v * 2),
        ("olmo", "full", lambda v: v + 1),
        ("tables", "0.far", lambda v: -v),
        ("tables", "1.far", lambda v: np.full_like(v, -1.0)),
        ("tables", "2.far", lambda v: 0 * v),
        ("tables", "2.local", np.ones_like),
        ("sink", "first", lambda v: 30 * v + 0.5),
        ("sink", "taken", lambda v: 0 * v),
        ("sink", "taken", lambda v: v + 1),
        ("sink", "taken", _set(0, 0, to=-0.1)),
        ("sink", "first", _set(0, 0, to=-0.1)),
        ("sink", "lab", _set(0, 0, to=0.2)),
    ],
)  # fmt: skip
def test_claims_can_fail(frames: dict[str, Frame], key: str, name: str, change: object) -> None:
    assert frames[key].check()
    assert not with_array(frames[key], name, change).check()


def test_captions_say_what_the_arrays_say(frames: dict[str, Frame]) -> None:
    assert "2,080 of 4,096" in frames["causal"].caption
    assert "last 32 tokens" in frames["window"].caption and "1,552 of 4,096" in frames["window"].caption
    assert f"{frames['window'].arrays['beyond'].values.mean():.0%}" in frames["window"].caption
    assert "48 KiB" in frames["cache"].caption and "12 KiB" in frames["cache"].caption
    pairs = (3 * 3600 + 8256) / (4 * 8256)
    assert f"{pairs:.0%}" in frames["stack"].caption
    assert "49 tokens, not L×w\u00a0=\u00a060" in frames["reach-all-local"].caption
    assert [frames[f"reach-{n}-1"].facts["opens"] for n in (1, 3, 5)] == [2, 4, 6]
    work = frames["work"].arrays
    assert f"factor of {work['dense'].values[-1] / work['blocked'].values[-1]:.0f}" in frames["work"].caption
    assert "3.4-fold, from 16 to 4.75 GiB" in frames["olmo"].caption


def test_the_live_cache_weighs_what_count_says(frames: dict[str, Frame]) -> None:
    tokens, local = (frames["cache"].arrays[name].values for name in ("tokens", "local"))
    far, config = frames["cache"].arrays["far"].values, stage(9)
    for s, a, b in zip(tokens, local, far, strict=True):
        assert 3 * a + b == morph.count(config, bytes_per_value=4).cache_bytes(int(s))
    assert local[-1] == local[len(local) // 4 - 1] == 32 * 384 and far[-1] == 128 * 384


def test_weights_are_those_of_the_models_own_pass(frames: dict[str, Frame]) -> None:
    one = subject("windows")
    with morph.trace(one.model) as seen, torch.no_grad():
        one.model(one.ids(64))
    head = frames["window"].facts["head"]
    own = seen["blocks.0.attention.weights"][0, head].numpy()
    np.testing.assert_allclose(frames["window"].arrays["weights"].values, own, atol=6e-5)
    best = frames["window"].facts["strongest"][0]
    assert best["weight"] == pytest.approx(own[-1].max(), abs=6e-4)
    assert 63 - best["back"] == own[-1].argmax()


def test_olmo_is_counted_from_its_sizes() -> None:
    counted = morph.count(OLMO_3_32B)
    assert counted.kv_bytes_per_token == 64 * 2 * 8 * 128 * 2
    assert counted.cache_bytes(65_536) == 4.75 * 2**30
    assert counted.total == pytest.approx(32_233_522_176, rel=1e-4)  # all but the wide QK-norm


def test_what_turns_is_read_from_live_queries(frames: dict[str, Frame]) -> None:
    """The cosines are those of position × base^(-2i/Dh)."""
    angles = np.outer(10_000.0 ** (-np.arange(12) / 12), np.arange(64))
    np.testing.assert_allclose(frames["tables"].arrays["0.local"].values, np.cos(angles), atol=0.002)
    slower = np.outer(1_000_000.0 ** (-np.arange(12) / 12), np.arange(64))
    np.testing.assert_allclose(frames["tables"].arrays["1.far"].values, np.cos(slower), atol=0.002)
    assert [row["far"] for row in frames["tables"].facts["rows"]] == ["base 10,000", "base 1,000,000", "no rotation"]


def test_the_sinks_share_is_what_the_weights_leave(frames: dict[str, Frame]) -> None:
    one = subject("sink")
    with morph.trace(one.model) as seen, torch.no_grad():
        one.model(one.ids(128, 8))
    left = 1 - seen["blocks.2.attention.weights"].sum(dim=-1).mean(dim=(0, 2))
    np.testing.assert_allclose(frames["sink"].arrays["taken"].values[2], left.numpy(), atol=1e-4)


# ---- other models ----


def _absent(made: Figure) -> dict[str, str]:
    assert tuple(frame.key for frame in made.frames) == KEYS
    assert all(frame.check() for frame in made.frames)
    return {frame.key: frame.absent for frame in made.frames if frame.absent}


def test_a_model_without_windows_says_so() -> None:
    gone = _absent(figure(model="qk-norm"))
    assert set(gone) == {"window", "cache", "stack", "work"}
    assert gone["window"] == "No layer of this model has a window."


def test_the_2017_block_has_no_table_either() -> None:
    gone = _absent(figure(model=morph.build(stage(0, "nano"))))
    assert set(gone) == {"window", "cache", "stack", "work", "tables"}
    assert "rotates" in gone["tables"]


def test_all_local_and_hybrid_models() -> None:
    local = figure(model=replace(stage(9, "nano"), layout=AllLocal(local=SlidingWindow(window=16))))
    gone = _absent(local)
    assert set(gone) == {"causal"} and _faults(local) == []
    hybrid = figure(model=stage(14, "nano"))
    assert set(_absent(hybrid)) == {"window", "cache", "stack", "work"}
    assert _faults(hybrid) == []
    assert hybrid.frames[0].facts["layer"] == 3 and hybrid.frames[11].facts["layers"] == [3]


def test_a_model_with_a_sink_shows_its_own() -> None:
    made = figure(model="attention-sink")
    assert made.frames[0].check() and made.frames[0].facts["sink"] and "sink takes" in made.frames[0].caption
    sink = made.frames[11].arrays
    assert sink["first"].values.tolist() == sink["first_with_sink"].values.tolist()


def test_windows_longer_than_a_traced_text_say_so() -> None:
    """100,000 tokens squared would not fit into memory; 512 do, four windows of them no more."""
    for window, lost in ((100_000, ["window", "cache", "stack", "work"]), (512, [])):
        layout = Interleaved(n_local=3, local=SlidingWindow(window=window))
        found = figure(model=replace(stage(9, "nano"), layout=layout))
        assert [f.key for f in found.frames if f.absent] == lost
        assert all(f.check() for f in found.frames)
        assert next(f for f in found.frames if f.key == "causal").facts["tokens"] == 1024


def test_a_model_whose_first_layer_is_dense() -> None:
    found = figure(model=morph.fork("dense-first", "nano"))
    assert all(f.check() for f in found.frames) and not next(f for f in found.frames if f.key == "work").absent


def test_a_model_without_any_softmax() -> None:
    found = figure(model=replace(stage(14, "nano"), n_layers=1))
    assert [f.key for f in found.frames if f.absent] == ["causal", "window", "cache", "stack", "work", "tables", "sink"]


def test_a_long_window_is_drawn_in_cells() -> None:
    wide = replace(stage(9, "nano"), layout=Interleaved(n_local=3, local=SlidingWindow(window=100)))
    look = Look(subject(wide))
    assert look.length == 200
    made = figure(model=wide)
    assert _faults(made) == []
    frame = made.frames[1]
    assert frame.check() and frame.facts["cell"] == 4
    assert frame.arrays["mask"].values.shape == (50, 50)
    assert frame.arrays["in_sight"].values[-1] == 100


# ---- drawn ----


def _faults(made: Figure) -> list[str]:
    """What the lint finds on the stills of another model than the default one (whose stills are checked elsewhere)."""
    need("typst")
    from scenes.boards import board, indices
    from scenes.lint import lint
    from scenes.theme import theme

    look = theme("light")
    return [f"{k}: {fault}" for k in indices(made) for fault in lint(board(made, k, look), look)]


def test_the_cone_is_drawn_where_the_gradient_is(masks: Figure) -> None:
    """As many cells are covered as are heard, and the stairs end at the far edge."""
    need("typst")
    from scenes.boards import board
    from scenes.fig07_masks import CONE
    from scenes.theme import theme

    made, heard = board(masks, 5, theme("dark")), masks.frames[4].arrays["heard"].values
    wide, tall = (CONE[2] - CONE[0]) / heard.shape[1], (CONE[3] - CONE[1]) / heard.shape[0]
    area = 0.0
    for key, shape in made.items():
        if key.startswith("cone:level"):
            boxes = shape.points.reshape(-1, 16, 3)
            sides = boxes.max(axis=1) - boxes.min(axis=1)
            area += float((sides[:, 0] * sides[:, 1]).sum())
    assert area / (wide * tall) == pytest.approx(heard.sum(), rel=0.1)
    assert made["hops:line"].box[0] == pytest.approx(CONE[0] + (64 - 49) * wide)


def test_an_unchanged_part_stays_the_same_object(masks: Figure) -> None:
    need("typst")
    from scenes.board import difference
    from scenes.boards import board
    from scenes.theme import theme

    old, new = (board(masks, i, theme("dark")) for i in (6, 7))
    change = difference(old, new)
    assert {"cone:frame", "hops:line", "powers:level3", "count:12", "cone:last"} <= set(change.keep)
    assert "title" in change.swap and "kind:2" in change.swap  # global 1 becomes local 1


def test_layers_of_latents_are_shown_and_chosen_tokens_have_no_one_mask() -> None:
    assert set(_absent(figure(model="mla"))) == {"window", "cache", "stack", "work"}
    gone = _absent(figure(model="sparse-attention"))
    assert set(gone) == {"causal", "window", "cache", "stack", "work"} and "An indexer chooses" in gone["causal"]
    windowed = morph.fork("sparse-attention", "nano")
    gone = _absent(figure(model=replace(windowed, layout=AllLocal(local=SlidingWindow(window=20)))))
    assert "An indexer chooses" in gone["window"] and "latent" in gone["work"]
