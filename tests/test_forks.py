"""Forks: each is one change of its base, and keeps every law that the stages keep."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import ModelConfig, SlidingWindow
from morph.errors import MorphError
from morph.forks import FORKS, Fork, config_of
from morph.model import Decoder
from morph.nn.organ import plain_forms
from morph.steps import SIZES, SLUGS, STEPS
from morph.story.block import organs, touched
from tests.models import random_ids, relative_error, stage_model
from tests.test_cache import LENGTH, read_in_chunks
from tests.test_count import solve_flops

EACH = pytest.mark.parametrize("fork", FORKS.values(), ids=lambda fork: fork.slug)
PRECISIONS = pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3e-5), (torch.float64, 1e-11)])


# ---- the registry ----


@EACH
def test_a_fork_changes_its_config_fields_only(fork: Fork) -> None:
    assert fork.base in SLUGS or fork.base in FORKS
    for size in SIZES:
        base, config = config_of(fork.base, size), morph.fork(fork.slug, size)
        changes = morph.diff(base, config)
        assert changes, "a fork must change something"
        outside = [c.path for c in changes if not any(f"{c.path}.".startswith(f"{path}.") for path in fork.paths)]
        assert outside == []
        changed = [path for path in fork.paths if any(f"{c.path}.".startswith(f"{path}.") for c in changes)]
        assert changed == list(fork.paths), "and all that it names"
        assert ModelConfig.from_toml(config.to_toml()) == config == ModelConfig.from_dict(config.to_dict())


@EACH
def test_a_fork_is_told_in_words(fork: Fork) -> None:
    assert FORKS[fork.slug] is fork and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fork.slug)
    assert fork.year in range(2017, 2027)
    assert all((fork.title, fork.origin, fork.before, fork.after, fork.question, fork.relation, fork.source))
    assert all(fork.shipped_by) and len(set(fork.shipped_by)) == len(fork.shipped_by)
    assert fork.before != fork.after and len(fork.title.split()) <= 6


def test_slugs_name_one_thing() -> None:
    assert not set(FORKS) & {*SLUGS, *map(str, range(len(SLUGS)))}
    assert config_of("gqa") == config_of(7) == config_of("7") == morph.stage(7)
    assert config_of("window-1-1", "nano") == morph.fork("window-1-1", "nano")


@pytest.mark.parametrize(("word", "hint"), [("sandwich", "sandwich-norm"), ("gaq", "gqa"), (15, ""), (True, "")])
def test_unknown_names_suggest_the_nearest(word: int | str, hint: str) -> None:
    with pytest.raises(MorphError, match=f"0 to {len(STEPS)}") as error:
        config_of(word)
    assert repr(str(word)) in str(error.value)
    assert not hint or f"did you mean '{hint}'" in str(error.value)
    with pytest.raises(MorphError, match="unknown fork"):
        morph.fork(word)  # type: ignore[arg-type]


# ---- what follows from the config ----


@EACH
def test_untouched_organs_start_with_the_bases_numbers(fork: Fork) -> None:
    before = morph.build(config_of(fork.base, "nano"), seed=3).state_dict()
    after = morph.build(morph.fork(fork.slug, "nano"), seed=3).state_dict()
    shared = [name for name in before.keys() & after.keys() if before[name].shape == after[name].shape]
    assert "embedding.weight" in shared
    for name in shared:
        scale = float(after[name].norm() / before[name].norm()) if before[name].norm() > 0 else 1.0
        assert torch.allclose(before[name] * scale, after[name], rtol=1e-4, atol=1e-6), f"{fork.slug} redraws {name}"


@EACH
def test_a_fork_is_described(fork: Fork) -> None:
    """Its organs and costs follow from its config, and only what its paths touch looks different."""
    base, config = config_of(fork.base, "nano"), morph.fork(fork.slug, "nano")
    old, new = ({organ.key: organ for organ in organs(c)} for c in (base, config))
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    assert changed <= touched(fork.paths)
    assert all(organ.label for organ in new.values())


@EACH
def test_bytes_and_parameters_are_those_of_live_objects(fork: Fork) -> None:
    model = stage_model(fork.slug)
    assert morph.count(model.config).total == sum(p.numel() for p in model.parameters())
    cache, count = model.new_cache(2), morph.count(model.config, bytes_per_value=4)
    model(random_ids(model, 2, 25), cache=cache)
    assert cache.nbytes == 2 * count.cache_bytes(25)


@EACH
@torch.no_grad()
def test_flops_are_those_of_the_plain_form(fork: Fork) -> None:
    model, length = morph.build(morph.fork(fork.slug, "nano")), 45
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.linalg_solve_triangular: solve_flops})
    with counter, plain_forms():
        model(random_ids(model, 1, length))
    flops = morph.count(model.config).flops(length)
    assert counter.get_total_flops() == flops.linear + flops.head + flops.scores_dense + flops.delta


# ---- the laws ----


def readable(model: Decoder) -> int:
    """LENGTH, or what the model's positions allow."""
    return min(LENGTH, model.config.position_limit or LENGTH)


