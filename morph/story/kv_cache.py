"""Figure 6, the KV cache: what decoding reads again at every step, what that costs, and who keeps how little of it.

Frames 1 and 2 weigh the subject's own cache (`kv_cache_step`), 5 to 8 one layer of it under MHA, MQA, GQA and MLA
(`kv_cache_heads`), 9 sets the two forms of a latent layer side by side (`kv_cache_latent`). Frames 3, 4 and 10 count
released models (`kv_cache_released`), 11 weighs every kind of cache that there is (`kv_cache_weighed`). By default
the subject is the recorded model with a learned sink, whose layers all see the whole past; a sink is not cached. Each
module says what the facts of its frames are.
"""

from __future__ import annotations

from pathlib import Path

from morph.config import ModelConfig
from morph.model import Decoder
from morph.story.frame import Figure
from morph.story.kv_cache_heads import heads_frames
from morph.story.kv_cache_latent import absorption_frame
from morph.story.kv_cache_released import intensity_frame, llama_frame, released_frame
from morph.story.kv_cache_step import formula_frame, step_frame
from morph.story.kv_cache_weighed import weighed_frame
from morph.story.subject import subject
from morph.story.threads import one_thread

NAME, NUMBER, TITLE = "kv-cache", 6, "The KV cache"


@one_thread()
def figure(*, model: Decoder | ModelConfig | str | int | Path | None = None, seed: int = 0) -> Figure:
    """Figure 6 for a model (None: the recorded one with a sink). Raises `MorphError` when `model` names none."""
    own = subject("sink" if model is None else model, seed=seed)
    frames = (
        step_frame(own), formula_frame(own), llama_frame(), intensity_frame(own), *heads_frames(own),
        absorption_frame(own), released_frame(own), weighed_frame(own, model is not None),
    )  # fmt: skip
    return Figure(name=NAME, number=NUMBER, title=TITLE, frames=frames, provenance=own.provenance)
