"""Explorers of a model on the reader's own text: attention maps, a token's way through the layers, chosen experts.

The browser holds all numbers of one text, so keys and pointer need no kernel; another text asks it once.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import traitlets

from morph.errors import MorphError
from morph.story.frame import Frame
from morph.widgets import assets
from morph.widgets.base import Widget

if TYPE_CHECKING:
    from scenes.board import Board
    from scenes.theme import Theme

TEXT = "for key in keys: total += counts[key]"
"""What an explorer reads first: names that come back, brackets that close."""
LETTERS = 12
"""Of a token at most, as far as the text's field is concerned."""
HIDDEN = 65535
"""In a map of 16-bit numbers: out of sight. The others count 65,534ths."""


class Explorer(Widget):
    """What the three have in common.

    Args:
        model: whose numbers: a recorded model's name, the folder of a run or of a checkpoint, a stage, a fork, a
            `Decoder`.
        text: 1 to 96 bytes, or tokens where the folder brings a tokenizer.
        seed: of fresh weights, or which recording.

    Raises:
        MorphError: for a text or model that cannot be shown.
    """

    default: ClassVar[str]
    """The recorded model it shows when none is given."""
    shared = ("text", "data", "numbers", "problem", "live", "place")

    text = traitlets.Unicode().tag(sync=True)
    data = traitlets.Dict(read_only=True).tag(sync=True)
    numbers = traitlets.Bytes(read_only=True).tag(sync=True)
    problem = traitlets.Unicode(read_only=True).tag(sync=True)
    live = traitlets.Bool(True, read_only=True).tag(sync=True)
    place = traitlets.Dict().tag(sync=True)

    def __init__(self, model: Any = None, text: str = TEXT, *, seed: int = 0) -> None:
        from morph.story.subject import subject

        self.source = subject(self.default if model is None else model, seed=seed)
        self._show(self._read(text))
        super().__init__(text=text)
        self.observe(self._on_text, "text")

    @abstractmethod
    def _read(self, text: str) -> Frame:
        """The numbers of a text."""

    @abstractmethod
    def _numbers(self, frame: Frame) -> bytes:
        """The arrays that the script reads, one after another."""

    @abstractmethod
    def _ends(self) -> dict[str, int]:
        """The last value that each number of a place can have, for the text on show."""

    @property
    def spot(self) -> dict[str, int]:
        """`place` within the text on show, which may be shorter than the one it was chosen in."""
        return {name: min(max(self.place.get(name, 0), 0), end) for name, end in self._ends().items()}

    def _data(self, frame: Frame) -> dict[str, Any]:
        """Words and small facts for the script."""
        from morph.story.explore import MOST_TOKENS

        letters = MOST_TOKENS if self.source.vocabulary.unit == "byte" else LETTERS * MOST_TOKENS
        told = {"title": frame.title, "alt": frame.alt, "caption": frame.caption, "letters": letters}
        return {**frame.facts, **told}

    def _show(self, frame: Frame) -> None:
        self.frame = frame
        with self.hold_sync():  # one message: the script never sees words of one text and numbers of another
            self.set_trait("data", self._data(frame))
            self.set_trait("numbers", self._numbers(frame))
            self.set_trait("problem", "")

    def _on_text(self, change: dict[str, Any]) -> None:
        try:
            self._show(self._read(change["new"]))
        except MorphError as error:
            self.set_trait("problem", "")  # the same problem twice is an answer twice
            self.set_trait("problem", str(error))

    @traitlets.validate("place")
    def _whole_numbers(self, proposal: dict[str, Any]) -> dict[str, Any]:
        for name, value in proposal["value"].items():
            if not isinstance(value, int):
                raise MorphError(f"place[{name!r}] = {value!r} is not a whole number; give one")
        return dict(proposal["value"])

    @property
    def heading(self) -> str:
        return f"{self.frame.title} · {self.source.name}"

    def page_state(self) -> dict[str, Any]:
        """A page has no kernel: it holds the numbers of this text and asks for no other."""
        return super().page_state() | {"live": False}

    def still(self, theme: Theme) -> tuple[Board, Frame]:
        from scenes.explorers import STILLS

        return STILLS[self.frame.key](self.frame, self.spot, theme), self.frame


