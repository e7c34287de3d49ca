"""Load and save: a folder's config and rules, applied tensor by tensor.

The model is made without storage and filled file by file, so that it is in memory once. Every name and shape is
compared before the first number is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from morph.config import AllGlobal, DenseFirst, ModelConfig, MoE, NoBalance, ResidualWeights, SelectionBias, diff
from morph.errors import MorphError, nearest, short, spelled
from morph.hf.families import FAMILIES
from morph.hf.families.family import Family
from morph.hf.families.parts import layout_of
from morph.hf.files import CONFIG, DTYPES, Folder, as_path, opened, write_folder
from morph.hf.settings import Settings
from morph.hf.weights import Rule
from morph.model import Decoder, build
from morph.nn.organ import Organ

SHARD = 5_000_000_000
"""Bytes of weights in one file, as transformers has it."""


# ---- load ----------------------------------------------------------------------------------------------------


def read_config(folder: str | Path) -> ModelConfig:
    """Our config of a checkpoint folder; the weights are not looked at.

    Raises:
        MorphError: for a family or option that Morph does not know, naming it.
    """
    return open_config(folder)[1]


def open_config(folder: str | Path) -> tuple[Family, ModelConfig]:
    """The same, with the family."""
    with opened(folder) as held:
        return _config(held)


def load(folder: str | Path, dtype: torch.dtype | None = None, *, skip: Sequence[str] = ()) -> Decoder:
    """The model of a checkpoint folder, in evaluation mode on the CPU.

    Args:
        folder: holds config.json and model.safetensors (or several with an index).
        dtype: floating-point type of all weights; None keeps each in the file's (where maps of several types meet, all
            weights take the widest, which changes no number).
        skip: names or patterns of weights to leave where they are, such as "mtp.*": parts that the model works without
            and Morph does not have.

    Raises:
        MorphError: for a family or option that Morph does not know; a weight that is unknown (and not in `skip`),
            missing or of another shape than the config says; pickled, damaged or missing files.
    """
    if dtype is not None and dtype not in DTYPES.values():
        raise MorphError(
            f"dtype = {short(dtype)}: give a floating-point type such as torch.bfloat16, or None to keep it"
        )
    if not isinstance(skip, Sequence) or isinstance(skip, str) or not all(isinstance(name, str) for name in skip):
        raise MorphError(f"skip = {short(skip)}: give a list of names or patterns, such as ['mtp.*']")
    with opened(folder) as held:
        family, config = _config(held)
        model = build(config, device="meta")
        _fill_buffers(model)
        shards = held.shard_of()
        rules = _rules_for(family, config, model, held, shards)
        _check_names(held, family, config, rules, shards, model, skip)
        for rule in sorted(rules, key=lambda rule: max(shards[name] for name in rule.theirs)):
            tensors = rule.read(tuple(held.tensor(shards[name], name) for name in rule.theirs))
            for name, tensor in zip(rule.ours, tensors, strict=True):
                _put(model, name, tensor, dtype)
    if dtype is None:
        _widen(model)
    return model.eval()


def family_named(name: Any, source: str, has_code: bool = False) -> Family:
    """The family with this `model_type`. Raises MorphError with the known ones."""
    if not isinstance(name, str) or name not in FAMILIES:
        code = ", and code that a folder brings is never run" if has_code else ""
        raise MorphError(
            f"{source}: model_type = {short(name)} is unknown{code}; Morph reads {', '.join(sorted(FAMILIES))}"
            f"{nearest(name, FAMILIES)}"
        )
    return FAMILIES[name]


def _config(folder: Folder) -> tuple[Family, ModelConfig]:
    source = str(folder.path / CONFIG)
    family = family_named(folder.config.get("model_type"), source, "auto_map" in folder.config)
    settings = Settings(folder.config, source)
    settings.only("is_encoder_decoder", False)
    config = family.read_config(settings)
    settings.finish()
    return family, config


def _rules_for(
    family: Family, config: ModelConfig, model: Decoder, folder: Folder, shards: dict[str, str]
) -> list[Rule]:
    """The form in which the fewest tensors are missing or of another shape; saving's own when several fit alike."""
    forms = [rules(config) for rules in (family.rules, *family.other_rules)]

    def misfits(rules: list[Rule]) -> tuple[int, int]:
        expected = expected_tensors(model, rules)
        held = [name for name in expected if name in shards]
        misshapen = sum(folder.shape(shards[name], name) != tuple(expected[name].shape) for name in held)
        return len(expected) - len(held), misshapen

    if len(forms) == 1:
        return forms[0]
    found: list[tuple[int, int]] = []
    for rules in forms:
        found.append(misfits(rules))
        if found[-1] == (0, 0):
            break
    return forms[found.index(min(found))]


