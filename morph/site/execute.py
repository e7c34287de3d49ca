"""Notebooks run in fresh kernels, several at a time; one whose text and code are unchanged is not run again."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from morph.errors import MorphError
from morph.shipped import PACKAGE, Notebook, is_clone
from morph.site import cache
from morph.widgets.base import PARTS, STATIC

OnCell = Callable[[str, int, int], None]
"""Called with a notebook's name, the cells that are done, and their number."""
LAST = "from morph.widgets.base import PartsNow\nPartsNow()"
"""A cell after all others: what has become of the widgets that the others showed."""
PATIENCE = 600
"""Seconds that one cell may take."""


def executed(books: Sequence[Notebook], *, quick: bool, workers: int, on_cell: OnCell) -> dict[str, dict[str, Any]]:
    """The notebooks with their outputs, by name; widgets come as the parts of `morph.widgets.base.PARTS`.

    Ctrl-C ends the kernels too.

    Raises:
        MorphError: for a cell that fails, naming it.
    """
    done: dict[str, dict[str, Any]] = {}
    waiting = []
    for book in books:
        if found := cache.kept(_key(book, quick)):
            done[book.name] = json.loads(found)
        else:
            waiting.append(book)
    if waiting:
        for book, made in zip(waiting, _in_background(_run_all(waiting, quick, workers, on_cell))):
            done[book.name] = made
    return done


def _key(book: Notebook, quick: bool) -> str:
    return f"notebook-{cache.digest([book.text, cache.code(), str(quick)])}.json"


def _in_background(work: Any) -> Any:
    """Run a coroutine in a thread of its own: there nbclient leaves Ctrl-C to this one, which then ends the work."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    running = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return running.result()
    except BaseException:
        running.cancel()
        ended = asyncio.run_coroutine_threadsafe(_others_ended(), loop)
        with suppress(Exception):
            ended.result(timeout=20)
        raise
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=20)


async def _others_ended() -> None:
    """Wait for the tasks that were cancelled: they shut their kernels down."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)


async def _run_all(books: Sequence[Notebook], quick: bool, workers: int, on_cell: OnCell) -> list[dict[str, Any]]:
    places = asyncio.Semaphore(workers)

    async def one(book: Notebook) -> dict[str, Any]:
        async with places:
            made = await _run(book, quick, on_cell)
        cache.keep(_key(book, quick), json.dumps(made, ensure_ascii=False).encode())
        return made

    tasks = [asyncio.ensure_future(one(book)) for book in books]
    try:
        return await asyncio.gather(*tasks)
    finally:  # one that fails, or Ctrl-C, ends the others
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(book: Notebook, quick: bool, on_cell: OnCell) -> dict[str, Any]:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    made = nbformat.reads(book.text, as_version=4)
    cells = len(made.cells)
    made.cells.append(nbformat.v4.new_code_cell(LAST))
    with tempfile.TemporaryDirectory(prefix="morph-site-") as home:
        client = NotebookClient(
            made,
            timeout=PATIENCE,
            kernel_name="python3",
            resources={"metadata": {"path": home}},
            store_widget_state=False,
            shutdown_kernel="immediate",
            extra_arguments=["--log-level=ERROR"],
            on_cell_start=lambda cell, cell_index: on_cell(book.name, cell_index, cells),
        )
        try:
            await client.async_execute(env=_environment(Path(home), quick))
        except CellExecutionError as error:
            raise MorphError(f"notebook {book.name} fails in a cell with {error.ename}: {error.evalue}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise MorphError(f"notebook {book.name} did not end: {str(error).splitlines()[0]}") from None
    on_cell(book.name, cells, cells)
    return _with_last_states(json.loads(nbformat.writes(made)))


def _with_last_states(book: dict[str, Any]) -> dict[str, Any]:
    """Every widget as it was at the end, as a notebook shows it, and no longer the cell that told."""
    last = next(found[PARTS] for o in book["cells"].pop()["outputs"] if PARTS in (found := o.get("data", {})))
    for cell in book["cells"]:
        for output in cell.get("outputs", ()):
            if parts := output.get("data", {}).get(PARTS):
                parts |= last[parts["id"]]
                del parts["id"]  # another in every run
    return book


def _environment(home: Path, quick: bool) -> dict[str, str]:
    """The reader's, without the settings of their notebooks; the kernel imports this very package."""
    paths = [str(PACKAGE.parent)] if is_clone() else []
    return os.environ | {
        STATIC: "parts",
        "MORPH_QUICK": "1" if quick else "0",
        "IPYTHONDIR": str(home / ".ipython"),
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
