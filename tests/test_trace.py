"""Watching a pass: names, shapes, copies, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import morph
from morph.errors import MorphError
from morph.measure.trace import SHAPES, Trace, describe
from morph.nn.organ import Organ
from tests.models import STAGES, random_ids, relative_error, stage_model

LETTERS = {"B": 2, "S": 20, "N": 20, "D": 48, "Dh": 12, "Dk": 12, "Dv": 12, "V": 256, "T": 40}


@pytest.mark.parametrize("stage", STAGES)
@torch.no_grad()
def test_every_recorded_tensor_is_documented_and_has_its_shape(stage: int) -> None:
    model = stage_model(stage)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, 20))
    moe = model.config.feed_forward
    for name, tensor in seen.items():
        shape, about = describe(name)
        assert about and tensor.ndim == len(shape.split()), name
        for letter, size in zip(shape.split(), tensor.shape, strict=True):
            if letter == "H":
                assert size == 4, name
            elif letter == "K":
                assert size == model.config.attention.n_kv_heads, name
            elif letter == "E":
                assert size == moe.n_experts  # type: ignore[union-attr]
            elif letter == "k":
                assert size == moe.top_k  # type: ignore[union-attr]
            elif letter != "F":
                assert size == LETTERS[letter], name


@torch.no_grad()
def test_all_documented_names_occur_in_some_stage_or_fork() -> None:
    seen_patterns = set()
    for stage in (*STAGES, *morph.FORKS):
        model = stage_model(stage)
        ids = random_ids(model, 1, 8)
        with morph.trace(model) as seen:
            model(ids)
            if len(model.mtp):  # its heads are heard in training only
                model.loss(ids[:, :-1], ids[:, 1:])
        seen_patterns |= {describe(name)[1] for name in seen if ".block." not in name}  # heads' blocks have blocks.*'s
    assert seen_patterns == {about for _, about in SHAPES.values()}


@pytest.mark.parametrize("stage", [1, 8, 14])
@torch.no_grad()
def test_the_stream_is_the_sum_of_its_deltas(stage: int) -> None:
    model = stage_model(stage, dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 2, 20))
    total = seen["stream"] + sum(
        seen[f"blocks.{i}.{half}_delta"] for i in range(4) for half in ("attention", "feed_forward")
    )
    assert relative_error(total, seen["blocks.3.stream"]) < 1e-12


def test_a_trace_closes_is_detached_and_survives_a_file(tmp_path: Path) -> None:
    model = stage_model(8)
    ids = random_ids(model, 1, 9)
    with pytest.raises(RuntimeError, match="stop"), morph.trace(model) as seen:
        model(ids)
        raise RuntimeError("stop")
    assert all(m.recorder is None for m in model.modules() if isinstance(m, Organ))
    count, stream = len(seen), seen["stream"].clone()
    model(random_ids(model, 1, 9, seed=4))
    assert len(seen) == count and torch.equal(seen["stream"], stream)
    assert not seen["logits"].requires_grad
    seen.save(tmp_path / "trace.safetensors")
    again = Trace.load(tmp_path / "trace.safetensors")
    assert again.keys() == seen.keys()
    assert all(torch.equal(again[name], seen[name]) for name in seen)


def test_files_that_cannot_be_are_told(tmp_path: Path) -> None:
    with pytest.raises(MorphError, match="cannot write"):
        Trace({"a": torch.ones(1)}).save(tmp_path / "no" / "where")
    with pytest.raises(MorphError, match="cannot read"):
        Trace.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(MorphError, match="is not a saved trace"):
        Trace.load(tmp_path / "text")


def test_an_unknown_name_suggests_the_nearest() -> None:
    model = stage_model(0)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 4))
    with pytest.raises(MorphError, match=r"did you mean 'blocks\.0\.attention\.weights'"):
        seen["blocks.0.attention.weight"]


def test_an_inner_trace_leaves_the_outer_one_whole() -> None:
    model = stage_model(8)
    with morph.trace(model) as outer:
        with morph.trace(model) as inner:
            model(random_ids(model, 1, 4))
        assert outer.keys() == inner.keys()
        model(random_ids(model, 1, 6))
    assert outer["stream"].shape[1] == 6 and inner["stream"].shape[1] == 4


@pytest.mark.parametrize("thing", [None, 3, morph.stage(9)])
def test_what_is_no_model_is_told(thing: object) -> None:
    with pytest.raises(MorphError, match="is no model to watch; give"), morph.trace(thing):  # type: ignore[arg-type]
        pass
