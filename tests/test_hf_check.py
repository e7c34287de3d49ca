"""`morph hf check` and `info`: a report that names the first layer which differs, and exit codes for scripts."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from morph import cli, hf
from morph.config import Attention, ModelConfig
from morph.errors import MorphError
from morph.hf.checkpoint import load
from morph.hf.compare import Difference, Report
from tests.hf import edit_config, make_theirs
from tests.test_hf_dense import CASES, TOKENS


@pytest.fixture
def run_morph(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    def call(*arguments: str) -> tuple[Any, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma 3, six layers, a window of 8."""
    folder = tmp_path_factory.mktemp("gemma")
    make_theirs("gemma3_text", CASES["gemma3"][1] | TOKENS).save_pretrained(folder)
    return folder


def test_a_sound_folder_passes_with_every_layer_listed(gemma: Path, run_morph: Any) -> None:
    code, out, err = run_morph("hf", "check", str(gemma))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{gemma}: gemma3_text, 2 x 64 tokens, fp32"
    rows = [line.rsplit(None, 2) for line in lines[3:11]]
    assert [name for name, _, _ in rows] == ["embedding", *(f"layer {i}" for i in range(5)), "final norm", "logits"]
    assert all(0 <= float(error) < 1e-5 and float(size) > 0.1 for _, error, size in rows)
    assert rows[0][1] == "0.0e+00" and any(float(error) > 0 for _, error, _ in rows)
    assert lines[-1].startswith("The same as transformers: worst ") and lines[-1].endswith("tolerance 0.0001.")


def test_the_report_is_also_for_python(gemma: Path) -> None:
    report = hf.check(gemma, tokens=11, batch=3, seed=5)
    assert report.passed and report.first_wrong is None and report.shape == (3, 11)
    assert report.worst.error == max(row.error for row in report.rows) > 0
    assert report.notes == ()
    again = hf.check(gemma, tokens=11, batch=3, seed=5)
    assert again == report and hf.check(gemma, tokens=11, batch=3, seed=6) != report


def test_a_window_that_hid_nothing_is_told(gemma: Path, run_morph: Any) -> None:
    code, out, _ = run_morph("hf", "check", str(gemma), "--tokens", "8")
    assert code == 0
    assert "The window of 8 tokens hid nothing from 8: --tokens 24 would show it." in out