def _check_names(
    folder: Folder,
    family: Family,
    config: ModelConfig,
    rules: list[Rule],
    shards: dict[str, str],
    model: Decoder,
    skip: Sequence[str],
) -> None:
    """Raise MorphError for the first weight that is missing, of another shape, or unknown."""
    expected = expected_tensors(model, rules)
    for pattern in skip:
        matched = [name for name in shards if fnmatchcase(name, pattern)]
        if not matched:
            raise MorphError(f"skip: no weight of {folder.path} is called {pattern!r}; leave the pattern out")
        needed = [name for name in matched if name in expected]
        if needed:
            raise MorphError(f"skip: {pattern!r} leaves out {needed[0]}, which the model needs; choose a narrower one")
    for name, wanted in expected.items():
        if name not in shards:
            raise MorphError(
                f"{folder.path} lacks the weight {name} of shape {tuple(wanted.shape)}, which its config.json asks "
                f"for; fetch all files, or mend config.json{nearest(name, shards.keys() - expected.keys())}"
            )
        found = folder.shape(shards[name], name)
        if found != tuple(wanted.shape):
            raise MorphError(
                f"{folder.path}: weight {name} has shape {found}, but config.json asks for {tuple(wanted.shape)}; "
                f"the two are of different models"
            )
    passed_over = (*family.ignored(config), *skip)
    unknown = [n for n in shards if n not in expected and not any(fnmatchcase(n, p) for p in passed_over)]
    if config.tied and family.tied_copy in unknown:
        _check_tied(folder, family, rules, shards)
        unknown.remove(family.tied_copy)
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise MorphError(
            f"{folder.path}: weight {spelled(unknown[0])}{more} has no place in a {family.model_type} model with this "
            f"config.json; the two are of different models, or it is of a part that Morph does not have: to load the "
            f"rest, name it in skip, such as skip=[{_pattern(unknown[0])!r}]"
        )


def _pattern(name: str) -> str:
    """A pattern for all weights of the part that this one belongs to: its layer, or its first word."""
    words = name.split(".")
    numbers = [i for i, word in enumerate(words) if word.isdigit()]
    return ".".join(words[: numbers[0] + 1 if numbers else 1]) + ".*"


def _check_tied(folder: Folder, family: Family, rules: list[Rule], shards: dict[str, str]) -> None:
    """A stored copy of the embedding must be one."""
    embedding = next(rule.theirs[0] for rule in rules if rule.ours == ("embedding.weight",))
    copy = family.tied_copy
    same_shape = folder.shape(shards[copy], copy) == folder.shape(shards[embedding], embedding)
    if not same_shape or not torch.equal(*(folder.tensor(shards[name], name) for name in (copy, embedding))):
        raise MorphError(
            f"{folder.path}: weight {copy} differs from {embedding}, but config.json ties the two; "
            f"set tie_word_embeddings to false"
        )


def own_tensors(model: Decoder) -> dict[str, Tensor]:
    """Every parameter and persistent buffer by name."""
    return dict(model.state_dict(keep_vars=True))


def expected_tensors(model: Decoder, rules: list[Rule]) -> dict[str, Tensor]:
    """What the rules make of a model, without storage: the names and shapes of their tensors.

    That the rules name each of our tensors once is a law of a family, checked here since all else rests on it.
    """
    own = own_tensors(model)
    named = [name for rule in rules for name in rule.ours]
    assert sorted(named) == sorted(own), f"rules and model differ in {set(named) ^ set(own) or 'a name given twice'}"
    expected: dict[str, Tensor] = {}
    for rule in rules:
        made = rule.write(tuple(torch.empty_like(own[name], device="meta") for name in rule.ours))
        expected |= dict(zip(rule.theirs, made, strict=True))
    return expected


