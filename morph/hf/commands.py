"""`morph hf`: what a checkpoint folder is, and whether Morph computes what transformers computes of it."""

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer(help="Checkpoint folders of Hugging Face's transformers: info, check.")

Folder = Annotated[
    Path, typer.Argument(help="Holds config.json and *.safetensors.", metavar="FOLDER", show_default=False)
]


@commands.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@commands.command()
def info(folder: Folder) -> None:
    """Print a checkpoint's config as Morph's, and what it costs."""
    from morph.hf.checkpoint import read_config
    from morph.telling import costs

    config = read_config(folder)
    print(config.to_toml())
    for line in costs({folder.resolve().name: config}, context=min(config.context_length, 8192)):
        print(line)


@commands.command()
def check(
    folder: Folder,
    tokens: Annotated[int | None, typer.Option(help="Tokens in a text [default: 64, or beyond the window].")] = None,
    tolerance: Annotated[float, typer.Option(help="Largest relative error that passes.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    skip: Annotated[
        list[str] | None, typer.Option(help="Weights to leave out, such as 'model.visual.*'; may be repeated.")
    ] = None,
) -> int:
    """Compare every layer with transformers, in fp32; exit code 1 when they differ."""
    from morph.hf.compare import check

    report = check(folder, tokens=tokens, seed=seed, tolerance=tolerance, skip=skip or ())
    print(report)
    return int(not report.passed)
