"""The options of `morph lab`, for the command line; imports what a command needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer(help="Experiments, each pressure measured: list, run, report.")


@commands.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@commands.command("list")
def list_() -> None:
    """List the experiments, what they cost and what they found."""
    from morph.lab.terminal import list_experiments

    list_experiments()


@commands.command()
def run(
    names: Annotated[list[str], typer.Argument(help="Experiments, or all.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="One seed, few steps: only to see that it runs.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes at a time, one thread each.")] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Folder of cells and results [default: runs/lab or runs/lab-quick].")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Also keep the results where the package has them.")] = False,
) -> int:
    """Run experiments; Ctrl-C ends, and the same command goes on. What is done is never done again."""
    from morph.lab.terminal import run_experiments

    return run_experiments(names, quick=quick, workers=workers, out=out, record=record)


@commands.command()
def report(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments [default: all there are].")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of a run [default: the results that come with Morph].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write lab.md and the plots there instead of printing.")] = None,
) -> None:
    """Tell in words and tables what was found."""
    from morph.lab.terminal import report

    report(names or [], results=results, out=out)
