"""Folders of runs and of released checkpoints: what they are taken for, the text they write, what is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import morph
from morph import cli, hf
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.folder import Folder, config_named
from morph.story.subject import subject
from morph.vocabulary import Bytes, Numbers, Pieces
from morph.writing import continue_text, tokens_of
from tests.checkpoints import byte_level, maker, sentence_pieces, write_checkpoint
from tests.tools import need


def llama(**changes: Any) -> ModelConfig:
    """Two layers that transformers' Llama can hold."""
    base = replace(morph.stage("gqa", "nano"), vocab_size=512, n_layers=2, embedding_scale=1.0)
    return replace(base, tied=False, context_length=64, **changes)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with a tokenizer that begins each text, and an end."""
    folder = tmp_path_factory.mktemp("released") / "small llama"
    write_checkpoint(folder, llama(), "llama", byte_level(), bos_token="<|begin|>", eos_token="<|end|>")
    return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    """One to change."""
    made = tmp_path / "copy"
    made.mkdir()
    for file in place.iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    return made


# ---- what a folder is ----


def test_a_checkpoint_is_recognised(place: Path) -> None:
    folder = Folder.at(place)
    assert (folder.kind, folder.name, folder.described) == ("checkpoint", "small llama", "llama")
    assert folder.config == llama() and isinstance(folder.vocabulary, Pieces)
    assert folder.vocabulary.start == (0,) and folder.vocabulary.stop == {1} and folder.left_out == ()
    ids = torch.arange(20)[None]
    assert torch.equal(folder.model()(ids), hf.load(place)(ids))
    assert folder.model(torch.bfloat16).embedding.weight.dtype == torch.bfloat16


def test_a_run_keeps_bytes(tmp_path: Path) -> None:
    (tmp_path / "text.py").write_text("for key in keys: total += counts[key]\n" * 200)
    from morph.train import Recipe, Run, load_corpus, train

    corpus = load_corpus(tmp_path / "text.py")
    run = Run.create(tmp_path / "run", morph.stage(0, "nano"), Recipe(steps=1, batch_size=2), corpus, "cpu", "2017")
    train(run, corpus=corpus)
    folder = Folder.at(tmp_path / "run")
    assert (folder.kind, folder.described) == ("run", "2017") and isinstance(folder.vocabulary, Bytes)
    assert folder.config == morph.stage(0, "nano") and folder.left_out == ()
    assert tokens_of(tmp_path / "run", "é") == [(0xC3, "c3"), (0xA9, "a9")]
    assert config_named(str(tmp_path / "run"), "tiny") == ("run", morph.stage(0, "nano"))
    assert subject(tmp_path / "run").vocabulary == Bytes()


def refusals(path: Path) -> Iterator[tuple[Path, str]]:
    yield path / "nowhere", "no run at .*nowhere, and no checkpoint: give a run"
    (path / "file").write_text("")
    yield path / "file", "file is a file, not a folder"
    (path / "hollow").mkdir()
    yield path / "hollow", "hollow is not a complete run and no checkpoint: it has no config.json"
    hub = path / "models--org--name" / "snapshots" / "0123"
    hub.mkdir(parents=True)
    (hub / "config.json").write_text("{}")
    yield hub.parent.parent, "holds downloads of a model: give one of them, such as .*0123"
    for name, text, told in (
        ("empty", "{}", "names no model_type, and without a recipe.json"),
        ("ours", json.dumps(morph.stage(0).to_dict()), "names no model_type, and without a recipe.json"),
        ("list", "[]", "config.json holds no table"), ("broken", "{", "config.json cannot be read"),
        ("deep", "[" * 10**5, "config.json cannot be read"),
    ):  # fmt: skip
        (path / name).mkdir()
        (path / name / "config.json").write_text(text)
        yield path / name, told


def test_other_folders_are_refused(tmp_path: Path) -> None:
    for path, told in refusals(tmp_path):
        with pytest.raises(MorphError, match=told):
            Folder.at(path)


def test_an_unknown_family_and_missing_weights_are_told(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    assert Folder.at(copy).config == llama()  # counting needs no weights
    with pytest.raises(MorphError, match=r"has neither model\.safetensors nor"):
        continue_text(copy, "x", 1, 0.0, None, None, 0)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "llamma"}))
    with pytest.raises(MorphError, match=r"model_type = 'llamma' is unknown; .*did you mean 'llama'"):
        subject(copy)


def test_parts_beside_the_language_model_are_left_out_and_told(copy: Path, run_here: Any) -> None:
    """Towers and predictors change no logit of a text; any other unknown weight is refused."""
    tensors = load_file(copy / "model.safetensors")
    others = {"model.visual.patch.weight": torch.ones(3), "mtp.norm.weight": torch.ones(2)}
    others |= {"model.layers.2.eh_proj.weight": torch.ones(1)}  # a layer more than the config says: a predictor
    save_file(tensors | others, copy / "model.safetensors")
    assert Folder.at(copy).left_out == ("mtp.*", "model.visual.*", "model.layers.2.*")
    ids = torch.arange(20)[None]
    save_file(tensors, copy / "plain.safetensors")
    assert torch.equal(Folder.at(copy).model()(ids), _from(copy, tensors)(ids))
    assert subject(copy).provenance["left_out"] == ["mtp.*", "model.visual.*", "model.layers.2.*"]
    done = run_here("generate", str(copy), "--prompt", "x", "--max-new-tokens", "1")
    assert done[0] == 0 and "morph: left out mtp.*, which no text depends on\n" in done[2]
    save_file(tensors | {"model.layers.0.extra.weight": torch.ones(1)}, copy / "model.safetensors")
    with pytest.raises(MorphError, match=r"weight model\.layers\.0\.extra\.weight has no place"):
        Folder.at(copy).model()


def _from(folder: Path, tensors: dict[str, torch.Tensor]) -> morph.Decoder:
    (folder / "plain").mkdir()
    (folder / "plain" / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(tensors, folder / "plain" / "model.safetensors")
    return hf.load(folder / "plain")


def test_more_than_the_memory_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = morph.count(llama()).total
    monkeypatch.setattr("morph.folder.available_memory", lambda device: 2 * parameters)
    with pytest.raises(MorphError, match=r"takes 0.0 GB of memory as float32, and 0.0 GB are free: choose a smaller"):
        subject(place)
    assert Folder.at(place).model(torch.bfloat16).config == llama()


# ---- text ----


@pytest.mark.parametrize("kind", ["byte level", "sentence pieces"])
def test_greedy_text_is_that_of_transformers(tmp_path: Path, kind: str) -> None:
    """Its own generation with the folder's tokenizer, first token included."""
    need("transformers")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = byte_level() if kind == "byte level" else sentence_pieces()
    config = llama(vocab_size=tokenizer.get_vocab_size())
    folder = write_checkpoint(tmp_path / "model", config, "llama", tokenizer, seed=3)
    theirs, reader = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for prompt in ("def longest(values):", "  é"):
        inputs = reader(prompt, return_tensors="pt")
        written = theirs.generate(**inputs, max_new_tokens=20, do_sample=False, pad_token_id=0)
        expected = reader.decode(written[0], skip_special_tokens=True)
        assert continue_text(folder, prompt, 20, 0.0, None, None, 0) == expected
        assert expected.lstrip().startswith(prompt.lstrip()) and len(expected) > len(prompt) + 10


