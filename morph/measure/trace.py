"""Watching a pass: every tensor that matters, by name.

    with morph.trace(model) as t:
        model(ids)
    t["blocks.3.attention.weights"]        # (B, H, S, N), fp32 on the CPU
    t.save("trace.safetensors")

With `gradients=True` a backward pass inside the block adds, under the same name and `.gradient`, the derivative by each
recorded tensor that what is differentiated depends on:

    with morph.trace(model, gradients=True) as t:
        model.loss(ids, targets).total.backward()
    t["blocks.3.stream.gradient"]          # (B, S, D)

While no trace is open nothing is recorded and nothing is paid.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from morph.errors import MorphError, nearest
from morph.model import Decoder
from morph.nn.organ import Organ, Recorder

SHAPES: dict[str, tuple[str, str]] = {
    "embedded": ("B S D", "the tokens' rows of the table, scaled (by √D by default), before a position is added"),
    "stream": ("B S D", "the residual stream entering block 0, the position added"),
    "logits": ("B S V", "what the head says of the next token"),
    "norm.input": ("B S D", "the stream before the final norm"),
    "blocks.*.attention_norm.input": ("B S D", "what the norm of the mixing half reads"),
    "blocks.*.feed_forward_norm.input": ("B S D", "what the norm of the feed-forward half reads"),
    "blocks.*.norm.input": ("B S D", "the stream that the one norm of a parallel block reads"),
    "blocks.*.attention_out_norm.input": ("B S D", "what the mixing half computes, before its second norm (sandwich)"),
    "blocks.*.feed_forward_out_norm.input": ("B S D", "the same of the feed-forward half (sandwich)"),
    "blocks.*.attention_delta": ("B S D", "what mixing adds to the stream"),
    "blocks.*.middle": ("B S D", "the stream between the halves"),
    "blocks.*.feed_forward_delta": ("B S D", "what the feed-forward half adds to the stream"),
    "blocks.*.stream": ("B S D", "the stream after the block"),
    "blocks.*.attention.projected_queries": ("B H S Dh", "queries before QK-norm and rotation"),
    "blocks.*.attention.projected_keys": ("B K S Dh", "keys before QK-norm and rotation"),
    "blocks.*.attention.q_norm.input": ("B H S Dh", "what QK-norm reads of the queries"),
    "blocks.*.attention.k_norm.input": ("B K S Dh", "what QK-norm reads of the keys"),
    "blocks.*.attention.unrotated_queries": ("B H S Dh", "queries after QK-norm (if any), before rotation (if any)"),
    "blocks.*.attention.unrotated_keys": ("B K S Dh", "keys after QK-norm (if any), before rotation (if any)"),
    "blocks.*.attention.queries": ("B H S Dh", "queries as they meet the keys"),
    "blocks.*.attention.keys": ("B K N Dh", "keys in sight, cached ones included"),
    "blocks.*.attention.values": ("B K N Dv", "values in sight, cached ones included"),
    "blocks.*.attention.scores": ("B H S N", "what the softmax reads: scaled scores, -inf where masked"),
    "blocks.*.attention.weights": ("B H S N", "attention weights; a row sums to 1, less what a sink takes"),
    "blocks.*.attention.sink_weights": ("B H S", "what the sink takes of each query's weight"),
    "blocks.*.attention.heads": ("B H S Dv", "each head's output before the last projection"),
    "blocks.*.attention.gate": ("B H S Dh", "what multiplies that output, between 0 and 1 (gated attention)"),
    "blocks.*.attention.q_latent_norm.input": (
        "B S Rq",
        "what the norm of the queries' latent reads (latent attention)",
    ),
    "blocks.*.attention.kv_latent_norm.input": ("B S R", "what the norm of keys' and values' latent reads"),
    "blocks.*.attention.query_latents": ("B S Rq", "what all heads' queries unfold from (latent attention)"),
    "blocks.*.attention.latents": ("B N R", "what all heads' keys and values unfold from, cached ones included"),
    "blocks.*.attention.unrotated_rotary_keys": ("B S Dr", "the key all heads share, before rotation (if any)"),
    "blocks.*.attention.rotary_keys": ("B N Dr", "the key all heads share, cached ones included (latent attention)"),
    "blocks.*.attention.indexer.k_norm.input": ("B S Di", "the indexer's keys before their norm (sparse attention)"),
    "blocks.*.attention.indexer.queries": ("B Hi S Di", "the indexer's queries as they meet its keys"),
    "blocks.*.attention.indexer.keys": ("B N Di", "the indexer's one key a token, cached ones included"),
    "blocks.*.attention.indexer.head_weights": ("B S Hi", "what each of its heads counts for"),
    "blocks.*.attention.indexer.scores": ("B S N", "how well each token suits each query, -inf where masked"),
    "blocks.*.attention.indexer.chosen": ("B S k", "which of the tokens in sight are attended to, best first"),
    "blocks.*.attention.unit_queries": ("B H S Dk", "scaled queries of unit length (delta layers)"),
    "blocks.*.attention.unit_keys": ("B H S Dk", "keys of unit length (delta layers)"),
    "blocks.*.attention.new_values": ("B H S Dv", "values to be written (recurrent layers)"),
    "blocks.*.attention.state_queries": ("B H S Dk", "queries after SiLU (lightning attention)"),
    "blocks.*.attention.state_keys": ("B H S Dk", "keys after SiLU (lightning attention)"),
    "blocks.*.attention.read": ("B H S Dv", "what each token reads from the state (recurrent layers)"),
    "blocks.*.attention.log_decay": ("B H S", "log of the decay (Gated DeltaNet)"),
    "blocks.*.attention.log_decays": ("B H S Dk", "log of each key feature's decay (Kimi Delta Attention)"),
    "blocks.*.attention.beta": ("B H S", "write strength (delta layers)"),
    "blocks.*.attention.state": ("B H Dk Dv", "the state after the last token (recurrent layers)"),
    "blocks.*.attention.out_norm.input": ("B H S Dv", "what the output norm reads (recurrent layers)"),
    "blocks.*.feed_forward.preactivation": ("B S F", "what the activation reads (dense layers)"),
    "blocks.*.feed_forward.value": ("B S F", "what the gate multiplies (gated dense layers)"),
    "blocks.*.feed_forward.router.logits": ("T E", "router scores"),
    "blocks.*.feed_forward.router.probabilities": ("T E", "their softmax, or the sigmoid of each"),
    "blocks.*.feed_forward.router.selection_bias": ("E", "what the choice adds to them (loss-free balance)"),
    "blocks.*.feed_forward.router.groups": ("T G", "the sum of each group's two best choices (group-limited router)"),
    "blocks.*.feed_forward.router.chosen": ("T k", "indices of the chosen experts, best first"),
    "blocks.*.feed_forward.router.weights": ("T k", "their weights, scaled"),
    "blocks.*.feed_forward.router.loads": ("E", "how many of the T k choices fell on each expert"),
    "blocks.*.feed_forward.experts.parts": ("T k D", "what each chosen expert answers, before its weight"),
    "blocks.*.feed_forward.routed": ("B S D", "the weighted sum of those answers"),
    "blocks.*.feed_forward.shared_gate": ("B S", "what multiplies the shared experts' answers (gated ones)"),
    "blocks.*.feed_forward.shared.*.output": ("B S D", "what a shared expert answers, before any gate"),
    "blocks.*.feed_forward.shared.*.preactivation": ("B S F", "what a shared expert's activation reads"),
    "blocks.*.feed_forward.shared.*.value": ("B S F", "what a shared expert's gate multiplies"),
    "mtp.*.token_norm.input": ("B S' D", "embeddings that an MTP head joins to the stream; S' of the S columns"),
    "mtp.*.stream_norm.input": ("B S' D", "what it reads of the trunk, or of the head before it"),
    "mtp.*.stream": ("B S' D", "the two joined, entering its block, whose own names are those of `blocks.*`"),
    "mtp.*.norm.input": ("B S' D", "what its block leaves, before its norm"),
}
"""Every name a trace can hold: shape and meaning. The letters are those of `morph.nn.organ`."""


GRADIENT = ".gradient"


def describe(name: str) -> tuple[str, str]:
    """The shape and meaning of a recorded name. Raises KeyError for a name that no trace holds."""
    if name.endswith(GRADIENT):
        shape, about = describe(name.removesuffix(GRADIENT))
        return shape, f"the derivative by {about}"
    if found := re.fullmatch(r"mtp\.\d+\.block\.(.+)", name):
        shape, about = describe(f"blocks.0.{found[1]}")
        return re.sub(r"\b([SNT])\b", r"\1'", shape), f"{about}, in the block of an MTP head"
    for pattern, entry in SHAPES.items():
        if fnmatch.fnmatchcase(name, pattern) and name.count(".") == pattern.count("."):
            return entry
    raise KeyError(name)


class Unrecorded(MorphError, KeyError):
    """A name that was not recorded; a KeyError too, as `in` and `get` of a mapping expect."""

    __str__ = Exception.__str__


class Trace(Mapping[str, Tensor]):
    """Name to tensor, detached copies on the CPU; the latest pass replaces what an earlier one recorded."""

    def __init__(self, tensors: dict[str, Tensor] | None = None) -> None:
        self._tensors = tensors or {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise Unrecorded(f"nothing was recorded as {name!r}; `list(trace)` tells what was{nearest(name, self)}")
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def record(self, prefix: str, name: str, tensor: Tensor) -> None:
        """Take a copy of `tensor` under `prefix.name`."""
        key = f"{prefix}.{name}" if prefix else name
        held = tensor.detach().to("cpu", copy=True)
        self._tensors[key] = held.float() if held.dtype in (torch.bfloat16, torch.float16) else held

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file. Raises MorphError when it cannot be written."""
        tensors = {name: tensor.contiguous() for name, tensor in self.items()}
        try:
            Path(path).write_bytes(_safetensors().save(tensors))
        except OSError as error:
            raise MorphError(f"cannot write {path}: {error.strerror}; choose another place") from None

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file that `save` wrote. Raises MorphError when it is none."""
        try:
            return cls(_safetensors().load(Path(path).read_bytes()))
        except OSError as error:
            raise MorphError(f"cannot read {path}: {error.strerror}; give a file that Trace.save wrote") from None
        except Exception as error:  # safetensors raises a type of its own
            raise MorphError(f"{path} is not a saved trace ({error}); give a file that Trace.save wrote") from None


def _safetensors() -> Any:
    try:
        return importlib.import_module("safetensors.torch")
    except ModuleNotFoundError:
        raise MorphError("files of traces need safetensors: pip install -e '.[train]' in Morph's folder") from None


@contextmanager
def trace(model: Decoder, gradients: bool = False) -> Iterator[Trace]:
    """Record the passes made inside the block; an outer trace goes on recording too.

    With `gradients`, a backward pass inside the block leaves the derivative by each recorded tensor, summed over all
    paths from there to what is differentiated. Tensors that are only looked at (scores, softmax weights) have none.
    """
    if not isinstance(model, nn.Module):
        raise MorphError(f"{type(model).__name__} is no model to watch; give what morph.build returns")
    seen = Trace()
    hooks: list[RemovableHandle] = []
    organs = [(name, organ, organ.recorder) for name, organ in model.named_modules() if isinstance(organ, Organ)]

    def both(name: str, outer: Recorder | None, label: str, tensor: Tensor) -> None:
        seen.record(name, label, tensor)
        if gradients and tensor.requires_grad:
            hooks.append(tensor.register_hook(partial(seen.record, name, label + GRADIENT)))
        if outer is not None:
            outer(label, tensor)

    try:
        for name, organ, outer in organs:
            organ.recorder = partial(both, name, outer)
        yield seen
    finally:
        for _, organ, outer in organs:
            organ.recorder = outer
        for hook in hooks:
            hook.remove()
