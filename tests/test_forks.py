"""Forks: each is one change of its base, and keeps every law that the stages keep."""

from __future__ import annotations

import random
import re

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import MLA, ModelConfig
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


def chooses(model: Decoder) -> bool:
    """Whether an indexer chooses the tokens attended to."""
    return isinstance(model.config.attention, MLA) and model.config.attention.indexer is not None


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
        # close routes and choices of tokens can flip, for a few tokens
        assert float(alike.median() if model.config.moe or chooses(model) else alike.mean()) > 0.999


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


def branch_sizes(word: str) -> list[list[float]]:
    """RMS at init of what each half of each layer writes."""
    model = morph.build(config_of(word, "tiny"))
    with morph.trace(model) as seen, torch.no_grad():
        model(random_ids(model, 2, 128))
    halves = ("attention", "feed_forward")
    return [[float(seen[f"blocks.{i}.{half}_delta"].square().mean().sqrt()) for i in range(4)] for half in halves]


@EACH
def test_branches_start_with_their_bases_size(fork: Fork) -> None:
    """RMS over all layers of what each half writes, within 1.4 of the base; normalized branches have their own."""
    if fork.slug in ("sandwich-norm", "depth-scaled-gain", "post-branch-norm"):
        return
    least = 0.4 if fork.slug == "switch-top-1" else 1 / 1.4  # its one expert is multiplied by a probability below 1
    for now, before in zip(branch_sizes(fork.slug), branch_sizes(fork.base), strict=True):
        ratio = (sum(x * x for x in now) / sum(x * x for x in before)) ** 0.5
        assert least < ratio < 1.4