@EACH
@PRECISIONS
@torch.no_grad()
def test_full_pass_decoding_and_any_chunks_agree(fork: Fork, dtype: torch.dtype, bound: float) -> None:
    """Also after a prefill longer than the window, and with rows padded on the left."""
    model = stage_model(fork.slug, dtype=dtype)
    length = readable(model)
    ids, lengths = random_ids(model, 3, length), torch.tensor([length, length - 23, 9])
    full, padded = model(ids), model(ids, lengths=lengths)
    cuts = sorted(random.Random(fork.slug).sample(range(1, length), 5))
    for way in (list(range(1, 25)), list(range(length - 9, length)), cuts):  # tokens first, tokens last, neither
        assert relative_error(read_in_chunks(model, ids, way), full) < bound
    chunked = read_in_chunks(model, ids, cuts, lengths)
    assert chunked.isfinite().all()
    for row, n in enumerate(lengths.tolist()):
        alone = model(ids[row : row + 1, length - n :])[0]
        assert relative_error(padded[row, length - n :], alone) < bound
        assert relative_error(chunked[row, length - n :], alone) < bound


@EACH
@PRECISIONS
@torch.no_grad()
def test_the_plain_forms_give_the_same_model(fork: Fork, dtype: torch.dtype, bound: float) -> None:
    model = stage_model(fork.slug, dtype=dtype)
    length = readable(model)
    ids = random_ids(model, 2, length)
    for lengths in (None, torch.tensor([length, 41])):
        fast = model(ids, lengths=lengths)
        with plain_forms():
            assert relative_error(model(ids, lengths=lengths), fast) < bound


@EACH
@torch.no_grad()
def test_bf16_autocast_stays_near_fp32_in_both_forms(fork: Fork) -> None:
    model = stage_model(fork.slug)
    ids = random_ids(model, 2, 64)

    def rough() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(ids).float()

    exact, fast = model(ids), rough()
    with plain_forms():
        plain = rough()
    for other in (fast, plain):
        alike = torch.nn.functional.cosine_similarity(other, exact, dim=-1)
        # close routes can flip, of a few tokens
        assert float(alike.median() if model.config.moe else alike.mean()) > 0.999


@EACH
@torch.no_grad()
def test_the_future_does_not_reach_the_past(fork: Fork) -> None:
    model = stage_model(fork.slug, dtype=torch.float64)
    ids = random_ids(model, 1, 40)
    changed = ids.clone()
    changed[0, 29:] = (changed[0, 29:] + 7) % 256
    before, after = model(ids), model(changed)
    assert relative_error(after[:, :29], before[:, :29]) < 1e-13
    assert relative_error(after[:, 29], before[:, 29]) > 1e-3, "and the present does change"


@EACH
def test_every_parameter_gets_a_gradient(fork: Fork) -> None:
    model = stage_model(fork.slug).train()
    ids = random_ids(model, 4, 64)
    model.loss(ids[:, :-1], ids[:, 1:]).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        if not name.endswith("k_proj.bias"):
            assert float(parameter.grad.abs().max()) > 1e-6, name


# ---- norms ----


def branch_sizes(word: str) -> list[list[float]]:
    """RMS at init of what each half of each layer writes."""
    model = morph.build(config_of(word, "tiny"))
    with morph.trace(model) as seen, torch.no_grad():
        model(random_ids(model, 2, 128))
    halves = ("attention", "feed_forward")
    return [[float(seen[f"blocks.{i}.{half}_delta"].square().mean().sqrt()) for i in range(4)] for half in halves]


def test_normalized_branches_write_what_their_gains_say() -> None:
    for slug, size in (("sandwich-norm", 1.0), ("post-branch-norm", 1.0), ("depth-scaled-gain", 0.5)):
        for half in branch_sizes(slug):
            assert half == pytest.approx([size] * 4, rel=1e-3), slug
    assert branch_sizes("rms-norm")[0][0] < 0.7, "attention averages, and writes less where nothing normalizes it"


