"""Speculative decoding: the text is the greedy one, the drafts are the heads' own, and a trained model needs less."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import morph
from morph import speculation
from morph.cli import main
from morph.config import MTP, ModelConfig
from morph.errors import MorphError
from morph.forks import config_of
from morph.model import Decoder
from morph.speculation import Speculation, generate_speculative, greedy
from morph.train.checkpoint import load_model
from morph.train.data import load_corpus
from morph.train.loop import train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.models import random_ids, stage_model
from tests.test_train_data import folder

MIXERS = ("2017", "rope", "sliding-window", "hybrid", "learned-position", "alibi", "all-local", "window-1-1", "mla")
MIXERS += (
    "kda",
    "lightning",
    "hybrid-mla",
    "sparse-attention",
    "parallel-block",
    "attention-sink",
    "logit-cap",
    "dense-first",
)
DOUBLE = torch.float64


def drafting(word: str | ModelConfig, depth: int, seed: int = 0) -> Decoder:
    config = word if isinstance(word, ModelConfig) else config_of(word, "nano")
    return stage_model(replace(config, mtp=MTP(depth=depth)), seed, dtype=DOUBLE)


def all_but(n: int, seed: int = 0) -> list[int]:
    """All ids but n: a random model that may write few often guesses what it will write."""
    return torch.randperm(256, generator=torch.Generator().manual_seed(seed))[n:].tolist()


def check(model: Decoder, prompt: Tensor, n: int, lengths: Tensor | None = None, **kw: Sequence[int]) -> Speculation:
    """The text that `generate` writes, in counts that add up."""
    expected = morph.generate(model, prompt, n, temperature=0, lengths=lengths, **kw)  # type: ignore[arg-type]
    done = generate_speculative(model, prompt, n, lengths=lengths, **kw)
    assert torch.equal(done.ids, expected)
    assert done.written == expected.shape[1] - prompt.shape[1] and 0 <= done.accepted <= done.drafted
    return done


@pytest.mark.parametrize("word", MIXERS)
def test_the_text_is_the_greedy_one_for_every_mixer(word: str) -> None:
    """Prompts shorter and longer than a window, padded or not, one head and more; some drafts kept, others not."""
    kept = drafted = 0
    for depth, length in ((1, 23), (2, 5)):
        model = drafting(word, depth, seed=depth)
        prompt, lengths = random_ids(model, 2, length), torch.tensor([length, length - 3])
        runs = [check(model, prompt[:1], 8, never=all_but(2, seed)) for seed in range(4)]
        runs.append(check(model, prompt, 8, lengths, never=all_but(2)))
        kept, drafted = kept + sum(r.accepted for r in runs), drafted + sum(r.drafted for r in runs)
    assert 0 < kept < drafted


@pytest.mark.parametrize("word", ["rope", "sliding-window", "hybrid"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_shortest_prompts_and_texts(word: str, length: int) -> None:
    """Fewer tokens than heads; a text of one token needs no draft."""
    model = drafting(word, depth=4)
    prompt = random_ids(model, 1, length)
    for n in (1, 2, 3, 9):
        done = check(model, prompt, n, never=all_but(2))
        assert done.passes <= n and (n > 1 or (done.passes, done.drafted) == (1, 0))


def drafted_anew(model: Decoder, ids: Tensor, n: int, never: Sequence[int]) -> Tensor:
    """The same guesses without caches: every head over the whole text."""
    guessed, h = ids, model.read(ids[:, :-1])
    length = h.shape[1]
    for k in range(n):
        h = model.mtp[k](h, model.embed(guessed[:, k + 1 : k + 1 + length]), model.context(0, length))
        guessed = torch.cat((guessed, greedy(model.logits(h[:, -1:]), never)), dim=1)
    return guessed[:, ids.shape[1] :]


@pytest.mark.parametrize("word", ["2017", "sliding-window", "hybrid", "all-local", "mla"])
@pytest.mark.parametrize("n_ids", [2, 256])
def test_drafts_are_those_of_heads_that_read_everything_anew(
    word: str, n_ids: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every round, so also after guesses that were kept and after guesses that were not."""
    model = drafting(word, depth=3)
    never = list(range(n_ids, 256))
    original, rounds = speculation._Drafter.draft, 0

    def draft(self: speculation._Drafter, ids: Tensor, n: int) -> Tensor:
        nonlocal rounds
        found, rounds = original(self, ids, n), rounds + 1
        assert torch.equal(found, drafted_anew(model, ids, n, never))
        return found

    monkeypatch.setattr(speculation._Drafter, "draft", draft)
    check(model, random_ids(model, 2, 21), 24, never=never)
    assert rounds > 5