def _put(model: Decoder, name: str, tensor: Tensor, dtype: torch.dtype | None) -> None:
    """Give the model a tensor in the place of one without storage; buffers keep their own precision."""
    path, _, leaf = name.rpartition(".")
    owner = model.get_submodule(path)
    held = getattr(owner, leaf)
    assert held.shape == tensor.shape, f"the rule for {name} makes {tuple(tensor.shape)} of {tuple(held.shape)}"
    is_parameter = isinstance(held, nn.Parameter)
    tensor = tensor.to(dtype or tensor.dtype) if is_parameter else tensor.to(held.dtype)
    # What was read lies in the file, or in another's memory.
    tensor = tensor.clone(memory_format=torch.contiguous_format)
    setattr(owner, leaf, nn.Parameter(tensor) if is_parameter else tensor)


def _widen(model: Decoder) -> None:
    """Give all weights one type when maps that read one another's output have several; a router widens by itself."""
    maps = [m for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Embedding) and "router" not in name]
    types = {m.weight.dtype for m in maps}
    if len(types) > 1:
        model.to(reduce(torch.promote_types, types))


def _fill_buffers(model: Decoder) -> None:
    """Storage for what no checkpoint holds, as in a new model."""
    for organ in model.modules():
        buffers = dict(organ.named_buffers(recurse=False))
        for name, buffer in buffers.items():
            setattr(organ, name, torch.empty(buffer.shape, dtype=buffer.dtype))
        if buffers and isinstance(organ, Organ):
            organ.init_weights(torch.Generator().manual_seed(0))


# ---- save ----------------------------------------------------------------------------------------------------


def save(
    model: Decoder,
    folder: str | Path,
    family: str | None = None,
    *,
    max_shard_bytes: int = SHARD,
    overwrite: bool = False,
) -> Path:
    """Write a model as a checkpoint folder that transformers loads; it appears whole or not at all.

    Args:
        model: any model whose config a family of transformers can hold.
        folder: a new folder, or an empty one.
        family: its `model_type`, such as "llama"; None for the first that can hold the config.
        max_shard_bytes: weights in one file, unless a single one is larger.
        overwrite: replace a checkpoint folder that is there, with all it holds.

    Returns:
        The folder.

    Raises:
        MorphError: when the family cannot hold the config (naming the field), or the folder is taken.
    """
    if not isinstance(model, Decoder) or model.embedding.weight.is_meta:
        raise MorphError("give a model with numbers in it, as morph.build or morph.hf.load returns")
    if type(max_shard_bytes) is not int or max_shard_bytes < 1:
        raise MorphError(f"max_shard_bytes = {max_shard_bytes!r}: give a whole number of bytes, such as {SHARD}")
    for name, tensor in own_tensors(model).items():
        if tensor.is_meta or (isinstance(tensor, nn.Parameter) and tensor.dtype not in DTYPES.values()):
            raise MorphError(
                f"{name} is {'without storage' if tensor.is_meta else str(tensor.dtype)}; Morph writes "
                f"{', '.join(DTYPES)}, so convert the model first, such as model.to(torch.bfloat16)"
            )
    chosen, settings = _family_for(model.config, family)
    rules = chosen.rules(model.config)
    written = {
        "model_type": chosen.model_type,
        "architectures": [chosen.architecture],
        "dtype": str(model.embedding.weight.dtype).removeprefix("torch."),
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
        **settings,
    }  # fmt: skip
    write_folder(as_path(folder), written, _shards(model, rules, max_shard_bytes), overwrite)
    return Path(folder)


