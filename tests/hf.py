"""Parity with transformers: its model with all numbers moved, saved, loaded by Morph, and compared at every layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import morph
from morph import hf
from morph.model import Decoder
from tests.models import relative_error

WHOLE, CACHED = 1e-5, 5e-5
"""Largest relative errors in fp32: of a whole pass at every layer, and of decoding with a cache."""


def transformers() -> Any:
    """The package, silent, and offline whatever happens."""
    import transformers as package

    package.logging.set_verbosity_error()
    package.logging.disable_progress_bar()
    return package


def make_theirs(family: str, kwargs: dict[str, Any], seed: int = 0, **more: Any) -> Any:
    """transformers' model of a family, its numbers redrawn so that nothing is at a value that hides its absence."""
    package = transformers()
    made = hf.FAMILIES[family].architecture
    model_class = getattr(package, made)
    config = model_class.config_class(**kwargs, **more)
    config._attn_implementation = "eager"  # the form that knows caps and sinks
    config._experts_implementation = "eager"
    torch.manual_seed(seed)
    model = model_class(config).eval().float()
    redraw(model, seed)
    return model


@torch.no_grad()
def redraw(model: nn.Module, seed: int) -> None:
    """Matrices from N(0, 1/fan_in), so that attention is sharp; everything else moved by 0.2 off where it stands."""
    generator = torch.Generator().manual_seed(1000 + seed)
    saved = model.state_dict()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name not in saved or not tensor.is_floating_point():
            continue
        if name.endswith(("slope_rate", "_decay")):
            continue  # tables that follow from the sizes
        noise = torch.randn(tensor.shape, generator=generator)
        if "A_log" in name:
            tensor.copy_(0.5 * noise - 3)  # as made, a state would forget within a token
        elif tensor.ndim < 2:
            tensor.add_(0.2 * noise)
        else:
            tensor.copy_(noise * tensor.shape[-1] ** -0.5)


def their_states(model: Any, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits, and the stream into block 0, after every block but the last, and after the final norm."""
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    return out.logits, list(out.hidden_states)


def our_states(model: Decoder, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The same of ours."""
    with torch.no_grad(), morph.trace(model) as seen:
        logits = model(ids)
        last = model.norm(seen[f"blocks.{len(model.blocks) - 1}.stream"].to(logits.dtype))
    return logits, [seen["stream"], *(seen[f"blocks.{i}.stream"] for i in range(len(model.blocks) - 1)), last]


def decode(model: Decoder, ids: Tensor, chunks: tuple[int, ...]) -> Tensor:
    """Logits of `ids` read in pieces of these lengths, the rest one by one."""
    cache, out, start = model.new_cache(len(ids)), [], 0
    lengths = [*chunks, *[1] * (ids.shape[1] - sum(chunks))]
    with torch.no_grad():
        for length in lengths:
            out.append(model(ids[:, start : start + length], cache=cache))
            start += length
    return torch.cat(out, dim=1)


def padding_error(theirs: Any, ours: Decoder, ids: Tensor) -> float:
    """How far the logits of two texts are apart of which the second begins 13 columns later."""
    lengths = torch.tensor([ids.shape[1], ids.shape[1] - 13])
    real = torch.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]
    places = (real.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=real.long(), position_ids=places, use_cache=False).logits
        return relative_error(ours(ids, lengths=lengths)[real], expected[real])


def assert_parity(
    theirs: Any,
    folder: Path,
    length: int = 40,
    seed: int = 0,
    chunks: tuple[int, ...] = (23, 7),
    skip: tuple[str, ...] = (),
) -> None:
    """Save theirs, load it, and compare logits, every layer, cached decoding, and what transformers reads of our save.

    The prompt is longer than any window of the tests, and so is its first piece.
    """
    theirs.save_pretrained(folder / "theirs")
    ours = hf.load(folder / "theirs", skip=skip)
    ids = torch.randint(0, ours.config.vocab_size, (2, length), generator=torch.Generator().manual_seed(seed))
    logits, states = their_states(theirs, ids)
    our_logits, ours_seen = our_states(ours, ids)
    assert len(states) == len(ours_seen) == ours.config.n_layers + 1
    errors = {f"state {i}": relative_error(b, a) for i, (a, b) in enumerate(zip(states, ours_seen, strict=True))}
    errors["logits"] = relative_error(our_logits, logits)
    assert max(errors.values()) <= WHOLE, errors
    errors["cached"] = relative_error(decode(ours, ids, chunks), logits)
    assert errors["cached"] <= CACHED, errors

    errors["padded"] = padding_error(theirs, ours, ids)
    assert errors["padded"] <= WHOLE, errors

    hf.save(ours, folder / "ours", family=theirs.config.model_type)
    back = type(theirs).from_pretrained(folder / "ours", attn_implementation="eager", dtype=torch.float32).eval()
    back.config._experts_implementation = "eager"
    errors["back"] = relative_error(their_states(back, ids)[0], logits)
    assert errors["back"] <= 1e-6, errors
    assert hf.read_config(folder / "ours") == ours.config


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of a folder's config.json; `...` removes one."""
    path = folder / "config.json"
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in data.items() if value is not ...}))