class AttentionExplorer(Explorer):
    """Attention maps of every layer and head for a text: hover or arrow keys read a number."""

    script = "attention"
    default = "windows"
    _esm = assets.module("attention")

    def _read(self, text: str) -> Frame:
        from morph.story.explore import attention

        return attention(self.source, text)

    def _numbers(self, frame: Frame) -> bytes:
        weights, hidden = frame.values("weights"), np.isnan(frame.values("scores"))
        return np.where(hidden, HIDDEN, np.rint(np.nan_to_num(weights) * (HIDDEN - 1))).astype("<u2").tobytes()

    def _data(self, frame: Frame) -> dict[str, Any]:
        return super()._data(frame) | {"n_heads": frame.values("weights").shape[1]}

    def _ends(self) -> dict[str, int]:
        layers, heads, tokens, _ = self.frame.values("weights").shape
        return {"map": layers * heads - 1, "query": tokens - 1, "key": tokens - 1}

    def transcript(self) -> list[str]:
        """For each head, the strongest look at another token."""
        weights, words = self.frame.values("weights"), self.frame.facts["tokens"]
        lines = []
        for layer, count, heads in zip(self.frame.facts["layers"], self.frame.facts["heads"], weights):
            for head, grid in enumerate(heads[:count]):
                others = np.tril(grid, -1)
                query, key = np.unravel_index(others.argmax(), others.shape)
                lines.append(
                    f"layer {layer}, head {head}: most of all, {words[query]!r} at {query} looks back at "
                    f"{words[key]!r} at {key}: {others[query, key]:.2f}"
                )
        return lines


class TokenTrace(Explorer):
    """One token's stream through the layers: its size, what each half adds, and what it would predict on the way."""

    script = "token"
    default = "windows"
    _esm = assets.module("token")

    def __init__(self, model: Any = None, text: str = TEXT, token: int | None = None, *, seed: int = 0) -> None:
        super().__init__(model, text, seed=seed)
        last = len(self.frame.facts["tokens"]) - 1
        token = max(last - 1, 0) if token is None else token
        if not isinstance(token, int) or not 0 <= token <= last:
            raise MorphError(f"token = {token!r} is not in the text; give 0 to {last}")
        self.place = {"token": token, "depth": 0}

    def _read(self, text: str) -> Frame:
        from morph.story.explore import token_trace

        return token_trace(self.source, text)

    def _numbers(self, frame: Frame) -> bytes:
        names = ("rms", "write", "cosine", "probability", "surprise")
        return b"".join(frame.values(name).astype("<f4").tobytes() for name in names)

    def _ends(self) -> dict[str, int]:
        depths, tokens = self.frame.values("rms").shape
        return {"token": tokens - 1, "depth": depths - 1}

    def transcript(self) -> list[str]:
        """For the token shown, what each depth would predict."""
        facts, token = self.frame.facts, self.spot["token"]
        chances, rms = self.frame.values("probability"), self.frame.values("rms")
        names = ["embedding", *facts["writes"]]
        return [f"token {token}, {facts['tokens'][token]!r}"] + [
            f"after {name}: RMS {rms[i, token]:.2f}, next {facts['likely'][i][token][0]!r} ({chances[i, token, 0]:.2f})"
            for i, name in enumerate(names)
        ]


class RouterView(Explorer):
    """Which experts each token of a text goes to, layer by layer."""

    script = "router"
    default = "experts"
    _esm = assets.module("router")

    def _read(self, text: str) -> Frame:
        from morph.story.explore import routing

        return routing(self.source, text)

    def _numbers(self, frame: Frame) -> bytes:
        shape = frame.values("probabilities").shape
        weights = np.zeros(shape, "<f4")  # 0 where an expert was not chosen
        np.put_along_axis(weights, frame.values("chosen"), frame.values("weights"), axis=-1)
        return weights.tobytes() + frame.values("probabilities").astype("<f4").tobytes()

    def _ends(self) -> dict[str, int]:
        layers, tokens, experts = self.frame.values("probabilities").shape
        return {"layer": layers - 1, "token": tokens - 1, "expert": experts - 1}

    def transcript(self) -> list[str]:
        """For each layer, how often its experts were chosen."""
        loads, count = self.frame.values("load"), len(self.frame.facts["tokens"])
        lines = []
        for layer, load in zip(self.frame.facts["layers"], loads):
            busiest = np.argsort(-load, kind="stable")[:3]
            named = ", ".join(f"expert {e} by {load[e]}" for e in busiest)
            idle = int((load == 0).sum())
            lines.append(f"layer {layer}: of {count} tokens {named}; {idle} of {len(load)} experts by none")
        return lines