@pytest.mark.parametrize("layer", [0, 3, 5])
def test_the_first_layer_that_differs_is_named(
    layer: int, gemma: Path, run_morph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours is given a slip in one layer: its window's mask is right, its scale of scores is not."""

    def spoilt(folder: Path, **more: Any) -> Any:
        model = load(folder, **more)
        attention: Any = model.blocks[layer].attention
        attention.stretch *= 1.5
        return model

    monkeypatch.setattr("morph.hf.compare.load", spoilt)
    code, out, err = run_morph("hf", "check", str(gemma))
    assert (code, err) == (1, "")
    name = f"layer {layer}" if layer < 5 else "final norm"
    assert f"NOT the same as transformers, from {name} on: worst " in out
    marked = [line.rsplit(None, 3)[0] for line in out.splitlines() if line.endswith("←")]
    assert marked == [*(f"layer {i}" for i in range(layer, 5)), "final norm", "logits"]
    code, out, _ = run_morph("hf", "check", str(gemma), "--tolerance", "10")
    assert code == 0 and "tolerance 10." in out


def test_what_is_no_number_never_passes() -> None:
    rows = (Difference("a", 1e-7, 1.0), Difference("b", math.nan, 1.0), Difference("c", 1e-3, 1.0))
    report = Report("folder", "llama", (1, 2), 1e-2, rows)
    assert not report.passed and report.first_wrong == rows[1] and report.worst == rows[1]
    assert "NOT the same as transformers, from b on: worst nan (b)" in str(report)
    assert replace(report, rows=(rows[0], rows[2])).passed


def test_places_are_not_exceeded(tmp_path: Path, run_morph: Any) -> None:
    make_theirs("gpt2", CASES["gpt2-odd"][1] | TOKENS).save_pretrained(tmp_path)
    code, out, _ = run_morph("hf", "check", str(tmp_path))
    assert code == 0 and "2 x 41 tokens" in out
    code, out, err = run_morph("hf", "check", str(tmp_path), "--tokens", "42")
    assert (code, out) == (2, "") and "tokens = 42" in err and "at most 41" in err


@pytest.mark.parametrize(
    "options, words",
    [(("--tokens", "0"), "tokens = 0"), (("--tolerance", "0"), "tolerance = 0"), (("--tolerance", "nan"), "tolerance")],
)
def test_options_out_of_range(options: tuple[str, str], words: str, gemma: Path, run_morph: Any) -> None:
    code, out, err = run_morph("hf", "check", str(gemma), *options)
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1


def test_a_folder_that_cannot_be_read_is_one_line(tmp_path: Path, run_morph: Any) -> None:
    for command in ("check", "info"):
        for folder in (tmp_path / "nowhere", tmp_path):
            code, out, err = run_morph("hf", command, str(folder))
            assert (code, out) == (2, "") and err.startswith("morph: ") and err.count("\n") == 1
            assert str(folder) in err


def test_what_transformers_refuses_is_one_line(gemma: Path, tmp_path: Path, run_morph: Any) -> None:
    """A length that fits the head's width and not transformers' own check."""
    model = hf.load(gemma)
    folder = hf.save(model, tmp_path / "copy")
    edit_config(folder, layer_types=["sliding_attention"] * 5)
    code, out, err = run_morph("hf", "check", str(folder))
    assert (code, out) == (2, "") and "layer_types" in err and err.count("\n") == 1


def test_without_transformers_the_extra_is_named(gemma: Path) -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "transformers":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
from morph.cli import main
main(["hf", "check", sys.argv[1]])
"""
    done = subprocess.run([sys.executable, "-c", code, str(gemma)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "morph: comparing with Hugging Face's models needs transformers: pip install -e '.[hf]' in Morph's folder\n"
    )


def test_info_prints_the_config_and_its_costs(gemma: Path, run_morph: Any) -> None:
    code, out, err = run_morph("hf", "info", str(gemma))
    assert (code, err) == (0, "")
    text, costs = out.split(f"{'':<38}", 1)
    config = ModelConfig.from_toml(text)
    assert config == hf.read_config(gemma) and isinstance(config.attention, Attention)
    total = sum(parameter.numel() for parameter in hf.load(gemma).parameters())
    assert f"{total:,}" in costs.splitlines()[1] and gemma.name in costs


def test_help_lists_both(run_morph: Any) -> None:
    for arguments in (("hf",), ("hf", "--help")):
        code, out, _ = run_morph(*arguments)
        assert code == 0 and "check" in out and "info" in out
    code, out, err = run_morph("hf", "chek")
    assert code == 2 and "check" in err


def test_states_are_those_of_the_model_itself(gemma: Path) -> None:
    """The check reads the same tensors as a forward pass: a report of zeros would pass as well."""
    model = hf.load(gemma)
    ids = torch.randint(0, 99, (2, 11), generator=torch.Generator().manual_seed(0))
    logits: Tensor = model(ids)
    size = float(logits.detach().abs().max())
    assert math.isclose(hf.check(gemma, tokens=11, seed=0).rows[-1].size, size, rel_tol=1e-4)


def test_a_missing_class_is_told(gemma: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = hf.FAMILIES["gemma3_text"]
    monkeypatch.setitem(hf.FAMILIES, "gemma3_text", replace(family, architecture="Gemma9"))
    with pytest.raises(MorphError, match=r"transformers [\d.]+ has no Gemma9; install a newer release"):
        hf.check(gemma)
