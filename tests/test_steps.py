"""Each step is one change: of the config, of the parameters, and of nothing else."""

from __future__ import annotations

import re

import pytest
import torch

import morph
from morph.errors import MorphError
from morph.steps import SIZES, SLUGS, STEPS, number_of, stage
from tests.models import STAGES

# What may change in the state (parameters and saved buffers) of each step: new or gone names, and names reshaped.
NAMES = {
    1: r"norm\.(weight|bias)",
    2: r"(blocks\.\d+\.(attention|feed_forward)_)?norm\.bias",
    3: r"blocks\.\d+\.(attention\.[qkvo]_proj|feed_forward\.(up|down))\.bias",
    6: r"blocks\.\d+\.feed_forward\.gate\.weight",
    8: r"blocks\.\d+\.attention\.[qk]_norm\.weight",
    10: r"blocks\.\d+\.feed_forward\..*",
    12: r"blocks\.\d+\.feed_forward\.shared\.0\.(gate|up|down)\.weight",
    13: r"blocks\.\d+\.feed_forward\.router\.selection_bias",
    14: r"blocks\.[012]\.attention\..*",
}
SHAPES = {
    6: r"blocks\.\d+\.feed_forward\.(up|down)\.weight",
    7: r"blocks\.\d+\.attention\.[kv]_proj\.weight",
    11: r"blocks\.\d+\.feed_forward\.(router\.logits\.weight|experts\.(gate|up|down))",
    14: r"blocks\.[012]\.attention\.[qv]_proj\.weight",
}


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.slug)
def test_a_step_changes_its_config_fields_only(step: morph.steps.Step) -> None:
    for size in SIZES:
        changes = morph.diff(stage(step.number - 1, size), stage(step.number, size))
        assert changes, "a step must change something"
        outside = [c.path for c in changes if not any(f"{c.path}.".startswith(f"{path}.") for path in step.paths)]
        assert outside == []
        roots = {c.path.split(".")[0] for c in changes}
        assert len(roots) == 1


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.slug)
def test_a_step_changes_its_parameters_only_and_the_others_start_equal(step: morph.steps.Step) -> None:
    before = morph.build(stage(step.number - 1, "nano"), seed=3).state_dict()
    after = morph.build(stage(step.number, "nano"), seed=3).state_dict()
    names, shapes = NAMES.get(step.number, r"\Z."), SHAPES.get(step.number, r"\Z.")
    for name in before.keys() ^ after.keys():
        assert re.fullmatch(names, name), f"{step.slug} adds or drops {name}"
    for name in before.keys() & after.keys():
        if before[name].shape != after[name].shape:
            assert re.fullmatch(shapes, name), f"{step.slug} reshapes {name}"
        elif not re.fullmatch(shapes, name) and not re.fullmatch(names, name):
            scale = float(after[name].std() / before[name].std()) if before[name].std() > 0 else 1.0
            if step.number in (5, 12) and name.endswith(("down.weight", "experts.down")):
                assert torch.allclose(before[name] * scale, after[name], rtol=1e-4, atol=1e-6)  # branch size held
            else:
                assert torch.equal(before[name], after[name]), f"{step.slug} redraws {name}"


def test_every_pattern_above_is_used() -> None:
    for table, pick in ((NAMES, lambda a, b: a.keys() ^ b.keys()), (SHAPES, lambda a, b: a.keys() & b.keys())):
        for number, pattern in table.items():
            before = morph.build(stage(number - 1, "nano")).state_dict()
            after = morph.build(stage(number, "nano")).state_dict()
            assert any(re.fullmatch(pattern, name) for name in pick(before, after)), (number, pattern)


def test_the_parameter_budget_of_the_steps() -> None:
    total = [morph.count(stage(k, "nano")).total for k in STAGES]
    active = [morph.count(stage(k, "nano")).active.all for k in STAGES]
    assert total[5] == total[6], "8d/3 keeps the count to the digit"
    expert_share = 3 * 48 * 128 * 4  # all dense feed-forward weights of stage 9
    router = 4 * 48 * 8
    assert total[10] - total[9] == 3 * expert_share + router, "the total grows by three more networks and a router"
    assert active[10] - active[9] == router
    assert total[11] - total[10] == 4 * 48 * 24 == active[11] - active[10], "finer: only the router grows"
    assert active[12] == active[11]
    assert total[12] - total[11] == 4 * 3 * 48 * 16, "one expert more"
    assert total[13] == total[12]
    assert total[3] == total[4] == total[5] and total[8] == total[9]


def test_sizes() -> None:
    assert max(morph.count(stage(k, "nano")).total for k in STAGES) <= 400_000
    assert morph.count(stage(0, "small")).total == pytest.approx(124e6, rel=0.01)
    for size in SIZES.values():
        assert size.n_layers % 4 == 0
        assert size.d_model % 48 == 0
        assert size.d_model // 3 % 8 == 0  # the eighth of 8d/3, in bf16, is a multiple of 16 bytes


@pytest.mark.parametrize("stage_number", STAGES)
@pytest.mark.parametrize("size", ["nano", "tiny"])
def test_branches_keep_their_size_at_init(stage_number: int, size: str) -> None:
    """RMS of what each half writes, over all layers, within 1.4 of the stage before."""

    def sizes(number: int) -> list[float]:
        model = morph.build(stage(number, size), seed=0)
        ids = torch.randint(0, 256, (2, 128), generator=torch.Generator().manual_seed(5))
        with morph.trace(model) as seen, torch.no_grad():
            model(ids)
        return [
            sum(float(seen[f"blocks.{i}.{half}_delta"].square().mean()) for i in range(4)) ** 0.5 / 2
            for half in ("attention", "feed_forward")
        ]

    here = sizes(stage_number)
    assert here[1] == pytest.approx(1.0, rel=0.2), "a feed-forward branch writes what it reads, in size"
    if stage_number > 0:
        for now, before in zip(here, sizes(stage_number - 1), strict=True):
            assert 1 / 1.4 < now / before < 1.4


def test_steps_are_numbered_named_and_found() -> None:
    assert [step.number for step in STEPS] == list(range(1, 15))
    assert len(set(SLUGS)) == 15
    for k, slug in enumerate(SLUGS):
        assert number_of(k) == number_of(slug) == number_of(str(k)) == k
        assert stage(slug) == stage(k)
    assert SLUGS[0] == "2017"
    assert all(step.year in range(2017, 2027) and step.title and step.pressure and step.source for step in STEPS)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("gaq", "gqa"), ("pre_norm", "pre-norm"), (15, ""), (-1, ""), ("", ""), ("\u00b2", ""), ("\u0663", "")],
)
def test_unknown_stages_suggest_the_nearest(asked: int | str, hint: str) -> None:
    with pytest.raises(MorphError) as error:
        stage(asked)
    assert repr(str(asked)) in str(error.value)
    if hint:
        assert f"did you mean '{hint}'" in str(error.value)


def test_unknown_sizes_suggest_the_nearest() -> None:
    with pytest.raises(MorphError, match="did you mean 'tiny'"):
        stage(0, "tinny")
