"""Training in a thread of this process, one model after another, so that a notebook goes on answering meanwhile.

The loop is `morph.train.train`, with its runs on disk: a training that was stopped goes on from its last step, bit for
bit. One training is at work in a process; another one that starts, or that is made, ends it first. Each step seeds
torch's generator, which all threads share: numbers drawn elsewhere meanwhile are not the ones a seed promises.
"""

from __future__ import annotations

import atexit
import contextlib
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from morph.config import ModelConfig
from morph.errors import MorphError, short
from morph.forks import config_of, name_of
from morph.steps import SLUGS
from morph.train.data import Corpus, load_corpus
from morph.train.device import FEW_FEATURES, pick_device, use_threads, world
from morph.train.files import require_free
from morph.train.loop import StepReport, train
from morph.train.memory import require_memory
from morph.train.recipe import Recipe
from morph.train.runs import Run, check_fit

READY, TRAINING, STOPPED, FINISHED, FAILED = "ready", "training", "stopped", "finished", "failed"
LAST_STEP = 60.0
"""Seconds that a training that was told to stop is waited for: a step and its checkpoint take far less."""
AT_EXIT = 10.0
"""The same when the process ends."""
NAME = re.compile(r"[\w.+-][\w.+ -]{0,39}")
"""What a model may be called: its run is a folder of that name."""

Asked = int | str | ModelConfig


def to_train(what: Asked | Iterable[int | str] | Mapping[str, Asked] | None, size: str) -> dict[str, ModelConfig]:
    """Name -> config of what a reader asks for.

    Args:
        what: a stage (number or slug), a fork, or several joined by +; several of those; or names of your own, each
            with one of those or a config. None for all fifteen stages.
        size: of what is not a config.

    Raises:
        MorphError: for what names no model, a name given twice, and a config without a name.
    """
    if isinstance(what, ModelConfig):
        raise MorphError("a config has no name: give {'mine': config}")
    if what is None:
        what = SLUGS
    if isinstance(what, Mapping):
        found = {}
        for name, asked in what.items():
            if not isinstance(name, str) or not NAME.fullmatch(name) or set(name) == {"."}:
                raise MorphError(f"{short(name)} cannot name a run: give 1 to 40 letters, digits, . _ + or -")
            found[name] = asked if isinstance(asked, ModelConfig) else config_of(asked, size)
        return found
    words = [what] if isinstance(what, int | str) else list(what)
    for word in words:
        if not isinstance(word, int | str):
            raise MorphError(f"{short(word)} names no model: give stages and forks, or {{'mine': config}}")
    names = [name_of(word) for word in words]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise MorphError(f"{twice!r} is there twice: name each model once")
    return {name: config_of(name, size) for name in names}


@dataclass
class Curve:
    """What one model's training reported so far, a report a step."""

    name: str
    config: ModelConfig
    steps: int
    reports: list[StepReport] = field(default_factory=list)

    @property
    def bits_per_byte(self) -> list[float]:
        """Of each step's own batch."""
        return [report.bits_per_byte for report in self.reports]

    @property
    def held_out(self) -> dict[int, float]:
        """Step -> bits per byte of the held-out text, where it was measured."""
        return {r.step: r.validation_bits_per_byte for r in self.reports if r.validation_bits_per_byte is not None}

    @property
    def is_done(self) -> bool:
        """Whether all its steps are taken."""
        return len(self.reports) == self.steps


