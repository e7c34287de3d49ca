"""The decoder: embed, blocks, norm, head. Everything in it follows from its `ModelConfig`."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from morph import config
from morph.errors import MorphError
from morph.nn.block import BLOCKS, Block, build_dropout
from morph.nn.cache import Cache
from morph.nn.context import Context
from morph.nn.logits import logits_of
from morph.nn.loss import cross_entropy
from morph.nn.mtp import MTPHead
from morph.nn.norm import build_norm
from morph.nn.organ import Embedding, Linear, Organ, init_weights
from morph.nn.router import Router
from morph.nn.sparse import Indexer


@dataclass(frozen=True)
class Loss:
    """The parts of a training loss, scalars in nats per token; `total`, their sum, is what training descends.

    Attributes:
        cross_entropy: of the next token.
        balance: the mean over layers with experts, those of MTP heads included, of what an auxiliary loss adds.
        mtp: the weight of multi-token prediction times the mean over its heads' cross-entropies.
        indexer: the mean over layers with an indexer, likewise, of how far it is from the attention it predicts.
    """

    total: Float[Tensor, ""]
    cross_entropy: Float[Tensor, ""]
    balance: Float[Tensor, ""]
    mtp: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))
    indexer: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))


class Decoder(Organ):
    """A decoder-only language model.

    Call it with token ids (B, S) for logits (B, S, V); the logits at position t speak of token t+1.
    """

    def __init__(self, config: config.ModelConfig) -> None:
        super().__init__()
        self.config = config
        placements = [config.placement_in(layer) for layer in range(config.n_layers)]
        self.embedding = Embedding(config.vocab_size, config.d_model)
        limit = config.position_limit
        self.positions = None if limit is None else Embedding(limit, config.d_model)
        self.drop = build_dropout(config)  # on the embedding and what is added to it
        self.blocks = nn.ModuleList(BLOCKS[placement](config, layer) for layer, placement in enumerate(placements))
        has_norm = BLOCKS[placements[-1]].has_final_norm
        self.norm = build_norm(config.norm, config.d_model) if has_norm else nn.Identity()
        self.head = None if config.tied else Linear(config.d_model, config.vocab_size, bias=False)
        self.mtp = nn.ModuleList(MTPHead(config) for _ in range(config.mtp.depth if config.mtp else 0))

    @property
    def head_weight(self) -> Float[Tensor, "V D"]:
        """What turns the stream into logits: the embedding itself when tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    def new_cache(self, batch_size: int = 1) -> Cache:
        """An empty cache for `batch_size` texts. Raises MorphError below one."""
        if not isinstance(batch_size, int) or batch_size < 1:
            raise MorphError(f"batch_size = {batch_size!r}: a cache holds at least one text; give 1 or more")
        layers = [block.new_cache() for block in self.blocks if isinstance(block, Block)]
        return Cache(batch_size, layers, made_for=self.config)

    def forward(
        self, ids: Int[Tensor, "B S"], *, lengths: Int[Tensor, "B"] | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "B S V"]:
        """Logits for the token after each position.

        Args:
            ids: token ids, 0 to V-1 (any of them where a row is padding).
            lengths: for rows padded on the left, how many of the S columns hold tokens (0 to S); None for all.
            cache: what earlier calls read; `ids` continue it, and it is updated in place.

        Raises:
            MorphError: for ids that are not a (B, S) batch of whole numbers below V, lengths that do not fit, or a text
                longer than `config.position_limit`, what the cache holds of it included.
        """
        logits = self.logits(self.read(ids, lengths=lengths, cache=cache))
        self.record(logits=logits)
        return logits

    def read(
        self, ids: Int[Tensor, "B S"], *, lengths: Int[Tensor, "B"] | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "B S D"]:
        """The same without the head: what it would read."""
        return self._stream(ids, lengths, cache)[0]

    def logits(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """What the head says to what it reads."""
        return logits_of(x, self.head_weight, self.config.logits)

    def embed(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """The rows of the table, scaled, before any position is added."""
        return self.embedding(ids) * self._factor()

    def _factor(self) -> Float[Tensor, ""]:
        """What multiplies tables, in their precision, as Gemma has it: bf16 rounds √D before it multiplies."""
        return torch.full_like(self.embedding.weight[0, 0], self.config.embedding_factor)

    def context(self, past: int, length: int, pads: Int[Tensor, "B"] | None = None) -> Context:
        """What layers share that read columns `past` .. `past + length - 1`, on this model's device."""
        weight = self.embedding.weight
        tables = torch.float64 if weight.dtype == torch.float64 else torch.float32
        return Context(past, length, pads, weight.device, tables)

    def loss(self, ids: Int[Tensor, "B S"], targets: Int[Tensor, "B S"]) -> Loss:
        """The training loss of predicting `targets` (-100 is not counted), a slice of a large vocabulary at a time.

        Where there are MTP heads, `targets` must be the tokens that follow `ids`, as they read them from `ids`.

        Raises:
            MorphError: for targets of another shape or type than `ids`, or at V or above.
        """
        self._check_targets(ids, targets)
        x, context = self._stream(ids, None, None)
        entropy = self._entropy(x, targets)
        later = self._entropy_of_later_tokens(x, ids, targets, context)
        balance = torch.stack(context.penalties).mean() if context.penalties else torch.zeros_like(entropy)
        mtp = torch.zeros_like(entropy)
        if later and self.config.mtp is not None:
            mtp = self.config.mtp.weight * torch.stack(later).mean()
        indexer = torch.stack(context.lessons).mean() if context.lessons else torch.zeros_like(entropy)
        return Loss(entropy + balance + mtp + indexer, entropy, balance, mtp, indexer)

    def _entropy(self, x: Float[Tensor, "B S D"], targets: Int[Tensor, "B S"]) -> Float[Tensor, ""]:
        return cross_entropy(x.flatten(0, 1), self.head_weight, targets.flatten(), self.config.logits)

    def _entropy_of_later_tokens(
        self, h: Float[Tensor, "B S D"], ids: Int[Tensor, "B S"], targets: Int[Tensor, "B S"], shared: Context
    ) -> list[Float[Tensor, ""]]:
        """Each MTP head's cross-entropy, over the columns that have the tokens it needs; what they have to
        add to the loss besides goes where the trunk's layers put theirs, into `shared`.

        Head k reads h of columns 0 .. S-k-1 and the tokens k further on, and is told the targets k further on.
        """
        found = []
        for depth, head in enumerate(self.mtp, start=1):
            length = ids.shape[1] - depth
            if length < 1:
                break
            context = self.context(0, length)
            h = head(h[:, :length], self.embed(ids[:, depth:]), context)
            found.append(self._entropy(h, targets[:, depth:]))
            shared.penalties += context.penalties
            shared.lessons += context.lessons
        return found

    def end_step(self) -> Float[Tensor, "layers E"] | None:
        """Call once after each optimizer step: moves the selection biases by the load of the whole step.

        Indexers, which attention stays dense for while they warm up, count the step.

        Returns:
            How often each expert was chosen since the last call, a row per layer, MTP heads last; None without experts.
        """
        for module in self.modules():
            if isinstance(module, Indexer):
                module.end_step()
        loads = [module.end_step() for module in self.modules() if isinstance(module, Router)]
        return torch.stack(loads) if loads else None

    def _stream(
        self, ids: Int[Tensor, "B S"], lengths: Int[Tensor, "B"] | None, cache: Cache | None
    ) -> tuple[Float[Tensor, "B S D"], Context]:
        """The residual stream at the head's door, and what the layers shared."""
        self._check(ids, lengths)
        B, S = ids.shape
        past = cache.columns if cache is not None else 0
        pads = None
        if cache is not None:
            if cache.made_for is not self.config and cache.made_for != self.config:
                raise MorphError(
                    "this cache is that of a model with another config; make one with this model's new_cache"
                )
            self.check_length(cache.longest(S, lengths))
            cache.admit(B, S, lengths)
            pads = cache.pads
        else:
            self.check_length(S if lengths is None else int(lengths.max()))
            if lengths is not None and bool((lengths < S).any()):
                pads = S - lengths.cpu()
        context = self.context(past, S, pads)

        x = self.embed(ids)
        self.record(embedded=x)
        if isinstance(self.config.position, config.Sinusoid):
            x = x + context.sinusoid(self.config.position, self.config.d_model).to(x.dtype)
        if self.positions is not None:
            x = x + self.positions(context.positions) * self._factor()
        x = self.drop(x)
        self.record(stream=x)
        layers = cache.layers if cache is not None else [None] * len(self.blocks)
        for block, held in zip(self.blocks, layers, strict=True):
            x = block(x, context, held)
        return self.norm(x), context

    def check_length(self, length: int) -> None:
        """Raise MorphError when texts of `length` tokens go beyond the places that the model can tell apart."""
        limit = self.config.position_limit
        if limit is not None and length > limit:
            raise MorphError(
                f"position {length - 1} is beyond the last row, {limit - 1}, of this model's position table; "
                f"read at most {limit} tokens of a text"
            )

    def _check(self, ids: Tensor, lengths: Tensor | None) -> None:
        if torch.compiler.is_compiling():
            return
        if self.embedding.weight.is_meta:
            raise MorphError("a model on the meta device has shapes and no numbers; build it on another to run it")
        if not isinstance(ids, Tensor):
            raise MorphError(f"ids are a {type(ids).__name__}; give a non-empty (B, S) tensor of integers")
        if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32) or ids.numel() == 0:
            raise MorphError(
                f"ids have shape {tuple(ids.shape)} and type {ids.dtype}; give a non-empty (B, S) tensor of integers"
            )
        if ids.device.type == "cpu":  # elsewhere the look would stall the device
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= self.config.vocab_size:
                wrong = low if low < 0 else high
                last = self.config.vocab_size - 1
                raise MorphError(f"token id {wrong} is out of range; this model knows 0 to {last}")
        if lengths is not None:
            if not isinstance(lengths, Tensor) or lengths.dtype not in (torch.int64, torch.int32):
                raise MorphError(f"lengths = {lengths!r} must be a tensor of integers, one per row")
            if lengths.shape != ids.shape[:1]:
                raise MorphError(f"lengths have shape {tuple(lengths.shape)}; give one per row, ({len(ids)},)")
            if bool((lengths < 0).any()) or bool((lengths > ids.shape[1]).any()):
                raise MorphError(f"lengths {lengths.tolist()} must lie between 0 and the {ids.shape[1]} columns")

    def _check_targets(self, ids: Tensor, targets: Tensor) -> None:
        if torch.compiler.is_compiling():
            return
        if targets.shape != ids.shape or targets.dtype != torch.int64:
            raise MorphError(
                f"targets have shape {tuple(targets.shape)} and type {targets.dtype}; give int64 of the ids' shape, "
                f"{tuple(ids.shape)}"
            )
        if targets.device.type == "cpu":
            wrong = targets[(targets != -100) & ((targets < 0) | (targets >= self.config.vocab_size))]
            if len(wrong):
                last = self.config.vocab_size - 1
                raise MorphError(f"target {int(wrong[0])} is out of range; give 0 to {last}, or -100 to leave it out")


def build(config: config.ModelConfig, seed: int = 0, device: str | torch.device = "cpu") -> Decoder:
    """A new model with weights drawn on the CPU, so that a seed means the same weights on every device.

    On `device="meta"` it has shapes and no storage, whatever its size.

    Raises:
        MorphError: for a device that is not there.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise MorphError(f"device {str(device)!r} cannot be used here ({reason}); build on 'cpu'") from None
    with torch.device("meta"):
        model = Decoder(config)
    if torch.device(device).type == "meta":
        return model
    # `to_empty` would do; but its `empty_like` of a meta tensor imports torch's compiler, a second on its own
    model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
    with torch.no_grad():
        init_weights(model, seed)
    return model.to(device)