@torch.no_grad()
def test_two_norms_off_leave_the_base() -> None:
    """A sandwich whose second norms let all pass is the pre-norm block."""
    sandwich, base = stage_model("sandwich-norm"), stage_model("rms-norm")
    for block in sandwich.blocks:
        block.attention_out_norm = block.feed_forward_out_norm = torch.nn.Identity()  # type: ignore[assignment]
    sandwich.load_state_dict(base.state_dict())
    ids = random_ids(base, 2, 40)
    assert torch.equal(sandwich(ids), base(ids))


@torch.no_grad()
def test_a_parallel_block_reads_one_stream() -> None:
    model = stage_model("parallel-block", dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 12))
    for i, block in enumerate(model.blocks):
        normed = block.norm(seen[f"blocks.{i}.norm.input"])
        assert relative_error(block.feed_forward(normed, None), seen[f"blocks.{i}.feed_forward_delta"]) < 1e-12
        total = sum(seen[f"blocks.{i}.{part}"] for part in ("norm.input", "attention_delta", "feed_forward_delta"))
        assert relative_error(total, seen[f"blocks.{i}.stream"]) < 1e-12


@torch.no_grad()
def test_layer_norm_without_its_shift() -> None:
    model, base = stage_model("layer-norm-no-bias"), stage_model("pre-norm")
    assert not any(name.endswith("norm.bias") for name, _ in model.named_parameters())
    missing = base.load_state_dict(model.state_dict(), strict=False)
    assert missing.unexpected_keys == [] and all(name.endswith("norm.bias") for name in missing.missing_keys)
    for name in missing.missing_keys:
        base.get_parameter(name).zero_()
    ids = random_ids(base, 2, 40)
    assert torch.equal(model(ids), base(ids))


@torch.no_grad()
def test_zero_centred_gains_are_the_same_functions() -> None:
    model, base = stage_model("zero-centred-norm", dtype=torch.float64), stage_model("qk-norm", dtype=torch.float64)
    for name, weight in model.state_dict().items():
        base.get_parameter(name).copy_(weight + 1 if "norm" in name else weight)
    ids = random_ids(base, 2, 40)
    assert relative_error(model(ids), base(ids)) < 1e-13
    fresh = morph.build(model.config)
    assert all((weight == 0).all() for name, weight in fresh.named_parameters() if "norm" in name)


@torch.no_grad()
def test_qk_norm_across_heads() -> None:
    model = stage_model("qk-norm-full-width", dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, 12))
    for block, layer in zip(model.blocks, (f"blocks.{i}.attention" for i in range(4)), strict=True):
        for side, norm in (("queries", block.attention.q_norm), ("keys", block.attention.k_norm)):
            before, after = seen[f"{layer}.projected_{side}"], seen[f"{layer}.unrotated_{side}"]
            gain = norm.weight.view(before.shape[1], 1, -1)
            expected = gain * before / (before.square().mean((1, 3), keepdim=True) + 1e-5).sqrt()
            assert relative_error(after, expected) < 1e-12
            assert torch.equal(seen[f"{layer}.{side[0]}_norm.input"], before)


# ---- layouts ----


def test_which_layers_are_global() -> None:
    def globals_of(slug: str, size: str) -> list[int]:
        config = morph.fork(slug, size)
        return [i for i in range(config.n_layers) if not isinstance(config.mixer(i), SlidingWindow)]

    assert globals_of("window-1-1", "tiny") == [1, 3]
    assert globals_of("window-5-1", "tiny") == [] and globals_of("window-5-1", "small") == [5, 11]
    assert globals_of("all-local", "small") == []


@torch.no_grad()
def test_windows_reach_no_further_than_they_can() -> None:
    """A token changed L (w - 1) back is felt, one more step back it is not."""
    model = stage_model("all-local", dtype=torch.float64)
    reach = 4 * (16 - 1)
    ids = random_ids(model, 1, LENGTH)
    before = model(ids)[0, -1]
    for back, is_felt in ((reach, True), (reach + 1, False)):
        changed = ids.clone()
        changed[0, -1 - back] = (changed[0, -1 - back] + 7) % 256
        assert torch.equal(model(changed)[0, -1], before) is not is_felt, back
    same = morph.build(morph.fork("window-5-1", "nano")).eval().double()
    same.load_state_dict(model.state_dict())
    assert torch.equal(same(ids)[0, -1], before), "with four layers, 5 : 1 has no global one"


# ---- attention ----


def test_without_qk_norm_the_next_step_is_undone() -> None:
    assert morph.fork("no-qk-norm", "nano") == morph.stage("gqa", "nano")