def _shards(model: Decoder, rules: list[Rule], most: int) -> Iterator[dict[str, Tensor]]:
    """The tensors of the rules, in lots of at most `most` bytes; one lot is in memory at a time."""
    own = own_tensors(model)
    expected = expected_tensors(model, rules)

    def size(rule: Rule) -> int:
        return sum(expected[name].numel() * expected[name].element_size() for name in rule.theirs)

    lots: list[list[Rule]] = [[]]
    filled = 0
    for rule in rules:
        if lots[-1] and filled + size(rule) > most:
            lots.append([])
            filled = 0
        lots[-1].append(rule)
        filled += size(rule)
    for lot in lots:
        tensors: dict[str, Tensor] = {}
        for rule in lot:
            made = rule.write(tuple(own[name].detach().cpu() for name in rule.ours))
            tensors |= {n: t.contiguous() for n, t in zip(rule.theirs, made, strict=True)}
        yield _apart(tensors)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, each in memory of its own: not part of a larger one, nor another's (files hold no shared memory)."""
    found: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        is_own = storage.nbytes() == tensor.numel() * tensor.element_size() and storage.data_ptr() not in taken
        taken.add(storage.data_ptr())
        found[name] = tensor if is_own else tensor.clone()
    return found


def _family_for(config: ModelConfig, name: str | None) -> tuple[Family, dict[str, Any]]:
    """The family to write and its config.json. Raises MorphError naming what it, or the nearest one, cannot hold."""
    if name is not None:
        family = family_named(name, "save")
        settings, misfits = _fit(family, config)
        if settings is None:
            told = "; ".join(misfit for misfit in misfits if misfit != OTHER_ORGAN)
            raise MorphError(f"{name} cannot hold this model: {told}; choose another family, or None")
        return family, settings
    found: dict[str, list[str]] = {}
    for family in FAMILIES.values():
        settings, found[family.model_type] = _fit(family, config)
        if settings is not None:
            return family, settings
    # One that lacks an organ is further off than one that reads other values.
    closest = min(found, key=lambda each: (OTHER_ORGAN in found[each], len(found[each])))
    told = "; ".join(misfit for misfit in found[closest] if misfit != OTHER_ORGAN)
    raise MorphError(f"no family that Morph writes can hold this model; the nearest is {closest}: {told}")


def _fit(family: Family, config: ModelConfig) -> tuple[dict[str, Any] | None, list[str]]:
    """What the family's config.json says of a config, if reading it gives the config back; else the differences."""
    try:
        settings = family.write_config(config)
        back = Settings(settings, family.model_type)
        returned = family.read_config(back)
        back.finish()
    except MorphError as error:
        return None, [str(error), OTHER_ORGAN]
    changes = diff(settled(config), settled(returned))
    return (None, [str(change) for change in changes]) if changes else (settings, [])


OTHER_ORGAN = "it lacks an organ"


def settled(config: ModelConfig) -> ModelConfig:
    """The config in the form in which equal models are equal records: the layout by its shortest name, nothing that
    only training sees."""
    globals_ = [layer for layer in range(config.n_layers) if config.mixer(layer) is config.attention]
    layout = config.layout
    if not isinstance(layout, AllGlobal):
        layout = layout_of(globals_, config.n_layers, layout.local)
    scale = getattr(config.attention, "scale", None)
    attention = config.attention
    if scale is not None and abs(scale * attention.width**0.5 - 1) < 1e-12:
        attention = replace(attention, scale=None)
    plain = config.embedding_scale is not None and abs(config.embedding_scale / config.d_model**0.5 - 1) < 1e-12
    scale = None if plain else config.embedding_scale
    feed_forward = config.feed_forward
    if isinstance(feed_forward, DenseFirst):
        feed_forward = replace(feed_forward, experts=_settled_experts(feed_forward.experts))
    elif isinstance(feed_forward, MoE):
        feed_forward = _settled_experts(feed_forward)
    return replace(
        config,
        layout=layout,
        attention=attention,
        embedding_scale=scale,
        feed_forward=feed_forward,
        residual=None if config.residual == ResidualWeights() else config.residual,
        dropout=None,
    )


def _settled_experts(experts: MoE) -> MoE:
    """Experts without what spreads their load while training; a selection bias has a say later, too, at any rate."""
    balance = SelectionBias() if isinstance(experts.balance, SelectionBias) else NoBalance()
    own_width = experts.shared_width if experts.width_of_shared != experts.expert.width else None
    return replace(experts, balance=balance, shared_width=own_width)
