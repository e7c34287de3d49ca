"""Frames of data: what a figure says, before anything is drawn.

A figure is a tuple of frames. A frame holds words (title, caption, alternative text), named arrays, facts (plain JSON
values for diagrams and tables) and one claim about them that a test evaluates. Nothing here draws and nothing here
needs torch, so the process that draws reads a figure from JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from morph.errors import MorphError

FORMAT = 2
TITLE_WORDS = 6
CAPTION_WORDS = 30


@dataclass(frozen=True, kw_only=True)
class Array:
    """Numbers with a name for every axis: `values.ndim == len(axes)`.

    `source` says where they come from: a trace's name, a config, a recorded run, a formula.
    """

    values: np.ndarray
    axes: tuple[str, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if self.values.ndim != len(self.axes):
            raise MorphError(f"array of shape {self.values.shape} has {len(self.axes)} axis names; name each axis")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a frame asserts of its own data: a sentence, and the predicate behind it.

    In a figure read back from JSON, `holds` answers with the verdict recorded when the figure was made.
    """

    text: str
    holds: Callable[[Frame], bool]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One still of a figure, as data.

    Attributes:
        key: unique within the figure, used in file names.
        title: at most six words.
        caption: one or two plain sentences, at most thirty words, true of the data.
        alt: the picture in words, for a reader who cannot see it.
        claim: what must hold of `arrays` and `facts`.
        arrays: named numbers with named axes.
        facts: JSON values; the figure's own module says which.
        source: where the numbers come from, in words.
        absent: why there is nothing to show for this model, as a sentence ("" when there is something).
    """

    key: str
    title: str
    caption: str
    alt: str
    claim: Claim
    arrays: Mapping[str, Array] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    absent: str = ""

    def __post_init__(self) -> None:
        for name, text, limit in (("title", self.title, TITLE_WORDS), ("caption", self.caption, CAPTION_WORDS)):
            if not 1 <= (words := len(text.split())) <= limit:
                raise MorphError(f"frame {self.key!r}: its {name} has {words} words; write 1 to {limit}")

    def values(self, name: str) -> np.ndarray:
        """The numbers of an array."""
        return self.arrays[name].values

    def check(self) -> bool:
        """Whether the claim holds of this frame's data."""
        return bool(self.claim.holds(self))

    def to_dict(self) -> dict[str, Any]:
        """The frame as JSON values, the claim with its verdict."""
        return {
            "key": self.key,
            "title": self.title,
            "caption": self.caption,
            "alt": self.alt,
            "claim": {"text": self.claim.text, "holds": self.check()},
            "arrays": {
                name: {
                    "axes": list(a.axes),
                    "dtype": str(a.values.dtype),
                    "source": a.source,
                    "values": _listed(a.values),
                }
                for name, a in self.arrays.items()
            },
            "facts": dict(self.facts),
            "source": self.source,
            "absent": self.absent,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Frame:
        """The inverse of `to_dict`, up to the claim's predicate (see `Claim`)."""
        verdict = bool(data["claim"]["holds"])
        return cls(
            key=data["key"],
            title=data["title"],
            caption=data["caption"],
            alt=data["alt"],
            claim=Claim(text=data["claim"]["text"], holds=lambda _: verdict),
            arrays={
                name: Array(values=np.array(a["values"], dtype=a["dtype"]), axes=tuple(a["axes"]), source=a["source"])
                for name, a in data["arrays"].items()
            },
            facts=data["facts"],
            source=data["source"],
            absent=data["absent"],
        )


def _listed(values: np.ndarray) -> Any:
    """Nested lists; what is no number is None, for JSON knows no other."""
    if values.dtype.kind != "f":
        return values.tolist()
    numbers = np.array(values, dtype=object)
    numbers[np.isnan(values)] = None
    return numbers.tolist()


def absent(key: str, title: str, why: str, caption: str = "This model has nothing to show here.") -> Frame:
    """A frame that says why a model has nothing to show, in the place of an invented picture."""
    return Frame(
        key=key,
        title=title,
        caption=caption,
        alt=f"An empty stage with one sentence: {why}",
        claim=Claim(text="Nothing is claimed.", holds=lambda frame: not frame.arrays),
        absent=why,
    )


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A named sequence of frames.

    Attributes:
        name: as in `morph render NAME`.
        number: 1 to 10.
        title: the figure's own title.
        frames: in order; frame k is `frames[k - 1]`.
        opening: what stands on screen before frame 1, shown but not counted; `None` where a figure starts empty.
        provenance: where the numbers come from: sizes, seeds, steps, corpus, versions (JSON values).
    """

    name: str
    number: int
    title: str
    frames: tuple[Frame, ...]
    opening: Frame | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = [frame.key for frame in self.frames]
        if len(set(keys)) != len(keys):
            raise MorphError(f"figure {self.name!r} has two frames of one key; keys: {', '.join(keys)}")

    def __len__(self) -> int:
        return len(self.frames)

    def to_dict(self) -> dict[str, Any]:
        """The figure as JSON values."""
        return {
            "format": FORMAT,
            "name": self.name,
            "number": self.number,
            "title": self.title,
            "provenance": dict(self.provenance),
            "opening": self.opening and self.opening.to_dict(),
            "frames": [frame.to_dict() for frame in self.frames],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Figure:
        """The inverse of `to_dict`. Raises `MorphError` for data that are no figure of this format."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, Mapping) else type(data).__name__
            raise MorphError(f"not a figure of format {FORMAT} (found {found!r}); make it again with `morph render`")
        try:
            return cls(
                name=data["name"],
                number=data["number"],
                title=data["title"],
                provenance=data["provenance"],
                opening=Frame.from_dict(data["opening"]) if data["opening"] else None,
                frames=tuple(Frame.from_dict(frame) for frame in data["frames"]),
            )
        except (KeyError, TypeError) as error:
            raise MorphError(f"the figure's data lack or garble {error}; make it again with `morph render`") from None

    def save(self, path: Path) -> None:
        """Write the figure as JSON."""
        path.write_text(json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Figure:
        """Read what `save` wrote. Raises `MorphError` when `path` is missing, no JSON, or no figure."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MorphError(f"{path} is not a readable figure file ({error}); make it with `morph render`") from None
        return cls.from_dict(data)