@pytest.mark.parametrize("slug", ["gated-attention", "headwise-gate"])
@torch.no_grad()
def test_gates_multiply_what_the_heads_gathered(slug: str) -> None:
    model = stage_model(slug, dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, 12))
    for i, block in enumerate(model.blocks):
        attention, name = block.attention, f"blocks.{i}.attention"
        normed = block.attention_norm(seen[f"blocks.{i}.attention_norm.input"])
        gate = torch.sigmoid(normed @ attention.gate_proj.weight.T).view(2, 12, 4, -1).transpose(1, 2)
        assert relative_error(seen[f"{name}.gate"], gate.expand(2, 4, 12, 12)) < 1e-12
        assert gate.shape[-1] == (12 if slug == "gated-attention" else 1)
        gated = (seen[f"{name}.heads"] * gate).transpose(1, 2).flatten(2)
        assert relative_error(seen[f"blocks.{i}.attention_delta"], gated @ attention.o_proj.weight.T) < 1e-12


@torch.no_grad()
def test_a_soft_cap_bounds_the_scores() -> None:
    """Against the formula, with a cap that bites; a wide one leaves the base."""
    model, base = stage_model("logit-softcap", dtype=torch.float64), stage_model("qk-norm", dtype=torch.float64)
    ids = random_ids(model, 2, 30)
    assert 1e-5 < relative_error(model(ids), base(ids)) < 0.05, "QK-norm has bounded them already"
    config = morph.fork("logit-softcap", "nano")
    attention = replace(config.attention, softcap=replace(config.attention.softcap, cap=1.5))
    capped = morph.build(replace(config, attention=attention)).double()
    capped.load_state_dict(base.state_dict())
    with morph.trace(capped) as bounded, morph.trace(base) as free:
        capped(ids), base(ids)
    ours, raw = (seen["blocks.0.attention.scores"] for seen in (bounded, free))
    finite = raw > float("-inf")
    assert torch.equal(ours > float("-inf"), finite) and float(raw[finite].abs().max()) > 2
    assert relative_error(ours[finite], 1.5 * torch.tanh(raw[finite] / 1.5)) < 1e-12
    weights, values = bounded["blocks.0.attention.weights"], bounded["blocks.0.attention.values"]
    heads = weights @ values.repeat_interleave(2, dim=1)
    assert relative_error(bounded["blocks.0.attention.heads"], heads) < 1e-12


@torch.no_grad()
def test_biases_on_queries_keys_and_values_alone() -> None:
    model, base = stage_model("qkv-bias", dtype=torch.float64), stage_model("qk-norm", dtype=torch.float64)
    left = base.load_state_dict(model.state_dict(), strict=False)
    assert left.unexpected_keys == [f"blocks.{i}.attention.{n}_proj.bias" for i in range(4) for n in "qkv"]
    ids = random_ids(base, 2, 30)
    before = model(ids)
    for name in ("q", "k", "v"):
        getattr(model.blocks[0].attention, f"{name}_proj").bias.zero_()
        assert relative_error(model(ids), before) > 1e-3, name
        before = model(ids)


def test_one_key_value_head_has_the_smallest_cache() -> None:
    pairs = [morph.count(config).kv_bytes_per_token for config in (morph.stage(6), morph.stage(7), morph.fork("mqa"))]
    assert pairs == [1536, 768, 384]


# ---- feed-forward ----


@pytest.mark.parametrize(
    ("slug", "form"),
    [
        ("gelu", lambda z: z * torch.distributions.Normal(0, 1).cdf(z)),
        ("relu-squared", lambda z: torch.where(z > 0, z * z, 0)),
        ("geglu", lambda z: z * torch.distributions.Normal(0, 1).cdf(z)),
    ],
)
@torch.no_grad()
def test_activations_are_their_formulas(slug: str, form: Callable[[Tensor], Tensor]) -> None:
    model = stage_model(slug, dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 9))
    for i, block in enumerate(model.blocks):
        hidden = form(seen[f"blocks.{i}.feed_forward.preactivation"])
        if slug == "geglu":
            hidden = hidden * seen[f"blocks.{i}.feed_forward.value"]
        delta = seen[f"blocks.{i}.feed_forward_delta"]
        assert relative_error(block.feed_forward.down(hidden), delta) < 1e-6


# ---- all ----


@EACH
def test_branches_start_with_their_bases_size(fork: Fork) -> None:
    """RMS over all layers of what each half writes, within 1.4 of the base; normalized branches have their own."""
    if fork.slug in ("sandwich-norm", "depth-scaled-gain", "post-branch-norm"):
        return
    least = 0.4 if fork.slug == "switch-top-1" else 1 / 1.4  # its one expert is multiplied by a probability below 1
    for now, before in zip(branch_sizes(fork.slug), branch_sizes(fork.base), strict=True):
        ratio = (sum(x * x for x in now) / sum(x * x for x in before)) ** 0.5
        assert least < ratio < 1.4
