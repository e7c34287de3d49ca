"""From a model's config to another, one organ after another, each by its recipe; and what that did to the function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from morph.config import ModelConfig, PerLayer, diff
from morph.errors import MorphError, short
from morph.measure.count import count
from morph.measure.memory import available_memory, gigabytes
from morph.model import Decoder
from morph.upcycling import feedforward, mixing, stream
from morph.upcycling.move import Kind, Move, Options, Told

MOST_TOKENS, TEXTS = 128, 8
BYTES_PER_PARAMETER = 8  # models are carried in fp64


@dataclass(frozen=True)
class Rule:
    """A recipe for one difference between configs.

    Attributes:
        name: slug of the step or fork whose change it carries over, as a rule.
        toward: from a config and the one aimed at to the next on the way; None where the two do not differ so.
        carry: makes the tensors of the next model.
    """

    name: str
    toward: Callable[[ModelConfig, ModelConfig], ModelConfig | None]
    carry: Callable[[Move], Told]


def _plain_position(config: ModelConfig, target: ModelConfig) -> ModelConfig | None:
    """To one position for all layers; what differs between kinds of layers waits until there are such."""
    wanted = target.position
    return stream.to_position(
        config, replace(target, position=wanted.local if isinstance(wanted, PerLayer) else wanted)
    )


RULES: tuple[Rule, ...] = (
    Rule("pre-norm", stream.to_pre_norm, stream.pre_norm),
    Rule("rms-norm", stream.to_rms_norm, stream.rms_norm),
    Rule("no-bias", stream.to_no_bias, stream.no_bias),
    Rule("position", _plain_position, stream.position),
    Rule("activation", feedforward.to_activation, feedforward.activation),
    Rule("gated-ffn", feedforward.to_gated, feedforward.gated),
    Rule("gqa", mixing.to_gqa, mixing.gqa),
    Rule("qk-norm", mixing.to_qk_norm, mixing.qk_norm),
    Rule("window", mixing.to_window, mixing.window),
    Rule("position", stream.to_position, stream.position),
    Rule("moe", feedforward.to_experts, feedforward.experts),
    Rule("fine-grained", feedforward.to_finer, feedforward.finer),
    Rule("shared-expert", feedforward.to_shared, feedforward.shared),
    Rule("balance", feedforward.to_balance, feedforward.balance),
    Rule("hybrid", mixing.to_hybrid, mixing.hybrid),
    Rule("shared-expert-gate", feedforward.to_shared_gate, feedforward.shared_gate),
    Rule("attention gate", mixing.to_gated_attention, mixing.gated_attention),
    Rule("qkv-bias", mixing.to_qkv_bias, mixing.qkv_bias),
    Rule("zero-centred-norm", stream.to_zero_centred, stream.zero_centred),
    Rule("depth-scaled-gain", stream.to_depth_scaled, stream.copied),
    Rule("untied", stream.to_untied, stream.untied),
    Rule("logit-scale", stream.to_logit_scale, stream.logit_scale),
    Rule("dropout", stream.to_dropout, stream.copied),
    Rule("mtp", stream.to_mtp, stream.mtp),
)


@dataclass(frozen=True)
class Carried:
    """One move of the walk.

    Attributes:
        name: the rule's.
        changes: the config fields that changed, in words.
        told: what the recipe says of itself.
        copied, made, fresh: names of the new model's tensors.
        difference: the largest difference of a logit before and after, in fp64, on texts of at most `told.holds_for`
            tokens: rounding where the move preserves the function.
        beyond: the same on the whole of longer texts; None where there is no such limit, or none reached it.
    """

    name: str
    changes: tuple[str, ...]
    told: Told
    copied: tuple[str, ...]
    made: tuple[str, ...]
    fresh: tuple[str, ...]
    difference: float
    beyond: float | None

    @property
    def kind(self) -> Kind:
        """As `Told.kind`."""
        return self.told.kind

    def __str__(self) -> str:
        counts = f"{len(self.copied)} tensors copied, {len(self.made)} made, {len(self.fresh)} fresh"
        limit = f" on texts of up to {self.told.holds_for} tokens" if self.told.holds_for is not None else ""
        beyond = f", {self.beyond:.2g} on longer ones" if self.beyond is not None else ""
        lines = [f"{self.name}: {self.kind}{limit}", *self.changes, self.told.how, counts]
        lines += [f"lost: {what}" for what in self.told.lost]
        lines.append(f"largest difference of a logit: {self.difference:.2g}{beyond}")
        return "\n    ".join(lines)


@dataclass(frozen=True)
class Report:
    """What a walk did, move by move.

    Attributes:
        moves: in order; none where the configs are equal.
        difference: the largest difference of a logit between the first model and the last, on all of the texts.
        largest: the largest magnitude of a logit of the first, to hold differences against.
    """

    moves: tuple[Carried, ...]
    difference: float
    largest: float

    def __str__(self) -> str:
        lines = [str(move) for move in self.moves] or ["nothing to carry: both configs are equal"]
        end = f"all together: largest difference of a logit {self.difference:.2g}, of logits up to {self.largest:.2g}"
        return "\n".join([*lines, end])


def plan(config: ModelConfig, target: ModelConfig) -> list[tuple[Rule, ModelConfig]]:
    """The rules that lead from a config to another, each with the config it leads to.

    Raises:
        MorphError: naming the first difference that no recipe carries over.
    """
    if config.mtp is not None and config != target:
        raise MorphError(
            "no recipe carries heads for later tokens (mtp) over a change; start from a model without them, "
            "and add them at the end, as in --to hybrid+mtp"
        )
    walk = []
    for rule in RULES:
        for _ in range(8):  # a rule may be needed more than once, as for several shared experts
            following = rule.toward(config, target)
            if following is None or following == config:
                break
            walk.append((rule, following))
            config = following
    if left := diff(config, target):
        raise MorphError(
            f"no recipe carries {left[0]}; keep {left[0].path} as it is in the model, or train that stage from scratch"
        )
    return walk


def texts(config: ModelConfig, seed: int) -> Tensor:
    """Token ids drawn evenly, (8, S): stands for text where none is given."""
    length = min(config.context_length, MOST_TOKENS)
    return torch.randint(0, config.vocab_size, (TEXTS, length), generator=torch.Generator().manual_seed(seed))


def upcycle(
    model: Decoder,
    config: ModelConfig,
    *,
    ids: Tensor | None = None,
    seed: int = 0,
    steepness: float = 4.0,
    noise: float = 0.0,
) -> tuple[Decoder, Report]:
    """A trained model carried over to another config, one change after another, and what became of its function.

    From a stage to any later one (`morph.stage`), and to forks where a recipe is known. The model that is given stays
    as it is; its optimizer's state is not carried over.

    Args:
        model: what was trained.
        config: what it shall become.
        ids: token ids (B, S) on which sizes and differences are measured, best of text like that it was trained on;
            None draws some.
        seed: of whatever is drawn.
        steepness: β where SiLU(βz)/β replaces ReLU(z): larger is nearer, and bends less.
        noise: what is added to experts made as copies, relative to their size; 0 keeps the function.

    Returns:
        The new model, in the precision of the old, its parts in the mode and as frozen as they were, and the report,
        whose differences are of fp64.

    Raises:
        MorphError: for a difference that no recipe carries over, and for more parameters than memory holds, before
            anything is computed; for a model whose logits are not finite, and numbers that its precision cannot hold.
    """
    options = Options(seed, steepness, noise)
    _check(model, config, ids, options)
    walk = plan(model.config, config)
    _require_memory([model.config, *(following for _, following in walk)])
    # Whatever stands around the call: numbers on the CPU, parameters that can be trained, and no autocast in what is
    # measured.
    with (
        torch.device("cpu"), torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False)
    ):  # fmt: skip
        ids = texts(model.config, seed) if ids is None else ids.cpu()
        return _carry(model, walk, ids, options)


def _carry(
    model: Decoder, walk: list[tuple[Rule, ModelConfig]], ids: Tensor, options: Options
) -> tuple[Decoder, Report]:
    """Make the moves of a walk."""
    place, dtype = model.embedding.weight.device, model.embedding.weight.dtype
    first = here = copy.deepcopy(model).cpu().double().eval()
    start = before = first(ids)
    if not start.isfinite().all():
        raise MorphError("the model's logits are not finite, it has diverged: give it as it was at an earlier step")
    moves = []
    for rule, following in walk:
        move = Move(here, following, ids, options)
        told = rule.carry(move)
        after = move.new(ids)
        moves.append(_carried(rule, move, told, before, after))
        here, before = move.new, after
    report = Report(tuple(moves), _gap(start, before), float(start.abs().max()))
    new = _as_it_was(here.to(place, dtype), model)
    if bad := next((name for name, tensor in new.state_dict().items() if not tensor.isfinite().all()), None):
        raise MorphError(f"{bad} does not fit {str(dtype).removeprefix('torch.')}: give the model as float32")
    return new, report


def _as_it_was(new: Decoder, old: Decoder) -> Decoder:
    """Give the new model the old one's modes and frozen weights, by name; what is new is in the mode of its holder."""
    modes = {name: module.training for name, module in old.named_modules()}
    for name, module in new.named_modules():
        while name not in modes:
            name = name.rpartition(".")[0]
        module.training = modes[name]
    is_trained = {name: parameter.requires_grad for name, parameter in old.named_parameters()}
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(is_trained.get(name, True))
    return new


