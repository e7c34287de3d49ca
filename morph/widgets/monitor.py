"""Training watched and steered from a notebook: curves while models learn, a button to start, one to stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from morph.errors import MorphError, told
from morph.model import Decoder
from morph.steps import SLUGS
from morph.story.frame import Frame
from morph.story.training import training
from morph.train.background import FAILED, FINISHED, READY, STOPPED, TRAINING, Asked, Background, Curve, to_train
from morph.train.data import Corpus
from morph.train.recipe import Recipe, default_recipe
from morph.train.runs import Run
from morph.widgets import assets
from morph.widgets.base import Widget

if TYPE_CHECKING:
    from scenes.board import Board
    from scenes.theme import Theme

PAUSE = 0.25
"""Seconds between two pictures of a training."""
VALIDATIONS = 3
"""Looks at the held-out text in a training, at least."""
MOST_MODELS = 16
"""Whose names find room beside their curves."""


class TrainingMonitor(Widget):
    """Train models one after another, in a thread of the kernel, and show their curves meanwhile.

    The thread is a `morph.train.background.Background`, its loop that of `morph train`. A kernel has one training at
    work: a new monitor ends the one before, so a cell may be run again.

    Args:
        models: a stage (number or slug), a fork, or several joined by +; a list of those; or names of your own, each
            with one of those or a `ModelConfig`: `{"base": 9, "mine": config}`. None for all fifteen stages.
        size: of what is not a config; its recipe is used.
        steps, seed: as the recipe has them, unless given.
        recipe: another recipe than the size's.
        corpus: the text; None for Python's standard library.
        device: where, as in `morph train --device`.
        out: a folder for the runs; None for one that goes when the kernel ends.

    Raises:
        MorphError: for models or numbers that cannot be trained; nothing was started then.
    """

    script = "monitor"
    shared = ("data", "curves", "state", "live")
    _esm = assets.module("monitor")

    data = traitlets.Dict(read_only=True).tag(sync=True)
    curves: traitlets.List[dict[str, Any]] = traitlets.List(read_only=True).tag(sync=True)
    state = traitlets.Dict(read_only=True).tag(sync=True)
    live = traitlets.Bool(True, read_only=True).tag(sync=True)

    def __init__(
        self,
        models: Asked | Iterable[int | str] | Mapping[str, Asked] | None = None,
        *,
        size: str = "nano",
        steps: int | None = None,
        seed: int | None = None,
        recipe: Recipe | None = None,
        corpus: Corpus | None = None,
        device: str = "cpu",
        out: Path | str | None = None,
    ) -> None:
        recipe, configs = recipe or _recipe(size, steps), to_train(models, size)
        if len(configs) > MOST_MODELS:
            raise MorphError(f"{len(configs)} models and {MOST_MODELS} can be shown; give fewer, or a second monitor")
        self.training = Background(
            configs, recipe.with_(steps=steps, seed=seed), corpus=corpus, device=device, size=size,
            out=None if out is None else Path(out), changed=self._changed,
        )  # fmt: skip
        self._drawing, self._drawn_at, self._told = threading.RLock(), 0.0, ("", "", 0)
        self._said = ""
        self._draw()
        super().__init__()
        self.on_msg(self._asked)

    def start(self) -> None:
        """Train, or go on where it was stopped. Returns at once; nothing happens when all is trained."""
        self.training.start()

    def stop(self) -> None:
        """End after the current step; `start` goes on from there."""
        self.training.stop()
        self._changed()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the training ends or `timeout` seconds are over; says whether everything is trained.

        Meanwhile the kernel may not hear the buttons; in a notebook, `await monitor` waits and lets it.

        Raises:
            Exception: the one that ended the training, if one did; the widget shows it too.
            KeyboardInterrupt: when the kernel is interrupted; the training stops as well.
        """
        return self.training.wait(timeout)

    def __await__(self) -> Generator[Any, None, bool]:
        """`await monitor` in a cell: `wait`, while the kernel goes on hearing the buttons."""
        return self._ended().__await__()

    async def _ended(self) -> bool:
        try:
            while self.training.is_alive:
                await asyncio.sleep(0.1)
        except (KeyboardInterrupt, asyncio.CancelledError):  # the kernel is interrupted
            self.stop()
            raise
        return self.wait()

    @property
    def history(self) -> dict[str, Curve]:
        """What every model reported so far: `monitor.history["rope"].bits_per_byte`."""
        return self.training.curves

    @property
    def runs(self) -> dict[str, Run]:
        """The runs on disk of the models that began; every command and figure takes their `path`."""
        return self.training.runs

    def model(self, name: str) -> Decoder:
        """A model as it stands after its last checkpoint. Raises `MorphError` where there is none."""
        from morph.train.checkpoint import load_model

        if name not in self.runs:
            raise MorphError(f"{name!r} has not been trained; there is {', '.join(self.runs) or 'nothing yet'}")
        return load_model(self.runs[name])

    def close(self) -> None:
        """Stop, and take the widget off the page."""
        if hasattr(self, "training"):  # not when bad input was refused
            self.training.stop()
        super().close()

    # ---- what the browser is told ----

    @property
    def frame(self) -> Frame:
        """The curves as they stand."""
        return training(self.history.values(), self.training.recipe.seed)

    def _changed(self) -> None:
        """From the thread, after every step: draw now and then, and always what is news."""
        news = (self.training.state, self.training.current, int(self.training.is_stopping))
        if news != self._told or time.monotonic() - self._drawn_at >= PAUSE:
            self._draw()

    def _draw(self) -> None:
        with self._drawing:
            news = (self.training.state, self.training.current, int(self.training.is_stopping))
            frame, words = self.frame, self._words()
            if news != self._told:
                self._said, self._told = self._spoken(words), news
            self._drawn_at = time.monotonic()
            if not self.data:
                self.set_trait("data", {"title": self.heading, "alt": frame.alt, **_plain_facts(frame)})
            self.set_trait("curves", _listed(frame))
            self.set_trait("state", {"at": self._at(), "words": words, "said": self._said, "current": news[1]})

    def _at(self) -> str:
        return "stopping" if self.training.is_stopping else self.training.state

    def _words(self) -> str:
        """The line under the curves."""
        work, recipe = self.training, self.training.recipe
        curve = work.curves.get(work.current)
        taken = f"{_shown(work.current)}, step {len(curve.reports)} of {curve.steps}" if curve else ""
        several = f"{len(work.curves)} model{'s' * (len(work.curves) > 1)}, {recipe.steps} steps each"
        return {
            READY: f"Not started: {several}.",
            TRAINING: f"Training {taken}." if not work.is_stopping else f"Stopping after this step: {taken}.",
            STOPPED: f"Stopped at {taken}; Go on takes it up from there.",
            FINISHED: f"Done: {several}.",
            FAILED: f"Failed at {taken or 'the start'}: {_cause(work.error)}",
        }[work.state]

    def _spoken(self, words: str) -> str:
        """The same for the ear, when it is news: with what the model before it reached."""
        names = list(self.history)
        before = names.index(self.training.current) - 1 if self.training.current else -1
        if self.training.state == FINISHED:
            before = len(names) - 1
        if self.training.state not in (TRAINING, FINISHED) or before < 0 or self.training.is_stopping:
            return words
        held = list(self.history[names[before]].held_out.values())
        return f"{_shown(names[before])} done: {held[-1]:.2f} bits per byte held out. {words}" if held else words

    def _asked(self, _: Any, content: Any, __: Any) -> None:
        """A button. The first message only wakes the channel: a kernel may keep it until its cells are done."""
        wanted = content.get("do") if isinstance(content, dict) else None
        if wanted == "start":
            self.start()
        elif wanted == "stop":
            self.stop()

    # ---- without a browser ----

    @property
    def heading(self) -> str:
        recipe = self.training.recipe
        several = len(self.history)
        return f"Training: {several} model{'s' * (several > 1)}, {recipe.steps} steps, seed {recipe.seed}"

    def transcript(self) -> list[str]:
        """How it stands, and a line for each model."""
        lines = [self._words()]
        for name, curve in self.history.items():
            batch = f", batch {curve.bits_per_byte[-1]:.3f} bits per byte" if curve.reports else ""
            held = [f", {bits:.3f} held out at step {step}" for step, bits in curve.held_out.items()][-1:]
            lines.append(f"{_shown(name)}: step {len(curve.reports)} of {curve.steps}{batch}{''.join(held)}")
        return lines

    def page_state(self) -> dict[str, Any]:
        """A page has no kernel: it shows the curves as they stand, and its buttons do nothing."""
        return super().page_state() | {"live": False}

    def still(self, theme: Theme) -> tuple[Board, Frame]:
        from scenes.training import training as drawn

        frame = self.frame
        return drawn(frame, theme), frame


