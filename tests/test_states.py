"""Layers that keep a state: every rule against its formula and its other form, and against the rules that it becomes.

Shapes are odd, texts end inside a chunk, and a state is there before the first token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import morph
from morph.config import GatedDeltaNet, KimiDelta, ModelConfig
from morph.errors import MorphError
from morph.forks import FORKS, config_of
from morph.model import Decoder
from morph.nn import delta, kda, lightning
from morph.nn.attention import SoftmaxAttention
from morph.nn.cache import ConvStateCache, KVCache, StateCache
from morph.nn.deltalayer import unit
from morph.nn.organ import Organ
from tests.models import random_ids, relative_error, stage_model

EXACT = 1e-12
LENGTH = 77  # two chunks of 32 and a part, one of 64 and a part


def drawn(Dk: int = 5, Dv: int = 7, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Queries and keys of unit length, values, write strengths up to 2, and a state that is there before."""
    q, k = (unit(torch.randn(2, 3, LENGTH, Dk, dtype=dtype)) for _ in range(2))
    v, beta = torch.randn(2, 3, LENGTH, Dv, dtype=dtype), 2 * torch.rand(2, 3, LENGTH, dtype=dtype)
    return {"q": q, "k": k, "v": v, "beta": beta, "state": torch.randn(2, 3, Dk, Dv, dtype=dtype)}


def assert_alike(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], bound: float = EXACT) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.isfinite().all() and relative_error(a, b) < bound


# ---- Kimi Delta Attention ----


@pytest.mark.parametrize("rule", [kda.recurrent_rule, kda.chunked_rule])
def test_the_rule_of_kda_is_the_papers(rule: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """S ← (I - βkkᵀ) Diag(α) S + βkvᵀ, o = Sᵀq, head by head."""
    x = drawn()
    log_decay = -torch.rand(2, 3, LENGTH, 5, dtype=torch.float64)
    out, last = rule(**x, log_decay=log_decay)
    for b, h in ((0, 0), (1, 2)):
        S = x["state"][b, h]
        for t in range(LENGTH):
            k, strength = x["k"][b, h, t, :, None], x["beta"][b, h, t]
            faded = torch.diag(log_decay[b, h, t].exp()) @ S
            S = (torch.eye(5, dtype=torch.float64) - strength * k @ k.T) @ faded + strength * k @ x["v"][b, h, t, None]
            assert relative_error(out[b, h, t], S.T @ x["q"][b, h, t]) < EXACT
        assert relative_error(last[b, h], S) < EXACT


@pytest.mark.parametrize("chunk", [1, 2, 16, 32, 128])
@pytest.mark.parametrize("longest", [1e-3, 1.0, 50.0, 3000.0])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, EXACT), (torch.float32, 5e-6)])
def test_chunks_of_kda_are_safe_at_any_decay(chunk: int, longest: float, dtype: torch.dtype, bound: float) -> None:
    """Some features forget at once while others keep all: their logs differ by thousands within one chunk."""
    x = drawn(dtype=dtype)
    log_decay = -longest * torch.rand(2, 3, LENGTH, 5, dtype=dtype) ** 6
    log_decay[..., 0], log_decay[..., 1] = 0.0, -longest
    assert_alike(
        kda.chunked_rule(**x, log_decay=log_decay, chunk=chunk), kda.recurrent_rule(**x, log_decay=log_decay), bound
    )


def test_faded_products_are_the_sum_over_features() -> None:
    readers, keys = torch.randn(2, 3, 8, 5, dtype=torch.float64), torch.randn(3, 8, 5, dtype=torch.float64)
    log_decay = -3 * torch.rand(3, 8, 5, dtype=torch.float64)
    products, before, after = kda.faded_products(readers, keys, log_decay)
    expected = torch.zeros_like(products)
    for t in range(8):
        for i in range(t + 1):
            faded = keys[:, i] * log_decay[:, i + 1 : t + 1].sum(1).exp()
            expected[:, :, t, i] = (readers[:, :, t] * faded).sum(-1)
    assert relative_error(products, expected) < EXACT
    assert relative_error(before, log_decay.cumsum(1)) < EXACT
    assert relative_error(after[:, :7], log_decay.flip(1).cumsum(1).flip(1)[:, 1:]) < EXACT and not after[:, 7].any()


