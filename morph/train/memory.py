"""Whether a model can be trained in the memory there is, told before anything is built or written."""

import contextlib
import os
import re
from pathlib import Path

import torch

import morph
from morph.config import ModelConfig
from morph.errors import MorphError
from morph.train.recipe import Recipe

BYTES_PER_PARAMETER = 16  # weight, gradient and AdamW's two moments, in fp32
LOGIT_COPIES = 2  # the logits of a micro-batch and their gradient, in fp32


def require_memory(config: ModelConfig, recipe: Recipe, device: torch.device) -> None:
    """Raise MorphError when weights, moments and one micro-batch's logits alone do not fit the device's memory.

    They are a lower bound of what training takes: what passes may still be too large.
    """
    try:
        parameters = morph.count(config).total
    except (RuntimeError, OverflowError, TypeError):  # sizes that torch cannot even write down
        raise MorphError("the config's matrices are too large for any machine: give smaller widths") from None
    available = available_memory(device)
    if available is None:
        return
    weights = BYTES_PER_PARAMETER * parameters
    logits = 4 * LOGIT_COPIES * recipe.batch_size * config.context_length * config.vocab_size
    if weights + logits > available:
        remedy = "choose a smaller --size" if weights > available else "lower --batch-size"
        raise MorphError(
            f"training needs at least {_gb(weights + logits)}: {_gb(weights)} for {parameters:,} parameters, "
            f"{_gb(logits)} for batch_size {recipe.batch_size}; {device} has {_gb(available)} free: {remedy}"
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes that a new process could use on `device`; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    known = []
    with contextlib.suppress(OSError):
        if found := re.search(r"^MemAvailable: *(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE):
            known.append(int(found[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # a container's limit, unless it is "max"
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    if not known:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(known, default=None)


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