def _recipe(size: str, steps: int | None) -> Recipe:
    """The size's, with a few looks at the held-out text however short it is, and checkpoints at its ends only."""
    recipe = default_recipe(size)
    count = recipe.with_(steps=steps).steps
    every = min(recipe.evaluate_every, -(-count // VALIDATIONS))
    return recipe.with_(evaluate_every=every, checkpoint_every=count)


def _shown(name: str) -> str:
    """A model's name with its number, if it is a stage."""
    return f"{SLUGS.index(name)} {name}" if name in SLUGS else name


def _cause(error: Exception | None) -> str:
    return "" if error is None else told(error) or f"{type(error).__name__}: {error}"


def _plain_facts(frame: Frame) -> dict[str, Any]:
    return {
        "models": [{**model, "shown": _shown(str(model["name"]))} for model in frame.facts["models"]],
        "steps": frame.facts["steps"],
    }  # fmt: skip


def _listed(frame: Frame) -> list[dict[str, Any]]:
    """A curve a model, as JSON: points [step, bits], circles likewise, steps taken."""

    def pairs(x: str, y: str, row: int) -> list[list[float]]:
        both = np.stack([frame.values(x)[row], frame.values(y)[row]], axis=-1)
        return [[int(step), round(float(bits), 4)] for step, bits in both[~np.isnan(both[:, 0])]]

    return [
        {"points": pairs("points", "bits", row), "held": pairs("measured", "held_out", row), "taken": taken}
        for row, taken in enumerate(frame.facts["taken"])
    ]