def test_gradients_of_both_forms_of_kda_agree() -> None:
    x = drawn()
    inputs = {**x, "log_decay": -20 * torch.rand(2, 3, LENGTH, 5, dtype=torch.float64) ** 4}
    found = []
    for rule in (kda.recurrent_rule, kda.chunked_rule):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
        out, last = rule(**leaves)
        (out.sin().sum() + last.square().sum()).backward()
        found.append([leaf.grad for leaf in leaves.values()])
    for a, b in zip(*found, strict=True):
        assert a is not None and b is not None and relative_error(b, a) < 1e-10


def test_kda_with_one_decay_for_a_head_is_the_gated_delta_rule() -> None:
    x, log_decay = drawn(), -torch.rand(2, 3, LENGTH, dtype=torch.float64)
    every = log_decay[..., None].expand(2, 3, LENGTH, 5)
    for ours, base in ((kda.recurrent_rule, delta.recurrent_rule), (kda.chunked_rule, delta.chunked_rule)):
        assert_alike(ours(**x, log_decay=every), base(**x, log_decay=log_decay))


@torch.no_grad()
def test_kda_whose_gates_say_one_thing_of_a_head_keeps_the_bases_state() -> None:
    """The whole layer, from stream to state: a is the base's, handed through the few features to all of a head."""
    base_config = config_of("hybrid", "nano")
    local = replace(base_config.mixer(0), n_key_heads=4)
    base = stage_model(replace(base_config, layout=replace(base_config.layout, local=local)), dtype=torch.float64)
    fork = stage_model("kda", dtype=torch.float64)
    old, new = base.blocks[0].attention, fork.blocks[0].attention
    assert base.config.mixer(0) == GatedDeltaNet(n_key_heads=4, n_value_heads=4, key_head_dim=12, value_head_dim=12)
    assert fork.config.mixer(0) == KimiDelta(n_heads=4, head_dim=12)
    for name in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "beta_proj.weight", "conv.weight", "log_A"):
        new.get_parameter(name).copy_(old.get_parameter(name))
    new.decay_down.weight.zero_()
    new.decay_down.weight[:4] = old.decay_proj.weight
    new.decay_up.weight.zero_()
    new.decay_up.weight[torch.arange(48), torch.arange(48) // 12] = 1.0
    new.dt_bias.copy_(old.dt_bias.repeat_interleave(12))
    ids = random_ids(base, 2, LENGTH)
    fork.embedding.weight.copy_(base.embedding.weight)
    fork.blocks[0].attention_norm.weight.copy_(base.blocks[0].attention_norm.weight)
    with morph.trace(base) as theirs:
        base(ids)
    with morph.trace(fork) as ours:
        fork(ids)
    for name in ("unit_queries", "unit_keys", "new_values", "beta", "state", "read"):
        name = f"blocks.0.attention.{name}"
        assert relative_error(ours[name], theirs[name]) < EXACT, name
    assert ours["blocks.0.attention.log_decays"].shape == (2, 4, LENGTH, 12)
    gate = (seen := fork.blocks[0].attention_norm(ours["blocks.0.attention_norm.input"])) @ new.gate_down.weight.T
    gate = torch.sigmoid(gate @ new.gate_up.weight.T)
    normed = new.out_norm(ours["blocks.0.attention.read"]).transpose(1, 2).flatten(2)
    assert seen.shape == (2, LENGTH, 48)
    assert relative_error(ours["blocks.0.attention_delta"], (gate * normed) @ new.o_proj.weight.T) < EXACT


def test_low_ranks_are_kept() -> None:
    config = config_of("kda", "nano")
    narrow = replace(config, layout=replace(config.layout, local=replace(config.mixer(0), gate_rank=3)))
    layer = morph.build(narrow).blocks[0].attention
    assert layer.decay_down.weight.shape == layer.gate_down.weight.shape == (3, 48)
    assert layer.decay_up.weight.shape == layer.gate_up.weight.shape == (48, 3)
    assert layer.dt_bias.shape == (48,) and layer.log_A.shape == (4,)
    wide = morph.build(config).blocks[0].attention
    assert wide.decay_down.weight.shape == (12, 48), "as wide as a head when nothing is said"
    assert morph.count(narrow).total == sum(p.numel() for p in morph.build(narrow).parameters())


# ---- lightning attention ----


@pytest.mark.parametrize("rule", [lightning.recurrent_rule, lightning.chunked_rule])
@pytest.mark.parametrize("layer", [0, 1, 3])
def test_the_rule_of_lightning_is_a_sum_of_faded_writes(rule: Callable[..., Any], layer: int) -> None:
    """o_t = λ^(t + 1) S_0ᵀ q_t + Σ_i λ^(t - i) (q_t · k_i) v_i."""
    x = drawn(Dk=5, Dv=5)
    slopes = lightning.decay_slopes(3, layer, 4)
    out, last = rule(x["q"], x["k"], x["v"], slopes, x["state"])
    times = torch.arange(LENGTH, dtype=torch.float64)
    for h, slope in enumerate(slopes):
        fade = torch.exp(-slope * (times[:, None] - times)).tril()
        scores = x["q"][:, h] @ x["k"][:, h].transpose(-1, -2) * fade
        start = torch.exp(-slope * (times + 1))[:, None] * (x["q"][:, h] @ x["state"][:, h])
        assert relative_error(out[:, h], scores @ x["v"][:, h] + start) < EXACT
        written = (x["k"][:, h] * fade[-1][:, None]).transpose(-1, -2) @ x["v"][:, h]
        assert relative_error(last[:, h], torch.exp(-slope * LENGTH) * x["state"][:, h] + written) < EXACT


@pytest.mark.parametrize("chunk", [1, 7, 64, 128])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, EXACT), (torch.float32, 5e-6)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 500.0])
def test_chunks_of_lightning_are_its_tokens(chunk: int, scale: float, dtype: torch.dtype, bound: float) -> None:
    x = drawn(Dk=5, Dv=5, dtype=dtype)
    how = x["q"], x["k"], x["v"], scale * lightning.decay_slopes(3, 0, 4).to(dtype), x["state"]
    assert_alike(lightning.chunked_rule(*how, chunk=chunk), lightning.recurrent_rule(*how), bound)


