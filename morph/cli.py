"""The command line: `morph COMMAND`. A command imports what it needs when it runs, so help comes at once."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

from morph import __version__
from morph.errors import BAD_INPUT, INTERRUPTED, MorphError, told

try:
    import typer
except ImportError:
    print("morph: the command line needs the extra 'train': pip install -e '.[train]'", file=sys.stderr)
    raise SystemExit(2) from None

from morph.hf.commands import commands as hf_commands
from morph.lab.commands import commands as lab_commands
from morph.site.commands import commands as site_commands

MOST_CONTEXT = 10**12  # tokens
_MANY_VALUES = ("--seeds", "--stages")  # options that take several words: --seeds 0 1 2

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="What changed inside the Transformer since 2017, one runnable step at a time.",
)  # fmt: skip

Size = Annotated[str, typer.Option(help="nano, tiny or small.")]
Stage = Annotated[
    str, typer.Argument(help="A stage (0 to 14 or a slug), a fork, or several: hybrid+mqa.", show_default=False)
]
Model = Annotated[
    str, typer.Argument(help="A stage, a fork or several, or the folder of a run or checkpoint.", show_default=False)
]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line. What goes wrong is one line on stderr: exit code 2, or 130 for an interruption.

    A request to terminate (SIGTERM) interrupts just as Ctrl-C does.
    """
    for stream in (sys.stdout, sys.stderr):  # a terminal or file that cannot hold a sign shows another
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with _interruptible() as interrupted:
        try:
            code = _run(_join_values(sys.argv[1:] if arguments is None else arguments))
            if sys.stdout is not None:
                sys.stdout.flush()
        except KeyboardInterrupt:
            _end("interrupted", INTERRUPTED)
        except BrokenPipeError:  # the reader of a pipe (head, less) has seen enough
            _forget_output()
            raise SystemExit(0) from None
        except Exception as error:
            if interrupted.is_set():  # some libraries turn an interruption into an error of their own
                _end("interrupted", INTERRUPTED)
            if (line := _told(error)) is None:
                raise
            _end(line, BAD_INPUT)
    raise SystemExit(code)


def _run(words: list[str]) -> int:
    """Run a command without typer's own handling of errors and interruptions; returns the exit code."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("morph", words) as context:
            return command.invoke(context) or 0
    except typer.Exit as end:  # help and version
        return end.exit_code


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C and a request to terminate set the event and raise KeyboardInterrupt."""
    event = threading.Event()

    def handle(number: int, frame: Any) -> None:
        event.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield event
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(error: Exception) -> str | None:
    """As `morph.errors.told` says; typer's own errors, whichever click is underneath, have a message ready."""
    if hasattr(error, "format_message"):
        return f"{error.format_message()} (morph --help lists what there is)"
    return told(error)


