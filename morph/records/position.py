"""Records of how a model's tokens know their place; what they compute is in `morph.nn.position`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from morph.spec import Spec, one_of, require

Pairing = Literal["half-split", "interleaved"]


@dataclass(frozen=True, kw_only=True)
class Sinusoid(Spec):
    """Fixed sines and cosines added to the embedding once (Vaswani et al., 2017)."""

    kind: ClassVar[str] = "sinusoid"
    base: float = 10_000.0


@dataclass(frozen=True, kw_only=True)
class LearnedPosition(Spec):
    """A trained vector for each of `length` places, added to the embedding once; none for later ones (GPT, 2018)."""

    kind: ClassVar[str] = "learned-position"
    length: int


@dataclass(frozen=True, kw_only=True)
class Rotary(Spec):
    """What all rotations share: pairs of features turn by position x frequency.

    Attributes:
        base: spreads the frequencies.
        pairing: which features are a pair: "half-split" takes i and i + d/2 (Llama), "interleaved" 2i and 2i + 1
            (RoFormer; DeepSeek, Cohere). The same function of reordered weights.
    """

    added: ClassVar[tuple[str, ...]] = ("pairing",)
    base: float = 10_000.0
    pairing: Pairing = "half-split"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(f"{self.kind}.pairing", self.pairing, Pairing)

    def rotated(self, head_dim: int) -> int:
        """How many of a head's features turn. Raises `MorphError` unless they come in pairs."""
        require(
            head_dim % 2 == 0,
            f"attention.head_dim = {head_dim} is odd, but {self.kind} rotates pairs; choose an even head_dim",
        )
        return head_dim


@dataclass(frozen=True, kw_only=True)
class Rope(Rotary):
    """Queries and keys rotated by position x frequency in every softmax layer (Su et al., 2021)."""

    kind: ClassVar[str] = "rope"


@dataclass(frozen=True, kw_only=True)
class PartialRope(Rotary):
    """The first `fraction` of a head's features rotates, the rest pass untouched (GPT-NeoX, 2022; GLM-4.5, 2025)."""

    kind: ClassVar[str] = "partial-rope"
    fraction: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.fraction <= 1, f"{self.kind}.fraction = {self.fraction} is above 1; give a share such as 0.5")

    def rotated(self, head_dim: int) -> int:
        """The features of the turning part."""
        width = head_dim * self.fraction
        require(
            abs(width / 2 - round(width / 2)) < 1e-6 and width > 1,
            f"{self.kind}.fraction = {self.fraction} rotates {width:g} of head_dim = {head_dim} features, but they "
            f"come in pairs; choose a fraction that makes an even number, such as {2 / head_dim:g}",
        )
        return round(width)


@dataclass(frozen=True, kw_only=True)
class Stretched(Rotary):
    """What rotations for texts beyond the trained length share: at most `factor` times slower than trained."""

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.factor >= 1,
            f"{self.kind}.factor = {self.factor} is below 1 and would shorten the reach; choose 1 or more",
        )


@dataclass(frozen=True, kw_only=True)
class LinearRope(Stretched):
    """Every frequency divided by `factor`, as if positions were (Chen et al., 2023; kaiokendev, 2023)."""

    kind: ClassVar[str] = "linear-rope"


@dataclass(frozen=True, kw_only=True)
class NtkRope(Stretched):
    """The base enlarged until the slowest pair turns `factor` times slower, the fastest as before (bloc97, 2023)."""

    kind: ClassVar[str] = "ntk-rope"

    def rotated(self, head_dim: int) -> int:
        """All features, of which there must be two pairs to tell fast from slow."""
        require(head_dim != 2, f"attention.head_dim = 2 is one pair, but {self.kind} needs two; choose 4 or more")
        return super().rotated(head_dim)


@dataclass(frozen=True, kw_only=True)
class YarnRope(Stretched):
    """Slow pairs divided by `factor`, fast ones kept, a ramp between; cosine and sine enlarged (Peng et al., 2023).

    Attributes:
        original_length: tokens in the texts the unscaled frequencies were trained on.
        beta_fast, beta_slow: full turns within them at which the ramp begins and ends.
        truncate: whether the ramp's ends are widened to whole pairs (gpt-oss leaves them where they fall).
        attention_scale: what multiplies cosines and sines; None for 0.1 ln(factor) + 1.
    """

    kind: ClassVar[str] = "yarn"
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.base > 1, f"{self.kind}.base = {self.base} gives all pairs one speed; choose a base above 1")
        require(
            self.beta_fast >= self.beta_slow,
            f"{self.kind}.beta_fast = {self.beta_fast} is below beta_slow = {self.beta_slow}; "
            f"choose beta_fast >= {self.beta_slow}",
        )


@dataclass(frozen=True, kw_only=True)
class Llama3Rope(Stretched):
    """Frequencies by bands of wavelength: long ones divided by `factor`, short ones kept (Llama 3.1, 2024).

    Attributes:
        original_length: tokens in the texts the unscaled frequencies were trained on.
        low_factor, high_factor: full turns within them below which a pair is slowed, and above which it is kept;
            between the two the frequency is blended.
    """

    kind: ClassVar[str] = "llama3-rope"
    original_length: int
    low_factor: float = 1.0
    high_factor: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.high_factor > self.low_factor,
            f"{self.kind}.high_factor = {self.high_factor} is not above low_factor = {self.low_factor}; "
            f"choose more than {self.low_factor}",
        )


@dataclass(frozen=True, kw_only=True)
class Alibi(Spec):
    """Each score lowered by the distance times its head's slope; nothing is added or rotated (Press et al., 2021)."""

    kind: ClassVar[str] = "alibi"


@dataclass(frozen=True, kw_only=True)
class NoPosition(Spec):
    """Nothing tells tokens apart by place but the causal mask."""

    kind: ClassVar[str] = "no-position"


Rotation = Rope | PartialRope | LinearRope | NtkRope | YarnRope | Llama3Rope
InLayer = Rotation | Alibi | NoPosition
"""What a softmax layer itself can know of places."""


@dataclass(frozen=True, kw_only=True)
class PerLayer(Spec):
    """Layers that see the last few tokens and layers that see all tell places apart in different ways."""

    kind: ClassVar[str] = "per-layer"
    local: InLayer
    global_: InLayer


@dataclass(frozen=True, kw_only=True)
class SomeLayers(Spec):
    """The layers listed (from 0) tell places apart in one way, all others in another (SmolLM3, 2025)."""

    kind: ClassVar[str] = "some-layers"
    layers: tuple[int, ...]
    inside: InLayer
    outside: InLayer


Position = Sinusoid | LearnedPosition | InLayer | PerLayer | SomeLayers