def test_without_decay_lightning_is_linear_attention() -> None:
    """The state is a running sum of keys times values."""
    x = drawn(Dk=5, Dv=5)
    sums = torch.einsum("bhsk,bhsv->bhskv", x["k"], x["v"]).cumsum(2) + x["state"][:, :, None]
    expected = torch.einsum("bhsk,bhskv->bhsv", x["q"], sums)
    for rule in (lightning.recurrent_rule, lightning.chunked_rule):
        still = rule(x["q"], x["k"], x["v"], torch.zeros(3, dtype=torch.float64), x["state"])
        assert_alike(still, (expected, sums[:, :, -1]))


def test_on_keys_at_right_angles_lightning_is_the_gated_delta_rule() -> None:
    """The delta rule finds nothing to correct, and writes what lightning adds."""
    keys = torch.linalg.qr(torch.randn(2, 3, 40, 40, dtype=torch.float64)).Q
    q, v = torch.randn(2, 3, 40, 40, dtype=torch.float64), torch.randn(2, 3, 40, 40, dtype=torch.float64)
    slopes, empty = lightning.decay_slopes(3, 1, 4), torch.zeros(2, 3, 40, 40, dtype=torch.float64)
    log_decay, beta = -slopes[:, None].expand(2, 3, 40), torch.ones(2, 3, 40, dtype=torch.float64)
    forms = (delta.recurrent_rule, lightning.recurrent_rule), (delta.chunked_rule, lightning.chunked_rule)
    for base, ours in forms:
        assert_alike(ours(q, keys, v, slopes, empty), base(q, keys, v, log_decay, beta, empty))
    slanted = unit(torch.randn(2, 3, 40, 40, dtype=torch.float64))
    other = delta.recurrent_rule(q, slanted, v, log_decay, beta, empty)[0]
    assert relative_error(lightning.recurrent_rule(q, slanted, v, slopes, empty)[0], other) > 0.1


def test_slopes_fall_with_head_and_depth() -> None:
    first, last = lightning.decay_slopes(8, 0, 12), lightning.decay_slopes(8, 11, 12)
    assert torch.allclose(first, torch.tensor([2.0**-h for h in range(1, 9)], dtype=torch.float64), rtol=2e-5)
    assert 0 < float(last.max()) < 1e-5, "the last layer sums up the whole text"
    middle = lightning.decay_slopes(8, 4, 12)
    assert torch.allclose(middle / first, torch.full((8,), 1 - 4 / 11, dtype=torch.float64), atol=2e-5)
    assert torch.allclose(lightning.decay_slopes(2, 0, 1), torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64))