class Background:
    """Models that train in a thread, in the order given.

    Args:
        configs: name -> what to build.
        recipe: the same for all; its `seed` too.
        corpus: the text; None for the default one.
        device: where, as `morph.train.device.pick_device` takes it.
        size: what a run is said to have where its config is that of a stage or fork.
        out: a folder for the runs, one each; None for a temporary one that goes when the process ends.
        changed: called from the thread after each step, and whenever `state` or `current` moved.

    Raises:
        MorphError: for models that cannot be trained so; nothing was started or written then.
    """

    def __init__(
        self,
        configs: Mapping[str, ModelConfig],
        recipe: Recipe,
        *,
        corpus: Corpus | None = None,
        device: str = "cpu",
        size: str = "nano",
        out: Path | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        world()
        self.corpus = load_corpus() if corpus is None else corpus
        self.recipe, self.device, self.size = recipe, pick_device(device), size
        self.out, self.changed = out, changed
        if not configs:
            raise MorphError("nothing to train: give at least one stage, fork or config")
        for name, config in configs.items():
            check_fit(config, self.corpus)
            require_memory(config, recipe, self.device)
            if out is not None:
                require_free(out / name, "out", "give a new folder")
        self.curves = {name: Curve(name, config, recipe.steps) for name, config in configs.items()}
        self.runs: dict[str, Run] = {}
        self.state = READY
        """`READY`, `TRAINING`, `STOPPED`, `FINISHED` or `FAILED`."""
        self.current = ""
        """The name of what trains, or trained last."""
        self.error: Exception | None = None
        """What ended a training that failed."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._temporary: Path | None = None
        end_training()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop and takes its last step."""
        return self.state == TRAINING and self._stop.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether its thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Train, or go on where it was stopped; nothing happens while it trains, or when all is trained."""
        with _guard:
            if self.state in (TRAINING, FINISHED):
                return
            end_training()
            self._stop, self.error, self.state = threading.Event(), None, TRAINING
            self._thread = threading.Thread(target=self._work, args=(self._stop,), name="morph-training", daemon=True)
            _at_work.append(self)
            self._thread.start()

    def stop(self) -> None:
        """Ask for an end after the current step, with a checkpoint. It returns at once; `wait` waits."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end, `timeout` seconds at most; says whether everything is trained.

        Raises:
            Exception: the one that ended the training, if one did.
            KeyboardInterrupt: on Ctrl-C or the notebook's interrupt, after the training was stopped too.
        """
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while (thread := self._thread) is not None and thread.is_alive():
                left = 0.1 if end is None else min(0.1, end - time.monotonic())
                if left <= 0:
                    return False
                thread.join(left)  # in slices: an interrupt gets through between them on every system
        except KeyboardInterrupt:
            self.stop()
            raise
        if self.error is not None:
            raise self.error
        return self.state == FINISHED

    def _work(self, stop: threading.Event) -> None:
        """The thread: every model in turn, from where it stands."""
        try:
            if all(curve.config.d_model < FEW_FEATURES for curve in self.curves.values()):
                use_threads(1)
            for name, curve in self.curves.items():
                if stop.is_set() or curve.is_done:
                    continue
                self.current = name
                self.changed()
                self._train(name, curve, stop)
            self.state = FINISHED if all(curve.is_done for curve in self.curves.values()) else STOPPED
        except Exception as error:  # shown by whoever watches, and raised again by `wait`
            self.state, self.error = FAILED, error
        finally:
            with contextlib.suppress(ValueError):
                _at_work.remove(self)
            try:
                self.changed()
            except Exception as error:  # who watches is gone, or broken
                self.state, self.error = FAILED, self.error or error

    def _train(self, name: str, curve: Curve, stop: threading.Event) -> None:
        if name not in self.runs:
            place, device = self._folder() / name, str(self.device)
            stage, size = (name, self.size) if self._is_known(name) else (None, None)
            self.runs[name] = Run.create(place, curve.config, self.recipe, self.corpus, device, stage, size)

        def on_step(report: StepReport) -> None:
            del curve.reports[report.step - 1 :]  # steps after the last checkpoint are taken again
            curve.reports.append(report)
            self.changed()

        train(self.runs[name], device=str(self.device), on_step=on_step, stop=stop, corpus=self.corpus)

    def _is_known(self, name: str) -> bool:
        """Whether the name is that of a stage, fork or composition with this very config."""
        try:
            return self.curves[name].config == config_of(name, self.size)
        except MorphError:
            return False

    def _folder(self) -> Path:
        if self.out is not None:
            return self.out
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="morph-"))
            _temporary.append(self._temporary)
        return self._temporary


_guard = threading.RLock()
_at_work: list[Background] = []
_temporary: list[Path] = []


def end_training(patience: float = LAST_STEP) -> None:
    """Stop what trains in this process, and wait for its last step."""
    for training in list(_at_work):
        training.stop()
        if training._thread is not None and training._thread is not threading.current_thread():
            training._thread.join(patience)


def _leave() -> None:
    """A thread that computes while the interpreter is taken apart can take the process with it: it ends first."""
    end_training(AT_EXIT)
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)


atexit.register(_leave)
