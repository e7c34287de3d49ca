"""The options of `morph site`, for the command line; imports what a command needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer(help="All notebooks and figures as web pages: build.")


@commands.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@commands.command()
def build(
    out: Annotated[Path, typer.Option(help="Folder of the site; an earlier site there makes way.")] = Path("site"),
    only: Annotated[
        list[str] | None, typer.Option(help="One notebook or figure; repeatable [default: all there are].")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run the notebooks with their short trainings.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Notebooks to run at a time [default: one a core].")
    ] = None,
) -> int:
    """Run the notebooks that changed, draw the figures, and write the site."""
    from morph.site.build import Wanted, build_site

    print(build_site(Wanted(out, tuple(only or ()), quick=quick, workers=workers)))
    return 0