def test_a_text_ends_where_the_model_ends_it(copy: Path) -> None:
    vocabulary = Folder.at(copy).vocabulary
    whole = continue_text(copy, "def ", 12, 0.0, None, None, 0)
    model, ids = Folder.at(copy).model(), torch.tensor([[0, *vocabulary.read("def ")]])
    made = morph.generate(model, ids, 12, temperature=0)[0, ids.shape[1] :].tolist()
    last = next(i for i, token in enumerate(made) if 1 < i < 11 and token not in made[:i])
    for name in ("generation_config.json", "config.json"):
        table = json.loads((copy / name).read_text()) if (copy / name).exists() else {}
        (copy / name).write_text(json.dumps(table | {"eos_token_id": [made[last]]}))
        short = continue_text(copy, "def ", 12, 0.0, None, None, 0)
        assert whole.startswith(short) and short == vocabulary.write([*ids[0].tolist(), *made[: last + 1]])
        (copy / "generation_config.json").unlink(missing_ok=True)


def test_rows_end_one_by_one() -> None:
    model = morph.build(llama()).eval()
    prompts = torch.tensor([[5, 6, 7], [8, 9, 10]])
    free = morph.generate(model, prompts, 10, temperature=0)
    ends = [int(free[0, 5]), int(free[1, 8])]
    written = morph.generate(model, prompts, 10, temperature=0, stop=ends)
    firsts = [next(i for i in range(3, 13) if int(row[i]) in ends) for row in free]
    for row, first in enumerate(firsts):
        assert torch.equal(written[row, : first + 1], free[row, : first + 1])
        assert (written[row, first:] == free[row, first]).all()
    assert written.shape[1] == 1 + max(firsts)