def _carried(rule: Rule, move: Move, told: Told, before: Tensor, after: Tensor) -> Carried:
    """The record of a move."""
    whole, limit = _gap(before, after), told.holds_for
    within, beyond = whole, None
    if limit is not None and limit < move.ids.shape[1]:
        within, beyond = _gap(before[:, :limit], after[:, :limit]), whole
    changes = tuple(str(change) for change in diff(move.old.config, move.new.config))
    return Carried(rule.name, changes, told, **move.origins(), difference=within, beyond=beyond)


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _require_memory(walk: list[ModelConfig]) -> None:
    """Raise MorphError when the model and two neighbours of the walk, in fp64, are more than the memory there is."""
    sizes = [count(config).total for config in walk]
    needed = BYTES_PER_PARAMETER * (sizes[0] + max(a + b for a, b in pairwise([0, *sizes])))
    available = available_memory(torch.device("cpu"))
    if available is not None and needed > available:
        raise MorphError(
            f"carrying {max(sizes):,} parameters over takes at least {gigabytes(needed)}, three models in fp64, and "
            f"{gigabytes(available)} are free: free some, or go to a smaller model"
        )


def _check(model: Decoder, config: ModelConfig, ids: Tensor | None, options: Options) -> None:
    if not isinstance(model, Decoder) or model.embedding.weight.is_meta:
        raise MorphError(
            "give a model with numbers in it, as morph.build, morph.train.load_model or morph.hf.load returns"
        )
    if not isinstance(config, ModelConfig):
        raise MorphError(f"config is a {type(config).__name__}; give one such as morph.stage('gqa', 'nano')")
    if ids is not None and (not isinstance(ids, Tensor) or ids.is_meta):
        given = "a meta tensor" if isinstance(ids, Tensor) else f"a {type(ids).__name__}"
        raise MorphError(f"ids is {given}: give a tensor (B, S) of token ids, or None to have some drawn")
    if not isinstance(options.seed, int) or isinstance(options.seed, bool) or not 0 <= options.seed < 2**32:
        raise MorphError(f"seed is {short(options.seed)}: give a whole number from 0 to {2**32 - 1}")
    for name, value, least, such in (
        ("steepness", options.steepness, 1e-6, "a number above 0, such as 4"),
        ("noise", options.noise, 0.0, "0, or a share such as 0.01"),
    ):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value < 1e6:
            raise MorphError(f"{name} is {short(value)}: give {such}")