@torch.no_grad()
def test_a_lightning_layer_is_its_formula() -> None:
    """SiLU on all three, one norm over all heads, a sigmoid gate; layer 1 of 4, two rows, one of them padded."""
    model = stage_model("lightning", dtype=torch.float64)
    layer = model.blocks[1].attention
    with morph.trace(model) as seen:
        model(random_ids(model, 2, LENGTH), lengths=torch.tensor([LENGTH, LENGTH - 9]))
    name = "blocks.1.attention"
    normed = model.blocks[1].attention_norm(seen["blocks.1.attention_norm.input"])
    normed[1, :9] = 0
    silu = torch.nn.functional.silu
    heads = {
        key: silu(normed @ getattr(layer, f"{part}_proj").weight.T).unflatten(-1, (4, 12)).transpose(1, 2)
        for key, part in (("state_queries", "q"), ("state_keys", "k"), ("new_values", "v"))
    }
    for key, expected in heads.items():
        assert relative_error(seen[f"{name}.{key}"], expected) < EXACT
    empty = torch.zeros(2, 4, 12, 12, dtype=torch.float64)
    read, state = lightning.recurrent_rule(*heads.values(), lightning.decay_slopes(4, 1, 4), empty)
    assert relative_error(seen[f"{name}.read"], read) < EXACT and relative_error(seen[f"{name}.state"], state) < EXACT
    flat = read.transpose(1, 2).flatten(2)
    flat = layer.out_norm.weight * flat / (flat.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    gated = torch.sigmoid(normed @ layer.gate_proj.weight.T) * flat
    assert relative_error(seen["blocks.1.attention_delta"], gated @ layer.o_proj.weight.T) < EXACT


# ---- write strengths above 1 ----


def test_a_write_of_strength_2_turns_what_was_held() -> None:
    """I - 2kkᵀ mirrors; at β = 1 the old answer is erased, and at β = 2 its opposite stands in its place."""
    k = unit(torch.randn(1, 1, 1, 8, dtype=torch.float64))
    k = k / k.norm()
    state, nothing = torch.randn(1, 1, 8, 4, dtype=torch.float64), torch.zeros(1, 1, 1, dtype=torch.float64)
    silent = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
    held = k @ state
    for beta, left in ((1.0, 0.0), (2.0, -1.0), (0.5, 0.5)):
        for rule in (delta.recurrent_rule, delta.chunked_rule):
            _, after = rule(k, k, silent, nothing, nothing + beta, state)
            assert float((k @ after - left * held).abs().max()) < EXACT


@torch.no_grad()
def test_beta_max_scales_the_sigmoid() -> None:
    base = config_of("hybrid", "nano")
    twice = replace(base, layout=replace(base.layout, local=replace(base.mixer(0), beta_max=2.0)))
    models = [stage_model(config, dtype=torch.float64) for config in (base, twice)]
    assert models[0].state_dict().keys() == models[1].state_dict().keys()
    strengths = []
    for model in models:
        with morph.trace(model) as seen:
            model(random_ids(model, 2, 40))
        strengths.append(seen["blocks.0.attention.beta"])
    assert torch.equal(strengths[1], 2 * strengths[0]) and 1 < float(strengths[1].max()) < 2
    again = ModelConfig.from_toml(twice.to_toml())
    assert again == twice and "beta_max = 2.0" in twice.to_toml() and "beta_max" not in base.to_toml()


# ---- gates beside states ----


@torch.no_grad()
def test_gates_of_one_half_beside_states() -> None:
    base, fork = stage_model("hybrid", dtype=torch.float64), stage_model("hybrid-gated", dtype=torch.float64)
    weights = {**base.state_dict(), "blocks.3.attention.gate_proj.weight": torch.zeros(48, 48, dtype=torch.float64)}
    weights["blocks.3.attention.o_proj.weight"] = 2 * weights["blocks.3.attention.o_proj.weight"]
    fork.load_state_dict(weights, strict=True)
    ids = random_ids(base, 2, 40)
    assert relative_error(fork(ids), base(ids)) < EXACT
    assert [isinstance(b.attention, SoftmaxAttention) for b in fork.blocks] == [False, False, False, True]


# ---- what all share ----


def branch_sizes(word: str) -> list[float]:
    model = morph.build(config_of(word, "tiny"))
    with morph.trace(model) as seen, torch.no_grad():
        model(random_ids(model, 2, 128))
    return [float(seen[f"blocks.{i}.attention_delta"].square().mean().sqrt()) for i in range(4)]


def test_branches_start_about_as_large_as_the_bases() -> None:
    base = branch_sizes("hybrid")
    for slug in ("lightning", "kda", "hybrid-gated"):
        for mine, other in zip(branch_sizes(slug), base, strict=True):
            assert 0.8 < mine / other < 1.35, (slug, mine, other)


CACHES = {"hybrid": ConvStateCache, "kda": ConvStateCache, "lightning": StateCache}


@pytest.mark.parametrize("slug", CACHES)
@torch.no_grad()
def test_caches_say_what_they_hold(slug: str) -> None:
    model = stage_model(slug, dtype=torch.bfloat16)
    cache = model.new_cache(2)
    assert [type(layer) for layer in cache.layers] == [CACHES[slug]] * 3 + [KVCache]
    first = cache.layers[0]
    assert list(first.tensors()) == (["state"] if slug == "lightning" else ["state", "tail"])
    empty = cache.snapshot()
    ids = random_ids(model, 2, 40)
    model(ids[:, :31], cache=cache)
    state = first.tensors()["state"]
    assert state is not None and state.dtype == torch.float32 and state.shape == (2, 4, 12, 12)
    kept, at = cache.nbytes, cache.snapshot()
    after = model(ids[:, 31:], cache=cache)
    assert first.nbytes == sum(t.numel() * t.element_size() for t in first.tensors().values() if t is not None)
    assert cache.nbytes == kept + 9 * 2 * 2 * 2 * 12 * 2, "only the softmax layer's part grows"
    cache.restore(at)
    assert torch.equal(model(ids[:, 31:], cache=cache), after)
    cache.restore(empty)
    assert cache.columns == 0 and first.tensors()["state"] is None
    cache.restore(at)
    cache.select(torch.tensor([1]))
    alone = model(ids[1:, 31:], cache=cache)
    assert relative_error(alone[0].float(), after[1].float()) < 2e-2


def test_a_cache_of_another_kind_of_state_is_refused() -> None:
    lightning_model, other = stage_model("lightning"), stage_model("hybrid")
    for model, cache in ((lightning_model, other.new_cache()), (other, lightning_model.new_cache())):
        with pytest.raises(MorphError, match="new_cache"):
            model(random_ids(model, 1, 5), cache=cache)


@pytest.mark.parametrize("slug", ["lightning", "kda"])
def test_forks_of_states_need_a_base_with_states(slug: str) -> None:
    for base, told in (("gqa", "layout is 'all-global'"), ("sliding-window", "layout.local is 'sliding-window'")):
        with pytest.raises(MorphError, match=told):
            config_of(f"{base}+{slug}", "nano")
    assert config_of(f"hybrid+{slug}", "nano") == config_of(slug, "nano")
    assert FORKS[slug].paths == ("layout.local",)


@pytest.mark.parametrize("slug", ["lightning", "kda"])
@torch.no_grad()
def test_padding_leaves_no_trace_in_a_state(slug: str) -> None:
    """A row that is all padding keeps an empty state, and a padded text ends in the state of the text alone."""
    model = stage_model(slug, dtype=torch.float64)
    ids, cache, alone = random_ids(model, 3, LENGTH), model.new_cache(3), model.new_cache(1)
    model(ids, lengths=torch.tensor([LENGTH, 0, 12]), cache=cache)
    model(ids[2:, LENGTH - 12 :], cache=alone)
    for layer in range(3):
        state, text = (_state(c.layers[layer]) for c in (cache, alone))
        assert not state[1].any() and state[0].any()
        assert relative_error(state[2], text[0]) < EXACT


def _state(layer: Any) -> Tensor:
    assert isinstance(layer, StateCache) and layer.state is not None
    return layer.state


def test_weights_of_an_organ_do_not_depend_on_its_neighbours() -> None:
    """Lightning has no weights of its own to draw but maps and a norm; its slopes are no part of a checkpoint."""
    model: Decoder = morph.build(config_of("lightning", "nano"))
    layer = model.blocks[0].attention
    assert isinstance(layer, Organ) and not list(layer.buffers())
    names = ["q_proj", "k_proj", "v_proj", "gate_proj", "out_norm", "o_proj"]
    assert [name for name, _ in layer.named_parameters()] == [f"{name}.weight" for name in names]
