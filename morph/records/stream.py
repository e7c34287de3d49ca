"""Records of what happens on the stream between embedding, blocks and logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from morph.spec import Spec, require


@dataclass(frozen=True, kw_only=True)
class ResidualWeights(Spec):
    """x ← stream · x + branch · f(x), with factors for each kind of branch (MiniMax-01, 2025; after DeepNorm, 2022).

    `attention_*` are those of layers that see the whole past, `local_*` those of the local mixer.
    """

    kind: ClassVar[str] = "residual-weights"
    attention_stream: float = 1.0
    attention_branch: float = 1.0
    local_stream: float = 1.0
    local_branch: float = 1.0
    feed_forward_stream: float = 1.0
    feed_forward_branch: float = 1.0


@dataclass(frozen=True, kw_only=True)
class LogitScale(Spec):
    """Logits are multiplied by `scale` (Cohere's models, 2024)."""

    kind: ClassVar[str] = "logit-scale"
    scale: float


@dataclass(frozen=True, kw_only=True)
class LogitCap(Spec):
    """Logits z become cap · tanh(z / cap) (Gemma 2, 2024)."""

    kind: ClassVar[str] = "logit-cap"
    cap: float = 30.0


LogitRule = LogitScale | LogitCap


@dataclass(frozen=True, kw_only=True)
class Dropout(Spec):
    """While training, a share `rate` of the embedding's and of every branch's features is 0 (Srivastava et al., 2014).

    The 2017 Transformer had 0.1 there.
    """

    kind: ClassVar[str] = "dropout"
    rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rate < 1, f"dropout.rate = {self.rate} leaves nothing; choose a share below 1, such as 0.1")


@dataclass(frozen=True, kw_only=True)
class MTP(Spec):
    """`depth` more heads predict the tokens after the next one (DeepSeek-V3, 2024).

    Attributes:
        depth: heads, one after another: the first predicts the token after the next.
        weight: what multiplies the mean of their losses.
    """

    kind: ClassVar[str] = "mtp"
    depth: int = 1
    weight: float = 0.3
