"""Figure 1 as data: captions, claims, the organs that change, the ledger."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from morph.config import diff
from morph.errors import MorphError
from morph.measure.count import count
from morph.steps import SIZES, SLUGS, STEPS, Step, stage
from morph.story import Frame, figure
from morph.story.block import organs, touched
from morph.story.morph import COSTS, LINE_WIDTH, MOST_LINES, config_lines
from morph.story.morph_claims import CLAIMS
from morph.train.sweep import HIGHER, LOWER, ONE_SEED, SeedRun, StageResult, Sweep
from tests.scene_boards import story, sweep

FRAMES = range(len(SLUGS))
CONTEXT = 512


def _at(index: int) -> Frame:
    frame = story().frames[index - 1] if index else story().opening
    assert frame is not None
    return frame


@cache
def _counted(size: str) -> Sweep:
    """A sweep of one seed whose costs are counted here and now, on live models."""
    results = []
    for k, slug in enumerate(SLUGS):
        cost = count(stage(k, size))
        results.append(
            StageResult(
                stage=k,
                slug=slug,
                parameters_total=cost.total,
                parameters_active=cost.active.all,
                kv_bytes_per_token=cost.kv_bytes_per_token,
                cache_context=CONTEXT,
                cache_bytes=cost.cache_bytes(CONTEXT),
                flops_per_token=cost.flops(CONTEXT).per_token,
                runs=(SeedRun(seed=5, bits_per_byte=3.0, cpu_seconds=1.0, train_bits_per_byte=3.0),),
            )
        )
    return dataclasses.replace(sweep(), size=size, seeds=(5,), stages=tuple(results))


def test_there_are_fourteen_frames_and_an_opening() -> None:
    assert [frame.key for frame in story().frames] == list(SLUGS[1:])
    assert _at(0).key == "2017"
    assert [frame.facts["step"] for frame in story().frames] == list(range(1, 15))


@pytest.mark.parametrize("index", FRAMES)
@pytest.mark.parametrize("size", ["nano", "tiny"])
def test_claims_hold_on_fresh_counts(size: str, index: int) -> None:
    made = figure("morph", sweep=_counted(size))
    frame = made.frames[index - 1] if index else made.opening
    assert frame is not None
    assert frame.check(), f"{frame.key}: {frame.claim.text}"


@pytest.mark.parametrize("index", FRAMES)
def test_claims_hold_on_the_recorded_sweep(index: int) -> None:
    assert _at(index).check(), _at(index).claim.text


@pytest.mark.parametrize("index", FRAMES)
def test_every_claim_can_fail(index: int) -> None:
    """One number of the last stage moved by a little, or doubled, breaks the claim about it."""
    frame = _at(index)
    verdicts = set()
    for name in COSTS:
        for change in (1, frame.arrays[name].values[-1], -(frame.arrays[name].values[-1] // 2)):
            values = frame.arrays[name].values.copy()
            values[-1] += change
            array = dataclasses.replace(frame.arrays[name], values=values)
            verdicts.add(dataclasses.replace(frame, arrays={**frame.arrays, name: array}).check())
    assert False in verdicts, CLAIMS[index].text


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.slug)
def test_a_step_changes_organs_of_its_own_and_no_others(step: Step) -> None:
    changed = set(_at(step.number).facts["changed"])
    assert changed, "a step that shows nothing"
    assert changed <= touched(step.paths)
    for size in SIZES:
        before, after = ({o.key: o for o in organs(stage(k, size))} for k in (step.number - 1, step.number))
        assert {k for k in {*before, *after} if before.get(k) != after.get(k)} == changed, size


def test_the_organs_say_what_the_config_says() -> None:
    named = {o["key"]: o for o in _at(14).facts["organs"]}
    assert named["attention"]["data"] == {"query": 4, "key_value": 2}
    assert named["attention.mask"]["data"]["layers"] == ["state", "state", "state", "full"]
    assert named["feed_forward"]["data"] == {"kind": "experts", "experts": 32, "chosen": 7, "width": 32}
    assert named["feed_forward.balance"]["label"] == "Selection bias"
    window = {o["key"]: o for o in _at(9).facts["organs"]}["attention.mask"]["data"]
    assert window["seen"] == 32 / 128
    assert {o["key"] for o in _at(0).facts["organs"]} == {
        "position.added", "attention", "attention.norm", "attention.bias", "attention.mask",
        "feed_forward", "feed_forward.norm", "feed_forward.bias",
    }  # fmt: skip


@pytest.mark.parametrize("index", FRAMES)
def test_the_ledger_marks_what_changed(index: int) -> None:
    rows = {row["key"]: row for row in _at(index).facts["ledger"]}
    before = {row["key"]: row for row in _at(max(index - 1, 0)).facts["ledger"]}
    assert list(rows) == ["parameters", "kv", "cache", "flops", "bits"]
    for key in ("parameters", "kv", "cache", "flops"):
        assert rows[key]["changed"] == (rows[key]["raw"] != before[key]["raw"]), key
    assert rows["parameters"]["raw"] == sweep()[index].parameters_total
    assert rows["parameters"]["value"] == f"{sweep()[index].parameters_total:,}"


def test_a_loss_is_marked_only_beyond_its_spread() -> None:
    verdicts = set()
    for step in STEPS:
        row = _at(step.number).facts["ledger"][-1]
        gap = sweep().difference(step.number)
        assert gap is not None
        assert row["verdict"] == gap.verdict
        assert row["changed"] == (gap.verdict in (LOWER, HIGHER))
        verdicts.add(row["changed"])
    assert verdicts == {True, False}, "the fixture should have both kinds"
    one = figure("morph", sweep=_counted("nano"))
    for frame in one.frames:
        row = frame.facts["ledger"][-1]
        assert (row["verdict"], row["changed"], row["note"], row["value"]) == (ONE_SEED, False, "one seed", "3.000")


def test_history_grows_by_a_stage_a_frame() -> None:
    for index in FRAMES:
        arrays = _at(index).arrays
        assert {a.axes for n, a in arrays.items() if n != "bits_per_byte"} == {("stage",)}
        assert arrays["bits_per_byte"].axes == ("stage", "seed")
        assert arrays["bits_per_byte"].values.shape == (index + 1, 3)
        assert arrays["flops_per_token"].values[-1] == sweep()[index].flops_per_token
        np.testing.assert_array_equal(arrays["kv_bytes_per_token"].values[0], sweep()[0].kv_bytes_per_token)


def test_captions_carry_the_numbers_of_their_sweep() -> None:
    assert f"{sweep()[6].parameters_total:,}" in _at(6).caption
    assert "1,536 to 768 bytes" in _at(7).caption
    assert "768 to 192 bytes" in _at(14).caption
    small = figure("morph", sweep=_counted("nano"))
    assert "see the last 16 tokens: at 512 tokens" in small.frames[8].caption
    assert small.frames[5].caption != _at(6).caption


def test_the_source_is_named() -> None:
    assert _at(1).source == "Your sweep: tiny, 300 steps, seeds 0, 1, 2. ± one deviation; right: paired, 95%."
    assert figure("morph", sweep=_counted("nano")).frames[0].source == (
        "Your sweep: nano, 300 steps, seed 5. FLOPs at 512 tokens."
    )
    assert story().provenance["seeds"] == [0, 1, 2]


def test_the_words_for_the_blind_name_step_change_and_ledger() -> None:
    alt = _at(4).alt
    for words in ("Step 4, Rotary positions", "Lit: RoPE", "Gone: position.added", "Parameters 467,808", "2.971"):
        assert words in alt


@pytest.mark.parametrize("size", SIZES)
def test_config_lines_fit_their_card(size: str) -> None:
    for step in STEPS:
        changes = diff(stage(step.number - 1, size), stage(step.number, size))
        lines = config_lines(changes)
        assert 1 <= len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= LINE_WIDTH + 1
        assert changes[0].path.rsplit(".", 1)[-1] in lines[0]
    assert config_lines(diff(stage(0), stage(1))) == ["placement: post → pre"]


def test_a_sweep_with_a_gap_is_refused() -> None:
    partial = dataclasses.replace(sweep(), stages=sweep().stages[:3] + sweep().stages[4:])
    with pytest.raises(MorphError, match="lacks no-bias; run morph sweep"):
        figure("morph", sweep=partial)