@pytest.mark.parametrize("word", ["sliding-window", "hybrid", "mla"])
@pytest.mark.parametrize("most", [1, 2, 1000])
def test_whatever_is_read_again_the_text_is_the_same(word: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never beside new tokens, for a while, always: what changes is the number of passes."""
    monkeypatch.setattr(speculation, "MOST_READ_AGAIN", most)
    model = drafting(word, depth=2)
    done = check(model, random_ids(model, 1, 30), 30)
    rounds = (done.drafted + 1) // 2
    assert done.accepted < 3 and done.passes >= 1 + rounds
    if most == 1000:
        assert done.passes == 1 + 29 - done.accepted, "one pass for each token that no guess foresaw"


def test_every_guess_kept_is_a_pass_saved() -> None:
    """With a trunk and heads that always write one token, each pass brings depth + 1."""
    model = drafting("hybrid", depth=3)
    done = check(model, random_ids(model, 2, 9), 41, never=list(range(1, 256)))
    assert (done.passes, done.drafted, done.accepted) == (1 + 10, 30, 30)
    done = check(model, random_ids(model, 2, 9), 40, never=list(range(1, 256)))
    assert (done.passes, done.drafted, done.accepted) == (1 + 10, 29, 29), (
        "the last pass drafts no more than is missing"
    )


def test_position_tables_are_not_read_beyond_their_end() -> None:
    model = drafting("learned-position", depth=3)
    prompt = random_ids(model, 1, 40)
    check(model, prompt, 25, never=all_but(2))
    with pytest.raises(MorphError, match="position 64 is beyond the last row, 63"):
        generate_speculative(model, prompt, 26)


def test_what_cannot_be_drafted_is_refused() -> None:
    plain, model = stage_model("hybrid"), drafting("rope", depth=1)
    ids = random_ids(model, 2, 9)
    with pytest.raises(MorphError, match=r"this model has no heads that draft; give one with mtp"):
        generate_speculative(plain, ids, 5)
    with pytest.raises(MorphError, match=r"max_new_tokens = 0 is below 1"):
        generate_speculative(model, ids, 0)
    with pytest.raises(MorphError, match=r"a row without a token cannot be continued"):
        generate_speculative(model, ids, 5, lengths=torch.tensor([9, 0]))


def test_a_model_in_training_stays_so_and_is_read_without_dropout() -> None:
    config = replace(config_of("rope", "nano"), dropout=morph.config.Dropout(rate=0.5))
    model = drafting(config, depth=1)
    ids = random_ids(model, 1, 9)
    expected = generate_speculative(model, ids, 9).ids
    model.train()
    assert torch.equal(generate_speculative(model, ids, 9).ids, expected) and model.training


# ---- trained ----

TEXT = "def add(first, second):\n    return first + second\n\n\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The fork at nano with two heads, a few seconds on code that repeats itself."""
    root = tmp_path_factory.mktemp("run")
    folder(root / "text")
    (root / "text" / "one.py").write_text(TEXT * 400)
    corpus = load_corpus(root / "text" / "one.py")
    recipe = Recipe(steps=60, batch_size=8, evaluate_every=60, evaluation_windows=4, checkpoint_every=60)
    run = Run.create(root / "run", replace(morph.fork("mtp", "nano"), mtp=MTP(depth=2)), recipe, corpus, "cpu")
    train(run, corpus=corpus)
    return run


def test_a_trained_model_writes_the_same_text_in_fewer_passes(trained: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(trained.path), "--prompt", "def add(first", "--max-new-tokens", "60"]
    shown = []
    for more in (["--temperature", "0"], ["--speculative"]):
        with pytest.raises(SystemExit) as end:
            main([*words, *more])
        assert end.value.code == 0
        shown.append(capsys.readouterr())
    assert shown[0].out == shown[1].out and shown[0].err == ""
    counts = re.fullmatch(r"(\d+) passes for 60 tokens; (\d+) of (\d+) drafts kept\n", shown[1].err)
    assert counts, shown[1].err
    passes, kept, drafted = map(int, counts.groups())
    assert kept > drafted / 3 > 0 and passes < 50 and passes + kept >= 60


def test_texts_end_where_greedy_ones_do(trained: Run) -> None:
    """Rows end at different places, on a guess that was kept and on others; all ended, nothing more is written."""
    model = load_model(trained).double()
    prompt = torch.tensor([list(b"def add(first, sec"), list(b"return first + sec")])
    places, kept = set(), 0
    for sign in "o)\ns :":
        done = check(model, prompt, 24, stop=[ord(sign)])
        places.add(done.written)
        kept += done.accepted
    assert min(places) < 8 and len(places) > 2 and kept > 10


@pytest.mark.parametrize("more", [["--temperature", "0.5"], ["--top-k", "3"], ["--top-p", "0.9"]])
def test_drafts_are_greedy_alone(trained: Run, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["generate", str(trained.path), "--prompt", "def", "--speculative", *more])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("morph: --speculative takes the likeliest token always: leave out")
