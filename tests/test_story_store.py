"""The store of figures: what is read back equals what was made, and any change makes it anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import morph
from morph.errors import MorphError
from morph.story import figure, store
from morph.story.frame import Array, Claim, Figure, Frame
from tests.scene_boards import SWEEP


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(store.PLACE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_figure_is_made_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = store.stored("morph", sweep=SWEEP)
    assert made.to_dict() == json.loads(json.dumps(figure("morph", sweep=SWEEP).to_dict()))

    def never(name: str, **options: object) -> Figure:
        raise AssertionError("made twice")

    monkeypatch.setattr(store, "figure", never)
    assert store.stored("morph", sweep=SWEEP).to_dict() == made.to_dict()
    with pytest.raises(AssertionError, match="made twice"):
        store.stored("morph")  # the reference sweep holds other numbers


def test_what_is_no_number_is_json_all_the_same() -> None:
    values = np.array([[1.5, np.nan], [np.nan, 2.0]], np.float32)
    frame = Frame(
        key="k", title="t", caption="c", alt="a", claim=Claim(text="t", holds=lambda f: True),
        arrays={"a": Array(values=values, axes=("i", "j"))},
    )  # fmt: skip
    text = json.dumps(frame.to_dict(), allow_nan=False)
    back = Frame.from_dict(json.loads(text)).arrays["a"].values
    np.testing.assert_array_equal(back, values)
    assert back.dtype == np.float32 and json.dumps(Frame.from_dict(json.loads(text)).to_dict()) == text


def test_a_damaged_file_is_made_anew(place: Path) -> None:
    store.stored("morph", sweep=SWEEP)
    (kept,) = place.glob("morph-*.json")
    whole = kept.read_text()
    kept.write_text(whole[: len(whole) // 2])
    assert len(store.stored("morph", sweep=SWEEP)) == 14
    assert kept.read_text() == whole


def test_a_place_that_cannot_be_written_costs_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(store.PLACE, str(tmp_path / "file" / "below"))
    assert len(store.stored("morph", sweep=SWEEP)) == 14


def test_the_name_follows_from_everything_the_figure_depends_on(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "code.py").write_text("one = 1\n")
    (package / "cli.py").write_text("")
    assert all((store._PACKAGE / name).exists() for name in store._LEFT_OUT)
    first = store.code_digest(package, ("cli.py",))
    store.code_digest.cache_clear()
    (package / "cli.py").write_text("changed")
    assert store.code_digest(package, ("cli.py",)) == first
    store.code_digest.cache_clear()
    (package / "inner" / "code.py").write_text("one = 2\n")
    assert store.code_digest(package, ("cli.py",)) != first

    run = tmp_path / "run"
    run.mkdir()
    (run / "latest").write_text("step-000010\n")
    before = store.digest("rope", {"model": str(run)})
    assert store.digest("rope", {"model": str(run), "seed": 1}) != before != store.digest("moe", {"model": str(run)})
    (run / "latest").write_text("step-000020\n")
    assert store.digest("rope", {"model": str(run)}) != before


def test_a_model_is_what_it_holds() -> None:
    import torch

    model = morph.build(morph.stage(13, "nano"))
    before = store.digest("rope", {"model": model})
    assert before == store.digest("rope", {"model": morph.build(model.config)})
    with torch.no_grad():
        model.get_buffer("blocks.1.feed_forward.router.selection_bias")[3] += 0.5
    assert store.digest("rope", {"model": model}) != before


@pytest.mark.parametrize("name", ["mrope", "", 3, None, ["rope"], "../rope", "r\0"])
def test_what_is_no_figure_is_named(place: Path, name: str) -> None:
    with pytest.raises(MorphError, match="no figure is called"):
        store.stored(name)


@pytest.mark.parametrize("model", ["", "x" * 5000, "a\0b", 3.7])
def test_what_is_no_model_is_named(place: Path, model: str) -> None:
    with pytest.raises(MorphError, match="is no folder of a run or checkpoint, no stage and no fork"):
        store.stored("rope", model=model)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "x"])
def test_a_seed_that_no_run_has(place: Path, seed: int) -> None:
    with pytest.raises(MorphError, match="give a whole number from 0 to 4294967295"):
        store.stored("rope", model="9", seed=seed)


def test_a_run_of_any_name(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders may be called what no figure can set: a byte that is no UTF-8, a line's end, sixty letters."""
    import morph.train
    from morph.story.subject import subject

    text = tmp_path / os.fsdecode(b"text\xff.py")
    text.write_text("for key in keys: total += counts[key]\n" * 200)
    corpus = morph.train.load_corpus(text)
    config = morph.stage(0, "nano")
    out = tmp_path / os.fsdecode(b"\xff\nrun" + b"n" * 60)
    morph.train.Run.create(out, config, morph.train.Recipe(), corpus, "cpu", "2017")
    monkeypatch.setattr(morph.train, "load_model", lambda run: morph.build(config))
    shown = subject(str(out))
    assert shown.name == f"your run ??run{18 * 'n'}… (2017), 0 steps"
    json.dumps(shown.provenance, ensure_ascii=False).encode()
    assert len(store.digest("rope", {"model": str(out)})) == 24
    assert len(store.stored("rope", model=str(out)).frames) == 12


def test_the_oldest_figures_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT", 2)
    place.mkdir()
    for name in ("a", "b", "c"):
        (place / f"{name}.json").write_text("{}")
    store.stored("morph", sweep=SWEEP)
    assert len(list(place.glob("*.json"))) == 2 and len(list(place.glob("morph-*.json"))) == 1


def test_reading_back_needs_no_torch(place: Path) -> None:
    store.stored("morph", sweep=SWEEP)
    code = (
        "import sys; from pathlib import Path; from morph.story.store import stored;"
        f"assert len(stored('morph', sweep=Path({str(SWEEP)!r}))) == 14; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_option_that_a_figure_does_not_take_is_named(place: Path) -> None:
    with pytest.raises(MorphError, match="figure 'morph' takes no model; it takes sweep"):
        store.stored("morph", model="9")
