"""What a model writes on its residual stream, measured: the numbers behind figure 2.

A `Stream` is one pass over one text. Its `states` are the stream before the first write and after each write, its
`deltas` what the branches wrote: attention and feed-forward by turns, so write w belongs to layer w // 2 and state w
stands at a depth of w / 2 layers. Sizes are root mean squares over the features (and over tokens where said): a vector
of RMS r has length r√D.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from morph.config import LayerNorm, LayerNormNoBias, ModelConfig
from morph.measure.trace import trace
from morph.model import Decoder
from morph.nn.block import Block
from morph.story.subject import Subject

TOKENS = 64
"""Tokens of a pass, or fewer where the model's context is shorter."""
SAMPLES = 4
"""Texts behind a gradient."""


@dataclass(frozen=True)
class Stream:
    """One pass: `tokens` read, every state and every delta, and the trace that they come from.

    states: (W + 1, S, D); deltas: (W, S, D), with W = 2L writes.
    """

    subject: Subject
    tokens: list[int]
    states: Float[Tensor, "W1 S D"]
    deltas: Float[Tensor, "W S D"]
    seen: Mapping[str, Tensor]

    @cached_property
    def sizes(self) -> Float[Tensor, "W1"]:
        """RMS of each state, over tokens and features."""
        return rms(self.states)

    @cached_property
    def writes(self) -> Float[Tensor, "W"]:
        """RMS of each delta, over tokens and features."""
        return rms(self.deltas)

    @property
    def depth(self) -> Float[Tensor, "W1"]:
        """Where each state stands, in layers."""
        return torch.arange(len(self.states)) / 2

    @property
    def shares(self) -> Float[Tensor, "W"]:
        """Size of each delta by that of the stream to which it is added."""
        return self.writes / self.sizes[:-1]


def read(subject: Subject) -> Stream:
    """Let a model read the figures' passage and keep what its branches wrote."""
    length = min(TOKENS, subject.config.context_length)
    ids = subject.ids(length)
    with trace(subject.model) as seen, torch.no_grad():
        subject.model(ids)
    deltas = [
        seen[f"blocks.{layer}.{half}_delta"]
        for layer in range(subject.config.n_layers)
        for half in ("attention", "feed_forward")
    ]
    return Stream(subject, ids[0].tolist(), states_in(seen, subject.config.n_layers), torch.cat(deltas), seen)


def is_sum(config: ModelConfig) -> bool:
    """Whether the stream is x_0 plus all deltas: no norm stands on it."""
    return config.placement not in ("post", "on-normed-stream")


def states_in(seen: Mapping[str, Tensor], layers: int) -> Float[Tensor, "W1 S D"]:
    """The stream before the first write and after each, from the trace of one text."""
    states = [seen["stream"]]
    for block in (f"blocks.{layer}" for layer in range(layers)):
        side_by_side = f"{block}.middle" not in seen  # both halves read one stream; nothing stands between them
        middle = states[-1] + seen[f"{block}.attention_delta"] if side_by_side else seen[f"{block}.middle"]
        states += [middle, seen[f"{block}.stream"]]
    return torch.cat(states)


def rms(x: Float[Tensor, "N S D"]) -> Float[Tensor, "N"]:
    """Root mean square over all axes but the first."""
    return x.double().square().flatten(1).mean(1).sqrt()


def rebuilt(stream: Stream, weights: Float[Tensor, "W1 S"] | None = None) -> Float[Tensor, "S D"]:
    """x_0 and all deltas, added up in fp32, each times its weight if there are some; what LayerNorms on the stream
    would take away, the mean, is taken away.
    """
    parts = torch.cat([stream.states[:1], stream.deltas])
    if weights is not None:
        parts = parts * weights[..., None].to(parts.dtype)
    whole = parts.sum(0)
    centred = stream.subject.config.placement == "post" and centres(stream.subject.config)
    return whole - whole.mean(-1, keepdim=True) if centred else whole


def centres(config: ModelConfig) -> bool:
    """Whether a norm takes the mean away."""
    return isinstance(config.norm, LayerNorm | LayerNormNoBias)


