"""The loop: what a step is, in numbers; how it stops, and what it refuses."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import morph
from morph.errors import MorphError
from morph.train import data, load_model
from morph.train.data import Corpus, load_corpus
from morph.train.device import World, available_devices, pick_device, pick_precision, world
from morph.train.loop import StepReport, fullest_share, make_optimizer, selection_biases, train
from morph.train.recipe import Recipe
from morph.train.runs import Run
from tests.test_train_data import folder
from tests.test_train_runs import RECIPE, assert_same_weights


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return load_corpus(folder(tmp_path / "text"))


def new_run(path: Path, corpus: Corpus, stage: int = 0, **changes: Any) -> Run:
    return Run.create(path, morph.stage(stage, size="nano"), RECIPE.with_(**changes), corpus, "cpu")


def test_training_learns_repeated_text(tmp_path: Path, corpus: Corpus) -> None:
    run = new_run(tmp_path / "run", corpus, stage=6, steps=40, batch_size=4, evaluate_every=40)
    reports: list[StepReport] = []
    outcome = train(run, corpus=corpus, on_step=reports.append)
    assert outcome.summary is not None
    assert reports[0].bits_per_byte == pytest.approx(8, abs=1.2)  # near uniform over 256 bytes
    assert reports[-1].bits_per_byte < 4.5
    assert outcome.summary.validation_bits_per_byte < 5.5
    assert outcome.summary.tokens == 40 * 4 * 64
    assert outcome.summary.train_bits_per_byte == pytest.approx(
        sum(r.bits_per_byte for r in reports[-4:]) / 4, rel=1e-12
    )
    assert json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 40
    assert reports[0].loss / math.log(2) == reports[0].bits_per_byte


def test_a_step_is_the_mean_over_its_micro_batches(tmp_path: Path, corpus: Corpus) -> None:
    run = new_run(tmp_path / "run", corpus, steps=1, accumulation=3, weight_decay=0.0)
    reports: list[StepReport] = []
    train(run, corpus=corpus, on_step=reports.append)

    model = morph.build(run.config, seed=0)
    losses = []
    for index in range(3):
        offsets = data.training_offsets(corpus.train.size, 64, 2, seed=0, step=0, index=index)
        ids, targets = (torch.from_numpy(x.copy()) for x in data.windows(corpus.train, offsets, 64))
        losses.append(model.loss(ids, targets).total)
    mean = torch.stack(losses).mean()
    mean.backward()
    assert reports[0].loss == pytest.approx(mean.item(), rel=1e-6)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert reports[0].gradient_norm == pytest.approx(norm.item(), rel=1e-5)
    # AdamW's first step moves every weight by the rate against the sign of its gradient (where eps does not matter).
    weight, trained = model.blocks[0].feed_forward.up.weight, load_model(run).blocks[0].feed_forward.up.weight
    clear = weight.grad.abs() > 1e-5
    moved = (trained - weight)[clear] / run.recipe.rate(0)
    assert clear.float().mean() > 0.5
    assert torch.allclose(moved, -weight.grad[clear].sign(), atol=0.01)


def test_decay_is_for_matrices_only() -> None:
    model = morph.build(morph.stage(0, size="nano"))
    matrices, vectors = make_optimizer(model, Recipe()).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert all(p.ndim >= 2 for p in matrices["params"])
    assert all(p.ndim == 1 for p in vectors["params"])
    assert len(matrices["params"]) + len(vectors["params"]) == len(list(model.parameters()))


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path: Path, corpus: Corpus) -> None:
    runs = [new_run(tmp_path / f"run{i}", corpus, stage=9, seed=seed) for i, seed in enumerate((3, 3, 4))]
    for run in runs:
        train(run, corpus=corpus)
    assert_same_weights(runs[0], runs[1])
    assert not torch.equal(load_model(runs[0]).embedding.weight, load_model(runs[2]).embedding.weight)


def test_stopping_ends_after_the_step_with_a_checkpoint(tmp_path: Path, corpus: Corpus) -> None:
    whole, broken = (new_run(tmp_path / name, corpus, stage=8, steps=6) for name in ("whole", "broken"))
    train(whole, corpus=corpus)
    stop = threading.Event()
    outcome = train(broken, corpus=corpus, stop=stop, on_step=lambda report: stop.set() if report.step == 3 else None)
    assert (outcome.step, outcome.summary) == (3, None)
    assert broken.latest() == broken.path / "checkpoints" / "step-000003"
    assert [r["step"] for r in broken.metrics()] == [1, 2, 3]
    train(broken, corpus=corpus)
    assert_same_weights(broken, whole)
    kept = ("step", "loss", "balance", "learning_rate", "gradient_norm", "validation_bits_per_byte")
    ours, theirs = ([{k: r.get(k) for k in kept} for r in run.metrics()] for run in (broken, whole))
    assert ours == theirs


def test_a_finished_run_is_not_trained_again(tmp_path: Path, corpus: Corpus) -> None:
    run = new_run(tmp_path / "run", corpus)
    first = train(run, corpus=corpus)
    assert train(run, corpus=corpus, on_step=lambda report: pytest.fail("trained")).summary == first.summary


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(tmp_path: Path, corpus: Corpus) -> None:
    run = new_run(tmp_path / "run", corpus, steps=9)
    state = threading.Event()

    def spoil(report: StepReport) -> None:
        if report.step == 3:
            state.set()

    original = morph.Decoder.loss

    def loss(self: Any, ids: Any, targets: Any) -> Any:
        parts = original(self, ids, targets)
        return type(parts)(parts.total * math.nan, parts.cross_entropy, parts.balance) if state.is_set() else parts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(morph.Decoder, "loss", loss)
        with pytest.raises(MorphError, match=r"training diverged at step 4 .*step-000002 is the last checkpoint"):
            train(run, corpus=corpus, on_step=spoil)
    model = load_model(run)
    assert all(p.isfinite().all() for p in model.parameters())
    assert run.latest() == run.path / "checkpoints" / "step-000002"


def test_bf16_autocast_trains_close_to_fp32(tmp_path: Path, corpus: Corpus) -> None:
    first: dict[str, float] = {}
    for precision in ("fp32", "bf16"):
        run = new_run(tmp_path / precision, corpus, stage=9, precision=precision)
        reports: list[StepReport] = []
        train(run, corpus=corpus, on_step=reports.append)
        first[precision] = reports[0].loss
        assert all(p.dtype == torch.float32 for p in load_model(run).parameters())
    assert first["bf16"] != first["fp32"]
    assert first["bf16"] == pytest.approx(first["fp32"], rel=0.01)


def test_load_is_measured_over_steps_for_experts_only(tmp_path: Path, corpus: Corpus) -> None:
    dense, experts = new_run(tmp_path / "dense", corpus), new_run(tmp_path / "experts", corpus, stage=12)
    for run in (dense, experts):
        train(run, corpus=corpus)
    assert all("load" not in r for r in dense.metrics())
    assert ["load" in r for r in experts.metrics()] == [False, True, False, True]
    assert all(1 <= r["load"] <= 32 / 7 for r in experts.metrics() if "load" in r)
    assert experts.metrics()[0]["balance"] > 0
    assert all("selection_bias" not in r for r in experts.metrics())
    assert fullest_share(torch.tensor([[1, 1, 1, 1], [5, 1, 1, 1]])) == pytest.approx((1 + 2.5) / 2)


def test_each_experts_share_and_bias_are_recorded_at_validation(tmp_path: Path, corpus: Corpus) -> None:
    run = new_run(tmp_path / "run", corpus, stage=13)
    train(run, corpus=corpus)
    records = run.metrics()
    assert ["expert_load" in r for r in records] == ["selection_bias" in r for r in records] == [False, True] * 2
    model = load_model(run)
    for record in (records[1], records[3]):
        shares = torch.tensor(record["expert_load"])
        assert shares.shape == (4, 32)
        assert torch.allclose(shares.sum(-1), torch.ones(4), atol=32 * 5e-5)
        assert record["load"] == pytest.approx(32 * shares.amax(-1).mean().item(), abs=32 * 5e-5)
    for layer, row in enumerate(records[3]["selection_bias"]):
        assert torch.allclose(torch.tensor(row), model.blocks[layer].feed_forward.router.selection_bias, atol=5e-7)
    assert torch.tensor(records[3]["selection_bias"]).abs().max() > 0.001
    assert selection_biases(morph.build(morph.stage(12, size="nano"))) is None


def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto") == torch.device(available_devices()[0])
    with pytest.raises(MorphError, match=r"no device 'cuda:77' on this machine: choose auto or one of .*cpu"):
        pick_device("cuda:77")
    with pytest.raises(MorphError, match="no device 'abacus'"):
        pick_device("abacus")
    assert pick_precision("auto", torch.device("cuda")) == "bf16"
    assert pick_precision("auto", torch.device("cpu")) == "fp32"
    assert pick_precision("bf16", torch.device("cpu")) == "bf16"


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "2"), ("WORLD_SIZE", "many"), ("RANK", "1"), ("RANK", "")])
def test_more_than_one_process_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    assert world() == World(rank=0, size=1)
    monkeypatch.setenv(name, value)
    with pytest.raises(MorphError, match=f"{name} is '{value}' and training uses one process"):
        world()
