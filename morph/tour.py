"""The tour: the whole tutorial in one command, from fifteen trained models to the figure drawn from them."""

import time
from pathlib import Path

from morph.errors import INTERRUPTED, MorphError
from morph.rendering import render_figure
from morph.steps import SLUGS
from morph.train.files import new_folder, require_free

FIGURE = "morph"
_DONE = ".done"  # in a figure's folder that a tour has made


def take_tour(out: Path, workers: int = 2) -> int:
    """Train the stages (one seed), print the ledger, render Figure 1, and tell what is where.

    Returns the exit code: 0, 1 when the figure could not be rendered, 130 when broken off.

    A tour that was broken off is continued, a finished one shown again; nothing is trained or rendered twice.
    """
    from morph.train.session import sweep_here
    from morph.train.sweeper import make_plan, require_workers

    started = time.monotonic()
    stages = tuple(range(len(SLUGS)))
    figure = out / "figure"
    if not (figure / _DONE).exists():
        require_free(figure, "--out", "the tour draws its figure there: move it away")
    require_workers(workers)
    plan = make_plan(out, stages=stages, seeds=(0,), size="tiny", steps=None, data=None)
    print("From the block of 2017 to a hybrid mixture of experts: fifteen models, fourteen steps, one seed.\n")
    sweep = sweep_here(plan, workers)
    if sweep is None:
        return INTERRUPTED
    rendered = _render(figure, out / "sweep.json")
    print(f"\nThe tour took {(time.monotonic() - started) / 60:.1f} minutes. What it left:\n")
    for label, path in (("table", "table.md"), ("plot", "plot.png"), ("runs", "runs")):
        print(f"  {label:<9} {out / path}")
    for label, file in rendered.items():
        print(f"  {label:<9} {file}")
    print(f"  {'notebook':<9} notebooks/00_the_morph.ipynb")
    print(
        "\nNext:\n"
        f"  morph generate {plan.run_path(14, 0)} --prompt 'def '   let the last stage write\n"
        "  morph show gqa                 read one step: what changed, why, what it costs\n"
        "  morph train --stage 9          train a stage on its own; --data takes your text\n"
        "  morph sweep                    three seeds, to see which differences are real\n"
        "  jupyter lab notebooks/00_the_morph.ipynb"
    )
    return 0 if rendered else 1


def _render(figure: Path, sweep: Path) -> dict[str, Path]:
    """Figure 1 from this tour's runs: where its video and stills are; a line instead when rendering fails."""
    if not (figure / _DONE).exists():
        print("\nRendering Figure 1 from these runs ...", flush=True)
        try:
            with new_folder(figure) as folder:
                render_figure(FIGURE, folder / "made", quality="480p", theme="dark", sweep=sweep)
                for path in sorted((folder / "made").iterdir()):
                    path.rename(folder / path.name)
                (folder / "made").rmdir()
                (folder / _DONE).touch()
        except MorphError as error:
            print(f"morph: {error}\nThe rest of the tour is complete; run it again to add the figure.")
            return {}
    return {"video": figure / f"{FIGURE}.mp4", "stills": figure}
