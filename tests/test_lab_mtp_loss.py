"""MTP's experiment: its FLOPs against torch's counter, and its drafts against speculative decoding itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import MTP
from morph.errors import MorphError
from morph.lab.experiments import e20_mtp_loss as e20
from morph.lab.fit import fit, start
from morph.lab.tasks import Text
from morph.lab.trial import Trial
from morph.measure.count import count
from morph.nn.organ import plain_forms
from morph.speculation import generate_speculative
from morph.train.recipe import Recipe
from tests.test_train_data import folder

RECIPE = Recipe(steps=20, batch_size=4, learning_rate=1e-2, evaluate_every=20, evaluation_windows=4)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    text = Text(path=str(folder(tmp_path_factory.mktemp("text") / "text")))
    made = start(e20.WITH_MTP, text, RECIPE)
    fit(made)
    return made


@pytest.mark.parametrize("depth", [1, 2])
def test_the_heads_flops_are_those_that_torch_counts(depth: int) -> None:
    config, length = replace(e20.PLAIN, n_layers=2, mtp=MTP(depth=depth)), 20
    ids = torch.arange(length)[None]
    found = {}
    for made in (config, replace(config, mtp=None)):
        counter = FlopCounterMode(display=False)
        with counter, plain_forms(), torch.no_grad():
            morph.build(made).loss(ids, ids)
        found[made] = counter.get_total_flops()
    hidden = sum(  # torch counts scores of pairs that the mask hides, too
        (f := count(replace(config, n_layers=1)).flops(S)).scores_dense - f.scores
        for S in range(length - depth, length)
    )
    assert e20.mtp_flops(config, length) == found[config] - found[replace(config, mtp=None)] - hidden
    assert e20.mtp_flops(e20.PLAIN, length) == 0
    with pytest.raises(MorphError, match="layers that are all global"):
        e20.mtp_flops(morph.fork("mtp", "nano"), length)


def test_the_longer_run_takes_the_same_flops() -> None:
    assert e20.LONGER > 1.3 * e20.STEPS
    assert e20.LONGER * e20.flops(e20.PLAIN) == pytest.approx(e20.STEPS * e20.flops(e20.WITH_MTP), rel=0.005)


def test_the_run_is_as_long_as_it_was(trial: Trial) -> None:
    assert e20.whole_run(trial) == pytest.approx(20 * 4 * e20.flops(e20.WITH_MTP) / 1e9)


def test_a_draft_is_accepted_where_speculative_decoding_accepts_it(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each prompt is continued by the trunk's own token: on the last column, drafts are the decoder's first."""

    def kept(text: torch.Tensor) -> int:
        """Drafts accepted over all columns of one text."""
        monkeypatch.setattr(trial, "held_out", lambda count: (text[:, :-1], text[:, 1:]))
        found = e20.drafts(trial)
        assert found is not None
        return round(found.accepted * (text.shape[1] - 2))

    here, decoded = [], []
    for n, row in enumerate(trial.held_out(12)[0]):
        done = generate_speculative(trial.model, row[None, : 20 + 3 * n], 3)
        decoded.append(done.passes == 2)  # three tokens in two passes: the first draft held
        text = done.ids[:, :-1]  # the prompt, the token after it, and what the trunk says of the next
        here.append(kept(text) - kept(text[:, :-1]) == 1)
    assert here == decoded and 0 < sum(decoded) < 12


def test_shares_of_drafts_by_hand(trial: Trial) -> None:
    found = e20.drafts(trial)
    assert found is not None
    ids = trial.held_out(e20.ROWS)[0]
    with torch.no_grad():
        written = trial.model(ids).argmax(-1)
    after: dict[int, list[int]] = {}
    for row, said in zip(ids.tolist(), written.tolist(), strict=True):
        for byte, next_one in zip(row[1:], said[1:], strict=True):
            after.setdefault(byte, []).append(next_one)
    best = sum(max(map(said.count, set(said))) for said in after.values())
    assert found.accepted_of_table == pytest.approx(best / (len(ids) * 63))
    assert e20.beyond_table(trial) == pytest.approx(found.accepted - found.accepted_of_table)
    assert (e20.accepted(trial), e20.right(trial)) == (found.accepted, found.right)
    assert 0 < found.right < 1


def test_a_model_without_heads_drafts_nothing(trial: Trial) -> None:
    plain = start(e20.PLAIN, trial.task, RECIPE)
    assert e20.drafts(plain) is e20.accepted(plain) is e20.beyond_table(plain) is e20.right(plain) is None