def _end(message: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None:
            sys.stdout.flush()
    with contextlib.suppress(OSError):
        print(f"morph: {' '.join(message.split())}", file=sys.stderr, flush=True)
    _forget_output()
    raise SystemExit(code) from None


def _forget_output() -> None:
    """What could not be written is dropped, so that the interpreter does not try again as it ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _join_values(arguments: list[str]) -> list[str]:
    """`--seeds 0 1 2` becomes `--seeds 0,1,2`: options of this parser take one word."""
    joined: list[str] = []
    for word in arguments:
        if not word.startswith("-") and len(joined) > 1 and joined[-2] in _MANY_VALUES:
            joined[-1] += f",{word}"
        else:
            joined.append(word)
    return joined


def _whole_numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        raise MorphError(f"{option} is {text!r}: give whole numbers, as in {option} 0 1 2") from None


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"morph {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def tour(
    out: Annotated[
        Path, typer.Option(help="Folder of the tour; a finished or broken off tour there is continued.")
    ] = Path("runs/tour"),
    workers: Annotated[int, typer.Option(min=1, help="Training processes at a time, one thread each.")] = 2,
) -> int:
    """Train the fifteen stages small, print the ledger, render Figure 1."""
    from morph.tour import take_tour

    return take_tour(out, workers)


@app.command()
def steps(
    tree: Annotated[bool, typer.Option("--tree", help="Draw them with the forks that hang from each.")] = False,
) -> None:
    """List the fourteen steps."""
    from morph.steps import STEPS

    if tree:
        _print_tree()
        return
    print(f" 0  {'2017':<18} the block of 2017, as a decoder")
    for step in STEPS:
        print(f"{step.number:>2}  {step.slug:<18} {step.year}  {step.before}  →  {step.after}")


def _print_tree() -> None:
    """In a terminal the main line stands out; elsewhere it is plain text."""
    from rich.console import Console
    from rich.text import Text

    from morph.forks.tree import tree

    console = Console(highlight=False, soft_wrap=True)
    branches = list(tree())
    width = max(len(branch.lead + branch.slug) for branch in branches)
    for branch in branches:
        gap = " " * (width - len(branch.lead + branch.slug))
        style = "bold" if branch.is_stage else "cyan"
        year = (f"{gap}  {branch.year}", "dim")
        console.print(Text.assemble((branch.lead, "dim"), (branch.slug, style), year, f"  {branch.title}"))


@app.command()
def forks() -> None:
    """List the forks: choices that the field has not settled."""
    from morph.forks import FORKS

    for fork in FORKS.values():
        print(f"{fork.slug:<22} {fork.year}  on {fork.base:<18} {fork.before}  →  {fork.after}")


@app.command()
def show(stage: Stage, size: Size = "tiny") -> None:
    """Tell what one step or fork changes, why, who ships it, and what it costs."""
    from morph.folder import is_folder
    from morph.telling import change

    if is_folder(stage):
        raise MorphError(f"{stage} is a folder, and show tells of a step or fork: morph count {stage} tells its costs")
    for line in change(stage, size):
        print(line)


@app.command("diff")
def diff_(a: Model, b: Model, size: Size = "tiny") -> None:
    """List the config fields in which two stages, forks or folders differ."""
    import morph
    from morph.folder import config_named

    (_, before), (_, after) = config_named(a, size), config_named(b, size)
    for change in morph.diff(before, after):
        print(change)


@app.command()
def count(
    stage: Model,
    size: Size = "tiny",
    context: Annotated[int, typer.Option(help="Tokens for cache and FLOPs.")] = 1024,
) -> None:
    """Count parameters, bytes and FLOPs of a stage, a fork, a run or a checkpoint."""
    from morph.folder import config_named
    from morph.telling import costs

    if not 1 <= context <= MOST_CONTEXT:
        raise MorphError(f"context is {context}: give 1 to {MOST_CONTEXT:,} tokens")
    heading, config = config_named(stage, size)
    for line in costs({heading: config}, context):
        print(line)


@app.command()
def train(
    stage: Annotated[
        str | None, typer.Option(help="Stage (0 to 14 or a slug) or fork to train, or hybrid+mqa.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Train a config of your own (TOML or JSON) instead.")] = None,
    size: Annotated[
        str | None, typer.Option(help="nano, tiny or small; with --config it names the recipe [default: tiny].")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="File or folder of UTF-8 text [default: Python's standard library].")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and batches [default: 0].")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps [default: auto].")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/STAGE-SIZE-seedN].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    batch_size: Annotated[int | None, typer.Option(help="Windows in a micro-batch.")] = None,
    accumulation: Annotated[int | None, typer.Option(help="Micro-batches in a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads [default: 1 for narrow models].")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    attached: Annotated[int | None, typer.Option(hidden=True, help="Process to end with.")] = None,
) -> int:
    """Train a stage or fork and keep the run; Ctrl-C ends it so that --resume can continue."""
    from morph.train.session import train_here
    from morph.train.start import Request

    changes = {
        "steps": steps, "seed": seed, "batch_size": batch_size, "accumulation": accumulation,
        "learning_rate": learning_rate, "precision": precision, "checkpoint_every": checkpoint_every,
    }  # fmt: skip
    request = Request(
        stage=stage,
        config_file=config,
        size=size,
        data=data,
        device=device,
        out=out,
        resume=resume,
        changes=changes,
    )
    return train_here(request, threads=threads, quiet=quiet, attached=attached)


@app.command()
def sweep(
    stages: Annotated[str | None, typer.Option(help="Stages, as in --stages 0 1 2 [default: all fifteen].")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, as in --seeds 0 1 2.")] = "0 1 2",
    size: Size = "tiny",
    steps: Annotated[int | None, typer.Option(help="Optimizer steps of each run.")] = None,
    data: Annotated[
        str | None, typer.Option(help="File or folder of UTF-8 text [default: Python's standard library].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep [default: runs/sweep-SIZE].")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Training processes at a time, one thread each.")] = 2,
) -> int:
    """Train all stages alike and compare them: table, plot and sweep.json."""
    from morph.steps import SLUGS, number_of
    from morph.train.session import sweep_here
    from morph.train.sweeper import make_plan, require_workers

    require_workers(workers)
    chosen = tuple(number_of(word) for word in stages.replace(",", " ").split()) if stages else tuple(range(len(SLUGS)))
    folder = out or Path(f"runs/sweep-{size}")
    plan = make_plan(folder, stages=chosen, seeds=_whole_numbers(seeds, "--seeds"), size=size, steps=steps, data=data)
    finished = sweep_here(plan, workers)
    if finished is None:
        return INTERRUPTED
    print(f"\nTable: {folder}/table.md and table.csv\nPlot:  {folder}/plot.png\nData:  {folder}/sweep.json")
    return 0


@app.command()
def upcycle(
    folder: Annotated[Path, typer.Argument(help="A run, or a Hugging Face checkpoint.", show_default=False)],
    to: Annotated[str, typer.Option(help="Stage (0 to 14 or a slug) or fork to carry it to, or hybrid+mqa.")],
    out: Annotated[Path | None, typer.Option(help="New folder [default: FOLDER-STAGE].")] = None,
) -> None:
    """Carry a trained model over to a later stage, as a folder that can be trained on."""
    from morph.carrying import carry_over
    from morph.folder import Folder

    report, written = carry_over(folder, to, out)
    print(report)
    is_run = Folder.at(written).kind == "run"
    then = f"morph train --out {written} --resume" if is_run else f"morph generate {written} --prompt 'def '"
    print(f"written to {written}. Try: {then}")


@app.command()
def generate(
    folder: Annotated[Path, typer.Argument(help="A run, or a Hugging Face checkpoint.", show_default=False)],
    prompt: Annotated[str, typer.Option(help="Text to continue.")],
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to write; a run's are bytes.")] = 200,
    temperature: Annotated[
        float | None, typer.Option(help="0 always takes the likeliest token [default: 0.8].")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample among the likeliest tokens that hold probability p.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    speculative: Annotated[
        bool, typer.Option("--speculative", help="The likeliest tokens, drafted by the model's MTP heads.")
    ] = False,
) -> None:
    """Continue a prompt with the model in a folder, decoding with the cache."""
    from morph.writing import continue_text, draft_text, left_out

    if not speculative:
        heat = 0.8 if temperature is None else temperature
        print(continue_text(folder, prompt, max_new_tokens, heat, top_k, top_p, seed))
        for line in left_out(folder):
            print(f"morph: {line}", file=sys.stderr)
        return
    if temperature or top_k is not None or top_p is not None:
        raise MorphError("--speculative takes the likeliest token always: leave out --temperature, --top-k and --top-p")
    text, done = draft_text(folder, prompt, max_new_tokens)
    print(text)
    print(
        f"{done.passes} passes for {done.written} tokens; {done.accepted} of {done.drafted} drafts kept",
        file=sys.stderr,
    )


@app.command()
def tokenize(
    folder: Annotated[Path, typer.Argument(help="A run, or a Hugging Face checkpoint.", show_default=False)],
    text: Annotated[str, typer.Argument(help="Text to cut into tokens.", show_default=False)],
) -> None:
    """Show the tokens that a folder's model reads for a text, with their ids."""
    from morph.writing import tokens_of

    for token, shown in tokens_of(folder, text):
        print(f"{token:>8}  {shown}")


@app.command()
def render(
    figures: Annotated[
        list[str],
        typer.Argument(
            help="morph, residual, rope, norm, ffn, kv-cache, masks, moe, beyond-softmax or all.", show_default=False
        ),
    ],
    quality: Annotated[str, typer.Option(help="480p, 720p, 1080p or 4k.")] = "480p",
    theme: Annotated[str, typer.Option(help="dark or light.")] = "dark",
    frames: Annotated[str, typer.Option(help="Frames to draw, such as 3-5 or 1,4 [default: all].")] = "",
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="mp4, webm, png, svg or html; repeatable [mp4 png html].")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Whose tensors: a run, a checkpoint, a stage, a fork [default: recorded].")
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Of the models shown [default: 0].", min=0)] = None,
    sweep: Annotated[Path | None, typer.Option(help="Sweep for figure morph [default: the reference].")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder [default: out/FIGURE or out/FIGURE-MODEL].")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="List each frame's tensors, and draw nothing.")] = False,
) -> int:
    """Render figures as video, stills, subtitles, contact sheet and a page to step through."""
    from morph.rendering.command import Request, render_all

    request = Request(
        figures=tuple(figures), quality=quality, theme=theme, frames=frames, formats=tuple(formats or ()),
        model=model, seed=seed, sweep=sweep, out=out,
    )  # fmt: skip
    return render_all(request, explain=explain)


@app.command()
def film(
    figures: Annotated[
        list[str] | None, typer.Argument(help="Some figures only [default: all].", show_default=False)
    ] = None,
    quality: Annotated[str, typer.Option(help="480p, 720p, 1080p or 4k.")] = "1080p",
    theme: Annotated[str, typer.Option(help="dark or light.")] = "dark",
    model: Annotated[
        str, typer.Option(help="Whose tensors: a run, a checkpoint, a stage, a fork [default: recorded].")
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Of the models shown [default: 0].", min=0)] = None,
    out: Annotated[Path, typer.Option(help="Folder of the film and its parts.")] = Path("out/film"),
) -> int:
    """Make one film of all figures, with title cards, chapters and subtitles."""
    from morph.rendering.film import Wanted, make_film

    for path in make_film(Wanted(tuple(figures or ()), quality, theme, model, seed, out)):
        print(path)
    return 0


@app.command()
def notebook(
    name: Annotated[
        str | None, typer.Argument(help="Notebook to open: its name, number or figure [default: none].")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Your folder of copies; nothing in it is overwritten.")] = Path(
        "morph-notebooks"
    ),
    listed: Annotated[bool, typer.Option("--list", help="List the notebooks, and open nothing.")] = False,
    newer: Annotated[bool, typer.Option("--newer", help="Put today's version of an outdated copy beside it.")] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
    port: Annotated[
        int, typer.Option(help="Port on this machine; the next free one is taken.", min=1, max=65535)
    ] = 8888,
) -> int:
    """Open the notebooks in JupyterLab, as copies of your own."""
    from morph.notebook import bring, open_lab
    from morph.notebook import listed as lines_of
    from morph.shipped import notebook as notebook_called

    if listed:
        print(*lines_of(folder), sep="\n")
        return 0
    chosen = notebook_called(name).name if name else None
    for line in bring(folder, newer=newer):
        print(line, flush=True)
    return open_lab(folder, chosen, browser=browser, port=port)


@app.command()
def doctor() -> int:
    """Say what is installed, what is missing, and what mends it."""
    from morph.doctor import main as examine

    return examine()


app.add_typer(hf_commands, name="hf")
app.add_typer(lab_commands, name="lab")
app.add_typer(site_commands, name="site")


if __name__ == "__main__":
    main()
