"""A process that computes cells, one after another, with one thread: `python -m morph.lab.worker`.

It reads a job a line on its standard input, {"module": ..., "key": ..., "quick": ...}, and answers on its standard
output with {"steps": n} now and then, and {"done": {...}} or {"failed": "why"} at the end of each. When its input
closes, because whoever started it has ended, however it ended, it ends too, in the middle of a cell if need be.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from functools import cache
from typing import IO, Any

from morph.errors import told
from morph.lab.catalogue import load
from morph.lab.spec import Cell

EVERY = 0.5  # seconds between two lines about steps


@cache
def cells(module: str, quick: bool) -> dict[str, Cell]:
    """An experiment's cells by key."""
    return {cell.key: cell for cell in load(module).cells(quick)}


def main() -> None:
    """Answer jobs until the input closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints goes to the log
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    while True:
        _send(answers, _compute(jobs.get(), answers))


def _listen(jobs: queue.Queue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(0)


def _compute(job: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    from morph.lab.fit import measure

    last = time.monotonic()

    def on_step(step: int) -> None:
        nonlocal last
        if time.monotonic() - last > EVERY:
            last = time.monotonic()
            _send(answers, {"steps": step})

    try:
        return {"done": measure(cells(job["module"], job["quick"])[job["key"]], on_step)}
    except Exception as error:
        traceback.print_exc()
        return {"failed": told(error) or f"{type(error).__name__}: {error}"}


def _send(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