def test_ids_that_stand_for_nothing_are_never_drawn(tmp_path: Path) -> None:
    """A vocabulary padded to a round number, as most are; every id beyond the tokenizer's would be `#...`."""
    folder = write_checkpoint(tmp_path / "padded", llama(vocab_size=4096), "llama", byte_level())
    for top_k in (None, 4096, 10**30):
        text = continue_text(folder, "def ", 40, 50.0, top_k, None, 0)
        again = Folder.at(folder).vocabulary.read(text)
        assert text.startswith("def ") and len(again) > 8 and max(again) < 512


def test_a_folder_without_a_tokenizer_takes_ids_alone(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bare", llama(), "llama")
    assert isinstance(Folder.at(folder).vocabulary, Numbers)
    for ask in (lambda: continue_text(folder, "x", 3, 0.0, None, None, 0), lambda: tokens_of(folder, "x")):
        with pytest.raises(MorphError, match=r"bare has no tokenizer\.json: put the model's own tokenizer\.json there"):
            ask()
    assert morph.generate(hf.load(folder), torch.tensor([[1, 2]]), 3).shape == (1, 5)


# ---- the command line ----


@pytest.fixture
def run_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Call the command line in an empty folder; returns exit code and output."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[Any, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        return ended.value.code, *capsys.readouterr()

    return call


def test_commands_take_a_checkpoint(place: Path, run_here: Any) -> None:
    code, out, err = run_here("count", str(place), "--context", "64")
    assert (code, err) == (0, "") and "small llama" in out.splitlines()[0]
    assert f"{morph.count(llama()).total:,}" in out and f"{morph.count(llama()).cache_bytes(64):,}" in out
    code, out, _ = run_here("diff", "gqa", str(place), "--size", "nano")
    changes = morph.diff(morph.stage("gqa", "nano"), llama())
    assert (code, out.splitlines()) == (0, [str(change) for change in changes]) and len(changes) == 4
    code, out, _ = run_here("tokenize", str(place), " self\t")
    assert code == 0 and out.splitlines()[0].split() == ["0", "<|begin|>"]
    assert [line.split()[1] for line in out.splitlines()] == ["<|begin|>", "␣self", "⇥"]
    code, out, err = run_here("generate", str(place), "--prompt", "def ", "--max-new-tokens", "5")
    assert (code, err) == (0, "") and out.startswith("def ")
    for words in (["tokenize", "nowhere", "x"], ["tokenize", str(place), ""], ["count", str(place.parent)]):
        code, out, err = run_here(*words)
        assert (code, out) == (2, "") and err.startswith("morph: ") and err.count("\n") == 1


# ---- the tool that makes one ----


def test_the_tool_makes_a_folder_that_learns(tmp_path: Path) -> None:
    """Few steps on little text: less is lost on it than by an even guess, and transformers reads the folder too."""
    need("transformers")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tool = maker()
    recipe = tool.RECIPE.with_(steps=12, batch_size=4)
    folder = tool.make(tmp_path / "made", recipe=recipe, learned_from=60_000)
    names = {"config", "generation_config", "tokenizer", "tokenizer_config"}
    assert {file.name for file in folder.iterdir()} == {f"{name}.json" for name in names} | {"model.safetensors"}
    held = Folder.at(folder)
    assert held.vocabulary.start == (0,) and held.vocabulary.stop == {1}
    ids = torch.tensor([held.vocabulary.read(tool.documents(4_000)[1])[:120]])
    with torch.no_grad():
        loss = held.model(torch.float32).loss(ids[:, :-1], ids[:, 1:]).cross_entropy.item()
    assert loss < 6.1 < torch.tensor(512.0).log().item()
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, held.model(torch.float32)(ids), rtol=0, atol=1e-4)
    assert AutoTokenizer.from_pretrained(folder)("x")["input_ids"][0] == 0
    with pytest.raises(MorphError, match="exists already and is never overwritten"):
        tool.make(folder, recipe=recipe)
    assert tool.main([str(folder)]) == 2 and tool.main([str(tmp_path / "x"), "--family", "lama"]) == 2


def test_the_page_on_checkpoints_lists_every_family() -> None:
    page = (Path(__file__).parent.parent / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    assert [name for name in hf.FAMILIES if f"`{name}`" not in page] == []
