"""The command line: every command, every refusal, and help without the heavy imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import morph
from morph import cli
from morph.steps import STEPS
from morph.story.subject import subject
from morph.train.runs import Run
from tests.test_train_data import folder
from tests.test_train_runs import tree

COMMANDS = (
    "tour",
    "steps",
    "forks",
    "show",
    "diff",
    "count",
    "train",
    "sweep",
    "generate",
    "tokenize",
    "render",
    "lab",
    "notebook",
    "site",
    "doctor",
)


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run_morph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Call the command line in an empty folder; returns exit code and output."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return Result(ended.value.code, out, err)  # type: ignore[arg-type]

    return call


def test_help_of_every_command_starts_without_the_heavy_imports() -> None:
    code = f"""
import sys, contextlib, io
from morph import cli
for command in {[[], *([c] for c in COMMANDS)]!r}:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            cli.main([*command, "--help"])
        except SystemExit as end:
            assert end.code == 0, (command, end.code)
    assert out.getvalue().startswith("Usage: morph"), command
heavy = {{"torch", "numpy", "matplotlib", "manim", "rich", "scenes"}} & set(sys.modules)
sys.exit(f"imported {{heavy}}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_top_help_lists_every_command(run_morph) -> None:
    bare, asked = run_morph(), run_morph("--help")
    assert (bare.code, asked.code) == (0, 0)
    assert bare.out == asked.out
    listed = bare.out.split("Commands:")[1].split()
    assert all(command in listed for command in COMMANDS)
    assert run_morph("--version").out == f"morph {morph.__version__}\n"


def test_the_help_of_render_names_every_figure(run_morph) -> None:
    told = run_morph("render", "--help").out.split("Arguments:")[1].split("[required]")[0]
    assert all(name in told for name in (*morph.story.names(), "all"))


def test_forks_are_listed_shown_compared_and_counted(run_morph) -> None:
    listed = run_morph("forks").out.splitlines()
    assert [line.split()[0] for line in listed] == list(morph.FORKS)
    shown, entry = run_morph("show", "window-1-1").out, morph.FORKS["window-1-1"]
    assert "config      layout.n_local: 3 → 1" in shown and entry.question in shown
    assert f"relation    {entry.relation}\n" in shown and "shipped by  Gemma 2, gpt-oss\n" in shown
    before, after = (morph.count(config) for config in (morph.stage(9), morph.fork("window-1-1")))
    assert f"{before.cache_bytes(1024):,}" in shown and f"{after.cache_bytes(1024):,}" in shown
    assert run_morph("diff", "attention-sink", "qk-norm").out == "attention.sink: Sink() → none\n"
    assert f" {after.total:,}\n" in run_morph("count", "window-1-1").out


def test_the_tree_is_plain_text_of_a_terminals_width(run_morph) -> None:
    lines = run_morph("steps", "--tree").out.splitlines()
    assert len(lines) == 15 + len(morph.FORKS) and max(map(len, lines)) <= 100
    assert "\x1b" not in "".join(lines)
    assert lines[0].startswith(" 0  2017 ") and lines[1].startswith(" │  └─ learned-position ")
    columns = set()
    for entry in (*STEPS, *morph.FORKS.values()):
        line = next(line for line in lines if f" {entry.slug} " in line)
        columns.add(line.rindex(f"  {entry.year}  {entry.title}"))
    assert len(columns) == 1, "years stand in one column"


def test_compositions_are_shown_compared_counted_and_trained(run_morph, tmp_path: Path) -> None:
    config = morph.compose("hybrid", "attention-sink", size="nano")
    assert run_morph("diff", "14", "14+attention-sink").out == "attention.sink: none → Sink()\n"
    shown = run_morph("show", "hybrid+attention-sink").out
    assert shown.startswith("Fork attention-sink: A sink in the softmax (gpt-oss, 2025), on hybrid\n")
    assert "config      attention.sink: none → Sink()" in shown
    counted = run_morph("count", "14+attention-sink", "--size", "nano").out
    assert "hybrid+attention-sink" in counted and f" {morph.count(config).total:,}\n" in counted
    refused = run_morph("count", "hybrid+gqa")
    assert (refused.code, refused.err) == (
        2, "morph: 'gqa' changes nothing in 'hybrid', which has it already: leave it out\n"
    )  # fmt: skip
    folder(tmp_path / "text")
    options = ("--size", "nano", "--data", "text", "--steps", "2", "--threads", "1", "--quiet")
    assert run_morph("train", "--stage", "14+attention-sink", *options).code == 0
    run = Run.load(tmp_path / "runs" / "hybrid+attention-sink-nano-seed0")
    assert (run.config, run.facts["stage"]) == (config, "hybrid+attention-sink")
    assert subject(run.path).config == subject("14+attention-sink", size="nano").config == config
    assert run_morph("generate", str(run.path), "--prompt", "a", "--max-new-tokens", "2").code == 0


def test_without_typer_one_line_names_the_extra() -> None:
    code = "import sys; sys.modules['typer'] = None; import morph.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "morph: the command line needs the extra 'train': pip install -e '.[train]'\n"


def test_steps_show_diff_and_count_tell_what_the_package_knows(run_morph) -> None:
    steps = run_morph("steps").out.splitlines()
    assert len(steps) == 15
    assert all(step.slug in line and str(step.year) in line for step, line in zip(STEPS, steps[1:], strict=True))

    shown = run_morph("show", "gqa").out
    assert "config      attention.n_kv_heads: 4 → 2" in shown
    assert STEPS[6].pressure in shown
    before, after = (morph.count(morph.stage(k)) for k in (6, 7))
    assert f"{before.kv_bytes_per_token:,}" in shown and f"{after.kv_bytes_per_token:,}" in shown
    assert 'placement = "post"' in run_morph("show", "0").out

    assert run_morph("diff", "0", "pre-norm").out == "placement: post → pre\n"
    assert run_morph("diff", "3", "3").out == ""

    counted = run_morph("count", "moe", "--size", "nano", "--context", "99").out
    count = morph.count(morph.stage(10, size="nano"))
    for number in (count.total, count.active.all, count.cache_bytes(99), count.flops(99).per_token):
        assert f" {number:,}\n" in counted


def test_train_then_generate(run_morph, tmp_path: Path) -> None:
    folder(tmp_path / "text")
    options = ("--size", "nano", "--data", "text", "--steps", "4", "--seed", "5", "--threads", "1", "--quiet")
    done = run_morph("train", "--stage", "rope", *options, "--out", "r")
    assert (done.code, done.err) == (0, "")
    assert "bits per byte on held-out text after 4 steps" in done.out
    run = Run.load(tmp_path / "r")
    assert (run.config, run.seed, run.facts["stage"]) == (morph.stage(4, size="nano"), 5, "rope")
    assert run_morph("train", "--out", "r", "--resume").out == "r is finished already: 4 steps\n"

    write = ("generate", "r", "--prompt", "file é", "--max-new-tokens", "12")
    first, again = run_morph(*write, "--seed", "1"), run_morph(*write, "--seed", "1")
    assert first.code == 0
    assert first.out.startswith("file é")
    assert first.out == again.out
    assert run_morph(*write, "--seed", "2").out != first.out
    cold = [run_morph(*write, "--temperature", "0", "--seed", seed).out for seed in "12"]
    assert cold[0] == cold[1]


def test_the_default_folder_is_named_after_the_run_and_config_files_train(run_morph, tmp_path: Path) -> None:
    folder(tmp_path / "text")
    common = ("--data", "text", "--steps", "1", "--threads", "1", "--quiet", "--size", "nano")
    assert run_morph("train", "--stage", "0", "--seed", "2", *common).code == 0
    assert Run.load("runs/2017-nano-seed2").recipe.steps == 1
    assert run_morph("train", "--stage", "attention-sink", *common).code == 0
    sink = Run.load("runs/attention-sink-nano-seed0")
    assert (sink.config, sink.facts["stage"]) == (morph.fork("attention-sink", "nano"), "attention-sink")
    config = morph.stage(7, size="nano")
    Path("mine.toml").write_text(config.to_toml())
    Path("mine.json").write_text(json.dumps(config.to_dict()))
    for name in ("mine.toml", "mine.json"):
        assert run_morph("train", "--config", name, "--out", name[5:], *common).code == 0
        assert Run.load(name[5:]).config == config


def test_sweep_takes_its_values_as_words(run_morph, monkeypatch: pytest.MonkeyPatch) -> None:
    from morph.train import session, sweeper

    seen = {}
    monkeypatch.setattr(sweeper, "make_plan", lambda out, **given: seen.update(given, out=out))
    monkeypatch.setattr(session, "sweep_here", lambda plan, workers: None)
    ended = run_morph("sweep", "--stages", "0", "gqa", "14", "--seeds", "3", "4", "--size", "nano")
    assert ended.code == 130
    assert (seen["stages"], seen["seeds"], seen["out"]) == ((0, 7, 14), (3, 4), Path("runs/sweep-nano"))
    run_morph("sweep", "--seeds", "0,1")
    assert (seen["stages"], seen["seeds"]) == (tuple(range(15)), (0, 1))


BAD_INPUT = [
    ("tran", "No such command 'tran'"),
    ("train --foo", "No such option: --foo"),
    ("train --steps many --stage 0", "Invalid value for '--steps'"),
    ("train", "nothing to train: give --stage 0 to 14"),
    ("train --stage gqq", "did you mean 'gqa'?"),
    ("train --stage 15", "unknown stage '15': give 0 to 14"),
    ("train --stage 0 --config c.toml", "--stage and --config are both given"),
    ("train --stage 0 --size huge", "unknown size 'huge'"),
    ("train --stage 0 --data nowhere", "no data at nowhere"),
    ("train --stage 0 --data empty.txt", "empty.txt is empty"),
    ("train --stage 0 --data hollow", "hollow is empty"),
    ("train --stage 0 --data binary.txt", "binary.txt is binary: byte 3 is NUL"),
    ("train --stage 0 --data latin.txt", "latin.txt is not UTF-8 text"),
    ("train --stage 0 --data short.txt", "needs at least 129"),
    ("train --stage 0 --device cuda:77", "no device 'cuda:77' on this machine: choose auto or one of "),
    ("train --stage 0 --device abacus", "no device 'abacus'"),
    ("train --stage 0 --steps 0", "steps is 0: give a whole number of at least 1"),
    ("train --stage 0 --seed -1", "seed is -1"),
    ("train --stage 0 --precision fp8", "precision is 'fp8'"),
    ("train --stage 0 --threads 0", "threads is 0"),
    ("train --stage 0 --learning-rate 0", "learning_rate is 0"),
    ("train --stage 0 --data text.txt --out hollow/../text.txt", "exists already and is never overwritten"),
    ("train --config nowhere.toml", "cannot read the config nowhere.toml"),
    ("train --config broken.toml", "not valid TOML"),
    ("train --config broken.json", "not valid JSON"),
    ("train --config heads.json", "does not divide"),
    ("train --out nowhere --resume", "no run at nowhere"),
    ("train --out hollow --resume", "hollow is not a complete run"),
    ("sweep --seeds zero", "--seeds is 'zero': give whole numbers"),
    ("sweep --seeds 1 1", "name one twice"),
    ("sweep --stages gqq", "did you mean 'gqa'?"),
    ("sweep --workers 0 --size nano --data text.txt --out hollow", "Invalid value for '--workers'"),
    ("sweep --size huge", "unknown size 'huge'"),
    ("show gqq", "did you mean 'gqa'?"),
    ("diff 0 99", "unknown stage '99'"),
    ("count moe --size huge", "unknown size 'huge'"),
    ("count moe --context 0", "context is 0"),
    ("generate nowhere --prompt x", "no run at nowhere"),
    ("generate hollow --prompt x", "not a complete run"),
    ("generate hollow", "Missing option '--prompt'"),
    ("render nothing-such", ""),
]


@pytest.mark.parametrize(("line", "words"), BAD_INPUT, ids=[line for line, _ in BAD_INPUT])
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(
    run_morph, tmp_path: Path, line: str, words: str
) -> None:
    (tmp_path / "hollow").mkdir()
    broken_heads = morph.stage(0).to_dict()
    broken_heads["attention"] |= {"n_heads": 5, "n_kv_heads": 5, "head_dim": None}
    del broken_heads["attention"]["head_dim"]
    contents = {
        "empty.txt": b"", "binary.txt": b"abc\0", "latin.txt": b"na\xefve text", "short.txt": b"x" * 200,
        "text.txt": b"some text to learn " * 1000, "broken.toml": b"= 3", "broken.json": b"{",
        "heads.json": json.dumps(broken_heads).encode(),
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    before = tree(tmp_path)
    result = run_morph(*line.split())
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("morph: ") and result.err.endswith("\n")
    assert result.err.count("\n") == 1
    assert words in result.err
    assert tree(tmp_path) == before


def test_a_real_process_shows_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "morph.cli", "train", "--stage", "windows"]
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={"PYTHONPATH": root, "PATH": ""}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("morph: unknown stage 'windows': give 0 to 14 or one of 2017, pre-norm")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_ends_quietly() -> None:
    root = str(Path(__file__).parents[1])
    command = f"cd '{root}' && '{sys.executable}' -m morph.cli steps | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(" 0  2017")
    assert done.stderr == ""