def fitted(stream: Stream) -> tuple[float, Float[Tensor, "L1"]]:
    """The curve √(r_0² + ℓσ²) nearest to the stream's growth after whole layers, and its σ.

    σ² is the one parameter: least squares of r_ℓ² - r_0² on ℓ, through the origin.
    """
    squares = stream.sizes[::2].square()
    depth = torch.arange(len(squares), dtype=torch.float64)
    variance = max(float((depth * (squares - squares[0])).sum() / depth.square().sum()), 0.0)
    return variance**0.5, (squares[0] + depth * variance).sqrt()


def cosines(deltas: Float[Tensor, "W S D"]) -> Float[Tensor, "S W W"]:
    """Cosine of each two deltas of one token."""
    unit = F.normalize(deltas, dim=-1)
    return torch.einsum("asd,bsd->sab", unit, unit)


def apart(cosine: Float[Tensor, "S W W"]) -> Float[Tensor, "N"]:
    """The cosines of different writes, each pair once, as one list."""
    once = torch.ones(cosine.shape[1:], dtype=torch.bool).triu(diagonal=1)
    return cosine[:, once].flatten()


def random_cosines(stream: Stream) -> Float[Tensor, "N"]:
    """The same list for vectors drawn at random, as many and as wide as the deltas."""
    drawn = torch.randn(stream.deltas.shape, generator=torch.Generator().manual_seed(stream.subject.seed))
    return apart(cosines(drawn))


def cross_share(stream: Stream) -> float:
    """How much of the last state's squared length is inner products of different parts (0: they are orthogonal)."""
    own = float(stream.sizes[0].square() + stream.writes.square().sum())
    return 1 - own / float(stream.sizes[-1].square())


def divisions(stream: Stream) -> Float[Tensor, "W S"]:
    """What the norm behind each write multiplies the stream of a token by: 1/RMS (1/deviation), or 1 without norms.

    It holds for norms with a gain of 1 and no shift, as initialized.
    """
    scales = torch.ones(stream.deltas.shape[:2], dtype=torch.float64)
    config = stream.subject.config
    if config.placement == "post":
        into = (stream.states[:-1] + stream.deltas).double()
        if centres(config):
            into = into - into.mean(-1, keepdim=True)
        scales = torch.rsqrt(into.square().mean(-1) + config.norm.eps)
    return scales


def passed_on(stream: Stream) -> Float[Tensor, "W1 S"]:
    """The factor that x_0 and each delta carry in the last state: every norm behind a part divides it."""
    scales = divisions(stream)
    behind = scales.flip(0).cumprod(0).flip(0)  # a delta's own norm is behind it
    return torch.cat([behind[:1], behind])


def gradients(subject: Subject) -> Float[Tensor, "L1"]:
    """Length of the loss's gradient at the stream before layer 1 and after every layer, as it comes down.

    The loss is that of predicting the next byte of `SAMPLES` texts.
    """
    model = subject.model
    ids = subject.ids(min(TOKENS, subject.config.context_length) + 1, SAMPLES)
    with trace(model, gradients=True) as seen, torch.enable_grad():
        model.loss(ids[:, :-1], ids[:, 1:]).cross_entropy.backward()
    model.zero_grad(set_to_none=True)
    names = ["stream.gradient", *(f"blocks.{layer}.stream.gradient" for layer in range(subject.config.n_layers))]
    return torch.stack([seen[name].norm() for name in names]).double()


def louder(subject: Subject, factor: float) -> Float[Tensor, "W"]:
    """Sizes of the deltas when the last matrix of every branch is `factor` times as large as it is."""
    hooks = [
        organ.register_forward_hook(lambda _, args, out: factor * out)  # the matrix is linear: so is its output
        for block in _blocks(subject.model)
        for organ in (block.attention, block.feed_forward)
    ]
    try:
        return read(subject).writes
    finally:
        for hook in hooks:
            hook.remove()


def _blocks(model: Decoder) -> list[Block]:
    return [block for block in model.blocks if isinstance(block, Block)]
