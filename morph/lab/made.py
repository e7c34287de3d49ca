"""What the made tasks do with a model: give it a stem, and count its right answers.

The stem is a short convolution over the embeddings, with which every mixer sees the tokens just before. A key and
the value after it are two tokens. A softmax layer needs a layer to join them; Gated DeltaNet joins them in
its own convolution. Given the same stem, all mixers start from joined pairs, and what is compared is recall.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from morph.model import Decoder
from morph.train.loop import to_device

TAPS = 3


class Stem(nn.Module):
    """y_t = Σ_j w_j ⊙ x_{t-j} over the last `TAPS` tokens, the own included."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(TAPS, width, generator=generator) * TAPS**-0.5)

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Of the same size as `x` at the start, whatever the width."""
        before = F.pad(x, (0, 0, TAPS - 1, 0))
        return sum(self.weight[j] * before[:, TAPS - 1 - j :][:, : x.shape[1]] for j in range(TAPS))  # type: ignore[return-value]


def add_stem(model: Decoder, seed: int) -> None:
    """Put a stem behind the model's embedding; it learns with the rest. For passes without a cache."""
    stem = Stem(model.config.d_model, torch.Generator().manual_seed(seed))
    model.add_module("stem", stem)
    model.embedding.register_forward_hook(lambda _, __, out: stem(out))


@torch.no_grad()
def answers(model: Decoder, arrays: tuple[np.ndarray, np.ndarray], rows: int = 64) -> tuple[float, float]:
    """Share of the counted targets that are the likeliest token, and their mean loss in nats."""
    right = loss = 0.0
    counted = int((arrays[1] != -100).sum())
    for ids, targets in zip(
        *(part.split(rows) for part in to_device(arrays, model.embedding.weight.device)), strict=True
    ):
        here = targets != -100
        logits = model(ids)[here]
        right += float((logits.argmax(-1) == targets[here]).sum())
        loss += float(F.cross_entropy(logits.float(), targets[here], reduction="sum"))
    return right / counted, loss / counted
