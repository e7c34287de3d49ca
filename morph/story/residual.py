"""Figure 2, the residual stream: what enters it, what is written on it, how it grows, and what norms do to it.

Frames 1 to 8 look at one model; a trained one is shown beside its sibling of the same config and seed as initialized.
Frames 9 to 13 build that config with the norms in five places and look at them as initialized. Sizes are root mean
squares; `depth` counts layers, half a layer a write. Facts beside the arrays:

* all: `aside` (how many layers, whether trained), `layers`, `width`, `trained`;
* 1 to 3: `words` (the last tokens read), `shown` (features drawn, where a model has more), `norm` (whether the branch
  reads through one), `rms` (of each vector), `feature` (one number followed: index, before, delta, after, sum);
* 6: `sigma`, `curve_misses` (the same with `first_`: as initialized), `worst` (the layer where it misses most);
* 7: `mean` and `spread` of the cosines (`first_`, `random_` alike), `cross_share`;
* 9 to 13: `placement`, `names` (placements in words), `write` (RMS of a write).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from morph.config import ModelConfig
from morph.model import Decoder
from morph.story import residual_depth as depth
from morph.story import residual_layer as layer
from morph.story import residual_norms as norms
from morph.story.frame import Figure, Frame
from morph.story.residual_kit import Material
from morph.story.stream import read
from morph.story.subject import siblings, subject
from morph.story.threads import one_thread

NAME, NUMBER, TITLE = "residual", 2, "The residual stream"
FRAMES: tuple[Callable[[Material], Frame], ...] = (
    layer.bus,
    layer.first_write,
    layer.second_write,
    depth.total,
    depth.sizes,
    depth.growth,
    depth.angles,
    depth.shares,
    norms.post_norm,
    norms.pre_norm,
    norms.bounded,
    norms.backward,
    norms.depth_scaled,
)
"""What makes each frame, in order."""


@one_thread()
def figure(model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 2 of a model; None is the recorded one of 24 layers.

    Raises:
        MorphError: when `model` is nothing that `morph.story.subject.subject` knows.
    """
    source = subject("deep" if model is None else model, seed=seed)
    config = source.config
    it = read(source)
    start = read(siblings(source, [config])[0]) if source.is_trained and not source.is_released else None
    material = Material(it, start, {s.config.placement: read(s) for s in norms.placed(source)})
    return Figure(
        name=NAME,
        number=NUMBER,
        title=TITLE,
        frames=tuple(make(material) for make in FRAMES),
        provenance={**source.provenance, "tokens": len(it.tokens), "torch": torch.__version__},
    )
